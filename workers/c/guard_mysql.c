/* One guarded transaction on MySQL or MariaDB, and what its end means for the task. The statements
 * are those of sql/guard/mysql.sql, which says why they are as they are; and, in place of 3 and 4
 * for an action that comes for the first time, one that says what those two would say then. */
#include "guard.h"

#include "base/mem.h"

#include <errmsg.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    STATEMENT_PARAMS_MAX = 12,
    ANSWER_SIZE = 16,
    ROLLED_BACK_DURING_COMMIT = 3101, /* of MySQL's group replication; MariaDB has no name for it */
};

enum param { NAMESPACE, DEFINITION, SAGA_ID, RUN, STEP, OPERATION, FENCE, STARTED, EVEN, OUTPUT };
enum { PARAM_COUNT = OUTPUT + 1 };

enum statement_id {
    ENTER_FIRST,
    BLOCK_ACTION,
    CLAIM,
    ASK_ACTION,
    ASK_COMPENSATION,
    DONE,
    NO_EFFECT,
    UNBLOCK,
    STATEMENT_COUNT
};

#define KEY_COLUMNS "(namespace, definition, saga_id, run, step, operation, fence, state, "
#define THE_FLOOR   "(SELECT floor_us FROM saga_guard_floor WHERE only_row = 1 LOCK IN SHARE MODE)"
#define THIS_STEP   "namespace = ? AND definition = ? AND saga_id = ? AND run = ? AND step = ?"

static const struct statement {
    const char *sql;
    unsigned count;
    enum param params[STATEMENT_PARAMS_MAX];
} statements[] = {
    [ENTER_FIRST] = { "INSERT INTO saga_guard " KEY_COLUMNS "saga_started_us)"
                      " SELECT ?, ?, ?, ?, ?, 'ACTION', ?, 'ENTERED', ? FROM saga_guard_floor"
                      " WHERE only_row = 1 AND floor_us <= ? LOCK IN SHARE MODE",
                      8,
                      { NAMESPACE, DEFINITION, SAGA_ID, RUN, STEP, FENCE, STARTED, STARTED } },
    [BLOCK_ACTION] = { "INSERT INTO saga_guard " KEY_COLUMNS "saga_started_us)"
                       " VALUES (?, ?, ?, ?, ?, 'ACTION', ?, 'BLOCKED', ?)"
                       " ON DUPLICATE KEY UPDATE state = CASE state WHEN 'DONE' THEN 'UNDONE'"
                       " WHEN 'SEEN' THEN 'BLOCKED' ELSE state END",
                       7,
                       { NAMESPACE, DEFINITION, SAGA_ID, RUN, STEP, FENCE, STARTED } },
    [CLAIM] = { "INSERT INTO saga_guard " KEY_COLUMNS "saga_started_us)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, 'ENTERED', ?)"
                " ON DUPLICATE KEY UPDATE state = CASE WHEN state = 'ENTERED' THEN 'LEFT_OPEN'"
                " WHEN state = 'SEEN' AND fence <= ? THEN 'ENTERED' ELSE state END,"
                " fence = GREATEST(fence, ?)",
                10,
                { NAMESPACE, DEFINITION, SAGA_ID, RUN, STEP, OPERATION, FENCE, STARTED, FENCE,
                  FENCE } },
    [ASK_ACTION] = { "SELECT CASE WHEN state IN ('UNDONE', 'BLOCKED') THEN 'REFUSED'"
                     " WHEN state = 'DONE' THEN 'DUPLICATE'"
                     " WHEN state = 'LEFT_OPEN' THEN 'LEFT_OPEN'"
                     " WHEN fence > ? OR saga_started_us < " THE_FLOOR " THEN 'STALE'"
                     " ELSE 'PROCEED' END AS answer, output"
                     " FROM saga_guard WHERE " THIS_STEP " AND operation = 'ACTION' FOR UPDATE",
                     6,
                     { FENCE, NAMESPACE, DEFINITION, SAGA_ID, RUN, STEP } },
    [ASK_COMPENSATION] = { "SELECT CASE WHEN own.state = 'DONE' THEN 'DUPLICATE'"
                           " WHEN own.state = 'LEFT_OPEN' OR action.state IN ('ENTERED', "
                           "'LEFT_OPEN') THEN 'LEFT_OPEN'"
                           " WHEN GREATEST(own.fence, action.fence) > ? OR own.saga_started_us "
                           "< " THE_FLOOR " THEN 'STALE'"
                           " WHEN action.state = 'BLOCKED' AND NOT ? THEN 'EMPTY'"
                           " ELSE 'PROCEED' END AS answer, own.output"
                           " FROM saga_guard action JOIN saga_guard own USING (namespace, "
                           "definition, saga_id, run, step)"
                           " WHERE " THIS_STEP
                           " AND action.operation = 'ACTION' AND own.operation = 'COMPENSATION'"
                           " FOR UPDATE",
                           7,
                           { FENCE, EVEN, NAMESPACE, DEFINITION, SAGA_ID, RUN, STEP } },
    [DONE] = { "UPDATE saga_guard SET state = 'DONE', output = ?"
               " WHERE " THIS_STEP " AND operation = ? AND state = 'ENTERED'",
               7,
               { OUTPUT, NAMESPACE, DEFINITION, SAGA_ID, RUN, STEP, OPERATION } },
    [NO_EFFECT] = { "UPDATE saga_guard SET state = 'SEEN'"
                    " WHERE " THIS_STEP " AND operation = ? AND state = 'ENTERED'",
                    6,
                    { NAMESPACE, DEFINITION, SAGA_ID, RUN, STEP, OPERATION } },
    [UNBLOCK] = { "UPDATE saga_guard SET state = 'DONE'"
                  " WHERE " THIS_STEP " AND operation = 'ACTION' AND state = 'UNDONE'",
                  5,
                  { NAMESPACE, DEFINITION, SAGA_ID, RUN, STEP } },
};

