/* The log of effects that each third party of the demo keeps, and that the audit believes: one line
 * for each effect, "<UTC time> WHAT <idempotency key> <business key>", written before any answer
 * leaves. Writing: one thread. */
#ifndef DEMO_EFFECT_LOG_H
#define DEMO_EFFECT_LOG_H

#include "base/err.h"

/* Opens it for appending; the caller closes *ret_fd. */
MUST_USE int effect_log_open(const char *path, int *ret_fd, struct err *err);
/* What a line is made of must be one word of at most 256 bytes. ERR_INVALID names the field. */
MUST_USE int effect_log_check_word(const char *field, const char *text, struct err *err);
MUST_USE int effect_log_write(int fd, const char *what, const char *idempotency_key,
                              const char *business_key, struct err *err);

/* False: it knows no such effect. */
typedef bool effect_log_take(void *ctx, const char *what, const char *business_key);
/* Every line of the file; a line that cannot be read is an error that names it. */
MUST_USE int effect_log_read(const char *path, effect_log_take *take, void *ctx, struct err *err);

#endif
