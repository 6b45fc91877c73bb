/* A growing byte buffer with an upper bound; also the builder of text. One owner thread.
 * An allocation that fails, or the bound, makes the buffer `failed`: later appends do nothing, and
 * the owner checks once at the end. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *data; /* owned; always followed by a NUL byte once something was appended */
    size_t size, capacity;
    size_t limit; /* 0: none */
    bool failed;
};

void buf_append(struct buf *buf, const void *data, size_t size);
void buf_text(struct buf *buf, const char *text);
FMT(2, 3) void buf_printf(struct buf *buf, const char *fmt, ...);
/* Big-endian, as PostgreSQL's binary formats want it. */
void buf_be16(struct buf *buf, uint16_t value);
void buf_be32(struct buf *buf, uint32_t value);
void buf_be64(struct buf *buf, uint64_t value);
/* Room for `size` bytes at the end, not yet counted; NULL when failed. Follow with buf_added. */
uint8_t *buf_room(struct buf *buf, size_t size);
void buf_added(struct buf *buf, size_t size);
static inline const char *buf_cstr(const struct buf *buf)
{
    return buf->data ? (const char *)buf->data : "";
}
static inline void buf_clear(struct buf *buf)
{
    buf->size = 0;
    buf->failed = false;
}
void buf_done(struct buf *buf);

#endif
