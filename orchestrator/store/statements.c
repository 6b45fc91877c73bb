#include "store/statements.h"
#include "store/columns.h"

#include "store/handler_sql.h"

#include <assert.h>

/* As SAGA_COLUMNS (columns.h). */
#define ENTRY_COLUMNS                                                                              \
    "j.seq, j.fence, j.kind, j.step_index, j.operation, j.try, j.worker, j.leased_at,"             \
    " j.attempt_until, j.lease_until, j.outcome, j.finished_at, j.retry_at, j.output,"             \
    " j.error_code, j.error_message, j.reason, j.about, j.actor, j.signal_id, j.held_ms"
/* The same list as in the predicates of the indexes saga_owner, saga_wake and saga_waiting. */
#define OPEN_STATES "s.state IN ('RUNNING', 'COMPENSATING', 'PARKED')"
/* The same where the key finds the row; said so that no plan goes over those indexes instead. */
#define NOT_TERMINAL "s.state NOT IN ('SUCCEEDED', 'COMPENSATED', 'ABANDONED')"
/* Is anything left to do for node n? A subquery, since as a join it would not be a look-up. */
#define NODE_OWNS "(SELECT true FROM saga s WHERE s.owner = n.name AND " OPEN_STATES " LIMIT 1)"

/* A batch comes as one array for each column. The rows are made in the select list, not as FROM
 * unnest(a, b, ...): there each array would go through a tuple store of its own, which costs a
 * small batch more than its rows. */
#define U(n, name) "unnest($" #n ") AS " #name

/* A grant: leased_at .. lease_until by the database's clock. */
#define GRANT_COLUMNS                                                                              \
    "(shard, saga_uid, seq, fence, kind, step, step_index, operation, try, worker,"                \
    " leased_at, attempt_until, lease_until, actor)"
#define AT_MOST(row) "timestamptz 'epoch' + " row ".send_before_ms * interval '1 millisecond'"
#define LEASE_TIMES(row)                                                                           \
    " least(now() + " row ".attempt_ms * interval '1 millisecond', " AT_MOST(                      \
        row) "),"                                                                                  \
             " least(now() + " row ".lease_ms * interval '1 millisecond',"                         \
             " now() + " row ".attempt_ms * interval '1 millisecond', " AT_MOST(row) ")"
#define GRANT_VALUES(row, granter)                                                                 \
    row ".shard, " row ".uid, " row ".grant_seq, " row ".fence, 'LEASE', " row ".step, " row       \
        ".step_index, " row ".operation, " row ".try, " row                                        \
        ".worker, now()," LEASE_TIMES(row) ", " granter
#define GRANT_PARAMS                                                                               \
    OID_INT8_ARRAY, OID_INT8_ARRAY, OID_TEXT_ARRAY, OID_INT2_ARRAY, OID_TEXT_ARRAY,                \
        OID_INT4_ARRAY, OID_TEXT_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY
#define GRANT_ROWS_FROM_3                                                                          \
    U(3, grant_seq)                                                                                \
    ", " U(4, fence) ", " U(5, step) ", " U(6, step_index) ", " U(7, operation) ", " U(            \
        8, try) ", " U(9, worker) ", " U(10, lease_ms) ", " U(11,                                  \
                                                              attempt_ms) ", " U(12,               \
                                                                                 send_before_ms)
#define GRANT_ROWS_FROM_10                                                                         \
    U(10, grant_seq)                                                                               \
    ", " U(11, fence) ", " U(12, step) ", " U(13, step_index) ", " U(14, operation) ", " U(        \
        15, try) ", " U(16, worker) ", " U(17, lease_ms) ", " U(18,                                \
                                                                attempt_ms) ", " U(19,             \
                                                                                   send_before_ms)

/* The end of a lease, once: nobody else gave it an outcome, and EXPIRED only after its time. */
#define FINISH_PARAMS                                                                              \
    OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8_ARRAY, OID_BOOL_ARRAY, OID_TEXT_ARRAY,                \
        OID_INT8_ARRAY, OID_BYTEA_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY
#define FINISH_ROWS                                                                                \
    U(1, shard)                                                                                    \
    ", " U(2, uid) ", " U(3, seq) ", " U(4, only_if_expired) ", " U(5, outcome) ", " U(            \
        6, retry_in_ms) ", " U(7, output) ", " U(8, error_code) ", " U(9, error_message)
#define FINISH_SET                                                                                 \
    " SET outcome = u.outcome, finished_at = now(),"                                               \
    " retry_at = now() + u.retry_in_ms * interval '1 millisecond', output = u.output,"             \
    " error_code = u.error_code, error_message = u.error_message"
#define FINISH_WHERE                                                                               \
    " WHERE e.shard = u.shard AND e.saga_uid = u.uid AND e.seq = u.seq AND e.outcome IS NULL"      \
    " AND (NOT u.only_if_expired OR e.lease_until < now())"

/* The saga row as a transition leaves it. */
#define ROW_PARAMS                                                                                 \
    OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_BOOL_ARRAY,                \
        OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_INT2_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY,            \
        OID_BOOL_ARRAY, OID_BOOL_ARRAY, OID_INT8_ARRAY
/* clang-format off */
#define ROW_ROWS \
    U(10, state_from) ", " U(11, phase_from) ", " U(12, state) ", " U(13, phase) ", " U(14, doubt) \
    ", " U(15, park_reason) ", " U(16, park_step) ", " U(17, park_step_index) ", " U(18, park_code) \
    ", " U(19, park_message) ", " U(20, ends) ", " U(21, changes) ", " U(22, deadline_ms)
/* clang-format on */
#define ROW_SET(row)                                                                               \
    " SET state = " row ".state, phase = " row ".phase, doubt = " row ".doubt, park_reason = " row \
    ".park_reason, park_step = " row ".park_step, park_step_index = " row                          \
    ".park_step_index, park_code = " row ".park_code, park_message = " row                         \
    ".park_message, updated_at = now(), ended_at = CASE WHEN " row                                 \
    ".ends THEN now() ELSE s.ended_at END, deadline_at = CASE WHEN " row                           \
    ".deadline_ms IS NULL THEN s.deadline_at ELSE timestamptz 'epoch' + nullif(" row               \
    ".deadline_ms, 0) * interval '1 millisecond' END"
#define ROW_WHERE(row)                                                                             \
    " WHERE s.shard = " row ".shard AND s.saga_uid = " row ".uid AND s.state = " row               \
    ".state_from AND s.phase = " row ".phase_from AND " row ".changes"
