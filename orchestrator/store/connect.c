#include "store/connect.h"

#include "base/buf.h"
#include "base/mem.h"
#include "store/sqlstate.h"

#include <string.h>

/* One plan for each statement, by index: the arrays have no statistics, and a plan made for few
 * rows in a small table would stay when it has grown. */
#define PLAN_OPTIONS                                                                               \
    " -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off"          \
    " -c enable_mergejoin=off -c jit=off -c max_parallel_workers_per_gather=0"
#define COMMON_OPTIONS                                                                             \
    " -c search_path=" STORE_SCHEMA " -c TimeZone=UTC -c default_transaction_read_only=off"        \
    " -c default_transaction_isolation=read\\ committed -c client_min_messages=warning"

static const char *const role_options[] = {
    [CONNECT_ENGINE] = PLAN_OPTIONS COMMON_OPTIONS " -c lock_timeout=200 -c statement_timeout=10000"
                                                   " -c idle_in_transaction_session_timeout=10000",
    [CONNECT_READER] =
        PLAN_OPTIONS COMMON_OPTIONS " -c lock_timeout=5000 -c statement_timeout=30000"
                                    " -c idle_in_transaction_session_timeout=60000",
    /* What a crash undoes is done again, and an event then leaves twice: no commit waits for a
       disk. */
    [CONNECT_OUTBOX] = PLAN_OPTIONS COMMON_OPTIONS " -c lock_timeout=1000 -c statement_timeout=5000"
                                                   " -c idle_in_transaction_session_timeout=10000"
                                                   " -c synchronous_commit=off",
    [CONNECT_INGEST] =
        PLAN_OPTIONS COMMON_OPTIONS " -c lock_timeout=1000 -c statement_timeout=10000"
                                    " -c idle_in_transaction_session_timeout=10000",
    /* What a crash undoes is purged again: its commits wait for no disk, and hold up nobody's. */
    [CONNECT_RETENTION] =
        PLAN_OPTIONS COMMON_OPTIONS " -c lock_timeout=1000 -c statement_timeout=20000"
                                    " -c idle_in_transaction_session_timeout=120000"
                                    " -c synchronous_commit=off",
    [CONNECT_ADMIN] = COMMON_OPTIONS " -c statement_timeout=0 -c lock_timeout=0",
};
_Static_assert(LOCK_TIMEOUT_MS == 200, "as in the engine's options");

static const char *const application_names[] = {
    [CONNECT_ENGINE] = "sagad engine",       [CONNECT_READER] = "sagad reader",
    [CONNECT_OUTBOX] = "sagad outbox",       [CONNECT_INGEST] = "sagad ingest",
    [CONNECT_RETENTION] = "sagad retention", [CONNECT_ADMIN] = "sagad",
};

/* Defaults of ours where the user said nothing. */
static const char *default_of(const char *keyword, enum connect_role role)
{
    static const struct {
        const char *keyword, *value;
    } defaults[] = {
        { "client_encoding", "UTF8" },
        { "target_session_attrs", "read-write" },
        { "gssencmode", "disable" },
        { "connect_timeout", "5" }, /* of the blocking ones; in the background a timer of ours */
        { "keepalives_idle", "10" },
        { "keepalives_interval", "5" },
        { "keepalives_count", "3" },
        { "tcp_user_timeout", "15000" },
    };
    if (strcmp(keyword, "application_name") == 0)
        return application_names[role];
    for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
        if (strcmp(keyword, defaults[i].keyword) == 0)
            return defaults[i].value;
    return NULL;
}

static bool is_ours_alone(const char *keyword)
{
    return strcmp(keyword, "client_encoding") == 0;
}

static int fill(struct connect *connect, enum connect_role role, struct err *err)
{
    size_t count = 0;
    for (const PQconninfoOption *option = connect->parsed; option->keyword; option++) {
        const char *given = option->val && *option->val ? option->val : NULL;
        const char *value = given;
        if (!given || is_ours_alone(option->keyword))
            value = default_of(option->keyword, role);
        if (strcmp(option->keyword, "target_session_attrs") == 0 && given &&
            strcmp(given, "any") == 0) /* libpq's default: we only ever write */
            value = "read-write";
        if (strcmp(option->keyword, "options") == 0) {
            struct buf text = { 0 }; /* ours last: they win */
            buf_text(&text, given ? given : "");
            buf_text(&text, role_options[role]);
            if (text.failed) {
                buf_done(&text);
                return err_set(err, ERR_NOMEM, "connect");
            }
            value = connect->options = (char *)text.data;
        }
        if (!value)
            value = given;
        if (!value)
            continue;
        if (count + 1 >= CONNECT_KEYS_MAX)
            return err_set(err, ERR_LIMIT, "conninfo: more than %d settings", CONNECT_KEYS_MAX);
        connect->keys[count] = option->keyword;
        connect->values[count] = value;
        count++;
    }
    connect->keys[count] = connect->values[count] = NULL;
    return 0;
}

int connect_prepare(const char *conninfo, enum connect_role role, struct connect *ret,
                    struct err *err)
{
    char *message = NULL;
    struct connect connect = { .parsed = PQconninfoParse(conninfo, &message) };
    if (!connect.parsed) {
        (void)err_set(err, message ? ERR_INVALID : ERR_NOMEM, "conninfo: %s",
                      message ? message : "no memory");
        PQfreemem(message);
        return (int)err->code;
    }
    if (fill(&connect, role, err) != 0) {
        connect_done(&connect);
        return (int)err->code;
    }
    *ret = connect;
    return 0;
}

void connect_done(struct connect *connect)
{
    PQconninfoFree(connect->parsed);
    mem_free(connect->options);
    *connect = (struct connect){ 0 };
}

int connect_blocking(const char *conninfo, enum connect_role role, PGconn **ret_conn,
                     struct err *err)
{
    struct connect connect;
    if (connect_prepare(conninfo, role, &connect, err) != 0)
        return (int)err->code;
    PGconn *conn = PQconnectdbParams(connect.keys, connect.values, 0);
    connect_done(&connect);
    if (PQstatus(conn) != CONNECTION_OK) {
        (void)sqlstate_connection(conn, "connect", err);
        PQfinish(conn);
        return (int)err->code;
    }
    *ret_conn = conn;
    return 0;
}
