/* The engine: event -> core -> batch -> ONE transaction -> act. Owns every copy of a saga, the
 * leases and timers, and the engine's connection; nothing that follows from an event leaves before
 * the commit that it depends on.
 *
 * One thread runs it (engine_run, or engine_turn by a test). All others talk to it through events:
 * an event is allocated by the poster, is the engine's from engine_post on, and comes back exactly
 * once through its `done` on the engine's thread, with its results filled in; `done` must not block
 * and must free it. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/clock.h"
#include "base/heap.h"
#include "base/mailbox.h"
#include "base/rng.h"
#include "core/saga.h"
#include "store/store.h"

#include <stdatomic.h>

struct engine;

enum engine_event_kind {
    ENGINE_START,              /* struct engine_start */
    ENGINE_VERB,               /* struct engine_verb */
    ENGINE_WORKER,             /* struct engine_worker_event */
    ENGINE_DEFINITION_CHANGED, /* struct engine_definition_event */
    ENGINE_STATUS,             /* struct engine_status */
    ENGINE_STARTED,            /* struct engine_started */
    ENGINE_HANDLERS_CHANGED, /* struct engine_event alone: done once what is stored is in force here
                              */
    ENGINE_STOP,             /* struct engine_event alone: drain, finish the batch, end the run */
};

struct engine_event {
    struct mailbox_node node;
    enum engine_event_kind kind;
    void (*done)(struct engine_event *event);
};

/* One piece of work on one saga, embedded in the event that asks for it; the engine's, zeroed by
 * the poster. */
struct engine_work {
    struct engine_work *next;
    int kind;
    struct engine_event *event;
    uint64_t asked; /* batches submitted when it was asked */
};

/* --- starting sagas ------------------------------------------------------------------------- */

struct start_item {
    /* in: borrowed until done; validated (UTF-8, limits) by the poster */
    const char *namespace_, *definition, *saga_id;
    struct bytes input;
    const char *labels; /* JSON object text; NULL: none */
    bool has_related;
    struct uuid related;
    int64_t start_at_ms;       /* 0: at once */
    bool suspect;              /* it takes over what somebody else may have begun */
    int64_t suspect_since_ms;  /* 0: the time of the start */
    const char *suspect_actor; /* who says so; NULL: not said */
    /* out, owned by the event: what the saga gets of its input; buf_done(&start.made) before
     * freeing it */
    struct payload_start start;
    /* out */
    struct err err; /* code ERR_OK: started or existed */
    struct uuid uid;
    bool existed;
    enum saga_state state;
    int32_t run, revision;
    /* engine's */
    struct engine_work work;
    uint8_t digest[32];
    int tries;
};

struct engine_start {
    struct engine_event event;
    struct start_item *items;
    size_t count;
    size_t open; /* engine's */
};

/* --- verbs on one saga ------------------------------------------------------------------------ */

enum engine_verb_kind {
    ENGINE_VERB_CANCEL,
    ENGINE_VERB_RETRY,
    ENGINE_VERB_RESOLVE,
    ENGINE_VERB_SKIP,
    ENGINE_VERB_ABANDON,
    ENGINE_VERB_SUSPEND,
    ENGINE_VERB_RESUME,
    ENGINE_VERB_SIGNAL,
    ENGINE_VERB_OPTIONS,
    ENGINE_VERB_WAIT
};

struct engine_verb {
    struct engine_event event;
    enum engine_verb_kind verb;
    /* in: by uid, or by key. run 0: the latest. Borrowed until done. */
    bool by_uid;
    struct uuid uid; /* out, too: the resolved one */
    const char *namespace_, *definition, *saga_id;
    int32_t run;
    const char *step; /* RETRY, SKIP: NULL for the one it stands at; OPTIONS: for all; RESOLVE */
    const char *actor, *reason;     /* NULL or text; RESOLVE, SKIP: reason is the evidence */
    enum operation operation;       /* RESOLVE: OPERATION_COUNT: not said */
    int64_t fence;                  /* RESOLVE; 0: not said */
    bool happened;                  /* RESOLVE */
    struct bytes output;            /* RESOLVE; SIGNAL: the payload; borrowed until done */
    const char *signal, *signal_id; /* SIGNAL */
    struct saga_options options;    /* OPTIONS */
    int64_t timeout_ms;             /* WAIT */
    bool or_parked;                 /* WAIT */
    /* out */
    struct err err;             /* ERR_OK: done (WAIT: settled or the time is over) */
    bool duplicate;             /* SIGNAL: it was taken before */
    const struct saga *settled; /* WAIT: as committed, until done() returns; NULL: time over */
    /* engine's */
    struct engine_work work;
    struct heap_node timer;
    int64_t until_mono;
    int tries;
    struct engine_verb *prev, *next;
    void *slot;
};

/* --- workers ------------------------------------------------------------------------------------
 */

