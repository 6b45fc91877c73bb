#include "shop.h"

#include "base/mem.h"

#include <mysql.h>
#include <string.h>

enum { CONNECT_SECONDS = 3, ANSWER_SECONDS = 8 /* below the attempt's time */ };

struct shop_conn { /* of a thread; NULL: not yet */
    MYSQL *conn;
    struct saga_guard_mysql *guard;
};

struct shop {
    char *socket;
    int threads;
    struct shop_conn conns[]; /* by saga_task_thread: each thread touches its own alone */
};

int shop_create(const char *socket, int threads, struct shop **ret, struct err *err)
{
    struct shop *shop = mem_calloc(1, sizeof *shop + (size_t)threads * sizeof(struct shop_conn));
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
            conn_close(&shop->conns[i]);
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
static bool conn_open(struct saga_task *task, const struct shop *shop, struct shop_conn *conn)
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
    if (!mysql_real_connect(conn->conn, NULL, "worker", "", "shop", 0, shop->socket, 0)) {
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

/* Runs one statement about the order. Gives the number of rows that it changed, or -1 with the
 * outcome set: the transaction is lost and nothing took effect. */
static int64_t execute(struct saga_task *task, MYSQL *conn, const char *sql)
{
    const char *order_id = saga_task_saga_id(task);
    MYSQL_BIND bind = { .buffer_type = MYSQL_TYPE_STRING,
                        .buffer = (void *)(uintptr_t)order_id, /* is only read */
                        .buffer_length = (unsigned long)strlen(order_id) };
    MYSQL_STMT *stmt = mysql_stmt_init(conn);
    bool ok = stmt && mysql_stmt_prepare(stmt, sql, (unsigned long)strlen(sql)) == 0 &&
              mysql_stmt_bind_param(stmt, &bind) == 0 && mysql_stmt_execute(stmt) == 0;
    int64_t rows = ok ? (int64_t)mysql_stmt_affected_rows(stmt) : -1;
    if (!ok)
        (void)saga_task_retry(task, "SHOP_SQL", stmt ? mysql_stmt_error(stmt) : "no memory", 0);
    if (stmt)
        (void)mysql_stmt_close(stmt); /* the connection says what goes wrong */
    return rows;
}

/* --- effects: run by the guard in the open transaction, only after PROCEED -------------------- */

static int confirm(struct saga_task *task, MYSQL *conn, void *ctx)
{
    (void)ctx;
    int64_t rows = execute(task, conn,
                           "UPDATE orders SET state = 'CONFIRMED', confirmed = confirmed + 1"
                           " WHERE order_id = ? AND state IN ('PENDING', 'CONFIRMED')");
    if (rows == 0)
        (void)saga_task_rejected(task, "NOT_PENDING", "there is no order that waits for this");
    return rows == 1 ? 0 : -1;
}

static int cancel(struct saga_task *task, MYSQL *conn, void *ctx)
{
    (void)ctx;
    int64_t rows = execute(task, conn,
                           "UPDATE orders SET state = 'CANCELLED', cancelled = cancelled + 1"
                           " WHERE order_id = ?");
    if (rows == 0)
        (void)saga_task_retry(task, "SHOP_SQL", "the order is gone", 0);
    return rows == 1 ? 0 : -1;
}

/* --- handlers --------------------------------------------------------------------------------- */

static void run_guarded(struct saga_task *task, struct shop *shop, saga_guard_mysql_body *body)
{
    struct shop_conn *conn = &shop->conns[saga_task_thread(task)];
    if (conn_open(task, shop, conn))
        saga_guard_mysql_run(task, conn->guard, NULL, body, NULL);
}

void shop_confirm_order(struct saga_task *task, void *ctx)
{
    run_guarded(task, ctx, confirm);
}

void shop_cancel_order(struct saga_task *task, void *ctx)
{
    run_guarded(task, ctx, cancel);
}
