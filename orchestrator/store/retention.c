#include "store/retention.h"

#include "base/mem.h"
#include "store/decode.h"
#include "store/session.h"

enum { CALL_MS_MAX = 30 * 1000 }; /* longer than a statement may run; then the network is gone */

struct store_retention {
    struct store_session *session;
};

int store_retention_new(const char *conninfo, int wake_fd, struct store_retention **ret,
                        struct err *err)
{
    const struct store_session_options options = { .conninfo = conninfo,
                                                   .role = CONNECT_RETENTION,
                                                   .stmts = purge_stmts,
                                                   .stmt_count = PURGE_COUNT,
                                                   .wake_fd = wake_fd,
                                                   .call_ms = CALL_MS_MAX };
    struct store_retention *retention = mem_calloc(1, sizeof *retention);
    if (!retention)
        return err_set(err, ERR_NOMEM, "retention");
    if (store_session_new(&options, &retention->session, err) != 0) {
        mem_free(retention);
        return (int)err->code;
    }
    *ret = retention;
    return 0;
}

struct store_retention *store_retention_free(struct store_retention *retention)
{
    if (!retention)
        return NULL;
    (void)store_session_free(retention->session); /* always NULL */
    mem_free(retention);
    return NULL;
}

void store_retention_drop(struct store_retention *retention)
{
    store_session_rollback(retention->session);
}

static struct params *start(struct store_retention *retention, enum purge_stmt_id id)
{
    return store_session_start(retention->session, id);
}

static int execute(struct store_retention *retention, PGresult **ret, struct err *err)
{
    return store_session_run(retention->session, ret, err);
}

/* --- a batch ------------------------------------------------------------------------------------
 */

/* So many of a shard at a time at least: each look costs, and so does each page that is come to
 * again. */