/* A worker's stream as the engine sees it; embedded in the stream's own object, which must live
 * until the GONE event is done. The engine calls its operations on the engine's thread; they pack
 * at once, never block, and may be called until GONE is done (they then do nothing). */
struct worker_link {
    const struct worker_link_ops *ops;
    void *session; /* engine's */
};

struct engine_task { /* all borrowed during the call */
    const struct saga *saga;
    struct task_view view;
    const char *idempotency_key;
    int64_t lease_ms, attempt_ms; /* counted from before the grant was sent */
};

enum engine_ack { ENGINE_ACK_ACCEPTED, ENGINE_ACK_DUPLICATE, ENGINE_ACK_STALE };
struct engine_lease_ack {
    struct uuid uid;
    int64_t fence;
    enum engine_ack ack;
    char *problem; /* what was wrong with an output that was reported; NULL: nothing */
};
struct engine_lease_extended {
    struct uuid uid;
    int64_t fence;
    int64_t lease_ms; /* 0: lost */
};

struct worker_link_ops {
    /* False once more bytes wait to be sent than the stream's bound allows: no more tasks for now;
     * the stream posts WORKER_ROOM when there is room again. */
    bool (*has_room)(struct worker_link *link);
    /* False: the stream is dead and the task certainly never left. */
    bool (*tasks)(struct worker_link *link, const struct engine_task *tasks, size_t count);
    void (*acks)(struct worker_link *link, const struct engine_lease_ack *acks, size_t count);
    void (*extended)(struct worker_link *link, const struct engine_lease_extended *leases,
                     size_t count);
    void (*cancel_hint)(struct worker_link *link, const struct uuid *uid, int64_t fence);
    void (*welcome)(struct worker_link *link, uint64_t session);
    /* The engine ends the stream with this status. GONE follows. */
    void (*close)(struct worker_link *link, const struct err *why);
};

enum worker_event_kind {
    WORKER_HELLO,
    WORKER_CREDIT,
    WORKER_REPORT,
    WORKER_EXTEND,
    WORKER_RELEASE,
    WORKER_DRAIN,
    WORKER_ROOM,
    WORKER_PAUSE, /* no more tasks until ROOM; done when what was granted before is handed over. The
                   * next one of a link comes after that */
    WORKER_UNCONFIRMED, /* tasks that were handed over, and may never have arrived */
    WORKER_GONE,        /* the stream has ended; the last event of a link */
};

struct worker_lease_ref {
    struct uuid uid;
    int64_t fence;
    struct engine_work work;
};

struct worker_report {
    struct uuid uid;
    struct report report; /* strings and output borrowed until done */
    /* engine's: what is wrong with the output; then the report counts as UNKNOWN */
    char problem[256];
    struct engine_work work;
};

struct worker_credit {
    const char *handler;
    uint64_t total;
};

struct engine_worker_event {
    struct engine_event event;
    struct worker_link *link;
    enum worker_event_kind kind;
    const char *worker_id, *instance; /* HELLO */
    const char *sdk;                  /* HELLO; for people; NULL: not said */
    bool only_stream; /* HELLO: its process has no other stream, to no other node: what it does not
                         list was never started, whoever granted it */
    uint64_t tasks_max; /* HELLO: that this link may ever be sent, all handlers together; 0: credits
                           alone say */
    const struct worker_credit *credits; /* HELLO: handlers (total: max in flight); CREDIT */
    size_t credit_count;
    struct worker_lease_ref *leases; /* HELLO (held), EXTEND, RELEASE, UNCONFIRMED */
    size_t lease_count;
    struct worker_report *reports; /* REPORT */
    size_t report_count;
    size_t open; /* engine's */
};

/* --- the rest -----------------------------------------------------------------------------------
 */

struct engine_definition_event {
    struct engine_event event;
    const char *namespace_, *name;
};

/* Sagas that somebody else has started in this node's name, and committed: the engine loads them as
 * its own. Done when it has taken them all up, which it does as fast as it can load: who waits for
 * that is never far ahead of it. */
struct engine_started_saga { /* as it was committed */
    const char *saga_id;
    struct bytes input;
    const char *labels; /* NULL: none */
};
struct engine_started {
    struct engine_event event;
    const struct uuid *uids; /* borrowed until done; one that is not there is passed over */
    size_t count;            /* 0: it is not known which: all of the node's own are listed again */
    /* NULL: they are loaded. Else what there is of each, borrowed until done; that saves the load,
     * unless the engine has connected anew since it had done so `reconnects` times (a copy must not
     * be from another server than the one that it is decided on). One whose saga_id is NULL is
     * loaded. */
    const struct engine_started_saga *sagas;
    const char *namespace_, *definition; /* of all of them, as what follows */
    int32_t revision;
    int64_t started_at_ms, deadline_at_ms; /* by the database's clock; 0: no deadline */
    long long reconnects;                  /* the counter, before the transaction began */
    size_t taken;                          /* engine's; zeroed by the poster */
};

