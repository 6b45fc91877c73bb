#include "store/columns.h"
#include "store/statements.h"

#include <assert.h>

/* A page of sagas is taken from a way to them that has an index in the order of time: of each of
 * its streams (a definition's sagas of one state, ...) the next k are looked at, merged, and the
 * first k of those are the ones of which we know everything. What the index does not say is asked
 * of each of them; so a page may be short, and where it ends is the last one that was looked at,
 * whether it fits or not. Without such a question k is the page, else $9 rows divided among the
 * streams, but no less than the page.
 *
 * $1 namespace, $2 definition (NULL: every one), $3 states, ($4, $5) behind this saga, $6 rows of
 * the page, $7 doubt, $8 the far end of start times, $9 see above, $10 and $11 revision, $12
 * reasons (none: any), $13 step, $14 code, $15 to $18 times of update and end, $19 and
 * $20 labels. */
#define FITS(c)                                                                                    \
    "($2 IS NULL OR " c ".definition = $2) AND " c ".state = ANY ($3)"                             \
    " AND ($7 IS NULL OR " c ".doubt = $7)"                                                        \
    " AND ($10 IS NULL OR " c ".revision >= $10) AND ($11 IS NULL OR " c ".revision < $11)"        \
    " AND (cardinality($12) = 0 OR " c ".park_reason = ANY ($12))"                                 \
    " AND ($13 IS NULL OR " c ".park_step = $13) AND ($14 IS NULL OR " c ".park_code = $14)"       \
    " AND ($15 IS NULL OR " c ".updated_at >= $15) AND ($16 IS NULL OR " c ".updated_at < $16)"    \
    " AND ($17 IS NULL OR " c ".ended_at >= $17) AND ($18 IS NULL OR " c ".ended_at < $18)"        \
    " AND (cardinality($19) = 0 OR NOT EXISTS (SELECT FROM unnest($19, $20) AS l (key, value)"     \
    " WHERE (" c ".labels ->> l.key) IS DISTINCT FROM l.value))"
#define FIND_PARAMS                                                                                \
    OID_TEXT, OID_TEXT, OID_TEXT_ARRAY, OID_TIMESTAMPTZ, OID_UUID, OID_INT8, OID_BOOL,             \
        OID_TIMESTAMPTZ, OID_INT8, OID_INT8, OID_INT8, OID_TEXT_ARRAY, OID_TEXT, OID_TEXT,         \
        OID_TIMESTAMPTZ, OID_TIMESTAMPTZ, OID_TIMESTAMPTZ, OID_TIMESTAMPTZ, OID_TEXT_ARRAY,        \
        OID_TEXT_ARRAY

/* The two orders: which rows are behind, what bounds their far end. */
#define NEWEST "DESC", "<", ">="
#define OLDEST "ASC", ">", "<"
#define EACH_K "LIMIT (SELECT k.n FROM k)"
#define BEHIND(alias, order, near, far)                                                            \
    " AND (" alias ".started_at, " alias ".saga_uid) " near " ($4, $5)"                            \
    " AND " alias ".started_at " far " $8"                                                         \
    " ORDER BY " alias ".started_at " order ", " alias ".saga_uid " order " "

/* Streams: (definition, one of `words`), each by an index of the saga table. */
#define OF_DEFINITIONS                                                                             \
    "FROM definition d WHERE ($1 IS NULL OR d.namespace = $1)"                                     \
    " AND ($2 IS NULL OR d.name = $2)"
#define DEFINITIONS_TIMES(words) "cardinality(" words ") * (SELECT count(*) " OF_DEFINITIONS ")"
#define BY_DEFINITION(words, is_word, order, near, far)                                            \
    "SELECT s.* FROM (SELECT d.* " OF_DEFINITIONS ") d CROSS JOIN unnest(" words ") AS t (word)"   \
    " CROSS JOIN LATERAL (SELECT * FROM saga c WHERE c.namespace = d.namespace"                    \
    " AND c.definition = d.name AND " is_word BEHIND("c", order, near, far) EACH_K ") s"

#define OF_NAMESPACES                                                                              \
    "(SELECT DISTINCT namespace FROM definition WHERE $1 IS NULL OR namespace = $1) d"
