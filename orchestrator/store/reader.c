#include "store/reader_internal.h"

#include "store/connect.h"
#include "store/sqlstate.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

int store_reader_new(const char *conninfo, struct store_reader **ret, struct err *err)
{
    struct connect connect;
    if (connect_prepare(conninfo, CONNECT_READER, &connect, err) != 0)
        return (int)err->code;
    connect_done(&connect);
    struct store_reader *reader = mem_calloc(1, sizeof *reader);
    char *copy = mem_strdup(conninfo);
    if (!reader || !copy) {
        mem_free(reader);
        mem_free(copy);
        return err_set(err, ERR_NOMEM, "reader");
    }
    reader->conninfo = copy;
    *ret = reader;
    return 0;
}

struct store_reader *store_reader_free(struct store_reader *reader)
{
    if (!reader)
        return NULL;
    PQfinish(reader->conn);
    params_done(&reader->params);
    mem_free(reader->conninfo);
    mem_free(reader);
    return NULL;
}

static int prepare(PGconn *conn, const struct stmt *table, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct stmt *stmt = &table[i];
        CLEANUP(connect_clear_p)
        PGresult *result = PQprepare(conn, stmt->name, stmt->sql, stmt->nparams, stmt->types);
        if (PQresultStatus(result) != PGRES_COMMAND_OK) {
            (void)sqlstate_classify(result, stmt->name, err);
            return (int)err->code;
        }
    }
    return 0;
}

static int ensure_connected(struct store_reader *reader, struct err *err)
{
    if (reader->conn && PQstatus(reader->conn) == CONNECTION_OK &&
        PQtransactionStatus(reader->conn) == PQTRANS_IDLE)
        return 0;
    PQfinish(TAKE(reader->conn));
    CLEANUP(connect_finish_p) PGconn *conn = NULL;
    if (connect_blocking(reader->conninfo, CONNECT_READER, &conn, err) != 0)
        return (int)err->code;
    if (prepare(conn, read_stmts, READ_COUNT, err) != 0 ||
        prepare(conn, kafka_stmts, KAFKA_STMT_COUNT, err) != 0 ||
        prepare(conn, find_stmts, FIND_COUNT, err) != 0 ||
        prepare(conn, handler_stmts, HANDLER_STMT_COUNT, err) != 0 ||
        prepare(conn, people_stmts, PEOPLE_RERUN, err) != 0 ||
        prepare(conn, &stmts[STMT_LOAD_ROWS], 2, err) != 0)
        return (int)err->code;
    reader->conn = TAKE(conn);
    reader->has_rerun = false;
    return 0;
}

int reader_prepare_rerun(struct store_reader *reader, struct err *err)
{
    if (!reader->has_rerun && prepare(reader->conn, &people_stmts[PEOPLE_RERUN], 1, err) != 0)
        return (int)err->code;
    reader->has_rerun = true;
    return 0;
}

/* Closes the session if the error says that it is of no use any more. */
static int failed(struct store_reader *reader, const PGresult *result, const char *what,
                  struct err *err)
{
    enum fault fault = sqlstate_classify(result, what, err);
    if (fault == FAULT_CONNECTION || PQstatus(reader->conn) != CONNECTION_OK)
        PQfinish(TAKE(reader->conn));
    return (int)err->code;
}

int reader_command(struct store_reader *reader, const char *sql, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = PQexec(reader->conn, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        return failed(reader, result, sql, err);
    if (strcmp(sql, "COMMIT") == 0 && strcmp(PQcmdStatus(result), "COMMIT") != 0)
        return err_set(err, ERR_CONFLICT, "COMMIT was answered %s", PQcmdStatus(result));
    return 0;
}

struct params *reader_start(struct store_reader *reader, enum read_stmt_id id)
{
    params_start(&reader->params, &read_stmts[id]);
    return &reader->params;
}

struct params *reader_start_kafka(struct store_reader *reader, enum kafka_stmt_id id)
{
    params_start(&reader->params, &kafka_stmts[id]);
    return &reader->params;
}

struct params *reader_start_find(struct store_reader *reader, enum find_stmt_id id)
{
    params_start(&reader->params, &find_stmts[id]);
    return &reader->params;
}

struct params *reader_start_people(struct store_reader *reader, enum people_stmt_id id)
{
    params_start(&reader->params, &people_stmts[id]);
    return &reader->params;
}

int reader_execute(struct store_reader *reader, PGresult **ret_result, struct err *err)
{
    PGresult *result = params_exec(&reader->params, reader->conn);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        if (!result)
            (void)err_set(err, ERR_NOMEM, "%s", reader->params.stmt->name);
        else
            (void)failed(reader, result, reader->params.stmt->name, err);
        PQclear(result);
        return (int)err->code;
    }
    *ret_result = result;
    return 0;
}

