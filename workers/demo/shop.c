#include "shop.h"

#include "base/mem.h"
#include "fulfilment.h"
#include "message.h"
#include "worker_program.h"

#include <inttypes.h>
#include <mysql.h>
#include <stdio.h>
#include <string.h>

enum { CONNECT_SECONDS = 3, ANSWER_SECONDS = 8 /* below the attempt's time */ };

enum database { ORDERS, WAREHOUSE, DATABASES };
static const char *const database_names[DATABASES] = {
    [ORDERS] = "shop", [WAREHOUSE] = "warehouse"
};

struct shop_conn { /* of a thread to a database; NULL: not yet */
    MYSQL *conn;
    struct saga_guard_mysql *guard;
};

struct shop {
    char *socket;
    int threads;
    struct shop_conn conns[]
                          [DATABASES]; /* by saga_task_thread: each thread touches its own alone */
};

int shop_create(const char *socket, int threads, struct shop **ret, struct err *err)
{
    struct shop *shop = mem_calloc(1, sizeof *shop + (size_t)threads * sizeof shop->conns[0]);
    if (!shop)
        return err_set(err, ERR_NOMEM, "shop");
    shop->threads = threads;
    shop->socket = mem_strdup(socket);
    if (!shop->socket || mysql_library_init(0, NULL, NULL) != 0) { /* before there are threads */
        mem_free(shop->socket);
        mem_free(shop);
        return err_set(err, ERR_NOMEM, "shop");
    }
    *ret = shop;
    return 0;
}

static void conn_close(struct shop_conn *conn)
{
    conn->guard = saga_guard_mysql_free(conn->guard);
    if (conn->conn)
        mysql_close(conn->conn);
    conn->conn = NULL;
}

struct shop *shop_free(struct shop *shop)
{
    if (shop) {
        for (int i = 0; i < shop->threads; i++)
            for (int database = 0; database < DATABASES; database++)
                conn_close(&shop->conns[i][database]);
        mysql_library_end();
        mem_free(shop->socket);
        mem_free(shop);
    }
    return NULL;
}

/* The setters below fail only when memory is out; the task is then reported as UNKNOWN, and asking
 * the guard again is safe. */

/* Connects once; a connection that breaks later is made again by the guard's run. False: the
 * outcome is set, nothing was sent. */
