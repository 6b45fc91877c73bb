/* The addresses that the server listens on. A unix socket is guarded by a lock file beside it,
 * since gRPC would take a living server's path over without a word. */
#ifndef RPC_LISTEN_H
#define RPC_LISTEN_H

#include "base/err.h"

#include <grpc/grpc.h>

struct listener {
    int port;    /* of TCP; 0: a unix socket */
    int lock_fd; /* -1: none */
};

/* ERR_INVALID: not an address. ERR_UNAVAILABLE: it cannot be bound. */
MUST_USE int listener_add(grpc_server *server, const char *address, struct listener *ret,
                          struct err *err);
void listener_done(struct listener *listener);
/* Channel arguments of the server, with its resource quota in them; owned by the caller. */
grpc_channel_args *server_args_new(void);
void server_args_free(grpc_channel_args *args);

#endif
