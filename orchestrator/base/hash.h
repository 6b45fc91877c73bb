/* uthash with our allocator. An HASH_ADD without memory leaves the element out of the table, with
 * hh.tbl NULL, instead of ending the process: whoever adds asks hash_holds. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include "base/mem.h"

#define HASH_NONFATAL_OOM        1
#define uthash_malloc(size)      mem_calloc(1, size)
#define uthash_free(block, size) mem_free(block)

#include <uthash.h>

static inline bool hash_holds(const UT_hash_handle *handle)
{
    return handle->tbl != NULL;
}

#endif
