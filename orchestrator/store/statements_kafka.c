#include "store/statements.h"

#include <assert.h>

/* Rows of arrays in the select list, as in statements.c. */
#define U(n, name) "unnest($" #n ") AS " #name

/* Lists of columns; reader_kafka.c and reader_letters.c read them by position. */
#define RULE_COLUMNS                                                                               \
    "r.rule, r.topic, r.group_id, r.namespace, r.definition, r.wanted = 'RUN', r.stopped_by,"      \
    " r.stop_reason, r.stopped_at, coalesce(r.topic_retention_ms, -2),"                            \
    " coalesce(r.topic_compacted, false), coalesce(r.key_memory_ms, -1), r.problem, r.node,"       \
    " r.seen_at, now()"
#define RULE_WHERE                                                                                 \
    " WHERE ($1 IS NULL OR r.rule = $1) AND ($2 IS NULL OR r.namespace = $2)"                      \
    " AND ($3 IS NULL OR r.definition = $3)"
#define REQUEST_COLUMNS                                                                            \
    "q.request_id, q.rule, q.kind, q.arguments, q.actor, q.reason, q.requested_at, q.state,"       \
    " q.node, q.finished_at, q.progress, q.total, q.result, q.error"
#define LETTER_COLUMNS                                                                             \
    "l.dead_letter_id, l.rule, l.topic, l.partition, l.record_offset, l.record_time_ms,"           \
    " l.key IS NOT NULL, l.value IS NOT NULL, coalesce(octet_length(l.key), 0)::int8,"             \
    " coalesce(octet_length(l.value), 0)::int8, l.saga_id, l.reason, l.message, l.received_at,"    \
    " l.state, l.decided_by, l.decision_reason, l.decided_at, l.saga_uid, l.replay_error"

/* The index dead_letter_list holds each (rule, state) in order of time: the first of each are
 * taken, then the first of those. The rules are those that letters name, one jump in the index for
 * each: a rule that nobody serves any more has no row. */
#define LETTERS_OF(compare, order)                                                                 \
    " FROM (WITH RECURSIVE s (rule) AS ((SELECT min(d.rule) FROM dead_letter d) UNION ALL"         \
    " SELECT (SELECT min(d.rule) FROM dead_letter d WHERE d.rule > s.rule) FROM s"                 \
    " WHERE s.rule IS NOT NULL) SELECT s.rule FROM s WHERE s.rule IS NOT NULL) r"                  \
    " CROSS JOIN unnest($2) AS t (state)"                                                          \
    " CROSS JOIN LATERAL (SELECT * FROM dead_letter c WHERE c.rule = r.rule"                       \
    " AND c.state = t.state AND c.dead_letter_id " compare " $3"                                   \
    " AND ($4 IS NULL OR c.topic = $4) AND ($5 IS NULL OR c.partition = $5)"                       \
    " AND ($6 IS NULL OR c.reason = $6) ORDER BY c.dead_letter_id " order " LIMIT $7) l"           \
    " WHERE $1 IS NULL OR r.rule = $1 ORDER BY l.dead_letter_id " order " LIMIT $7"
#define LETTER_HAS_RULE "EXISTS (SELECT FROM kafka_rule r WHERE r.rule = l.rule)"
#define LETTERS_PARAMS  OID_TEXT, OID_TEXT_ARRAY, OID_UUID, OID_TEXT, OID_INT4, OID_TEXT, OID_INT8

