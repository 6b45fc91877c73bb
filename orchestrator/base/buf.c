#include "base/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint8_t *buf_room(struct buf *buf, size_t size)
{
    if (buf->failed)
        return NULL;
    size_t want = buf->size + size + 1;
    if (want < size || (buf->limit && want - 1 > buf->limit)) {
        buf->failed = true;
        return NULL;
    }
    if (want > buf->capacity) {
        size_t capacity = buf->capacity ? buf->capacity : 128;
        while (capacity < want)
            capacity *= 2;
        uint8_t *data = mem_realloc(buf->data, capacity);
        if (!data) {
            buf->failed = true;
            return NULL;
        }
        buf->data = data;
        buf->capacity = capacity;
    }
    return buf->data + buf->size;
}

void buf_added(struct buf *buf, size_t size)
{
    buf->size += size;
    buf->data[buf->size] = 0;
}

void buf_append(struct buf *buf, const void *data, size_t size)
{
    uint8_t *room = buf_room(buf, size);
    if (!room)
        return;
    if (size)
        memcpy(room, data, size);
    buf_added(buf, size);
}

void buf_text(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_printf(struct buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    uint8_t *room = size < 0 ? NULL : buf_room(buf, (size_t)size);
    if (room) {
        (void)vsnprintf((char *)room, (size_t)size + 1, fmt, again);
        buf_added(buf, (size_t)size);
    }
    va_end(again);
}

void buf_be16(struct buf *buf, uint16_t value)
{
    uint8_t be[2] = { (uint8_t)(value >> 8), (uint8_t)value };
    buf_append(buf, be, sizeof be);
}

void buf_be32(struct buf *buf, uint32_t value)
{
    uint32_t be = __builtin_bswap32(value);
    buf_append(buf, &be, sizeof be);
}

void buf_be64(struct buf *buf, uint64_t value)
{
    uint64_t be = __builtin_bswap64(value);
    buf_append(buf, &be, sizeof be);
}

void buf_done(struct buf *buf)
{
    mem_free(buf->data);
    *buf = (struct buf){ 0 };
}
