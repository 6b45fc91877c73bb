/* libsagaworker: runs the steps of sagas in your process.
 *
 *   static void debit(struct saga_task *task, void *ctx)
 *   {
 *       ... one effect ...
 *       saga_task_done(task, receipt, receipt_size);
 *   }
 *   struct saga_worker *worker;
 *   struct saga_worker_options options = { .addresses = addresses, .worker_id = "settle-1" };
 *   if (saga_worker_new(&options, &worker, &error) == 0 &&
 *       saga_worker_handle(worker, "account.debit", 8, debit, NULL, &error) == 0)
 *       (void)saga_worker_run(worker, &error);
 *   saga_worker_free(worker);
 *
 * It keeps one stream to each orchestrator, extends leases by itself however long a handler takes,
 * and keeps each outcome until it is acknowledged, over any number of reconnects and by whichever
 * orchestrator is there. It never decides an outcome for you: a handler that returns without
 * setting one is reported as UNKNOWN, and a process that dies says nothing, so that its leases run
 * out, which counts as UNKNOWN too. A handler must return; it must not end its thread.
 *
 * Strings are UTF-8 and end with NUL. Pointers that a task hands out are borrowed until the handler
 * returns. Fork before saga_worker_run, or fork and exec at once: the gRPC library does not survive
 * a bare fork. */
#ifndef SAGAWORKER_H
#define SAGAWORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SAGA_HANDLERS_MAX = 256,          /* of a worker */
    SAGA_HANDLER_NAME_MAX = 128,      /* bytes, like worker id and error code */
    SAGA_IN_FLIGHT_MAX = 10000,       /* of a handler */
    SAGA_THREADS_MAX = 1024,          /* of a worker */
    SAGA_ADDRESSES_MAX = 16,          /* of a worker */
    SAGA_OUTPUT_MAX = 256 * 1024,     /* bytes of a task's output: the default, ... */
    SAGA_OUTPUT_HARD_MAX = 1 << 20,   /* ... and what it can be raised to */
    SAGA_MESSAGE_MAX = 8 << 20,       /* bytes of a message that is received: the default, ... */
    SAGA_MESSAGE_HARD_MAX = 64 << 20, /* ... and what it can be raised to */
    SAGA_ERROR_MESSAGE_MAX = 1024,    /* bytes; longer ones are cut at a character */
    SAGA_RETRY_AFTER_MS_MAX = 24 * 3600 * 1000,
};

struct saga_worker; /* opaque, owned by whoever called saga_worker_new */
struct saga_task;   /* opaque, borrowed by the handler until it returns */

struct saga_error { /* meaningful only after a call that did not return 0 */
    char message[320];
};

struct saga_worker_options {       /* zero is the default of each field but the first two */
    const char *const *addresses;  /* "host:port" or "unix:/path", ended by NULL: one, or all nodes
                                    * of a database, each by an address of its own */
    const char *worker_id;         /* stable name, 1-128 bytes, shown to operators */
    int threads;                   /* that run handlers; default 4 */
    int64_t drain_ms;              /* how long a drain waits for acknowledgements; default 30,000 */
    bool handle_signals;           /* SIGTERM and SIGINT drain while saga_worker_run runs (a second
                                    * one ends the process); one such worker in a process */
    int output_bytes_max;          /* of a task's output; no more than the orchestrators take.
                                    * Default SAGA_OUTPUT_MAX */
    int message_bytes_max;         /* of a message of the orchestrator. Default SAGA_MESSAGE_MAX */
    int64_t (*mono_ms)(void *ctx); /* for tests: the time that all times here go by, milliseconds
                                    * that never go back; any thread, without waiting. NULL: the
                                    * system's monotonic clock */
    void *mono_ctx;                /* borrowed until saga_worker_free */
};

struct saga_worker_stats {
    uint64_t tasks_started, reports_accepted, reports_duplicate, reports_stale, leases_lost;
    uint64_t connects; /* times that the orchestrator said Welcome */
};

/* Copies the options. Not 0: wrong options, or memory is out. */
int saga_worker_new(const struct saga_worker_options *options, struct saga_worker **ret_worker,
                    struct saga_error *error);
/* Not while saga_worker_run runs. NULL is fine; always returns NULL. */
struct saga_worker *saga_worker_free(struct saga_worker *worker);

