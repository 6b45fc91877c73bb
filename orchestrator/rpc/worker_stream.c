/* One worker's stream: messages in, events for the engine out, and back.
 *
 * A stream is as old as its call. What it asks of the engine holds the call, so it outlives gRPC's
 * side until the last event is done. Reading goes on while what came before is in moderate measure
 * unanswered, and tasks are taken while what went before is in moderate measure unsent: of this
 * stream, and of all together, so memory stays bounded whatever workers send or do not read.
 *
 * Locks are taken in this order: the server's, the stream's, the sender's. */
#include "base/log.h"
#include "base/mem.h"
#include "rpc/internal.h"
#include "rpc/sender.h"
#include "rpc/worker_decode.h"
#include "rpc/worker_encode.h"

#include <saga/v1/worker.pb-c.h>
#include <string.h>

enum {
    EVENTS_OPEN_MAX = 64,              /* events of a stream at the engine */
    EVENT_BYTES_MAX = 8 * 1024 * 1024, /* and the bytes that they came in */
    TICK_PROMISED_MS = 15 * 1000,      /* something flows at least that often */
    TICK_AFTER_MS = 12 * 1000,
    SILENCE_MS_MAX = 45 * 1000, /* a worker that says nothing for so long has gone */
    SEND_MS_MAX = 45 * 1000,    /* so has one that takes nothing */
    HELLO_MS_MAX = 15 * 1000,
};

struct stream_event {
    struct engine_worker_event event;
    struct worker_stream *stream; /* its call is referenced */
    struct arena arena;           /* the message */
    size_t bytes;
};

struct worker_stream {
    struct worker_link link;
    struct call *call;
    struct sender sender;
    pthread_mutex_t lock;
    bool reading, read_ended, closed; /* a read is pending; the worker is done; gRPC is */
    bool greeted;                     /* Hello came, so the engine knows the link */
    bool wants_room, room_posted, last_posted;
    size_t events_open, event_bytes;
    int64_t begun_ms, received_ms;
    struct engine_worker_event room, last, gone; /* there before they are needed */
    struct worker_stream *next, *prev;           /* the server's list */
    bool listed;
};

static struct worker_stream *stream_of(struct worker_link *link)
{
    return CONTAINER(link, struct worker_stream, link);
}

