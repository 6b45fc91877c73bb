#include "retention/manifest.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 256 * 1024, DIGEST_BYTES = 32, TIME_SIZE = 64 };
#define DATA_END ".jsonl"

void manifest_name(const char *file, char ret[NAME_MAX + 1])
{
    size_t size = strlen(file) - (sizeof DATA_END - 1);
    (void)snprintf(ret, NAME_MAX + 1, "%.*s.manifest.json", (int)size, file);
}

struct reading {
    int fd;
    const char *file;
    struct sha256_sum *sum;
    struct buf line; /* the one that is being read */
    int64_t lines, bytes, size;
    char first[TIME_SIZE], last[TIME_SIZE];
};

static void reading_done(struct reading *reading)
{
    reading->sum = sha256_sum_free(reading->sum);
    buf_done(&reading->line);
}

/* When the line was written: "archived_at" of its object. */
static int time_of_line(const struct reading *reading, char ret[TIME_SIZE], struct err *err)
{
    json_t *object = json_loadb((const char *)reading->line.data, reading->line.size,
                                JSON_REJECT_DUPLICATES, NULL);
    const char *time = json_string_value(json_object_get(object, "archived_at"));
    int rc = 0;
    if (time && !time[strspn(time, "0123456789-T:.+Z")])
        (void)snprintf(ret, TIME_SIZE, "%s", time);
    else
        rc = err_set(err, ERR_UNAVAILABLE, "archive: line %" PRId64 " of %s is no archived saga",
                     reading->lines, reading->file);
    json_decref(object);
    return rc;
}

/* Counts the lines of a block; the first and the last one are kept whole. */
static int take_block(struct reading *reading, const char *block, size_t size, struct err *err)
{
    for (size_t at = 0; at < size;) {
        const char *end = memchr(block + at, '\n', size - at);
        size_t part = end ? (size_t)(end - (block + at)) : size - at;
        buf_append(&reading->line, block + at, part);
        if (reading->line.failed)
            return err_set(err, ERR_NOMEM, "archive: out of memory");
        at += part + 1;
        if (!end)
            break;
        bool is_first = reading->lines++ == 0;
        bool is_last = reading->bytes + (int64_t)at == reading->size;
        if (is_first && time_of_line(reading, reading->first, err) != 0)
            return (int)err->code;
        if (is_last && time_of_line(reading, reading->last, err) != 0)
            return (int)err->code;
        buf_clear(&reading->line);
    }
    reading->bytes += (int64_t)size;
    return 0;
}

static bool is_stopping(int stop_fd)
{
    struct pollfd look = { .fd = stop_fd, .events = POLLIN };
    return poll(&look, 1, 0) > 0;
}

static int read_all(struct reading *reading, int stop_fd, struct err *err)
{
    CLEANUP(mem_free_p) char *block = mem_calloc(1, BLOCK_BYTES);
    if (!block || !(reading->sum = sha256_sum_new()))
        return err_set(err, ERR_NOMEM, "archive: out of memory");
    reading->size = lseek(reading->fd, 0, SEEK_END); /* nobody else writes it */
    for (;;) {
        ssize_t count = pread(reading->fd, block, BLOCK_BYTES, reading->bytes);
        if (count < 0)
            return err_set(err, ERR_UNAVAILABLE, "archive: read %s: %s", reading->file,
                           strerror(errno));
        if (count == 0)
            return 0;
        if (is_stopping(stop_fd))
            return err_set(err, ERR_UNAVAILABLE, "archive: it is stopping");
        if (sha256_sum_add(reading->sum, block, (size_t)count) != 0)
            return err_set(err, ERR_NOMEM, "archive: no SHA-256");
        if (take_block(reading, block, (size_t)count, err) != 0)
            return (int)err->code;
    }
}

static void compose(const struct reading *reading, const uint8_t digest[DIGEST_BYTES],
                    struct buf *out)
{
    buf_printf(out, "{\"file\": \"%s\", \"lines\": %" PRId64 ", \"bytes\": %" PRId64, reading->file,
               reading->lines, reading->bytes);
    buf_text(out, ", \"sha256\": \"");
    for (size_t i = 0; i < DIGEST_BYTES; i++)
        buf_printf(out, "%02x", digest[i]);
    buf_text(out, "\"");
    if (reading->lines)
        buf_printf(out, ", \"first_time\": \"%s\", \"last_time\": \"%s\"", reading->first,
                   reading->last);
    buf_text(out, "}\n");
}

static int write_file(int fd, const struct buf *text)
{
    for (size_t done = 0; done < text->size;) {
        ssize_t count = write(fd, text->data + done, text->size - done);
        if (count <= 0)
            return -1;
        done += (size_t)count;
    }
    return fsync(fd);
}

/* Under another name first, so that a manifest is never seen half. */
static int put_beside(int folder_fd, const char *file, const struct buf *text, struct err *err)
{
    char name[NAME_MAX + 1], draft[NAME_MAX + 1];
    manifest_name(file, name);
    (void)snprintf(draft, sizeof draft, ".%.*s.new", NAME_MAX - 5, name);
    int fd = openat(folder_fd, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    int failed = fd < 0 ? -1 : write_file(fd, text);
    if (fd >= 0 && close(fd) != 0)
        failed = -1;
    if (!failed)
        failed = renameat(folder_fd, draft, folder_fd, name);
    if (!failed)
        failed = fsync(folder_fd);
    return failed ? err_set(err, ERR_UNAVAILABLE, "archive: write %s: %s", name, strerror(errno))
                  : 0;
}

int manifest_write(int folder_fd, int file_fd, const char *file, int stop_fd, struct err *err)
{
    CLEANUP(reading_done) struct reading reading = { .fd = file_fd, .file = file };
    CLEANUP(buf_done) struct buf text = { 0 };
    uint8_t digest[DIGEST_BYTES];
    if (read_all(&reading, stop_fd, err) != 0)
        return (int)err->code;
    if (sha256_sum_end(reading.sum, digest) != 0)
        return err_set(err, ERR_NOMEM, "archive: no SHA-256");
    compose(&reading, digest, &text);
    if (text.failed)
        return err_set(err, ERR_NOMEM, "archive: out of memory");
    return put_beside(folder_fd, file, &text, err);
}