typedef void saga_handler(struct saga_task *task, void *ctx);
/* Before run. `name` is 1-128 of [A-Za-z0-9._/-]. At most `max_in_flight` tasks of this handler run
 * at a time; with one address that includes those that wait here. `handler` is called on several
 * threads at once. */
int saga_worker_handle(struct saga_worker *worker, const char *name, int max_in_flight,
                       saga_handler *handler, void *ctx, struct saga_error *error);
/* Once for each worker. Serves until it is drained: returns 0 then, also when acknowledgements were
 * still missing after drain_ms (the orchestrator finds out by itself). Reconnects for ever. Waits
 * for handlers to return, however long they take. Not 0: it could not start. */
int saga_worker_run(struct saga_worker *worker, struct saga_error *error);
/* Take no more tasks, give back those that were not started, finish and report the others, end.
 * Any thread, any time, also from a signal handler. */
void saga_worker_drain(struct saga_worker *worker);
/* Any thread. */
void saga_worker_stats(struct saga_worker *worker, struct saga_worker_stats *ret_stats);

/* What the task is. */

enum saga_operation { SAGA_ACTION = 1, SAGA_COMPENSATION = 2, SAGA_PROBE = 3 };
/* What is known of the action that a compensation is to take back. */
enum saga_action_outcome {
    SAGA_ACTION_NONE, /* the task is no compensation, and no probe of one */
    SAGA_ACTION_DONE, /* it took effect; saga_task_action_output is what it answered */
    SAGA_ACTION_MAYBE /* it may have; there is no output */
};
struct saga_bytes {      /* borrowed */
    const uint8_t *data; /* may be NULL if size is 0 */
    size_t size;
};

/* The identity: namespace, definition, saga id and run. The saga id is the business key. */
const char *saga_task_namespace(const struct saga_task *task);
const char *saga_task_definition(const struct saga_task *task);
const char *saga_task_saga_id(const struct saga_task *task);
int32_t saga_task_run(const struct saga_task *task);
const uint8_t *saga_task_uid(const struct saga_task *task); /* 16 bytes */
int32_t saga_task_revision(const struct saga_task *task);
int64_t saga_task_started_at_us(const struct saga_task *task); /* Unix epoch microseconds */

const char *saga_task_step(const struct saga_task *task);
enum saga_operation saga_task_operation(const struct saga_task *task);
const char *saga_task_handler(const struct saga_task *task);
int32_t saga_task_try(const struct saga_task *task); /* counts from 1 */
bool saga_task_guarded(const struct saga_task *task);
/* For your own database: a newer one wins. */
int64_t saga_task_fence(const struct saga_task *task);
/* For the third party: the same on every try. A probe's: that of the attempts it asks about. */
const char *saga_task_idempotency_key(const struct saga_task *task);

/* What the operation is asked: a message of the request type, as the definition puts it together.
 * Where it does not ("": no type), the saga's input. */
struct saga_bytes saga_task_request(const struct saga_task *task);
const char *saga_task_request_type(const struct saga_task *task);
/* Full name of the message that the output must be; "": bytes. Others are not taken for an answer:
 * the outcome is then UNKNOWN. */
const char *saga_task_output_type(const struct saga_task *task);
/* The parts, where the definition puts no request together; empty otherwise. */
struct saga_bytes saga_task_input(const struct saga_task *task);
/* What an earlier step answered. False: it has no output (yet, or ever); *ret is untouched. */
bool saga_task_output_of(const struct saga_task *task, const char *step, struct saga_bytes *ret);
enum saga_action_outcome saga_task_action_outcome(const struct saga_task *task);
struct saga_bytes saga_task_action_output(const struct saga_task *task);
/* A probe: what it asks about, SAGA_ACTION or SAGA_COMPENSATION, and when the last attempt that may
 * have taken effect was granted and ended (Unix epoch microseconds of the database's clock, 0: not
 * known). False: the task is no probe; *ret is untouched. */
struct saga_probed {
    enum saga_operation operation;
    int32_t try_;
    int64_t fence, leased_at_us, ended_at_us;
};
bool saga_task_probed(const struct saga_task *task, struct saga_probed *ret);
const char *saga_task_label(const struct saga_task *task, const char *key); /* NULL: not set */
const char *saga_task_traceparent(const struct saga_task *task);            /* "": none */
/* 0 to threads - 1: an index into things that each thread has of its own (connections). */
int saga_task_thread(const struct saga_task *task);

