#include "retention/archive.h"

#include "base/buf.h"
#include "base/mem.h"
#include "retention/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FLUSH_BYTES = 1024 * 1024,
    DAY_SIZE = 11, /* "2026-11-30" */
    TAIL_BYTES = 4096,
};
#define PREFIX "sagas-"

struct archive {
    char *folder;
    char *suffix; /* "-NODE.jsonl" */
    int stop_fd;
    int folder_fd;           /* -1: not open */
    int fd;                  /* the day's file; -1: none is open */
    bool is_new;             /* its name is not on the disk yet */
    char name[NAME_MAX + 1]; /* "": none yet */
    off_t begin;             /* where the batch began; -1: no batch */
    off_t end;               /* what was handed to the kernel, from the file's start */
    struct buf pending;
};

/* What may stand in the name of a file. */
static void add_safe(struct buf *buf, const char *text)
{
    for (; *text; text++) {
        bool safe = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                    (*text >= '0' && *text <= '9') || strchr("._-", *text);
        buf_append(buf, safe ? text : "_", 1);
    }
}

int archive_new(const char *folder, const char *node, int stop_fd, struct archive **ret,
                struct err *err)
{
    struct archive *archive = mem_calloc(1, sizeof *archive);
    CLEANUP(buf_done) struct buf suffix = { 0 };
    buf_text(&suffix, "-");
    add_safe(&suffix, node);
    buf_text(&suffix, ".jsonl");
    if (!archive || suffix.failed || !(archive->folder = mem_strdup(folder)) ||
        !(archive->suffix = mem_strdup(buf_cstr(&suffix)))) {
        if (archive)
            mem_free(archive->folder);
        mem_free(archive);
        return err_set(err, ERR_NOMEM, "archive: out of memory");
    }
    archive->stop_fd = stop_fd;
    archive->folder_fd = archive->fd = -1;
    archive->begin = -1;
    *ret = archive;
    return 0;
}

static void close_file(struct archive *archive)
{
    if (archive->fd >= 0)
        (void)close(archive->fd); /* what counts was synced */
    archive->fd = -1;
    archive->begin = -1;
    archive->name[0] = '\0';
}

static void close_folder(struct archive *archive)
{
    if (archive->folder_fd >= 0)
        (void)close(archive->folder_fd); /* it was only read */
    archive->folder_fd = -1;
}

struct archive *archive_free(struct archive *archive)
{
    if (!archive)
        return NULL;
    close_file(archive);
    close_folder(archive);
    buf_done(&archive->pending);
    mem_free(archive->folder);
    mem_free(archive->suffix);
    mem_free(archive);
    return NULL;
}

const char *archive_name(const struct archive *archive)
{
    return archive->name;
}

static int fault(const struct archive *archive, const char *what, struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "archive: %s/%s: %s: %s", archive->folder, archive->name,
                   what, strerror(errno));
}

static int open_folder(struct archive *archive, struct err *err)
{
    if (archive->folder_fd < 0)
        archive->folder_fd = open(archive->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (archive->folder_fd >= 0)
        return 0;
    return err_set(err, ERR_UNAVAILABLE,
                   "archive: %s: %s; make the folder, or set retention-archive right",
                   archive->folder, strerror(errno));
}

static void day_of(int64_t wall_ms, char ret[DAY_SIZE])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm utc = { .tm_mday = 1 };
    (void)gmtime_r(&seconds, &utc); /* fails for no time of this millennium */
    (void)strftime(ret, DAY_SIZE, "%Y-%m-%d", &utc);
}

/* --- the day's file ------------------------------------------------------------------------------
 */

/* Cuts off a line that a crash left without its end: its saga was not deleted. */
static int find_end(struct archive *archive, struct err *err)
{
    char tail[TAIL_BYTES];
    off_t size = lseek(archive->fd, 0, SEEK_END);
    if (size < 0)
        return fault(archive, "seek", err);
    off_t end = size;
    while (end > 0) {
        size_t part = end < TAIL_BYTES ? (size_t)end : TAIL_BYTES;
        if (pread(archive->fd, tail, part, end - (off_t)part) != (ssize_t)part)
            return fault(archive, "read", err);
        const char *last = memrchr(tail, '\n', part);
        end -= (off_t)part;
        if (last) {
            end += last - tail + 1;
            break;
        }
    }
    if (end != size && ftruncate(archive->fd, end) != 0)
        return fault(archive, "cut off a torn line", err);
    archive->end = end;
    return 0;
}

static int check_closed(struct archive *archive, struct err *err)
{
    char manifest[NAME_MAX + 1];
    manifest_name(archive->name, manifest);
    if (faccessat(archive->folder_fd, manifest, F_OK, 0) != 0)
        return 0;
    return err_set(err, ERR_UNAVAILABLE,
                   "archive: %s/%s has its manifest already and is closed: did this node's clock go"
                   " back? It is used again from the next day on",
                   archive->folder, archive->name);
}

