/* What the reader's files share: its connection, and how a statement is run on it. Not for others.
 */
#ifndef STORE_READER_INTERNAL_H
#define STORE_READER_INTERNAL_H

#include "store/decode.h"
#include "store/params.h"
#include "store/reader.h"
#include "store/reader_audit.h"

struct store_reader {
    char *conninfo;
    PGconn *conn;   /* NULL: not connected */
    bool has_rerun; /* prepared on it */
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
struct params *reader_start_find(struct store_reader *reader, enum find_stmt_id id);
struct params *reader_start_people(struct store_reader *reader, enum people_stmt_id id);
/* Before PEOPLE_RERUN, outside of a transaction. Whoever holds a lock that keeps sagas from being
 * written holds this up, and nobody who only reads. */
MUST_USE int reader_prepare_rerun(struct store_reader *reader, struct err *err);
/* The uid that the reference names, also of a saga that was purged; ERR_NOT_FOUND. */
MUST_USE int reader_resolve(struct store_reader *reader, const struct store_ref *ref,
                            struct uuid *ret, struct err *err);
/* A line of the audit, within the caller's transaction. */
MUST_USE int reader_audit_add(struct store_reader *reader, const struct store_audit_note *note,
                              struct err *err);
/* Runs what was filled; the caller clears *ret_result. */
MUST_USE int reader_execute(struct store_reader *reader, PGresult **ret_result, struct err *err);
/* A command without parameters; COMMIT is an error if it was answered ROLLBACK. */
MUST_USE int reader_command(struct store_reader *reader, const char *sql, struct err *err);

/* How the sagas of a filter are reached (reader_find.c), and the parameters that every statement of
 * find_stmts about them begins with: 20, and 2 more of some ways. */
struct find_way {
    enum find_stmt_id statement; /* of lists, newest first */
    const char *id_from;         /* borrowed from the filter */
    struct buf id_to;
};
MUST_USE int find_way_choose(const struct saga_filter *filter, struct find_way *ret,
                             struct err *err);
void find_way_done(struct find_way *way);
void find_way_put(const struct find_way *way, const struct store_list *list, struct params *params);
void find_put_numbers(struct params *params, const struct span *span);
void find_put_times(struct params *params, const struct span *span);

/* A row of REVISION_COLUMNS, descriptors and open sagas (statements.c). Owned by the caller. */
MUST_USE int reader_decode_definition(const PGresult *result, int row, struct store_definition *ret,
                                      struct err *err);
/* ERR_NOT_FOUND; revision 0: no such definition at all. */
int reader_no_definition(const char *namespace_, const char *name, int32_t revision,
                         struct err *err);

#endif
