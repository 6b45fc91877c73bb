#include "store/params.h"

#include "store/sqlstate.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

enum {
    ARRAY_HEADER_BYTES = 20, /* dimensions, has null, element type, length, lower bound */
    KEEP_BYTES_MAX = 64 * 1024,
};

static const struct array_type {
    Oid array, element;
} array_types[] = {
    { OID_BOOL_ARRAY, OID_BOOL }, { OID_BYTEA_ARRAY, OID_BYTEA }, { OID_INT2_ARRAY, OID_INT2 },
    { OID_INT4_ARRAY, OID_INT4 }, { OID_INT8_ARRAY, OID_INT8 },   { OID_TEXT_ARRAY, OID_TEXT },
    { OID_UUID_ARRAY, OID_UUID },
};

/* 0 for a scalar. */
static Oid element_of(Oid type)
{
    for (size_t i = 0; i < ARRAY_LEN(array_types); i++)
        if (array_types[i].array == type)
            return array_types[i].element;
    return 0;
}

void params_start(struct params *params, const struct stmt *stmt)
{
    params->stmt = stmt;
    params->at = 0;
    for (size_t i = 0; i < stmt->nparams; i++) {
        struct param *param = &params->list[i];
        if (param->buf.capacity > KEEP_BYTES_MAX)
            buf_done(&param->buf);
        buf_clear(&param->buf);
        param->count = 0;
        param->has_null = param->is_null = false;
        if (element_of(stmt->types[i])) { /* filled in by finish */
            static const uint8_t header[ARRAY_HEADER_BYTES];
            buf_append(&param->buf, header, sizeof header);
        }
    }
}

void params_seek(struct params *params, size_t column)
{
    params->at = column;
}

/* The buffer of the next column, ready for a value of `type` with `size` bytes. */
static struct buf *next_column(struct params *params, Oid type, size_t size)
{
    assert(params->at < params->stmt->nparams);
    struct param *param = &params->list[params->at];
    Oid wanted = params->stmt->types[params->at++];
    Oid element = element_of(wanted);
    assert((element ? element : wanted) == type);
    if (element) {
        if (size > INT32_MAX)
            param->buf.failed = true;
        buf_be32(&param->buf, (uint32_t)size);
        param->count++;
    }
    return &param->buf;
}

void params_null(struct params *params)
{
    assert(params->at < params->stmt->nparams);
    struct param *param = &params->list[params->at];
    if (element_of(params->stmt->types[params->at++])) {
        buf_be32(&param->buf, UINT32_MAX); /* length -1 */
        param->count++;
        param->has_null = true;
    } else {
        param->is_null = true;
    }
}

void params_bool(struct params *params, bool value)
{
    uint8_t byte = value;
    buf_append(next_column(params, OID_BOOL, 1), &byte, 1);
}

void params_int2(struct params *params, int16_t value)
{
    buf_be16(next_column(params, OID_INT2, 2), (uint16_t)value);
}

void params_int4(struct params *params, int32_t value)
{
    buf_be32(next_column(params, OID_INT4, 4), (uint32_t)value);
}

void params_int8(struct params *params, int64_t value)
{
    buf_be64(next_column(params, OID_INT8, 8), (uint64_t)value);
}

void params_time(struct params *params, int64_t pg_us)
{
    buf_be64(next_column(params, OID_TIMESTAMPTZ, 8), (uint64_t)pg_us);
}

void params_uuid(struct params *params, const struct uuid *value)
{
    buf_append(next_column(params, OID_UUID, sizeof value->bytes), value->bytes,
               sizeof value->bytes);
}

void params_text(struct params *params, const char *value)
{
    if (!value) {
        params_null(params);
        return;
    }
    size_t size = strlen(value);
    buf_append(next_column(params, OID_TEXT, size), value, size);
}

void params_blob(struct params *params, const void *data, size_t size)
{
    buf_append(next_column(params, OID_BYTEA, size), data, size);
}

void params_bytes(struct params *params, const struct bytes *value)
{
    if (value->size)
        params_blob(params, value->data, value->size);
    else
        params_null(params);
}

static void put_be32(uint8_t *at, uint32_t value)
{
    uint32_t be = __builtin_bswap32(value);
    memcpy(at, &be, sizeof be);
}

/* Completes the headers and fills what libpq wants. */
static int finish(struct params *params, const char *values[], int lengths[], int formats[],
                  struct err *err)
{
    for (size_t i = 0; i < params->stmt->nparams; i++) {
        struct param *param = &params->list[i];
        if (param->buf.failed || param->buf.size > INT_MAX)
            return err_set(err, ERR_NOMEM, "%s: parameter %zu", params->stmt->name, i + 1);
        Oid element = element_of(params->stmt->types[i]);
        if (element) {
            uint8_t *header = param->buf.data;
            put_be32(header, param->count ? 1 : 0);
            put_be32(header + 4, param->has_null);
            put_be32(header + 8, element);
            put_be32(header + 12, param->count);
            put_be32(header + 16, 1);
        }
        values[i] = param->is_null ? NULL : buf_cstr(&param->buf);
        /* An empty array is its first three words. */
        lengths[i] = element && !param->count ? 12 : (int)param->buf.size;
        formats[i] = 1;
    }
    return 0;
}

int params_send(struct params *params, PGconn *conn, struct err *err)
{
    const char *values[STMT_PARAMS_MAX];
    int lengths[STMT_PARAMS_MAX], formats[STMT_PARAMS_MAX];
    if (finish(params, values, lengths, formats, err) != 0)
        return (int)err->code;
    if (!PQsendQueryPrepared(conn, params->stmt->name, params->stmt->nparams, values, lengths,
                             formats, 1))
        return sqlstate_connection(conn, params->stmt->name, err);
    return 0;
}

PGresult *params_exec(struct params *params, PGconn *conn)
{
    const char *values[STMT_PARAMS_MAX];
    int lengths[STMT_PARAMS_MAX], formats[STMT_PARAMS_MAX];
    struct err err;
    if (finish(params, values, lengths, formats, &err) != 0)
        return NULL;
    return PQexecPrepared(conn, params->stmt->name, params->stmt->nparams, values, lengths, formats,
                          1);
}

void params_done(struct params *params)
{
    for (size_t i = 0; i < STMT_PARAMS_MAX; i++)
        buf_done(&params->list[i].buf);
}
