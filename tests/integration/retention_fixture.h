/* What the tests of retention share: old sagas made by SQL, purgers, and what they leave behind.
 * thread: the test thread only. */
#ifndef RETENTION_FIXTURE_H
#define RETENTION_FIXTURE_H

#include "store_fixture.h"
#include "support/scratch.h"

#include "base/cleanup.h"
#include "retention/retention.h"

/* A database with one table more, `made` (i, shard, uid): what make_sagas has made. */
PGconn *retention_database(struct test_postgres *postgres, const char *name,
                           char ret_conninfo[POSTGRES_CONNINFO_SIZE]);
/* Sagas "k<first>" to "k<last>" with their keys and `entries` entries each, SUCCEEDED; started so
 * long ago as the SQL interval says, and ended a second later. */
void make_sagas(PGconn *conn, int first, int last, int entries, const char *age);
/* Changes saga "k<i>". */
FMT(3, 4)
void change_saga(PGconn *conn, int i, const char *set, ...);

enum { HOUR_MS = 3600 * 1000, FOR_EVER = -1 };
/* Purges what ended an hour ago. */
struct retention *purger(const char *conninfo, const char *node, int64_t key_memory_ms,
                         const char *archive);
/* Asks until the count is `expected`; fails the test after 100 s. */
void await_count(PGconn *conn, const char *sql, int64_t expected);
/* A whole round of this node begins and ends from now on. */
void await_round(PGconn *conn, const char *node);
/* A new folder; removed at the end of the program. */
void archive_folder(char ret[SCRATCH_PATH_SIZE]);
/* Every line of every *.jsonl of the folder, into the table `archived` (file, line jsonb), which is
 * made anew. */
void load_archive(PGconn *conn, const char *folder);

#endif