enum { SIDE_BY_SIDE_MIN = 4 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many to look at in each shard for `limit` in all. */
static size_t each_of(const struct store_retention_round *round, size_t limit)
{
    size_t open = 0;
    for (int i = 0; i < RETENTION_SHARDS; i++)
        open += !round->over[i];
    size_t each = open ? (limit + open - 1) / open : 0;
    return smaller(each > SIDE_BY_SIDE_MIN ? each : SIDE_BY_SIDE_MIN, limit);
}

/* Moves the round on: the shards before `stop` in its order were looked through, `each` of one
 * shard at most; stop -1: all of them were. */
static void pass(struct store_retention_round *round, const size_t *seen, size_t each, int stop)
{
    uint8_t first = round->next;
    for (int i = 0; i < RETENTION_SHARDS; i++) {
        uint8_t shard = (uint8_t)(first + i);
        round->next = shard;
        if (shard == stop && seen[shard] < each)
            return;
        if (seen[shard] < each)
            round->over[shard] = true;
        if (shard == stop)
            break;
    }
    round->next++;
}

static bool is_over(const struct store_retention_round *round)
{
    for (int i = 0; i < RETENTION_SHARDS; i++)
        if (!round->over[i])
            return false;
    return true;
}

/* Rows of the statement into the batch, as far as one transaction may go: the rest stays locked
 * until the commit, and is the next batch's. */
static int take_picked(const PGresult *result, size_t limit, size_t each,
                       struct store_retention_batch *batch, struct err *err)
{
    int64_t entries = 0, bytes = 0;
    size_t seen[RETENTION_SHARDS] = { 0 };
    int stop = -1, rows = PQntuples(result);
    batch->looked_at = (size_t)rows;
    for (int row = 0; row < rows; row++) {
        struct columns columns = { .result = result, .row = row, .table = "saga", .err = err };
        bool present;
        uint8_t shard = (uint8_t)columns_int2(&columns, 0);
        struct uuid uid = columns.uid = columns_uuid(&columns, &present);
        bool picked = columns_bool(&columns);
        int64_t count = columns_int8(&columns);
        int64_t size = columns_int8(&columns);
        if (columns.failed)
            return (int)err->code;
        bool too_much =
            entries + count > RETENTION_ENTRIES_MAX || bytes + size > RETENTION_BYTES_MAX;
        if (picked && batch->count && too_much) {
            stop = shard;
            break;
        }
        if (picked) {
            entries += count;
            bytes += size;
            batch->uids[batch->count++] = uid;
        }
        batch->after.after[shard] = uid;
        seen[shard]++;
        if ((size_t)row + 1 == limit)
            stop = shard;
    }
    pass(&batch->after, seen, each, stop);
    batch->round_over = is_over(&batch->after);
    return 0;
}

static void put_round(struct params *params, const struct store_retention_round *round)
{
    for (int i = 0; i < RETENTION_SHARDS; i++) {
        uint8_t shard = (uint8_t)(round->next + i);
        if (round->over[shard])
            continue;
        params_seek(params, 0);
        params_int2(params, shard);
        params_uuid(params, &round->after[shard]);
    }
    params_seek(params, 2);
}

int store_retention_pick(struct store_retention *retention,
                         const struct store_retention_round *round, int64_t age_ms, size_t limit,
                         struct store_retention_batch *ret, struct err *err)
{
    limit = smaller(limit, RETENTION_BATCH_MAX);
    size_t each = each_of(round, limit);
    if (store_session_command(retention->session, "BEGIN", err) != 0) {
        store_retention_drop(retention);
        return (int)err->code;
    }
    struct params *params = start(retention, PURGE_PICK);
    put_round(params, round);
    params_int8(params, age_ms);
    params_int8(params, (int64_t)each);
    params_int8(params, (int64_t)limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    ret->count = 0;
    ret->after = *round;
    if (execute(retention, &result, err) != 0 || take_picked(result, limit, each, ret, err) != 0) {
        store_retention_drop(retention);
        return (int)err->code;
    }
    if (!ret->count)
        store_retention_drop(retention);
    return 0;
}

static void put_uids(struct params *params, const struct store_retention_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        params_seek(params, 0);
        params_int2(params, uuid_shard(&batch->uids[i]));
        params_uuid(params, &batch->uids[i]);
    }
    params_seek(params, 2);
}

int store_retention_lines(struct store_retention *retention,
                          const struct store_retention_batch *batch, store_retention_line_fn *fn,
                          void *ctx, struct err *err)
{
    put_uids(start(retention, PURGE_LINES), batch);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = execute(retention, &result, err);
    if (!rc && (size_t)PQntuples(result) != batch->count)
        rc = err_set(err, ERR_INTERNAL, "retention: %zu sagas were picked, %d were read",
                     batch->count, PQntuples(result));
    for (int row = 0; !rc && row < PQntuples(result); row++)
        rc = fn(ctx, PQgetvalue(result, row, 0), (size_t)PQgetlength(result, row, 0), err);
    if (rc)
        store_retention_drop(retention);
    return rc;
}

static int count_of(const PGresult *result, const char *table, size_t *ret, struct err *err)
{
    struct columns columns = { .result = result, .table = table, .err = err };
    int64_t count = columns_int8(&columns);
    if (columns.failed)
        return (int)err->code;
    *ret = (size_t)count;
    return 0;
}

int store_retention_delete(struct store_retention *retention,
                           const struct store_retention_batch *batch, const char *archive,
                           int64_t key_memory_ms, struct err *err)
{
    struct params *params = start(retention, PURGE_DELETE);
    put_uids(params, batch);
    params_text(params, archive);
    if (key_memory_ms >= 0)
        params_int8(params, key_memory_ms);
    else
        params_null(params);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    size_t deleted = 0;
    int rc = execute(retention, &result, err);
    if (!rc)
        rc = count_of(result, "saga", &deleted, err);
    if (!rc && deleted != batch->count)
        rc = err_set(err, ERR_INTERNAL, "retention: %zu sagas were picked, %zu were deleted",
                     batch->count, deleted);
    if (!rc)
        rc = store_session_command(retention->session, "COMMIT", err);
    if (rc)
        store_retention_drop(retention);
    return rc;
}

int store_retention_forget(struct store_retention *retention, size_t limit, size_t *ret_forgotten,
                           struct err *err)
{
    params_int8(start(retention, PURGE_FORGET), (int64_t)limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = execute(retention, &result, err);
    return rc ? rc : count_of(result, "saga_key", ret_forgotten, err);
}

int store_retention_audit(struct store_retention *retention, int64_t age_ms, size_t limit,
                          size_t *ret_deleted, struct err *err)
{
    struct params *params = start(retention, PURGE_AUDIT);
    params_int8(params, age_ms);
    params_int8(params, (int64_t)limit);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = execute(retention, &result, err);
    return rc ? rc : count_of(result, "audit", ret_deleted, err);
}

static void put_time(struct params *params, int64_t ms)
{
    if (ms)
        params_time(params, decode_time_pg(ms * 1000));
    else
        params_null(params);
}

int store_retention_say(struct store_retention *retention, const struct store_retention_node *node,
                        struct err *err)
{
    struct params *params = start(retention, PURGE_SAY);
    params_text(params, node->node);
    params_int8(params, node->retention_ms);
    params_int8(params, node->key_memory_ms);
    params_text(params, node->archive);
    put_time(params, node->round_began_ms);
    put_time(params, node->round_ended_ms);
    params_int8(params, node->round_purged);
    params_int8(params, node->purged);
    params_int8(params, node->forgotten);
    params_text(params, node->problem);
    return store_session_do(retention->session, err);
}
