/* The statements of retention, on a connection of their own: sagas that ended long ago lose their
 * rows, their keys stay, and are forgotten later. What must not be purged (parked, in doubt, with
 * events that are not published) is never picked.
 *
 * A batch is one transaction: pick locks its sagas, lines reads them for an archive, delete
 * commits. A commit of this connection does not wait for the disk (synchronous_commit off): what a
 * crash of PostgreSQL undoes is purged again, the whole batch with its keys.
 *
 * thread: one at a time. Calls wait for PostgreSQL, but no longer than CALL_MS_MAX, and not at all
 * once wake_fd is readable: then they fail as ERR_UNAVAILABLE. After any failure the transaction is
 * gone, and the next call connects again where that is needed. */
#ifndef STORE_RETENTION_H
#define STORE_RETENTION_H

#include "base/err.h"
#include "base/uuid.h"

#include <stddef.h>
#include <stdint.h>

struct store_retention;

/* wake_fd: borrowed, an eventfd or a pipe; -1: none. */
MUST_USE int store_retention_new(const char *conninfo, int wake_fd, struct store_retention **ret,
                                 struct err *err);
struct store_retention *store_retention_free(struct store_retention *retention);

enum { RETENTION_SHARDS = 256 };

/* Where a round is. It goes through all shards side by side, in each by the primary key: what is
 * deleted at a time was written at about the same time and shares its pages, in whichever shard it
 * is. Shard after shard would come to each page once for every shard. All zero: at its start. */
struct store_retention_round {
    struct uuid after[RETENTION_SHARDS]; /* looked at last in the shard; all zero: nothing yet */
    bool over[RETENTION_SHARDS];         /* nothing is behind that */
    uint8_t next;                        /* the shard that the next batch begins with */
};

enum {
    RETENTION_BATCH_MAX = 1000,           /* sagas looked at, and purged, in one transaction */
    RETENTION_ENTRIES_MAX = 10000,        /* journal entries deleted in one, if not of one saga */
    RETENTION_BYTES_MAX = 8 * 1024 * 1024 /* payloads archived in one, if not of one saga */
};

struct store_retention_batch {
    size_t count; /* what is to be purged */
    struct uuid uids[RETENTION_BATCH_MAX];
    size_t looked_at;                   /* of those that are old enough to be looked at */
    struct store_retention_round after; /* where the next batch goes on */
    bool round_over;
};
/* Begins a transaction and locks at most `limit` sagas that ended more than `age_ms` ago; locked
 * ones are somebody's and are left out. Nothing found: the transaction is over. */
MUST_USE int store_retention_pick(struct store_retention *retention,
                                  const struct store_retention_round *round, int64_t age_ms,
                                  size_t limit, struct store_retention_batch *ret, struct err *err);
/* Every column of saga, journal and late_report of each picked saga, as one JSON object without a
 * line end; payloads are base64, what is NULL is left out. Borrowed during the call; a return
 * other than 0 ends it with that. */
typedef int store_retention_line_fn(void *ctx, const char *line, size_t size, struct err *err);
MUST_USE int store_retention_lines(struct store_retention *retention,
                                   const struct store_retention_batch *batch,
                                   store_retention_line_fn *fn, void *ctx, struct err *err);
/* Deletes and commits. `archive`: the file's name, or NULL. key_memory_ms: how long after its end a
 * saga's key is remembered; -1: for ever. A key that a later run has is left as it is. */
MUST_USE int store_retention_delete(struct store_retention *retention,
                                    const struct store_retention_batch *batch, const char *archive,
                                    int64_t key_memory_ms, struct err *err);
/* Ends a transaction that pick began, without a change. */
void store_retention_drop(struct store_retention *retention);

/* Deletes at most `limit` keys whose time is over. */
MUST_USE int store_retention_forget(struct store_retention *retention, size_t limit,
                                    size_t *ret_forgotten, struct err *err);

/* Deletes lines of the audit that are older, at most `limit` of the table and of kafka_request
 * each; the larger of the two counts. */
MUST_USE int store_retention_audit(struct store_retention *retention, int64_t age_ms, size_t limit,
                                   size_t *ret_deleted, struct err *err);

/* What a node says of itself (table retention). Times: Unix epoch. What nobody has said for a day
 * is deleted. */
struct store_retention_node {
    char *node;
    int64_t retention_ms;  /* -1: nothing is purged */
    int64_t key_memory_ms; /* -1: for ever */
    char *archive;         /* folder; NULL: none */
    char *problem;         /* NULL: none */
    int64_t seen_ms;       /* when it said so, by the database's clock; saying: not used */
    int64_t round_began_ms, round_ended_ms; /* by the node's clock; 0: not yet */
    int64_t round_purged;                   /* of that round */
    int64_t purged, forgotten;              /* since the process began */
};
/* Strings borrowed. */
MUST_USE int store_retention_say(struct store_retention *retention,
                                 const struct store_retention_node *node, struct err *err);

#endif
