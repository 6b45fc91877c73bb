/* Shared by the files of this folder.
 *
 *   engine.c       the turn: events, completions, timers, the next batch
 *   slots.c        the table of sagas in memory, their work queues and timers
 *   step.c         one piece of work on one saga: core -> transition -> batch
 *   complete.c     what became of an operation; effects leave here, after the commit
 *   definitions.c  the revisions in memory
 *   workers.c      worker streams and leases
 *   events.c       events in: starts, verbs, definitions, status
 *   nodes.c        this node among the others: heartbeat, own, adopted and let-go sagas
 *   handlers.c     what holds and limits handlers */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include "base/hash.h"
#include "dispatch/dispatch.h"
#include "engine/engine.h"

enum {
    BLOCKED_MIN_MS = 200, /* a saga whose operation failed is set aside this long, then doubled */
    BLOCKED_MAX_MS = 30000,
    LOAD_CHUNK = 500,
    ACKS_PER_MESSAGE = 512,
    GRANT_BYTES_MAX = 8 * 1024 * 1024, /* payload granted to one stream in one batch */
    CALL_TRIES_MAX = 8,    /* a start or a verb that met a lock or a conflict of transactions */
    FOREIGN_LOOK_MS = 500, /* another node's saga that somebody waits for here is loaded so often */
};

/* --- definitions --- */

struct definition_waiter { /* something that goes on once a revision is in memory */
    struct definition_waiter *next;
    /* definition NULL: err says why there is none */
    void (*resume)(struct engine *engine, struct definition_waiter *waiter,
                   const struct definition *definition, const struct err *err);
};

struct definition_key {
    char text[64 + 128 + 16]; /* "namespace/name/revision"; revision 0: which one is current */
};

struct definition_slot {
    struct definition_key key; /* hash key */
    UT_hash_handle hh;
    struct definition *definition; /* NULL while it is being loaded; shared with no other slot */
    int32_t current;               /* revision 0: the revision that new sagas take; 0: not known */
    char *pause_reason;            /* revision 0: it starts no new sagas, and why; NULL: it does */
    char *namespace_, *name;
    int32_t revision;
    struct definition_waiter *waiters;
    bool queued, in_flight;
    struct definition_slot *next_to_load;
    struct store_op op;
};

/* --- work --- */

enum work_kind {
    WORK_START,         /* struct start_item */
    WORK_START_CHECK,   /* the same: its commit is unknown, so the saga is looked up by its uid */
    WORK_START_EXISTED, /* the same, once the saga that has the key is loaded */
    WORK_REPORT,        /* struct worker_report */
    WORK_EXTEND,        /* struct worker_lease_ref */
    WORK_RELEASE,       /* struct worker_lease_ref */
    WORK_VERB,          /* struct engine_verb */
    WORK_LEASE_END,     /* struct lease_end: the engine's own finding */
};

struct lease_end { /* STREAM_LOST or RELEASED, found by the engine */
    struct engine_work work;
    int64_t seq, fence;
    char *worker; /* whose lease it must be; owned */
    enum outcome outcome;
    bool if_ours;     /* void unless this process granted it */
    bool unconfirmed; /* STREAM_LOST of this task alone: its worker may well be there */
};
/* NULL: memory; then the lease's time ends it. */
struct engine_work *lease_end_new(int64_t seq, int64_t fence, const char *worker,
                                  enum outcome outcome);
void lease_end_free(struct lease_end *end);

struct lease { /* a live lease of a resident saga */
    struct dispatch_lease dispatch;
    struct slot *slot;
    struct lease *next; /* of the saga */
    int64_t seq, fence;
    bool idempotent;
    bool ours;         /* this process granted it: it knows the stream that it went to */
    bool of_this_node; /* an earlier process of this node did: that stream is gone with it */
    /* Of an earlier timeline: its report may have been accepted, and lost with what came after the
     * point from which the database went on. That its worker does not list it says nothing. */
    bool may_have_ended;
};

/* --- sagas in memory --- */

enum slot_state {
    SLOT_UNLOADED, /* known by its uid only; a load is due */
    SLOT_LOADING,  /* its load is in flight, or its definition is */
    SLOT_IDLE,
    SLOT_BUSY,    /* a transition is in flight */
    SLOT_BLOCKED, /* set aside after a failure, until its timer */
};

/* Whoever a saga was taken from may have been committing: what it said of a lease in a transaction
 * that began before is there after this long. */
