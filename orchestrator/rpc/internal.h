/* What the files of this folder share: the server, its pumps, its method table. Not for others. */
#ifndef RPC_INTERNAL_H
#define RPC_INTERNAL_H

#include "core/limits.h"
#include "engine/engine.h"
#include "rpc/call.h"
#include "rpc/listen.h"
#include "rpc/server.h"

#include <pthread.h>

enum {
    RPC_THREADS = 2,
    RPC_STREAMS_MAX = 1000,
    RPC_STREAM_SEND_BYTES_MAX = 8 * 1024 * 1024,
    RPC_WATCHERS_MAX = 1000,
    RPC_SAGA_WATCHERS_MAX = 1000,
    RPC_REFLECTORS_MAX = 100, /* streams of reflection */
    RPC_BATCHES_MAX = 4,
    RPC_BATCH_STREAMS_MAX = 64, /* those that have not asked yet among them */
    RPC_REFLECTION_REQUEST_BYTES_MAX = 4096,
    RPC_WATCH_SILENCE_MS = 30 * 1000,
    RPC_ARMED = 16,                            /* requests kept armed on each queue */
    RPC_CALLS_MAX = 20000,                     /* unary calls in work */
    RPC_REQUEST_BYTES_MAX = 256 * 1024 * 1024, /* of what clients and workers said, together */
    RPC_ANSWER_BYTES_MAX = 256 * 1024 * 1024, /* of replies that clients have not taken, together */
    RPC_SMALL_ANSWER_BYTES = 4096,            /* of a reply that may go beyond that */
    RPC_SEND_BYTES_MAX = 256 * 1024 * 1024,   /* of all streams' send queues together */
    RPC_WATCH_BYTES_MAX = 64 * 1024 * 1024,   /* the same of those who watch sagas */
    RPC_PEER_MS_MAX = 30 * 1000, /* for a client to say its request, and to take its reply */
    RPC_QUERIES_MAX = 4096,      /* waiting for the reader */
    RPC_REPLY_BYTES_MAX = LIMIT_MESSAGE_BYTES - 64 * 1024, /* what every client can receive */
    RPC_UNARY_MS_MAX = 10 * 60 * 1000, /* longest life of a unary call, whatever its deadline */
    RPC_TICK_MS = 250,
};

/* One completion queue and the thread that drains it. */
struct pump {
    struct rpc_server *server;
    size_t index;
    grpc_completion_queue *queue;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of the list */
    struct call *first, *last;
};

struct batch_run;
struct poll_session;
struct queries;
struct watcher;
struct saga_watch;
struct reflector;
struct worker_stream;

/* Freed with the last reference: rpc_server_stop has one, each call has one. Events that are still
 * with the engine keep their call, so the engine may return them after the stop. */
struct rpc_server {
    atomic_int refs;
    struct engine *engine;
    bool (*ready)(void *ctx); /* of the options */
    void *ready_ctx;
    char *node;
    char *conninfo; /* for who needs a connection of his own */
    size_t streams_max, stream_send_bytes_max, send_bytes_max, saga_watchers_max, payload_bytes_max;
    int64_t watch_silence_ms;
    grpc_server *grpc;
    struct listener *listeners;
    size_t listener_count;
    struct pump *pumps;
    size_t pump_count;
    struct queries *queries;
    atomic_bool draining, stopping;
    atomic_llong calls, request_bytes, answer_bytes, send_bytes, streams, watchers, saga_watchers,
        watch_bytes, reflector_count, batches, batch_streams, batch_threads;
    /* Unary calls whose object still lives: a client that gives up leaves work behind for a while.
     */
    atomic_llong unfinished;
    /* Workers that poll, by instance; the lock comes before the mailbox's alone. */
    pthread_mutex_t polls_lock;
    struct poll_session *poll_sessions; /* hash */
    atomic_llong polls;
    int64_t ticked_ms; /* the first pump's */
    /* Shutdown: gRPC's own tag, and who waits for it. */
    struct rpc_tag shutdown_tag;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool grpc_is_down;
    /* Under lock: streams of workers, of health watchers and of who watches sagas. */
    struct worker_stream *worker_streams;
    struct watcher *watcher_list;
    struct saga_watch *saga_watches;
    struct reflector *reflectors;
    struct batch_run *batch_runs;
    bool versions_asked;      /* whether watched sagas have changed: a query is on its way */
    int64_t versions_next_ms; /* and no other one before */
};

void rpc_server_ref(struct rpc_server *server);
void rpc_server_unref(struct rpc_server *server);

/* Counts one more, unless `bound` are there; those of `beside` (may be NULL) count, too. Counted
 * before it is compared: two that come at once cannot both see the last place free. */
MUST_USE bool rpc_server_admit(atomic_llong *count, const atomic_llong *beside, size_t bound);

int64_t rpc_now_ms(void); /* monotonic */

