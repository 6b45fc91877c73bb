#include "store/statements.h"

#include <assert.h>

/* A line's columns; reader_audit.c reads them by position. */
#define LINE_COLUMNS                                                                               \
    "l.verb, l.namespace, l.definition, l.saga_id, coalesce(l.run, 0), l.saga_uid, l.step, "       \
    "l.operation,"                                                                                 \
    " l.subject, l.actor, l.reason, l.detail"

#define OF_JOURNAL                                                                                 \
    "SELECT " AUDIT_VERB " AS verb, s.namespace, s.definition, s.saga_id, s.run, s.saga_uid,"      \
    " j.step, " AUDIT_OPERATION " AS operation, NULL::text AS subject, j.actor,"                   \
    " j.error_message AS reason, " AUDIT_DETAIL " AS detail FROM journal j JOIN saga s"            \
    " ON s.shard = j.shard AND s.saga_uid = j.saga_uid"
#define OF_KAFKA                                                                                   \
    "SELECT CASE WHEN q.rule = '(outbox)' THEN CASE q.kind WHEN 'REPLAY' THEN 'outbox-publish'"    \
    " ELSE 'outbox-discard' END WHEN q.kind IN ('REPLAY', 'DISCARD') THEN 'letters-'"              \
    " || lower(q.kind) ELSE 'kafka-' || lower(q.kind) END, NULL, NULL, NULL, NULL::int4,"          \
    " NULL::uuid, NULL, NULL, q.rule, q.actor, q.reason, concat_ws(' ', nullif(q.arguments, "      \
    "'{}'),"                                                                                       \
    " q.error) FROM kafka_request q"
#define OF_HANDLER                                                                                 \
    "SELECT CASE e.kind WHEN 'HELD' THEN 'handler-hold' WHEN 'RELEASED' THEN 'handler-release'"    \
    " WHEN 'LIMITED' THEN 'handler-limit' END, NULL, NULL, NULL, NULL::int4, NULL::uuid, NULL,"    \
    " NULL, e.handler, e.actor, e.reason, concat_ws(' ',"                                          \
    " 'release-rate=' || trim_scale(e.release_rate / 1000.0),"                                     \
    " 'rate=' || trim_scale(e.rate / 1000.0), 'cap=' || e.cap) FROM handler_event e"
#define OF_AUDIT                                                                                   \
    "SELECT a.verb, a.namespace, a.definition, a.saga_id, a.run, a.saga_uid, a.step, a.operation," \
    " a.subject, a.actor, a.reason, a.detail FROM audit a"

/* $1 to $3: behind this place, $4: not before, $5 actor, $6 verbs, $7 namespace, $8 definition, $9:
 * how many to look at. Those that `sources` gives are looked at, newest first; of them those that
 * are asked for come back, and the last that was looked at, so that a page may be short and still
 * go on. */
#define PLACE               "($1, $2, $3)"
#define NEWEST(at, id, seq) " ORDER BY " at " DESC, " id " DESC, " seq " DESC LIMIT $9"
/* clang-format off */
#define LINES(sources) \
    "WITH c AS MATERIALIZED (SELECT u.*, row_number() OVER (ORDER BY u.at DESC, u.id DESC," \
    " u.seq DESC) AS n FROM (" sources ") u ORDER BY n LIMIT $9)," \
    " f AS MATERIALIZED (SELECT c.at, c.id, c.seq, c.n, l.verb IS NOT NULL AND ($5 IS NULL" \
    " OR coalesce(l.actor COLLATE \"C\" = $5, false)) AND (cardinality($6) = 0 OR l.verb COLLATE \"C\" = ANY ($6))" \
    " AND ($7 IS NULL OR l.namespace IS NULL OR l.namespace COLLATE \"C\" = $7)" \
    " AND ($8 IS NULL OR coalesce(l.definition COLLATE \"C\" = $8, false)) AS fits, " LINE_COLUMNS \
    " FROM c LEFT JOIN LATERAL (" OF_AUDIT " WHERE c.source = 'a' AND a.at = c.at" \
    " AND a.audit_id = c.id AND a.seq = c.seq UNION ALL (" OF_JOURNAL " WHERE c.source = 'j'" \
    " AND j.shard = c.shard AND j.saga_uid = c.id AND j.seq = c.seq) UNION ALL (" OF_KAFKA \
    " WHERE c.source = 'k' AND q.request_id = c.id) UNION ALL (" OF_HANDLER " WHERE c.source = 'h'" \
    " AND e.at = c.at AND md5(e.handler)::uuid = c.id AND e.version = c.seq)) l ON true)" \
    " SELECT f.* FROM f WHERE f.fits OR f.n = (SELECT max(c.n) FROM c) ORDER BY f.n"