static bool conn_open(struct saga_task *task, const struct shop *shop, enum database database,
                      struct shop_conn *conn)
{
    if (conn->guard)
        return true;
    const unsigned connect_s = CONNECT_SECONDS, answer_s = ANSWER_SECONDS;
    conn->conn = mysql_init(NULL);
    if (!conn->conn) {
        (void)saga_task_retry(task, "SHOP_AWAY", "no memory for a connection", 0);
        return false;
    }
    (void)mysql_options(conn->conn, MYSQL_OPT_CONNECT_TIMEOUT, &connect_s); /* known options */
    (void)mysql_options(conn->conn, MYSQL_OPT_READ_TIMEOUT, &answer_s);
    (void)mysql_options(conn->conn, MYSQL_OPT_WRITE_TIMEOUT, &answer_s);
    (void)mysql_options(conn->conn, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    if (!mysql_real_connect(conn->conn, NULL, "worker", "", database_names[database], 0,
                            shop->socket, 0)) {
        (void)saga_task_retry(task, "SHOP_AWAY", mysql_error(conn->conn), 0);
        conn_close(conn);
        return false;
    }
    if (saga_guard_mysql_new(conn->conn, &conn->guard) == 0)
        return true;
    (void)saga_task_retry(task, "SHOP_AWAY", "no memory for the guard", 0);
    conn_close(conn);
    return false;
}

enum { PARAMS_MAX = 3, NUMBER_SIZE = 24 };

/* What a statement changed: rows, and the id of the one that it made. */
struct change {
    int64_t rows, id;
};

/* Runs one statement with these texts (NULL: the SQL value) for its question marks. rows -1: the
 * outcome is set, the transaction is lost and nothing took effect. */
static struct change execute(struct saga_task *task, MYSQL *conn, const char *sql,
                             const char *const texts[PARAMS_MAX])
{
    MYSQL_BIND binds[PARAMS_MAX] = { 0 };
    for (size_t i = 0; i < PARAMS_MAX; i++) {
        binds[i].buffer_type = texts[i] ? MYSQL_TYPE_STRING : MYSQL_TYPE_NULL;
        binds[i].buffer = message_borrow(texts[i]); /* is only read */
        binds[i].buffer_length = texts[i] ? (unsigned long)strlen(texts[i]) : 0;
    }
    struct change change = { .rows = -1 };
    MYSQL_STMT *stmt = mysql_stmt_init(conn);
    if (stmt && mysql_stmt_prepare(stmt, sql, (unsigned long)strlen(sql)) == 0 &&
        mysql_stmt_bind_param(stmt, binds) == 0 && mysql_stmt_execute(stmt) == 0)
        change = (struct change){ (int64_t)mysql_stmt_affected_rows(stmt),
                                  (int64_t)mysql_stmt_insert_id(stmt) };
    else
        (void)saga_task_retry(task, "SHOP_SQL", stmt ? mysql_stmt_error(stmt) : "no memory", 0);
    if (stmt)
        (void)mysql_stmt_close(stmt); /* the connection says what goes wrong */
    return change;
}

static int no_effect_retry(struct saga_task *task, const char *why)
{
    (void)saga_task_retry(task, "SHOP_SQL", why, 0);
    return -1;
}

/* --- effects: run by the guard in the open transaction, only after PROCEED -------------------- */

static int confirm(struct saga_task *task, MYSQL *conn, void *ctx)
{
    const Shop__V1__Order *order = ctx;
    struct change change =
        execute(task, conn,
                "UPDATE orders SET state = 'CONFIRMED', confirmed = confirmed + 1"
                " WHERE order_id = ? AND state IN ('PENDING', 'CONFIRMED')",
                (const char *const[PARAMS_MAX]){ order->order_id });
    if (change.rows == 0)
        (void)saga_task_rejected(task, "NOT_PENDING", "there is no order that waits for this");
    return change.rows == 1 ? 0 : -1;
}

static int cancel(struct saga_task *task, MYSQL *conn, void *ctx)
{
    const Shop__V1__Order *order = ctx;
    struct change change = execute(task, conn,
                                   "UPDATE orders SET state = 'CANCELLED',"
                                   " cancelled = cancelled + 1 WHERE order_id = ?",
                                   (const char *const[PARAMS_MAX]){ order->order_id });
    if (change.rows == 0)
        return no_effect_retry(task, "the order is gone");
    return change.rows == 1 ? 0 : -1;
}

static int pick(struct saga_task *task, MYSQL *conn, void *ctx)
{
    const Shop__V1__Order *order = ctx;
    char count[NUMBER_SIZE];
    (void)snprintf(count, sizeof count, "%" PRId32, order->parcels); /* fits */
    struct change change =
        execute(task, conn, "INSERT INTO picks (order_id, kind, parcels) VALUES (?, 'PICKED', ?)",
                (const char *const[PARAMS_MAX]){ order->order_id, count });
    if (change.rows != 1)
        return -1;
    Shop__V1__Parcels parcels = SHOP__V1__PARCELS__INIT;
    parcels.pick_id = change.id;
    parcels.count = order->parcels;
    return worker_done(task, &parcels.base);
}

/* Without its number, where the answer of the picking was lost, it is the order's only one. */
static int put_back(struct saga_task *task, MYSQL *conn, void *ctx)
{
    const Shop__V1__PutBackRequest *request = ctx;
    char id[NUMBER_SIZE];
    if (request->pick_goods)
        (void)snprintf(id, sizeof id, "%" PRId64, request->pick_goods->pick_id); /* fits */
    struct change change = execute(task, conn,
                                   "INSERT INTO picks (order_id, kind, parcels) SELECT order_id, "
                                   "'PUT_BACK', parcels FROM picks"
                                   " WHERE order_id = ? AND kind = 'PICKED' AND pick_id = "
                                   "coalesce(CAST(? AS SIGNED), pick_id)",
                                   (const char *const[PARAMS_MAX]){
                                       request->input->order_id, request->pick_goods ? id : NULL });
    if (change.rows == 0)
        return no_effect_retry(task, "the pick is gone");
    return change.rows == 1 ? 0 : -1;
}

static int hand_over(struct saga_task *task, MYSQL *conn, void *ctx)
{
    const Shop__V1__HandOverRequest *request = ctx;
    char parcels[NUMBER_SIZE];
    (void)snprintf(parcels, sizeof parcels, "%" PRId32, /* fits */
                   request->pick_goods ? request->pick_goods->count : 0);
    struct change change =
        execute(task, conn,
                "UPDATE orders SET state = 'HANDED_OVER', handed_over = handed_over + 1,"
                " waybill = ?, parcels = ? WHERE order_id = ? AND state = 'CONFIRMED'"
                " AND NOT recalled",
                (const char *const[PARAMS_MAX]){
                    request->create_waybill ? request->create_waybill->number : NULL, parcels,
                    request->input->order_id });
    if (change.rows == 0)
        (void)saga_task_rejected(task, "RECALLED", "the customer does not want it any more");
    return change.rows == 1 ? 0 : -1;
}

/* --- handlers --------------------------------------------------------------------------------- */

bool shop_takes_order(struct saga_task *task, const Shop__V1__Order *order)
{
    struct err err;
    bool takes = fulfilment_check(order, &err) == 0;
    if (!takes)
        (void)saga_task_rejected(task, "BAD_REQUEST", err.msg);
    return takes;
}

/* `request` is what the body gets; it is about `order`. */
static void run_guarded(struct saga_task *task, struct shop *shop, enum database database,
                        const Shop__V1__Order *order, saga_guard_mysql_body *body, void *request)
{
    struct shop_conn *conn = &shop->conns[saga_task_thread(task)][database];
    if (shop_takes_order(task, order) && conn_open(task, shop, database, conn))
        saga_guard_mysql_run(task, conn->guard, NULL, body, request);
}

static void run_on_order(struct saga_task *task, struct shop *shop, enum database database,
                         saga_guard_mysql_body *body)
{
    CLEANUP(message_p) Shop__V1__Order *order = worker_request(task, &shop__v1__order__descriptor);
    if (order)
        run_guarded(task, shop, database, order, body, order);
}

void shop_confirm_order(struct saga_task *task, void *ctx)
{
    run_on_order(task, ctx, ORDERS, confirm);
}

void shop_cancel_order(struct saga_task *task, void *ctx)
{
    run_on_order(task, ctx, ORDERS, cancel);
}

void shop_pick_goods(struct saga_task *task, void *ctx)
{
    run_on_order(task, ctx, WAREHOUSE, pick);
}

void shop_put_back(struct saga_task *task, void *ctx)
{
    CLEANUP(message_p)
    Shop__V1__PutBackRequest *request =
        worker_request(task, &shop__v1__put_back_request__descriptor);
    if (request)
        run_guarded(task, ctx, WAREHOUSE, request->input, put_back, request);
}

void shop_hand_over(struct saga_task *task, void *ctx)
{
    CLEANUP(message_p)
    Shop__V1__HandOverRequest *request =
        worker_request(task, &shop__v1__hand_over_request__descriptor);
    if (request)
        run_guarded(task, ctx, ORDERS, request->input, hand_over, request);
}
