/* The batch from its beginning to its end; its steps stand in the files that ingest_batch.h names.
 */
#include "store/ingest_batch.h"

#include "base/fault.h"
#include "base/sha256.h"

#include <string.h>

/* --- preparation ---------------------------------------------------------------------------- */

/* As `start` orders its keys; records with the same key as they came. */
static int compare_starts(const void *a, const void *b)
{
    const struct item *left = *(struct item *const *)a, *right = *(struct item *const *)b;
    if (left->shard != right->shard)
        return left->shard < right->shard ? -1 : 1;
    int order = strcmp(left->record->saga_id, right->record->saga_id);
    if (order != 0)
        return order;
    return left < right ? -1 : left > right;
}

static int prepare_start(struct run *run, struct item *item, struct err *err)
{
    struct store_ingest_record *record = item->record;
    const struct sha256_part input = { record->input.data, record->input.size };
    if (sha256(&input, 1, item->digest) != 0)
        return err_set(err, ERR_NOMEM, "ingest: digest");
    item->shard = store_shard(run->batch->namespace_, run->batch->definition, record->saga_id);
    record->uid = uuid_v7(clock_wall_ms(run->ingest->clock), &run->ingest->rng, item->shard);
    run->starts[run->start_count++] = item;
    return 0;
}

static int prepare_items(struct run *run, struct err *err)
{
    for (size_t i = 0; i < run->batch->record_count; i++) {
        struct item *item = &run->items[i];
        item->record = &run->batch->records[i];
        item->record->uid = (struct uuid){ { 0 } };
        item->record->ended = false;
        if (!run->letters) {
            item->part = run_part(run, item->record->partition);
            if (!item->part)
                return err_set(err, ERR_INTERNAL, "ingest: record of partition %d without a part",
                               item->record->partition);
        }
        if (item->record->action == INGEST_START && prepare_start(run, item, err) != 0)
            return (int)err->code;
    }
    if (run->start_count > 1)
        qsort(run->starts, run->start_count, sizeof(struct item *), compare_starts);
    return 0;
}

static int prepare(struct run *run, struct err *err)
{
    const struct store_ingest_batch *batch = run->batch;
    run->parts = mem_calloc(batch->part_count + 1, sizeof *run->parts);
    run->items = mem_calloc(batch->record_count + 1, sizeof *run->items);
    run->starts = mem_calloc(batch->record_count + 1, sizeof(struct item *));
    run->picked = mem_calloc(batch->record_count + 1, sizeof(struct item *));
    if (!run->parts || !run->items || !run->starts || !run->picked)
        return err_set(err, ERR_NOMEM, "ingest: a batch");
    for (size_t i = 0; i < batch->part_count; i++)
        run->parts[i].given = &batch->parts[i];
    if (batch->part_count > 1)
        qsort(run->parts, batch->part_count, sizeof *run->parts, run_compare_parts);
    return prepare_items(run, err);
}

static void run_done(struct run *run)
{
    for (size_t i = 0; run->items && i < run->batch->record_count; i++)
        mem_free(run->items[i].refused);
    mem_free(run->parts);
    mem_free(run->items);
    mem_free(run->starts);
    mem_free(run->picked);
}

/* As if nothing had happened. */
static void reset(struct run *run)
{
    for (size_t i = 0; i < run->batch->part_count; i++) {
        struct part *part = &run->parts[i];
        part->given->moved = false;
        *part = (struct part){ .given = part->given };
    }
    for (size_t i = 0; i < run->batch->record_count; i++) {
        struct item *item = &run->items[i];
        item->record->result = INGEST_NOTHING;
        item->allowed = item->known = item->is_letter = item->inserted = false;
    }
}

/* --- what it came to --------------------------------------------------------------------- */

