#include "cache.h"
#include "effect_log.h"
#include "fulfilment.h"
#include "order_books.h"

#include <mysql.h>
#include <stdio.h>
#include <string.h>

static void conn_p(MYSQL **conn)
{
    if (*conn)
        mysql_close(*conn);
}

static void result_p(MYSQL_RES **result)
{
    mysql_free_result(*result);
}

static void cache_p(struct cache **cache)
{
    *cache = cache_free(*cache);
}

/* --- the shop --------------------------------------------------------------------------------- */

static enum order_state state_of(const char *name)
{
    static const char *const names[] = {
        [ORDER_PENDING] = "PENDING",         [ORDER_CONFIRMED] = "CONFIRMED",
        [ORDER_HANDED_OVER] = "HANDED_OVER", [ORDER_CANCELLED] = "CANCELLED",
        [ORDER_WITHDRAWN] = "WITHDRAWN",
    };
    for (size_t i = ORDER_PENDING; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return (enum order_state)i;
    return ORDER_MISSING;
}

/* Orders beyond the run are in the table, too: nothing may have happened to them. */
static void take_order(struct order_books *books, char **row)
{
    int number = story_number_of(&fulfilment_story, books->count, row[0]);
    enum order_state state = state_of(row[1]);
    int64_t confirmed = strtoll(row[2], NULL, 10), cancelled = strtoll(row[3], NULL, 10);
    int64_t handed_over = strtoll(row[4], NULL, 10);
    if (!number) {
        books->strangers += confirmed > 0 || cancelled > 0 || handed_over > 0;
        return;
    }
    struct order_record *record = &books->records[number];
    record->state = state;
    record->confirmed = confirmed;
    record->cancelled = cancelled;
    record->handed_over = handed_over;
    record->parcels = strtoll(row[5], NULL, 10);
    record->has_waybill = *row[6] != '\0';
}

static void take_picks(struct order_books *books, char **row)
{
    int number = story_number_of(&fulfilment_story, books->count, row[0]);
    if (!number) {
        books->strangers++;
        return;
    }
    books->records[number].picked = strtoll(row[1], NULL, 10);
    books->records[number].put_back = strtoll(row[2], NULL, 10);
}

static int read_rows(MYSQL *conn, const char *sql, void (*take)(struct order_books *, char **),
                     struct order_books *books, struct err *err)
{
    CLEANUP(result_p)
    MYSQL_RES *result = mysql_query(conn, sql) ? NULL : mysql_store_result(conn);
    if (!result)
        return err_set(err, ERR_UNAVAILABLE, "shop: %s", mysql_error(conn));
    for (MYSQL_ROW row = mysql_fetch_row(result); row; row = mysql_fetch_row(result))
        take(books, row);
    return 0;
}

int order_books_read_shop(struct order_books *books, const char *socket, struct err *err)
{
    CLEANUP(conn_p) MYSQL *conn = mysql_init(NULL);
    if (!conn)
        return err_set(err, ERR_NOMEM, "shop");
    if (!mysql_real_connect(conn, NULL, "worker", "", "shop", 0, socket, 0))
        return err_set(err, ERR_UNAVAILABLE, "shop: %s", mysql_error(conn));
    int rc = read_rows(conn,
                       "SELECT order_id, state, confirmed, cancelled, handed_over,"
                       " coalesce(parcels, 0), coalesce(waybill, '') FROM orders",
                       take_order, books, err);
    if (!rc)
        rc = read_rows(conn,
                       "SELECT order_id, sum(kind = 'PICKED'), sum(kind = 'PUT_BACK')"
                       " FROM warehouse.picks GROUP BY order_id",
                       take_picks, books, err);
    return rc;
}

/* --- logistics -------------------------------------------------------------------------------- */

static bool take_effect(void *ctx, const char *what, const char *order_id)
{
    struct order_books *books = ctx;
    int number = story_number_of(&fulfilment_story, books->count, order_id);
    if (!number)
        books->strangers++;
    else if (strcmp(what, "CREATED") == 0)
        books->records[number].waybills_made++;
    else if (strcmp(what, "CANCELLED") == 0)
        books->records[number].waybills_cancelled++;
    else
        return false;
    return true;
}

int order_books_read_log(struct order_books *books, const char *path, struct err *err)
{
    return effect_log_read(path, take_effect, books, err);
}

/* --- the cache -------------------------------------------------------------------------------- */

int order_books_read_cache(struct order_books *books, const char *socket, struct client *client,
                           const struct sagas *sagas, struct err *err)
{
    CLEANUP(cache_p) struct cache *cache = NULL;
    int rc = cache_create(socket, 1, &cache, err);
    for (int number = 1; !rc && number <= books->count; number++) {
        struct order_record *record = &books->records[number];
        char id[STORY_ID_SIZE], value[128] = "";
        story_id_format(&fulfilment_story, number, id);
        rc = cache_read(cache, id, value, sizeof value, err);
        record->cached = *value != '\0';
        if (rc || record->cached ||
            record->saga.state != SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED)
            continue;
        struct saga_step step;
        rc = sagas_step(client, sagas, number, "warm_cache", &step, err);
        record->cache_left_out =
            !rc && (step.state == SAGA__V1__STEP_STATE__STEP_STATE_LEFT_OUT ||
                    step.state == SAGA__V1__STEP_STATE__STEP_STATE_UNCONFIRMED);
    }
    return rc;
}