enum { TAKEN_LOOK_MS = 1000 };

/* One of its operations in the queue of a handler. */
struct wait {
    struct dispatch_ready ready;
    struct slot *slot;
    struct wait *next; /* of the slot */
};

struct slot {
    struct uuid uid; /* hash key */
    UT_hash_handle hh;
    enum slot_state state;
    bool runnable; /* on the engine's list */
    bool time_due;
    bool suspect; /* its last operation failed */
    bool mine;    /* the copy: this node owns the saga */
    int blocked_ms;
    int64_t not_before;  /* monotonic: time brings nothing before; 0: no such limit */
    int64_t grace_until; /* monotonic: none of its leases expires before */
    int64_t ready_since; /* monotonic */
    int64_t look_at;     /* monotonic: it is loaded once more then; 0: it need not be */
    uint64_t known; /* the batch that loaded the copy, or last decided on it: it was right then */
    struct saga *saga; /* NULL while not loaded */
    struct engine_work *first, **last;
    struct slot *prev_runnable, *next_runnable;
    struct heap_node timer;
    struct wait *waits;     /* in the order of saga_grantable */
    struct wait first_wait; /* the memory of one: most sagas never need another */
    struct lease *leases;
    struct engine_verb *waiters;
    struct flight *flight;
};

/* One operation of the batch in flight. */
struct engine_handler { /* of a definition in memory, or of which something was said */
    struct handler row; /* row.name: hash key */
    UT_hash_handle hh;
    struct held_times times;         /* the rules of definitions point here */
    int32_t others;                  /* nodes besides this one that serve it */
    bool gated;                      /* its gate is not open */
    int64_t gated_since;             /* monotonic */
    int32_t drained;                 /* reads in a row that found nothing waiting any more */
    int32_t failures;                /* in a row */
    enum handler_change_kind wanted; /* HANDLER_CHANGE_COUNT: none */
    bool tried_well;                 /* wanted: TRIED */
    int64_t tried_of_ms;             /* in this hold */
    char why[LIMIT_REASON_BYTES + 1];
    bool in_flight; /* a change, of this kind, to this */
    enum handler_change_kind changes;
    struct handler next;
};

struct flight {
    struct store_op op;
    struct transition transition;
    struct slot *slot;        /* NULL: a load by key or of the open sagas */
    struct engine_work *work; /* what it answers; NULL: time, or a grant alone */
    enum verdict verdict;
    struct dispatch_subscription *reserved; /* credit taken for the lease in it; NULL: none */
    struct dispatch_session *session;       /* whose it is; NULL once that stream ended */
    struct engine_handler *handler;         /* HANDLER: whose change it is */
    struct flight *prev, *next;             /* all in flight; next alone: free list */
};

struct loaded_saga { /* waits for its definition */
    struct definition_waiter waiter;
    struct store_saga saga;
    uint64_t generation;
    uint64_t batch_number; /* of the load */
};

/* --- workers --- */

struct link_session { /* what worker_link.session points to */
    struct worker_link *link;
    struct dispatch_session *session; /* NULL before Hello and after the engine closed it */
    char *worker_name, *sdk;          /* of its Hello; owned */
    int64_t since_ms;                 /* wall clock of its Hello */
    uint64_t number;
    size_t open_events;                /* not done yet; GONE waits for them */
    struct engine_worker_event *gone;  /* NULL until the stream has ended */
    struct engine_worker_event *pause; /* NULL, or waits for what is granted to it and in flight */
    struct link_session *next_paused;
    /* gathered during a turn, sent at its end */
    struct engine_lease_ack *acks;
    size_t ack_count, ack_capacity;
    struct engine_lease_extended *extended;
    size_t extended_count, extended_capacity;
    struct lease_task { /* by uid: the copy may be gone when it is its turn */
        struct uuid uid;
        int64_t seq, fence;
        struct dispatch_subscription *reserved;
    } * tasks;
    size_t task_count, task_capacity;
    size_t granted_bytes; /* in the batch that is being filled */
    bool only_stream;
    struct held_lease { /* what the Hello listed; kept for an only stream */
        struct uuid uid;
        int64_t fence;
    } * held;
    size_t held_count;
    bool to_flush;
    struct link_session *next_flush;
    struct link_session *prev, *next; /* all */
};

