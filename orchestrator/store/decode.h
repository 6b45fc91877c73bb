/* Rows of the database into plain data. Everything is checked on the way: length of each binary
 * value, range, and every word; what does not fit is ERR_INTERNAL naming table, column and saga.
 * Any thread. */
#ifndef STORE_DECODE_H
#define STORE_DECODE_H

#include "store/store.h"

#include <libpq-fe.h>

/* Reads the columns of one row from left to right. The first fault is kept in err; later values are
 * then zero. */
struct columns {
    const PGresult *result;
    int row, at;
    const char *table;
    struct uuid uid; /* for messages; set once it was read */
    bool failed;
    struct err *err;
};

bool columns_is_null(const struct columns *columns);
/* The value at hand is not as it must be. */
void columns_fault(struct columns *columns, const char *what);
bool columns_bool(struct columns *columns);
int16_t columns_int2(struct columns *columns, int16_t if_null);
int32_t columns_int4(struct columns *columns);
int64_t columns_int8(struct columns *columns);
struct uuid columns_uuid(struct columns *columns, bool *ret_present);
char *columns_text(struct columns *columns);         /* owned; NULL for SQL NULL */
struct bytes columns_bytes(struct columns *columns); /* owned */
int64_t columns_time_ms(struct columns *columns);    /* Unix epoch; 0 for SQL NULL */
/* Words that must be there. */
enum saga_state columns_saga_state(struct columns *columns);
enum park_reason columns_park_reason(struct columns *columns);
const char *columns_borrow(struct columns *columns); /* text of the result; NULL for SQL NULL */

/* Microseconds since 2000 (PostgreSQL) to Unix milliseconds, rounded down. */
int64_t decode_time_ms(int64_t pg_us);
int64_t decode_time_pg(int64_t unix_us); /* Unix microseconds to PostgreSQL's */

/* A row of SAGA_COLUMNS (statements.c), after `n` and now(). Owned by the caller on success. */
MUST_USE int decode_saga(const PGresult *result, int row, struct saga_row *ret, struct err *err);
/* Its owner is this node. */
bool decode_mine(const PGresult *result, int row, const char *node);
/* Rows of (uid, now()) into op->uids; *ret_now_ms stays as it is when there are none. */
MUST_USE int decode_uids(const PGresult *result, struct store_op *op, int64_t *ret_now_ms,
                         struct err *err);
/* A row of ENTRY_COLUMNS, after `n`. `uid` is for messages. */
MUST_USE int decode_entry(const PGresult *result, int row, const struct uuid *uid,
                          struct journal_entry *ret, struct err *err);
/* All entries in rows [first, first + count) of the result, into saga->entries. */
MUST_USE int decode_entries(const PGresult *result, int first, int count, struct store_saga *saga,
                            struct err *err);
/* A row of saga_key after `n` and now(). */
MUST_USE int decode_key(const PGresult *result, int row, struct store_key *ret, struct err *err);
/* The leading columns of rows from the engine's statements. */
int64_t decode_ordinal(const PGresult *result, int row);
int64_t decode_now_ms(const PGresult *result, int row);

#endif
