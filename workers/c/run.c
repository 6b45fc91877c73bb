/* The worker as a whole: options, threads, signals. One I/O thread owns the stream; N threads run
 * handlers; the thread that called saga_worker_run waits for the wish to drain. What they share is
 * the session, under its lock. */
#include "sagaworker.h"

#include "base/log.h"
#include "base/utf8.h"
#include "session.h"
#include "transport.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    DEFAULT_THREADS = 4,
    DEFAULT_DRAIN_MS = 30000,
    DRAIN_MS_MAX = 24 * 3600 * 1000,
    IO_WAIT_MS = 250, /* at most so long in one wait: bounds how late the receive time can be */
    CLOSE_LINGER_MS = 1000,
};

struct saga_worker {
    struct session session;
    char *addresses[SAGA_ADDRESSES_MAX]; /* owned */
    size_t address_count, address_next;
    int threads;
    bool handle_signals;
    int drain_fd; /* eventfd: readable once a drain was asked for; never read */

    struct transport *transport; /* while run runs */
    bool sending;                /* I/O thread's own: a message is under way */
    bool stopping;               /* session.lock: handler threads end */
    pthread_cond_t work;         /* a task is queued, or stopping */
    pthread_cond_t io;           /* something for the I/O thread while it has no stream */
};

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
    return 0;
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
    if (session_init(&worker->session, options->worker_id,
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
    worker->threads = options->threads ? options->threads : DEFAULT_THREADS;
    worker->handle_signals = options->handle_signals;
    worker->drain_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool ok = worker->drain_fd >= 0;
    if (!ok)
        (void)err_set(&err, ERR_INTERNAL, "eventfd: %s", strerror(errno));
    for (size_t i = 0; ok && options->addresses[i]; i++) {
        worker->addresses[i] = mem_strdup(options->addresses[i]);
        worker->address_count++;
        ok = worker->addresses[i] != NULL;
        if (!ok)
            (void)err_set(&err, ERR_NOMEM, "addresses");
    }
    worker->session.address_count = (unsigned)worker->address_count;
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
    session_done(&worker->session);
    for (size_t i = 0; i < worker->address_count; i++)
        mem_free(worker->addresses[i]);
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
    pthread_mutex_lock(&worker->session.lock);
    int rc = session_handle(&worker->session, name, max_in_flight, handler, ctx, &err);
    pthread_mutex_unlock(&worker->session.lock);
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
    pthread_mutex_lock(&worker->session.lock);
    *ret_stats = worker->session.stats;
    pthread_mutex_unlock(&worker->session.lock);
}

static int64_t now_ms(const struct saga_worker *worker)
{
    return clock_mono_ms(&worker->session.clock);
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
    struct session *session = &worker->session;
    pthread_mutex_lock(&session->lock);
    while (!worker->stopping) {
        struct saga_task *task = session_take(session, now_ms(worker));
        if (!task) {
            pthread_cond_wait(&worker->work, &session->lock);
            continue;
        }
        task->thread = self->number;
        const struct session_handler *handler = task->handler;
        pthread_mutex_unlock(&session->lock);
        handler->run(task, handler->ctx);
        pthread_mutex_lock(&session->lock);
        session_finish(session, task, now_ms(worker));
        pthread_cond_signal(&worker->io);
        transport_wake(worker->transport);
    }
    pthread_mutex_unlock(&session->lock);
    return NULL;
}

/* The I/O thread. */

static void wait_offline(struct saga_worker *worker, int64_t until_ms)
{
    struct timespec until = { .tv_sec = (time_t)(until_ms / 1000),
                              .tv_nsec = (long)(until_ms % 1000) * 1000000 };
    (void)pthread_cond_timedwait(&worker->io, &worker->session.lock, &until); /* or woken: look */
}

static void end_stream(struct saga_worker *worker, int64_t linger_ms, const char *why)
{
    struct session *session = &worker->session;
    transport_close(worker->transport, linger_ms);
    worker->sending = false;
    pthread_mutex_lock(&session->lock);
    bool was_online = session->phase == SESSION_ONLINE;
    session_lost(session, now_ms(worker));
    int64_t wait_ms = session->reconnect_ms - now_ms(worker);
    bool draining = session->draining;
    pthread_mutex_unlock(&session->lock);
    if (why)
        log_line(was_online && !draining ? LOG_WARN : LOG_INFO, "stream to the orchestrator ended",
                 "err", why, "retry_ms", log_fmt("%lld", (long long)wait_ms), NULL);
}

static void open_stream(struct saga_worker *worker)
{
    struct err err;
    const char *address = worker->addresses[worker->address_next];
    worker->address_next = (worker->address_next + 1) % worker->address_count;
    int rc = transport_open(worker->transport, address, &err);
    pthread_mutex_lock(&worker->session.lock);
    session_opened(&worker->session, now_ms(worker));
    pthread_mutex_unlock(&worker->session.lock);
    if (rc != 0)
        end_stream(worker, 0, err.msg);
}

/* Sends what is due, waits for one event and takes it in. */
static void pump(struct saga_worker *worker)
{
    struct session *session = &worker->session;
    struct err err;
    struct bytes message = { .data = NULL, .size = 0 };
    int rc = 0;
    int64_t since_ms = now_ms(worker);
    pthread_mutex_lock(&session->lock);
    if (!worker->sending)
        rc = session_next(session, since_ms, &message, &err);
    bool over = session_is_over(session, since_ms);
    int64_t wait_ms = session_wake_ms(session) - since_ms;
    pthread_mutex_unlock(&session->lock);
    if (rc == 0 && message.size > 0) {
        rc = transport_send(worker->transport, &message, &err);
        worker->sending = rc == 0;
        mem_free(message.data);
    }
    if (rc != 0 || over) {
        end_stream(worker, over ? CLOSE_LINGER_MS : 0,
                   rc != 0 ? err.msg : "silent for too long, or it goes away");
        return;
    }
    /* The wait is short, so that a process that was stopped does not take the moment at which it
     * goes on for the moment at which a task arrived. */
    if (wait_ms > IO_WAIT_MS || worker->sending) /* the end of a send wakes us */
        wait_ms = IO_WAIT_MS;
    struct bytes received = { .data = NULL, .size = 0 };
    switch (transport_wait(worker->transport, wait_ms > 0 ? wait_ms : 0, &received, &err)) {
    case TRANSPORT_MESSAGE:
        pthread_mutex_lock(&session->lock);
        rc = session_receive(session, received.data, received.size, since_ms, now_ms(worker), &err);
        if (session->counts[TASK_QUEUED] == 1)
            pthread_cond_signal(&worker->work);
        else if (session->counts[TASK_QUEUED] > 1)
            pthread_cond_broadcast(&worker->work);
        pthread_mutex_unlock(&session->lock);
        mem_free(received.data);
        if (rc != 0)
            end_stream(worker, 0, err.msg);
        break;
    case TRANSPORT_SENT:
        worker->sending = false;
        break;
    case TRANSPORT_ENDED:
        end_stream(worker, 0, err.msg);
        break;
    case TRANSPORT_NOTHING:
        break;
    }
}

static void *run_io(void *ctx)
{
    struct saga_worker *worker = ctx;
    struct session *session = &worker->session;
    pthread_mutex_lock(&session->lock);
    while (!session_is_drained(session, now_ms(worker))) {
        if (session->phase == SESSION_OFFLINE && now_ms(worker) < session->reconnect_ms) {
            int64_t until_ms = session->reconnect_ms;
            if (session->draining && session->drain_until_ms < until_ms)
                until_ms = session->drain_until_ms;
            wait_offline(worker, until_ms);
            continue;
        }
        bool offline = session->phase == SESSION_OFFLINE;
        pthread_mutex_unlock(&session->lock);
        if (offline)
            open_stream(worker);
        else
            pump(worker);
        pthread_mutex_lock(&session->lock);
    }
    bool online = session->phase != SESSION_OFFLINE;
    worker->stopping = true;
    pthread_cond_broadcast(&worker->work);
    pthread_mutex_unlock(&session->lock);
    if (online)
        end_stream(worker, CLOSE_LINGER_MS, NULL);
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
    pthread_mutex_lock(&worker->session.lock);
    session_drain(&worker->session, now_ms(worker));
    pthread_cond_signal(&worker->io);
    transport_wake(worker->transport);
    pthread_mutex_unlock(&worker->session.lock);
}

/* Starts as many as it can; the first one is the I/O thread. */
static int start_threads(struct saga_worker *worker, struct handler_thread *threads, int count)
{
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved); /* signals belong to the caller's threads */
    int started = 0;
    for (; started < count; started++) {
        struct handler_thread *thread = &threads[started];
        thread->worker = worker;
        thread->number = started - 1;
        if (pthread_create(&thread->thread, NULL, started == 0 ? run_io : run_handlers,
                           started == 0 ? (void *)worker : (void *)thread) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    return started;
}

int saga_worker_run(struct saga_worker *worker, struct saga_error *error)
{
    struct err err;
    int count = worker->threads + 1;
    CLEANUP(mem_free_p)
    struct handler_thread *threads = mem_calloc((size_t)count, sizeof *threads);
    if (worker->session.handler_count == 0) {
        (void)err_set(&err, ERR_PRECONDITION, "no handler was given");
        return fail(error, &err);
    }
    if (!threads) {
        (void)err_set(&err, ERR_NOMEM, "threads");
        return fail(error, &err);
    }
    if (transport_new(&worker->transport, &err) != 0)
        return fail(error, &err);
    struct sigaction saved[2];
    if (worker->handle_signals)
        signals_install(worker, saved);
    int started = start_threads(worker, threads, count);
    if (started < count)
        saga_worker_drain(worker);
    if (started > 0)
        wait_for_drain(worker);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i].thread, NULL);
    if (worker->handle_signals)
        signals_restore(saved);
    worker->transport = transport_free(worker->transport);
    if (started < count) {
        (void)err_set(&err, ERR_LIMIT, "thread %d of %d could not be started", started, count);
        return fail(error, &err);
    }
    return 0;
}
