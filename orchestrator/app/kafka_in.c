#include "app/kafka_in.h"

#include "base/mem.h"
#include "kafka/ingest.h"

#include <string.h>

enum { OPEN_MAX = 8 }; /* events that the engine has not taken up: beyond, the ingest waits */

struct kafka_in {
    struct kafka_ingest *ingest;
    struct engine *engine;
    atomic_int open;
    atomic_bool closed;
    bool left_behind; /* a thread of it did not end, and may call back */
};

struct started {
    struct engine_started event;
    struct kafka_in *in;
    struct uuid uids[];
};

static void started_done(struct engine_event *event)
{
    struct started *started =
        CONTAINER(CONTAINER(event, struct engine_started, event), struct started, event);
    atomic_fetch_sub(&started->in->open, 1);
    mem_free(started);
}

static bool on_started(void *ctx, const struct uuid *uids, size_t count)
{
    struct kafka_in *in = ctx;
    if (atomic_load(&in->closed) || atomic_load(&in->open) >= OPEN_MAX)
        return false;
    struct started *started = mem_calloc(1, sizeof *started + count * sizeof *uids);
    if (!started)
        return false;
    if (count)
        memcpy(started->uids, uids, count * sizeof *uids);
    started->in = in;
    started->event = (struct engine_started){
        .event = { .kind = ENGINE_STARTED, .done = started_done },
        .uids = started->uids,
        .count = count,
    };
    atomic_fetch_add(&in->open, 1);
    if (engine_post(in->engine, &started->event.event))
        return true;
    started_done(&started->event.event);
    return false;
}

int kafka_in_start(const struct kafka_in_options *options, struct kafka_in **ret, struct err *err)
{
    const struct config *config = options->config;
    if (!config->rule_count) {
        *ret = NULL;
        return 0;
    }
    struct kafka_in *in = mem_calloc(1, sizeof *in);
    if (!in)
        return err_set(err, ERR_NOMEM, "Kafka: out of memory");
    in->engine = options->engine;
    const struct kafka_ingest_options ingest_options = {
        .rules = (const struct kafka_rule *const *)config->rules,
        .rule_count = config->rule_count,
        .brokers = config_text(config, CONFIG_KAFKA_BROKERS),
        .properties = &config->kafka,
        .conninfo = options->conninfo,
        .node = options->node,
        .clock = &clock_system,
        .rng_seed = options->rng_seed,
        .key_memory_ms = config_number(config, CONFIG_KEY_MEMORY),
        .started = on_started,
        .ctx = in,
    };
    if (kafka_ingest_start(&ingest_options, &in->ingest, err)) {
        mem_free(in);
        return (int)err->code;
    }
    *ret = in;
    return 0;
}

bool kafka_in_is_ready(const struct kafka_in *in)
{
    return kafka_ingest_is_ready(in->ingest);
}

void kafka_in_end(struct kafka_in *in)
{
    if (in)
        kafka_ingest_end(in->ingest);
}

void kafka_in_stop(struct kafka_in *in, int64_t grace_ms)
{
    if (!in)
        return;
    in->left_behind = !kafka_ingest_stop(in->ingest, grace_ms);
    atomic_store(&in->closed, true);
}

struct kafka_in *kafka_in_free(struct kafka_in *in)
{
    if (in && !in->left_behind)
        mem_free(in);
    return NULL;
}
