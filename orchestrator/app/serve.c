#include "app/serve.h"

#include "app/address.h"
#include "app/kafka_in.h"
#include "app/signals.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "core/limits.h"
#include "engine/engine.h"
#include "kafka/outbox.h"
#include "retention/retention.h"
#include "rpc/probe.h"
#include "rpc/server.h"
#include "schema/definition_types.h"
#include "store/pg.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    NODE_SIZE = LIMIT_WORKER_BYTES + 1,
    ENGINE_STACK_BYTES = 4 * 1024 * 1024,
    RETRY_FIRST_MS = 200,
    RETRY_CAP_MS = 2000,
    READY_LOOK_MS = 10,
    READY_TELL_MS = 5000,   /* how often to say what we wait for */
    OUTBOX_GRACE_MS = 3000, /* of the grace at most: what is left leaves after the next start */
    CONNECT_TIMEOUT_S = 5,
    FAULT_TEXT_SIZE = 256,
    KAFKA_STOP_MS = 5000, /* it was asked to end before the calls were waited for */
};

enum fault_state { FAULT_NONE, FAULT_BEING_WRITTEN, FAULT_WRITTEN };

struct serve {
    char node[NODE_SIZE];
    int64_t grace_ms;
    struct store *store;
    struct engine *engine;
    pthread_t thread;
    bool thread_runs;
    struct engine_event stop; /* ENGINE_STOP; lives until the engine has run out */
    struct rpc_server *rpc;
    struct probe *probe;
    struct outbox *outbox; /* NULL: no topic */
    struct retention *retention;
    _Atomic(struct kafka_in *) kafka_in; /* NULL: no rules, or not yet */
    const char **addresses;              /* one block */
    size_t address_count;
    char (*bound)[ADDRESS_SIZE]; /* with their real ports */
    atomic_int fault;            /* enum fault_state */
    char fault_text[FAULT_TEXT_SIZE];
};

void serve_node_name(const struct config *config, char *ret, size_t size)
{
    const char *node = config_text(config, CONFIG_NODE);
    if (*node) {
        (void)snprintf(ret, size, "%s", node); /* within the limit of the setting */
        return;
    }
    char host[NODE_SIZE];
    if (gethostname(host, sizeof host) != 0)
        (void)snprintf(host, sizeof host, "sagad"); /* a host name longer than the limit */
    host[sizeof host - 1] = '\0';
    const char *first = config_text(config, CONFIG_LISTEN);
    size_t length = strcspn(first, ",");
    const char *colon = memrchr(first, ':', length);
    (void)snprintf(ret, size, "%s%.*s", host, colon ? (int)(first + length - colon) : 0,
                   colon ? colon : "");
}

void serve_end(struct serve *serve, const char *why)
{
    int none = FAULT_NONE;
    if (!atomic_compare_exchange_strong(&serve->fault, &none, FAULT_BEING_WRITTEN))
        return;
    (void)snprintf(serve->fault_text, sizeof serve->fault_text, "%s", why);
    atomic_store(&serve->fault, FAULT_WRITTEN);
    (void)kill(getpid(), SIGTERM); /* cannot fail for the own process */
}

int serve_fault(const struct serve *serve, struct err *err)
{
    if (atomic_load(&serve->fault) != FAULT_WRITTEN)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "%s", serve->fault_text);
}

/* --- before anything runs ----------------------------------------------------------------------
 */

static int check_addresses(const struct config *config, const char *const *addresses, size_t count,
                           struct err *err)
{
    if (!count)
        return err_set(err, ERR_INVALID, "listen: no address");
    for (size_t i = 0; i < count; i++) {
        if (address_is_local(addresses[i]))
            continue;
        if (!config_bool(config, CONFIG_INSECURE_LISTEN))
            return err_set(err, ERR_INVALID,
                           "listen: others can reach %s, and connections are neither encrypted nor"
                           " authenticated yet; say --insecure-listen if the network protects it",
                           addresses[i]);
        log_line(LOG_WARN, "connections are neither encrypted nor authenticated", "listen",
                 addresses[i], NULL);
    }
    return 0;
}