struct saga_guard_mysql {
    MYSQL *conn;                           /* borrowed */
    MYSQL_STMT *prepared[STATEMENT_COUNT]; /* NULL: not yet */
};

/* A run of the guard: the values of all statements' parameters, and what it was told. */
struct call {
    struct saga_task *task;
    struct saga_guard_mysql *guard;
    MYSQL *conn; /* the guard's */
    bool compensates;
    int32_t run;
    int64_t fence, started_us;
    signed char even;
    MYSQL_BIND params[PARAM_COUNT];
    uint8_t *output; /* owned: the output that the guard keeps */
    unsigned long output_size;
};

/* They are gone with their connection; whatever else made one fail, the next try prepares it anew.
 */
static void forget_statements(struct saga_guard_mysql *guard)
{
    for (size_t i = 0; i < STATEMENT_COUNT; i++) {
        if (guard->prepared[i])
            (void)mysql_stmt_close(guard->prepared[i]); /* the connection says what goes wrong */
        guard->prepared[i] = NULL;
    }
}

int saga_guard_mysql_new(MYSQL *conn, struct saga_guard_mysql **ret_guard)
{
    struct saga_guard_mysql *guard = mem_calloc(1, sizeof *guard);
    if (!guard)
        return -1;
    guard->conn = conn;
    *ret_guard = guard;
    return 0;
}

struct saga_guard_mysql *saga_guard_mysql_free(struct saga_guard_mysql *guard)
{
    if (guard)
        forget_statements(guard);
    mem_free(guard);
    return NULL;
}

static void bind_bytes(MYSQL_BIND *bind, enum enum_field_types type, const void *data, size_t size)
{
    bind->buffer_type = type;
    bind->buffer = (void *)(uintptr_t)data; /* libmariadb does not write to parameters */
    bind->buffer_length = (unsigned long)size;
}

static void bind_text(MYSQL_BIND *bind, const char *text)
{
    bind_bytes(bind, MYSQL_TYPE_STRING, text, strlen(text));
}

static void call_fill(struct call *call, struct saga_task *task, struct saga_guard_mysql *guard,
                      const struct saga_guard_options *options)
{
    memset(call, 0, sizeof *call);
    call->task = task;
    call->guard = guard;
    call->conn = guard->conn;
    call->compensates = saga_task_operation(task) == SAGA_COMPENSATION;
    call->run = saga_task_run(task);
    call->fence = saga_task_fence(task);
    call->started_us = saga_task_started_at_us(task);
    call->even = options && options->even_without_action;
    bind_text(&call->params[NAMESPACE], saga_task_namespace(task));
    bind_text(&call->params[DEFINITION], saga_task_definition(task));
    /* Bytes: not to be converted, whatever the connection's character set is. */
    const char *saga_id = saga_task_saga_id(task);
    bind_bytes(&call->params[SAGA_ID], MYSQL_TYPE_BLOB, saga_id, strlen(saga_id));
    bind_bytes(&call->params[RUN], MYSQL_TYPE_LONG, &call->run, sizeof call->run);
    bind_text(&call->params[STEP], saga_task_step(task));
    bind_text(&call->params[OPERATION], call->compensates ? "COMPENSATION" : "ACTION");
    bind_bytes(&call->params[FENCE], MYSQL_TYPE_LONGLONG, &call->fence, sizeof call->fence);
    bind_bytes(&call->params[STARTED], MYSQL_TYPE_LONGLONG, &call->started_us,
               sizeof call->started_us);
    bind_bytes(&call->params[EVEN], MYSQL_TYPE_TINY, &call->even, sizeof call->even);
    bind_bytes(&call->params[OUTPUT], MYSQL_TYPE_BLOB, "", 0);
}

