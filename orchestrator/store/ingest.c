/* What is no batch: the rule, its definition, cursors, what is seen, what is asked for. */
#include "store/ingest_internal.h"

#include <stdio.h>
#include <string.h>

/* A call of one statement that was filled: `rc` of opening, then runs it. */
static int run_one(struct store_ingest *ingest, struct err *err)
{
    return ingest_close(ingest, ingest_run(ingest, err), err);
}

/* What was filled changes one row, or it is another's by now. */
static int run_mine(struct store_ingest *ingest, const char *what, struct err *err)
{
    int rc = ingest_run(ingest, err);
    if (rc == 0 && PQntuples(ingest_result(ingest, 0)) == 0)
        rc = err_set(err, ERR_CONFLICT, "%s: it is another node's by now", what);
    return ingest_close(ingest, rc, err);
}

/* --- the rule ------------------------------------------------------------------------------- */

static int take_wanted(struct store_ingest *ingest, struct store_ingest_wanted *ret,
                       struct err *err)
{
    const PGresult *result = ingest_result(ingest, 0);
    if (PQntuples(result) == 0)
        return err_set(err, ERR_NOT_FOUND, "the rule %s has no row", ingest->rule);
    struct columns columns = { .result = result, .table = "kafka_rule", .err = err };
    struct store_ingest_wanted wanted = { 0 };
    wanted.run = columns_bool(&columns);
    wanted.has_request = columns_bool(&columns);
    wanted.has_replay = columns_bool(&columns);
    if (columns.failed)
        return (int)err->code;
    *ret = wanted;
    return 0;
}

int store_ingest_rule(struct store_ingest *ingest, const struct store_ingest_rule *rule,
                      struct store_ingest_wanted *ret, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start_rule(ingest, INGEST_RULE);
    params_text(params, rule->group_id);
    params_text(params, rule->namespace_);
    params_text(params, rule->definition);
    if (rule->topic_retention_ms >= -1)
        params_int8(params, rule->topic_retention_ms);
    else
        params_null(params);
    params_bool(params, rule->topic_compacted);
    params_int8(params, rule->key_memory_ms);
    params_text(params, rule->problem);
    params_text(params, ingest->node);
    int rc = ingest_run(ingest, err);
    if (rc == 0)
        rc = take_wanted(ingest, ret, err);
    return ingest_close(ingest, rc, err);
}

int store_ingest_wanted(struct store_ingest *ingest, struct store_ingest_wanted *ret,
                        struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start(ingest, &ingest_stmts[INGEST_WANTED]);
    params_text(params, ingest->rule);
    int rc = ingest_run(ingest, err);
    if (rc == 0)
        rc = take_wanted(ingest, ret, err);
    return ingest_close(ingest, rc, err);
}

void store_ingest_definition_done(struct store_ingest_definition *definition)
{
    mem_free(definition->content.data);
    mem_free(definition->descriptors.data);
    mem_free(definition->pause_reason);
    *definition = (struct store_ingest_definition){ 0 };
}

static int take_definition(const PGresult *result, struct store_ingest_definition *ret,
                           struct err *err)
{
    struct columns columns = { .result = result, .table = "definition_revision", .err = err };
    struct store_ingest_definition definition = { .revision = columns_int4(&columns) };
    (void)columns_borrow(&columns); /* now() */
    definition.content = columns_bytes(&columns);
    definition.descriptors = columns_bytes(&columns);
    definition.paused = columns_bool(&columns);
    definition.pause_reason = columns_text(&columns);
    if (columns.failed) {
        store_ingest_definition_done(&definition);
        return (int)err->code;
    }
    *ret = definition;
    return 0;
}

int store_ingest_definition(struct store_ingest *ingest, const char *namespace_, const char *name,
                            struct store_ingest_definition *ret, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start(ingest, &stmts[STMT_LOAD_DEFINITION]);
    params_text(params, namespace_);
    params_text(params, name);
    params_int4(params, 0);
    int rc = ingest_run(ingest, err);
    if (rc == 0 && PQntuples(ingest_result(ingest, 0)) == 0)
        rc = err_set(err, ERR_NOT_FOUND, "no definition %s/%s", namespace_, name);
    if (rc == 0)
        rc = take_definition(ingest_result(ingest, 0), ret, err);
    return ingest_close(ingest, rc, err);
}

