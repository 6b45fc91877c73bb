/* The engine turned by hand over a store whose every answer the test gives, a clock that stands
 * still and one scripted worker. There is one world at a time, from setup to teardown. */
#ifndef TEST_ENGINE_WORLD_H
#define TEST_ENGINE_WORLD_H

#include "engine/engine.h"

enum { NOW_MS = 1000000, TASKS_MAX = 8 };

struct fake_store {
    struct store store;
    uint64_t generation;
    int64_t epoch;
    struct store_op *batch, *completed;
};

struct fake_link {
    struct worker_link link;
    struct uuid uid;
    int64_t fences[TASKS_MAX]; /* of the tasks that were sent */
    size_t tasks, acks;
    enum engine_ack last_ack;
};

extern struct fake_store fake;
extern struct fake_link worker;
extern struct engine *engine;
extern int64_t now_ms;  /* of both clocks, and the database's */
extern int nodes_alive; /* as each heartbeat answers */
extern int expelled_count;
extern char granter[STORE_GRANTER_SIZE]; /* of this process */
extern struct engine_worker_event hello_event;

/* The fixture of each test: a saga of two steps whose first task is at the worker. Its steps are
 * AT_MOST_ONCE, or idempotent. */
int setup(void **state);
int setup_idempotent(void **state);
int teardown(void **state);

/* Nothing: events are on the test's stack, or static. */
void event_done(struct engine_event *event);
/* As engine_run does: until there is nothing more to do by itself. */
void turn(void);
void pass_ms(int64_t ms);
/* The one operation of the batch in flight, which must be of this kind. */
struct store_op *expect_op(enum store_op_kind kind);
/* The first one of this kind in the batch in flight; there must be one. */
struct store_op *find_op(enum store_op_kind kind);
/* Gives the batch back; every operation without a result of its own gets this one. */
void answer(enum store_result result);
/* This node has joined, or is known to belong still: its own sagas are listed (none, unless the
 * test put them there) and what nobody drives is looked for. */
void answer_heartbeat(enum store_beat beat);
/* The engine lists its own sagas, or looks for what nobody drives: there is nothing. */
void answer_looks(void);
void post_worker(struct engine_worker_event *event, enum worker_event_kind kind);
/* The worker's: done. */
void post_report(int64_t fence);
/* The row of the fixture's saga, as the database has it. */
void put_row(struct store_saga *saga);
/* Gives a load of the saga what the database holds: step a's lease, perhaps done, and perhaps step
 * b's. The other operations of the batch find nothing. */
void answer_load(bool a_done, const char *b_granted_by, bool mine);

#endif
