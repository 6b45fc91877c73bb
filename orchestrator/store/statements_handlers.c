#include "store/statements.h"

#include "store/handler_sql.h"

#include <assert.h>

const struct stmt handler_stmts[HANDLER_STMT_COUNT] = {
    /* clang-format off */
    [HANDLER_ROW] = { "handler_row", 1, { OID_TEXT },
        "SELECT " HANDLER_COLUMNS " FROM handler h WHERE h.name = $1" },
    [HANDLER_CHANGE] = { "handler_change", 15, { HANDLER_SET_PARAMS }, HANDLER_SET },
    /* With what the nodes that live say of each. $1 NULL: every one, of which those behind $2. */
    [HANDLER_LIST] = { "handler_list", 3, { OID_TEXT, OID_TEXT, OID_INT8 },
        "SELECT " HANDLER_COLUMNS ", coalesce(c.waiting, 0)::int8, coalesce(c.leased, 0)::int8,"
        " c.oldest_at, coalesce(c.served, 0)::int4 FROM handler h LEFT JOIN LATERAL ("
        "SELECT sum(n.waiting) AS waiting, sum(n.leased) AS leased, min(n.oldest_at) AS oldest_at,"
        " count(*) FILTER (WHERE n.served) AS served FROM handler_node n WHERE n.handler = h.name"
        " AND " HANDLER_NODE_LIVES ") c ON true"
        " WHERE ($1 IS NULL OR h.name = $1) AND h.name > $2 ORDER BY h.name LIMIT $3" },
    [HANDLER_TIMES] = { "handler_times", 2, { OID_TEXT, OID_INT8 },
        "SELECT t.from_at, t.until_at FROM (SELECT o.from_at, o.until_at FROM handler_hold o"
        " WHERE o.handler = $1 ORDER BY o.from_at DESC LIMIT $2) t ORDER BY t.from_at" },
    /* Sagas without an owner that wait for handlers: as many to a page of the index as its last analysis
     * found, as the planner reckons; since then it may have grown many times over. */
    [HANDLER_LET_GO_ABOUT] = { "handler_let_go_about", 0, { 0 },
        "SELECT coalesce((SELECT (c.reltuples / c.relpages * pg_relation_size(c.oid)"
        " / current_setting('block_size')::int)::int8 FROM pg_class c"
        " WHERE c.oid = 'saga_waiting'::regclass AND c.relpages > 0 AND c.reltuples > 0), 0)" },
    /* clang-format on */
};
static_assert(HANDLER_LET_GO_ABOUT + 1 == HANDLER_STMT_COUNT, "one row for each handler_stmt_id");
