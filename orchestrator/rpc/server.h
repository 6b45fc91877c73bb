/* The gRPC server: pumps completion queues, decodes, hands events to the engine and queries to the
 * reader's thread. It decides nothing about sagas. */
#ifndef RPC_SERVER_H
#define RPC_SERVER_H

#include "engine/engine.h"

struct rpc_server;

struct rpc_options {
    const char *const *addresses; /* "127.0.0.1:7233", "[::1]:0", "unix:/path" */
    size_t address_count;
    struct engine *engine;
    /* Is there more than the engine that must be ready? Asked often. thread: any. NULL: no. */
    bool (*ready)(void *ctx);
    void *ready_ctx;
    const char *conninfo; /* for the reader */
    const char *node;
    int threads;                  /* completion-queue threads; 0: 2 */
    size_t streams_max;           /* worker streams; 0: 1,000 */
    size_t stream_send_bytes_max; /* 0: 8 MiB waiting in one stream's send queue */
    size_t send_bytes_max;        /* 0: 256 MiB waiting in all of them together */
    size_t payload_bytes_max;     /* 0: LIMIT_PAYLOAD_BYTES; no more than ..._MOST */
    size_t saga_watchers_max;     /* WatchSaga streams; 0: 1,000 */
    int64_t watch_silence_ms;     /* then what is watched is told again; 0: 30 s */
};

/* Binds (ERR_INVALID or ERR_UNAVAILABLE names the address) and serves. Health answers NOT_SERVING
 * until engine_is_ready. */
MUST_USE int rpc_server_start(const struct rpc_options *options, struct rpc_server **ret,
                              struct err *err);
/* The port that address i got (port 0 was asked: any); 0 for unix sockets. */
int rpc_server_port(const struct rpc_server *server, size_t i);
/* Health NOT_SERVING, new calls refused, workers told to drain; returns at once. */
void rpc_server_drain(struct rpc_server *server, int64_t grace_ms);
/* Waits for calls until the grace is over, cancels the rest, joins the threads, frees. Call it
 * while the engine still runs: it answers the last events. */
void rpc_server_stop(struct rpc_server *server, int64_t grace_ms);

#endif