enum { ENGINE_TOOK_MAX = 256 };
struct engine {
    struct engine_options options;
    struct mailbox mailbox;
    struct store *store;
    struct dispatch *dispatch;
    struct rng rng;
    struct engine_counters counters;
    atomic_bool ready;
    bool stopping;
    struct engine_event *stop_event;

    uint64_t generation;             /* of the store, that the copies belong to */
    int64_t db_offset_ms;            /* database clock - monotonic clock: at least */
    int64_t db_offset_most_ms;       /* at most */
    int64_t db_least_at, db_most_at; /* monotonic: when they were learnt; clocks drift */
    bool db_offset_known;
    int64_t grace_until; /* monotonic; nothing expires before */
    struct engine_took { /* of the latest batches, around in a ring */
        uint32_t ms, items;
    } took[ENGINE_TOOK_MAX];
    size_t took_count, submitted_items; /* all so far; of the batch in flight */
    int64_t submitted_at;               /* monotonic time of the batch in flight */
    uint64_t batch_number;              /* batches submitted so far */
    int64_t now_mono;                   /* of this turn */

    struct slot *slots;    /* hash */
    struct slot *runnable; /* ring */
    size_t runnable_count;
    struct heap timers, wait_timers;

    struct definition_slot *definitions; /* hash */
    struct definition_slot *definitions_to_load, **definitions_last;

    struct engine_work *starts, **starts_last;       /* WORK_START that may go into a batch */
    struct engine_work *key_loads, **key_loads_last; /* WORK_VERB by key, WORK_START refused */

    struct flight *free_flights;
    struct flight *flights; /* in flight */
    struct store_op *batch, **batch_last;
    size_t batch_count;

    char granter[STORE_GRANTER_SIZE]; /* what this process writes into the leases that it grants */
    bool joined;                      /* this process has joined once */
    bool member;                      /* and on this connection it is known that it still belongs */
    bool expelled, reload;
    int32_t nodes_alive;
    bool beat_in_flight, own_in_flight, adopt_in_flight;
    int64_t beat_at, adopt_at, own_at; /* monotonic */
    bool owning;                       /* its own sagas are being listed and loaded, in chunks */
    bool own_from_start;
    struct uuid own_after;
    struct dispatch_served adopt_for; /* names borrowed by the ADOPT in flight */
    struct dispatch_served beat_for;  /* the same, by the HEARTBEAT */

    struct engine_handler *handlers; /* hash; they stay as long as the engine */
    size_t handler_count;
    bool handlers_known; /* read on this connection: before that nothing is decided */
    bool handlers_in_flight, handlers_watched;
    int64_t handlers_at;                        /* monotonic; the next read */
    struct store_handler_count *handler_counts; /* borrowed by the read in flight */
    size_t handler_counts_used, handler_counts_capacity;
    struct mailbox_node *handlers_told; /* ENGINE_HANDLERS_CHANGED that wait for a read */
    size_t handlers_told_before;        /* of those came before the read in flight */

    struct mailbox_node *started, **started_last; /* ENGINE_STARTED that are being taken up */

    struct uuid last_uid; /* of the last start */
    struct link_session *links, *to_flush, *paused;
    uint64_t next_session;
};

/* slots.c */
struct slot *slot_find(struct engine *engine, const struct uuid *uid);
MUST_USE struct slot *slot_get(struct engine *engine, const struct uuid *uid); /* NULL: memory */
void slot_queue(struct engine *engine, struct slot *slot, struct engine_work *work);
void slot_queue_front(struct slot *slot, struct engine_work *work);
struct engine_work *slot_take_work(struct slot *slot);
void slot_make_runnable(struct engine *engine, struct slot *slot);
void slot_not_runnable(struct engine *engine, struct slot *slot);
/* The copy dies; works stay. */
void slot_drop_copy(struct engine *engine, struct slot *slot);
/* Takes a loaded or new copy in; registers leases, timers, readiness. */
void slot_install(struct engine *engine, struct slot *slot, struct saga *saga, uint64_t known);
/* After a copy changed or came to rest: timers, ready queue, waiters, eviction. May free slot. */
void slot_settle(struct engine *engine, struct slot *slot);
void slot_block(struct engine *engine, struct slot *slot);
void slot_free(struct engine *engine, struct slot *slot);
void slot_lease_granted(struct engine *engine, struct slot *slot, int64_t seq);
void slot_lease_ended(struct engine *engine, struct slot *slot, int64_t seq);
void slot_take_ready(struct engine *engine, struct slot *slot);
/* The database's clock. Nothing may happen before its time: at least. A worker must not think its
 * lease longer than it is: at most. */
