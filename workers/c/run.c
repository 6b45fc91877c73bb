/* The worker as a whole: options, threads, signals. One I/O thread for each address owns its
 * stream; N threads run handlers; the thread that called saga_worker_run waits for the wish to
 * drain. What they share is the pool, under its lock. */
#include "sagaworker.h"

#include "base/log.h"
#include "base/utf8.h"
#include "session.h"
#include "transport.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    DEFAULT_THREADS = 4,
    DEFAULT_DRAIN_MS = 30000,
    DRAIN_MS_MAX = 24 * 3600 * 1000,
    IO_WAIT_MS = 250, /* at most so long in one wait: bounds how late the receive time can be */
    PAUSE_MS = 1000,  /* an I/O thread that was away for longer stood still */
    CLOSE_LINGER_MS = 1000,
};

struct stream { /* to one address */
    struct session session;
    struct saga_worker *worker;
    char *address; /* owned */
    pthread_t thread;
    struct transport *transport;       /* while run runs */
    bool sending;                      /* I/O thread's own: a message is under way */
    int64_t looked_ms;                 /* its own: when it last looked */
    int64_t paused_ms, doubt_until_ms; /* its own: it stood still since paused_ms, and what comes
                                        * until then may be from that time */
};

struct saga_worker {
    struct pool pool;
    struct stream *streams; /* owned */
    size_t stream_count;
    int threads;
    int message_bytes_max;
    int64_t (*mono_ms)(void *ctx);
    void *mono_ctx;
    bool handle_signals;
    int drain_fd; /* eventfd: readable once a drain was asked for; never read */

    bool stopping;       /* pool.lock: all threads but the caller's end */
    pthread_cond_t work; /* a task is queued, or stopping */
    pthread_cond_t io;   /* something for an I/O thread that has no stream, or stopping */
};

_Static_assert(offsetof(struct saga_worker, pool) == 0, "a pool is its worker: saga_task_end");

static int fail(struct saga_error *error, const struct err *err)
{
    *error = (struct saga_error){ .message = "" };
    (void)snprintf(error->message, sizeof error->message, "%s", err->msg); /* cut is fine */
    return -1;
}

static int check_options(const struct saga_worker_options *options, struct err *err)
{
    size_t count = 0;
    while (options->addresses && options->addresses[count])
        if (options->addresses[count++][0] == '\0' || count > SAGA_ADDRESSES_MAX)
            return err_set(err, ERR_INVALID, "1 to %d addresses, none of them empty",
                           SAGA_ADDRESSES_MAX);
    if (count == 0)
        return err_set(err, ERR_INVALID, "no address to connect to");
    size_t size = options->worker_id ? strlen(options->worker_id) : 0;
    if (size == 0 || size > SAGA_HANDLER_NAME_MAX || !utf8_is_text(options->worker_id, size))
        return err_set(err, ERR_INVALID, "worker_id is 1 to %d bytes of text",
                       SAGA_HANDLER_NAME_MAX);
    if (options->threads < 0 || options->threads > SAGA_THREADS_MAX)
        return err_set(err, ERR_INVALID, "threads are 1 to %d, not %d", SAGA_THREADS_MAX,
                       options->threads);
    if (options->drain_ms < 0 || options->drain_ms > DRAIN_MS_MAX)
        return err_set(err, ERR_INVALID, "drain_ms is 0 to %d", DRAIN_MS_MAX);
    if (options->output_bytes_max < 0 || options->output_bytes_max > SAGA_OUTPUT_HARD_MAX)
        return err_set(err, ERR_INVALID, "output_bytes_max is 0 to %d, not %d",
                       SAGA_OUTPUT_HARD_MAX, options->output_bytes_max);
    if (options->message_bytes_max < 0 || options->message_bytes_max > SAGA_MESSAGE_HARD_MAX)
        return err_set(err, ERR_INVALID, "message_bytes_max is 0 to %d, not %d",
                       SAGA_MESSAGE_HARD_MAX, options->message_bytes_max);
    return 0;
}

static int add_streams(struct saga_worker *worker, const char *const *addresses, struct err *err)
{
    size_t count = 0;
    while (addresses[count])
        count++;
    worker->streams = mem_calloc(count, sizeof *worker->streams);
    if (!worker->streams)
        return err_set(err, ERR_NOMEM, "addresses");
    for (size_t i = 0; i < count; i++) {
        struct stream *stream = &worker->streams[i];
        stream->worker = worker;
        session_init(&stream->session, &worker->pool);
        worker->stream_count++;
        stream->address = mem_strdup(addresses[i]);
        if (!stream->address)
            return err_set(err, ERR_NOMEM, "addresses");
    }
    return 0;
}

