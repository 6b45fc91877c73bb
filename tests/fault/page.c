#include "page.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

const char *const page_place_names[PAGE_PLACE_COUNT] = {
    [PAGE_BEFORE_COMMIT] = "before_commit",
    [PAGE_AFTER_COMMIT] = "after_commit",
    [PAGE_AFTER_REPLY] = "after_reply",
    [PAGE_AFTER_TASK_SENT] = "after_task_sent",
    [PAGE_INSIDE_ADOPTION] = "inside_adoption",
    [PAGE_INSIDE_MIGRATION] = "inside_migration",
    [PAGE_BEFORE_INGEST] = "before_ingest",
    [PAGE_INGEST_BEFORE_COMMIT] = "ingest_before_commit",
    [PAGE_INGEST_AFTER_COMMIT] = "ingest_after_commit",
    [PAGE_AFTER_INGEST] = "after_ingest",
    [PAGE_AFTER_ARCHIVE] = "after_archive",
    [PAGE_BEFORE_OUTBOX_DELETE] = "before_outbox_delete",
    [PAGE_ALLOCATION] = "an allocation",
    [PAGE_LIBPQ] = "a call of libpq",
};

#define PAGE_NAME(name) [PAGE_##name] = #name,
const char *const page_libpq_names[PAGE_LIBPQ_COUNT] = { PAGE_LIBPQ_CALLS(PAGE_NAME) };

struct page *page_map(const char *path, bool create)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_TRUNC : 0), 0600);
    if (fd < 0)
        return NULL;
    void *map = MAP_FAILED;
    if (!create || ftruncate(fd, sizeof(struct page)) == 0)
        map = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd); /* the mapping stays */
    return map == MAP_FAILED ? NULL : map;
}
