/* The gRPC server in the test's own process, so that the sanitizers watch it and its counts can be
 * looked at: on the real engine and a real PostgreSQL, asked over real connections. It listens on a
 * TCP port and on a unix socket. thread: the test thread only. */
#ifndef RPC_FIXTURE_H
#define RPC_FIXTURE_H

#include "rpc/internal.h"
#include "support/rig.h"

struct rpc_fixture {
    struct test_postgres *postgres;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    struct store *store;
    struct engine *engine;
    pthread_t engine_thread;
    struct rpc_options options;
    struct rpc_server *server; /* NULL while it is stopped */
    char address[64], unix_address[200];
    struct rig rig; /* its client, and SQL at the database "store" */
};

/* For setup and teardown: 0 or -1. `limits`: of the server; the rest is filled in here. */
int rpc_fixture_up(struct rpc_fixture *fixture, const struct rpc_options *limits);
int rpc_fixture_down(struct rpc_fixture *fixture);
/* The server alone; the engine runs on. */
int rpc_fixture_start(struct rpc_fixture *fixture);
void rpc_fixture_stop(struct rpc_fixture *fixture, int64_t grace_ms);

#endif