int store_ingest_running(struct store_ingest *ingest, const char *namespace_, const char *name,
                         int64_t bound, int64_t *ret, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start(ingest, &ingest_stmts[INGEST_RUNNING]);
    params_text(params, namespace_);
    params_text(params, name);
    params_int8(params, bound);
    int rc = ingest_run(ingest, err);
    if (rc == 0) {
        struct columns columns = { .result = ingest_result(ingest, 0),
                                   .table = "saga",
                                   .err = err };
        int64_t count = columns_int8(&columns);
        rc = columns.failed ? (int)err->code : 0;
        *ret = rc == 0 ? count : *ret;
    }
    return ingest_close(ingest, rc, err);
}

int store_ingest_held(struct store_ingest *ingest, const char *const *handlers, size_t count,
                      char **ret, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start(ingest, &ingest_stmts[INGEST_HELD]);
    for (size_t i = 0; i < count; i++) {
        params_seek(params, 0);
        params_text(params, handlers[i]);
    }
    int rc = ingest_run(ingest, err);
    if (rc == 0) {
        struct columns columns = { .result = ingest_result(ingest, 0),
                                   .table = "handler",
                                   .err = err };
        char *held = PQntuples(columns.result) ? columns_text(&columns) : NULL;
        rc = columns.failed ? (int)err->code : 0;
        *ret = rc == 0 ? held : *ret;
    }
    return ingest_close(ingest, rc, err);
}

/* --- cursors -------------------------------------------------------------------------------- */

void store_ingest_cursors_done(struct store_ingest_cursor *cursors, size_t count)
{
    for (size_t i = 0; cursors && i < count; i++) {
        mem_free(cursors[i].stop_reason);
        mem_free(cursors[i].stop_message);
    }
    mem_free(cursors);
}

static struct store_ingest_cursor take_cursor(struct columns *columns)
{
    struct store_ingest_cursor cursor = { 0 };
    cursor.partition = columns_int4(columns);
    cursor.next_offset = columns_int8(columns);
    cursor.has_before = columns_bool(columns);
    cursor.before.offset = columns_int8(columns);
    cursor.before.time_ms = columns_int8(columns);
    cursor.before.crc = (uint32_t)columns_int8(columns);
    cursor.suspect_until = columns_int8(columns);
    cursor.stopped = columns_bool(columns);
    cursor.stop_reason = columns_text(columns);
    cursor.stop_message = columns_text(columns);
    cursor.stop_from = columns_int8(columns);
    cursor.stop_to = columns_int8(columns);
    return cursor;
}

static int take_cursors(const PGresult *result, struct store_ingest_cursor **ret, size_t *ret_count,
                        struct err *err)
{
    size_t count = (size_t)PQntuples(result);
    struct store_ingest_cursor *cursors = mem_calloc(count + 1, sizeof *cursors);
    if (!cursors)
        return err_set(err, ERR_NOMEM, "cursors");
    for (size_t i = 0; i < count; i++) {
        struct columns columns = {
            .result = result, .row = (int)i, .table = "kafka_cursor", .err = err
        };
        cursors[i] = take_cursor(&columns);
        if (columns.failed) {
            store_ingest_cursors_done(cursors, i + 1);
            return (int)err->code;
        }
    }
    *ret = cursors;
    *ret_count = count;
    return 0;
}

int store_ingest_cursors(struct store_ingest *ingest, struct store_ingest_cursor **ret,
                         size_t *ret_count, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    (void)ingest_start_rule(ingest, INGEST_CURSORS);
    int rc = ingest_run(ingest, err);
    if (rc == 0)
        rc = take_cursors(ingest_result(ingest, 0), ret, ret_count, err);
    return ingest_close(ingest, rc, err);
}

