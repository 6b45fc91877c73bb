#include "rpc/listen.h"

#include "base/mem.h"
#include "core/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    KEEPALIVE_MS = 10 * 1000, /* a dead peer is noticed within the sum of the two */
    KEEPALIVE_TIMEOUT_MS = 10 * 1000,
    CLIENT_PING_MS_MIN = 5 * 1000,
    PING_STRIKES_MAX = 5,
    HANDSHAKE_MS_MAX = 10 * 1000,
    STREAMS_OF_A_CONNECTION_MAX = 2000,
    QUOTA_BYTES = 512 * 1024 * 1024, /* of gRPC's own buffers */
};

static grpc_arg integer(const char *key, int value)
{
    union {
        const char *in;
        char *out;
    } cast = { .in = key }; /* gRPC copies it */
    return (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = cast.out, .value.integer = value };
}

grpc_channel_args *server_args_new(void)
{
    static char quota_key[] = GRPC_ARG_RESOURCE_QUOTA;
    grpc_resource_quota *quota = grpc_resource_quota_create("sagad");
    grpc_resource_quota_resize(quota, QUOTA_BYTES);
    const grpc_arg args[] = {
        integer(GRPC_ARG_ALLOW_REUSEPORT, 0), /* a second server on one port is an error */
        integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, LIMIT_REGISTER_BYTES),
        /* identity alone: gRPC inflates a message before it looks at its size */
        integer(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1),
        integer(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        integer(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        integer(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        integer(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0), /* no bound: idle peers are looked at */
        integer(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, CLIENT_PING_MS_MIN),
        integer(GRPC_ARG_HTTP2_MAX_PING_STRIKES, PING_STRIKES_MAX),
        integer(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS_MAX),
        integer(GRPC_ARG_MAX_CONCURRENT_STREAMS, STREAMS_OF_A_CONNECTION_MAX),
        { .type = GRPC_ARG_POINTER,
          .key = quota_key,
          .value.pointer = { quota, grpc_resource_quota_arg_vtable() } },
    };
    grpc_channel_args list = { ARRAY_LEN(args), NULL };
    grpc_channel_args *copy = mem_calloc(1, sizeof list);
    grpc_arg *copies = mem_calloc(1, sizeof args);
    if (!copy || !copies) {
        mem_free(copy);
        mem_free(copies);
        grpc_resource_quota_unref(quota);
        return NULL;
    }
    memcpy(copies, args, sizeof args);
    copy->num_args = ARRAY_LEN(args);
    copy->args = copies;
    return copy;
}

void server_args_free(grpc_channel_args *args)
{
    if (!args)
        return;
    grpc_resource_quota_unref(args->args[args->num_args - 1].value.pointer.p);
    mem_free(args->args);
    mem_free(args);
}

/* NULL: not a path in the file system. */
static const char *unix_path(const char *address)
{
    if (strncmp(address, "unix:", 5) != 0)
        return NULL;
    const char *path = address + 5;
    return strncmp(path, "//", 2) == 0 ? path + 2 : path;
}

static int lock_path(const char *path, int *ret_fd, struct err *err)
{
    char lock[sizeof((struct sockaddr_un *)NULL)->sun_path + 8];
    if (!*path || strlen(path) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return err_set(err, ERR_INVALID, "listen: '%s' has %zu bytes, a socket's path 1 to %zu",
                       path, strlen(path), sizeof((struct sockaddr_un *)NULL)->sun_path - 1);
    (void)snprintf(lock, sizeof lock, "%s.lock", path);
    int fd = open(lock, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "listen: %s: %s", lock, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        int rc = err_set(err, ERR_UNAVAILABLE, "listen: unix:%s is in use (%s: %s)", path, lock,
                         strerror(errno));
        (void)close(fd); /* nothing was written */
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

/* "host:port", the port a number: gRPC would try to resolve anything. */
static bool is_tcp_address(const char *address)
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address)
        return false;
    size_t digits = strspn(colon + 1, "0123456789");
    return digits >= 1 && digits <= 5 && !colon[1 + digits] && strtol(colon + 1, NULL, 10) <= 65535;
}

int listener_add(grpc_server *server, const char *address, struct listener *ret, struct err *err)
{
    struct listener listener = { .lock_fd = -1 };
    const char *path = unix_path(address);
    bool is_unix = path || strncmp(address, "unix-abstract:", 14) == 0;
    if (!is_unix && !is_tcp_address(address))
        return err_set(err, ERR_INVALID, "listen: '%s' is neither host:port nor unix:/path",
                       address);
    if (path) {
        int rc = lock_path(path, &listener.lock_fd, err);
        if (rc)
            return rc;
    }
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(server, address, credentials);
    grpc_server_credentials_release(credentials);
    if (!port) {
        listener_done(&listener);
        return err_set(err, ERR_UNAVAILABLE,
                       "listen: %s cannot be bound (in use, or not an address of this machine)",
                       address);
    }
    listener.port = is_unix ? 0 : port;
    *ret = listener;
    return 0;
}

void listener_done(struct listener *listener)
{
    if (listener->lock_fd >= 0)
        (void)close(listener->lock_fd); /* nothing was written; the lock ends with it */
    listener->lock_fd = -1;
}