/* A range of saga ids: the index is not in the order of time, so all of them are looked at. */
#define BY_ID(order, near, far)                                                                    \
    "SELECT s.* FROM " OF_NAMESPACES " CROSS JOIN LATERAL (SELECT * FROM saga c"                   \
    " WHERE c.namespace = d.namespace AND c.saga_id >= $21 AND c.saga_id < $22"                    \
    " AND " FITS("c") BEHIND("c", order, near, far) EACH_K ") s"
#define BY_LABEL(order, near, far)                                                                 \
    "SELECT s.* FROM " OF_NAMESPACES " CROSS JOIN LATERAL (SELECT l.shard, l.saga_uid"             \
    " FROM saga_label l WHERE l.namespace = d.namespace AND l.key = $21 AND l.value = $22" BEHIND( \
        "l", order, near, far) EACH_K                                                              \
        ") l"                                                                                      \
        " JOIN saga s ON s.shard = l.shard AND s.saga_uid = l.saga_uid"

#define WITH_K(streams)                                                                            \
    "WITH k AS MATERIALIZED (SELECT greatest($6, $9 / greatest(1, " streams ")) AS n)"
#define LOOKED_AT(source, order)                                                                   \
    "(SELECT s.*, (" FITS("s") ") IS TRUE AS fits,"                                                \
                               " row_number() OVER () = (SELECT k.n FROM k) AS last FROM (" source \
                               " ORDER BY s.started_at " order ", s.saga_uid " order " " EACH_K    \
                               ") s) s"

#define PAGE(streams, source, order)                                                               \
    WITH_K(streams)                                                                                \
    " SELECT s.started_at, now(), " SAGA_COLUMNS                                                   \
    ", NULL::bytea, s.park_step, s.fits, s.last FROM " LOOKED_AT(                                  \
        source, order) " WHERE s.fits OR s.last"                                                   \
                       " ORDER BY s.started_at " order ", s.saga_uid " order " LIMIT $6"

#define EXPAND(macro, ...) macro(__VA_ARGS__)
#define STATES_PAGE(order, near, far)                                                              \
    PAGE(DEFINITIONS_TIMES("$3"), BY_DEFINITION("$3", "c.state = t.word", order, near, far), order)
#define DOUBT_PAGE(order, near, far)                                                               \
    PAGE(DEFINITIONS_TIMES("$3"),                                                                  \
         BY_DEFINITION("$3", "c.state = t.word AND c.doubt", order, near, far), order)
#define REASON_PAGE(order, near, far)                                                              \
    PAGE(DEFINITIONS_TIMES("$12"),                                                                 \
         BY_DEFINITION("$12", "c.park_reason = t.word AND c.state = 'PARKED'", order, near, far),  \
         order)
#define ID_PAGE(order, near, far) PAGE("1", BY_ID(order, near, far), order)
#define LABEL_PAGE(order, near, far)                                                               \
    PAGE("(SELECT count(*) FROM " OF_NAMESPACES ")", BY_LABEL(order, near, far), order)

#define ESTIMATE(column, word)                                                                     \
    "coalesce((SELECT (f.part * r.reltuples / r.relpages * pg_relation_size(r.oid)"                \
    " / current_setting('block_size')::int)::bigint FROM pg_stats p"                               \
    " JOIN pg_class r ON r.oid = 'saga'::regclass AND r.relpages > 0 AND r.reltuples > 0"          \
    " CROSS JOIN unnest(p.most_common_vals::text::text[], p.most_common_freqs) AS f (word, part)"  \
    " WHERE p.schemaname = current_schema() AND p.tablename = 'saga' AND p.attname = '" column     \
    "' AND f.word = " word "), 0)"

/* The same sagas with how often their steps may have taken effect, newest first. A saga may lie on
 * two pages: ($4, $5) then leads to it once more, and $35 to $37 say behind which of its effects.
 * $23 step, $24 operation, $25 to $34 from and to: dispatched, sure, possible, first and last
 * dispatch. A saga that ended before the last dispatch that is asked for had none. */
#define FROM_TO(column, from, to)                                                                  \
    " AND (" from " IS NULL OR v." column " >= " from ") AND (" to " IS NULL OR v." column         \
    " < " to ")"