static int try_once(struct store_reader *reader, reader_fn *fn, void *ctx, struct err *err)
{
    if (ensure_connected(reader, err) != 0)
        return (int)err->code;
    int rc = fn(reader, ctx, err);
    struct err ignored; /* the first error is the one to tell */
    if (rc != 0 && reader->conn && PQtransactionStatus(reader->conn) != PQTRANS_IDLE &&
        reader_command(reader, "ROLLBACK", &ignored) != 0)
        PQfinish(TAKE(reader->conn));
    return rc;
}

int reader_with_connection(struct store_reader *reader, reader_fn *fn, void *ctx, struct err *err)
{
    bool was_open = reader->conn != NULL;
    int rc = try_once(reader, fn, ctx, err);
    bool lost = rc != 0 && was_open && !reader->conn;
    return lost ? try_once(reader, fn, ctx, err) : rc;
}

/* --- one saga ------------------------------------------------------------------------------- */

struct get {
    const struct store_ref *ref;
    bool entries, content;
    int64_t after_seq;
    size_t limit;
    struct store_saga saga;
    struct bytes definition;
};

int reader_resolve(struct store_reader *reader, const struct store_ref *ref, struct uuid *ret,
                   struct err *err)
{
    if (ref->by_uid) {
        *ret = ref->uid;
        return 0;
    }
    struct params *params = reader_start(reader, READ_RESOLVE);
    params_int2(params, store_shard(ref->namespace_, ref->definition, ref->saga_id));
    params_text(params, ref->namespace_);
    params_text(params, ref->definition);
    params_text(params, ref->saga_id);
    params_int4(params, ref->run);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = reader_execute(reader, &result, err);
    if (rc != 0)
        return rc;
    if (PQntuples(result) == 0)
        return err_set(err, ERR_NOT_FOUND, "no saga \"%s\" of %s/%s", ref->saga_id, ref->namespace_,
                       ref->definition);
    struct columns columns = { .result = result, .table = "saga_key", .err = err };
    bool present;
    struct uuid uid = columns_uuid(&columns, &present);
    if (columns.failed) {
        assert(err->code != ERR_OK);
        return (int)err->code;
    }
    *ret = uid;
    return 0;
}

static int get_row(struct store_reader *reader, struct get *get, const struct uuid *uid,
                   struct err *err)
{
    struct params *params = reader_start(reader, READ_ROW);
    params_int2(params, uuid_shard(uid));
    params_uuid(params, uid);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    if (PQntuples(result) == 0) {
        const struct store_ref *ref = get->ref;
        char text[UUID_TEXT_SIZE];
        uuid_format(uid, text);
        if (!ref->by_uid) /* of the same snapshot */
            return err_reason(err, ERR_NOT_FOUND, "PURGED",
                              "saga \"%s\" of %s/%s (%s) has ended and was purged", ref->saga_id,
                              ref->namespace_, ref->definition, text);
        return err_set(err, ERR_NOT_FOUND, "no saga %s", text);
    }
    return decode_saga(result, 0, &get->saga.row, err);
}

