/* The idempotency key of an operation: the first 32 hex digits of SHA-256 over
 *   namespace 0x00 definition 0x00 saga_id 0x00 run (decimal) 0x00 step 0x00 operation name
 * and, from the second generation on (fresh_key_after_not_done: the first is 0), over
 *   0x00 generation (decimal)
 * behind it. It is made from the saga's identity and from what was found out about its attempts,
 * never from the try, the fence or the worker, so anyone can compute it from an order number
 * (`sagactl key`). Any thread.
 *
 * Where the definition says of what the key is made (Operation.idempotency_key), it is that text,
 * and from the second generation on "<text>#<generation>". */
#ifndef DISPATCH_KEY_H
#define DISPATCH_KEY_H

#include "core/saga.h"

enum {
    IDEMPOTENCY_KEY_SIZE = 33, /* with the NUL */
    OPERATION_KEY_SIZE = LIMIT_IDEMPOTENCY_KEY_BYTES + 1 + 11 + 1,
};

/* 0, or -1 when memory is out. generation: how many NOT_DONE have been settled, where the
 * definition asks for a fresh key after each; else 0. */
MUST_USE int idempotency_key(const char *namespace_, const char *definition, const char *saga_id,
                             int32_t run, const char *step, enum operation operation,
                             int32_t generation, char ret_key[IDEMPOTENCY_KEY_SIZE]);

/* The key of an operation (of a probe: of what it asks about) of this saga, one or the other. -1,
 * too, when its definition has no types though it makes the key of the input. */
MUST_USE int operation_key(const struct saga *saga, size_t step, enum operation operation,
                           int32_t generation, char ret_key[OPERATION_KEY_SIZE]);

#endif