#define EFFECTS(streams, source, order)                                                            \
    WITH_K(streams)                                                                                \
    " SELECT s.started_at, s.saga_uid, s.namespace, s.definition, s.saga_id, s.run, s.state,"      \
    " s.doubt, s.last, e.step, e.step_index, e.operation, e.dispatched, e.sure, e.possible,"       \
    " e.first_at, e.last_at FROM " LOOKED_AT(                                                      \
        source,                                                                                    \
        order) " LEFT JOIN LATERAL (SELECT v.* FROM saga_effect v WHERE v.shard = s.shard"         \
               " AND v.saga_uid = s.saga_uid AND ($23 IS NULL OR v.step = $23)"                    \
               " AND ($24 IS NULL OR v.operation = $24)" FROM_TO("dispatched", "$25", "$26")       \
                   FROM_TO("sure", "$27", "$28") FROM_TO("possible", "$29", "$30")                 \
                       FROM_TO("first_at", "$31", "$32")                                           \
                           FROM_TO("last_at", "$33",                                               \
                                   "$34") " AND (s.saga_uid <> $35 OR (v.step_index, "             \
                                          "v.operation) > ($36, $37))) e"                          \
                                          " ON s.fits AND ($33 IS NULL OR s.ended_at IS NULL OR "  \
                                          "s.ended_at >= $33)"                                     \
                                          " WHERE e.step IS NOT NULL OR s.last"                    \
                                          " ORDER BY s.started_at " order ", s.saga_uid " order    \
                                          ", e.step_index, e.operation LIMIT $6"
#define EFFECT_PARAMS                                                                              \
    FIND_PARAMS, OID_TEXT, OID_TEXT, OID_TEXT, OID_TEXT, OID_INT8, OID_INT8, OID_INT8, OID_INT8,   \
        OID_INT8, OID_INT8, OID_TIMESTAMPTZ, OID_TIMESTAMPTZ, OID_TIMESTAMPTZ, OID_TIMESTAMPTZ,    \
        OID_UUID, OID_INT2, OID_TEXT
#define STATES_EFFECTS(order, near, far)                                                           \
    EFFECTS(DEFINITIONS_TIMES("$3"), BY_DEFINITION("$3", "c.state = t.word", order, near, far),    \
            order)
#define DOUBT_EFFECTS(order, near, far)                                                            \
    EFFECTS(DEFINITIONS_TIMES("$3"),                                                               \
            BY_DEFINITION("$3", "c.state = t.word AND c.doubt", order, near, far), order)
#define REASON_EFFECTS(order, near, far)                                                           \
    EFFECTS(                                                                                       \
        DEFINITIONS_TIMES("$12"),                                                                  \
        BY_DEFINITION("$12", "c.park_reason = t.word AND c.state = 'PARKED'", order, near, far),   \
        order)
#define ID_EFFECTS(order, near, far) EFFECTS("1", BY_ID(order, near, far), order)
#define LABEL_EFFECTS(order, near, far)                                                            \
    EFFECTS("(SELECT count(*) FROM " OF_NAMESPACES ")", BY_LABEL(order, near, far), order)