/* The client says it, not the server: the connection is lost, or a result on it was never read (for
 * which the client has no number). */
static bool is_of_client(unsigned error)
{
    return error == 0 || IS_MYSQL_ERROR(error) || IS_MARIADB_ERROR(error);
}

static bool is_lost(MYSQL *conn)
{
    unsigned error = mysql_errno(conn);
    return error == CR_SERVER_GONE_ERROR || error == CR_SERVER_LOST;
}

/* Something failed before COMMIT: whatever the reason, nothing took effect. */
static void set_retry_of(struct saga_task *task, unsigned error, const char *message)
{
    char code[32] = "GUARD_CONNECTION";
    if (!is_of_client(error))
        (void)snprintf(code, sizeof code, "GUARD_MYSQL_%u", error);
    guard_set_retry(task, code, message);
}

/* False: it failed, for which a client has not always a number. */
static bool try_statement(struct call *call, enum statement_id id)
{
    const struct statement *statement = &statements[id];
    MYSQL_STMT **stmt = &call->guard->prepared[id];
    MYSQL_BIND params[STATEMENT_PARAMS_MAX];
    for (unsigned i = 0; i < statement->count; i++)
        params[i] = call->params[statement->params[i]];
    bool is_new = !*stmt;
    if (is_new)
        *stmt = mysql_stmt_init(call->conn);
    return *stmt &&
           (!is_new || !mysql_stmt_prepare(*stmt, statement->sql, strlen(statement->sql))) &&
           !mysql_stmt_bind_param(*stmt, params) && !mysql_stmt_execute(*stmt);
}

static void set_retry_of_statement(struct call *call, enum statement_id id)
{
    MYSQL_STMT *stmt = call->guard->prepared[id];
    if (stmt)
        set_retry_of(call->task, mysql_stmt_errno(stmt), mysql_stmt_error(stmt));
    else
        guard_set_retry(call->task, "GUARD_CONNECTION", "memory is out");
    forget_statements(call->guard);
}

/* NULL: the outcome is RETRY. */
static MYSQL_STMT *run_statement(struct call *call, enum statement_id id)
{
    if (try_statement(call, id))
        return call->guard->prepared[id];
    set_retry_of_statement(call, id);
    return NULL;
}

static bool execute(struct call *call, enum statement_id id)
{
    return run_statement(call, id) != NULL;
}

/* For the statements that belong to an enter: without its row they do nothing. */
static bool execute_on_entered(struct call *call, enum statement_id id)
{
    MYSQL_STMT *stmt = run_statement(call, id);
    if (!stmt)
        return false;
    if (mysql_stmt_affected_rows(stmt) == 1)
        return true;
    guard_set_retry(call->task, "GUARD_NOT_ENTERED", "the row of this transaction's enter is gone");
    return false;
}

/* The one row of an ask: the word, and the output into call->output. */
static bool read_answer(struct call *call, MYSQL_STMT *stmt, char word[ANSWER_SIZE])
{
    unsigned long word_size = 0;
    my_bool is_null = 0;
    MYSQL_BIND columns[2];
    memset(columns, 0, sizeof columns);
    columns[0] = (MYSQL_BIND){ .buffer_type = MYSQL_TYPE_STRING,
                               .buffer = word,
                               .buffer_length = ANSWER_SIZE - 1,
                               .length = &word_size };
    columns[1] = (MYSQL_BIND){ .buffer_type = MYSQL_TYPE_BLOB,
                               .length = &call->output_size,
                               .is_null = &is_null };
    if (mysql_stmt_bind_result(stmt, columns) || mysql_stmt_store_result(stmt))
        return false;
    int rc = mysql_stmt_fetch(stmt); /* truncated: the output, which has no room yet */
    if ((rc != 0 && rc != MYSQL_DATA_TRUNCATED) || word_size >= ANSWER_SIZE)
        return false;
    word[word_size] = '\0';
    if (is_null)
        call->output_size = 0;
    if (call->output_size == 0)
        return true;
    mem_free(call->output);
    call->output = mem_calloc(1, call->output_size);
    columns[1].buffer = call->output;
    columns[1].buffer_length = call->output_size;
    return call->output && !mysql_stmt_fetch_column(stmt, &columns[1], 1, 0);
}

