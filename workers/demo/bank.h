/* The bank's side of a settlement: the four guarded effects, each in one transaction with its
 * guard. It never decides whether an effect may run (the guard does), and it never commits by
 * itself. thread: each function runs on the task's own thread, with that thread's own connection.
 */
#ifndef DEMO_BANK_H
#define DEMO_BANK_H

#include "base/err.h"

#include <sagaworker.h>

struct bank;

/* One connection for each of `threads`, made when a thread first needs it. */
MUST_USE int bank_create(const char *conninfo, int threads, struct bank **ret, struct err *err);
struct bank *bank_free(struct bank *bank); /* no task may be running; NULL is fine */

/* Handlers; ctx is the bank. */
void bank_debit_account(struct saga_task *task, void *ctx);
void bank_refund_account(struct saga_task *task, void *ctx);
void bank_write_ledger(struct saga_task *task, void *ctx);
void bank_reverse_ledger(struct saga_task *task, void *ctx);

#endif