static void settle(struct run *run)
{
    for (size_t i = 0; i < run->batch->record_count; i++) {
        struct item *item = &run->items[i];
        struct store_ingest_record *record = item->record;
        if (!item->allowed)
            continue;
        if (item->is_letter && record->result != INGEST_MISMATCH)
            record->result = item->inserted || run->letters ? INGEST_DEAD : INGEST_DUPLICATE;
        if (record->result == INGEST_DEAD)
            record->uid = (struct uuid){ { 0 } };
        if (!item->part)
            continue;
        item->part->started += record->result == INGEST_STARTED;
        item->part->duplicates += record->result == INGEST_DUPLICATE;
        item->part->mismatches += record->result == INGEST_MISMATCH;
        item->part->dead_letters += item->inserted;
    }
}

static int send_counters(struct run *run, struct err *err)
{
    struct params *params = ingest_start_rule(run->ingest, INGEST_COUNT_RECORDS);
    for (size_t i = 0; i < run->batch->part_count; i++) {
        const struct part *part = &run->parts[i];
        if (!part->given->moved)
            continue;
        params_seek(params, 2);
        params_int4(params, part->given->partition);
        params_int8(params, part->records);
        params_int8(params, part->started);
        params_int8(params, part->duplicates);
        params_int8(params, part->mismatches);
        params_int8(params, part->dead_letters);
        params_int8(params, part->given->filtered);
        params_int8(params, part->given->tombstones);
    }
    return ingest_send(run->ingest, err);
}

static int write_all(struct run *run, struct err *err)
{
    bool any = false;
    reset(run);
    if (run_guard(run, &any, err) != 0)
        return (int)err->code;
    if (!any) { /* somebody else is further */
        if (ingest_control(run->ingest, &control_stmts[CONTROL_ROLLBACK], err) != 0)
            return (int)err->code;
        return ingest_exchange(run->ingest, err);
    }
    for (size_t i = 0; i < run->batch->record_count; i++) {
        struct item *item = &run->items[i];
        item->is_letter = item->allowed && item->record->action == INGEST_DEAD_LETTER;
        item->reason = item->record->reason;
        item->message = item->record->message;
    }
    if (run_sagas(run, err) != 0 || run_known(run, err) != 0 ||
        (!run->letters && run_letters(run, err) != 0))
        return (int)err->code;
    settle(run);
    if ((run->letters ? run_send_replayed(run, err) : send_counters(run, err)) != 0)
        return (int)err->code;
    fault_point("ingest_before_commit");
    if (ingest_commit(run->ingest, err) != 0)
        return (int)err->code;
    fault_point("ingest_after_commit");
    return 0;
}

static int run_batch(struct store_ingest *ingest, const struct store_ingest_letter *letters,
                     struct store_ingest_batch *batch, struct err *err)
{
    struct run run = { .ingest = ingest, .batch = batch, .letters = letters };
    int rc = prepare(&run, err);
    if (rc == 0)
        rc = ingest_open(ingest, err);
    if (rc == 0)
        rc = ingest_close(ingest, write_all(&run, err), err);
    if (rc != 0 && run.row_fault && ingest->conn) { /* nothing of it happened: again, with care */
        run.careful = true;
        rc = ingest_close(ingest, write_all(&run, err), err);
    }
    for (size_t i = 0; rc != 0 && i < batch->part_count; i++)
        batch->parts[i].moved = false;
    for (size_t i = 0; rc != 0 && i < batch->record_count; i++) {
        batch->records[i].result = INGEST_NOTHING;
        if (run.items && run.items[i].known) /* another's */
            batch->records[i].uid = (struct uuid){ { 0 } };
    }
    run_done(&run);
    return rc;
}

int store_ingest_batch(struct store_ingest *ingest, struct store_ingest_batch *batch,
                       struct err *err)
{
    return batch->part_count == 0 ? 0 : run_batch(ingest, NULL, batch, err);
}

int store_ingest_replay(struct store_ingest *ingest, const struct store_ingest_letter *letters,
                        struct store_ingest_batch *batch, struct err *err)
{
    return batch->record_count == 0 ? 0 : run_batch(ingest, letters, batch, err);
}
