/* What the reader's files share: its connection, and how a statement is run on it. Not for others.
 */
#ifndef STORE_READER_INTERNAL_H
#define STORE_READER_INTERNAL_H

#include "store/decode.h"
#include "store/params.h"
#include "store/reader.h"

struct store_reader {
    char *conninfo;
    PGconn *conn; /* NULL: not connected */
    struct params params;
};

/* A call whose work is done by `fn` on a connection; a session that turns out to be broken is
 * replaced once, since reads can be repeated: fn drops what a first try has left in ctx. */
typedef int reader_fn(struct store_reader *reader, void *ctx, struct err *err);
MUST_USE int reader_with_connection(struct store_reader *reader, reader_fn *fn, void *ctx,
                                    struct err *err);
/* The statement's parameters, to be filled. */
struct params *reader_start(struct store_reader *reader, enum read_stmt_id id);
struct params *reader_start_kafka(struct store_reader *reader, enum kafka_stmt_id id);
/* Runs what was filled; the caller clears *ret_result. */
MUST_USE int reader_execute(struct store_reader *reader, PGresult **ret_result, struct err *err);
/* A command without parameters; COMMIT is an error if it was answered ROLLBACK. */
MUST_USE int reader_command(struct store_reader *reader, const char *sql, struct err *err);
/* A row of REVISION_COLUMNS, descriptors and open sagas (statements.c). Owned by the caller. */
MUST_USE int reader_decode_definition(const PGresult *result, int row, struct store_definition *ret,
                                      struct err *err);
/* ERR_NOT_FOUND; revision 0: no such definition at all. */
int reader_no_definition(const char *namespace_, const char *name, int32_t revision,
                         struct err *err);

#endif