int64_t engine_db_now(const struct engine *engine);
int64_t engine_db_now_at_most(const struct engine *engine);
/* How far two clocks may part in so many ms: both may be slewed by 500 ppm, as NTP does. */
static inline int64_t engine_drift_ms(int64_t passed_ms)
{
    return passed_ms > 0 ? passed_ms / 1000 + 1 : 0;
}
bool engine_expiry_allowed(const struct engine *engine, const struct slot *slot);

/* Does it end a lease as STREAM_LOST? Its worker may work on until lease_until, which another node
 * may have extended without this copy's knowing: the saga is loaded before anything is granted that
 * must wait for that. */
static inline bool transition_loses_stream(const struct saga *saga, const struct transition *t)
{
    return t->finishes && saga_entry(saga, t->finish_seq)->outcome == OUTCOME_STREAM_LOST;
}

/* step.c */
/* Fills the batch from starts, runnable sagas and ready queues. */
void step_fill_batch(struct engine *engine);
struct flight *flight_new(struct engine *engine); /* NULL: memory, or the batch is full */
void flight_add(struct engine *engine, struct flight *flight);
void flight_free(struct engine *engine, struct flight *flight);

/* payloads.c */
/* Is the saga to be started? 0, and item->start says with what. `pause`: NULL, or why its
 * definition starts no new sagas. */
MUST_USE int payload_check_start(struct start_item *item, const struct definition *definition,
                                 const char *pause, struct err *err);
/* An output that is no message of the declared type: the worker did something, and what nobody can
 * read is no answer. The report then counts as UNKNOWN, which has its declared way out. */
void payload_check_report(const struct saga *saga, struct worker_report *work);
MUST_USE int payload_check_signal(const struct saga *saga, const struct engine_verb *verb,
                                  struct err *err);
/* The output is that of the operation that is named, or else of the one that the saga is at. */
MUST_USE int payload_check_resolve(const struct saga *saga, const struct engine_verb *verb,
                                   struct err *err);

/* complete.c */
void complete_op(struct engine *engine, struct store_op *op);
void work_answer(struct engine *engine, struct slot *slot, struct engine_work *work,
                 enum verdict verdict, int64_t lease_ms);
void work_fail(struct engine *engine, struct engine_work *work, const struct err *err);

/* definitions.c */
/* Calls waiter->resume now or once it is loaded. revision 0: the current one. */
void definitions_with(struct engine *engine, const char *namespace_, const char *name,
                      int32_t revision, struct definition_waiter *waiter);
/* NULL while it is not in memory. *ret_pause: NULL, or why it starts no new sagas. */
const struct definition *definitions_current(struct engine *engine, const char *namespace_,
                                             const char *name, const char **ret_pause);
void definitions_forget_all_current(struct engine *engine);
void definitions_forget_current(struct engine *engine, const char *namespace_, const char *name);
void definitions_fill_batch(struct engine *engine);
void definitions_loaded(struct engine *engine, struct store_op *op);
void definitions_fail_waiters(struct engine *engine); /* at the stop */
void definitions_free(struct engine *engine);

/* events.c */
void events_take(struct engine *engine);
void start_item_answered(struct engine *engine, struct engine_work *work);
void start_requeue(struct engine *engine, struct start_item *item);
void verb_finish(struct engine *engine, struct engine_verb *verb);
bool wait_is_over(const struct slot *slot, const struct engine_verb *verb);
void verb_wait(struct engine *engine, struct slot *slot, struct engine_verb *verb);
void waiters_check(struct engine *engine, struct slot *slot);
void waiters_time(struct engine *engine);
int64_t waiters_due_at(const struct engine *engine);
void key_load_queue(struct engine *engine, struct engine_work *work);
/* A loaded saga whose definition may have to be loaded first; `known`: the batch that loaded it.
 * Consumes *saga. */
void loaded_install(struct engine *engine, struct store_saga *saga, uint64_t known);

/* workers.c */
void workers_event(struct engine *engine, struct engine_worker_event *event);
void worker_work_answered(struct engine *engine, struct engine_work *work, enum engine_ack ack,
                          int64_t lease_ms);
/* Hands a durable grant to the session that it was made for (flight->session); NULL: that stream
 * has ended, so the task certainly never left and is given back. */