static int open_file(struct archive *archive, const char *name, struct err *err)
{
    (void)snprintf(archive->name, sizeof archive->name, "%s", name);
    if (check_closed(archive, err) != 0)
        return (int)err->code;
    archive->is_new = faccessat(archive->folder_fd, name, F_OK, 0) != 0;
    archive->fd = openat(archive->folder_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (archive->fd < 0)
        return fault(archive, "open", err);
    if (flock(archive->fd, LOCK_EX | LOCK_NB) != 0)
        return err_set(err, ERR_UNAVAILABLE,
                       "archive: %s/%s is written by another process; give each sagad a --node or a"
                       " folder of its own",
                       archive->folder, archive->name);
    return find_end(archive, err);
}

int archive_begin(struct archive *archive, int64_t wall_ms, struct err *err)
{
    char day[DAY_SIZE], name[NAME_MAX + 1];
    day_of(wall_ms, day);
    (void)snprintf(name, sizeof name, PREFIX "%s%s", day, archive->suffix);
    archive_undo(archive); /* of a batch that was left */
    if (archive->fd >= 0 && strcmp(archive->name, name) != 0)
        close_file(archive);
    if (archive->fd < 0 && (open_folder(archive, err) != 0 || open_file(archive, name, err) != 0)) {
        close_file(archive);
        close_folder(archive); /* it may be another one by then: a disk that was mounted */
        return (int)err->code;
    }
    archive->begin = archive->end;
    return 0;
}

static int flush(struct archive *archive, struct err *err)
{
    size_t done = 0;
    while (done < archive->pending.size) {
        ssize_t count = pwrite(archive->fd, archive->pending.data + done,
                               archive->pending.size - done, archive->end);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return fault(archive, "write", err);
        done += (size_t)count;
        archive->end += count;
    }
    buf_clear(&archive->pending);
    return 0;
}

int archive_add(struct archive *archive, const char *line, size_t size, struct err *err)
{
    buf_append(&archive->pending, line, size);
    buf_text(&archive->pending, "\n");
    int rc = 0;
    if (archive->pending.failed)
        rc = err_set(err, ERR_NOMEM, "archive: out of memory");
    else if (archive->pending.size >= FLUSH_BYTES)
        rc = flush(archive, err);
    if (rc)
        archive_undo(archive);
    return rc;
}

int archive_sync(struct archive *archive, struct err *err)
{
    int rc = flush(archive, err);
    if (!rc && fsync(archive->fd) != 0)
        rc = fault(archive, "fsync", err);
    if (!rc && archive->is_new && fsync(archive->folder_fd) != 0)
        rc = fault(archive, "fsync of its folder", err);
    if (rc) {
        archive_undo(archive);
        return rc;
    }
    archive->is_new = false;
    archive->begin = -1;
    return 0;
}

void archive_undo(struct archive *archive)
{
    buf_clear(&archive->pending);
    if (archive->begin < 0)
        return;
    /* Opened anew: what an fsync that failed leaves behind is not known. A tail that cannot be cut
     * off holds lines that are written again. */
    int rc = ftruncate(archive->fd, archive->begin);
    (void)rc; /* as said */
    close_file(archive);
}

/* --- days that are over --------------------------------------------------------------------------
 */

/* One of ours, of an earlier day, without a manifest? */
static bool wants_manifest(const struct archive *archive, const char *name, const char *today)
{
    char manifest[NAME_MAX + 1];
    size_t day = sizeof PREFIX - 1, size = strlen(name);
    if (strncmp(name, PREFIX, day) != 0 || size != day + DAY_SIZE - 1 + strlen(archive->suffix) ||
        strcmp(name + day + DAY_SIZE - 1, archive->suffix) != 0 ||
        strncmp(name + day, today, DAY_SIZE - 1) >= 0)
        return false;
    manifest_name(name, manifest);
    return faccessat(archive->folder_fd, manifest, F_OK, 0) != 0;
}

static int close_day(struct archive *archive, const char *name, struct err *err)
{
    if (open_file(archive, name, err) != 0)
        return (int)err->code;
    return manifest_write(archive->folder_fd, archive->fd, name, archive->stop_fd, err);
}

static int close_each(struct archive *archive, DIR *folder, const char *today, size_t *ret_made,
                      struct err *err)
{
    const struct dirent *entry;
    while ((errno = 0, entry = readdir(folder))) {
        if (!wants_manifest(archive, entry->d_name, today))
            continue;
        close_file(archive); /* of the day before, or of one that was just closed */
        int rc = close_day(archive, entry->d_name, err);
        close_file(archive);
        if (rc)
            return err_wrap(err, "manifest of %s", entry->d_name);
        if (ret_made)
            (*ret_made)++;
    }
    return errno ? fault(archive, "list the folder", err) : 0;
}

int archive_close_days(struct archive *archive, int64_t wall_ms, size_t *ret_made, struct err *err)
{
    char today[DAY_SIZE];
    day_of(wall_ms, today);
    archive_undo(archive);
    if (open_folder(archive, err) != 0)
        return (int)err->code;
    int fd = openat(archive->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (!folder) {
        int rc = fault(archive, "list the folder", err);
        if (fd >= 0)
            (void)close(fd); /* it was only read */
        return rc;
    }
    int rc = close_each(archive, folder, today, ret_made, err);
    (void)closedir(folder); /* it was only read */
    return rc;
}