/* The key remembers how its latest run ended. */
#define KEY_END                                                                                    \
    " UPDATE saga_key k SET final_state = g.state FROM g WHERE k.shard = g.shard"                  \
    " AND k.namespace = g.namespace AND k.definition = g.definition AND k.saga_id = g.saga_id"     \
    " AND k.saga_uid = g.saga_uid AND g.ends"
#define ROW_RETURNING                                                                              \
    " RETURNING s.shard, s.namespace, s.definition, s.saga_id, s.saga_uid, s.state"

/* Any entry of a decision; a lease among them has lease_ms. */
#define ENTRY_PARAMS                                                                               \
    OID_UUID_ARRAY, OID_BOOL_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY, OID_TEXT_ARRAY,                \
        OID_TEXT_ARRAY, OID_INT2_ARRAY, OID_TEXT_ARRAY, OID_INT4_ARRAY, OID_TEXT_ARRAY,            \
        OID_TEXT_ARRAY, OID_BYTEA_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY,           \
        OID_INT8_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY,            \
        OID_INT8_ARRAY, OID_BOOL_ARRAY
/* clang-format off */
#define ENTRY_ROWS \
    U(23, uid) ", " U(24, head) ", " U(25, seq) ", " U(26, fence) ", " U(27, kind) \
    ", " U(28, step) ", " U(29, step_index) ", " U(30, operation) ", " U(31, try) \
    ", " U(32, worker) ", " U(33, outcome) ", " U(34, output) ", " U(35, error_code) \
    ", " U(36, error_message) ", " U(37, reason) ", " U(38, about) ", " U(39, actor) \
    ", " U(40, signal_id) ", " U(41, lease_ms) ", " U(42, attempt_ms) ", " U(43, send_before_ms) \
    ", " U(44, asked)
/* clang-format on */
#define ENTRY_INSERT                                                                               \
    " INSERT INTO journal (shard, saga_uid, seq, fence, kind, step, step_index, operation, try,"   \
    " worker, leased_at, attempt_until, lease_until, outcome, finished_at, output, error_code,"    \
    " error_message, reason, about, actor, signal_id, asked_at)"
#define ENTRY_VALUES                                                                               \
    "e.uid, e.seq, e.fence, e.kind, e.step, e.step_index, e.operation, e.try, e.worker,"           \
    " CASE WHEN e.lease_ms IS NOT NULL THEN now() END," LEASE_TIMES(                               \
        "e") ", e.outcome,"                                                                        \
             " CASE WHEN e.lease_ms IS NULL THEN now() END, e.output, e.error_code, "              \
             "e.error_message,"                                                                    \
             " e.reason, e.about, CASE WHEN e.lease_ms IS NULL THEN e.actor ELSE $45 END,"         \
             " e.signal_id, CASE WHEN e.asked THEN now() END"

/* clang-format off */
#define START_PARAMS \
    OID_INT2_ARRAY, OID_UUID_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, \
    OID_INT4_ARRAY, OID_BYTEA_ARRAY, OID_INT4_ARRAY, OID_BYTEA_ARRAY, OID_TEXT_ARRAY, \
    OID_INT8_ARRAY, OID_UUID_ARRAY, OID_INT8_ARRAY
#define START_ROWS \
    U(1, shard) ", " U(2, uid) ", " U(3, namespace) ", " U(4, definition) ", " U(5, saga_id) \
    ", " U(6, run) ", " U(7, input_digest) ", " U(8, revision) ", " U(9, input) \
    ", " U(10, labels) ", " U(11, deadline_ms) ", " U(12, related) \
    ", timestamptz 'epoch' + unnest($13) * interval '1 millisecond' AS start_at"
/* Key and saga, each FROM what the one before it inserted, and all FROM revisions that are there:
 * their rows are held until the commit, so whoever deletes one waits and finds the saga, or came
 * first and the start finds nothing. Keys in their own order: two nodes with the same keys in other
 * sagas wait for each other, never in a circle. `(.. IN ..) IS TRUE` keeps that a hashed look-up:
 * as a join it would be a nested loop over the whole batch. */
#define START_SAGAS(node) \
    " r AS MATERIALIZED (SELECT o.namespace, o.name, o.revision FROM (SELECT DISTINCT" \
    " u.namespace, u.definition, u.revision FROM u) d JOIN definition_revision o" \
    " ON o.namespace = d.namespace AND o.name = d.definition AND o.revision = d.revision" \
    " FOR KEY SHARE OF o)," \
    " k AS (INSERT INTO saga_key (shard, namespace, definition, saga_id, saga_uid, run," \
    " input_digest) SELECT u.shard, u.namespace, u.definition, u.saga_id, u.uid, u.run," \
    " u.input_digest FROM u WHERE ((u.namespace, u.definition, u.revision) IN (SELECT r.* FROM" \
    " r)) IS TRUE ORDER BY u.shard, u.namespace, u.definition, u.saga_id, u.uid" \
    " ON CONFLICT DO NOTHING RETURNING saga_uid)," \
    " s AS (INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run," \
    " state, phase, owner, input, labels, doubt, started_at, updated_at, deadline_at," \
    " start_at, related_saga) SELECT u.shard, u.uid, u.namespace, u.definition, u.revision," \
    " u.saga_id, u.run, 'RUNNING', 'RUNNING', " node ", u.input, u.labels::jsonb, false, now()," \
    " now(), greatest(now(), u.start_at) + u.deadline_ms * interval '1 millisecond', u.start_at," \
    " u.related FROM u" \
    " WHERE (u.uid IN (SELECT k.saga_uid FROM k)) IS TRUE RETURNING saga_uid)," \
    " l AS (" LABELS_STARTED("u", "u.namespace", IS_STARTED) "),"
#define IS_STARTED "(u.uid IN (SELECT s.saga_uid FROM s)) IS TRUE"
#define OF_STARTED IS_STARTED ")" \
    " SELECT s.saga_uid, 1::bigint, now() FROM s"
/* clang-format on */

