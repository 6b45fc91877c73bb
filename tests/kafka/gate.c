#include "gate.h"

#include "base/mem.h"
#include "support/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 64, CHUNK = 65536, TEXT_MAX = 64, LOOK_MS = 10 };

struct connection {
    int client, server; /* sockets; -1: unused */
    bool shut;
    char *held; /* what waits inside, owned; no more is read meanwhile */
    size_t held_size;
    char tail[TEXT_MAX]; /* the end of what passed: a text may come in two pieces */
    size_t tail_size;
};

struct gate {
    int server_port, port, listener;
    pthread_t thread;
    atomic_bool stopped, shut;
    _Atomic(const char *) armed;            /* NULL: it is not */
    struct connection all[CONNECTIONS_MAX]; /* of the thread */
};

static bool send_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static void connection_end(struct connection *connection)
{
    (void)close(connection->client); /* nothing more is to be said on either */
    (void)close(connection->server);
    mem_free(connection->held);
    *connection = (struct connection){ .client = -1, .server = -1 };
}

static int server_connect(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd); /* nothing was written */
    return -1;
}

static void connection_begin(struct gate *gate)
{
    int client = accept4(gate->listener, NULL, NULL, SOCK_CLOEXEC);
    int server = client < 0 ? -1 : server_connect(gate->server_port);
    size_t at = 0;
    while (at < CONNECTIONS_MAX && gate->all[at].client >= 0)
        at++;
    if (server >= 0 && at < CONNECTIONS_MAX) {
        gate->all[at] = (struct connection){ .client = client, .server = server };
        return;
    }
    if (client >= 0)
        (void)close(client); /* the other side sees that nobody is there */
    if (server >= 0)
        (void)close(server); /* nothing was written */
}

/* Does the text end in this chunk? */
static bool text_is_there(struct connection *connection, const char *text, const char *chunk,
                          size_t size)
{
    char joint[2 * TEXT_MAX];
    size_t head = size < TEXT_MAX ? size : TEXT_MAX;
    memcpy(joint, connection->tail, connection->tail_size);
    memcpy(joint + connection->tail_size, chunk, head);
    return memmem(joint, connection->tail_size + head, text, strlen(text)) ||
           memmem(chunk, size, text, strlen(text));
}

static bool pass_up(struct gate *gate, struct connection *connection)
{
    char chunk[CHUNK];
    ssize_t got = recv(connection->client, chunk, sizeof chunk, 0);
    if (got <= 0)
        return false;
    size_t size = (size_t)got;
    const char *text = atomic_load(&gate->armed);
    if (text && text_is_there(connection, text, chunk, size)) {
        connection->held = mem_calloc(1, size);
        if (!connection->held)
            return false;
        memcpy(connection->held, chunk, size);
        connection->held_size = size;
        connection->shut = true;
        atomic_store(&gate->armed, NULL);
        atomic_store(&gate->shut, true);
        return true;
    }
    connection->tail_size = size < TEXT_MAX ? size : TEXT_MAX;
    memcpy(connection->tail, chunk + size - connection->tail_size, connection->tail_size);
    return send_all(connection->server, chunk, size);
}

static bool pass_down(const struct connection *connection)
{
    char chunk[CHUNK];
    ssize_t got = recv(connection->server, chunk, sizeof chunk, 0);
    return got > 0 && send_all(connection->client, chunk, (size_t)got);
}

static bool let_through(struct connection *connection)
{
    bool sent = send_all(connection->server, connection->held, connection->held_size);
    mem_free(connection->held);
    connection->held = NULL;
    connection->shut = false;
    return sent;
}

static void look(struct gate *gate)
{
    struct pollfd fds[1 + 2 * CONNECTIONS_MAX];
    fds[0] = (struct pollfd){ .fd = gate->listener, .events = POLLIN };
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        const struct connection *one = &gate->all[i];
        fds[1 + 2 * i] = (struct pollfd){ .fd = one->shut ? -1 : one->client, .events = POLLIN };
        fds[2 + 2 * i] = (struct pollfd){ .fd = one->server, .events = POLLIN };
    }
    if (poll(fds, ARRAY_LEN(fds), LOOK_MS) < 0)
        return; /* a signal */
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *one = &gate->all[i];
        bool good = true;
        if (one->client < 0)
            continue;
        if (one->shut && !atomic_load(&gate->shut))
            good = let_through(one);
        if (good && fds[1 + 2 * i].revents)
            good = pass_up(gate, one);
        if (good && fds[2 + 2 * i].revents)
            good = pass_down(one);
        if (!good)
            connection_end(one);
    }
    if (fds[0].revents)
        connection_begin(gate);
}

static void *run(void *ctx)
{
    struct gate *gate = ctx;
    while (!atomic_load(&gate->stopped))
        look(gate);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        if (gate->all[i].client >= 0)
            connection_end(&gate->all[i]);
    return NULL;
}

static int listen_on(struct gate *gate, struct err *err)
{
    if (free_port(&gate->port, err))
        return (int)err->code;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)gate->port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    gate->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (gate->listener < 0 ||
        bind(gate->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(gate->listener, CONNECTIONS_MAX) != 0)
        return err_set(err, ERR_INTERNAL, "gate: %s", strerror(errno));
    return 0;
}

int gate_start(int server_port, struct gate **ret, struct err *err)
{
    struct gate *gate = mem_calloc(1, sizeof *gate);
    if (!gate)
        return err_set(err, ERR_NOMEM, "gate");
    gate->server_port = server_port;
    gate->listener = -1;
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        gate->all[i] = (struct connection){ .client = -1, .server = -1 };
    int rc = listen_on(gate, err);
    if (rc == 0 && pthread_create(&gate->thread, NULL, run, gate) != 0)
        rc = err_set(err, ERR_INTERNAL, "gate: no thread");
    if (rc) {
        if (gate->listener >= 0)
            (void)close(gate->listener); /* nobody has come yet */
        mem_free(gate);
        return rc;
    }
    *ret = gate;
    return 0;
}

struct gate *gate_free(struct gate *gate)
{
    if (!gate)
        return NULL;
    atomic_store(&gate->stopped, true);
    (void)pthread_join(gate->thread, NULL); /* it was started, and is joined once */
    (void)close(gate->listener);            /* nobody is accepted any more */
    mem_free(gate);
    return NULL;
}

int gate_port(const struct gate *gate)
{
    return gate->port;
}

void gate_arm(struct gate *gate, const char *text)
{
    atomic_store(&gate->armed, text);
}

bool gate_is_shut(const struct gate *gate)
{
    return atomic_load(&gate->shut);
}

void gate_open(struct gate *gate)
{
    atomic_store(&gate->armed, NULL);
    atomic_store(&gate->shut, false);
}