static void break_off(struct worker_stream *stream, const char *why)
{
    pthread_mutex_lock(&stream->lock);
    if (!stream->closed)
        call_cancel(stream->call, GRPC_STATUS_UNAVAILABLE, why);
    pthread_mutex_unlock(&stream->lock);
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool may_read(struct worker_stream *stream)
{
    struct rpc_server *server = stream->call->server;
    return !stream->reading && !stream->read_ended && !stream->closed &&
           stream->events_open < EVENTS_OPEN_MAX && stream->event_bytes < EVENT_BYTES_MAX &&
           atomic_load(&server->request_bytes) < RPC_REQUEST_BYTES_MAX &&
           sender_is_open(&stream->sender) &&
           sender_bytes(&stream->sender) < server->stream_send_bytes_max;
}

/* Under the lock; from whichever thread made it possible, and by time. */
static void read_next(struct worker_stream *stream)
{
    if (!may_read(stream))
        return;
    stream->received_ms = rpc_now_ms(); /* silence counts while we listen */
    stream->reading = call_read(stream->call);
}

/* Under the lock: GONE comes last, and this is what keeps the order. */
static void post(struct worker_stream *stream, struct engine_worker_event *event)
{
    call_ref(stream->call);
    if (engine_post_always(stream->call->server->engine, &event->event))
        return;
    call_unref(stream->call); /* never the last: the caller came with one */
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    sender_end(&stream->sender, &err);
}

/* The worker said its last word and all of it is done. The acks of the last event may still be on
 * their way from the engine, so one more event goes there and back before the stream ends. */
static void end_if_done(struct worker_stream *stream)
{
    if (!stream->read_ended || stream->events_open || stream->last_posted || stream->closed)
        return;
    stream->last_posted = true;
    if (stream->greeted)
        post(stream, &stream->last);
    else
        sender_end(&stream->sender, NULL);
}

static void on_last_done(struct engine_event *base)
{
    struct engine_worker_event *event = CONTAINER(base, struct engine_worker_event, event);
    struct worker_stream *stream = CONTAINER(event, struct worker_stream, last);
    sender_end(&stream->sender, NULL);
    call_unref(stream->call);
}

/* An event at the engine and its bytes; under the lock. */
static void stream_count(struct worker_stream *stream, const struct stream_event *event)
{
    stream->events_open++;
    stream->event_bytes += event->bytes;
    atomic_fetch_add(&stream->call->server->request_bytes, (long long)event->bytes);
}

static void stream_forget(struct worker_stream *stream, const struct stream_event *event)
{
    stream->events_open--;
    stream->event_bytes -= event->bytes;
    atomic_fetch_sub(&stream->call->server->request_bytes, (long long)event->bytes);
}

/* On the engine's thread. */
static void on_event_done(struct engine_event *base)
{
    struct engine_worker_event *worker_event = CONTAINER(base, struct engine_worker_event, event);
    struct stream_event *event = CONTAINER(worker_event, struct stream_event, event);
    struct worker_stream *stream = event->stream;
    struct call *call = stream->call;
    pthread_mutex_lock(&stream->lock);
    stream_forget(stream, event);
    end_if_done(stream);
    read_next(stream);
    pthread_mutex_unlock(&stream->lock);
    arena_done(&event->arena);
    mem_free(event);
    call_unref(call);
}

static int check_order(const struct worker_stream *stream, enum worker_event_kind kind,
                       struct err *err)
{
    if (kind == WORKER_HELLO && stream->greeted)
        return err_field(err, "hello", "hello: came before on this stream");
    if (kind != WORKER_HELLO && !stream->greeted)
        return err_field(err, "hello", "hello: must be the first message");
    return 0;
}

static int read_event(struct worker_stream *stream, struct stream_event *event, struct err *err)
{
    ProtobufCMessage *message = NULL;
    event->bytes = grpc_byte_buffer_length(stream->call->received);
    int rc = call_unpack(stream->call, &saga__v1__worker_message__descriptor, &event->arena,
                         &message, err);
    if (!rc)
        rc = worker_event_read((void *)message, stream->call->server->payload_bytes_max,
                               &event->arena, &event->event, err);
    if (!rc)
        rc = check_order(stream, event->event.kind, err);
    return rc;
}

/* A message has come: an event for the engine, or the end of the stream. */
static void receive(struct worker_stream *stream)
{
    struct err err;
    struct stream_event *event = mem_calloc(1, sizeof *event);
    if (!event) {
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        sender_end(&stream->sender, &err);
        return;
    }
    if (read_event(stream, event, &err)) {
        sender_end(&stream->sender, &err);
        arena_done(&event->arena);
        mem_free(event);
        return;
    }
    event->stream = stream;
    worker_event_init(&event->event, &stream->link, event->event.kind, on_event_done);
    pthread_mutex_lock(&stream->lock);
    bool posts = !stream->closed;
    if (posts) {
        stream->received_ms = rpc_now_ms();
        stream->greeted = true;
        stream_count(stream, event);
        call_ref(stream->call);
        posts = engine_post_always(stream->call->server->engine, &event->event.event);
        if (!posts) {
            stream_forget(stream, event);
            call_unref(stream->call); /* never the last: the read has one */
            (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
            sender_end(&stream->sender, &err);
        }
    }
    pthread_mutex_unlock(&stream->lock);
    if (!posts) {
        arena_done(&event->arena);
        mem_free(event);
    }
}

static void on_read(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, read_tag);
    struct worker_stream *stream = call->stream;
    enum call_read result = call_read_result(call, ok);
    if (result == CALL_READ_MESSAGE)
        receive(stream);
    pthread_mutex_lock(&stream->lock);
    stream->reading = false;
    if (result != CALL_READ_MESSAGE)
        stream->read_ended = true;
    if (result == CALL_READ_END) /* a broken one is closed by gRPC */
        end_if_done(stream);
    read_next(stream);
    pthread_mutex_unlock(&stream->lock);
    call_batch_done(call);
}

/* --- the end ---------------------------------------------------------------------------------- */

/* The engine has forgotten the link. */
static void on_gone_done(struct engine_event *base)
{
    struct engine_worker_event *event = CONTAINER(base, struct engine_worker_event, event);
    call_unref(CONTAINER(event, struct worker_stream, gone)->call);
}

static void unlist(struct worker_stream *stream)
{
    struct rpc_server *server = stream->call->server;
    pthread_mutex_lock(&server->lock);
    if (stream->listed) {
        *(stream->prev ? &stream->prev->next : &server->worker_streams) = stream->next;
        if (stream->next)
            stream->next->prev = stream->prev;
        stream->listed = false;
    }
    pthread_mutex_unlock(&server->lock);
}

static void on_close(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, close_tag);
    struct worker_stream *stream = call->stream;
    (void)ok; /* always true */
    unlist(stream);
    pthread_mutex_lock(&stream->lock);
    stream->closed = true;
    sender_close(&stream->sender);
    if (stream->greeted)
        post(stream, &stream->gone);
    pthread_mutex_unlock(&stream->lock);
    atomic_fetch_sub(&call->server->streams, 1);
    call_release_grpc(call);
    call_batch_done(call);
    call_unref(call);
}