static int get_entries(struct store_reader *reader, struct get *get, const struct uuid *uid,
                       struct err *err)
{
    struct params *params = reader_start(reader, READ_ENTRIES);
    params_int2(params, uuid_shard(uid));
    params_uuid(params, uid);
    params_int8(params, get->after_seq);
    params_int8(params, get->limit > INT_MAX ? INT_MAX : (int64_t)get->limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    return decode_entries(result, 0, PQntuples(result), &get->saga, err);
}

static int get_content(struct store_reader *reader, struct get *get, struct err *err)
{
    const struct saga_row *row = &get->saga.row;
    struct params *params = reader_start(reader, READ_CONTENT);
    params_text(params, row->namespace_);
    params_text(params, row->definition);
    params_int4(params, row->revision);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    if (PQntuples(result) == 0)
        return err_set(err, ERR_INTERNAL, "revision %d of %s/%s is not stored", row->revision,
                       row->namespace_, row->definition);
    struct columns columns = { .result = result, .table = "definition_revision", .err = err };
    get->definition = columns_bytes(&columns);
    return columns.failed ? (int)err->code : 0;
}

/* Row and journal of one snapshot. */
static int get_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct get *get = ctx;
    struct uuid uid = { { 0 } };
    store_saga_done(&get->saga); /* of a first try that broke */
    mem_free(TAKE(get->definition.data));
    if (reader_command(reader, control_stmts[CONTROL_BEGIN_READ].sql, err) != 0 ||
        reader_resolve(reader, get->ref, &uid, err) != 0 || get_row(reader, get, &uid, err) != 0 ||
        (get->entries && get_entries(reader, get, &uid, err) != 0) ||
        (get->content && get_content(reader, get, err) != 0))
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

static int get_all(struct store_reader *reader, struct get *get, struct store_saga *ret_saga,
                   struct bytes *ret_definition, struct err *err)
{
    if (reader_with_connection(reader, get_run, get, err) != 0) {
        store_saga_done(&get->saga);
        mem_free(get->definition.data);
        return (int)err->code;
    }
    *ret_saga = get->saga;
    if (ret_definition)
        *ret_definition = get->definition;
    return 0;
}

int store_reader_get(struct store_reader *reader, const struct store_ref *ref,
                     struct store_saga *ret_saga, struct bytes *ret_definition, struct err *err)
{
    struct get get = { .ref = ref, .entries = true, .content = true, .limit = INT_MAX };
    return get_all(reader, &get, ret_saga, ret_definition, err);
}

int store_reader_get_row(struct store_reader *reader, const struct store_ref *ref,
                         struct store_saga *ret_saga, struct err *err)
{
    struct get get = { .ref = ref };
    return get_all(reader, &get, ret_saga, NULL, err);
}

int store_reader_journal(struct store_reader *reader, const struct store_ref *ref,
                         int64_t after_seq, size_t limit, struct store_saga *ret_saga,
                         struct bytes *ret_definition, struct err *err)
{
    struct get get = {
        .ref = ref, .entries = true, .content = true, .after_seq = after_seq, .limit = limit
    };
    return get_all(reader, &get, ret_saga, ret_definition, err);
}

/* --- what has changed ----------------------------------------------------------------------- */

struct versions {
    const struct uuid *uids;
    size_t count;
    struct store_version *ret;
};

static int versions_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct versions *versions = ctx;
    struct params *params = reader_start(reader, READ_VERSIONS);
    for (size_t i = 0; i < versions->count; i++) {
        params_seek(params, 0);
        params_int2(params, uuid_shard(&versions->uids[i]));
        params_uuid(params, &versions->uids[i]);
        versions->ret[i] = (struct store_version){ 0 };
    }
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = { .result = result, .row = row, .table = "saga", .err = err };
        int64_t n = columns_int8(&columns);
        struct store_version version = { .present = true };
        version.state = columns_saga_state(&columns);
        version.entries = columns_int8(&columns);
        version.ended = columns_int8(&columns);
        if (columns.failed)
            return (int)err->code;
        assert(n >= 1 && (size_t)n <= versions->count);
        versions->ret[n - 1] = version;
    }
    return 0;
}

int store_reader_versions(struct store_reader *reader, const struct uuid *uids, size_t count,
                          struct store_version *ret, struct err *err)
{
    struct versions versions = { uids, count, ret };
    return reader_with_connection(reader, versions_run, &versions, err);
}