static void raise_open_files(int64_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)wanted)
        return;
    struct rlimit more = { .rlim_cur = (rlim_t)wanted, .rlim_max = limit.rlim_max };
    if (more.rlim_max < more.rlim_cur)
        more.rlim_max = more.rlim_cur; /* root may; others are refused */
    if (setrlimit(RLIMIT_NOFILE, &more) == 0)
        return;
    more = (struct rlimit){ .rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max };
    int rc = setrlimit(RLIMIT_NOFILE, &more);
    log_line(LOG_WARN, "fewer open files than wanted: connections beyond them are not served",
             "wanted", log_fmt("%" PRId64, wanted), "allowed",
             log_fmt("%llu", (unsigned long long)(rc == 0 ? limit.rlim_max : limit.rlim_cur)),
             NULL);
}

/* --- the database --------------------------------------------------------------------------------
 */

static int prepare_once(const struct serve_options *options, struct err *err)
{
    if (store_check_server(options->conninfo, config_bool(options->config, CONFIG_UNSAFE), err) !=
        0)
        return err_wrap(err, "PostgreSQL");
    if (store_migrate(options->conninfo, err) != 0)
        return err_wrap(err, "migrate");
    return 0;
}

/* *ret_ended: a signal came first. */
static int prepare_database(const struct serve_options *options, bool *ret_ended, struct err *err)
{
    /* An address that swallows packets must not hold up a signal for minutes. */
    (void)setenv("PGCONNECT_TIMEOUT", log_fmt("%d", CONNECT_TIMEOUT_S), 0);
    int64_t until =
        clock_mono_ms(&clock_system) + config_number(options->config, CONFIG_START_TIMEOUT);
    int64_t delay = RETRY_FIRST_MS, told = 0;
    while (prepare_once(options, err) != 0) {
        int64_t now = clock_mono_ms(&clock_system);
        if (err->code != ERR_UNAVAILABLE)
            return err->code;
        if (now >= until)
            return err_wrap(err, "gave up after --start-timeout");
        if (!told || now - told >= READY_TELL_MS) {
            log_line(LOG_WARN, "waiting for PostgreSQL", "err", err->msg, NULL);
            told = now;
        }
        int signal_number = signals_wait(delay);
        if (signals_is_end(signal_number)) {
            *ret_ended = true;
            return 0;
        }
        delay = delay * 2 < RETRY_CAP_MS ? delay * 2 : RETRY_CAP_MS;
    }
    return 0;
}

/* --- the parts
 * -------------------------------------------------------------------------------------- */

static void *engine_main(void *ctx)
{
    engine_run(ctx);
    return NULL;
}

static int start_thread(struct serve *serve, struct err *err)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0)
        return err_set(err, ERR_NOMEM, "engine thread: out of memory");
    (void)pthread_attr_setstacksize(&attr, ENGINE_STACK_BYTES); /* a size that is always allowed */
    int failed = pthread_create(&serve->thread, &attr, engine_main, serve->engine);
    (void)pthread_attr_destroy(&attr);
    if (failed)
        return err_set(err, ERR_UNAVAILABLE, "engine thread: %s", strerror(failed));
    serve->thread_runs = true;
    return 0;
}

static void on_expelled(void *ctx)
{
    serve_end(ctx, "another process serves under this node's name; give each sagad a --node of its"
                   " own");
}

static int start_engine(struct serve *serve, const struct serve_options *options, struct err *err)
{
    const struct config *config = options->config;
    struct rng rng;
    rng_seed_os(&rng);
    const struct uuid instance = uuid_v7(clock_wall_ms(&clock_system), &rng, 0);
    const struct store_pg_options store_options = {
        .conninfo = options->conninfo,
        .clock = &clock_system,
        .node = serve->node,
        .instance = instance,
        .unsafe = config_bool(config, CONFIG_UNSAFE),
        .rng_seed = rng_next(&rng),
    };
    if (store_pg_new(&store_options, &serve->store, err) != 0)
        return err->code;
    const struct engine_options engine_options = {
        .store = serve->store,
        .clock = &clock_system,
        .rng_seed = rng_next(&rng),
        .node = serve->node,
        .instance = instance,
        .heartbeat_ms = config_number(config, CONFIG_HEARTBEAT),
        .node_dead_ms = config_number(config, CONFIG_NODE_DEAD),
        .expelled = on_expelled,
        .expelled_ctx = serve,
        .resident_max = config_number(config, CONFIG_RESIDENT_SAGAS_MAX),
        .breaker_failures = (int32_t)config_number(config, CONFIG_BREAKER_FAILURES),
        .mailbox_limit = ENGINE_MAILBOX_LIMIT,
        .batch_limit = (size_t)config_number(config, CONFIG_BATCH_MAX),
        .grace_ms = config_number(config, CONFIG_RESEND_GRACE),
        .stream_lost_ms = config_number(config, CONFIG_STREAM_LOST),
        .definition_decode = definition_decode_typed,
    };
    if (engine_new(&engine_options, &serve->engine, err) != 0)
        return err->code;
    return start_thread(serve, err);
}