const struct stmt stmts[STMT_COUNT] = {
    /* clang-format off */
    /* With the first lease, or without an entry. */
    [STMT_START] = { "start", 22,
        { START_PARAMS, OID_INT8_ARRAY, OID_TEXT_ARRAY, OID_INT2_ARRAY, OID_TEXT_ARRAY,
          OID_TEXT_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY, OID_TEXT, OID_TEXT },
        "WITH u AS MATERIALIZED (SELECT " START_ROWS ", " U(14, fence) ", " U(15, step) ", "
        U(16, step_index) ", " U(17, operation) ", " U(18, worker) ", " U(19, lease_ms) ", "
        U(20, attempt_ms) ", NULL::int8 AS send_before_ms)," START_SAGAS("$22")
        " j AS (INSERT INTO journal " GRANT_COLUMNS
        " SELECT u.shard, u.uid, 1, u.fence, 'LEASE', u.step, u.step_index, u.operation, 1,"
        " u.worker, now()," LEASE_TIMES("u") ", $21 FROM u"
        " WHERE u.lease_ms IS NOT NULL AND " OF_STARTED },
    /* With the entry that says that somebody else may have begun. */
    [STMT_START_SUSPECT] = { "start_suspect", 16,
        { START_PARAMS, OID_INT8_ARRAY, OID_TEXT_ARRAY, OID_TEXT },
        "WITH u AS MATERIALIZED (SELECT " START_ROWS ", " U(14, since_ms) ", " U(15, actor) "),"
        START_SAGAS("$16")
        " j AS (INSERT INTO journal (shard, saga_uid, seq, fence, kind, try, leased_at,"
        " finished_at, actor) SELECT u.shard, u.uid, 1, 0, 'SUSPECT', 0, least(now(), timestamptz"
        " 'epoch' + u.since_ms * interval '1 millisecond'), now(), u.actor FROM u"
        " WHERE " OF_STARTED },

    [STMT_GRANT] = { "grant", 13,
        { OID_INT2_ARRAY, OID_UUID_ARRAY, GRANT_PARAMS, OID_TEXT },
        "INSERT INTO journal " GRANT_COLUMNS " SELECT " GRANT_VALUES("u", "$13")
        " FROM (SELECT " U(1, shard) ", " U(2, uid) ", " GRANT_ROWS_FROM_3 ") AS u"
        " ON CONFLICT DO NOTHING RETURNING saga_uid, seq, now()" },

    /* The same after a wait in which its handler was braked. */
    [STMT_GRANT_HELD] = { "grant_held", 14,
        { OID_INT2_ARRAY, OID_UUID_ARRAY, GRANT_PARAMS, OID_INT8_ARRAY, OID_TEXT },
        "INSERT INTO journal (shard, saga_uid, seq, fence, kind, step, step_index, operation, try,"
        " worker, leased_at, attempt_until, lease_until, actor, held_ms)"
        " SELECT " GRANT_VALUES("u", "$14") ", u.held_ms"
        " FROM (SELECT " U(1, shard) ", " U(2, uid) ", " GRANT_ROWS_FROM_3 ", " U(13, held_ms)
        ") AS u ON CONFLICT DO NOTHING RETURNING saga_uid, seq, now()" },

    /* It looks at its lease alone; whose the saga is is asked where there are several nodes. */
    [STMT_FINISH] = { "finish", 11, { FINISH_PARAMS, OID_BOOL, OID_TEXT },
        "UPDATE journal e" FINISH_SET
        " FROM (SELECT " FINISH_ROWS ") AS u" FINISH_WHERE
        " RETURNING e.saga_uid, e.seq, now(), CASE WHEN $10 THEN (SELECT s.owner IS DISTINCT FROM"
        " $11 FROM saga s WHERE s.shard = e.shard AND s.saga_uid = e.saga_uid) ELSE false END" },

    /* The next lease comes FROM the entry that was finished. Returns the new position. */
    [STMT_FINISH_GRANT] = { "finish_grant", 20, { FINISH_PARAMS, GRANT_PARAMS, OID_TEXT },
        "WITH f AS (UPDATE journal e" FINISH_SET
        " FROM (SELECT " FINISH_ROWS ", " GRANT_ROWS_FROM_10 ") AS u" FINISH_WHERE
        " RETURNING u.shard, u.uid, u.grant_seq, u.fence, u.step, u.step_index, u.operation, u.try,"
        " u.worker, u.lease_ms, u.attempt_ms, u.send_before_ms)"
        " INSERT INTO journal " GRANT_COLUMNS " SELECT " GRANT_VALUES("f", "$20") " FROM f"
        " ON CONFLICT DO NOTHING RETURNING saga_uid, seq, now()" },

    /* The end needs no entry: whoever finds the row in another state gets nothing back. */
    [STMT_FINISH_END] = { "finish_end", 11, { FINISH_PARAMS, OID_TEXT_ARRAY, OID_TEXT_ARRAY },
        "WITH f AS (UPDATE journal e" FINISH_SET
        " FROM (SELECT " FINISH_ROWS ", " U(10, state_from) ", " U(11, state) ") AS u" FINISH_WHERE
        " RETURNING u.shard, u.uid, u.seq, u.state_from, u.state),"
        " g AS (UPDATE saga s SET state = f.state, phase = f.state, updated_at = now(),"
        " ended_at = now() FROM f WHERE s.shard = f.shard AND s.saga_uid = f.uid"
        " AND s.state = f.state_from AND s.phase = f.state_from"
        ROW_RETURNING ", true AS ends, f.seq),"
        " k AS (" KEY_END ")"
        " SELECT g.saga_uid, g.seq, now() FROM g" },

    /* A decision: locks the saga row in the state that it was decided for and the entry that it
     * finishes, inserts its first entry against the key, and only then, FROM that, the further
     * entries, the outcome and the row. All of it or nothing. Who changes the state owns the saga:
     * it may have been let go or adopted meanwhile, and must not be without an owner now. */
    [STMT_PHASE] = { "phase", 46, { FINISH_PARAMS, ROW_PARAMS, ENTRY_PARAMS, OID_TEXT, OID_TEXT },
        "WITH u AS MATERIALIZED (SELECT " FINISH_ROWS ", " ROW_ROWS "),"
        " e AS MATERIALIZED (SELECT " ENTRY_ROWS "),"
        " s AS MATERIALIZED (SELECT u.* FROM u JOIN saga s ON s.shard = u.shard"
        " AND s.saga_uid = u.uid WHERE s.state = u.state_from AND s.phase = u.phase_from"
        " FOR UPDATE OF s),"
        " o AS MATERIALIZED (SELECT u.shard, u.uid FROM s u JOIN journal e ON e.shard = u.shard"
        " AND e.saga_uid = u.uid AND e.seq = u.seq WHERE e.outcome IS NULL"
        " AND (NOT u.only_if_expired OR e.lease_until < now()) FOR UPDATE OF e),"
        " h AS (" ENTRY_INSERT " SELECT o.shard, " ENTRY_VALUES
        " FROM (SELECT o.shard, o.uid FROM o UNION ALL SELECT s.shard, s.uid FROM s"
        " WHERE s.seq IS NULL) o JOIN e ON e.uid = o.uid WHERE e.head"
        " ON CONFLICT DO NOTHING RETURNING shard, saga_uid, seq),"
        " m AS (" ENTRY_INSERT " SELECT h.shard, " ENTRY_VALUES
        " FROM h JOIN e ON e.uid = h.saga_uid WHERE NOT e.head),"
        " d AS MATERIALIZED (SELECT u.* FROM h JOIN u ON u.uid = h.saga_uid),"
        " f AS (UPDATE journal e" FINISH_SET " FROM d u" FINISH_WHERE "),"
        " g AS (UPDATE saga s" ROW_SET("d") ", owner = $46, wake_at = NULL, waiting_handler = NULL"
        " FROM d" ROW_WHERE("d") ROW_RETURNING ", d.ends),"
        " k AS (" KEY_END ")"
        " SELECT h.saga_uid, h.seq, now() FROM h" },

    [STMT_EXTEND] = { "extend", 4,
        { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY },
        /* A transaction that began earlier may come later: never back. */
        "UPDATE journal e SET lease_until = greatest(e.lease_until,"
        " least(now() + u.lease_ms * interval '1 millisecond', e.attempt_until))"
        " FROM (SELECT " U(1, shard) ", " U(2, uid) ", " U(3, seq) ", " U(4, lease_ms) ") AS u"
        " WHERE e.shard = u.shard AND e.saga_uid = u.uid AND e.seq = u.seq AND e.outcome IS NULL"
        " RETURNING e.saga_uid, e.seq, now()" },

    [STMT_LATE] = { "late", 8,
        { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8_ARRAY, OID_TEXT_ARRAY, OID_BOOL_ARRAY,
          OID_BYTEA_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY },
        /* Held, so that no purge comes between: it takes the report with the saga, or the report
         * finds no saga. */
        "WITH u AS MATERIALIZED (SELECT u.* FROM unnest($1, $2, $3, $4, $5, $6, $7, $8) AS u (shard,"
        " uid, fence, outcome, effect, output, error_code, error_message) JOIN saga s"
        " ON s.shard = u.shard AND s.saga_uid = u.uid FOR KEY SHARE OF s),"
        " l AS (INSERT INTO late_report (shard, saga_uid, fence, outcome, effect, output,"
        " error_code, error_message, received_at) SELECT u.shard, u.uid, u.fence, u.outcome,"
        " u.effect, u.output, u.error_code, u.error_message, now() FROM u ON CONFLICT DO NOTHING),"
        " g AS (UPDATE saga s SET doubt = true, updated_at = now() FROM u WHERE u.effect"
        " AND s.shard = u.shard AND s.saga_uid = u.uid AND NOT s.doubt)"
        " SELECT u.uid, u.fence, now() FROM u" },

    /* To be the owner is to keep the timers; a saga that is loaded for a decision is taken first. */
    [STMT_TAKE] = { "take", 3, { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_TEXT },
        "UPDATE saga s SET owner = $3, wake_at = NULL, waiting_handler = NULL"
        " FROM (SELECT " U(1, shard) ", " U(2, uid) ") AS u WHERE s.shard = u.shard"
        " AND s.saga_uid = u.uid AND s.owner IS DISTINCT FROM $3 AND " NOT_TERMINAL
        " RETURNING s.saga_uid, 0::bigint, now()" },

    [STMT_LET_GO] = { "let_go", 7,
        { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY,
          OID_TEXT_ARRAY, OID_TEXT },
        "UPDATE saga s SET owner = NULL, waiting_handler = u.waiting_handler,"
        " wake_at = timestamptz 'epoch' + u.wake_at_ms * interval '1 millisecond'"
        " FROM (SELECT " U(1, shard) ", " U(2, uid) ", " U(3, wake_at_ms) ", "
        U(4, waiting_handler) ", " U(5, state) ", " U(6, phase) ") AS u"
        " WHERE s.shard = u.shard AND s.saga_uid = u.uid AND s.owner = $7 AND s.state = u.state AND s.phase = u.phase AND " NOT_TERMINAL
        " RETURNING s.saga_uid, 0::bigint, now()" },

    /* Waits for nobody: what is locked is somebody's. The row of a dead node stays locked until the
     * end, so that its next heartbeat comes after this and is told that it was dead. */
    [STMT_ADOPT] = { "adopt", 4, { OID_TEXT_ARRAY, OID_TEXT, OID_INT8, OID_INT8 },
        "WITH d AS MATERIALIZED (SELECT n.name FROM node n WHERE n.name <> $2"
        " AND n.heartbeat_at < now() - $3 * interval '1 millisecond' AND " NODE_OWNS
        " FOR SHARE OF n SKIP LOCKED),"
        " c AS MATERIALIZED (SELECT a.shard, a.saga_uid FROM ("
        "SELECT o.* FROM d CROSS JOIN LATERAL (SELECT s.shard, s.saga_uid FROM saga s"
        " WHERE s.owner = d.name AND " OPEN_STATES " ORDER BY s.shard, s.saga_uid LIMIT $4"
        " FOR UPDATE SKIP LOCKED) o"
        " UNION ALL SELECT w.* FROM (SELECT s.shard, s.saga_uid FROM saga s WHERE s.owner IS NULL"
        " AND s.wake_at <= now() AND " OPEN_STATES " ORDER BY s.wake_at LIMIT $4"
        " FOR UPDATE SKIP LOCKED) w"
        " UNION ALL SELECT h.* FROM unnest($1) AS u (handler) CROSS JOIN LATERAL (SELECT s.shard,"
        " s.saga_uid FROM saga s WHERE s.owner IS NULL AND s.waiting_handler = u.handler"
        " AND (s.wake_at IS NULL OR s.wake_at > now()) AND " OPEN_STATES " ORDER BY s.started_at"
        " LIMIT $4 FOR UPDATE SKIP LOCKED) h) a LIMIT $4)"
        " UPDATE saga s SET owner = $2, wake_at = NULL, waiting_handler = NULL FROM c"
        " WHERE s.shard = c.shard AND s.saga_uid = c.saga_uid RETURNING s.saga_uid, now()" },

    /* $4: joins, $5: leaves, $6: serves. No row comes back when another process has this name. Joining cleans
     * up behind those that are long gone. */
    [STMT_HEARTBEAT] = { "heartbeat", 6,
        { OID_TEXT, OID_UUID, OID_INT8, OID_BOOL, OID_BOOL, OID_TEXT_ARRAY },
        "WITH p AS MATERIALIZED (SELECT n.heartbeat_at FROM node n WHERE n.name = $1),"
        " b AS (INSERT INTO node AS n (name, instance, joined_at, heartbeat_at, handlers)"
        " VALUES ($1, $2, now(), CASE WHEN $5 THEN '-infinity' ELSE now() END, $6)"
        " ON CONFLICT (name) DO UPDATE SET instance = $2, heartbeat_at = EXCLUDED.heartbeat_at,"
        " handlers = EXCLUDED.handlers,"
        " joined_at = CASE WHEN $4 THEN EXCLUDED.joined_at ELSE n.joined_at END"
        " WHERE $4 OR n.instance = $2"
        /* The clock: after the wait for one that adopts. */
        " RETURNING clock_timestamp() - $3 * interval '1 millisecond' AS dead_before),"
        " g AS (DELETE FROM node WHERE $4 AND name IN (SELECT n.name FROM node n"
        " WHERE n.heartbeat_at < now() - interval '1 day' AND n.name <> $1"
        " AND " NODE_OWNS " IS NULL FOR UPDATE SKIP LOCKED))"
        " SELECT (NOT $5)::int4 + (SELECT count(*)::int4 FROM node n WHERE n.name <> $1"
        " AND n.heartbeat_at >= now() - $3 * interval '1 millisecond'),"
        " NOT coalesce((SELECT p.heartbeat_at >= b.dead_before FROM p), false), now() FROM b" },

    [STMT_HANDLER] = { "handler", 15, { HANDLER_SET_PARAMS }, HANDLER_SET },
    /* Says what this node has of them, and reads them all, with their times where its version
     * ($2) is not the stored one. A few rows. */
    [STMT_HANDLERS] = { "handlers", 9,
        { OID_TEXT_ARRAY, OID_INT8_ARRAY, OID_BOOL_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY,
          OID_BOOL_ARRAY, OID_INT8_ARRAY, OID_TEXT, OID_INT8 },
        "WITH u AS MATERIALIZED (SELECT " U(1, name) ", " U(2, version) ", " U(3, counts) ", "
        U(4, waiting) ", " U(5, leased) ", " U(6, served) ", " U(7, oldest_ms) "),"
        " c AS (INSERT INTO handler_node (handler, node, waiting, leased, served, oldest_at, seen_at)"
        " SELECT u.name, $8, u.waiting, u.leased, u.served,"
        " timestamptz 'epoch' + u.oldest_ms * interval '1 millisecond', now() FROM u WHERE u.counts"
        " ON CONFLICT (handler, node) DO UPDATE SET waiting = EXCLUDED.waiting,"
        " leased = EXCLUDED.leased, served = EXCLUDED.served, oldest_at = EXCLUDED.oldest_at,"
        " seen_at = EXCLUDED.seen_at)"
        " SELECT now(), " HANDLER_COLUMNS ", (SELECT count(*)::int4 FROM handler_node n"
        " WHERE n.handler = h.name AND n.node <> $8 AND n.served AND " HANDLER_NODE_LIVES "),"
        " h.release_rate IS NOT NULL AND NOT EXISTS (SELECT FROM handler_node n"
        " WHERE n.handler = h.name AND n.node <> $8 AND n.waiting > 0 AND " HANDLER_NODE_LIVES ")"
        " AND NOT EXISTS (SELECT FROM saga s WHERE s.waiting_handler = h.name AND s.owner IS NULL"
        " AND " OPEN_STATES "), u.version IS DISTINCT FROM h.version, t.from_at, t.until_at"
        " FROM handler h LEFT JOIN u ON u.name = h.name LEFT JOIN LATERAL (SELECT o.from_at,"
        " o.until_at FROM handler_hold o WHERE o.handler = h.name"
        " AND u.version IS DISTINCT FROM h.version ORDER BY o.from_at DESC LIMIT $9) t ON true"
        " ORDER BY h.name, t.from_at" },

    /* What may have happened, as (seq, part) of the outbox; an event is what did, in this
     * transaction, whatever became of the rest of its transition. */
    [STMT_EVENTS] = { "events", 4,
        { OID_INT2_ARRAY, OID_UUID_ARRAY, OID_INT8_ARRAY, OID_INT2_ARRAY },
        "INSERT INTO outbox (shard, saga_uid, seq, part, created_at)"
        " SELECT u.shard, u.uid, u.seq, u.part, now() FROM (SELECT " U(1, shard) ", " U(2, uid)
        ", " U(3, seq) ", " U(4, part) ") AS u WHERE CASE u.part"
        " WHEN 0 THEN (SELECT s.started_at FROM saga s WHERE s.shard = u.shard"
        " AND s.saga_uid = u.uid)"
        " WHEN 1 THEN (SELECT j.finished_at FROM journal j WHERE j.shard = u.shard"
        " AND j.saga_uid = u.uid AND j.seq = u.seq)"
        " ELSE (SELECT s.ended_at FROM saga s WHERE s.shard = u.shard AND s.saga_uid = u.uid) END"
        " = now() ON CONFLICT DO NOTHING" },

    [STMT_LOAD_ROWS] = { "load_rows", 2, { OID_INT2_ARRAY, OID_UUID_ARRAY },
        "SELECT u.n, now(), " SAGA_COLUMNS ", s.input"
        " FROM unnest($1, $2) WITH ORDINALITY AS u (shard, uid, n)"
        " JOIN saga s ON s.shard = u.shard AND s.saga_uid = u.uid" },
    [STMT_LOAD_ENTRIES] = { "load_entries", 2, { OID_INT2_ARRAY, OID_UUID_ARRAY },
        "SELECT u.n, " ENTRY_COLUMNS
        " FROM unnest($1, $2) WITH ORDINALITY AS u (shard, uid, n)"
        " JOIN journal j ON j.shard = u.shard AND j.saga_uid = u.uid ORDER BY u.n, j.seq" },

    [STMT_LOAD_KEYS] = { "load_keys", 4,
        { OID_INT2_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY },
        "SELECT u.n, now(), k.saga_uid, k.run, k.input_digest, k.final_state"
        " FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS u (shard, namespace, definition, saga_id, n)"
        " JOIN saga_key k ON k.shard = u.shard AND k.namespace = u.namespace"
        " AND k.definition = u.definition AND k.saga_id = u.saga_id" },
    [STMT_LOAD_KEY_ROWS] = { "load_key_rows", 4,
        { OID_INT2_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY },
        "SELECT u.n, now(), " SAGA_COLUMNS ", s.input"
        " FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS u (shard, namespace, definition, saga_id, n)"
        " JOIN saga_key k ON k.shard = u.shard AND k.namespace = u.namespace"
        " AND k.definition = u.definition AND k.saga_id = u.saga_id"
        " JOIN saga s ON s.shard = k.shard AND s.saga_uid = k.saga_uid" },
    [STMT_LOAD_KEY_ENTRIES] = { "load_key_entries", 4,
        { OID_INT2_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY },
        "SELECT u.n, " ENTRY_COLUMNS
        " FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS u (shard, namespace, definition, saga_id, n)"
        " JOIN saga_key k ON k.shard = u.shard AND k.namespace = u.namespace"
        " AND k.definition = u.definition AND k.saga_id = u.saga_id"
        " JOIN journal j ON j.shard = k.shard AND j.saga_uid = k.saga_uid ORDER BY u.n, j.seq" },

    [STMT_OWN] = { "own", 4, { OID_TEXT, OID_INT2, OID_UUID, OID_INT8 },
        "SELECT s.saga_uid, now() FROM saga s WHERE s.owner = $1 AND " OPEN_STATES
        " AND (s.shard, s.saga_uid) > ($2, $3) ORDER BY s.shard, s.saga_uid LIMIT $4" },

    [STMT_LOAD_DEFINITION] = { "load_definition", 3, { OID_TEXT, OID_TEXT, OID_INT4 },
        "SELECT r.revision, now(), r.content, r.descriptors, $3 = 0 AND d.paused_at IS NOT NULL,"
        " CASE WHEN $3 = 0 THEN d.pause_reason END"
        " FROM definition d JOIN definition_revision r"
        " ON r.namespace = d.namespace AND r.name = d.name"
        " AND r.revision = CASE WHEN $3 = 0 THEN d.current_revision ELSE $3 END"
        " WHERE d.namespace = $1 AND d.name = $2" },
    /* clang-format on */
};
static_assert(STMT_LOAD_DEFINITION + 1 == STMT_COUNT, "one row for each stmt_id");