/* clang-format on */

const struct stmt people_stmts[PEOPLE_STMT_COUNT] = {
    /* clang-format off */
    [PEOPLE_AUDIT_ADD] = { "audit_add", 7,
        { OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT },
        "INSERT INTO audit (verb, namespace, definition, subject, actor, reason, detail)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7)" },
    [PEOPLE_AUDIT_LIST] = { "audit_list", 9,
        { OID_TIMESTAMPTZ, OID_UUID, OID_INT8, OID_TIMESTAMPTZ, OID_TEXT, OID_TEXT_ARRAY, OID_TEXT,
          OID_TEXT, OID_INT8 },
        LINES("(SELECT 'a' AS source, a.at, a.audit_id AS id, a.seq, NULL::int2 AS shard FROM audit a"
        " WHERE (a.at, a.audit_id, a.seq) < " PLACE " AND a.at >= $4" NEWEST("a.at", "a.audit_id", "a.seq")
        ") UNION ALL (SELECT 'j', j.asked_at, j.saga_uid, j.seq, j.shard FROM journal j"
        " WHERE j.asked_at IS NOT NULL AND (j.asked_at, j.saga_uid, j.seq) < " PLACE
        " AND j.asked_at >= $4" NEWEST("j.asked_at", "j.saga_uid", "j.seq")
        ") UNION ALL (SELECT 'k', q.requested_at, q.request_id, 0::bigint, NULL FROM kafka_request q"
        " WHERE (q.requested_at, q.request_id) < ($1, $2) AND q.requested_at >= $4"
        " ORDER BY q.requested_at DESC, q.request_id DESC LIMIT $9"
        ") UNION ALL (SELECT 'h', e.at, md5(e.handler)::uuid, e.version, NULL FROM handler_event e"
        " WHERE (e.at, md5(e.handler)::uuid, e.version) < " PLACE " AND e.at >= $4"
        NEWEST("e.at", "md5(e.handler)::uuid", "e.version") ")") },
    /* $10: shard and uid of the saga. */
    [PEOPLE_AUDIT_OF_SAGA] = { "audit_of_saga", 11,
        { OID_TIMESTAMPTZ, OID_UUID, OID_INT8, OID_TIMESTAMPTZ, OID_TEXT, OID_TEXT_ARRAY, OID_TEXT,
          OID_TEXT, OID_INT8, OID_INT2, OID_UUID },
        LINES("(SELECT 'a' AS source, a.at, a.audit_id AS id, a.seq, NULL::int2 AS shard FROM audit a"
        " WHERE a.saga_uid = $11 AND (a.at, a.audit_id, a.seq) < " PLACE " AND a.at >= $4"
        NEWEST("a.at", "a.audit_id", "a.seq")
        ") UNION ALL (SELECT 'j', j.asked_at, j.saga_uid, j.seq, j.shard FROM journal j"
        " WHERE j.shard = $10 AND j.saga_uid = $11 AND j.asked_at IS NOT NULL"
        " AND (j.asked_at, j.saga_uid, j.seq) < " PLACE " AND j.asked_at >= $4"
        NEWEST("j.asked_at", "j.saga_uid", "j.seq") ")") },
    /* $1, $2: the run that has ended, $3 the new one's uid, $4 its revision, $5 its deadline, $6 its owner,
     * $7: its start is published, $8, $9: who and why. Whoever deletes the revision, purges the old run or
     * runs it again waits, or came first: then there is no row. */
    [PEOPLE_RERUN] = { "rerun", 9,
        { OID_INT2, OID_UUID, OID_UUID, OID_INT4, OID_INT8, OID_TEXT, OID_BOOL, OID_TEXT, OID_TEXT },
        "WITH o AS MATERIALIZED (SELECT s.* FROM saga s WHERE s.shard = $1 AND s.saga_uid = $2"
        " AND s.state IN ('COMPENSATED', 'ABANDONED') FOR KEY SHARE OF s),"
        " r AS MATERIALIZED (SELECT d.revision FROM o JOIN definition_revision d"
        " ON d.namespace = o.namespace AND d.name = o.definition AND d.revision = $4"
        " FOR KEY SHARE OF d),"
        " k AS (UPDATE saga_key k SET saga_uid = $3, run = k.run + 1, final_state = NULL FROM o, r"
        " WHERE k.shard = o.shard AND k.namespace = o.namespace AND k.definition = o.definition"
        " AND k.saga_id = o.saga_id AND k.saga_uid = o.saga_uid RETURNING k.run),"
        " s AS (INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run,"
        " state, phase, owner, input, labels, doubt, started_at, updated_at, deadline_at,"
        " related_saga) SELECT o.shard, $3, o.namespace, o.definition, $4, o.saga_id, k.run,"
        " 'RUNNING', 'RUNNING', $6, o.input, o.labels, false, now(), now(),"
        " now() + $5 * interval '1 millisecond', o.saga_uid FROM o, k RETURNING shard, saga_uid),"
        " e AS (" OUTBOX_STARTED("s", "$7") "),"
        " a AS (INSERT INTO audit (verb, namespace, definition, saga_id, run, saga_uid, actor,"
        " reason, detail) SELECT 'rerun', o.namespace, o.definition, o.saga_id, k.run, $3, $8, $9,"
        " 'of run ' || o.run || ', ' || o.state FROM o, k)"
        " SELECT k.run FROM k" },
    /* $1: whom others name, $2: whom it names, with its shard $3; the latter first. */
    [PEOPLE_RELATED] = { "related", 4, { OID_UUID, OID_UUID, OID_INT2, OID_INT8 },
        "(SELECT true, s.saga_uid, s.namespace, s.definition, s.saga_id, s.run, s.state,"
        " s.started_at FROM saga s WHERE s.shard = $3 AND s.saga_uid = $2)"
        " UNION ALL (SELECT false, s.saga_uid, s.namespace, s.definition, s.saga_id, s.run, s.state,"
        " s.started_at FROM saga s WHERE s.related_saga = $1 ORDER BY s.started_at LIMIT $4)" },
    /* Sagas of a definition by start, behind ($3, $4): which of them sent an attempt of the operation out (or,
     * $9, had it end) in [$5, $6). $10: how many to look at; the last one that was is always told. */
    [PEOPLE_ATTEMPTS] = { "attempts", 10,
        { OID_TEXT, OID_TEXT, OID_TIMESTAMPTZ, OID_UUID, OID_TIMESTAMPTZ, OID_TIMESTAMPTZ, OID_TEXT,
          OID_TEXT, OID_BOOL, OID_INT8 },
        "WITH c AS MATERIALIZED (SELECT s.shard, s.saga_uid, s.started_at, s.ended_at, row_number()"
        " OVER (ORDER BY s.started_at, s.saga_uid) AS n FROM unnest(ARRAY['RUNNING', 'COMPENSATING',"
        " 'PARKED', 'SUCCEEDED', 'COMPENSATED', 'ABANDONED']) AS t (state) CROSS JOIN LATERAL ("
        "SELECT * FROM saga c WHERE c.namespace = $1 AND c.definition = $2 AND c.state = t.state"
        " AND (c.started_at, c.saga_uid) > ($3, $4) AND c.started_at < $6"
        " ORDER BY c.started_at, c.saga_uid LIMIT $10) s ORDER BY s.started_at, s.saga_uid"
        " LIMIT $10),"
        " f AS MATERIALIZED (SELECT c.*, (c.ended_at IS NULL OR c.ended_at >= $5) AND EXISTS ("
        "SELECT FROM journal j WHERE j.shard = c.shard AND j.saga_uid = c.saga_uid"
        " AND j.kind = 'LEASE' AND j.step = $7 AND j.operation = $8"
        " AND j.outcome IS DISTINCT FROM 'RELEASED' AND CASE WHEN $9 THEN j.finished_at >= $5"
        " AND j.finished_at < $6 ELSE j.leased_at >= $5 AND j.leased_at < $6 END) AS fits FROM c)"
        " SELECT f.started_at, f.saga_uid, f.n, f.fits FROM f WHERE f.fits"
        " OR f.n = (SELECT max(c.n) FROM c) ORDER BY f.n" },
    /* clang-format on */
};
static_assert(PEOPLE_RERUN + 1 == PEOPLE_STMT_COUNT, "one row for each people_stmt_id");