static void on_deaf(void *ctx, const char *why)
{
    serve_end(ctx, why);
}

static int start_probe(struct serve *serve, int64_t interval_ms, struct err *err)
{
    const struct probe_options options = {
        .server = serve->rpc, .interval_ms = interval_ms, .deaf = on_deaf, .ctx = serve
    };
    return interval_ms ? probe_start(&options, &serve->probe, err) : 0;
}

static bool on_ready_asked(void *ctx)
{
    struct serve *serve = ctx;
    const struct kafka_in *in = atomic_load(&serve->kafka_in);
    return !in || kafka_in_is_ready(in);
}

static int start_rpc(struct serve *serve, const struct serve_options *options, struct err *err)
{
    const struct rpc_options rpc_options = {
        .addresses = serve->addresses,
        .address_count = serve->address_count,
        .engine = serve->engine,
        .ready = on_ready_asked,
        .ready_ctx = serve,
        .conninfo = options->conninfo,
        .node = serve->node,
        .threads = (int)config_number(options->config, CONFIG_RPC_THREADS),
        .streams_max = (size_t)config_number(options->config, CONFIG_STREAMS_MAX),
        .payload_bytes_max = (size_t)config_number(options->config, CONFIG_PAYLOAD_BYTES_MAX),
    };
    if (rpc_server_start(&rpc_options, &serve->rpc, err) != 0)
        return err->code;
    for (size_t i = 0; i < serve->address_count; i++)
        address_with_port(serve->addresses[i], rpc_server_port(serve->rpc, i), serve->bound[i]);
    return start_probe(serve, config_number(options->config, CONFIG_PROBE_INTERVAL), err);
}

static int64_t sagas_ended(void *ctx)
{
    const struct engine_counters *counters = engine_counters(ctx);
    return atomic_load(&counters->sagas_succeeded) + atomic_load(&counters->sagas_compensated);
}

static int start_retention(struct serve *serve, const struct serve_options *options,
                           struct err *err)
{
    const int64_t age_ms = config_number(options->config, CONFIG_RETENTION);
    const int64_t audit_ms = config_number(options->config, CONFIG_AUDIT_RETENTION);
    const struct retention_options retention_options = {
        .conninfo = options->conninfo,
        .node = serve->node,
        .age_ms = age_ms ? age_ms : -1,
        .key_memory_ms = config_number(options->config, CONFIG_KEY_MEMORY),
        .audit_ms = audit_ms > 0 ? audit_ms : 0, /* for ever */
        .archive = config_text(options->config, CONFIG_RETENTION_ARCHIVE),
        .ended = sagas_ended,
        .ended_ctx = serve->engine,
    };
    return retention_start(&retention_options, &serve->retention, err);
}

/* What it starts is this node's, which must have joined. */
static int start_kafka(struct serve *serve, const struct serve_options *options, struct err *err)
{
    struct rng rng;
    rng_seed_os(&rng);
    const struct kafka_in_options kafka_options = {
        .config = options->config,
        .conninfo = options->conninfo,
        .node = serve->node,
        .engine = serve->engine,
        .rng_seed = rng_next(&rng),
    };
    struct kafka_in *in = NULL;
    int rc = kafka_in_start(&kafka_options, &in, err);
    atomic_store(&serve->kafka_in, in);
    return rc;
}

/* False: a signal came first. */
static bool wait_until_ready(const struct serve *serve)
{
    int64_t told = clock_mono_ms(&clock_system);
    while (!engine_is_ready(serve->engine)) {
        if (signals_is_end(signals_wait(READY_LOOK_MS)))
            return false;
        int64_t now = clock_mono_ms(&clock_system);
        if (now - told < READY_TELL_MS)
            continue;
        log_line(LOG_INFO, "waiting until this node has joined", NULL);
        told = now;
    }
    return true;
}

static int start_outbox(struct serve *serve, const struct serve_options *options, struct err *err)
{
    const struct outbox_options outbox_options = {
        .conninfo = options->conninfo,
        .node = serve->node,
        .brokers = config_text(options->config, CONFIG_KAFKA_BROKERS),
        .topic = config_text(options->config, CONFIG_OUTBOX_TOPIC),
        .properties = &options->config->kafka,
    };
    return *outbox_options.topic ? outbox_start(&outbox_options, &serve->outbox, err) : 0;
}