int store_ingest_create(struct store_ingest *ingest, const struct store_ingest_begin *begins,
                        size_t count, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start_rule(ingest, INGEST_CREATE);
    for (size_t i = 0; i < count; i++) {
        params_seek(params, 2);
        params_int4(params, begins[i].partition);
        params_int8(params, begins[i].next_offset);
    }
    return run_one(ingest, err);
}

int store_ingest_stop(struct store_ingest *ingest, const struct store_ingest_stop *stop,
                      bool *ret_stopped, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start_rule(ingest, INGEST_STOP);
    params_int4(params, stop->partition);
    params_int8(params, stop->next_offset);
    params_text(params, stop->reason);
    params_text(params, stop->message);
    params_int8(params, stop->from);
    params_int8(params, stop->to);
    int rc = ingest_run(ingest, err);
    if (rc == 0)
        *ret_stopped = PQntuples(ingest_result(ingest, 0)) > 0;
    return ingest_close(ingest, rc, err);
}

static void put_known(struct params *params, int64_t value)
{
    if (value >= 0)
        params_int8(params, value);
    else
        params_null(params);
}

int store_ingest_seen(struct store_ingest *ingest, const struct store_ingest_seen *seen,
                      size_t count, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    /* Both of one exchange: one transaction. */
    int rc = ingest_control(ingest, &ingest_stmts[INGEST_LAZY], err);
    if (rc != 0)
        return ingest_close(ingest, rc, err);
    struct params *params = ingest_start_rule(ingest, INGEST_SEEN);
    params_text(params, ingest->node);
    for (size_t i = 0; i < count; i++) {
        params_seek(params, 3);
        params_int4(params, seen[i].partition);
        put_known(params, seen[i].low_offset);
        put_known(params, seen[i].end_offset);
        params_text(params, seen[i].paused_why);
        params_int8(params, (int64_t)(seen[i].rate_per_s * 1000));
    }
    return run_one(ingest, err);
}

int store_ingest_known(struct store_ingest *ingest, const char *namespace_, const char *definition,
                       const char *const *saga_ids, size_t count, bool *ret, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start(ingest, &stmts[STMT_LOAD_KEYS]);
    for (size_t i = 0; i < count; i++) {
        params_seek(params, 0);
        params_int2(params, store_shard(namespace_, definition, saga_ids[i]));
        params_text(params, namespace_);
        params_text(params, definition);
        params_text(params, saga_ids[i]);
        ret[i] = false;
    }
    int rc = ingest_run(ingest, err);
    for (int row = 0; rc == 0 && row < PQntuples(ingest_result(ingest, 0)); row++) {
        int64_t n = decode_ordinal(ingest_result(ingest, 0), row);
        if (n >= 1 && (size_t)n <= count)
            ret[n - 1] = true;
    }
    return ingest_close(ingest, rc, err);
}

/* --- requests ------------------------------------------------------------------------------- */

void store_ingest_request_done(struct store_ingest_request *request)
{
    mem_free(request->group);
    mem_free(request->actor);
    mem_free(request->reason);
    *request = (struct store_ingest_request){ 0 };
}

static int take_request(const PGresult *result, struct store_ingest_request *ret, struct err *err)
{
    struct columns columns = { .result = result, .table = "kafka_request", .err = err };
    bool present;
    struct store_ingest_request request = { .id = columns_uuid(&columns, &present) };
    const char *kind = columns_borrow(&columns);
    request.last = columns_int8(&columns);
    request.group = columns_text(&columns);
    request.actor = columns_text(&columns);
    request.reason = columns_text(&columns);
    if (!columns.failed && kind && strcmp(kind, "CHECK") == 0)
        request.kind = INGEST_CHECK;
    else if (!columns.failed && kind && strcmp(kind, "TAKEOVER") == 0 && request.group)
        request.kind = INGEST_TAKEOVER;
    else if (!columns.failed)
        columns.failed = err_set(err, ERR_INTERNAL, "kafka_request: nothing to do for %s",
                                 kind ? kind : "NULL") != 0;
    if (columns.failed) {
        store_ingest_request_done(&request);
        return (int)err->code;
    }
    *ret = request;
    return 0;
}