static int64_t given_mono_ms(void *ctx)
{
    const struct saga_worker *worker = ctx;
    return worker->mono_ms(worker->mono_ctx);
}

static void take_options(struct saga_worker *worker, const struct saga_worker_options *options)
{
    worker->threads = options->threads ? options->threads : DEFAULT_THREADS;
    worker->handle_signals = options->handle_signals;
    worker->message_bytes_max =
        options->message_bytes_max ? options->message_bytes_max : SAGA_MESSAGE_MAX;
    if (options->output_bytes_max)
        worker->pool.output_bytes_max = (size_t)options->output_bytes_max;
    worker->mono_ms = options->mono_ms;
    worker->mono_ctx = options->mono_ctx;
    if (options->mono_ms)
        worker->pool.clock = (struct clock){ .wall_ms = clock_system.wall_ms,
                                             .mono_ms = given_mono_ms,
                                             .ctx = worker };
}

int saga_worker_new(const struct saga_worker_options *options, struct saga_worker **ret_worker,
                    struct saga_error *error)
{
    struct err err;
    if (check_options(options, &err) != 0)
        return fail(error, &err);
    struct saga_worker *worker = mem_calloc(1, sizeof *worker);
    struct rng seed;
    rng_seed_os(&seed);
    if (!worker) {
        (void)err_set(&err, ERR_NOMEM, "worker");
        return fail(error, &err);
    }
    if (pool_init(&worker->pool, options->worker_id,
                  options->drain_ms ? options->drain_ms : DEFAULT_DRAIN_MS, &clock_system,
                  rng_next(&seed), &err) != 0) {
        mem_free(worker);
        return fail(error, &err);
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->work, NULL);
    pthread_cond_init(&worker->io, &monotonic);
    pthread_condattr_destroy(&monotonic);
    take_options(worker, options);
    worker->drain_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool ok = worker->drain_fd >= 0;
    if (!ok)
        (void)err_set(&err, ERR_INTERNAL, "eventfd: %s", strerror(errno));
    else
        ok = add_streams(worker, options->addresses, &err) == 0;
    if (!ok) {
        (void)saga_worker_free(worker); /* always NULL */
        return fail(error, &err);
    }
    *ret_worker = worker;
    return 0;
}

struct saga_worker *saga_worker_free(struct saga_worker *worker)
{
    if (!worker)
        return NULL;
    for (size_t i = 0; i < worker->stream_count; i++) {
        session_done(&worker->streams[i].session);
        mem_free(worker->streams[i].address);
    }
    mem_free(worker->streams);
    pool_done(&worker->pool);
    if (worker->drain_fd >= 0)
        (void)close(worker->drain_fd); /* nothing was buffered in it */
    pthread_cond_destroy(&worker->work);
    pthread_cond_destroy(&worker->io);
    mem_free(worker);
    return NULL;
}

int saga_worker_handle(struct saga_worker *worker, const char *name, int max_in_flight,
                       saga_handler *handler, void *ctx, struct saga_error *error)
{
    struct err err;
    pthread_mutex_lock(&worker->pool.lock);
    int rc = pool_handle(&worker->pool, name, max_in_flight, handler, ctx, &err);
    pthread_mutex_unlock(&worker->pool.lock);
    return rc == 0 ? 0 : fail(error, &err);
}

void saga_worker_drain(struct saga_worker *worker)
{
    uint64_t one = 1;
    int saved = errno;
    ssize_t written = write(worker->drain_fd, &one, sizeof one);
    (void)written; /* it fails only when the counter is full: then it is readable already */
    errno = saved;
}

void saga_worker_stats(struct saga_worker *worker, struct saga_worker_stats *ret_stats)
{
    pthread_mutex_lock(&worker->pool.lock);
    *ret_stats = worker->pool.stats;
    pthread_mutex_unlock(&worker->pool.lock);
}

static int64_t now_ms(const struct saga_worker *worker)
{
    return clock_mono_ms(&worker->pool.clock);
}

