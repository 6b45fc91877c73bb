/* Allocation of our own code. Goes through here so that a test can fail the n-th call; running out
 * of memory is an error that is returned, never an abort. Any thread. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {     /* a borrowed view, or an owned block where a header says so */
    uint8_t *data; /* NULL if size is 0 */
    size_t size;
};

/* Zeroed. NULL when memory is out. */
MUST_USE void *mem_calloc(size_t count, size_t size);
MUST_USE void *mem_realloc(void *p, size_t size);
MUST_USE char *mem_strdup(const char *text);
MUST_USE char *mem_strndup(const char *text, size_t size);
/* 0, or -1 when memory is out. Size 0 gives {NULL, 0}. */
MUST_USE int mem_bytes_copy(const void *data, size_t size, struct bytes *ret);
void mem_free(void *p);
static inline void mem_free_p(void *p)
{
    mem_free(*(void **)p);
}

/* Makes room for one more element of `size` in a growing array; 0, or -1 when memory is out. */
MUST_USE int mem_grow(void **array, size_t *capacity, size_t count, size_t size);

/* Tests: the n-th allocation from now on fails (and each one after it if `repeat`); 0: none does.
 */
void mem_fail_at(uint64_t countdown, bool repeat);

#endif
