/* How often steps may have taken effect: pages of the view saga_effect, by way of their sagas. */
#include "store/reader_internal.h"

#include "store/connect.h"

#include <assert.h>

/* Sagas whose journals are looked at for one page. */
enum { SCAN_SAGAS = 2000 };

void store_effect_done(struct store_effect *effect)
{
    mem_free(effect->namespace_);
    mem_free(effect->definition);
    mem_free(effect->saga_id);
    mem_free(effect->step);
    *effect = (struct store_effect){ 0 };
}

struct effects {
    struct store_list list;
    struct find_way way;
    const struct store_effect_place *after;
    struct store_effect *ret;
    size_t count;
    struct store_list_end end;
};

static void effects_drop(struct effects *effects)
{
    while (effects->count > 0)
        store_effect_done(&effects->ret[--effects->count]);
    effects->end = (struct store_list_end){ 0 };
}

static void put_effects(struct effects *effects, struct params *params)
{
    static const struct uuid none = { { 0 } };
    const struct saga_filter *filter = &effects->list.filter;
    const struct store_effect_place *after = effects->after;
    params_seek(params, 22);
    params_text(params, filter->step);
    params_text(params, filter->has_operation ? operation_name(filter->operation) : NULL);
    find_put_numbers(params, &filter->dispatched);
    find_put_numbers(params, &filter->sure);
    find_put_numbers(params, &filter->possible);
    find_put_times(params, &filter->first_us);
    find_put_times(params, &filter->last_us);
    params_uuid(params, after ? &after->uid : &none);
    params_int2(params, after ? after->step_index : 0);
    params_text(params, after ? operation_name(after->operation) : "");
}

static int take_effect(struct effects *effects, const PGresult *result, int row, struct err *err)
{
    struct columns columns = { .result = result, .row = row, .table = "saga_effect", .err = err };
    struct store_effect effect = { 0 };
    bool present;
    effect.started_us = columns_int8(&columns) - decode_time_pg(0);
    effect.uid = columns.uid = columns_uuid(&columns, &present);
    effect.namespace_ = columns_text(&columns);
    effect.definition = columns_text(&columns);
    effect.saga_id = columns_text(&columns);
    effect.run = columns_int4(&columns);
    effect.state = columns_saga_state(&columns);
    effect.doubt = columns_bool(&columns);
    if (columns_bool(&columns))
        effects->end = (struct store_list_end){ true, effect.started_us, effect.uid };
    effect.step = columns_text(&columns);
    if (columns.failed || !effect.step) { /* the last saga that was looked at, without an effect */
        bool failed = columns.failed;
        store_effect_done(&effect);
        return failed ? (int)err->code : 0;
    }
    effect.step_index = columns_int2(&columns, -1);
    const char *operation = columns_borrow(&columns);
    effect.dispatched = columns_int8(&columns);
    effect.sure = columns_int8(&columns);
    effect.possible = columns_int8(&columns);
    effect.first_ms = columns_time_ms(&columns);
    effect.last_ms = columns_time_ms(&columns);
    int rc = columns.failed ? (int)err->code : 0;
    if (!rc && (!operation || !operation_parse(operation, &effect.operation)))
        rc = err_set(err, ERR_INTERNAL, "saga_effect: an operation that nobody knows");
    if (rc)
        store_effect_done(&effect);
    else
        effects->ret[effects->count++] = effect;
    return rc;
}

static int effects_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct effects *effects = ctx;
    effects_drop(effects); /* of a first try that broke */
    struct params *params =
        reader_start_find(reader, (enum find_stmt_id)(FIND_EFFECTS + effects->way.statement / 2));
    find_way_put(&effects->way, &effects->list, params);
    put_effects(effects, params);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = reader_execute(reader, &result, err);
    if (!rc && PQntuples(result) > (int)effects->list.limit)
        return err_set(err, ERR_INTERNAL, "effects: more rows than were asked for");
    for (int row = 0; !rc && row < PQntuples(result); row++)
        rc = take_effect(effects, result, row, err);
    if (effects->count ==
        effects->list.limit) /* it was cut by the page, not by what was looked at */
        effects->end = (struct store_list_end){ 0 };
    return rc;
}

/* The next greater one; a list from there on has the one before it, too. */
static struct uuid uuid_next(struct uuid uid)
{
    size_t at = sizeof uid.bytes;
    while (at > 0 && ++uid.bytes[at - 1] == 0)
        at--;
    return uid;
}

int store_reader_effects(struct store_reader *reader, const struct store_list *list,
                         const struct store_effect_place *after, struct store_effect *ret,
                         size_t *ret_count, struct store_list_end *ret_end, struct err *err)
{
    struct effects effects = { .list = *list, .after = after, .ret = ret };
    effects.list.oldest_first = false;
    effects.list.is_looked_into = true;
    if (!effects.list.scan_rows)
        effects.list.scan_rows = SCAN_SAGAS;
    effects.list.has_after = after != NULL;
    if (after) {
        effects.list.after_started_us = after->started_us;
        effects.list.after_uid = uuid_next(after->uid);
    }
    if (find_way_choose(&list->filter, &effects.way, err) != 0)
        return (int)err->code;
    int rc = reader_with_connection(reader, effects_run, &effects, err);
    find_way_done(&effects.way);
    if (rc != 0) {
        effects_drop(&effects);
        return rc;
    }
    *ret_count = effects.count;
    *ret_end = effects.end;
    return 0;
}
