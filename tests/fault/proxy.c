#include "proxy.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/ports.h"
#include "support/wait.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOK_MS = 20, CHUNK = 65536, HEAD = 5, MESSAGE_MAX = 64 * 1024 * 1024, NAMES_SIZE = 1024 };

struct session { /* one connection of sagad */
    struct session *next;
    struct proxy *proxy;
    int client, server; /* sockets */
    pthread_t up, down; /* threads: from the client, from the server */
    atomic_int running;
    /* of `up` */
    bool engine, begun, keep_sync;
    char names[NAMES_SIZE]; /* statements of the transaction: " begin start " */
    int64_t syncs;          /* rounds that the client closed */
    /* between both */
    _Atomic int64_t cut_round; /* the COMMIT of this round is not to be answered; -1: none */
    _Atomic int64_t ready;     /* rounds that the server closed, -1 while it logs in */
};

struct proxy {
    int server_port, port, listener;
    pthread_t thread;
    atomic_bool stopped, bytes;
    _Atomic int64_t delay_ms, delays, byte_chunks, stray, commits, hits[PROXY_FAULT_COUNT];
    pthread_mutex_t lock; /* below */
    struct rng rng;
    struct {
        const char *statement;
        int64_t left; /* 0: not armed */
        int per_mille;
    } armed[PROXY_FAULT_COUNT];
    struct session *sessions;
};

/* --- bytes ------------------------------------------------------------------------------------ */

static uint64_t random_below(struct proxy *proxy, uint64_t below)
{
    pthread_mutex_lock(&proxy->lock);
    uint64_t value = rng_below(&proxy->rng, below);
    pthread_mutex_unlock(&proxy->lock);
    return value;
}

