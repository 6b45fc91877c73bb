/* Preloaded under a program, it puts that program's wall clock wrong by $WRONG_CLOCK_S seconds.
 * Only for the program's own calls: its libraries wait for times of the kernel's clock, and told
 * another they would find each of those over, and spin. */
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uintptr_t code_begin, code_end; /* of the program */
static time_t off_s;

static int find_code(struct dl_phdr_info *object, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        code_begin = object->dlpi_addr + part->p_vaddr;
        code_end = code_begin + part->p_memsz;
    }
    return 1; /* the program comes first, and is enough */
}

__attribute__((constructor)) static void begin(void)
{
    const char *seconds = getenv("WRONG_CLOCK_S");
    off_s = seconds ? strtol(seconds, NULL, 10) : 0;
    (void)dl_iterate_phdr(find_code, NULL); /* always 1 */
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    int rc = (int)syscall(SYS_clock_gettime, clock, ret);
    if (rc == 0 && clock == CLOCK_REALTIME && caller >= code_begin && caller < code_end)
        ret->tv_sec += off_s;
    return rc;
}
