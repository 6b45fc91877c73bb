#include "store/statements.h"

#include <assert.h>

/* Rows of arrays in the select list, as in statements.c. */
#define U(n, name) "unnest($" #n ") AS " #name

/* What is wanted of the rule in `r`. */
#define WANTED                                                                                     \
    "r.wanted = 'RUN', EXISTS (SELECT FROM kafka_request q WHERE q.rule = r.rule"                  \
    " AND q.state IN ('OPEN', 'TAKEN') AND (q.state = 'OPEN' OR q.taken_until < now())),"          \
    " EXISTS (SELECT FROM dead_letter l WHERE l.rule = r.rule AND l.state = 'REPLAY')"
#define NOT_STOPPED                                                                                \
    "state = 'RUN', stop_reason = NULL, stop_message = NULL, stop_from = NULL, stop_to = NULL,"    \
    " stopped_at = NULL"
/* A request that this node has. */
#define MY_REQUEST " WHERE q.request_id = $1 AND q.node = $2 AND q.state = 'TAKEN'"

const struct stmt ingest_stmts[INGEST_STMT_COUNT] = {
    /* clang-format off */
    /* The transaction's commit waits for no disk: it is only what a node sees. */
    [INGEST_LAZY] = { "ingest_lazy", 0, { 0 },
        "SELECT set_config('synchronous_commit', 'off', true)" },
    [INGEST_SAVE] = { "ingest_save", 0, { 0 }, "SAVEPOINT part" },
    [INGEST_RETURN] = { "ingest_return", 0, { 0 }, "ROLLBACK TO SAVEPOINT part" },

    [INGEST_RULE] = { "ingest_rule", 10,
        { OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_INT8, OID_BOOL, OID_INT8, OID_TEXT,
          OID_TEXT },
        "INSERT INTO kafka_rule AS r (rule, topic, group_id, namespace, definition, wanted,"
        " topic_retention_ms, topic_compacted, key_memory_ms, problem, node, seen_at)"
        " VALUES ($1, $2, $3, $4, $5, 'RUN', $6, $7, $8, $9, $10, now())"
        " ON CONFLICT (rule) DO UPDATE SET topic = EXCLUDED.topic, group_id = EXCLUDED.group_id,"
        " namespace = EXCLUDED.namespace, definition = EXCLUDED.definition,"
        " topic_retention_ms = EXCLUDED.topic_retention_ms,"
        " topic_compacted = EXCLUDED.topic_compacted, key_memory_ms = EXCLUDED.key_memory_ms,"
        " problem = EXCLUDED.problem, node = EXCLUDED.node, seen_at = now() RETURNING " WANTED },
    [INGEST_WANTED] = { "ingest_wanted", 1, { OID_TEXT },
        "SELECT " WANTED " FROM kafka_rule r WHERE r.rule = $1" },

    [INGEST_RUNNING] = { "ingest_running", 3, { OID_TEXT, OID_TEXT, OID_INT8 },
        "SELECT count(*) FROM (SELECT FROM unnest(ARRAY['RUNNING', 'COMPENSATING']) AS t (state)"
        " CROSS JOIN LATERAL (SELECT FROM saga s WHERE s.namespace = $1 AND s.definition = $2"
        " AND s.state = t.state LIMIT $3) o LIMIT $3) a" },

    /* The first of these handlers that is held. */
    [INGEST_HELD] = { "ingest_held", 1, { OID_TEXT_ARRAY },
        "SELECT h.name FROM handler h WHERE h.name = ANY ($1) AND h.hold IS NOT NULL"
        " ORDER BY h.name LIMIT 1" },

    [INGEST_CURSORS] = { "ingest_cursors", 2, { OID_TEXT, OID_TEXT },
        "SELECT c.partition, c.next_offset, c.before_offset IS NOT NULL,"
        " coalesce(c.before_offset, 0), coalesce(c.before_time_ms, 0), coalesce(c.before_crc, 0),"
        " c.suspect_until, c.state <> 'RUN', c.stop_reason, c.stop_message,"
        " coalesce(c.stop_from, 0), coalesce(c.stop_to, 0)"
        " FROM kafka_cursor c WHERE c.rule = $1 AND c.topic = $2 ORDER BY c.partition" },
    [INGEST_CREATE] = { "ingest_create", 4, { OID_TEXT, OID_TEXT, OID_INT4_ARRAY, OID_INT8_ARRAY },
        "INSERT INTO kafka_cursor (rule, topic, partition, next_offset)"
        " SELECT $1, $2, unnest($3), unnest($4) ON CONFLICT DO NOTHING" },
    [INGEST_STOP] = { "ingest_stop", 8,
        { OID_TEXT, OID_TEXT, OID_INT4, OID_INT8, OID_TEXT, OID_TEXT, OID_INT8, OID_INT8 },
        "UPDATE kafka_cursor c SET state = 'STOPPED', stop_reason = $5, stop_message = $6,"
        " stop_from = $7, stop_to = $8, stopped_at = now() WHERE c.rule = $1 AND c.topic = $2"
        " AND c.partition = $3 AND c.next_offset = $4 AND c.state = 'RUN' RETURNING c.partition" },
    [INGEST_SEEN] = { "ingest_seen", 8,
        { OID_TEXT, OID_TEXT, OID_TEXT, OID_INT4_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY,
          OID_TEXT_ARRAY, OID_INT8_ARRAY },
        "UPDATE kafka_cursor c SET low_offset = u.low_offset, end_offset = u.end_offset,"
        " node = $3, paused_why = u.paused_why, rate_per_s = u.rate_milli::float8 / 1000,"
        " seen_at = now() FROM (SELECT " U(4, partition) ", " U(5, low_offset) ", "
        U(6, end_offset) ", " U(7, paused_why) ", " U(8, rate_milli) ") AS u"
        " WHERE c.rule = $1 AND c.topic = $2 AND c.partition = u.partition" },

    /* The revision's row is held until the commit, as `start` holds it. */
    [INGEST_REVISION] = { "ingest_revision", 4, { OID_TEXT, OID_TEXT, OID_INT4, OID_TEXT },
        "SELECT d.paused_at IS NOT NULL, coalesce(d.pause_reason, ''), EXISTS (SELECT FROM"
        " kafka_rule r WHERE r.rule = $4 AND r.wanted = 'RUN') FROM definition_revision o"
        " JOIN definition d ON d.namespace = o.namespace AND d.name = o.name"
        " WHERE o.namespace = $1 AND o.name = $2 AND o.revision = $3 FOR KEY SHARE OF o" },
    /* A consumer that believes to have the partition still finds another offset, also when it
     * waited here for the one that has it now. */
    [INGEST_MOVE] = { "ingest_move", 8,
        { OID_TEXT, OID_TEXT, OID_INT4_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY,
          OID_INT8_ARRAY, OID_INT8_ARRAY },
        "UPDATE kafka_cursor c SET next_offset = u.next_offset, before_offset = u.before_offset,"
        " before_time_ms = u.before_time_ms, before_crc = u.before_crc"
        " FROM (SELECT " U(3, partition) ", " U(4, expected) ", " U(5, next_offset) ", "
        U(6, before_offset) ", " U(7, before_time_ms) ", " U(8, before_crc) ") AS u"
        " WHERE c.rule = $1 AND c.topic = $2 AND c.partition = u.partition"
        " AND c.next_offset = u.expected AND c.state = 'RUN'"
        " RETURNING c.partition, c.suspect_until, now()" },
    /* Key, saga and the entry SUSPECT, each FROM what the one before it inserted. Keys in the same
     * order as in `start`, records with the same key in theirs. A time of the future, or none, is
     * no time from which a window could be counted: now, or long ago. */
    [INGEST_BEGIN_SAGAS] = { "ingest_begin_sagas", 15,
        { OID_INT8_ARRAY, OID_INT2_ARRAY, OID_UUID_ARRAY, OID_TEXT_ARRAY, OID_BYTEA_ARRAY,
          OID_BYTEA_ARRAY, OID_TEXT_ARRAY, OID_INT8_ARRAY, OID_TEXT, OID_TEXT, OID_INT4, OID_INT8,
          OID_TEXT, OID_TEXT, OID_BOOL },
        "WITH u AS MATERIALIZED (SELECT " U(1, n) ", " U(2, shard) ", " U(3, uid) ", "
        U(4, saga_id) ", " U(5, input_digest) ", " U(6, input) ", " U(7, labels) ", "
        U(8, since_ms) "),"
        " k AS (INSERT INTO saga_key (shard, namespace, definition, saga_id, saga_uid, run,"
        " input_digest) SELECT u.shard, $9, $10, u.saga_id, u.uid, 1, u.input_digest FROM u"
        " ORDER BY u.n ON CONFLICT DO NOTHING RETURNING saga_uid),"
        " s AS (INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run,"
        " state, phase, owner, input, labels, doubt, started_at, updated_at, deadline_at)"
        " SELECT u.shard, u.uid, $9, $10, $11, u.saga_id, 1, 'RUNNING', 'RUNNING', $13, u.input,"
        " u.labels::jsonb, false, now(), now(), now() + $12 * interval '1 millisecond' FROM u"
        " WHERE (u.uid IN (SELECT k.saga_uid FROM k)) IS TRUE RETURNING shard, saga_uid),"
        " e AS (" OUTBOX_STARTED("s", "$15") "),"
        " l AS (" LABELS_STARTED("u", "$9", "(u.uid IN (SELECT s.saga_uid FROM s)) IS TRUE") "),"
        " j AS (INSERT INTO journal (shard, saga_uid, seq, fence, kind, try, leased_at,"
        " finished_at, actor) SELECT u.shard, u.uid, 1, 0, 'SUSPECT', 0, least(now(),"
        " timestamptz 'epoch' + greatest(u.since_ms, 1) * interval '1 millisecond'), now(), $14"
        " FROM u WHERE u.since_ms IS NOT NULL AND (u.uid IN (SELECT s.saga_uid FROM s)) IS TRUE)"
        " SELECT s.saga_uid FROM s" },
    [INGEST_DEAD_LETTERS] = { "ingest_dead_letters", 13,
        { OID_TEXT, OID_TEXT, OID_UUID_ARRAY, OID_INT4_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY,
          OID_INT8_ARRAY, OID_BYTEA_ARRAY, OID_BYTEA_ARRAY, OID_BYTEA_ARRAY, OID_TEXT_ARRAY,
          OID_TEXT_ARRAY, OID_TEXT_ARRAY },
        "INSERT INTO dead_letter (rule, topic, received_at, dead_letter_id, partition,"
        " record_offset, record_time_ms, record_crc, key, value, headers, saga_id, reason, message)"
        " SELECT $1, $2, now(), unnest($3), unnest($4), unnest($5), unnest($6), unnest($7),"
        " unnest($8), unnest($9), unnest($10), unnest($11), unnest($12), unnest($13)"
        " ON CONFLICT (rule, topic, partition, record_offset, record_time_ms, record_crc)"
        " DO NOTHING RETURNING dead_letter_id" },
    [INGEST_COUNT_RECORDS] = { "ingest_count_records", 10,
        { OID_TEXT, OID_TEXT, OID_INT4_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY,
          OID_INT8_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY },
        "UPDATE kafka_cursor c SET records = c.records + u.records,"
        " started = c.started + u.started, duplicates = c.duplicates + u.duplicates,"
        " mismatches = c.mismatches + u.mismatches,"
        " dead_letters = c.dead_letters + u.dead_letters, filtered = c.filtered + u.filtered,"
        " tombstones = c.tombstones + u.tombstones"
        " FROM (SELECT " U(3, partition) ", " U(4, records) ", " U(5, started) ", "
        U(6, duplicates) ", " U(7, mismatches) ", " U(8, dead_letters) ", " U(9, filtered) ", "
        U(10, tombstones) ") AS u"
        " WHERE c.rule = $1 AND c.topic = $2 AND c.partition = u.partition" },

    [INGEST_REPLAYS] = { "ingest_replays", 2, { OID_TEXT, OID_INT8 },
        "SELECT l.dead_letter_id, l.partition, l.record_offset, l.record_time_ms, l.record_crc,"
        " l.key IS NOT NULL, l.value IS NOT NULL, l.key, l.value, l.headers FROM dead_letter l"
        " WHERE l.rule = $1 AND l.state = 'REPLAY' ORDER BY l.dead_letter_id LIMIT $2" },
    /* What another node has is that one's. */
    [INGEST_REPLAY_LOCK] = { "ingest_replay_lock", 1, { OID_UUID_ARRAY },
        "SELECT u.n, coalesce(l.record_offset < c.suspect_until, false)"
        " FROM unnest($1) WITH ORDINALITY AS u (id, n)"
        " JOIN dead_letter l ON l.dead_letter_id = u.id"
        " LEFT JOIN kafka_cursor c ON c.rule = l.rule AND c.topic = l.topic"
        " AND c.partition = l.partition WHERE l.state = 'REPLAY' FOR UPDATE OF l SKIP LOCKED" },
    [INGEST_REPLAY_END] = { "ingest_replay_end", 5,
        { OID_UUID_ARRAY, OID_BOOL_ARRAY, OID_UUID_ARRAY, OID_TEXT_ARRAY, OID_TEXT_ARRAY },
        "UPDATE dead_letter l SET state = CASE WHEN u.replayed THEN 'REPLAYED' ELSE 'OPEN' END,"
        " saga_uid = u.saga_uid, saga_id = coalesce(u.saga_id, l.saga_id), replay_error = u.error,"
        " decided_by = CASE WHEN u.replayed THEN l.decided_by END,"
        " decided_at = CASE WHEN u.replayed THEN l.decided_at END,"
        " decision_reason = CASE WHEN u.replayed THEN l.decision_reason END"
        " FROM (SELECT " U(1, id) ", " U(2, replayed) ", " U(3, saga_uid) ", " U(4, saga_id) ", "
        U(5, error) ") AS u WHERE l.dead_letter_id = u.id" },

    [INGEST_TAKE] = { "ingest_take", 3, { OID_TEXT, OID_TEXT, OID_INT8 },
        "UPDATE kafka_request q SET state = 'TAKEN', node = $2,"
        " taken_until = now() + $3 * interval '1 millisecond', progress = 0, total = 0"
        " FROM (SELECT o.request_id FROM kafka_request o WHERE o.rule = $1"
        " AND o.state IN ('OPEN', 'TAKEN') AND (o.state = 'OPEN' OR o.taken_until < now())"
        " ORDER BY o.request_id LIMIT 1 FOR UPDATE SKIP LOCKED) t"
        " WHERE q.request_id = t.request_id"
        " RETURNING q.request_id, q.kind, coalesce((q.arguments::json ->> 'last')::int8, 0),"
        " q.arguments::json ->> 'group', q.actor, q.reason" },
    [INGEST_PROGRESS] = { "ingest_progress", 5,
        { OID_UUID, OID_TEXT, OID_INT8, OID_INT8, OID_INT8 },
        "UPDATE kafka_request q SET progress = $3, total = $4,"
        " taken_until = now() + $5 * interval '1 millisecond'" MY_REQUEST
        " RETURNING q.request_id" },
    [INGEST_FINISH] = { "ingest_finish", 4, { OID_UUID, OID_TEXT, OID_TEXT, OID_TEXT },
        "UPDATE kafka_request q SET state = CASE WHEN $4 IS NULL THEN 'DONE' ELSE 'FAILED' END,"
        " result = $3, error = $4, finished_at = now(), taken_until = NULL" MY_REQUEST
        " RETURNING q.request_id" },
    [INGEST_TAKEOVER_RULE] = { "ingest_takeover_rule", 1, { OID_TEXT },
        "UPDATE kafka_rule r SET wanted = 'RUN', stopped_by = NULL, stop_reason = NULL,"
        " stopped_at = NULL WHERE r.rule = $1 AND r.wanted <> 'RUN' RETURNING r.rule" },
    [INGEST_TAKEOVER_CURSORS] = { "ingest_takeover_cursors", 5,
        { OID_TEXT, OID_TEXT, OID_INT4_ARRAY, OID_INT8_ARRAY, OID_INT8_ARRAY },
        "INSERT INTO kafka_cursor AS c (rule, topic, partition, next_offset, suspect_until)"
        " SELECT $1, $2, unnest($3), unnest($4), unnest($5)"
        " ON CONFLICT (rule, topic, partition) DO UPDATE SET next_offset = EXCLUDED.next_offset,"
        " suspect_until = EXCLUDED.suspect_until, before_offset = NULL, before_time_ms = NULL,"
        " before_crc = NULL, " NOT_STOPPED },
    /* clang-format on */
};
static_assert(INGEST_TAKEOVER_CURSORS + 1 == INGEST_STMT_COUNT, "one row for each ingest_stmt_id");