/* The statements 2 to 4. ANSWER_NONE: the outcome is RETRY. */
static enum guard_answer ask(struct call *call)
{
    enum statement_id question = call->compensates ? ASK_COMPENSATION : ASK_ACTION;
    char word[ANSWER_SIZE];
    if ((call->compensates && !execute(call, BLOCK_ACTION)) || !execute(call, CLAIM))
        return ANSWER_NONE;
    MYSQL_STMT *stmt = run_statement(call, question);
    if (!stmt)
        return ANSWER_NONE;
    if (read_answer(call, stmt, word)) {
        (void)mysql_stmt_free_result(stmt); /* is stored here already */
        return guard_answer_of(call->task, word);
    }
    set_retry_of(call->task, mysql_stmt_errno(stmt),
                 mysql_stmt_errno(stmt) ? mysql_stmt_error(stmt) : "the guard gave no answer");
    forget_statements(call->guard);
    return ANSWER_NONE;
}

static bool in_transaction(MYSQL *conn)
{
    unsigned status = 0;
    (void)mariadb_get_infov(conn, MARIADB_CONNECTION_SERVER_STATUS, &status); /* knows it */
    return (status & SERVER_STATUS_IN_TRANS) != 0;
}

/* Leaves no transaction open: what cannot be rolled back is cut off, and the server rolls it back.
 */
static void roll_back(MYSQL *conn)
{
    if (in_transaction(conn) && mysql_query(conn, "ROLLBACK AND NO CHAIN NO RELEASE") != 0)
        (void)shutdown(mysql_get_socket(conn), SHUT_RDWR); /* fails only where it is gone already */
}

/* False: it is not certain that it stands, and the outcome says so. */
static bool commit(struct call *call)
{
    if (mysql_query(call->conn, "COMMIT AND NO CHAIN NO RELEASE") == 0)
        return true;
    unsigned error = mysql_errno(call->conn);
    if (error == ER_LOCK_DEADLOCK || error == ROLLED_BACK_DURING_COMMIT)
        set_retry_of(call->task, error, mysql_error(call->conn));
    else
        guard_set_unknown(call->task, "GUARD_COMMIT_UNKNOWN", mysql_error(call->conn));
    return false;
}

static void set_reconnect(MYSQL *conn, my_bool on)
{
    (void)mysql_options(conn, MYSQL_OPT_RECONNECT, &on); /* sets a flag */
}

/* A new connection in place of one that is lost. The first call only forgets the transaction that
 * was open on it, if one was. */
static bool connect_again(struct saga_guard_mysql *guard)
{
    MYSQL *conn = guard->conn;
    forget_statements(guard);
    set_reconnect(conn, 1);
    bool connected = false;
    for (int i = 0; i < 2 && !connected; i++)
        connected = mariadb_reconnect(conn) == 0;
    set_reconnect(conn, 0);
    return connected;
}

static bool begin(struct saga_task *task, struct saga_guard_mysql *guard)
{
    MYSQL *conn = guard->conn;
    set_reconnect(conn, 0);
    /* The flag is as old as the server's last good answer: a deadlock or a lost connection has
     * ended a transaction without telling. */
    if (in_transaction(conn) && mysql_query(conn, "DO 0") == 0 && in_transaction(conn)) {
        guard_set_retry(task, "GUARD_CONNECTION_IN_USE", "the connection is inside a transaction");
        return false;
    }
    static const char start[] = "START TRANSACTION";
    bool started =
        mysql_query(conn, start) == 0 ||
        (is_of_client(mysql_errno(conn)) && connect_again(guard) && !mysql_query(conn, start));
    if (!started)
        set_retry_of(task, mysql_errno(conn), mysql_error(conn));
    else if (!in_transaction(conn))
        guard_set_retry(task, "GUARD_NO_TRANSACTION", "the server opened no transaction");
    else
        return true;
    return false;
}

