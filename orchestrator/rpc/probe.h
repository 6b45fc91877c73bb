/* Asks our own server, over a new connection to each socket that it listens on, whether it still
 * takes connections. gRPC gives a socket up for good when accept fails once because descriptors ran
 * out: what is connected goes on, nobody else gets in, and nothing says so. Only a new process
 * mends that.
 *
 * The answer is the server's first word (its SETTINGS), which comes as soon as the connection is
 * accepted: it says nothing of the database, and a server with much to do says it, too. What a new
 * process would meet as well (no route to the own address, no port left for the connection) counts
 * neither way. A thread of its own, which uses nothing of gRPC. */
#ifndef RPC_PROBE_H
#define RPC_PROBE_H

#include "rpc/server.h"

struct probe;

struct probe_options {
    const struct rpc_server *server; /* asked for its sockets at the start alone */
    int64_t interval_ms;             /* > 0; an answer may take as long, but at least 0.5 s */
    /* Three times in a row nobody could connect, by a known cause; or twelve times there was no
     * answer. Said once; from the probe's thread. */
    void (*deaf)(void *ctx, const char *why);
    void *ctx;
};

MUST_USE int probe_start(const struct probe_options *options, struct probe **ret, struct err *err);
/* At once, in whatever it is. NULL is fine; always returns NULL. */
struct probe *probe_stop(struct probe *probe);

#endif
