#include "rpc/probe.h"

#include "base/log.h"
#include "base/mem.h"
#include "rpc/grpc_log.h"
#include "rpc/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    SOCKETS_MAX = 32,
    DESCRIPTORS_LOOKED_AT = 65536,
    ANSWER_MS_MIN = 500,
    DEAF_MAX = 3,      /* in a row */
    FAILURES_MAX = 12, /* in a row, of whatever cause */
    NAME_SIZE = 128,
    WHY_SIZE = 200,
};

struct address {
    struct sockaddr_storage socket;
    socklen_t size;
};

struct probe {
    struct probe_options options;
    struct address addresses[SOCKETS_MAX];
    size_t address_count;
    pthread_t thread;
    int stop_fd; /* eventfd */
};

/* How a client of HTTP/2 begins: the preface and empty SETTINGS. */
static const char greeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                               "\0\0\0\4\0\0\0\0\0";

/* --- our sockets ------------------------------------------------------------------------------ */

static int port_of(const struct address *address)
{
    union {
        const struct sockaddr_storage *any;
        const struct sockaddr_in *in;
        const struct sockaddr_in6 *in6;
    } cast = { .any = &address->socket };
    if (address->socket.ss_family == AF_INET)
        return ntohs(cast.in->sin_port);
    return address->socket.ss_family == AF_INET6 ? ntohs(cast.in6->sin6_port) : 0;
}

/* A unix socket has port 0, as its listener says. */
static bool is_of_server(const struct rpc_server *server, const struct address *address)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        if (server->listeners[i].port == port_of(address))
            return true;
    }
    return false;
}

/* gRPC does not tell its sockets; a name may have become several. */
static void find_sockets(struct probe *probe)
{
    for (int fd = 0; fd < DESCRIPTORS_LOOKED_AT && probe->address_count < SOCKETS_MAX; fd++) {
        struct address *address = &probe->addresses[probe->address_count];
        int listens = 0;
        socklen_t size = sizeof listens;
        address->size = sizeof address->socket;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens &&
            getsockname(fd, (struct sockaddr *)&address->socket, &address->size) == 0 &&
            is_of_server(probe->options.server, address))
            probe->address_count++;
    }
}

static void name_of(const struct address *address, char ret[NAME_SIZE])
{
    union {
        const struct sockaddr_storage *any;
        const struct sockaddr_in *in;
        const struct sockaddr_in6 *in6;
        const struct sockaddr_un *un;
    } cast = { .any = &address->socket };
    char text[INET6_ADDRSTRLEN] = "";
    int family = address->socket.ss_family;
    if (family == AF_UNIX) {
        (void)snprintf(ret, NAME_SIZE, "unix:%s", cast.un->sun_path);
        return;
    }
    (void)inet_ntop(family,
                    family == AF_INET ? (const void *)&cast.in->sin_addr : &cast.in6->sin6_addr,
                    text, sizeof text);                /* fails for no address of ours */
    bool is_mapped = strncmp(text, "::ffff:", 7) == 0; /* gRPC listens to IPv4 like that */
    (void)snprintf(ret, NAME_SIZE, is_mapped || family == AF_INET ? "%s:%d" : "[%s]:%d",
                   is_mapped ? text + 7 : text, port_of(address));
}

/* --- one question ----------------------------------------------------------------------------- */

/* SILENT: no answer in time, and no known cause: it may only have much to do. CANNOT_TELL: a new
 * process would meet the same. */
enum probe_result { ANSWERED, SILENT, DEAF, CANNOT_TELL, STOPPED };

static enum probe_result result_of_errno(int error)
{
    switch (error) {
    case ECONNREFUSED: /* nobody listens there any more */
    case ENOENT:       /* the unix socket's file was removed */
    case EMFILE:       /* whoever connects now makes the server deaf, if it is not */
        return DEAF;
    case EAGAIN: /* a unix socket's queue is full */
    case ECONNRESET:
    case EPIPE:
        return SILENT;
    default: /* no port left, no route to the own address, a packet filter, no memory ... */
        return CANNOT_TELL;
    }
}

static enum probe_result result_of_silence(void)
{
    return grpc_log_accept_failed() ? DEAF : SILENT;
}

/* Until fd has these events (ANSWERED), the time is over or the probe is stopped. */
static enum probe_result wait_for(const struct probe *probe, int fd, short events, int64_t until_ms)
{
    struct pollfd fds[] = { { .fd = probe->stop_fd, .events = POLLIN },
                            { .fd = fd, .events = events } };
    for (;;) {
        int64_t left = until_ms - rpc_now_ms();
        int ready = poll(fds, ARRAY_LEN(fds), left > 0 ? (int)left : 0);
        if (ready > 0)
            return fds[0].revents ? STOPPED : ANSWERED;
        if (ready == 0 && left <= 0)
            return result_of_silence(); /* looked once more after the time: we may have slept */
    }
}

