#include "store/statements.h"

#include <assert.h>

/* A batch comes as one array for each column, see statements.c. */
#define U(n, name) "unnest($" #n ") AS " #name
#define ID_PARAMS  OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8_ARRAY, OID_INT2_ARRAY
#define ID_ROWS    U(1, shard) ", " U(2, uid) ", " U(3, seq) ", " U(4, part)
#define ID_WHERE                                                                                   \
    " WHERE o.shard = u.shard AND o.saga_uid = u.uid AND o.seq = u.seq AND o.part = u.part"

/* As decode_entry reads it. */
#define ENTRY_WITHOUT_OUTPUT                                                                       \
    "j.seq, j.fence, j.kind, j.step_index, j.operation, j.try, j.worker, j.leased_at,"             \
    " j.attempt_until, j.lease_until, j.outcome, j.finished_at, j.retry_at, NULL::bytea,"          \
    " j.error_code, j.error_message, j.reason, j.about, j.actor, j.signal_id, j.held_ms"

const struct stmt outbox_stmts[OUTBOX_COUNT] = {
    /* clang-format off */
    /* $1 instance, $2 node, $3 how long, $4 which of them to give, $5 published, $6 refused, $7 problem. Each row
     * that is changed is looked at again when it is locked: of two that take a slice one has it. The
     * first time it takes at once what another process has under this node's name: that one has
     * died, or is about to end. */
    [OUTBOX_CLAIM] = { "outbox_claim", 7,
        { OID_UUID, OID_TEXT, OID_INT8, OID_INT4, OID_INT8, OID_INT8, OID_TEXT },
        "WITH t AS MATERIALIZED (SELECT now() + $3 * interval '1 millisecond' AS until,"
        " CASE WHEN NOT EXISTS (SELECT FROM outbox_relay l WHERE l.instance = $1) THEN $2 END"
        " AS heir_of),"
        " r AS (INSERT INTO outbox_relay (instance, node, until, published, refused, problem)"
        " SELECT $1, $2, t.until, $5, $6, $7 FROM t ON CONFLICT (instance) DO UPDATE"
        " SET until = EXCLUDED.until, published = EXCLUDED.published, refused = EXCLUDED.refused,"
        " problem = EXCLUDED.problem),"
        " g AS (DELETE FROM outbox_relay WHERE until < now() - interval '1 hour'),"
        " n AS MATERIALIZED (SELECT ceil((SELECT count(*) FROM outbox_slice) / (1.0 + count(*)))::int4"
        " AS share"
        " FROM outbox_relay l WHERE l.node <> $2 AND l.until > now()),"
        /* Its own first, then what is free. */
        " s AS MATERIALIZED (SELECT o.slice, o.instance = $1 AS mine, row_number() OVER"
        " (ORDER BY o.instance IS DISTINCT FROM $1, o.slice) AS place FROM outbox_slice o, t"
        " WHERE o.instance = $1 OR o.node = t.heir_of OR o.until <= now()),"
        " w AS (SELECT s.slice, NOT s.mine OR $4 & (1 << s.slice) = 0 AS keep, t.*, n.share"
        " FROM s, n, t WHERE s.mine OR s.place <= n.share)"
        " UPDATE outbox_slice o SET instance = CASE WHEN w.keep THEN $1 END,"
        " node = CASE WHEN w.keep THEN $2 END,"
        " until = CASE WHEN w.keep THEN w.until ELSE now() END"
        " FROM w WHERE o.slice = w.slice AND (o.instance = $1"
        " OR o.node = w.heir_of OR o.until <= now())"
        " RETURNING o.slice, w.keep, w.share" },
    [OUTBOX_LEAVE] = { "outbox_leave", 1, { OID_UUID },
        "WITH r AS (DELETE FROM outbox_relay WHERE instance = $1)"
        " UPDATE outbox_slice SET instance = NULL, node = NULL, until = now()"
        " WHERE instance = $1" },

    /* The first event of each saga, and of each handler, in some ranges of shards, each behind (shard, uid), at most $5 of
     * each range. */
    [OUTBOX_PAGE] = { "outbox_page", 5,
        { OID_INT2_ARRAY, OID_INT2_ARRAY, OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8 },
        "SELECT 1::bigint, " ENTRY_WITHOUT_OUTPUT ", j.step, o.saga_uid, o.seq, o.part, o.epoch,"
        " o.created_at,"
        " o.failed_at IS NULL OR o.failed_at"
        " + least(power(2, least(o.failures, 20) - 1), 300) * interval '1 second' <= now(),"
        " s.saga_uid, s.namespace, s.definition, s.revision, s.saga_id, s.run, s.labels::text,"
        " s.related_saga, s.started_at, s.state, h.handler, h.kind, h.actor, h.reason, h.hold,"
        " h.release_rate, h.rate, h.cap, h.waiting"
        " FROM (SELECT " U(1, low) ", " U(2, high) ", " U(3, shard) ", " U(4, uid) ") AS u"
        " CROSS JOIN LATERAL (SELECT DISTINCT ON (b.shard, b.saga_uid) b.* FROM outbox b"
        " WHERE b.shard >= u.low AND b.shard <= u.high AND (b.shard, b.saga_uid) > (u.shard, u.uid)"
        " ORDER BY b.shard, b.saga_uid, b.part, b.created_at, b.seq LIMIT $5) o"
        " LEFT JOIN saga s ON s.shard = o.shard AND s.saga_uid = o.saga_uid"
        " LEFT JOIN journal j ON j.shard = o.shard AND j.saga_uid = o.saga_uid AND j.seq = o.seq"
        " AND o.part = 1"
        " LEFT JOIN handler_event h ON h.handler = o.handler AND h.version = o.seq" },
    [OUTBOX_PUBLISHED] = { "outbox_published", 4, { ID_PARAMS },
        "DELETE FROM outbox o USING (SELECT " ID_ROWS ") AS u" ID_WHERE },
    [OUTBOX_REFUSED] = { "outbox_refused", 5, { ID_PARAMS, OID_TEXT },
        "UPDATE outbox o SET failed_at = now(), failures = o.failures + 1, error = $5"
        " FROM (SELECT " ID_ROWS ") AS u" ID_WHERE },
    /* clang-format on */
};
static_assert(OUTBOX_REFUSED + 1 == OUTBOX_COUNT, "one row for each outbox_stmt_id");
