/* A whole installation for a test program: a throw-away PostgreSQL with the orchestrator's database
 * "store" and a participant's database "bank" (the guard, tables `effects` and `calls`), sagad on a
 * port that stays the same over restarts, workers as processes of their own (scripted_worker.c).
 *
 * Everything that fails fails the running test with what went wrong, except rig_up, rig_down and
 * rig_check, which are for setup and teardown and return 0 or -1. thread: the test thread only. */
#ifndef SUPPORT_RIG_H
#define SUPPORT_RIG_H

#include "base/cleanup.h"
#include "ctl/client.h"
#include "support/check.h"
#include "support/postgres.h"
#include "support/process.h"

#include <libpq-fe.h>
#include <saga/v1/definition.pb-c.h>
#include <saga/v1/operator.pb-c.h>
#include <saga/v1/saga.pb-c.h>

enum { RIG_WORKERS_MAX = 64, RIG_CALL_MS = 15000, RIG_SERVER_ARGS_MAX = 16 };

struct rig {
    struct test_postgres *postgres;
    struct test_process *sagad; /* NULL while it is down */
    int port;
    char address[32];
    char store[POSTGRES_CONNINFO_SIZE], bank[POSTGRES_CONNINFO_SIZE];
    PGconn *conns[2]; /* by enum rig_database */
    struct client *client;
    struct test_process *workers[RIG_WORKERS_MAX];
    size_t worker_count;
    const char *server_args[RIG_SERVER_ARGS_MAX + 1]; /* added to those of sagad; NULL at the end */

    /* Set before rig_up, or NULL: as usual. */
    const char *server_program;           /* another build of sagad */
    const char *const *server_env;        /* "NAME=value" added to ours; NULL at the end */
    const char *server_database;          /* how sagad connects, if not as we do */
    const char *const *postgres_settings; /* "name=value", added; NULL at the end */
    const char *node;                     /* sagad's --node; NULL: "rig" */
    const char *worker_addresses[3];      /* of workers started from now on, instead of ours */
};

/* --- processes --- */

MUST_USE int rig_up(struct rig *rig);
/* The two halves of rig_up, for what stands between sagad and PostgreSQL. */
MUST_USE int rig_databases_up(struct rig *rig);
MUST_USE int rig_server_up(struct rig *rig);
int rig_down(struct rig *rig);
/* Another sagad on the databases of `first`, as a rig of its own for everything that is done at one
 * node: `node` and what else it wants set before. It ends before the first one (rig_node_down). */
MUST_USE int rig_node_up(struct rig *rig, const struct rig *first);
/* The same without starting sagad (rig_server_start). */
MUST_USE int rig_node_prepare(struct rig *rig, const struct rig *first);
int rig_node_down(struct rig *rig);
/* Waits until it serves. */
void rig_server_start(struct rig *rig);
void rig_server_kill(struct rig *rig);
/* SIGTERM; it must exit with 0 within the limit. Returns how long that took. */
int64_t rig_server_stop(struct rig *rig, int64_t limit_ms);
/* handlers: "act:8 undo:8". Waits until it is connected. Owned by the rig. */
struct test_process *rig_worker(struct rig *rig, const char *id, const char *handlers);
/* The same with a number of threads (default 16), and without waiting. */
struct test_process *rig_worker_threads(struct rig *rig, const char *id, const char *handlers,
                                        int threads);
void rig_worker_signal(struct test_process *worker, int signal_number);
/* Ends it by kill -9 (NULL is fine). */
void rig_worker_kill(struct rig *rig, struct test_process *worker);
void rig_workers_kill(struct rig *rig);

/* --- SQL --- */

enum rig_database { RIG_STORE, RIG_BANK };
/* Reconnects by itself where PostgreSQL was killed. The first field of the first row; "" for NULL
 * or no row. Returns ret. */
FMT(5, 6)
char *rig_text(struct rig *rig, enum rig_database database, char *ret, size_t size, const char *fmt,
               ...);
FMT(3, 4) int64_t rig_count(struct rig *rig, enum rig_database database, const char *fmt, ...);
FMT(3, 4) void rig_exec(struct rig *rig, enum rig_database database, const char *fmt, ...);
/* Asks until the answer is `expected`. */
FMT(5, 6)
void rig_await(struct rig *rig, enum rig_database database, const char *expected, int64_t limit_ms,
               const char *fmt, ...);
/* A connection of the caller's own (PQfinish). */
PGconn *rig_connect(struct rig *rig, enum rig_database database);

/* --- calls --- */

/* "SagaService/GetSaga". NULL when the server refused: ret_failure says what it said (NULL: then
 * the test fails instead); free it with client_failure_done. */
