/* The ingest (kafka/ingest.h) beside the engine, which hears from it which sagas it has started.
 * thread: the main thread, except where it says so. */
#ifndef APP_KAFKA_IN_H
#define APP_KAFKA_IN_H

#include "app/config.h"
#include "engine/engine.h"

struct kafka_in;

struct kafka_in_options { /* borrowed until kafka_in_free */
    const struct config *config;
    const char *conninfo;
    const char *node;      /* which has joined */
    struct engine *engine; /* until kafka_in_stop has returned */
    uint64_t rng_seed;
};
/* *ret NULL and 0: there are no rules. */
MUST_USE int kafka_in_start(const struct kafka_in_options *options, struct kafka_in **ret,
                            struct err *err);
/* thread: any */
bool kafka_in_is_ready(const struct kafka_in *in);
/* Nothing more is started; returns at once. NULL is fine, here and below. */
void kafka_in_end(struct kafka_in *in);
/* The same, and waits for its threads, at most about grace_ms. The engine still runs. */
void kafka_in_stop(struct kafka_in *in, int64_t grace_ms);
/* When the engine has run out. Returns NULL. */
struct kafka_in *kafka_in_free(struct kafka_in *in);

#endif
