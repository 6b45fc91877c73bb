/* What the tests of the ingest's store share: a database with one rule and its cursors, batches
 * that are put together record by record, and what they came to as one line. thread: the test
 * thread. */
#ifndef INGEST_FIXTURE_H
#define INGEST_FIXTURE_H

#include "store_fixture.h"

#include "store/ingest.h"

enum { MADE_PARTS_MAX = 4, MADE_RECORDS_MAX = 1024, MADE_ID_SIZE = 32 };

/* The rule "pays" over the topic "payments", for the fixture's definition test/pay, on node-1
 * (which has joined); cursors of partitions 0..2 at offset 0. wake_fd -1: none. */
struct store_ingest *ingest_open_rule(const char *conninfo, int wake_fd);
/* Another process with the same rule, as this node. */
struct store_ingest *ingest_open_as(const char *conninfo, const char *node, int wake_fd);

struct made { /* a batch; too large for the stack */
    struct store_ingest_batch batch;
    struct store_ingest_part parts[MADE_PARTS_MAX];
    struct store_ingest_record records[MADE_RECORDS_MAX];
    char ids[MADE_RECORDS_MAX][MADE_ID_SIZE];
};
struct made *made_new(void);
struct made *made_free(struct made *made);
/* The next record of the partition; the first one says where the cursor is expected. */
struct store_ingest_record *made_start(struct made *made, int32_t partition, int64_t offset,
                                       const char *saga_id, const char *input);
struct store_ingest_record *made_dead(struct made *made, int32_t partition, int64_t offset,
                                      const char *reason);
/* Empties it. */
void made_clear(struct made *made);
/* "STARTED DUPLICATE ...": the records' results; borrowed until the next call. */
const char *made_results(const struct made *made);
/* "records started duplicates mismatches dead_letters filtered tombstones @next_offset" of a
 * partition. */
void assert_cursor(PGconn *conn, int32_t partition, const char *expected);

#endif