/* --- methods.c */
enum method_kind { METHOD_UNARY, METHOD_STREAM };
struct method {
    const char *path;
    enum method_kind kind;
    const ProtobufCMessageDescriptor *request; /* UNARY */
    /* UNARY: gets the call with its request; owes it one call_reply or call_fail. STREAM: takes
     * over the call's reference. */
    void (*handle)(struct call *call);
    bool while_draining; /* answered until the very end */
};
/* NULL: unknown. */
const struct method *method_find(grpc_slice path);
size_t method_count(void);
/* What a client may say in one message. gRPC itself bounds them by the largest of all. */
size_t method_message_bytes_max(const struct method *method);
/* What it may be answered in one message. */
size_t method_reply_bytes_max(const struct method *method);

/* --- the services: each owes its call one answer */
void definition_register(struct call *call);
void definition_get(struct call *call);
void definition_list(struct call *call);
void definition_list_revisions(struct call *call);
void definition_promote(struct call *call);
void definition_pause(struct call *call);
void definition_resume(struct call *call);
void definition_delete_revision(struct call *call);
void saga_start(struct call *call);
void saga_batch_start(struct call *call);
void saga_get(struct call *call);
void saga_list_journal(struct call *call);
void saga_list(struct call *call);
void saga_list_effects(struct call *call);
void saga_wait(struct call *call);
void saga_cancel(struct call *call);
void saga_signal(struct call *call);
void operator_retry_step(struct call *call);
void operator_resolve_step(struct call *call);
void operator_skip_compensation(struct call *call);
void operator_abandon_saga(struct call *call);
void operator_suspend_saga(struct call *call);
void operator_resume_saga(struct call *call);
void operator_set_options(struct call *call);
void operator_export_attempts(struct call *call);
void operator_rerun_saga(struct call *call);
void operator_list_audit(struct call *call);
void operator_list_parked(struct call *call);
void operator_get_guard_floor(struct call *call);
void operator_get_retention(struct call *call);
void operator_get_status(struct call *call);
void operator_list_workers(struct call *call);
void operator_hold_handler(struct call *call);
void operator_release_handler(struct call *call);
void operator_set_handler_limits(struct call *call);
void operator_list_handlers(struct call *call);
void kafka_list_rules(struct call *call);
void kafka_stop_rule(struct call *call);
void kafka_start_rule(struct call *call);
void kafka_resume_partition(struct call *call);
void kafka_check(struct call *call);
void kafka_take_over(struct call *call);
void kafka_get_request(struct call *call);
void kafka_list_requests(struct call *call);
void kafka_list_letters(struct call *call);
void kafka_get_letter(struct call *call);
void kafka_replay_letters(struct call *call);
void kafka_discard_letters(struct call *call);
void kafka_publish_event(struct call *call);
void kafka_discard_event(struct call *call);
void kafka_look_up_key(struct call *call);
void health_check(struct call *call);
void worker_lease_tasks(struct call *call);
void worker_report_outcomes(struct call *call);
void worker_extend_leases(struct call *call);
void worker_release_tasks(struct call *call);

/* --- streams */
void worker_stream_begin(struct call *call);
void worker_stream_free(struct worker_stream *stream);
void worker_streams_tick(struct rpc_server *server, int64_t now_ms);
void worker_streams_drain(struct rpc_server *server, int64_t grace_ms);
void watcher_begin(struct call *call);
void watcher_free(struct watcher *watcher);
void watchers_tick(struct rpc_server *server);
/* Tells every watcher NOT_SERVING and ends its stream. */
void watchers_end(struct rpc_server *server);
void saga_watch_begin(struct call *call);
void saga_watch_free(struct saga_watch *watch);
void saga_watches_tick(struct rpc_server *server, int64_t now_ms);
void saga_watches_end(struct rpc_server *server); /* UNAVAILABLE */
void run_batch_begin(struct call *call);
void run_batch_free(struct batch_run *run);
void run_batch_tick(struct rpc_server *server, int64_t now_ms);
void run_batch_end(struct rpc_server *server); /* UNAVAILABLE */
void reflector_begin(struct call *call);
void reflector_free(struct reflector *reflector);
void reflectors_tick(struct rpc_server *server, int64_t now_ms);
void reflectors_end(struct rpc_server *server); /* UNAVAILABLE */

/* --- workers without a stream (worker_poll.c) */
void worker_polls_tick(struct rpc_server *server, int64_t now_ms);
void worker_polls_end(struct rpc_server *server); /* forgets them all, when no call is left */

/* --- an event of a worker's link; what it says stays as it is */
static inline void worker_event_init(struct engine_worker_event *event, struct worker_link *link,
                                     enum worker_event_kind kind,
                                     void (*done)(struct engine_event *))
{
    event->event.kind = ENGINE_WORKER;
    event->event.done = done;
    event->link = link;
    event->kind = kind;
}

/* --- pump.c */
MUST_USE int pump_start(struct pump *pump, struct err *err);
/* Handles what the queue has now, for a queue without a thread. */
void pump_drain(struct pump *pump);
/* Ends calls that are older than any may be. */
void pump_sweep(struct pump *pump, int64_t now_ms);
/* Answers every open call of that handler at once. */
void pump_preempt(struct pump *pump, void (*handle)(struct call *call), const struct err *err);

#endif
