/* SQL about handlers that the engine's connection and the reader's share. Only statements*.c
 * include it. */
#ifndef STORE_HANDLER_SQL_H
#define STORE_HANDLER_SQL_H

/* Read by decode_handler. */
#define HANDLER_COLUMNS                                                                            \
    "h.name, h.version, h.hold, h.held_at, h.braked_at, h.release_rate, h.rate, h.cap,"            \
    " h.breaker_failures, h.breaker_trial_ms, h.breaker_successes, h.trial_at,"                    \
    " h.trial_successes, h.actor, h.reason, h.changed_at"

/* A node's words about a handler count for so long. */
#define HANDLER_NODE_LIVES "n.seen_at > now() - interval '5 seconds'"

/* The row as it is to be, if nobody was first: $2 is the version that it was made from, 0 where
 * there was none. The times are made here: a hold that goes on keeps its own, a brake as well.
 * $11: -1, trial_at stays; else it is so far away, 0: none. $15: what the change is called; NULL:
 * it is nobody's business. Its event leaves where events ever left: no definition asks for it, and
 * where no relay ever was nobody would take it away. Returns the new version. */
#define HANDLER_SET_PARAMS                                                                         \
    OID_TEXT, OID_INT8, OID_TEXT, OID_BOOL, OID_INT8, OID_INT8, OID_INT4, OID_INT4, OID_INT8,      \
        OID_INT4, OID_INT8, OID_INT4, OID_TEXT, OID_TEXT, OID_TEXT
/* clang-format off */
#define HANDLER_SET \
    "WITH h AS (INSERT INTO handler AS o (name, version, hold, held_at, braked_at, release_rate," \
    " rate, cap, breaker_failures, breaker_trial_ms, breaker_successes, trial_at," \
    " trial_successes, actor, reason, changed_at) SELECT $1, 1, $3," \
    " CASE WHEN $3 IS NOT NULL THEN now() END, CASE WHEN $4 THEN now() END, $5, $6, $7, $8, $9," \
    " $10, CASE WHEN $11 > 0 THEN now() + $11 * interval '1 millisecond' END, $12, $13, $14, now()" \
    " ON CONFLICT (name) DO UPDATE SET version = o.version + 1, hold = EXCLUDED.hold," \
    " held_at = CASE WHEN o.hold = EXCLUDED.hold THEN o.held_at ELSE EXCLUDED.held_at END," \
    " braked_at = CASE WHEN EXCLUDED.braked_at IS NOT NULL" \
    " THEN coalesce(o.braked_at, EXCLUDED.braked_at) END," \
    " release_rate = EXCLUDED.release_rate, rate = EXCLUDED.rate, cap = EXCLUDED.cap," \
    " breaker_failures = EXCLUDED.breaker_failures, breaker_trial_ms = EXCLUDED.breaker_trial_ms," \
    " breaker_successes = EXCLUDED.breaker_successes," \
    " trial_at = CASE WHEN $11 < 0 THEN o.trial_at ELSE EXCLUDED.trial_at END," \
    " trial_successes = EXCLUDED.trial_successes, actor = EXCLUDED.actor," \
    " reason = EXCLUDED.reason," \
    " changed_at = CASE WHEN $15 IS NULL THEN o.changed_at ELSE now() END" \
    " WHERE o.version = $2 RETURNING *)," \
    " b AS (INSERT INTO handler_hold (handler, from_at) SELECT h.name, h.braked_at FROM h" \
    " WHERE h.braked_at IS NOT NULL ON CONFLICT DO NOTHING)," \
    " e AS (UPDATE handler_hold t SET until_at = now() FROM h WHERE h.braked_at IS NULL" \
    " AND t.handler = h.name AND t.until_at IS NULL)," \
    " v AS (INSERT INTO handler_event (handler, version, kind, at, actor, reason, hold," \
    " release_rate, rate, cap, waiting) SELECT h.name, h.version, $15, now(), h.actor, h.reason," \
    " h.hold, h.release_rate, h.rate, h.cap, (SELECT sum(n.waiting)::bigint FROM handler_node n" \
    " WHERE n.handler = h.name AND " HANDLER_NODE_LIVES ") FROM h WHERE $15 IS NOT NULL)," \
    " o AS (INSERT INTO outbox (shard, saga_uid, seq, part, created_at, handler)" \
    " SELECT get_byte(d.uid, 15), encode(d.uid, 'hex')::uuid, h.version, 3, now(), h.name" \
    " FROM h CROSS JOIN LATERAL" \
    " (SELECT substr(sha256(convert_to(h.name, 'UTF8')), 1, 16) AS uid) d" \
    " WHERE $15 IS NOT NULL AND EXISTS (SELECT FROM outbox_slice l WHERE l.until > '-infinity'))" \
    " SELECT h.version, now() FROM h"
/* clang-format on */

#endif