void worker_stream_free(struct worker_stream *stream)
{
    sender_done(&stream->sender);
    pthread_mutex_destroy(&stream->lock);
    mem_free(stream);
}

/* --- what the engine says (its thread) ----------------------------------------------------------
 */

/* What could not be packed must not go missing: the worker connects again and everything is said
 * anew. */
static bool put(struct worker_stream *stream, struct send_list *list)
{
    bool failed = list->failed;
    bool taken = sender_put(&stream->sender, list);
    if (failed)
        break_off(stream, "out of memory");
    return taken;
}

/* Whoever takes what he is sent has room, however much others leave untaken. */
static bool has_room_below(struct worker_stream *stream, size_t limit)
{
    const struct rpc_server *server = stream->call->server;
    size_t bytes = sender_bytes(&stream->sender);
    return bytes == 0 ||
           (bytes < limit && atomic_load(&server->send_bytes) < (long long)server->send_bytes_max);
}

static bool op_has_room(struct worker_link *link)
{
    struct worker_stream *stream = stream_of(link);
    pthread_mutex_lock(&stream->lock);
    bool has_room = has_room_below(stream, stream->call->server->stream_send_bytes_max);
    if (!has_room)
        stream->wants_room = true;
    pthread_mutex_unlock(&stream->lock);
    return has_room;
}

static bool op_tasks(struct worker_link *link, const struct engine_task *tasks, size_t count)
{
    struct worker_stream *stream = stream_of(link);
    pthread_mutex_lock(&stream->lock);
    bool is_open = !stream->closed && !stream->read_ended;
    pthread_mutex_unlock(&stream->lock);
    if (!is_open)
        return false;
    struct send_list list;
    send_list_init(&list);
    worker_tasks_write(&list, tasks, count);
    return put(stream, &list);
}

/* For the rest a stream that has ended is no news: the engine hears of it by GONE. */
static void op_acks(struct worker_link *link, const struct engine_lease_ack *acks, size_t count)
{
    struct send_list list;
    send_list_init(&list);
    worker_acks_write(&list, acks, count);
    (void)put(stream_of(link), &list);
}

static void op_extended(struct worker_link *link, const struct engine_lease_extended *leases,
                        size_t count)
{
    struct send_list list;
    send_list_init(&list);
    worker_extended_write(&list, leases, count);
    (void)put(stream_of(link), &list);
}

static void op_cancel_hint(struct worker_link *link, const struct uuid *uid, int64_t fence)
{
    struct send_list list;
    send_list_init(&list);
    worker_cancel_hint_write(&list, uid, fence);
    (void)put(stream_of(link), &list);
}

static void op_welcome(struct worker_link *link, uint64_t session)
{
    struct worker_stream *stream = stream_of(link);
    struct send_list list;
    send_list_init(&list);
    worker_welcome_write(&list, stream->call->server->node, session, TICK_PROMISED_MS);
    (void)put(stream, &list);
}

static void op_close(struct worker_link *link, const struct err *why)
{
    sender_end(&stream_of(link)->sender, why);
}

static const struct worker_link_ops link_ops = {
    .has_room = op_has_room,
    .tasks = op_tasks,
    .acks = op_acks,
    .extended = op_extended,
    .cancel_hint = op_cancel_hint,
    .welcome = op_welcome,
    .close = op_close,
};

static void on_room_done(struct engine_event *base)
{
    struct engine_worker_event *event = CONTAINER(base, struct engine_worker_event, event);
    struct worker_stream *stream = CONTAINER(event, struct worker_stream, room);
    pthread_mutex_lock(&stream->lock);
    stream->room_posted = false;
    pthread_mutex_unlock(&stream->lock);
    call_unref(stream->call);
}