/* In the transaction that was begun. ANSWER_NONE: the outcome is RETRY. */
static enum guard_answer enter(struct call *call)
{
    if (call->compensates)
        return ask(call);
    bool tried = try_statement(call, ENTER_FIRST);
    MYSQL_STMT *stmt = call->guard->prepared[ENTER_FIRST];
    if (tried && mysql_stmt_affected_rows(stmt) == 1)
        return PROCEED;
    if (!tried && (!stmt || mysql_stmt_errno(stmt) != ER_DUP_ENTRY)) {
        set_retry_of_statement(call, ENTER_FIRST);
        return ANSWER_NONE;
    }
    /* It was here before, or is below the floor. In a new transaction: the row is locked, but
     * shared, and two that then want it for themselves are a deadlock. */
    roll_back(call->conn);
    return begin(call->task, call->guard) ? ask(call) : ANSWER_NONE;
}

static bool is_set(const struct saga_task *task, Saga__V1__Outcome kind)
{
    return task->outcome.kind == kind;
}

/* The statement 5 and COMMIT, for PROCEED and EMPTY. */
static bool finish(struct call *call)
{
    return execute_on_entered(call, DONE) && commit(call);
}

/* An answer of enter after which there is no body to run. */
static void settle(struct call *call, enum guard_answer answer)
{
    if (answer == REFUSED || answer == STALE || answer == LEFT_OPEN)
        guard_set_refusal(call->task, answer);
    else if (answer == EMPTY && finish(call))
        guard_set_done(call->task);
    else if (answer == DUPLICATE && commit(call))
        guard_set_stored(call->task, call->output, call->output_size);
}

/* The body said no. The fence is remembered before REJECTED is reported, so that an older holder
 * that wakes up later is stale; if that fails the whole is a RETRY, which is as true. */
static void record_no_effect(struct call *call)
{
    struct saga_task *task = call->task;
    struct task_outcome rejected = task->outcome;
    memset(&task->outcome, 0, sizeof task->outcome);
    if (begin(task, call->guard)) {
        enum guard_answer answer = enter(call);
        if (answer != PROCEED) {
            settle(call, answer);
        } else if (execute_on_entered(call, NO_EFFECT) &&
                   (!call->compensates || execute(call, UNBLOCK))) {
            if (commit(call)) {
                task->outcome = rejected;
                return;
            }
            guard_set_retry(task, "GUARD_CONNECTION", mysql_error(call->conn));
        }
    }
    task_outcome_clear(&rejected);
}

static void proceed(struct call *call, saga_guard_mysql_body *body, void *ctx)
{
    struct saga_task *task = call->task;
    int rc = body(task, call->conn, ctx);
    bool unset = is_set(task, SAGA__V1__OUTCOME__OUTCOME_UNSPECIFIED);
    bool done = is_set(task, SAGA__V1__OUTCOME__OUTCOME_DONE);
    /* On a lost connection nothing can have been done after the transaction, which is rolled back.
     */
    if (!in_transaction(call->conn) && !is_lost(call->conn)) {
        guard_set_unknown(task, "GUARD_BODY_COMMITTED", "the body ended the guard's transaction");
        return;
    }
    if (rc == 0 && (unset || done)) {
        const struct bytes *output = &task->outcome.output;
        bind_bytes(&call->params[OUTPUT], MYSQL_TYPE_BLOB, output->size ? (void *)output->data : "",
                   output->size);
        if (finish(call) && unset)
            guard_set_done(task);
        return;
    }
    if (unset || done || is_set(task, SAGA__V1__OUTCOME__OUTCOME_ALREADY_DONE))
        guard_set_retry(task, "GUARD_BODY_FAILED", mysql_error(call->conn));
    roll_back(call->conn);
    if (is_set(task, SAGA__V1__OUTCOME__OUTCOME_REJECTED))
        record_no_effect(call);
}

void saga_guard_mysql_run(struct saga_task *task, struct saga_guard_mysql *guard,
                          const struct saga_guard_options *options, saga_guard_mysql_body *body,
                          void *ctx)
{
    task_outcome_clear(&task->outcome);
    if (saga_task_operation(task) == SAGA_PROBE) {
        guard_set_unknown(task, "GUARD_PROBE", "the guard is for actions and compensations");
        return;
    }
    if (!begin(task, guard))
        return;
    struct call call;
    call_fill(&call, task, guard, options);
    enum guard_answer answer = enter(&call);
    if (answer == PROCEED)
        proceed(&call, body, ctx);
    else
        settle(&call, answer);
    roll_back(guard->conn); /* nothing to do where it was committed */
    mem_free(call.output);
}
