/* The idempotency key of an operation: the first 32 hex digits of SHA-256 over
 *   namespace 0x00 definition 0x00 saga_id 0x00 run (decimal) 0x00 step 0x00 operation name
 * and, from the second generation on (fresh_key_after_not_done: the first is 0), over
 *   0x00 generation (decimal)
 * behind it. It is made from the saga's identity and from what was found out about its attempts,
 * never from the try, the fence or the worker, so anyone can compute it from an order number
 * (`sagactl key`). Any thread. */
#ifndef DISPATCH_KEY_H
#define DISPATCH_KEY_H

#include "core/words.h"

#include <stdint.h>

enum { IDEMPOTENCY_KEY_SIZE = 33 }; /* with the NUL */

/* 0, or -1 when memory is out. generation: how many NOT_DONE have been settled, where the
 * definition asks for a fresh key after each; else 0. */
MUST_USE int idempotency_key(const char *namespace_, const char *definition, const char *saga_id,
                             int32_t run, const char *step, enum operation operation,
                             int32_t generation, char ret_key[IDEMPOTENCY_KEY_SIZE]);

#endif
