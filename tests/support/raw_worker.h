/* A worker by hand, for what the SDK would never do: reports with any fence, a doubled Credit, a
 * Hello that lists what it likes, garbage, a stream that is not read or is cut. Everything that
 * fails fails the running test. thread: the test thread only. */
#ifndef SUPPORT_RAW_WORKER_H
#define SUPPORT_RAW_WORKER_H

#include "base/mem.h"

#include <saga/v1/worker.pb-c.h>
#include <stdbool.h>

struct raw_worker;

/* A stream without a Hello. */
struct raw_worker *raw_worker_open(const char *address);
/* The same, then Hello, and Welcome awaited. `instance` NULL: a random one. `held`: "uid fence"
 * pairs of leases to list. */
struct raw_lease {
    uint8_t uid[16];
    int64_t fence;
};
struct raw_worker *raw_worker_hello(const char *address, const char *worker_id,
                                    const char *instance, const char *handler,
                                    const struct raw_lease *held, size_t held_count);
/* Cuts the connection. NULL is fine; always returns NULL. */
struct raw_worker *raw_worker_cut(struct raw_worker *worker);

void raw_worker_send(struct raw_worker *worker, const Saga__V1__WorkerMessage *message);
void raw_worker_send_bytes(struct raw_worker *worker, const void *data, size_t size);
void raw_worker_credit(struct raw_worker *worker, const char *handler, uint64_t total);
void raw_worker_report(struct raw_worker *worker, const struct raw_lease *lease,
                       Saga__V1__Outcome outcome, const char *output);
void raw_worker_report_task(struct raw_worker *worker, const Saga__V1__TaskReport *report);
void raw_worker_extend(struct raw_worker *worker, const struct raw_lease *lease);
void raw_worker_release(struct raw_worker *worker, const struct raw_lease *lease);
void raw_worker_drain(struct raw_worker *worker);

/* The next task, in the order in which they came; borrowed until cut. NULL: none within the
 * limit. */
const Saga__V1__Task *raw_worker_task(struct raw_worker *worker, int64_t limit_ms);
struct raw_lease raw_lease_of(const Saga__V1__Task *task);
/* The next ack; fails the test when none comes within 10 s or it is of another lease. */
Saga__V1__Ack__Result raw_worker_ack(struct raw_worker *worker, const struct raw_lease *lease);
/* What the last ack said was wrong with the output; "": nothing. Borrowed until cut. */
const char *raw_worker_problem(const struct raw_worker *worker);
/* Report and ack in one. */
Saga__V1__Ack__Result raw_worker_settle(struct raw_worker *worker, const struct raw_lease *lease,
                                        Saga__V1__Outcome outcome, const char *output);
/* What the last Extend was answered: ms, 0 for a lost lease; -1: no answer within the limit. */
int64_t raw_worker_extended(struct raw_worker *worker, int64_t limit_ms);
bool raw_worker_was_told_to_drain(struct raw_worker *worker, int64_t limit_ms);
bool raw_worker_got_cancel_hint(struct raw_worker *worker, int64_t limit_ms);
/* The status with which the stream ended; -1: it has not. */
int raw_worker_status(struct raw_worker *worker, int64_t limit_ms, const char **ret_message);

#endif
