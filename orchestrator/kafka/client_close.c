#include "kafka/client_close.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct closing {
    rd_kafka_t *handle;
    bool closes; /* the group is to be told */
    void (*ended)(void *owner);
    void *owner;
    int done_fd;
    atomic_bool settled; /* it has ended, or is left behind: who comes second cleans up */
};

static void closing_free(struct closing *closing)
{
    closing->ended(closing->owner);
    (void)close(closing->done_fd); /* nothing was written but the one word */
    mem_free(closing);
}

static void *closing_main(void *ctx)
{
    struct closing *closing = ctx;
    if (closing->closes)
        (void)rd_kafka_consumer_close(closing->handle); /* whatever it says, it is destroyed now */
    rd_kafka_destroy_flags(closing->handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    (void)eventfd_write(closing->done_fd, 1); /* one write to an eventfd of ours */
    if (atomic_exchange(&closing->settled, true))
        closing_free(closing);
    return NULL;
}

/* False: not within this time. */
static bool ends_within(const struct closing *closing, int64_t timeout_ms)
{
    struct pollfd wait = { .fd = closing->done_fd, .events = POLLIN };
    int64_t until = clock_mono_ms(&clock_system) + timeout_ms, left = timeout_ms;
    int ready;
    while ((ready = poll(&wait, 1, (int)left)) < 0 && errno == EINTR &&
           (left = until - clock_mono_ms(&clock_system)) > 0)
        continue;
    return ready > 0;
}

void client_close(rd_kafka_t *handle, bool closes, int64_t timeout_ms, void (*ended)(void *owner),
                  void *owner)
{
    struct closing *closing = mem_calloc(1, sizeof *closing);
    pthread_t thread;
    int fd = eventfd(0, EFD_CLOEXEC);
    if (closing) {
        *closing = (struct closing){ handle, closes, ended, owner, .done_fd = fd };
        atomic_init(&closing->settled, false);
    }
    if (!closing || fd < 0 || pthread_create(&thread, NULL, closing_main, closing) != 0) {
        log_line(LOG_WARN, "no thread in which to close a Kafka client: it is left open", NULL);
        if (fd >= 0)
            (void)close(fd); /* nothing was written */
        mem_free(closing);
        return;
    }
    if (ends_within(closing, timeout_ms)) {
        (void)pthread_join(thread, NULL); /* ours, joined once */
        closing_free(closing);
        return;
    }
    (void)pthread_detach(thread);
    log_line(LOG_WARN, "a Kafka client does not end in time; it is left behind", "waited_ms",
             log_fmt("%lld", (long long)timeout_ms), NULL);
    if (atomic_exchange(&closing->settled, true))
        closing_free(closing); /* just now */
}
