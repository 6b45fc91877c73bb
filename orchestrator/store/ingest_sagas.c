/* Keys and sagas of a batch, and whose the keys are that were known. */
#include "store/ingest_batch.h"

#include <string.h>

static int send_sagas(struct run *run, struct item *const *items, size_t count, struct err *err)
{
    const struct store_ingest_batch *batch = run->batch;
    struct params *params = ingest_start(run->ingest, &ingest_stmts[INGEST_BEGIN_SAGAS]);
    for (size_t i = 0; i < count; i++) {
        const struct store_ingest_record *record = items[i]->record;
        params_seek(params, 0);
        params_int8(params, (int64_t)i);
        params_int2(params, items[i]->shard);
        params_uuid(params, &record->uid);
        params_text(params, record->saga_id);
        params_blob(params, items[i]->digest, sizeof items[i]->digest);
        params_bytes(params, &record->input);
        params_text(params, record->labels);
        if (items[i]->suspect)
            params_int8(params, record->time_ms);
        else
            params_null(params);
    }
    params_text(params, batch->namespace_);
    params_text(params, batch->definition);
    params_int4(params, batch->revision);
    if (batch->deadline_ms > 0)
        params_int8(params, batch->deadline_ms);
    else
        params_null(params);
    params_text(params, run->ingest->node);
    params_text(params, run->ingest->actor);
    params_bool(params, batch->publish_start);
    return ingest_send(run->ingest, err);
}

/* They come back in the order in which they were sent, as a rule. */
static int take_sagas(const PGresult *result, struct item *const *items, size_t count,
                      struct err *err)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        items[i]->known = true;
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = { .result = result, .row = row, .table = "saga", .err = err };
        bool present;
        struct uuid uid = columns_uuid(&columns, &present);
        size_t left = count;
        while (left > 0 && memcmp(&items[at]->record->uid, &uid, sizeof uid) != 0) {
            at = (at + 1) % count;
            left--;
        }
        if (columns.failed || left == 0)
            return columns.failed ? (int)err->code
                                  : err_set(err, ERR_INTERNAL, "ingest: another saga started");
        items[at]->known = false;
        items[at]->record->result = INGEST_STARTED;
    }
    return 0;
}

static int refuse(struct item *item, const struct err *why, struct err *err)
{
    item->refused = mem_strdup(why->msg);
    if (!item->refused)
        return err_set(err, ERR_NOMEM, "ingest: a refused row");
    item->known = false;
    item->is_letter = true;
    item->reason = "REFUSED_BY_DATABASE";
    item->message = item->refused;
    return 0;
}

/* Halves what fails because of a row until the row is alone; that one becomes a dead letter. */
static int sagas_one_by_one(struct run *run, struct item *const *items, size_t count,
                            struct err *err)
{
    struct store_ingest *ingest = run->ingest;
    if (ingest_control(ingest, &ingest_stmts[INGEST_SAVE], err) != 0 ||
        send_sagas(run, items, count, err) != 0)
        return (int)err->code;
    if (ingest_exchange(ingest, err) == 0)
        return take_sagas(ingest_result(ingest, 1), items, count, err);
    if (ingest->fault != FAULT_ROW)
        return (int)err->code;
    struct err why = *err;
    if (ingest_control(ingest, &ingest_stmts[INGEST_RETURN], err) != 0 ||
        ingest_exchange(ingest, err) != 0)
        return (int)err->code;
    if (count == 1)
        return refuse(items[0], &why, err);
    if (sagas_one_by_one(run, items, count / 2, err) != 0)
        return (int)err->code;
    return sagas_one_by_one(run, items + count / 2, count - count / 2, err);
}

int run_sagas(struct run *run, struct err *err)
{
    size_t count = 0;
    for (size_t i = 0; i < run->start_count; i++)
        if (run->starts[i]->allowed)
            run->picked[count++] = run->starts[i];
    if (count == 0)
        return 0;
    if (run->careful)
        return sagas_one_by_one(run, run->picked, count, err);
    if (send_sagas(run, run->picked, count, err) != 0)
        return (int)err->code;
    if (ingest_exchange(run->ingest, err) != 0) {
        run->row_fault = run->ingest->fault == FAULT_ROW;
        return (int)err->code;
    }
    return take_sagas(ingest_result(run->ingest, 0), run->picked, count, err);
}

/* --- keys that were known ---------------------------------------------------------------- */

static int take_known(struct run *run, const PGresult *result, size_t count, struct err *err)
{
    size_t found = 0;
    for (int row = 0; row < PQntuples(result); row++) {
        struct store_key key;
        int64_t n = decode_ordinal(result, row);
        if (n < 1 || (size_t)n > count)
            return err_set(err, ERR_INTERNAL, "ingest: another key came back");
        if (decode_key(result, row, &key, err) != 0)
            return (int)err->code;
        struct item *item = run->picked[n - 1];
        bool same = memcmp(key.input_digest, item->digest, sizeof item->digest) == 0;
        item->record->result = same ? INGEST_DUPLICATE : INGEST_MISMATCH;
        item->record->uid = key.uid;
        item->record->ended = key.ended;
        item->record->final_state = key.final_state;
        if (!same && run->batch->mismatch_is_dead_letter) {
            item->is_letter = true;
            item->reason = "MISMATCH";
            item->message = "this key has started a saga with another input";
        }
        found++;
    }
    /* Forgotten between the two statements: it starts at the next try. */
    return found == count ? 0 : err_set(err, ERR_CONFLICT, "ingest: a key was just forgotten");
}

int run_known(struct run *run, struct err *err)
{
    const struct store_ingest_batch *batch = run->batch;
    size_t count = 0;
    struct params *params = ingest_start(run->ingest, &stmts[STMT_LOAD_KEYS]);
    for (size_t i = 0; i < run->start_count; i++) {
        struct item *item = run->starts[i];
        if (!item->known)
            continue;
        params_seek(params, 0);
        params_int2(params, item->shard);
        params_text(params, batch->namespace_);
        params_text(params, batch->definition);
        params_text(params, item->record->saga_id);
        run->picked[count++] = item;
    }
    if (count == 0)
        return 0;
    if (ingest_run(run->ingest, err) != 0)
        return (int)err->code;
    return take_known(run, ingest_result(run->ingest, 0), count, err);
}
