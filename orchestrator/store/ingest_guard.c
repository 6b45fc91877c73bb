/* What a batch may do: the revision, the cursors, the letters. */
#include "store/ingest_batch.h"

#include <stdlib.h>

int run_compare_parts(const void *a, const void *b)
{
    const struct part *left = a, *right = b;
    return (left->given->partition > right->given->partition) -
           (left->given->partition < right->given->partition);
}

struct part *run_part(const struct run *run, int32_t partition)
{
    struct store_ingest_part given = { .partition = partition };
    const struct part wanted = { .given = &given };
    return bsearch(&wanted, run->parts, run->batch->part_count, sizeof wanted, run_compare_parts);
}

static int send_revision(struct run *run, struct err *err)
{
    struct params *params = ingest_start(run->ingest, &ingest_stmts[INGEST_REVISION]);
    params_text(params, run->batch->namespace_);
    params_text(params, run->batch->definition);
    params_int4(params, run->batch->revision);
    params_text(params, run->ingest->rule);
    return ingest_send(run->ingest, err);
}

static int take_revision(const struct run *run, const PGresult *result, struct err *err)
{
    const struct store_ingest_batch *batch = run->batch;
    if (PQntuples(result) == 0)
        return err_reason(err, ERR_PRECONDITION, "REVISION_GONE",
                          "revision %d of %s/%s was deleted", batch->revision, batch->namespace_,
                          batch->definition);
    struct columns columns = { .result = result, .table = "definition", .err = err };
    bool paused = columns_bool(&columns);
    const char *why = columns_borrow(&columns);
    bool wanted = columns_bool(&columns);
    if (columns.failed)
        return (int)err->code;
    if (paused)
        return err_reason(err, ERR_PRECONDITION, "DEFINITION_PAUSED", "%s/%s is paused: %.200s",
                          batch->namespace_, batch->definition, why);
    if (!wanted)
        return err_reason(err, ERR_PRECONDITION, "RULE_STOPPED", "the rule %s is stopped",
                          run->ingest->rule);
    return 0;
}

static int send_move(struct run *run, struct err *err)
{
    struct params *params = ingest_start_rule(run->ingest, INGEST_MOVE);
    for (size_t i = 0; i < run->batch->part_count; i++) {
        const struct store_ingest_part *part = run->parts[i].given;
        params_seek(params, 2);
        params_int4(params, part->partition);
        params_int8(params, part->expected);
        params_int8(params, part->next_offset);
        if (part->before.offset >= 0) {
            params_int8(params, part->before.offset);
            params_int8(params, part->before.time_ms);
            params_int8(params, part->before.crc);
        } else {
            params_null(params);
            params_null(params);
            params_null(params);
        }
    }
    return ingest_send(run->ingest, err);
}

static int take_move(struct run *run, const PGresult *result, struct err *err)
{
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "kafka_cursor", .err = err
        };
        struct part *part = run_part(run, columns_int4(&columns));
        int64_t suspect_until = columns_int8(&columns);
        run->batch->now_ms = columns_time_ms(&columns);
        if (columns.failed || !part)
            return columns.failed ? (int)err->code
                                  : err_set(err, ERR_INTERNAL, "ingest: another cursor moved");
        part->given->moved = true;
        part->suspect_until = suspect_until;
        part->records = part->given->filtered + part->given->tombstones;
    }
    for (size_t i = 0; i < run->batch->record_count; i++) {
        struct item *item = &run->items[i];
        item->allowed = item->part->given->moved;
        item->suspect = item->record->offset < item->part->suspect_until;
        if (item->allowed)
            item->part->records++;
    }
    return 0;
}

static int send_lock(struct run *run, struct err *err)
{
    struct params *params = ingest_start(run->ingest, &ingest_stmts[INGEST_REPLAY_LOCK]);
    for (size_t i = 0; i < run->batch->record_count; i++) {
        params_seek(params, 0);
        params_uuid(params, &run->letters[i].id);
    }
    return ingest_send(run->ingest, err);
}

static int take_lock(struct run *run, const PGresult *result, struct err *err)
{
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "dead_letter", .err = err
        };
        int64_t n = columns_int8(&columns);
        bool suspect = columns_bool(&columns);
        if (columns.failed || n < 1 || (size_t)n > run->batch->record_count)
            return columns.failed ? (int)err->code
                                  : err_set(err, ERR_INTERNAL, "ingest: another letter locked");
        run->items[n - 1].allowed = true;
        run->items[n - 1].suspect = suspect;
    }
    return 0;
}

int run_guard(struct run *run, bool *ret_any, struct err *err)
{
    if (ingest_control(run->ingest, &control_stmts[CONTROL_BEGIN], err) != 0 ||
        send_revision(run, err) != 0 ||
        (run->letters ? send_lock(run, err) : send_move(run, err)) != 0 ||
        ingest_exchange(run->ingest, err) != 0 ||
        take_revision(run, ingest_result(run->ingest, 1), err) != 0)
        return (int)err->code;
    const PGresult *result = ingest_result(run->ingest, 2);
    *ret_any = PQntuples(result) > 0;
    return run->letters ? take_lock(run, result, err) : take_move(run, result, err);
}