/* Unlocks, and wakes the I/O threads that got something to say meanwhile. */
static void unlock(struct saga_worker *worker)
{
    bool offline = false;
    for (size_t i = 0; i < worker->stream_count; i++) {
        struct stream *stream = &worker->streams[i];
        if (!stream->session.nudged)
            continue;
        stream->session.nudged = false;
        transport_wake(stream->transport);
        offline = offline || stream->session.phase == SESSION_OFFLINE;
    }
    if (offline)
        pthread_cond_broadcast(&worker->io);
    pthread_mutex_unlock(&worker->pool.lock);
}

/* The same by a stream's own thread, which is awake. */
static void unlock_io(struct stream *stream)
{
    stream->session.nudged = false;
    unlock(stream->worker);
}

/* Handler threads. */

struct handler_thread {
    struct saga_worker *worker;
    pthread_t thread;
    int number;
};

static void *run_handlers(void *ctx)
{
    struct handler_thread *self = ctx;
    struct saga_worker *worker = self->worker;
    struct pool *pool = &worker->pool;
    pthread_mutex_lock(&pool->lock);
    while (!worker->stopping) {
        struct saga_task *task = pool_take(pool, now_ms(worker));
        if (!task) {
            pthread_cond_wait(&worker->work, &pool->lock);
            continue;
        }
        task->thread = self->number;
        const struct pool_handler *handler = task->handler;
        unlock(worker);
        handler->run(task, handler->ctx);
        pthread_mutex_lock(&pool->lock);
        if (task->kept && !task->ended)
            task->returned = true; /* saga_task_end finishes it */
        else
            pool_finish(pool, task, now_ms(worker));
        unlock(worker);
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

void saga_task_end(struct saga_task *task)
{
    pthread_mutex_t *lock = task->lock;
    pthread_mutex_lock(lock);
    struct pool *pool = task->session->pool;
    struct saga_worker *worker = (struct saga_worker *)pool; /* its first member */
    task->ended = true;
    if (task->returned)
        pool_finish(pool, task, now_ms(worker));
    pthread_cond_broadcast(&worker->work); /* a task of the same handler may wait */
    unlock(worker);
}

/* The I/O threads. */

/* Until then, or somebody has something for us. In short pieces: the clock may be one that jumps.
 */
static void wait_offline(struct saga_worker *worker, int64_t until_ms)
{
    int64_t left_ms = until_ms - now_ms(worker);
    if (left_ms > IO_WAIT_MS)
        left_ms = IO_WAIT_MS;
    until_ms = clock_mono_ms(&clock_system) + (left_ms > 0 ? left_ms : 0);
    struct timespec until = { .tv_sec = (time_t)(until_ms / 1000),
                              .tv_nsec = (long)(until_ms % 1000) * 1000000 };
    (void)pthread_cond_timedwait(&worker->io, &worker->pool.lock, &until); /* or woken: look */
}

static void end_stream(struct stream *stream, int64_t linger_ms, const char *why)
{
    struct saga_worker *worker = stream->worker;
    struct session *session = &stream->session;
    transport_close(stream->transport, linger_ms);
    stream->sending = false;
    pthread_mutex_lock(&worker->pool.lock);
    bool was_online = session->phase == SESSION_ONLINE;
    session_lost(session, now_ms(worker));
    int64_t wait_ms = session->reconnect_ms - now_ms(worker);
    bool draining = worker->pool.draining;
    unlock_io(stream);
    if (why)
        log_line(was_online && !draining ? LOG_WARN : LOG_INFO, "stream to the orchestrator ended",
                 "address", stream->address, "err", why, "retry_ms",
                 log_fmt("%lld", (long long)wait_ms), NULL);
}

static void open_stream(struct stream *stream)
{
    struct saga_worker *worker = stream->worker;
    struct err err;
    int rc = transport_open(stream->transport, stream->address, worker->message_bytes_max, &err);
    pthread_mutex_lock(&worker->pool.lock);
    session_opened(&stream->session, now_ms(worker));
    stream->looked_ms = now_ms(worker);
    stream->doubt_until_ms = stream->looked_ms; /* it knows nothing of what was before */
    unlock_io(stream);
    if (rc != 0)
        end_stream(stream, 0, err.msg);
}

static int take_in(struct stream *stream, const struct bytes *received, int64_t since_ms,
                   struct err *err)
{
    struct saga_worker *worker = stream->worker;
    struct session *session = &stream->session;
    pthread_mutex_lock(&worker->pool.lock);
    int rc =
        session_receive(session, received->data, received->size, since_ms, now_ms(worker), err);
    if (session->counts[TASK_QUEUED] == 1)
        pthread_cond_signal(&worker->work);
    else if (session->counts[TASK_QUEUED] > 1)
        pthread_cond_broadcast(&worker->work);
    unlock_io(stream);
    return rc;
}

/* What is received from now on came after this time. A process that was stopped may well find that
 * its wait is over before it finds what came meanwhile, hence the doubt for a while. */
static int64_t came_since_ms(struct stream *stream, int64_t now)
{
    if (now - stream->looked_ms > PAUSE_MS) {
        stream->paused_ms = stream->looked_ms;
        stream->doubt_until_ms = now + PAUSE_MS;
    }
    stream->looked_ms = now;
    return now < stream->doubt_until_ms ? stream->paused_ms : now;
}

/* Sends what is due, waits for one event and takes it in. */
static void pump(struct stream *stream)
{
    struct saga_worker *worker = stream->worker;
    struct session *session = &stream->session;
    struct err err;
    struct bytes message = { .data = NULL, .size = 0 };
    int rc = 0;
    int64_t now = now_ms(worker), since_ms = came_since_ms(stream, now);
    pthread_mutex_lock(&worker->pool.lock);
    if (!stream->sending)
        rc = session_next(session, now, &message, &err);
    bool over = session_is_over(session, now);
    int64_t wait_ms = session_wake_ms(session) - now;
    unlock_io(stream);
    if (rc == 0 && message.size > 0) {
        rc = transport_send(stream->transport, &message, &err);
        stream->sending = rc == 0;
        mem_free(message.data);
    }
    if (rc != 0 || over) {
        end_stream(stream, over ? CLOSE_LINGER_MS : 0,
                   rc != 0 ? err.msg : "silent for too long, or it goes away");
        return;
    }
    /* The wait is short, so that a process that was stopped does not take the moment at which it
     * goes on for the moment at which a task arrived. */
    if (wait_ms > IO_WAIT_MS || stream->sending) /* the end of a send wakes us */
        wait_ms = IO_WAIT_MS;
    struct bytes received = { .data = NULL, .size = 0 };
    switch (transport_wait(stream->transport, wait_ms > 0 ? wait_ms : 0, &received, &err)) {
    case TRANSPORT_MESSAGE:
        rc = take_in(stream, &received, since_ms, &err);
        mem_free(received.data);
        if (rc != 0)
            end_stream(stream, 0, err.msg);
        break;
    case TRANSPORT_SENT:
        stream->sending = false;
        break;
    case TRANSPORT_ENDED:
        end_stream(stream, 0, err.msg);
        break;
    case TRANSPORT_NOTHING:
        break;
    }
}

/* Everybody goes home. */
static void stop(struct saga_worker *worker)
{
    worker->stopping = true;
    pthread_cond_broadcast(&worker->work);
    pthread_cond_broadcast(&worker->io);
    for (size_t i = 0; i < worker->stream_count; i++)
        worker->streams[i].session.nudged = true;
}

static void *run_io(void *ctx)
{
    struct stream *stream = ctx;
    struct saga_worker *worker = stream->worker;
    struct pool *pool = &worker->pool;
    struct session *session = &stream->session;
    pthread_mutex_lock(&pool->lock);
    while (!worker->stopping) {
        int64_t now = now_ms(worker);
        bool offline = session->phase == SESSION_OFFLINE;
        if (pool_is_drained(pool, now)) {
            stop(worker);
        } else if (offline && (now < session->reconnect_ms || !session_is_wanted(session))) {
            int64_t until_ms =
                now < session->reconnect_ms ? session->reconnect_ms : now + IO_WAIT_MS;
            if (pool->draining && pool->drain_until_ms < until_ms)
                until_ms = pool->drain_until_ms;
            wait_offline(worker, until_ms);
            continue;
        }
        unlock_io(stream);
        if (offline)
            open_stream(stream);
        else
            pump(stream);
        pthread_mutex_lock(&pool->lock);
    }
    bool online = session->phase != SESSION_OFFLINE;
    pthread_mutex_unlock(&pool->lock);
    if (online)
        end_stream(stream, CLOSE_LINGER_MS, NULL);
    return NULL;
}

/* Signals: the handler may only touch what is safe there, hence a descriptor. */

static volatile sig_atomic_t signal_fd = -1;

static void on_signal(int number)
{
    (void)number;
    uint64_t one = 1;
    int saved = errno;
    ssize_t written = write(signal_fd, &one, sizeof one);
    (void)written; /* as in saga_worker_drain */
    errno = saved;
}

static void signals_install(struct saga_worker *worker, struct sigaction saved[2])
{
    struct sigaction action = { .sa_handler = on_signal };
    action.sa_flags = SA_RESTART | (int)SA_RESETHAND; /* the second one ends the process */
    sigemptyset(&action.sa_mask);
    signal_fd = worker->drain_fd;
    (void)sigaction(SIGTERM, &action, &saved[0]); /* cannot fail for these signals */
    (void)sigaction(SIGINT, &action, &saved[1]);
}

static void signals_restore(const struct sigaction saved[2])
{
    (void)sigaction(SIGTERM, &saved[0], NULL); /* cannot fail for these signals */
    (void)sigaction(SIGINT, &saved[1], NULL);
    signal_fd = -1;
}

static void wait_for_drain(struct saga_worker *worker)
{
    struct pollfd poll_fd = { .fd = worker->drain_fd, .events = POLLIN };
    while (poll(&poll_fd, 1, -1) < 0 && errno == EINTR) {
    }
    pthread_mutex_lock(&worker->pool.lock);
    pool_drain(&worker->pool, now_ms(worker));
    unlock(worker);
}

/* Threads: first the streams', then the handlers'. */
struct threads {
    struct handler_thread *handlers; /* owned */
    size_t count, started;
};

static pthread_t *thread_at(struct saga_worker *worker, struct threads *threads, size_t index)
{
    if (index < worker->stream_count)
        return &worker->streams[index].thread;
    return &threads->handlers[index - worker->stream_count].thread;
}

/* Starts as many as it can. */
static void start_threads(struct saga_worker *worker, struct threads *threads)
{
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved); /* signals belong to the caller's threads */
    for (size_t i = 0; i < threads->count; i++) {
        bool io = i < worker->stream_count;
        struct handler_thread *handler = io ? NULL : &threads->handlers[i - worker->stream_count];
        if (handler)
            *handler = (struct handler_thread){ .worker = worker,
                                                .number = (int)(i - worker->stream_count) };
        if (pthread_create(thread_at(worker, threads, i), NULL, io ? run_io : run_handlers,
                           io ? (void *)&worker->streams[i] : (void *)handler) != 0)
            break;
        threads->started++;
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
}

static void transports_free(struct saga_worker *worker)
{
    for (size_t i = 0; i < worker->stream_count; i++)
        worker->streams[i].transport = transport_free(worker->streams[i].transport);
}

static int transports_new(struct saga_worker *worker, struct err *err)
{
    for (size_t i = 0; i < worker->stream_count; i++) {
        if (transport_new(&worker->streams[i].transport, err) != 0) {
            transports_free(worker);
            return (int)err->code;
        }
    }
    return 0;
}

int saga_worker_run(struct saga_worker *worker, struct saga_error *error)
{
    struct err err;
    struct threads threads = { .count = worker->stream_count + (size_t)worker->threads };
    if (worker->pool.handler_count == 0) {
        (void)err_set(&err, ERR_PRECONDITION, "no handler was given");
        return fail(error, &err);
    }
    CLEANUP(mem_free_p)
    struct handler_thread *handlers = mem_calloc((size_t)worker->threads, sizeof *handlers);
    if (!handlers) {
        (void)err_set(&err, ERR_NOMEM, "threads");
        return fail(error, &err);
    }
    threads.handlers = handlers;
    if (transports_new(worker, &err) != 0)
        return fail(error, &err);
    struct sigaction saved[2];
    if (worker->handle_signals)
        signals_install(worker, saved);
    start_threads(worker, &threads);
    if (threads.started < threads.count)
        saga_worker_drain(worker);
    if (threads.started > 0)
        wait_for_drain(worker);
    for (size_t i = 0; i < threads.started; i++)
        pthread_join(*thread_at(worker, &threads, i), NULL);
    if (worker->handle_signals)
        signals_restore(saved);
    transports_free(worker);
    if (threads.started < threads.count) {
        (void)err_set(&err, ERR_LIMIT, "thread %zu of %zu could not be started", threads.started,
                      threads.count);
        return fail(error, &err);
    }
    return 0;
}