/* How long it may take. */

/* Until 80 % of the last confirmed lease have passed; 0: over. */
int64_t saga_task_lease_left_ms(const struct saga_task *task);
/* Until the attempt time is over; 0: over. Ends before saga_task_send_before_us. */
int64_t saga_task_time_left_ms(const struct saga_task *task);
/* Nothing may be sent to the third party from then on, since it could arrive when the idempotency
 * key is forgotten: for calls that wait in a queue of your own. Unix epoch microseconds of the
 * database's clock; 0: no such time. */
int64_t saga_task_send_before_us(const struct saga_task *task);
/* The last look before a call that cannot be taken back. False once 80 % of the last confirmed
 * lease have passed, the lease was reported lost, or the attempt time is over: then do not make the
 * call; say RETRY if nothing was sent before, UNKNOWN otherwise. */
bool saga_task_still_mine(const struct saga_task *task);

enum saga_stop {
    SAGA_STOP_NONE,
    SAGA_STOP_DRAINING,  /* the worker ends soon: finish if it does not take long */
    SAGA_STOP_CANCELLED, /* the saga turned back or was stopped: an early end saves work */
    SAGA_STOP_LOST       /* not saga_task_still_mine */
};
/* For long handlers to look at now and then. The report counts in any case. */
enum saga_stop saga_task_stop_requested(const struct saga_task *task);

/* What came of it. The last call before the handler returns counts. 0, or -1 with nothing changed:
 * an argument over its limit or not UTF-8, or memory is out. `code` is 1-128 bytes without control
 * characters; a message may be NULL, is cut at its limit, and bytes that are no text become '?'.
 * Thread: the handler's own. */

/* It took effect. A probe: what it asks about took effect, with what that would have answered. */
int saga_task_done(struct saga_task *task, const void *output, size_t size);
/* The other side says that it exists already. `ours`: it confirmed that it is our key. */
int saga_task_already_done(struct saga_task *task, const void *output, size_t size, bool ours);
/* A business no: this attempt had no effect, and another one would not help. */
int saga_task_rejected(struct saga_task *task, const char *code, const char *message);
/* This attempt certainly had no effect (nothing was sent, or the other side said so). */
int saga_task_retry(struct saga_task *task, const char *code, const char *message,
                    int64_t after_ms);
/* A probe: the other side knows nothing of it. */
int saga_task_not_done(struct saga_task *task);
/* A probe: it could not be found out now. */
int saga_task_still_unknown(struct saga_task *task, const char *code, const char *message);
/* It may have happened. A probe: as saga_task_still_unknown. */
int saga_task_unknown(struct saga_task *task, const char *code, const char *message);

/* Says for you whether anything can have been sent, from the error of a call that the handler made:
 * RETRY where the code proves that it was not (nobody listens, no such name, no connection came
 * about), else UNKNOWN. Call it for the step that failed: of a call that had got through to the
 * other side before, say saga_task_unknown yourself. As above otherwise. */
enum saga_client {
    SAGA_CLIENT_CONNECT = 1, /* code: errno of connect(2) or of its SO_ERROR */
    SAGA_CLIENT_RESOLVE,     /* code: what getaddrinfo(3) returned */
    SAGA_CLIENT_CURL, /* code: CURLcode of curl_easy_perform, of a request without redirects */
    SAGA_CLIENT_POSTGRESQL, /* code: PQstatus of a connection that PQconnectdb or PQconnectPoll just
                             * made; not of one that served before */
    SAGA_CLIENT_MYSQL       /* code: mysql_errno after mysql_real_connect */
};
int saga_task_failed(struct saga_task *task, enum saga_client client, int code,
                     const char *message);

/* For handlers whose work goes on without their thread (an event loop, callbacks): the task stays
 * in flight after the handler returned, until saga_task_end. Its leases are extended, it counts for
 * max_in_flight, and saga_worker_run waits for it. Called by the handler. The task is then used by
 * one thread at a time, and its pointers are valid until saga_task_end. */