ProtobufCMessage *rig_call(struct rig *rig, const char *method, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *reply_type,
                           struct client_failure *ret_failure);
static inline char *rig_borrow(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c's fields are not const; packing only reads */
}

/* Registers a definition. settings: "deadline=3s on_deadline=PARK". steps: one line each,
 *   name: ACTION | COMPENSATION | OPTIONS
 *   action, compensation: IDEMPOTENT, PROBED or ONCE (AT_MOST_ONCE), then key=value of lease,
 *     attempt_timeout, start_timeout, handler (default "act", "undo"), on_unknown, on_exhausted,
 *     for, initial, cap, max_attempts, idempotency_window, lost_leases_max; "fresh_key"; or the
 *     action is "WAIT", with timeout and on_exhausted: for the signal that is called as the step
 * compensation "none": there is nothing to take back a probe (PROBED has one, "probe" gives one):
 * probe_handler (default "probe"), probe_for, probe_initial, probe_cap, probe_max_attempts,
 * probe_lease options: "guarded", "settle=2s" (default settle=0s, unless guarded or without
 * compensation), "after=a,b" or "after=-" (after none), "pivot", "delay=2s". Defaults that keep
 * tests quick: lease=5s initial=0.05s cap=0.2s. */
void rig_define(struct rig *rig, const char *name, const char *settings, const char *steps);
/* JSON of a RegisterDefinitionRequest; the answer, owned, or NULL as rig_call. */
Saga__V1__RegisterDefinitionResponse *rig_register(struct rig *rig, const char *json,
                                                   struct client_failure *ret_failure);

/* The script is the saga's input; see scripted_worker.c. */
void rig_start(struct rig *rig, const char *definition, const char *saga_id, const char *script);
/* With start_at, and an empty script. */
void rig_start_at(struct rig *rig, const char *definition, const char *saga_id, int64_t at_ms);
/* "<prefix>0" to "<prefix><count-1>", in batches. */
void rig_start_many(struct rig *rig, const char *definition, const char *prefix, int count,
                    const char *script);
/* FULL view; owned by the caller (saga__v1__saga__free_unpacked). */
Saga__V1__Saga *rig_get(struct rig *rig, const char *definition, const char *saga_id);
/* Calls about one saga: the gRPC status code (0: OK); `ret_reason` gets its stable reason. */
enum { RIG_REASON_SIZE = 64 };
int rig_cancel(struct rig *rig, const char *definition, const char *saga_id,
               char ret_reason[RIG_REASON_SIZE]);
int rig_retry(struct rig *rig, const char *definition, const char *saga_id, const char *step,
              char ret_reason[RIG_REASON_SIZE]);
/* About a handler. */
void rig_hold(struct rig *rig, const char *handler);
void rig_release(struct rig *rig, const char *handler);
/* ret_reason "duplicate": it was taken before. */
int rig_signal(struct rig *rig, const char *definition, const char *saga_id, const char *signal,
               const char *signal_id, const char *payload, char ret_reason[RIG_REASON_SIZE]);
int64_t rig_counter(struct rig *rig, const char *name);
/* grpc.health.v1 Check: 1 SERVING, 2 NOT_SERVING; -code when the call failed. */
int rig_health(const char *address, int64_t timeout_ms);

/* --- what came of it --- */

/* Waits until the saga is in this state: "SUCCEEDED", "PARKED OUTCOME_UNKNOWN". */
void rig_await_state(struct rig *rig, const char *definition, const char *saga_id,
                     const char *state, int64_t limit_ms);
/* Waits until `count` sagas with this key prefix are in this state. */
void rig_await_states(struct rig *rig, const char *definition, const char *prefix,
                      const char *state, int64_t count, int64_t limit_ms);
/* The journal in short, in order: "a.1 DONE, b.1 REJECTED, COMPENSATE REFUSED, ~a.1 DONE"
 * (~: compensation, ?: probe, then step and try; an open lease is OPEN; a late report "late a.1
 * DONE"; RESOLVE with what it says). */
void rig_assert_journal(struct rig *rig, const char *definition, const char *saga_id,
                        const char *expected);
/* Waits until a worker has begun this call ("A", "C" or "P", try). */
void rig_await_call(struct rig *rig, const char *saga_id, const char *step, const char *operation,
                    int try_, int64_t limit_ms);
/* Calls that workers began, in order: "a.1, b.1, ~a.1, ?b.1". */
void rig_assert_calls(struct rig *rig, const char *saga_id, const char *expected);
/* Rows of the participant's business table for one saga. */
int64_t rig_effects(struct rig *rig, const char *saga_id, const char *step, const char *operation);

/* The invariants that must hold after every test, asked of both databases and of the server. */
MUST_USE int rig_check(struct rig *rig);

#endif
