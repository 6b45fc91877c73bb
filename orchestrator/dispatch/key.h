/* The idempotency key of an operation: the first 32 hex digits of SHA-256 over
 *   namespace 0x00 definition 0x00 saga_id 0x00 run (decimal) 0x00 step 0x00 operation name
 * It is made from the saga's identity alone, never from the try, the fence or the worker, so anyone
 * can compute it from an order number (`sagactl key`). Any thread. */
#ifndef DISPATCH_KEY_H
#define DISPATCH_KEY_H

#include "core/words.h"

#include <stdint.h>

enum { IDEMPOTENCY_KEY_SIZE = 33 }; /* with the NUL */

/* 0, or -1 when memory is out. */
MUST_USE int idempotency_key(const char *namespace_, const char *definition, const char *saga_id,
                             int32_t run, const char *step, enum operation operation,
                             char ret_key[IDEMPOTENCY_KEY_SIZE]);

#endif
