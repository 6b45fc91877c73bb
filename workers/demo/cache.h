/* The cache of the shop's pages: Redis, behind a pool of few connections. Nobody's order depends on
 * it. thread: any number. */
#ifndef DEMO_CACHE_H
#define DEMO_CACHE_H

#include "base/err.h"

struct cache;

enum cache_result {
    CACHE_WRITTEN,
    CACHE_EXHAUSTED, /* every connection was in use: nothing was sent */
    CACHE_AWAY,      /* no connection that answers: nothing was sent */
    CACHE_REFUSED,   /* Redis answered with an error: it did nothing */
    CACHE_UNKNOWN,   /* no answer: it may be written */
};

struct cache_outcome {
    enum cache_result result;
    char message[160];
};

/* `socket` is that of Redis. Connects when it is first used. */
MUST_USE int cache_create(const char *socket, int connections, struct cache **ret, struct err *err);
struct cache *cache_free(struct cache *cache); /* not in use; NULL is fine */
/* "order:ORDER_ID" gets this value, for an hour. Waits for a connection, but not long. */
struct cache_outcome cache_write(struct cache *cache, const char *order_id, const char *value);
/* The value, cut to `size` - 1 bytes; "" when there is none. For the audit. */
MUST_USE int cache_read(struct cache *cache, const char *order_id, char *ret_value, size_t size,
                        struct err *err);

#endif