void saga_task_keep(struct saga_task *task);
/* Once for a kept task, from any thread, also before the handler returns: reports the outcome that
 * was set last, UNKNOWN without one. The task is not yours any more. */
void saga_task_end(struct saga_task *task);

/* The guard of a participant's database (sql/guard). Options NULL: as they come. */
struct saga_guard_options {
    /* A compensation whose action left no trace in the database is run (PROCEED) and not passed
     * over (EMPTY): for an action that also has an effect outside of the database, which a rolled
     * back transaction does not take back. The body must then bear that there is nothing to undo.
     */
    bool even_without_action;
};

/* PostgreSQL: library sagaworker_guard, needs libpq. */

typedef struct pg_conn PGconn;
/* The effect, inside the transaction that is open on `conn`; it must not end that transaction.
 * 0: it stands; its output is what saga_task_done was given here, if it was. Not 0, or an outcome
 * other than DONE: the transaction is rolled back, so that outcome must be REJECTED, RETRY or
 * UNKNOWN; without one it is RETRY. */
typedef int saga_guard_body(struct saga_task *task, PGconn *conn, void *ctx);
/* BEGIN, enter, the body if the guard says PROCEED, done, COMMIT; sets the outcome of the task:
 *   PROCEED -> DONE · DUPLICATE -> ALREADY_DONE (ours, stored output) · EMPTY -> DONE
 *   REFUSED -> REJECTED GUARD_REFUSED · STALE -> RETRY GUARD_STALE
 *   an error or a lost connection before COMMIT -> RETRY · a COMMIT without an answer -> UNKNOWN
 * `conn` is used by this thread alone, outside a transaction; if it is broken it is reset first. No
 * transaction is left open. Actions and compensations only. */
void saga_guard_run(struct saga_task *task, PGconn *conn, saga_guard_body *body, void *ctx);
void saga_guard_run_with(struct saga_task *task, PGconn *conn,
                         const struct saga_guard_options *options, saga_guard_body *body,
                         void *ctx);

/* MySQL 8 and MariaDB 10.11: library sagaworker_guard_mysql, needs libmariadb. */

struct st_mysql; /* MYSQL */
/* The guard on a connection, and its prepared statements there; opaque. */
struct saga_guard_mysql;
/* `conn` is borrowed until saga_guard_mysql_free and used by one thread at a time; its database is
 * the one that holds the guard's tables and yours. Not 0: memory is out. */
int saga_guard_mysql_new(struct st_mysql *conn, struct saga_guard_mysql **ret_guard);
/* Before or after mysql_close. NULL is fine; always returns NULL. */
struct saga_guard_mysql *saga_guard_mysql_free(struct saga_guard_mysql *guard);

/* As saga_guard_body. Each statement's result must be read to its end. A statement that changes the
 * schema would commit the transaction. */
typedef int saga_guard_mysql_body(struct saga_task *task, struct st_mysql *conn, void *ctx);
/* START TRANSACTION, the statements of sql/guard/mysql.sql, the body if they say PROCEED, COMMIT or
 * ROLLBACK: it commits after PROCEED (if the body says so), EMPTY and DUPLICATE, and rolls back in
 * every other case. Any isolation level, autocommit on or off. Sets the outcome of the task as
 * above, with these of its own: RETRY GUARD_MYSQL_1213, GUARD_MYSQL_1205, ...: a deadlock, a lock
 * that was not given in time, any error of the server before COMMIT · RETRY GUARD_CONNECTION: the
 * connection was lost before COMMIT RETRY GUARD_CONNECTION_IN_USE: a transaction is open already,
 * and is left as it is RETRY GUARD_NO_TRANSACTION: the server did not open one UNKNOWN
 * GUARD_LEFT_OPEN: a worker entered without this function and committed without done UNKNOWN
 * GUARD_BODY_COMMITTED: the body ended the transaction If the connection is broken it is made again
 * first, with the options that it was made with, and its automatic reconnection is switched off:
 * that would run the rest of a transaction outside of it. A transaction that cannot be rolled back
 * is cut off with its connection. No transaction is left open. Actions and compensations only. */
void saga_guard_mysql_run(struct saga_task *task, struct saga_guard_mysql *guard,
                          const struct saga_guard_options *options, saga_guard_mysql_body *body,
                          void *ctx);

#endif