int store_ingest_take(struct store_ingest *ingest, int64_t lease_ms,
                      struct store_ingest_request *ret, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start(ingest, &ingest_stmts[INGEST_TAKE]);
    params_text(params, ingest->rule);
    params_text(params, ingest->node);
    params_int8(params, lease_ms);
    int rc = ingest_run(ingest, err);
    if (rc == 0 && PQntuples(ingest_result(ingest, 0)) == 0)
        rc = err_set(err, ERR_NOT_FOUND, "nothing is asked of the rule %s", ingest->rule);
    if (rc == 0)
        rc = take_request(ingest_result(ingest, 0), ret, err);
    return ingest_close(ingest, rc, err);
}

static struct params *start_request(struct store_ingest *ingest, enum ingest_stmt_id id,
                                    const struct uuid *request)
{
    struct params *params = ingest_start(ingest, &ingest_stmts[id]);
    params_uuid(params, request);
    params_text(params, ingest->node);
    return params;
}

int store_ingest_progress(struct store_ingest *ingest, const struct uuid *id, int64_t progress,
                          int64_t total, int64_t lease_ms, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = start_request(ingest, INGEST_PROGRESS, id);
    params_int8(params, progress);
    params_int8(params, total);
    params_int8(params, lease_ms);
    return run_mine(ingest, "progress", err);
}

static void put_finish(struct store_ingest *ingest, const struct uuid *id, const char *result,
                       const struct err *failure)
{
    struct params *params = start_request(ingest, INGEST_FINISH, id);
    char error[sizeof(struct err)]; /* reason and message, and what stands between them */
    if (failure)
        (void)snprintf(error, sizeof error, "%s%s%s", failure->reason,
                       failure->reason[0] ? ": " : "", failure->msg);
    params_text(params, result);
    params_text(params, failure ? error : NULL);
}

int store_ingest_finish(struct store_ingest *ingest, const struct uuid *id, const char *result,
                        const struct err *failure, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    put_finish(ingest, id, result, failure);
    return run_mine(ingest, "finish", err);
}

/* The request first: it is locked, so it is still this node's at the commit. */
static int takeover_run(struct store_ingest *ingest, const struct uuid *id,
                        const struct store_ingest_takeover *parts, size_t count, const char *result,
                        struct err *err)
{
    if (ingest_control(ingest, &control_stmts[CONTROL_BEGIN], err) != 0)
        return (int)err->code;
    put_finish(ingest, id, result, NULL);
    if (ingest_send(ingest, err) != 0)
        return (int)err->code;
    params_text(ingest_start(ingest, &ingest_stmts[INGEST_TAKEOVER_RULE]), ingest->rule);
    if (ingest_send(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start_rule(ingest, INGEST_TAKEOVER_CURSORS);
    for (size_t i = 0; i < count; i++) {
        params_seek(params, 2);
        params_int4(params, parts[i].partition);
        params_int8(params, parts[i].next_offset);
        params_int8(params, parts[i].suspect_until);
    }
    if (ingest_run(ingest, err) != 0)
        return (int)err->code;
    if (PQntuples(ingest_result(ingest, 1)) == 0)
        return err_set(err, ERR_CONFLICT, "takeover: the request is another node's by now");
    if (PQntuples(ingest_result(ingest, 2)) == 0)
        return err_reason(err, ERR_PRECONDITION, "RULE_RUNS",
                          "the rule %s runs: stop it before it takes over", ingest->rule);
    return ingest_commit(ingest, err);
}

int store_ingest_takeover(struct store_ingest *ingest, const struct uuid *id,
                          const struct store_ingest_takeover *parts, size_t count,
                          const char *result, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    return ingest_close(ingest, takeover_run(ingest, id, parts, count, result, err), err);
}
