#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t fail_countdown;
static atomic_bool fail_repeat;

void mem_fail_at(uint64_t countdown, bool repeat)
{
    atomic_store(&fail_repeat, repeat);
    atomic_store(&fail_countdown, countdown);
}

static bool fails_now(void)
{
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0)
        return false;
    uint64_t before = atomic_fetch_sub(&fail_countdown, 1);
    if (before != 1)
        return false;
    if (atomic_load(&fail_repeat))
        atomic_store(&fail_countdown, 1);
    return true;
}

void *mem_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : calloc(count, size);
}

void *mem_realloc(void *p, size_t size)
{
    return fails_now() ? NULL : realloc(p, size);
}

char *mem_strdup(const char *text)
{
    return fails_now() ? NULL : strdup(text);
}

char *mem_strndup(const char *text, size_t size)
{
    return fails_now() ? NULL : strndup(text, size);
}

int mem_bytes_copy(const void *data, size_t size, struct bytes *ret)
{
    if (!size) {
        *ret = (struct bytes){ NULL, 0 };
        return 0;
    }
    uint8_t *copy = fails_now() ? NULL : malloc(size);
    if (!copy)
        return -1;
    memcpy(copy, data, size);
    *ret = (struct bytes){ copy, size };
    return 0;
}

int mem_grow(void **array, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity)
        return 0;
    size_t larger = *capacity ? *capacity * 2 : 4;
    void *moved = mem_realloc(*array, larger * size);
    if (!moved)
        return -1;
    *array = moved;
    *capacity = larger;
    return 0;
}

void mem_free(void *p)
{
    free(p);
}