/* *ret_error: errno, 0 when it is the time that was over. */
static enum probe_result ask_over(const struct probe *probe, int fd, const struct address *address,
                                  int64_t until_ms, int *ret_error)
{
    const struct sockaddr *to = (const struct sockaddr *)&address->socket;
    *ret_error = 0;
    if (connect(fd, to, address->size) != 0) {
        socklen_t size = sizeof *ret_error;
        *ret_error = errno;
        if (errno != EINPROGRESS)
            return result_of_errno(errno);
        enum probe_result result = wait_for(probe, fd, POLLOUT, until_ms);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, ret_error, &size) != 0)
            *ret_error = errno;
        if (result != ANSWERED)
            return result;
        if (*ret_error)
            return result_of_errno(*ret_error);
    }
    /* It is short: the kernel takes all of it or nothing. */
    if (send(fd, greeting, sizeof greeting - 1, MSG_NOSIGNAL) != (ssize_t)(sizeof greeting - 1)) {
        *ret_error = errno;
        return result_of_errno(errno);
    }
    enum probe_result result = wait_for(probe, fd, POLLIN, until_ms);
    char first;
    if (result == ANSWERED && recv(fd, &first, 1, 0) < 0) { /* an end is an answer, too */
        *ret_error = errno;
        return result_of_errno(errno);
    }
    return result;
}

static enum probe_result ask(const struct probe *probe, const struct address *address,
                             int *ret_error)
{
    int64_t interval_ms = probe->options.interval_ms;
    int64_t until_ms = rpc_now_ms() + (interval_ms > ANSWER_MS_MIN ? interval_ms : ANSWER_MS_MIN);
    int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *ret_error = errno;
        return result_of_errno(errno);
    }
    enum probe_result result = ask_over(probe, fd, address, until_ms, ret_error);
    (void)close(fd); /* what was not read is of no use */
    return result;
}

/* --- again and again -------------------------------------------------------------------------- */

/* The worst of all sockets. */
static enum probe_result ask_all(const struct probe *probe, char *ret_why, size_t size)
{
    char name[NAME_SIZE];
    enum probe_result worst = ANSWERED;
    for (size_t i = 0; i < probe->address_count; i++) {
        int error = 0;
        enum probe_result result = ask(probe, &probe->addresses[i], &error);
        if (result == STOPPED)
            return result;
        if (result == ANSWERED || worst == DEAF || (worst == SILENT && result == CANNOT_TELL))
            continue;
        worst = result;
        name_of(&probe->addresses[i], name);
        (void)snprintf(ret_why, size, "a new connection to %s: %s", name,
                       error ? strerror(error) : "no answer");
    }
    return worst;
}

static void *run(void *ctx)
{
    struct probe *probe = ctx;
    int failures = 0, deaf = 0;
    char why[WHY_SIZE], text[WHY_SIZE + 160];
    while (deaf < DEAF_MAX && failures < FAILURES_MAX) {
        struct pollfd stop = { .fd = probe->stop_fd, .events = POLLIN };
        if (poll(&stop, 1, (int)probe->options.interval_ms) > 0)
            return NULL;
        enum probe_result result = ask_all(probe, why, sizeof why);
        if (result == STOPPED)
            return NULL;
        if (result == ANSWERED) {
            failures = deaf = 0;
            continue;
        }
        failures += result != CANNOT_TELL;
        deaf += result == DEAF;
        log_line(LOG_WARN, "the server could not ask itself over a new connection", "err", why,
                 "in_a_row", log_fmt("%d", failures), NULL);
    }
    (void)snprintf(
        text, sizeof text,
        "nobody can connect any more (%s, %d times in a row): sagad must be started again", why,
        failures);
    probe->options.deaf(probe->options.ctx, text);
    return NULL;
}

int probe_start(const struct probe_options *options, struct probe **ret, struct err *err)
{
    struct probe *probe = mem_calloc(1, sizeof *probe);
    if (!probe)
        return err_set(err, ERR_NOMEM, "probe");
    probe->options = *options;
    find_sockets(probe);
    probe->stop_fd = eventfd(0, EFD_CLOEXEC);
    int rc = 0;
    if (!probe->address_count)
        rc = err_set(err, ERR_INTERNAL, "probe: none of our own sockets was found");
    else if (probe->stop_fd < 0)
        rc = err_set(err, ERR_INTERNAL, "probe: eventfd: %s", strerror(errno));
    else if (pthread_create(&probe->thread, NULL, run, probe))
        rc = err_set(err, ERR_UNAVAILABLE, "probe: no thread could be started");
    if (rc) {
        if (probe->stop_fd >= 0)
            (void)close(probe->stop_fd); /* nothing was written */
        mem_free(probe);
        return rc;
    }
    *ret = probe;
    return 0;
}

struct probe *probe_stop(struct probe *probe)
{
    if (!probe)
        return NULL;
    (void)eventfd_write(probe->stop_fd, 1);  /* its first write: it cannot overflow */
    (void)pthread_join(probe->thread, NULL); /* started once, joined once */
    (void)close(probe->stop_fd);
    mem_free(probe);
    return NULL;
}
