#include "support/scratch.h"

#include "support/scratch_exit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOG_TAIL_BYTES = 6000, OPEN_FILES_MAX = 16 };

/* State of the test program: one thread uses it, as the header says. */
static char directory[SCRATCH_PATH_SIZE];
static pid_t owner;
static unsigned path_count;
static char logs[SCRATCH_LOGS_MAX][SCRATCH_PATH_SIZE];
static size_t log_count;
static void (*children_end)(void);

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type, (void)place; /* nftw's signature */
    return remove(path) != 0 && errno != ENOENT ? -1 : 0;
}

int scratch_remove(const char *path, struct err *err)
{
    if (nftw(path, remove_one, OPEN_FILES_MAX, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return err_set(err, ERR_INTERNAL, "remove %s: %s", path, strerror(errno));
    return 0;
}

static void print_log_tail(const char *path)
{
    char text[LOG_TAIL_BYTES + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* the program removed it itself */
    off_t size = lseek(fd, 0, SEEK_END);
    off_t from = size > LOG_TAIL_BYTES ? size - LOG_TAIL_BYTES : 0;
    ssize_t count = pread(fd, text, LOG_TAIL_BYTES, from);
    (void)close(fd); /* only read */
    if (count <= 0)
        return;
    text[count] = '\0';
    const char *start = from > 0 && strchr(text, '\n') ? strchr(text, '\n') + 1 : text;
    (void)fprintf(stderr, "---- end of %s\n%s", strrchr(path, '/') + 1, start); /* best effort */
}

static void at_exit(int status, void *unused)
{
    (void)unused;
    if (getpid() != owner)
        return; /* a forked child that could not execute its program */
    if (children_end)
        children_end();
    for (size_t i = 0; status != 0 && i < log_count && i < SCRATCH_LOGS_MAX; i++)
        print_log_tail(logs[i]);
    if (getenv("SAGAD_TEST_KEEP")) {
        (void)fprintf(stderr, "kept %s\n", directory); /* best effort */
        return;
    }
    struct err err;
    if (scratch_remove(directory, &err))
        (void)fprintf(stderr, "%s\n", err.msg); /* best effort */
}

const char *scratch_dir(struct err *err)
{
    if (directory[0])
        return directory;
    const char *root = getenv("TMPDIR");
    char path[SCRATCH_PATH_SIZE];
    int size = snprintf(path, sizeof(path), "%s/sagad-test-XXXXXX", root && *root ? root : "/tmp");
    /* 60 bytes are left for "/NN-pg/.s.PGSQL.NNNNN" in the 108 of a unix socket's name. */
    if (size < 0 || size > 80) {
        (void)err_set(err, ERR_LIMIT, "TMPDIR is too long for unix sockets");
        return NULL;
    }
    if (!mkdtemp(path) || chmod(path, 0711) != 0) {
        (void)err_set(err, ERR_INTERNAL, "make %s: %s", path, strerror(errno));
        return NULL;
    }
    owner = getpid();
    if (on_exit(at_exit, NULL) != 0) {
        (void)err_set(err, ERR_NOMEM, "on_exit failed");
        return NULL;
    }
    memcpy(directory, path, sizeof(path));
    return directory;
}

int scratch_path(const char *name, char ret_path[SCRATCH_PATH_SIZE], struct err *err)
{
    const char *dir = scratch_dir(err);
    if (!dir)
        return (int)err->code;
    char path[SCRATCH_PATH_SIZE];
    int size = snprintf(path, sizeof(path), "%s/%02u-%s", dir, path_count++, name);
    if (size < 0 || (size_t)size >= sizeof(path))
        return err_set(err, ERR_LIMIT, "name %s is too long", name);
    memcpy(ret_path, path, sizeof(path));
    return 0;
}

void scratch_remember_log(const char *path)
{
    char *place = logs[log_count++ % SCRATCH_LOGS_MAX];
    (void)snprintf(place, SCRATCH_PATH_SIZE, "%s", path); /* it came from scratch_path: it fits */
}

void scratch_on_exit_end_children(void (*end)(void))
{
    children_end = end;
}