static int start_parts(struct serve *serve, const struct serve_options *options, bool *ret_ended,
                       struct err *err)
{
    if (prepare_database(options, ret_ended, err) != 0 || *ret_ended)
        return *ret_ended ? 0 : (int)err->code;
    if (start_engine(serve, options, err) != 0 || start_rpc(serve, options, err) != 0)
        return err->code;
    *ret_ended = !wait_until_ready(serve);
    if (!*ret_ended &&
        (start_retention(serve, options, err) != 0 || start_kafka(serve, options, err) != 0 ||
         start_outbox(serve, options, err) != 0))
        return err->code;
    return serve_fault(serve, err);
}

static void announce(const struct serve *serve)
{
    for (size_t i = 0; i < serve->address_count; i++)
        (void)printf("sagad: serving on %s\n", serve->bound[i]);
    (void)fflush(stdout); /* a closed stdout is nobody's loss */
    log_line(LOG_INFO, "started", "version", SAGAD_VERSION, "node", serve->node, NULL);
}

int serve_start(const struct serve_options *options, struct serve **ret, struct err *err)
{
    struct serve *serve = mem_calloc(1, sizeof *serve);
    if (!serve)
        return err_set(err, ERR_NOMEM, "serve: out of memory");
    bool ended = false;
    serve->grace_ms = config_number(options->config, CONFIG_GRACE);
    serve_node_name(options->config, serve->node, sizeof serve->node);
    int rc =
        config_list(options->config, CONFIG_LISTEN, &serve->addresses, &serve->address_count, err);
    if (rc == 0)
        rc = check_addresses(options->config, serve->addresses, serve->address_count, err);
    if (rc == 0 && !(serve->bound = mem_calloc(serve->address_count, sizeof *serve->bound)))
        rc = err_set(err, ERR_NOMEM, "serve: out of memory");
    if (rc == 0) {
        raise_open_files(config_number(options->config, CONFIG_OPEN_FILES));
        rc = start_parts(serve, options, &ended, err);
    }
    if (rc != 0 || ended) {
        serve = serve_stop(serve);
    } else {
        announce(serve);
    }
    if (rc == 0)
        *ret = serve;
    return rc;
}

const char *serve_address(const struct serve *serve, size_t i)
{
    return i < serve->address_count ? serve->bound[i] : NULL;
}

/* --- the end
 * --------------------------------------------------------------------------------------------- */

static void stop_done(struct engine_event *event)
{
    (void)event; /* it lives in struct serve, which outlives the engine's run */
}

struct serve *serve_stop(struct serve *serve)
{
    if (!serve)
        return NULL;
    signals_end_at_once();
    serve->probe = probe_stop(serve->probe);
    struct kafka_in *in = atomic_load(&serve->kafka_in);
    kafka_in_end(in);
    serve->retention = retention_stop(serve->retention);
    if (serve->rpc) {
        log_line(LOG_INFO, "stopping", "grace_ms", log_fmt("%" PRId64, serve->grace_ms), NULL);
        rpc_server_drain(serve->rpc, serve->grace_ms);
        rpc_server_stop(serve->rpc, serve->grace_ms); /* it asks the ingest whether it is ready */
    }
    kafka_in_stop(in, serve->grace_ms < KAFKA_STOP_MS ? serve->grace_ms : KAFKA_STOP_MS);
    if (serve->thread_runs) {
        serve->stop = (struct engine_event){ .kind = ENGINE_STOP, .done = stop_done };
        if (!engine_post_always(serve->engine, &serve->stop))
            log_line(LOG_WARN, "the engine had stopped by itself", NULL);
        (void)pthread_join(serve->thread, NULL); /* ours, joined once */
    }
    /* Behind the engine: also what its last commits have written may leave. */
    serve->outbox = outbox_stop(serve->outbox, serve->grace_ms < OUTBOX_GRACE_MS ? serve->grace_ms
                                                                                 : OUTBOX_GRACE_MS);
    serve->engine = engine_free(serve->engine);
    (void)kafka_in_free(in);
    serve->store = store_pg_free(serve->store);
    if (serve->rpc)
        log_line(LOG_INFO, "stopped", NULL);
    mem_free(serve->bound);
    mem_free(serve->addresses);
    mem_free(serve);
    return NULL;
}