/* Something has become less, perhaps what this stream waits for. */
static void go_on(struct worker_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->wants_room && !stream->room_posted && !stream->closed &&
        has_room_below(stream, stream->call->server->stream_send_bytes_max / 2)) {
        stream->wants_room = false;
        stream->room_posted = true;
        post(stream, &stream->room);
    }
    read_next(stream);
    pthread_mutex_unlock(&stream->lock);
}

/* A send is complete: the pump's thread. */
static void on_sent(struct sender *sender)
{
    go_on(CONTAINER(sender, struct worker_stream, sender));
}

/* --- beginning, and what goes on by time ------------------------------------------------------ */

void worker_stream_begin(struct call *call)
{
    struct rpc_server *server = call->server;
    struct err err;
    if (!rpc_server_admit(&server->streams, &server->polls, server->streams_max)) {
        (void)err_reason(&err, ERR_LIMIT, "TOO_MANY_WORKERS", "more than %zu streams of workers",
                         server->streams_max);
        err.retryable = true;
        call_fail(call, &err);
        return;
    }
    struct worker_stream *stream = mem_calloc(1, sizeof *stream);
    if (!stream) {
        atomic_fetch_sub(&server->streams, 1);
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        call_fail(call, &err);
        return;
    }
    pthread_mutex_init(&stream->lock, NULL);
    stream->link.ops = &link_ops;
    stream->call = call;
    stream->begun_ms = stream->received_ms = rpc_now_ms();
    worker_event_init(&stream->room, &stream->link, WORKER_ROOM, on_room_done);
    worker_event_init(&stream->last, &stream->link, WORKER_ROOM, on_last_done);
    worker_event_init(&stream->gone, &stream->link, WORKER_GONE, on_gone_done);
    sender_init(&stream->sender, call, on_sent);
    call->stream = stream;
    call->read_tag.fn = on_read;
    call->close_tag.fn = on_close;
    pthread_mutex_lock(&server->lock);
    stream->next = server->worker_streams;
    if (stream->next)
        stream->next->prev = stream;
    server->worker_streams = stream;
    stream->listed = true;
    pthread_mutex_unlock(&server->lock);
    pthread_mutex_lock(&stream->lock);
    read_next(stream);
    pthread_mutex_unlock(&stream->lock);
}

static void check_one(struct worker_stream *stream, int64_t now_ms)
{
    int64_t idle_ms, busy_ms;
    go_on(stream); /* what all streams hold together may have become less */
    sender_times(&stream->sender, now_ms, &idle_ms, &busy_ms);
    pthread_mutex_lock(&stream->lock);
    bool greeted = stream->greeted;
    int64_t silent_ms = stream->reading ? now_ms - stream->received_ms : 0;
    pthread_mutex_unlock(&stream->lock);
    if (silent_ms > SILENCE_MS_MAX) {
        break_off(stream, "nothing was received from this worker for too long");
    } else if (busy_ms > SEND_MS_MAX) {
        break_off(stream, "this worker has received nothing for too long");
    } else if (!greeted && now_ms - stream->begun_ms > HELLO_MS_MAX) {
        struct err err;
        (void)err_field(&err, "hello", "hello: did not come in time");
        sender_end(&stream->sender, &err);
    } else if (greeted && idle_ms > TICK_AFTER_MS) {
        struct send_list list;
        send_list_init(&list);
        worker_tick_write(&list);
        (void)sender_put(&stream->sender, &list); /* if not, the next tick comes */
    }
}

void worker_streams_tick(struct rpc_server *server, int64_t now_ms)
{
    pthread_mutex_lock(&server->lock);
    for (struct worker_stream *stream = server->worker_streams; stream; stream = stream->next)
        check_one(stream, now_ms);
    pthread_mutex_unlock(&server->lock);
}

void worker_streams_drain(struct rpc_server *server, int64_t grace_ms)
{
    pthread_mutex_lock(&server->lock);
    for (struct worker_stream *stream = server->worker_streams; stream; stream = stream->next) {
        struct send_list list;
        send_list_init(&list);
        worker_drain_write(&list, grace_ms);
        (void)sender_put(&stream->sender, &list); /* if not, the stream ends anyway */
    }
    pthread_mutex_unlock(&server->lock);
}