struct engine_counters { /* read by anyone, written by the engine */
    atomic_llong sagas_started, starts_existed, sagas_succeeded, sagas_compensated, sagas_parked,
        tasks_sent, reports_accepted, reports_duplicate, reports_stale, late_reports,
        leases_expired, streams_lost, leases_released, leases_extended, batches, batch_items,
        decisions_lost, operations_failed, reconnects, sagas_adopted, sagas_let_go, sagas_resident,
        sagas_ready, leases_live, workers_connected, nodes_alive;
};
struct engine_counter_name {
    const char *name, *help;
    size_t offset; /* of the atomic_llong in struct engine_counters */
};
extern const struct engine_counter_name engine_counter_names[];
extern const size_t engine_counter_count;

struct engine_handler_status {
    char *handler; /* owned */
    int64_t workers, credit, ready, leased;
    int64_t oldest_ms; /* since when the first of `ready` waits; 0: none does */
    bool served;       /* some worker takes tasks now or later */
};
struct engine_served { /* a handler of a worker */
    char *handler;     /* owned */
    int64_t max_in_flight, credit, in_flight;
};
struct engine_worker_status { /* strings owned */
    char *name;               /* "worker_id/instance" */
    char *sdk;
    int64_t since_ms; /* wall clock */
    bool draining, unresponsive, congested;
    struct engine_served *served;
    size_t served_count;
};
struct engine_batch_times { /* of the latest transactions */
    size_t count;
    int64_t items;
    int64_t median_ms, p99_ms, longest_ms; /* from sending to the answer of the commit */
};
struct engine_status {
    struct engine_event event;
    const char *only_handler; /* NULL: all */
    bool with_workers;
    /* out, owned by the event: free with engine_status_done before freeing it */
    struct engine_handler_status *handlers;
    size_t handler_count;
    struct engine_worker_status *workers;
    size_t worker_count;
    struct engine_batch_times batches;
};
void engine_status_done(struct engine_status *status);

struct engine_options {
    struct store *store;
    const struct clock *clock;
    uint64_t rng_seed;
    const char *node;     /* name of this orchestrator, its own among all that are alive */
    struct uuid instance; /* of this process: random */
    int64_t heartbeat_ms; /* 0: ENGINE_HEARTBEAT_MS */
    int64_t node_dead_ms; /* 0: ENGINE_NODE_DEAD_MS; its sagas are adopted then */
    /* Called once when another process has taken this node's name: from then on the engine decides
     * nothing; the owner must stop it. thread: the engine's. NULL: nobody wants to know. */
    void (*expelled)(void *ctx);
    void *expelled_ctx;
    int64_t resident_max; /* sagas in memory, beyond which those at rest leave; 0: the default */
    size_t mailbox_limit, batch_limit;
    int64_t grace_ms;         /* no expiry after start and reconnect: 15 s */
    int64_t stream_lost_ms;   /* before STREAM_LOST: 5 s */
    int32_t breaker_failures; /* in a row that hold a handler of which nobody said; 0: none do */
    /* Decodes stored bytes of a definition, with its types (schema/definition_types.h). */
    int (*definition_decode)(const struct bytes *content, const struct bytes *descriptors,
                             struct definition **ret, struct err *err);
};
enum {
    ENGINE_MAILBOX_LIMIT = 65536,
    ENGINE_GRACE_MS = 15000,
    ENGINE_STREAM_LOST_MS = 5000,
    ENGINE_HEARTBEAT_MS = 2000,
    ENGINE_NODE_DEAD_MS = 10000,
    ENGINE_RESIDENT_MAX = 200000,
};

MUST_USE int engine_new(const struct engine_options *options, struct engine **ret, struct err *err);
struct engine *engine_free(struct engine *engine);
/* thread: any. False: full or stopped; the poster keeps the event and answers RESOURCE_EXHAUSTED or
 * UNAVAILABLE. Worker events and verbs past admission use engine_post_always. */
MUST_USE bool engine_post(struct engine *engine, struct engine_event *event);
MUST_USE bool engine_post_always(struct engine *engine, struct engine_event *event);
/* thread: any */
const struct engine_counters *engine_counters(const struct engine *engine);
/* The option: failures in a row that hold a handler of which nobody said. thread: any */
int32_t engine_breaker_failures(const struct engine *engine);
/* True once this node has joined: it serves while its sagas are still being loaded. thread: any */
bool engine_is_ready(const struct engine *engine);

/* Runs until ENGINE_STOP has been handled: posts are refused from then on, the batch in flight is
 * waited for (at most 5 s), and every event that is still open is answered ERR_UNAVAILABLE, reason
 * STOPPING; last, the stop event is done. Links are not touched any more. thread: the engine's */
void engine_run(struct engine *engine);
/* One turn without waiting: takes events, completions and timers, submits the next batch. Returns
 * the monotonic time at which there is something to do by itself. thread: the engine's */
int64_t engine_turn(struct engine *engine);

#endif
