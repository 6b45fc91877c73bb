/* A worker without a stream, by hand: LeaseTasks and the other unary calls, one handler or several.
 * What it was given it lists from then on, until it reports, releases or forgets it. Everything
 * that fails fails the running test. thread: the test thread only. */
#ifndef SUPPORT_POLLER_H
#define SUPPORT_POLLER_H

#include "ctl/client.h"
#include "support/raw_stream.h"
#include "support/raw_worker.h"

struct poller;

/* `instance` NULL: a random one. `handlers`: "act undo". */
struct poller *poller_new(const char *address, const char *worker_id, const char *instance,
                          const char *handlers);
/* NULL is fine; always returns NULL. Tells nobody. */
struct poller *poller_free(struct poller *poller);
/* The same instance, with what it has, at another server; takes its place. */
struct poller *poller_move(struct poller *poller, const char *address);
/* From now on it lists nothing of what it has. */
void poller_forget(struct poller *poller);

/* One LeaseTasks. The answer is borrowed until the next one. NULL: refused; *ret (not NULL) says
 * how and is to be freed with client_failure_done; with ret NULL the test fails. */
const Saga__V1__LeaseTasksResponse *poller_lease(struct poller *poller, uint32_t max_tasks,
                                                 int64_t wait_ms);
/* The same until a task has come; one task. */
const Saga__V1__Task *poller_task(struct poller *poller, int64_t limit_ms);
/* LeaseTasks that is under way: raw_stream_free cuts its connection. */
struct raw_stream *poller_ask(const struct poller *poller, const char *address, uint32_t max_tasks,
                              int64_t wait_ms);
/* Its answer; NULL: none within the limit, or refused. Borrowed until the next one. */
const Saga__V1__LeaseTasksResponse *poller_answer(struct poller *poller, struct raw_stream *call,
                                                  int64_t limit_ms);

Saga__V1__Ack__Result poller_report(struct poller *poller, const struct raw_lease *lease,
                                    Saga__V1__Outcome outcome, const char *output);
/* Reports DONE of all that it has; each must be ACCEPTED. */
void poller_report_all(struct poller *poller);
/* ms; 0: lost. *ret_hint: a cancel hint for that lease came with it; NULL: not wanted. */
int64_t poller_extend(struct poller *poller, const struct raw_lease *lease, bool *ret_hint);
/* lease NULL: none. */
void poller_release(struct poller *poller, const struct raw_lease *lease, bool drain);

#endif