const struct stmt kafka_stmts[KAFKA_STMT_COUNT] = {
    /* clang-format off */
    [KAFKA_RULES] = { "kafka_rules", 3, { OID_TEXT, OID_TEXT, OID_TEXT },
        "SELECT " RULE_COLUMNS " FROM kafka_rule r" RULE_WHERE " ORDER BY r.rule" },
    [KAFKA_RULE_CURSORS] = { "kafka_rule_cursors", 3, { OID_TEXT, OID_TEXT, OID_TEXT },
        "SELECT c.rule, c.topic, c.partition, c.next_offset, c.suspect_until, c.state <> 'RUN',"
        " c.stop_reason, c.stop_message, coalesce(c.stop_from, 0), coalesce(c.stop_to, 0),"
        " c.stopped_at, c.records, c.started, c.duplicates, c.mismatches, c.dead_letters,"
        " c.filtered, c.tombstones, coalesce(c.low_offset, -1), coalesce(c.end_offset, -1),"
        " c.node, c.paused_why, coalesce(c.rate_per_s * 1000, 0)::int8, c.seen_at"
        " FROM kafka_rule r JOIN kafka_cursor c ON c.rule = r.rule" RULE_WHERE
        " ORDER BY c.rule, c.topic, c.partition" },

    /* Decisions: whoever holds the rule's row, and then the cursor's, decides. */
    [KAFKA_RULE_LOCK] = { "kafka_rule_lock", 1, { OID_TEXT },
        "SELECT r.wanted = 'RUN' FROM kafka_rule r WHERE r.rule = $1 FOR UPDATE" },
    [KAFKA_CURSOR_LOCK] = { "kafka_cursor_lock", 3, { OID_TEXT, OID_TEXT, OID_INT4 },
        "SELECT c.state <> 'RUN', c.next_offset, coalesce(c.low_offset, -1),"
        " coalesce(c.end_offset, -1) FROM kafka_cursor c WHERE c.rule = $1 AND c.topic = $2"
        " AND c.partition = $3 FOR UPDATE" },
    /* The record before is not known at another offset, or was another one. */
    [KAFKA_RESUME] = { "kafka_resume", 4, { OID_TEXT, OID_TEXT, OID_INT4, OID_INT8 },
        "UPDATE kafka_cursor c SET next_offset = $4, before_offset = NULL, before_time_ms = NULL,"
        " before_crc = NULL, state = 'RUN', stop_reason = NULL, stop_message = NULL,"
        " stop_from = NULL, stop_to = NULL, stopped_at = NULL"
        " WHERE c.rule = $1 AND c.topic = $2 AND c.partition = $3" },
    [KAFKA_WANT] = { "kafka_want", 4, { OID_TEXT, OID_BOOL, OID_TEXT, OID_TEXT },
        "UPDATE kafka_rule r SET wanted = CASE WHEN $2 THEN 'RUN' ELSE 'STOP' END,"
        " stopped_by = CASE WHEN NOT $2 THEN $3 END, stop_reason = CASE WHEN NOT $2 THEN $4 END,"
        " stopped_at = CASE WHEN NOT $2 THEN now() END WHERE r.rule = $1" },
    [KAFKA_AUDIT] = { "kafka_audit", 11,
        { OID_UUID, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_INT4, OID_INT8, OID_INT8,
          OID_TEXT, OID_INT8 },
        "INSERT INTO kafka_request (request_id, rule, kind, actor, reason, requested_at,"
        " finished_at, state, arguments, result) VALUES ($1, $2, $3, $4, $5, now(), now(), 'DONE',"
        " json_strip_nulls(json_build_object('topic', $6, 'partition', $7, 'cursor', $8,"
        " 'letters_reason', $10))::text,"
        " json_strip_nulls(json_build_object('next_offset', $9, 'letters', $11))::text)" },
    [KAFKA_POST] = { "kafka_post", 7,
        { OID_UUID, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_INT8, OID_TEXT },
        "INSERT INTO kafka_request (request_id, rule, kind, actor, reason, requested_at, state,"
        " arguments) VALUES ($1, $2, $3, $4, $5, now(), 'OPEN',"
        " json_strip_nulls(json_build_object('last', $6, 'group', $7))::text)"
        " ON CONFLICT DO NOTHING" },

    [KAFKA_REQUEST] = { "kafka_request", 1, { OID_UUID },
        "SELECT " REQUEST_COLUMNS " FROM kafka_request q WHERE q.request_id = $1" },
    [KAFKA_REQUESTS] = { "kafka_requests", 2, { OID_UUID, OID_INT8 },
        "SELECT " REQUEST_COLUMNS " FROM kafka_request q WHERE q.request_id < $1"
        " ORDER BY q.request_id DESC LIMIT $2" },
    [KAFKA_REQUESTS_OF_RULE] = { "kafka_requests_of_rule", 3, { OID_UUID, OID_INT8, OID_TEXT },
        "SELECT " REQUEST_COLUMNS " FROM kafka_request q WHERE q.rule = $3 AND q.request_id < $1"
        " ORDER BY q.request_id DESC LIMIT $2" },

    [KAFKA_LETTERS] = { "kafka_letters", 7, { LETTERS_PARAMS },
        "SELECT " LETTER_COLUMNS LETTERS_OF("<", "DESC") },
    [KAFKA_LETTER] = { "kafka_letter", 1, { OID_UUID },
        "SELECT " LETTER_COLUMNS ", l.key, l.value, l.headers FROM dead_letter l"
        " WHERE l.dead_letter_id = $1" },
    [KAFKA_LETTERS_PICK] = { "kafka_letters_pick", 7, { LETTERS_PARAMS },
        "SELECT l.dead_letter_id" LETTERS_OF(">", "ASC") },
    /* A replay that nobody can do any more counts as not decided. */
    [KAFKA_LETTERS_LOCK] = { "kafka_letters_lock", 1, { OID_UUID_ARRAY },
        "SELECT l.dead_letter_id, CASE WHEN l.state = 'REPLAY' AND NOT " LETTER_HAS_RULE
        " THEN 'OPEN' ELSE l.state END, " LETTER_HAS_RULE ", l.rule FROM (SELECT DISTINCT " U(1, id) ") AS u"
        " JOIN dead_letter l ON l.dead_letter_id = u.id ORDER BY l.dead_letter_id FOR UPDATE OF l" },
    [KAFKA_LETTERS_DECIDE] = { "kafka_letters_decide", 4,
        { OID_UUID_ARRAY, OID_BOOL, OID_TEXT, OID_TEXT },
        "WITH d AS (UPDATE dead_letter l SET state = CASE WHEN $2 THEN 'REPLAY' ELSE 'DISCARDED'"
        " END, decided_by = $3, decided_at = now(), decision_reason = $4, replay_error = NULL"
        " FROM (SELECT DISTINCT " U(1, id) ") AS u WHERE l.dead_letter_id = u.id"
        " AND (l.state = 'OPEN' OR l.state = 'REPLAY' AND NOT " LETTER_HAS_RULE ")"
        " RETURNING l.rule)"
        " SELECT d.rule, count(*) FROM d GROUP BY d.rule ORDER BY d.rule" },

    [KAFKA_DEFINITIONS] = { "kafka_definitions", 2, { OID_TEXT, OID_TEXT },
        "SELECT d.namespace, d.name FROM definition d WHERE ($1 IS NULL OR d.namespace = $1)"
        " AND ($2 IS NULL OR d.name = $2) ORDER BY d.namespace, d.name" },
    [KAFKA_KEYS] = { "kafka_keys", 4, { OID_INT2_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY, OID_TEXT },
        "SELECT k.namespace, k.definition, k.saga_uid, k.run, k.final_state IS NOT NULL,"
        " coalesce(k.final_state, 'RUNNING'), EXISTS (SELECT FROM saga s WHERE s.shard = k.shard"
        " AND s.saga_uid = k.saga_uid), k.remembered_until, k.archive FROM (SELECT " U(1, shard) ", "
        U(2, namespace) ", " U(3, definition) ") AS u JOIN saga_key k ON k.shard = u.shard"
        " AND k.namespace = u.namespace AND k.definition = u.definition AND k.saga_id = $4"
        " ORDER BY k.namespace, k.definition" },
    [KAFKA_KEY_LETTERS] = { "kafka_key_letters", 5,
        { OID_BYTEA, OID_TEXT, OID_TEXT, OID_TEXT, OID_INT8 },
        "SELECT " LETTER_COLUMNS " FROM (SELECT b.dead_letter_id FROM dead_letter b"
        " WHERE b.key = $1 UNION SELECT i.dead_letter_id FROM dead_letter i WHERE i.saga_id = $2) f"
        " JOIN dead_letter l ON l.dead_letter_id = f.dead_letter_id"
        " LEFT JOIN kafka_rule r ON r.rule = l.rule WHERE r.rule IS NULL OR"
        " ($3 IS NULL OR r.namespace = $3) AND ($4 IS NULL OR r.definition = $4) ORDER BY l.dead_letter_id DESC LIMIT $5" },

    [KAFKA_OUTBOX_RELAYS] = { "kafka_outbox_relays", 1, { OID_INT8 },
        "SELECT l.node, l.published, l.refused, l.problem FROM outbox_relay l"
        " WHERE l.until > now() ORDER BY l.node, l.instance LIMIT $1" },
    [KAFKA_OUTBOX_REFUSED] = { "kafka_outbox_refused", 1, { OID_INT8 },
        "SELECT o.saga_uid, o.seq, o.part, s.namespace, s.definition, s.saga_id, o.created_at,"
        " o.failed_at, o.failures, o.error, o.handler FROM outbox o LEFT JOIN saga s ON s.shard = o.shard"
        " AND s.saga_uid = o.saga_uid WHERE o.failed_at IS NOT NULL AND o.created_at > '-infinity'"
        " ORDER BY o.created_at LIMIT $1" },
    [KAFKA_OUTBOX_WAITS] = { "kafka_outbox_waits", 0, { 0 },
        "SELECT EXISTS (SELECT FROM outbox o WHERE o.shard >= 0)" },
    /* $1 to $4 the event, $5 discard, $6 the line of the audit. A refused one alone is decided on. */
    [KAFKA_OUTBOX_DECIDE] = { "kafka_outbox_decide", 9,
        { OID_INT2, OID_UUID, OID_INT8, OID_INT2, OID_BOOL, OID_UUID, OID_TEXT, OID_TEXT, OID_TEXT },
        "WITH o AS MATERIALIZED (SELECT b.failed_at IS NOT NULL AS refused, b.failures, b.error"
        " FROM outbox b WHERE b.shard = $1 AND b.saga_uid = $2 AND b.seq = $3 AND b.part = $4"
        " FOR UPDATE),"
        " d AS (DELETE FROM outbox b USING o WHERE b.shard = $1 AND b.saga_uid = $2 AND b.seq = $3"
        " AND b.part = $4 AND o.refused AND $5),"
        " u AS (UPDATE outbox b SET failed_at = NULL, failures = 0 FROM o WHERE b.shard = $1"
        " AND b.saga_uid = $2 AND b.seq = $3 AND b.part = $4 AND o.refused AND NOT $5),"
        " a AS (INSERT INTO kafka_request (request_id, rule, kind, actor, reason, requested_at,"
        " finished_at, state, arguments) SELECT $6, '(outbox)', CASE WHEN $5 THEN 'DISCARD' ELSE"
        " 'REPLAY' END, $7, $8, now(), now(), 'DONE', json_build_object('event', $9, 'refusals',"
        " o.failures, 'error', o.error)::text FROM o WHERE o.refused)"
        " SELECT o.refused FROM o" },
    /* clang-format on */
};
static_assert(KAFKA_OUTBOX_DECIDE + 1 == KAFKA_STMT_COUNT, "one row for each kafka_stmt_id");