static bool send_all(int fd, const uint8_t *data, size_t size, size_t piece)
{
    while (size) {
        ssize_t sent = send(fd, data, size < piece ? size : piece, MSG_NOSIGNAL);
        if (sent < 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool forward(struct proxy *proxy, int fd, const uint8_t *data, size_t size)
{
    int64_t delay = atomic_load(&proxy->delay_ms);
    if (delay > 0) {
        atomic_fetch_add(&proxy->delays, 1);
        wait_ms((int64_t)random_below(proxy, (uint64_t)delay + 1));
    }
    bool bytes = atomic_load(&proxy->bytes);
    if (bytes)
        atomic_fetch_add(&proxy->byte_chunks, 1);
    return send_all(fd, data, size, bytes ? 1 : size);
}

/* Closes, or resets where nobody waits for it at this moment. */
static void cut(struct session *session)
{
    static const struct sockaddr nobody = { .sa_family = AF_UNSPEC };
    if (random_below(session->proxy, 2) == 0)
        (void)connect(session->client, &nobody, sizeof nobody); /* else it is closed below */
    (void)shutdown(session->server, SHUT_RDWR);                 /* both may be gone already */
    (void)shutdown(session->client, SHUT_RDWR);
}

/* Adds what comes from fd; false at its end. */
static bool receive(int fd, struct buf *in)
{
    uint8_t *room = buf_room(in, CHUNK);
    ssize_t got = room ? recv(fd, room, CHUNK, 0) : -1;
    if (got <= 0)
        return false;
    buf_added(in, (size_t)got);
    return true;
}

static void drop_front(struct buf *buf, size_t size)
{
    memmove(buf->data, buf->data + size, buf->size - size);
    buf->size -= size;
}

static size_t be32(const uint8_t *data)
{
    return (size_t)data[0] << 24 | (size_t)data[1] << 16 | (size_t)data[2] << 8 | data[3];
}

/* Size of the message at `at`, 0 while it is not whole. */
static size_t message_size(const struct buf *in, size_t at)
{
    if (in->size < at + HEAD)
        return 0;
    size_t size = 1 + be32(in->data + at + 1);
    assert(size >= HEAD && size < MESSAGE_MAX);
    return in->size < at + size ? 0 : size;
}

/* --- when ------------------------------------------------------------------------------------- */

static bool statement_fits(const char *armed, const char *names)
{
    static const char *const writing[] = { "start",  "grant",      "finish", "finish_grant",
                                           "phase",  "finish_end", "extend", "late",
                                           "let_go", "adopt" };
    char word[64];
    for (size_t i = 0; !armed && i < ARRAY_LEN(writing); i++) {
        (void)snprintf(word, sizeof word, " %s ", writing[i]);
        if (strstr(names, word))
            return true;
    }
    (void)snprintf(word, sizeof word, " %s ", armed ? armed : "nothing");
    return armed && strstr(names, word);
}

/* A chance: is it taken? */
static bool hits(struct proxy *proxy, enum proxy_fault fault, const char *names)
{
    pthread_mutex_lock(&proxy->lock);
    bool fits = !names || statement_fits(proxy->armed[fault].statement, names);
    bool hit = false;
    if (fits && proxy->armed[fault].left > 0)
        hit = --proxy->armed[fault].left == 0;
    if (fits && proxy->armed[fault].per_mille > 0)
        hit |= rng_below(&proxy->rng, 1000) < (uint64_t)proxy->armed[fault].per_mille;
    pthread_mutex_unlock(&proxy->lock);
    return hit;
}

/* --- from sagad ------------------------------------------------------------------------------- */

/* The start-up packet has no type. False: not whole yet. */
static bool read_startup(struct session *session, const struct buf *in)
{
    static const char name[] = "application_name\0sagad engine";
    if (in->size < 4 || in->size < be32(in->data))
        return false;
    session->engine = memmem(in->data, in->size, name, sizeof name) != NULL;
    return true;
}

enum next { NEXT_FORWARD, NEXT_CUT, NEXT_INSTEAD, NEXT_KEEP };

/* COMMIT is on its way. */
static enum next at_commit(struct session *session)
{
    struct proxy *proxy = session->proxy;
    atomic_fetch_add(&proxy->commits, 1);
    if (!session->begun)
        atomic_fetch_add(&proxy->stray, 1);
    session->begun = false;
    if (!session->engine)
        return NEXT_FORWARD;
    if (hits(proxy, PROXY_CUT_BEFORE_COMMIT, session->names)) {
        atomic_fetch_add(&proxy->hits[PROXY_CUT_BEFORE_COMMIT], 1);
        return NEXT_CUT;
    }
    if (hits(proxy, PROXY_ROLLBACK_FOR_COMMIT, session->names)) {
        atomic_fetch_add(&proxy->hits[PROXY_ROLLBACK_FOR_COMMIT], 1);
        return NEXT_INSTEAD;
    }
    session->keep_sync = hits(proxy, PROXY_KEEP_SYNC, session->names);
    if (hits(proxy, PROXY_CUT_AFTER_COMMIT, session->names))
        atomic_store(&session->cut_round, session->syncs); /* counted when its answer comes */
    return NEXT_FORWARD;
}

static enum next at_sync(struct session *session)
{
    session->syncs++;
    if (!session->keep_sync)
        return NEXT_FORWARD;
    session->keep_sync = false;
    atomic_fetch_add(&session->proxy->hits[PROXY_KEEP_SYNC], 1);
    return NEXT_KEEP;
}

/* A message that runs a prepared statement. */
static enum next at_bind(struct session *session, const uint8_t *message)
{
    const char *portal = (const char *)message + HEAD;
    const char *statement = portal + strlen(portal) + 1;
    if (strcmp(statement, "commit") == 0)
        return at_commit(session);
    if (strncmp(statement, "begin", strlen("begin")) == 0) {
        session->begun = true;
        (void)snprintf(session->names, sizeof session->names, " ");
    }
    size_t used = strlen(session->names);
    (void)snprintf(session->names + used, sizeof session->names - used, "%s ", statement);
    return NEXT_FORWARD;
}

/* The same message for the statement "rollback". */
static void write_rollback(const uint8_t *message, size_t size, struct buf *out)
{
    size_t portal = strlen((const char *)message + HEAD) + 1;
    size_t rest = HEAD + portal + sizeof "commit";
    buf_append(out, "B", 1);
    buf_be32(out, (uint32_t)(size - 1 + sizeof "rollback" - sizeof "commit"));
    buf_append(out, message + HEAD, portal);
    buf_append(out, "rollback", sizeof "rollback");
    buf_append(out, message + rest, size - rest);
}

/* Looks at every whole message from *at on; false: cut before the one that *at stays at. */
static bool look_up(struct session *session, const struct buf *in, struct buf *out, size_t *at)
{
    for (size_t size; (size = message_size(in, *at)) > 0; *at += size) {
        const uint8_t *message = in->data + *at;
        enum next next = NEXT_FORWARD;
        if (message[0] == 'B')
            next = at_bind(session, message);
        else if (message[0] == 'S')
            next = at_sync(session);
        if (next == NEXT_CUT)
            return false;
        if (next == NEXT_KEEP)
            continue;
        if (next == NEXT_INSTEAD)
            write_rollback(message, size, out);
        else
            buf_append(out, message, size);
    }
    return true;
}

static void *run_up(void *ctx)
{
    struct session *session = ctx;
    CLEANUP(buf_done) struct buf in = { .limit = MESSAGE_MAX };
    CLEANUP(buf_done) struct buf out = { .limit = MESSAGE_MAX };
    bool started = false, alive = true;
    while (alive && receive(session->client, &in)) {
        size_t at = 0;
        buf_clear(&out);
        if (!started) {
            if (!(started = read_startup(session, &in)))
                continue;
            at = be32(in.data);
            buf_append(&out, in.data, at);
        }
        alive = look_up(session, &in, &out, &at);
        drop_front(&in, at);
        alive &= !out.failed && forward(session->proxy, session->server, out.data, out.size);
    }
    cut(session);
    atomic_fetch_sub(&session->running, 1);
    return NULL;
}

/* --- from PostgreSQL -------------------------------------------------------------------------- */

static bool is_commit(const uint8_t *message)
{
    return message[0] == 'C' && strcmp((const char *)message + HEAD, "COMMIT") == 0;
}

/* Looks at every whole message; *ret_size is what is to be forwarded of them. False: then cut. */
static bool look_down(struct session *session, const struct buf *in, size_t *ret_size)
{
    struct proxy *proxy = session->proxy;
    size_t at = 0;
    bool alive = true;
    for (size_t size; alive && (size = message_size(in, at)) > 0;) {
        const uint8_t *message = in->data + at;
        if (message[0] == 'Z')
            atomic_fetch_add(&session->ready, 1);
        if (is_commit(message) &&
            atomic_load(&session->cut_round) == atomic_load(&session->ready)) {
            atomic_fetch_add(&proxy->hits[PROXY_CUT_AFTER_COMMIT], 1);
            alive = false;
        } else if (message[0] == 'D' && hits(proxy, PROXY_CUT_IN_RESULT, NULL)) {
            atomic_fetch_add(&proxy->hits[PROXY_CUT_IN_RESULT], 1);
            at += size / 2;
            alive = false;
        } else {
            at += size;
        }
    }
    *ret_size = at;
    return alive;
}

static void *run_down(void *ctx)
{
    struct session *session = ctx;
    CLEANUP(buf_done) struct buf in = { .limit = MESSAGE_MAX };
    bool alive = true;
    while (alive && receive(session->server, &in)) {
        size_t size = 0;
        alive = look_down(session, &in, &size);
        alive &= forward(session->proxy, session->client, in.data, size);
        drop_front(&in, size);
    }
    cut(session);
    atomic_fetch_sub(&session->running, 1);
    return NULL;
}

/* --- connections ------------------------------------------------------------------------------ */

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void session_end(struct session *session)
{
    (void)pthread_join(session->up, NULL); /* started once, joined once */
    (void)pthread_join(session->down, NULL);
    (void)close(session->client); /* what was to be sent was */
    (void)close(session->server);
    mem_free(session);
}

/* Ends those that are over; all of them: `all`. */
static void sessions_sweep(struct proxy *proxy, bool all)
{
    for (struct session **at = &proxy->sessions; *at;) {
        struct session *session = *at;
        if (all)
            cut(session);
        if (!all && atomic_load(&session->running) > 0) {
            at = &session->next;
            continue;
        }
        *at = session->next;
        session_end(session);
    }
}

static bool session_connect(struct session *session)
{
    struct sockaddr_in to = loopback(session->proxy->server_port);
    int one = 1;
    session->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return session->server >= 0 &&
           connect(session->server, (const struct sockaddr *)&to, sizeof to) == 0 &&
           setsockopt(session->server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 &&
           setsockopt(session->client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0;
}

static void session_new(struct proxy *proxy, int client)
{
    struct session *session = mem_calloc(1, sizeof *session);
    assert(session);
    *session = (struct session){ .proxy = proxy, .client = client, .cut_round = -1, .ready = -1 };
    atomic_store(&session->running, 2);
    if (!session_connect(session)) { /* the server is down: so is this connection */
        (void)close(client);
        if (session->server >= 0)
            (void)close(session->server);
        mem_free(session);
        return;
    }
    int failed = pthread_create(&session->up, NULL, run_up, session);
    failed |= pthread_create(&session->down, NULL, run_down, session);
    assert(!failed);
    session->next = proxy->sessions;
    proxy->sessions = session;
}

static void *run(void *ctx)
{
    struct proxy *proxy = ctx;
    while (!atomic_load(&proxy->stopped)) {
        struct pollfd fd = { .fd = proxy->listener, .events = POLLIN };
        int client =
            poll(&fd, 1, LOOK_MS) > 0 ? accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (client >= 0)
            session_new(proxy, client);
        sessions_sweep(proxy, false);
    }
    sessions_sweep(proxy, true);
    return NULL;
}

int proxy_start(int server_port, uint64_t seed, struct proxy **ret, struct err *err)
{
    struct proxy *proxy = mem_calloc(1, sizeof *proxy);
    if (!proxy)
        return err_set(err, ERR_NOMEM, "proxy");
    proxy->server_port = server_port;
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    rng_seed(&proxy->rng, seed);
    (void)pthread_mutex_init(&proxy->lock, NULL); /* a plain one: cannot fail */
    int rc = proxy->listener < 0 ? err_set(err, ERR_UNAVAILABLE, "proxy: %s", strerror(errno))
                                 : free_port(&proxy->port, err);
    struct sockaddr_in address = loopback(proxy->port);
    if (rc == 0 && (bind(proxy->listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
                    listen(proxy->listener, 64) != 0))
        rc = err_set(err, ERR_UNAVAILABLE, "proxy on port %d: %s", proxy->port, strerror(errno));
    if (rc == 0 && pthread_create(&proxy->thread, NULL, run, proxy) != 0)
        rc = err_set(err, ERR_UNAVAILABLE, "proxy: no thread");
    if (rc == 0) {
        *ret = proxy;
        return 0;
    }
    if (proxy->listener >= 0)
        (void)close(proxy->listener); /* nothing was written */
    mem_free(proxy);
    return rc;
}

struct proxy *proxy_free(struct proxy *proxy)
{
    if (!proxy)
        return NULL;
    atomic_store(&proxy->stopped, true);
    (void)pthread_join(proxy->thread, NULL); /* started once, joined once */
    (void)close(proxy->listener);            /* nothing was written */
    (void)pthread_mutex_destroy(&proxy->lock);
    mem_free(proxy);
    return NULL;
}

/* --- the owner's calls ------------------------------------------------------------------------ */

int proxy_port(const struct proxy *proxy)
{
    return proxy->port;
}

void proxy_arm(struct proxy *proxy, enum proxy_fault fault, const char *statement, int64_t n)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->armed[fault].statement = statement;
    proxy->armed[fault].left = n;
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_chance(struct proxy *proxy, enum proxy_fault fault, int per_mille)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->armed[fault].per_mille = per_mille;
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_delay(struct proxy *proxy, int64_t most_ms)
{
    atomic_store(&proxy->delay_ms, most_ms);
}

void proxy_bytes(struct proxy *proxy, bool on)
{
    atomic_store(&proxy->bytes, on);
}

int64_t proxy_hits(const struct proxy *proxy, enum proxy_fault fault)
{
    return atomic_load(&proxy->hits[fault]);
}

int64_t proxy_delays(const struct proxy *proxy)
{
    return atomic_load(&proxy->delays);
}

int64_t proxy_byte_chunks(const struct proxy *proxy)
{
    return atomic_load(&proxy->byte_chunks);
}

int64_t proxy_stray_commits(const struct proxy *proxy)
{
    return atomic_load(&proxy->stray);
}

int64_t proxy_commits(const struct proxy *proxy)
{
    return atomic_load(&proxy->commits);
}
