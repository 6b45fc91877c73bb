/* Rows of the table handler, for the engine's connection and the reader's. Any thread. */
#ifndef STORE_HANDLERS_H
#define STORE_HANDLERS_H

#include "store/decode.h"
#include "store/params.h"

/* HANDLER_SET_PARAMS: the row is to be as `handler` says, made from its version. */
void handlers_put_change(struct params *params, const struct handler *handler,
                         const struct handler_effect *effect);
/* HANDLER_COLUMNS. The columns' fault says what is wrong. */
void handlers_decode(struct columns *columns, struct handler *ret);

/* STMT_HANDLERS: what is said and asked; and what came back, into op->stored. */
void handlers_put_counts(struct params *params, const struct store_op *op, const char *node);
MUST_USE int handlers_take(const PGresult *result, struct store_op *op, int64_t *ret_now_ms,
                           struct err *err);

#endif
