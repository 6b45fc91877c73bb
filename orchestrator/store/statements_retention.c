#include "store/statements.h"

#include <assert.h>

/* A uuid v7 begins with the milliseconds of its saga's start, and a saga ends after its start: who
 * has ended before a time is below the first uuid of that time. */
#define FIRST_UUID_BEFORE(ms)                                                                      \
    "(lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - " ms "), 12, '0')"                  \
    " || repeat('0', 20))::uuid"

/* Base64 in one line. */
#define BASE64(column) "replace(encode(" column ", 'base64'), E'\\n', '')"
#define OBJECT(alias, column)                                                                      \
    "to_jsonb(" alias ") || jsonb_build_object('" column "', " BASE64(alias "." column) ")"

/* One array for each column, as in statements.c. */
#define PICKED "SELECT unnest($1) AS shard, unnest($2) AS uid"

const struct stmt purge_stmts[PURGE_COUNT] = {
    /* clang-format off */
    /* $1, $2: of these shards, in this order, what is behind these sagas; $3: age, $4: how many of
     * one shard to look at, $5: of all. First what is old enough to be looked at, by the primary key
     * and without a lock; then, of those, what may go. A row for each that was looked at. */
    [PURGE_PICK] = { "purge_pick", 5,
        { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8, OID_INT8, OID_INT8 },
        "WITH c AS MATERIALIZED (SELECT d.n, s.shard, s.saga_uid"
        " FROM unnest($1, $2) WITH ORDINALITY AS d (shard, uid, n)"
        " CROSS JOIN LATERAL (SELECT o.shard, o.saga_uid FROM saga o WHERE o.shard = d.shard"
        " AND o.saga_uid > d.uid AND o.saga_uid < " FIRST_UUID_BEFORE("$3")
        " ORDER BY o.shard, o.saga_uid LIMIT $4) s ORDER BY d.n LIMIT $5)"
        " SELECT c.shard, c.saga_uid, p.found IS NOT NULL, j.entries, j.bytes FROM c"
        " LEFT JOIN LATERAL (SELECT true AS found FROM saga s"
        " WHERE s.shard = c.shard AND s.saga_uid = c.saga_uid"
        " AND s.state IN ('SUCCEEDED', 'COMPENSATED', 'ABANDONED') AND NOT s.doubt"
        " AND s.ended_at < now() - $3 * interval '1 millisecond'"
        " AND NOT EXISTS (SELECT FROM outbox e WHERE e.shard = s.shard AND e.saga_uid = s.saga_uid)"
        " FOR UPDATE OF s SKIP LOCKED) p ON true"
        " LEFT JOIN LATERAL (SELECT count(*) AS entries,"
        " coalesce(sum(octet_length(e.output)), 0)::bigint AS bytes FROM journal e"
        " WHERE p.found AND e.shard = c.shard AND e.saga_uid = c.saga_uid) j ON true"
        " ORDER BY c.n, c.saga_uid" },

    /* Whatever columns the tables have. */
    [PURGE_LINES] = { "purge_lines", 2, { OID_INT2_ARRAY, OID_UUID_ARRAY },
        "SELECT (jsonb_strip_nulls(" OBJECT("s", "input") " || jsonb_build_object("
        "'archived_at', now(),"
        " 'journal', coalesce((SELECT jsonb_agg(" OBJECT("j", "output") " ORDER BY j.seq)"
        " FROM journal j WHERE j.shard = s.shard AND j.saga_uid = s.saga_uid), '[]'),"
        " 'late_reports', coalesce((SELECT jsonb_agg(" OBJECT("l", "output")
        " ORDER BY l.fence, l.outcome) FROM late_report l WHERE l.shard = s.shard"
        " AND l.saga_uid = s.saga_uid), '[]'))))::text"
        " FROM (" PICKED ") u JOIN saga s ON s.shard = u.shard AND s.saga_uid = u.uid" },

    /* $3: the archive's file, $4: how long the key is remembered after the end, NULL: for ever. */
    [PURGE_DELETE] = { "purge_delete", 4, { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_TEXT, OID_INT8 },
        "WITH u AS MATERIALIZED (" PICKED "),"
        " j AS (DELETE FROM journal j USING u WHERE j.shard = u.shard AND j.saga_uid = u.uid"
        " RETURNING j.*),"
        /* What people asked of a saga outlives it: moved, as audit_list has it. */
        " w AS (INSERT INTO audit (at, audit_id, seq, verb, namespace, definition, saga_id, run,"
        " saga_uid, step, operation, actor, reason, detail)"
        " SELECT j.asked_at, j.saga_uid, j.seq, " AUDIT_VERB ", s.namespace, s.definition,"
        " s.saga_id, s.run, s.saga_uid, j.step, " AUDIT_OPERATION ", j.actor, j.error_message, "
        AUDIT_DETAIL " FROM j JOIN saga s ON s.shard = j.shard AND s.saga_uid = j.saga_uid"
        " WHERE j.asked_at IS NOT NULL),"
        " l AS (DELETE FROM late_report l USING u WHERE l.shard = u.shard AND l.saga_uid = u.uid),"
        " a AS (DELETE FROM saga_label a USING u WHERE a.shard = u.shard AND a.saga_uid = u.uid),"
        " s AS (DELETE FROM saga s USING u WHERE s.shard = u.shard AND s.saga_uid = u.uid"
        " RETURNING s.shard, s.namespace, s.definition, s.saga_id, s.saga_uid, s.ended_at),"
        " k AS (UPDATE saga_key k SET purged_at = now(), archive = $3,"
        " remembered_until = s.ended_at + $4 * interval '1 millisecond' FROM s"
        " WHERE k.shard = s.shard AND k.namespace = s.namespace AND k.definition = s.definition"
        " AND k.saga_id = s.saga_id AND k.saga_uid = s.saga_uid)"
        " SELECT count(*) FROM s" },

    /* Never one whose saga is there. */
    [PURGE_FORGET] = { "purge_forget", 1, { OID_INT8 },
        "WITH o AS MATERIALIZED (SELECT k.shard, k.namespace, k.definition, k.saga_id"
        " FROM saga_key k WHERE k.remembered_until < now()"
        " AND NOT EXISTS (SELECT FROM saga s WHERE s.shard = k.shard AND s.saga_uid = k.saga_uid)"
        " ORDER BY k.remembered_until LIMIT $1 FOR UPDATE OF k SKIP LOCKED),"
        " f AS (DELETE FROM saga_key k USING o WHERE k.shard = o.shard"
        " AND k.namespace = o.namespace AND k.definition = o.definition AND k.saga_id = o.saga_id"
        " RETURNING 1)"
        " SELECT count(*) FROM f" },

    /* $1: age, $2: how many. Lines that are an entry of a journal go with their saga. */
    [PURGE_AUDIT] = { "purge_audit", 2, { OID_INT8, OID_INT8 },
        "WITH a AS (DELETE FROM audit d USING (SELECT o.at, o.audit_id, o.seq FROM audit o"
        " WHERE o.at < now() - $1 * interval '1 millisecond' ORDER BY o.at, o.audit_id, o.seq"
        " LIMIT $2 FOR UPDATE SKIP LOCKED) o WHERE d.at = o.at AND d.audit_id = o.audit_id"
        " AND d.seq = o.seq RETURNING 1),"
        " k AS (DELETE FROM kafka_request d USING (SELECT q.request_id FROM kafka_request q"
        " WHERE q.requested_at < now() - $1 * interval '1 millisecond'"
        " AND q.state IN ('DONE', 'FAILED') ORDER BY q.requested_at, q.request_id LIMIT $2"
        " FOR UPDATE SKIP LOCKED) o WHERE d.request_id = o.request_id RETURNING 1)"
        " SELECT greatest((SELECT count(*) FROM a), (SELECT count(*) FROM k))" },

    [PURGE_SAY] = { "purge_say", 10,
        { OID_TEXT, OID_INT8, OID_INT8, OID_TEXT, OID_TIMESTAMPTZ, OID_TIMESTAMPTZ, OID_INT8,
          OID_INT8, OID_INT8, OID_TEXT },
        "WITH g AS (DELETE FROM retention WHERE seen_at < now() - interval '1 day' AND node <> $1)"
        " INSERT INTO retention AS r (node, retention_ms, key_memory_ms, archive, seen_at,"
        " round_began_at, round_ended_at, round_purged, purged, forgotten, problem)"
        " VALUES ($1, $2, $3, $4, now(), $5, $6, $7, $8, $9, $10)"
        " ON CONFLICT (node) DO UPDATE SET (retention_ms, key_memory_ms, archive, seen_at,"
        " round_began_at, round_ended_at, round_purged, purged, forgotten, problem) ="
        " ROW (EXCLUDED.retention_ms, EXCLUDED.key_memory_ms, EXCLUDED.archive, EXCLUDED.seen_at,"
        " EXCLUDED.round_began_at, EXCLUDED.round_ended_at, EXCLUDED.round_purged, EXCLUDED.purged,"
        " EXCLUDED.forgotten, EXCLUDED.problem)" },
    /* clang-format on */
};
static_assert(PURGE_SAY + 1 == PURGE_COUNT, "one row for each purge_stmt_id");
