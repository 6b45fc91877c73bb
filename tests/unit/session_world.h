/* A worker's session with the server played by hand: messages of the server are packed here, those
 * to it are unpacked and looked at. Its time is `now`. For tests of session.c only. */
#ifndef TEST_SESSION_WORLD_H
#define TEST_SESSION_WORLD_H

#include "session.h"

enum { LEASE_MS = 30000, ATTEMPT_MS = 300000 };

extern int64_t now;
extern uint8_t uid[TASK_UID_SIZE];
extern char debit_name[6], ledger_name[7];

struct wire_task {
    Saga__V1__Task task, *pointer;
    Google__Protobuf__Duration lease, attempt;
    Google__Protobuf__Timestamp start;
    Saga__V1__Tasks tasks;
    Saga__V1__ServerMessage message;
};

enum { STREAMS = 3 };
#define DONE     SAGA__V1__OUTCOME__OUTCOME_DONE
#define ACCEPTED SAGA__V1__ACK__RESULT__RESULT_ACCEPTED

/* The fixture of each test: handlers debit (3 in flight) and ledger (2), one address. */
int setup(void **state);
int teardown(void **state);
/* The fixture's session and others, `count` together, none with a stream. */
void open_world(struct session *first, struct session *ret[STREAMS], unsigned count);
Saga__V1__WorkerMessage *next(struct session *session);
void drop(Saga__V1__WorkerMessage *message);
Saga__V1__WorkerMessage *expect(struct session *session,
                                Saga__V1__WorkerMessage__CommandCase command);
void expect_nothing(struct session *session);
int receive_at(struct session *session, Saga__V1__ServerMessage *message, int64_t since,
               struct err *err);
void receive(struct session *session, Saga__V1__ServerMessage *message);
void welcome(struct session *session);
void connect_holding(struct session *session, size_t held);
uint64_t credit_of(const Saga__V1__WorkerMessage *message, const char *handler);
void expect_credit(struct session *session, uint64_t debit, uint64_t ledger);
void wire_task(struct wire_task *wire, char *handler, int64_t fence);
void deliver(struct session *session, char *handler, int64_t fence);
struct saga_task *take(struct session *session, int64_t fence);
/* Its handler returns: DONE. */
void finish(struct session *session, struct saga_task *task);
void ack(struct session *session, int64_t fence, Saga__V1__Ack__Result result);
void ack_with_problem(struct session *session, int64_t fence, Saga__V1__Ack__Result result,
                      const char *problem);
void extended(struct session *session, int64_t fence, int64_t lease_ms);
void expect_report(struct session *session, int64_t fence, Saga__V1__Outcome outcome);
void no_handler(struct saga_task *task, void *ctx);

#endif