const struct stmt control_stmts[CONTROL_COUNT] = {
    [CONTROL_BEGIN] = { "begin", 0, { 0 }, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE" },
    [CONTROL_BEGIN_READ] = { "begin_read",
                             0,
                             { 0 },
                             "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" },
    [CONTROL_HURRY] = { "hurry", 0, { 0 }, "SET LOCAL lock_timeout = '25ms'" },
    [CONTROL_COMMIT] = { "commit", 0, { 0 }, "COMMIT" },
    [CONTROL_ROLLBACK] = { "rollback", 0, { 0 }, "ROLLBACK" },
};
static_assert(SPLIT_LOCK_TIMEOUT_MS == 25, "as in the text of hurry");

/* A revision with the state of its definition, before its descriptors and its open sagas. */
#define REVISION_COLUMNS                                                                           \
    "r.namespace, r.name, r.revision, r.created_at, r.revision = d.current_revision, r.content,"   \
    " d.paused_at, d.paused_by, d.pause_reason"

/* The sagas of a definition d in a state t. */
#define ENDS     "unnest(ARRAY['SUCCEEDED', 'COMPENSATED', 'ABANDONED']) AS t (state)"
#define OF_STATE "c.namespace = d.namespace AND c.definition = d.name AND c.state = t.state"

/* Sagas that wait for a handler and that no node has. */
#define LET_GO OPEN_STATES " AND s.owner IS NULL AND s.waiting_handler IS NOT NULL"
#define LET_GO_NEXT(behind)                                                                        \
    "SELECT s.waiting_handler FROM saga s WHERE " LET_GO behind                                    \
    " ORDER BY s.waiting_handler, s.started_at LIMIT 1"

const struct stmt
    read_stmts
        [READ_COUNT] = {
            /* clang-format off */
    /* uid of a key's run: the latest one by its key, an older one by its row. */
    [READ_RESOLVE] = { "resolve", 5, { OID_INT2, OID_TEXT, OID_TEXT, OID_TEXT, OID_INT4 },
        "SELECT k.saga_uid FROM saga_key k WHERE k.shard = $1 AND k.namespace = $2"
        " AND k.definition = $3 AND k.saga_id = $4 AND ($5 = 0 OR k.run = $5)"
        " UNION SELECT s.saga_uid FROM saga s WHERE s.namespace = $2 AND s.saga_id = $4"
        " AND s.definition = $3 AND s.run = $5" },
    [READ_ROW] = { "row", 2, { OID_INT2, OID_UUID },
        "SELECT 1::bigint, now(), " SAGA_COLUMNS ", s.input FROM saga s"
        " WHERE s.shard = $1 AND s.saga_uid = $2" },
    [READ_ENTRIES] = { "entries", 4, { OID_INT2, OID_UUID, OID_INT8, OID_INT8 },
        "SELECT 1::bigint, " ENTRY_COLUMNS " FROM journal j WHERE j.shard = $1 AND j.saga_uid = $2"
        " AND j.seq > $3 ORDER BY j.seq LIMIT $4" },
    [READ_CONTENT] = { "content", 3, { OID_TEXT, OID_TEXT, OID_INT4 },
        "SELECT content FROM definition_revision"
        " WHERE namespace = $1 AND name = $2 AND revision = $3" },

    /* What tells one state of a saga from another. */
    [READ_VERSIONS] = { "versions", 2, { OID_INT2_ARRAY, OID_UUID_ARRAY },
        "SELECT u.n, s.state, j.entries, j.ended"
        " FROM unnest($1, $2) WITH ORDINALITY AS u (shard, uid, n)"
        " JOIN saga s ON s.shard = u.shard AND s.saga_uid = u.uid"
        " CROSS JOIN LATERAL (SELECT count(*) AS entries, count(c.outcome) AS ended FROM journal c"
        " WHERE c.shard = u.shard AND c.saga_uid = u.uid) j" },

    /* Groups of parked sagas with the oldest of each, and how many there are in all. */
    [READ_PARKED] = { "parked", 3, { OID_TEXT, OID_TEXT, OID_INT8 },
        "SELECT g.namespace, g.definition, g.park_step, g.phase, g.park_reason, g.park_code,"
        " g.count, g.oldest_at, g.oldest[2], (sum(g.count) OVER ())::bigint FROM ("
        "SELECT s.namespace, s.definition, s.park_step, s.phase, s.park_reason, s.park_code,"
        " count(*) AS count, min(s.updated_at) AS oldest_at,"
        /* The id beside the smallest time: there is no min() of rows, but of arrays. */
        " min(ARRAY[to_char(s.updated_at, 'YYYYMMDDHH24MISSUS') COLLATE \"C\", s.saga_id]) AS oldest"
        " FROM definition d CROSS JOIN LATERAL (SELECT * FROM saga c"
        " WHERE c.namespace = d.namespace AND c.definition = d.name AND c.state = 'PARKED'"
        " OFFSET 0) s WHERE ($1 IS NULL OR d.namespace = $1) AND ($2 IS NULL OR d.name = $2)"
        " GROUP BY 1, 2, 3, 4, 5, 6) g"
        " ORDER BY g.oldest_at, g.namespace, g.definition, g.oldest[2] LIMIT $3" },

    /* The oldest saga that has not ended: the first of each definition and state. */
    [READ_GUARD_FLOOR] = { "guard_floor", 1, { OID_INT8 },
        "SELECT least(now(), o.started_at) - $1 * interval '1 millisecond', o.started_at,"
        " o.saga_uid, o.namespace, o.definition, o.saga_id, o.run FROM (SELECT 1) n LEFT JOIN ("
        "SELECT s.* FROM definition d"
        " CROSS JOIN unnest(ARRAY['RUNNING', 'COMPENSATING', 'PARKED']) AS t (state)"
        " CROSS JOIN LATERAL (SELECT c.started_at, c.saga_uid, c.namespace, c.definition,"
        " c.saga_id, c.run FROM saga c WHERE c.namespace = d.namespace AND c.definition = d.name"
        " AND c.state = t.state ORDER BY c.started_at, c.saga_uid LIMIT 1) s"
        " ORDER BY s.started_at, s.saga_uid LIMIT 1) o ON true" },

    /* The handlers that sagas without an owner wait for, found one after the other in the index
     * saga_waiting: how many (up to $1), and the start of the oldest. */
    [READ_LET_GO] = { "let_go_handlers", 2, { OID_INT8, OID_INT8 },
        "WITH RECURSIVE h (name) AS ((" LET_GO_NEXT(" AND s.waiting_handler > ''") ") UNION ALL"
        " SELECT (" LET_GO_NEXT(" AND s.waiting_handler > h.name") ") FROM h"
        " WHERE h.name IS NOT NULL)"
        " SELECT h.name, (SELECT count(*) FROM (SELECT FROM saga s WHERE " LET_GO
        " AND s.waiting_handler = h.name LIMIT $1) c),"
        " (SELECT s.started_at FROM saga s WHERE " LET_GO " AND s.waiting_handler = h.name"
        " ORDER BY s.waiting_handler, s.started_at LIMIT 1),"
        " coalesce((SELECT (f.part * 1e9)::int8 FROM pg_stats p CROSS JOIN"
        " unnest(p.most_common_vals::text::text[], p.most_common_freqs) AS f (word, part)"
        " WHERE p.schemaname = current_schema() AND p.tablename = 'saga'"
        " AND p.attname = 'waiting_handler' AND f.word = h.name), 0)"
        " FROM h WHERE h.name IS NOT NULL LIMIT $2" },
    /* The nodes that live, but for $1. */
    [READ_NODES] = { "live_nodes", 2, { OID_TEXT, OID_INT8 },
        "SELECT n.name FROM node n WHERE n.name <> $1"
        " AND n.heartbeat_at > now() - interval '10 seconds' ORDER BY n.name LIMIT $2" },

    /* Which of the others that live, but for $1, serve these handlers. */
    [READ_SERVING] = { "serving", 3, { OID_TEXT, OID_TEXT_ARRAY, OID_INT8 },
        "SELECT h.name, n.name FROM unnest($2) AS h (name) JOIN node n ON h.name = ANY (n.handlers)"
        " WHERE n.name <> $1 AND n.heartbeat_at > now() - interval '10 seconds'"
        " ORDER BY h.name, n.name LIMIT $3" },

    [READ_RETENTION_NODES] = { "retention_nodes", 1, { OID_INT8 },
        "SELECT r.node, r.retention_ms, r.key_memory_ms, r.archive, r.seen_at, r.round_began_at,"
        " r.round_ended_at, r.round_purged, r.purged, r.forgotten, r.problem"
        " FROM retention r ORDER BY r.node LIMIT $1" },
    [READ_RETENTION_TOPICS] = { "retention_topics", 1, { OID_INT8 },
        "SELECT k.rule, k.topic, coalesce(k.topic_retention_ms, -2),"
        " coalesce(k.topic_compacted, false) FROM kafka_rule k ORDER BY k.rule LIMIT $1" },
    /* Each count up to $1. What purges is whoever said so within a minute. */
    [READ_RETENTION_COUNTS] = { "retention_counts", 1, { OID_INT8 },
        "WITH a AS MATERIALIZED (SELECT now() - min(r.retention_ms) * interval '1 millisecond'"
        " AS before FROM retention r WHERE r.retention_ms >= 0"
        " AND r.seen_at > now() - interval '1 minute')"
        " SELECT now(),"
        " (SELECT count(*) FROM (SELECT FROM definition d CROSS JOIN " ENDS " CROSS JOIN LATERAL ("
        "SELECT FROM saga c WHERE " OF_STATE " LIMIT $1) s LIMIT $1) x),"
        " (SELECT count(*) FROM (SELECT FROM a CROSS JOIN definition d CROSS JOIN " ENDS
        " CROSS JOIN LATERAL (SELECT FROM saga c WHERE " OF_STATE " AND c.started_at < a.before"
        " AND c.ended_at < a.before AND NOT c.doubt LIMIT $1) s LIMIT $1) x),"
        " (SELECT count(*) FROM (SELECT FROM a CROSS JOIN definition d CROSS JOIN " ENDS
        " CROSS JOIN LATERAL (SELECT FROM saga c WHERE " OF_STATE " AND c.started_at < a.before"
        " AND c.ended_at < a.before AND c.doubt LIMIT $1) s LIMIT $1) x),"
        " (SELECT count(*) FROM (SELECT FROM a CROSS JOIN definition d CROSS JOIN LATERAL ("
        "SELECT FROM saga c WHERE c.namespace = d.namespace AND c.definition = d.name"
        " AND c.state = 'PARKED' AND c.started_at < a.before AND c.updated_at < a.before"
        " LIMIT $1) s LIMIT $1) x)" },

    [READ_DEFINITION] = { "definition", 4, { OID_TEXT, OID_TEXT, OID_INT4, OID_BOOL },
        "SELECT " REVISION_COLUMNS ", CASE WHEN $4 THEN r.descriptors ELSE '' END, 0::bigint"
        " FROM definition d JOIN definition_revision r"
        " ON r.namespace = d.namespace AND r.name = d.name"
        " AND r.revision = CASE WHEN $3 = 0 THEN d.current_revision ELSE $3 END"
        " WHERE d.namespace = $1 AND d.name = $2" },
    [READ_DEFINITIONS] = { "definitions", 4, { OID_TEXT, OID_TEXT, OID_TEXT, OID_INT8 },
        "SELECT " REVISION_COLUMNS ", ''::bytea, 0::bigint"
        " FROM definition d JOIN definition_revision r"
        " ON r.namespace = d.namespace AND r.name = d.name AND r.revision = d.current_revision"
        " WHERE (d.namespace, d.name) > ($2, $3) AND ($1 IS NULL OR d.namespace = $1)"
        " ORDER BY d.namespace, d.name LIMIT $4" },
    /* Newest first. What has not ended is counted once for all revisions. */
    [READ_REVISIONS] = { "revisions", 4, { OID_TEXT, OID_TEXT, OID_INT4, OID_INT8 },
        "WITH o AS MATERIALIZED (SELECT s.revision, count(*) AS sagas"
        " FROM unnest(ARRAY['RUNNING', 'COMPENSATING', 'PARKED']) AS t (state)"
        " CROSS JOIN LATERAL (SELECT c.revision FROM saga c WHERE c.namespace = $1"
        " AND c.definition = $2 AND c.state = t.state OFFSET 0) s GROUP BY s.revision)"
        "SELECT " REVISION_COLUMNS ", ''::bytea,"
        " coalesce((SELECT o.sagas FROM o WHERE o.revision = r.revision), 0)"
        " FROM definition d JOIN definition_revision r"
        " ON r.namespace = d.namespace AND r.name = d.name"
        " WHERE d.namespace = $1 AND d.name = $2 AND r.revision < $3"
        " ORDER BY r.revision DESC LIMIT $4" },

    /* Changes, each in a transaction: whoever holds the name's row decides. The row is there once
     * something was registered, and stays. */
    [READ_REGISTER_NAME] = { "register_name", 2, { OID_TEXT, OID_TEXT },
        "INSERT INTO definition (namespace, name, current_revision) VALUES ($1, $2, 0)"
        " ON CONFLICT DO NOTHING" },
    [READ_DEFINITION_LOCK] = { "definition_lock", 2, { OID_TEXT, OID_TEXT },
        "SELECT current_revision, paused_at IS NOT NULL FROM definition"
        " WHERE namespace = $1 AND name = $2 FOR UPDATE" },
    [READ_REGISTER_NEXT] = { "register_next", 2, { OID_TEXT, OID_TEXT },
        "SELECT 1 + greatest((SELECT d.last_revision FROM definition d WHERE d.namespace = $1"
        " AND d.name = $2), (SELECT max(o.revision) FROM definition_revision o"
        " WHERE o.namespace = $1 AND o.name = $2), 0)" },
    [READ_REGISTER_FIND] = { "register_find", 3, { OID_TEXT, OID_TEXT, OID_BYTEA },
        "SELECT " REVISION_COLUMNS ", ''::bytea, 0::bigint"
        " FROM definition d JOIN definition_revision r"
        " ON r.namespace = d.namespace AND r.name = d.name"
        " WHERE d.namespace = $1 AND d.name = $2 AND r.digest = $3" },
    [READ_REGISTER_ADD] = { "register_add", 7,
        { OID_TEXT, OID_TEXT, OID_INT4, OID_BYTEA, OID_BYTEA, OID_BYTEA, OID_BOOL },
        "WITH r AS (INSERT INTO definition_revision (namespace, name, revision, digest, content,"
        " descriptors) VALUES ($1, $2, $3, $4, $5, $6) RETURNING *)"
        " UPDATE definition d SET last_revision = r.revision, current_revision ="
        " CASE WHEN $7 AND d.current_revision > 0 THEN d.current_revision ELSE r.revision END"
        " FROM r WHERE d.namespace = r.namespace AND d.name = r.name"
        " RETURNING " REVISION_COLUMNS ", ''::bytea, 0::bigint" },
    [READ_PROMOTE] = { "promote", 3, { OID_TEXT, OID_TEXT, OID_INT4 },
        "UPDATE definition d SET current_revision = r.revision FROM definition_revision r"
        " WHERE r.namespace = $1 AND r.name = $2 AND r.revision = $3"
        " AND d.namespace = r.namespace AND d.name = r.name"
        " RETURNING " REVISION_COLUMNS ", ''::bytea, 0::bigint" },
    /* A definition that pauses keeps the time, and whose word it was. */
    [READ_PAUSE] = { "pause", 4, { OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT },
        "UPDATE definition d SET paused_at = coalesce(d.paused_at, now()),"
        " paused_by = CASE WHEN d.paused_at IS NULL THEN $3 ELSE d.paused_by END,"
        " pause_reason = CASE WHEN d.paused_at IS NULL THEN $4 ELSE d.pause_reason END"
        " FROM definition_revision r WHERE d.namespace = $1 AND d.name = $2"
        " AND r.namespace = d.namespace AND r.name = d.name AND r.revision = d.current_revision"
        " RETURNING " REVISION_COLUMNS ", ''::bytea, 0::bigint" },
    [READ_RESUME] = { "resume", 2, { OID_TEXT, OID_TEXT },
        "UPDATE definition d SET paused_at = NULL, paused_by = NULL, pause_reason = NULL"
        " FROM definition_revision r WHERE d.namespace = $1 AND d.name = $2"
        " AND r.namespace = d.namespace AND r.name = d.name AND r.revision = d.current_revision"
        " RETURNING " REVISION_COLUMNS ", ''::bytea, 0::bigint" },
    /* Does any saga have it? Those that have ended, too: their journals are read by it. */
    [READ_REVISION_USED] = { "revision_used", 3, { OID_TEXT, OID_TEXT, OID_INT4 },
        "SELECT EXISTS (SELECT FROM saga s WHERE s.namespace = $1 AND s.definition = $2"
        " AND s.revision = $3)" },
    /* Waits for starts that have not committed, and makes new ones wait. */
    [READ_REVISION_LOCK] = { "revision_lock", 3, { OID_TEXT, OID_TEXT, OID_INT4 },
        "SELECT r.revision = (SELECT d.current_revision FROM definition d WHERE d.namespace = $1"
        " AND d.name = $2), (SELECT count(*) FROM definition_revision o WHERE o.namespace = $1"
        " AND o.name = $2) FROM definition_revision r WHERE r.namespace = $1 AND r.name = $2"
        " AND r.revision = $3 FOR UPDATE OF r" },
    [READ_REVISION_DELETE] = { "revision_delete", 3, { OID_TEXT, OID_TEXT, OID_INT4 },
        "WITH r AS (DELETE FROM definition_revision WHERE namespace = $1 AND name = $2"
        " AND revision = $3 RETURNING namespace, name, revision)"
        " UPDATE definition d SET current_revision = 0, paused_at = NULL, paused_by = NULL,"
        " pause_reason = NULL FROM r WHERE d.namespace = r.namespace AND d.name = r.name"
        " AND d.current_revision = r.revision" },
            /* clang-format on */
        };
static_assert(READ_REVISION_DELETE + 1 == READ_COUNT, "one row for each read_stmt_id");
