#include "store/load.h"

#include "store/decode.h"

#include <string.h>

size_t load_stmts(const struct load_group *group, enum stmt_id ret[LOAD_STMTS_MAX])
{
    switch (group->kind) {
    case STORE_LOAD_UID:
        ret[0] = STMT_LOAD_ROWS;
        ret[1] = STMT_LOAD_ENTRIES;
        return 2;
    case STORE_LOAD_KEY:
        ret[0] = STMT_LOAD_KEYS;
        ret[1] = STMT_LOAD_KEY_ROWS;
        ret[2] = STMT_LOAD_KEY_ENTRIES;
        return 3;
    case STORE_OWN:
        ret[0] = STMT_OWN;
        return 1;
    case STORE_LOAD_DEFINITION:
        ret[0] = STMT_LOAD_DEFINITION;
        return 1;
    default: /* STORE_START: the key alone */
        ret[0] = STMT_LOAD_KEYS;
        return 1;
    }
}

static void put_key(struct params *params, const struct store_op *op)
{
    const struct saga_row *row = op->kind == STORE_START ? saga_row(op->saga) : NULL;
    const char *namespace_ = row ? row->namespace_ : op->namespace_;
    const char *definition = row ? row->definition : op->definition;
    const char *saga_id = row ? row->saga_id : op->saga_id;
    params_int2(params, store_shard(namespace_, definition, saga_id));
    params_text(params, namespace_);
    params_text(params, definition);
    params_text(params, saga_id);
}

static void put_after(struct params *params, const struct store_op *op)
{
    static const struct uuid zero;
    params_int2(params, op->from_start ? -1 : uuid_shard(&op->after));
    params_uuid(params, op->from_start ? &zero : &op->after);
    params_int8(params, (int64_t)op->limit);
}

void load_fill(struct params *params, const struct load_group *group, enum stmt_id stmt)
{
    params_start(params, &stmts[stmt]);
    for (size_t i = 0; i < group->count; i++) {
        const struct store_op *op = group->ops[i];
        params_seek(params, 0);
        switch (group->kind) {
        case STORE_LOAD_UID:
            params_int2(params, uuid_shard(&op->uid));
            params_uuid(params, &op->uid);
            break;
        case STORE_OWN:
            params_text(params, group->node);
            put_after(params, op);
            break;
        case STORE_LOAD_DEFINITION:
            params_text(params, op->namespace_);
            params_text(params, op->definition);
            params_int4(params, op->revision);
            break;
        default:
            put_key(params, op);
            break;
        }
    }
}

static void fail(struct store_op *op, const struct err *err)
{
    store_op_done(op);
    op->result = STORE_FAILED;
    op->err = *err;
}

/* The operation that a row belongs to; NULL if it failed before (or the ordinal is nonsense). */
static struct store_op *op_of(const struct load_group *group, int64_t n)
{
    size_t index = (size_t)(n - 1);
    if (index >= group->count || group->ops[index]->result == STORE_FAILED)
        return NULL;
    return group->ops[index];
}

static void take_rows(const struct load_group *group, const PGresult *result)
{
    int rows = PQntuples(result);
    for (int row = 0; row < rows; row++) {
        struct err err = { 0 };
        struct store_op *op = op_of(group, decode_ordinal(result, row));
        if (!op)
            continue;
        op->sagas = mem_calloc(1, sizeof *op->sagas);
        if (!op->sagas)
            (void)err_set(&err, ERR_NOMEM, "load saga");
        if (!op->sagas || decode_saga(result, row, &op->sagas->row, &err) != 0) {
            fail(op, &err);
            continue;
        }
        op->sagas->mine = decode_mine(result, row, group->node);
        op->saga_count = 1;
        op->now_ms = decode_now_ms(result, row);
    }
}

static void take_entries(const struct load_group *group, const PGresult *result)
{
    int rows = PQntuples(result);
    int first = 0;
    while (first < rows) {
        int64_t n = decode_ordinal(result, first);
        int end = first + 1;
        while (end < rows && decode_ordinal(result, end) == n)
            end++;
        struct store_op *op = op_of(group, n);
        struct err err = { 0 };
        if (op && op->saga_count > 0 &&
            decode_entries(result, first, end - first, op->sagas, &err) != 0)
            fail(op, &err);
        first = end;
    }
}

static void take_keys(const struct load_group *group, const PGresult *result)
{
    for (int row = 0; row < PQntuples(result); row++) {
        struct store_op *op = op_of(group, decode_ordinal(result, row));
        struct err err = { 0 };
        if (!op)
            continue;
        if (decode_key(result, row, &op->key, &err) != 0) {
            fail(op, &err);
            continue;
        }
        op->now_ms = decode_now_ms(result, row);
        op->result = group->kind == STORE_START ? STORE_EXISTS : STORE_OK;
    }
}

static void take_uids(const struct load_group *group, const PGresult *result)
{
    struct store_op *op = group->ops[0];
    struct err err = { 0 };
    op->result = STORE_OK;
    if (decode_uids(result, op, &op->now_ms, &err) != 0)
        fail(op, &err);
}

static void take_definition(const struct load_group *group, const PGresult *result)
{
    struct store_op *op = group->ops[0];
    if (PQntuples(result) == 0)
        return;
    struct err err = { 0 };
    struct columns columns = { .result = result, .table = "definition_revision", .err = &err };
    op->revision = columns_int4(&columns);
    op->now_ms = columns_time_ms(&columns);
    op->content = columns_bytes(&columns);
    op->descriptors = columns_bytes(&columns);
    op->paused = columns_bool(&columns);
    op->pause_reason = columns_text(&columns);
    if (columns.failed) {
        fail(op, &err);
        return;
    }
    op->result = STORE_OK;
}

void load_take(const struct load_group *group, enum stmt_id stmt, const PGresult *result)
{
    switch (stmt) {
    case STMT_LOAD_KEYS:
        take_keys(group, result);
        break;
    case STMT_LOAD_ROWS:
    case STMT_LOAD_KEY_ROWS:
        take_rows(group, result);
        break;
    case STMT_OWN:
        take_uids(group, result);
        break;
    case STMT_LOAD_DEFINITION:
        take_definition(group, result);
        break;
    default:
        take_entries(group, result);
        break;
    }
}

void load_settle(const struct load_group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct store_op *op = group->ops[i];
        if (op->result != STORE_PENDING)
            continue;
        if (op->saga_count > 0)
            op->result = STORE_OK;
        else /* a START whose key was there and is gone again: decide anew */
            op->result = group->kind == STORE_START ? STORE_LOST : STORE_NOT_FOUND;
    }
}
