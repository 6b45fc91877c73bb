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

struct started { /* one block, with all that the event borrows behind it */
    struct engine_started event;
    struct kafka_in *in;
};

static void started_done(struct engine_event *event)
{
    struct started *started =
        CONTAINER(CONTAINER(event, struct engine_started, event), struct started, event);
    atomic_fetch_sub(&started->in->open, 1);
    mem_free(started);
}

static size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static size_t block_size(const struct kafka_started *what)
{
    size_t size = sizeof(struct started) + what->count * sizeof *what->uids;
    if (!what->sagas)
        return size;
    size += what->count * sizeof(struct engine_started_saga) + text_size(what->namespace_) +
            text_size(what->definition);
    for (size_t i = 0; i < what->count; i++)
        size += text_size(what->sagas[i].saga_id) + text_size(what->sagas[i].labels) +
                what->sagas[i].input.size;
    return size;
}

/* Appends to the block. NULL stays NULL. */
static void *put(char **at, const void *data, size_t size)
{
    if (!data || !size)
        return NULL;
    void *there = *at;
    memcpy(there, data, size);
    *at += size;
    return there;
}

static void sagas_put(struct engine_started *event, const struct kafka_started *what, char **at)
{
    struct engine_started_saga *sagas = (void *)*at;
    *at += what->count * sizeof *sagas;
    event->sagas = sagas;
    event->uids = put(at, what->uids, what->count * sizeof *what->uids);
    event->namespace_ = put(at, what->namespace_, text_size(what->namespace_));
    event->definition = put(at, what->definition, text_size(what->definition));
    for (size_t i = 0; i < what->count; i++) {
        const struct kafka_started_saga *from = &what->sagas[i];
        sagas[i].saga_id = put(at, from->saga_id, text_size(from->saga_id));
        sagas[i].labels = put(at, from->labels, text_size(from->labels));
        sagas[i].input =
            (struct bytes){ put(at, from->input.data, from->input.size), from->input.size };
    }
}

static struct started *started_new(struct kafka_in *in, const struct kafka_started *what)
{
    struct started *started = mem_calloc(1, block_size(what));
    if (!started)
        return NULL;
    char *at = (char *)(started + 1);
    started->in = in;
    started->event = (struct engine_started){
        .event = { .kind = ENGINE_STARTED, .done = started_done },
        .count = what->count,
        .revision = what->revision,
        .started_at_ms = what->started_at_ms,
        .deadline_at_ms = what->deadline_at_ms,
        .reconnects = what->mark,
    };
    if (what->sagas)
        sagas_put(&started->event, what, &at);
    else
        started->event.uids = put(&at, what->uids, what->count * sizeof *what->uids);
    return started;
}

static bool on_started(void *ctx, const struct kafka_started *what)
{
    struct kafka_in *in = ctx;
    if (atomic_load(&in->closed) || atomic_load(&in->open) >= OPEN_MAX)
        return false;
    struct started *started = started_new(in, what);
    if (!started)
        return false;
    atomic_fetch_add(&in->open, 1);
    if (engine_post(in->engine, &started->event.event))
        return true;
    started_done(&started->event.event);
    return false;
}

static long long on_mark(void *ctx)
{
    struct kafka_in *in = ctx;
    return atomic_load(&in->closed) ? 0 : atomic_load(&engine_counters(in->engine)->reconnects);
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
        .payload_bytes_max = (size_t)config_number(config, CONFIG_PAYLOAD_BYTES_MAX),
        .started = on_started,
        .mark = on_mark,
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
