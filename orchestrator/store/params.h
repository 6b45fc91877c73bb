/* Parameters of a set-based statement: binary arrays, filled row by row in the order of the
 * statement's columns. Each value is checked against the type that the statement table says, so a
 * column that is left out or doubled cannot go unseen. One owner thread. */
#ifndef STORE_PARAMS_H
#define STORE_PARAMS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/uuid.h"
#include "store/statements.h"

#include <stdbool.h>

struct param {
    struct buf buf;
    uint32_t count; /* elements of an array */
    bool has_null;
    bool is_null; /* a scalar that is NULL */
};

struct params {
    const struct stmt *stmt;
    struct param list[STMT_PARAMS_MAX];
    size_t at; /* the column that the next value belongs to */
};

/* Starts filling for this statement; buffers are used again. */
void params_start(struct params *params, const struct stmt *stmt);
/* The next value goes to this column. */
void params_seek(struct params *params, size_t column);
void params_bool(struct params *params, bool value);
void params_int2(struct params *params, int16_t value);
void params_int4(struct params *params, int32_t value);
void params_int8(struct params *params, int64_t value);
void params_uuid(struct params *params, const struct uuid *value);
void params_text(struct params *params, const char *value);          /* NULL: SQL NULL */
void params_bytes(struct params *params, const struct bytes *value); /* empty: SQL NULL */
void params_blob(struct params *params, const void *data, size_t size);
void params_time(struct params *params, int64_t pg_us); /* microseconds since 2000-01-01 */
void params_null(struct params *params);
/* Sends the statement (binary results) into the pipeline. */
MUST_USE int params_send(struct params *params, PGconn *conn, struct err *err);
/* Runs it and waits; NULL only when memory is out (PQexecPrepared). */
MUST_USE PGresult *params_exec(struct params *params, PGconn *conn);
void params_done(struct params *params);

#endif