const struct stmt find_stmts[FIND_COUNT] = {
    /* clang-format off */
    [FIND_BY_TIME] = { "find_newest", 20, { FIND_PARAMS }, EXPAND(STATES_PAGE, NEWEST) },
    [FIND_BY_TIME + 1] = { "find_oldest", 20, { FIND_PARAMS }, EXPAND(STATES_PAGE, OLDEST) },
    [FIND_BY_ID] = { "find_id_newest", 22, { FIND_PARAMS, OID_TEXT, OID_TEXT },
        EXPAND(ID_PAGE, NEWEST) },
    [FIND_BY_ID + 1] = { "find_id_oldest", 22, { FIND_PARAMS, OID_TEXT, OID_TEXT },
        EXPAND(ID_PAGE, OLDEST) },
    /* The few in doubt: the index saga_doubt. */
    [FIND_BY_DOUBT] = { "find_doubt_newest", 20, { FIND_PARAMS }, EXPAND(DOUBT_PAGE, NEWEST) },
    [FIND_BY_DOUBT + 1] = { "find_doubt_oldest", 20, { FIND_PARAMS }, EXPAND(DOUBT_PAGE, OLDEST) },
    [FIND_BY_REASON] = { "find_reason_newest", 20, { FIND_PARAMS }, EXPAND(REASON_PAGE, NEWEST) },
    [FIND_BY_REASON + 1] = { "find_reason_oldest", 20, { FIND_PARAMS },
        EXPAND(REASON_PAGE, OLDEST) },
    [FIND_BY_LABEL] = { "find_label_newest", 22, { FIND_PARAMS, OID_TEXT, OID_TEXT },
        EXPAND(LABEL_PAGE, NEWEST) },
    [FIND_BY_LABEL + 1] = { "find_label_oldest", 22, { FIND_PARAMS, OID_TEXT, OID_TEXT },
        EXPAND(LABEL_PAGE, OLDEST) },
    [FIND_EFFECTS + FIND_BY_TIME / 2] = { "effects", 37, { EFFECT_PARAMS },
        EXPAND(STATES_EFFECTS, NEWEST) },
    [FIND_EFFECTS + FIND_BY_ID / 2] = { "effects_id", 37, { EFFECT_PARAMS },
        EXPAND(ID_EFFECTS, NEWEST) },
    [FIND_EFFECTS + FIND_BY_DOUBT / 2] = { "effects_doubt", 37, { EFFECT_PARAMS },
        EXPAND(DOUBT_EFFECTS, NEWEST) },
    [FIND_EFFECTS + FIND_BY_REASON / 2] = { "effects_reason", 37, { EFFECT_PARAMS },
        EXPAND(REASON_EFFECTS, NEWEST) },
    [FIND_EFFECTS + FIND_BY_LABEL / 2] = { "effects_label", 37, { EFFECT_PARAMS },
        EXPAND(LABEL_EFFECTS, NEWEST) },

    /* How many sagas are in each state, or parked for each reason: counted up to $1; and by the
     * planner's statistics, as of when the table was last analysed, 0 where they do not know. */
    [FIND_STATES] = { "count_states", 1, { OID_INT8 },
        "SELECT t.state, (SELECT count(*) FROM (SELECT FROM definition d CROSS JOIN LATERAL (SELECT"
        " FROM saga c WHERE c.namespace = d.namespace AND c.definition = d.name"
        " AND c.state = t.state LIMIT $1) s LIMIT $1) x), " ESTIMATE("state", "t.state")
        " FROM unnest(ARRAY['RUNNING', 'COMPENSATING', 'PARKED', 'SUCCEEDED', 'COMPENSATED',"
        " 'ABANDONED']) AS t (state)" },
    [FIND_REASONS] = { "count_reasons", 2, { OID_INT8, OID_TEXT_ARRAY },
        "SELECT t.reason, (SELECT count(*) FROM (SELECT FROM definition d CROSS JOIN LATERAL (SELECT"
        " FROM saga c WHERE c.namespace = d.namespace AND c.definition = d.name"
        " AND c.park_reason = t.reason AND c.state = 'PARKED' LIMIT $1) s LIMIT $1) x), "
        ESTIMATE("park_reason", "t.reason") " FROM unnest($2) AS t (reason)" },
    [FIND_TABLES] = { "table_sizes", 1, { OID_INT8 },
        "SELECT c.relname::text, greatest(c.reltuples, 0)::bigint, pg_total_relation_size(c.oid)"
        " FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'"
        " ORDER BY 3 DESC, 1 LIMIT $1" },
    [FIND_DATABASE] = { "database", 0, { 0 },
        "SELECT current_database()::text, current_setting('server_version'),"
        " pg_database_size(current_database()), pg_is_in_recovery(),"
        " CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || substr(pg_walfile_name("
        "pg_current_wal_lsn()), 1, 8))::bit(32)::int8 - 1 END,"
        " current_setting('synchronous_standby_names')" },
    /* clang-format on */
};
static_assert(FIND_BY_LABEL + 2 == FIND_EFFECTS, "two rows for each way");
static_assert(FIND_DATABASE + 1 == FIND_COUNT, "one row for each find_stmt_id");