void workers_grant(struct engine *engine, struct slot *slot, int64_t seq,
                   const struct flight *flight);
/* A task of so many bytes is granted to it in this batch. Over the bound it gets no more until the
 * next one: what one stream may have waiting stays bounded. */
void workers_granting(struct engine *engine, struct dispatch_session *dispatch_session,
                      size_t bytes);
void workers_lost(struct engine *engine);
void workers_flush(struct engine *engine);
void workers_cancel_hints(struct engine *engine, struct slot *slot);
/* A lease is about to be ended as EXPIRED: if its worker did not extend it, that worker gets no
 * more tasks until it says something. */
void workers_expired(struct slot *slot, int64_t seq);
/* A lease that another process granted was loaded: was it never started, by what its worker said?
 */
bool workers_never_started(const struct lease *lease);
void workers_links_free(struct engine *engine);
/* Fills status->workers. */
void workers_view(struct engine *engine, struct engine_status *status);
/* --- engine.c */
struct engine_batch_times engine_batch_times(const struct engine *engine);
/* For the lease that the slot's copy holds at seq now. By the time it is applied the copy may be
 * another one, with somebody else's lease at that position: then it is void. */
void lease_end_queue(struct engine *engine, struct slot *slot, int64_t seq, enum outcome outcome);

/* Ends the hold of an event that the work asked by it, or a pause, had; the last one ends it. */
void worker_event_release(struct engine *engine, struct engine_worker_event *event);

/* workers_unary.c */
void workers_pause(struct engine *engine, struct link_session *session,
                   struct engine_worker_event *event);
/* Ends the pauses that nothing is in flight for any more: after workers_flush, when a turn ends. */
void workers_paused(struct engine *engine);
/* Those of the tasks that may be repeated are offered to others, however well their worker is. */
void workers_unconfirmed(struct engine *engine, const struct engine_worker_event *event);

/* nodes.c */
void nodes_connection_is_new(struct engine *engine);
/* Heartbeat, own sagas, adoption. Before this node is a member nothing else may be submitted. */
void nodes_fill_batch(struct engine *engine);
void nodes_beat(struct engine *engine, enum store_beat beat);
void nodes_beat_done(struct engine *engine, const struct store_op *op);
void nodes_own_done(struct engine *engine, const struct store_op *op);
void nodes_adopt_done(struct engine *engine, const struct store_op *op);
void nodes_reloaded(struct engine *engine); /* all copies are dropped: its own are loaded again */
void nodes_handlers_changed(struct engine *engine);
void nodes_started(struct engine *engine, struct engine_started *started);
bool nodes_started_due(const struct engine *engine);
void nodes_started_end(
    struct engine *engine); /* at the stop: the next start of the node has them */
/* It takes no more tasks: what waits for a handler that nobody serves any more may be let go. */
void nodes_session_ends(struct engine *engine, const struct dispatch_session *session);
int64_t nodes_due_at(const struct engine *engine);
/* When a saga at rest is to leave this node's memory; INT64_MAX: not by itself. */
int64_t nodes_let_go_at(struct engine *engine, const struct slot *slot);
void nodes_let_go(struct engine *engine, struct slot *slot, struct flight *flight);

/* handlers.c */
/* Its rules point to when their handlers were braked. -1: memory. */
MUST_USE int handlers_attach(struct engine *engine, struct definition *definition);
void handlers_connection_is_new(struct engine *engine);
void handlers_fill_batch(struct engine *engine);
void handlers_read_done(struct engine *engine, struct store_op *op);
void handlers_change_done(struct engine *engine, struct flight *flight);
/* Somebody changed one; done when it is known here. */
void handlers_changed(struct engine *engine, struct engine_event *event);
void handlers_changed_end(struct engine *engine); /* at the stop */
/* A lease of the saga has ended so: its handler's breaker counts. */
void handlers_outcome(struct engine *engine, const struct saga *saga,
                      const struct journal_entry *entry);
/* All that it waits for is held; or somebody brakes or limits something of it. */
bool handlers_waits_held(const struct slot *slot);
bool handlers_waits_braked(const struct slot *slot);
int64_t handlers_due_at(const struct engine *engine);
void handlers_free(struct engine *engine);

#define COUNT(engine, name, n)                                                                     \
    atomic_fetch_add_explicit(&(engine)->counters.name, (n), memory_order_relaxed)

#endif
