#include "support/black_hole.h"

#include "base/mem.h"
#include "support/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOK_MS = 20, CHUNK = 16384 };

struct black_hole {
    pthread_t thread;
    atomic_bool frozen, stopped;
    int listener, port; /* port: where it forwards to */
    char address[32];
};

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static bool write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t written = send(fd, data, size, MSG_NOSIGNAL);
        if (written < 0)
            return false;
        data += written;
        size -= (size_t)written;
    }
    return true;
}

/* Until one side closes, it is frozen, or stopped. */
static void forward(struct black_hole *hole, int client, int server)
{
    char chunk[CHUNK];
    struct pollfd fds[] = { { .fd = client, .events = POLLIN },
                            { .fd = server, .events = POLLIN } };
    while (!atomic_load(&hole->stopped)) {
        int ready = poll(fds, 2, LOOK_MS);
        if (atomic_load(&hole->frozen))
            return;
        for (int i = 0; ready > 0 && i < 2; i++) {
            if (!fds[i].revents)
                continue;
            ssize_t got = recv(fds[i].fd, chunk, sizeof chunk, 0);
            if (got <= 0 || !write_all(fds[1 - i].fd, chunk, (size_t)got))
                return;
        }
    }
}

static void *run(void *ctx)
{
    struct black_hole *hole = ctx;
    struct sockaddr_in to = loopback(hole->port);
    while (!atomic_load(&hole->stopped)) {
        struct pollfd fd = { .fd = hole->listener, .events = POLLIN };
        if (poll(&fd, 1, LOOK_MS) <= 0 || atomic_load(&hole->frozen))
            continue;
        int client = accept4(hole->listener, NULL, NULL, SOCK_CLOEXEC);
        int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (client >= 0 && server >= 0 &&
            connect(server, (const struct sockaddr *)&to, sizeof to) == 0)
            forward(hole, client, server);
        while (atomic_load(&hole->frozen) && !atomic_load(&hole->stopped))
            (void)poll(NULL, 0, LOOK_MS); /* both stay open */
        if (client >= 0)
            (void)close(client); /* nothing is lost that was not to be */
        if (server >= 0)
            (void)close(server);
    }
    return NULL;
}

static int listen_on_free_port(struct black_hole *hole, struct err *err)
{
    int port;
    if (free_port(&port, err) != 0)
        return (int)err->code;
    struct sockaddr_in address = loopback(port);
    hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (hole->listener < 0 ||
        bind(hole->listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(hole->listener, 8) != 0)
        return err_set(err, ERR_UNAVAILABLE, "proxy on port %d: %s", port, strerror(errno));
    (void)snprintf(hole->address, sizeof hole->address, "127.0.0.1:%d", port);
    return 0;
}

int black_hole_start(int port, struct black_hole **ret, struct err *err)
{
    struct black_hole *hole = mem_calloc(1, sizeof *hole);
    if (!hole)
        return err_set(err, ERR_NOMEM, "proxy");
    hole->port = port;
    hole->listener = -1;
    int rc = listen_on_free_port(hole, err);
    if (rc == 0 && pthread_create(&hole->thread, NULL, run, hole) != 0)
        rc = err_set(err, ERR_UNAVAILABLE, "proxy: no thread");
    if (rc != 0) {
        if (hole->listener >= 0)
            (void)close(hole->listener); /* nothing was written */
        mem_free(hole);
        return rc;
    }
    *ret = hole;
    return 0;
}

const char *black_hole_address(const struct black_hole *hole)
{
    return hole->address;
}

void black_hole_freeze(struct black_hole *hole)
{
    atomic_store(&hole->frozen, true);
}

struct black_hole *black_hole_free(struct black_hole *hole)
{
    if (!hole)
        return NULL;
    atomic_store(&hole->stopped, true);
    (void)pthread_join(hole->thread, NULL); /* started once, joined once */
    (void)close(hole->listener);            /* nothing was written */
    mem_free(hole);
    return NULL;
}
