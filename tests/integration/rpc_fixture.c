#include "rpc_fixture.h"

#include "core/limits.h"
#include "schema/definition_types.h"
#include "store/pg.h"
#include "support/wait.h"

#include <stdio.h>

static void *engine_main(void *ctx)
{
    engine_run(ctx);
    return NULL;
}

static int start_engine(struct rpc_fixture *fixture)
{
    struct err err;
    const struct store_pg_options store_options = {
        .conninfo = fixture->conninfo, .clock = &clock_system, .node = "test", .rng_seed = 1
    };
    SETUP_OK(store_pg_new(&store_options, &fixture->store, &err), &err);
    const struct engine_options options = {
        .store = fixture->store,
        .clock = &clock_system,
        .rng_seed = 2,
        .node = "test",
        .mailbox_limit = ENGINE_MAILBOX_LIMIT,
        .batch_limit = LIMIT_BATCH_EVENTS,
        .grace_ms = 300,
        .stream_lost_ms = 300,
        .definition_decode = definition_decode_typed,
    };
    SETUP_OK(engine_new(&options, &fixture->engine, &err), &err);
    return pthread_create(&fixture->engine_thread, NULL, engine_main, fixture->engine);
}

int rpc_fixture_start(struct rpc_fixture *fixture)
{
    struct err err;
    const char *addresses[] = { "127.0.0.1:0", fixture->unix_address };
    struct rpc_options options = fixture->options;
    options.addresses = addresses;
    options.address_count = ARRAY_LEN(addresses);
    options.engine = fixture->engine;
    options.conninfo = fixture->conninfo;
    options.node = "test";
    SETUP_OK(rpc_server_start(&options, &fixture->server, &err), &err);
    (void)snprintf(fixture->address, sizeof fixture->address, "127.0.0.1:%d",
                   rpc_server_port(fixture->server, 0));
    SETUP_OK(client_new(fixture->address, &fixture->rig.client, &err), &err);
    return 0;
}

void rpc_fixture_stop(struct rpc_fixture *fixture, int64_t grace_ms)
{
    fixture->rig.client = client_free(fixture->rig.client);
    rpc_server_stop(fixture->server, grace_ms);
    fixture->server = NULL;
}

int rpc_fixture_up(struct rpc_fixture *fixture, const struct rpc_options *limits)
{
    struct err err;
    fixture->options = *limits;
    SETUP_OK(test_postgres_start(NULL, &fixture->postgres, &err), &err);
    SETUP_OK(test_postgres_createdb(fixture->postgres, "store", fixture->conninfo, &err), &err);
    SETUP_OK(store_migrate(fixture->conninfo, &err), &err);
    (void)snprintf(fixture->unix_address, sizeof fixture->unix_address, "unix:%s/sagad.sock",
                   test_postgres_socket_dir(fixture->postgres));
    (void)snprintf(fixture->rig.store, sizeof fixture->rig.store, "%s", fixture->conninfo);
    grpc_init();
    if (start_engine(fixture) || rpc_fixture_start(fixture))
        return -1;
    /* The engine joins first; until then the server serves, and says that it is not ready. */
    enum { SERVING = 1, READY_MS = 30000 };
    for (int i = 0; rig_health(fixture->address, READY_MS) != SERVING; i++) {
        if (i == READY_MS / 10)
            return -1;
        wait_ms(10);
    }
    return 0;
}

static void on_stopped(struct engine_event *event)
{
    (void)event;
}

int rpc_fixture_down(struct rpc_fixture *fixture)
{
    if (fixture->server)
        rpc_fixture_stop(fixture, 0);
    struct engine_event stop = { .kind = ENGINE_STOP, .done = on_stopped };
    if (!engine_post_always(fixture->engine, &stop))
        return -1;
    (void)pthread_join(fixture->engine_thread, NULL); /* it was started once */
    fixture->engine = engine_free(fixture->engine);
    fixture->store = store_pg_free(fixture->store);
    PQfinish(TAKE(fixture->rig.conns[RIG_STORE]));
    fixture->postgres = test_postgres_free(fixture->postgres);
    grpc_shutdown_blocking();
    return 0;
}
