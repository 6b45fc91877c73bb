#include "cache.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    CONNECT_MS = 300,
    ANSWER_MS = 500,
    POOL_WAIT_MS = 100,
    CONNECTIONS_MAX = 64,
};

struct cache {
    char *socket;
    pthread_mutex_t lock;
    pthread_cond_t given_back;
    int free_count;
    redisContext *free[CONNECTIONS_MAX]; /* under lock; NULL: not connected yet */
};

int cache_create(const char *socket, int connections, struct cache **ret, struct err *err)
{
    if (connections < 1 || connections > CONNECTIONS_MAX)
        return err_set(err, ERR_INVALID, "cache: 1 to %d connections", CONNECTIONS_MAX);
    struct cache *cache = mem_calloc(1, sizeof *cache);
    pthread_condattr_t attributes;
    if (!cache)
        return err_set(err, ERR_NOMEM, "cache");
    cache->socket = mem_strdup(socket);
    if (!cache->socket) {
        mem_free(cache);
        return err_set(err, ERR_NOMEM, "cache");
    }
    cache->free_count = connections;
    (void)pthread_mutex_init(&cache->lock, NULL); /* none of these can fail here */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&cache->given_back, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    *ret = cache;
    return 0;
}

struct cache *cache_free(struct cache *cache)
{
    if (cache) {
        for (int i = 0; i < cache->free_count; i++)
            if (cache->free[i])
                redisFree(cache->free[i]);
        (void)pthread_cond_destroy(&cache->given_back); /* nobody waits */
        (void)pthread_mutex_destroy(&cache->lock);
        mem_free(cache->socket);
        mem_free(cache);
    }
    return NULL;
}

/* --- the pool --------------------------------------------------------------------------------- */

/* False: all were in use for as long as anybody waits. */
static bool pool_take(struct cache *cache, redisContext **ret)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* cannot fail for this clock */
    until.tv_nsec += POOL_WAIT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    bool waiting = true;
    (void)pthread_mutex_lock(&cache->lock);
    while (cache->free_count == 0 && waiting)
        waiting = pthread_cond_timedwait(&cache->given_back, &cache->lock, &until) != ETIMEDOUT;
    bool taken = cache->free_count > 0;
    if (taken) {
        *ret = cache->free[--cache->free_count];
        cache->free[cache->free_count] = NULL;
    }
    (void)pthread_mutex_unlock(&cache->lock);
    return taken;
}

/* NULL: it is broken, and is made anew by whoever takes it next. */
static void pool_give(struct cache *cache, redisContext *conn)
{
    (void)pthread_mutex_lock(&cache->lock);
    cache->free[cache->free_count++] = conn;
    (void)pthread_cond_signal(&cache->given_back);
    (void)pthread_mutex_unlock(&cache->lock);
}

static void drop(redisContext **conn)
{
    if (*conn)
        redisFree(*conn);
    *conn = NULL;
}

/* --- talking ---------------------------------------------------------------------------------- */

static struct timeval in_ms(int ms)
{
    return (struct timeval){ .tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000 };
}

static struct cache_outcome outcome_of(enum cache_result result, const char *message)
{
    struct cache_outcome outcome = { .result = result };
    (void)snprintf(outcome.message, sizeof outcome.message, "%s", message); /* a cut text is fine */
    return outcome;
}

static struct cache_outcome outcome_of_silence(enum cache_result result, const redisContext *conn)
{
    return outcome_of(result, conn && conn->err ? conn->errstr : "no connection");
}

/* A connection that answers; what makes CACHE_AWAY certain is that only a PING was sent. */
static bool wake(struct cache *cache, redisContext **conn)
{
    if (!*conn) {
        *conn = redisConnectUnixWithTimeout(cache->socket, in_ms(CONNECT_MS));
        if (!*conn || (*conn)->err || redisSetTimeout(*conn, in_ms(ANSWER_MS)) != REDIS_OK)
            return false;
    }
    redisReply *reply = redisCommand(*conn, "PING");
    bool answers = reply && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    return answers;
}

static struct cache_outcome set(redisContext *conn, const char *order_id, const char *value)
{
    redisReply *reply = redisCommand(conn, "SET order:%s %s EX 3600", order_id, value);
    if (!reply)
        return outcome_of_silence(CACHE_UNKNOWN, conn);
    bool refused = reply->type == REDIS_REPLY_ERROR;
    struct cache_outcome outcome =
        outcome_of(refused ? CACHE_REFUSED : CACHE_WRITTEN, refused ? reply->str : "");
    freeReplyObject(reply);
    return outcome;
}

struct cache_outcome cache_write(struct cache *cache, const char *order_id, const char *value)
{
    redisContext *conn = NULL;
    if (!pool_take(cache, &conn))
        return outcome_of(CACHE_EXHAUSTED, "every connection to the cache is in use");
    struct cache_outcome outcome =
        wake(cache, &conn) ? set(conn, order_id, value) : outcome_of_silence(CACHE_AWAY, conn);
    if (outcome.result == CACHE_AWAY || outcome.result == CACHE_UNKNOWN)
        drop(&conn);
    pool_give(cache, conn);
    return outcome;
}

int cache_read(struct cache *cache, const char *order_id, char *ret_value, size_t size,
               struct err *err)
{
    redisContext *conn = NULL;
    if (!pool_take(cache, &conn))
        return err_set(err, ERR_UNAVAILABLE, "cache: every connection is in use");
    redisReply *reply = wake(cache, &conn) ? redisCommand(conn, "GET order:%s", order_id) : NULL;
    int rc = 0;
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        rc = err_set(err, ERR_UNAVAILABLE, "cache: %s",
                     reply               ? reply->str
                     : conn && conn->err ? conn->errstr
                                         : "no connection");
    else
        (void)snprintf(ret_value, size, "%s", /* cut on purpose */
                       reply->type == REDIS_REPLY_STRING ? reply->str : "");
    freeReplyObject(reply);
    if (rc)
        drop(&conn);
    pool_give(cache, conn);
    return rc;
}
