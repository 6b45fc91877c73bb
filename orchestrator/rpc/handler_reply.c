#include "rpc/handler_reply.h"

#include "base/mem.h"
#include "rpc/request.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

#include <stdlib.h>
#include <string.h>

int handlers_look_read(struct handlers_look *look, struct store_reader *reader, const char *only,
                       struct err *err)
{
    look->views = mem_calloc(HANDLERS_MAX, sizeof *look->views);
    look->let_go = mem_calloc(HANDLERS_MAX, sizeof *look->let_go);
    if (!look->views || !look->let_go)
        return err_set(err, ERR_NOMEM, "handlers");
    int rc =
        store_reader_handlers(reader, only, "", HANDLERS_MAX, look->views, &look->view_count, err);
    if (!rc)
        rc = store_reader_let_go(reader, HANDLERS_MAX, look->let_go, &look->let_go_count, err);
    bool more = false;
    for (size_t i = 0; i < look->let_go_count; i++)
        more |= look->let_go[i].sagas >= STORE_LET_GO_COUNT_MAX;
    if (!rc && more)
        rc = store_reader_let_go_about(reader, &look->let_go_about, err);
    return rc;
}

void handlers_look_done(struct handlers_look *look)
{
    for (size_t i = 0; i < look->let_go_count; i++)
        mem_free(look->let_go[i].handler);
    mem_free(look->let_go);
    mem_free(look->views);
    *look = (struct handlers_look){ 0 };
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

int handlers_look_names(const struct handlers_look *look, struct arena *arena, const char ***ret,
                        size_t *ret_count)
{
    size_t here = look->status ? look->status->handler_count : 0, count = 0, unique = 0;
    const char **names =
        arena_array(arena, look->view_count + look->let_go_count + here + 1, sizeof(char *));
    if (!names)
        return -1;
    for (size_t i = 0; i < look->view_count; i++)
        names[count++] = look->views[i].row.name;
    for (size_t i = 0; i < look->let_go_count; i++)
        names[count++] = look->let_go[i].handler;
    for (size_t i = 0; i < here; i++)
        names[count++] = look->status->handlers[i].handler;
    if (count)
        qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++)
        if (!unique || strcmp(names[unique - 1], names[i]) != 0)
            names[unique++] = names[i];
    *ret = names;
    *ret_count = unique;
    return 0;
}

const struct store_handler_view *handlers_look_find(const struct handlers_look *look,
                                                    const char *name)
{
    for (size_t i = 0; i < look->view_count; i++)
        if (strcmp(look->views[i].row.name, name) == 0)
            return &look->views[i];
    return NULL;
}

static Google__Protobuf__Timestamp *reply_time(struct arena *arena, int64_t ms)
{
    if (!ms)
        return NULL;
    Google__Protobuf__Timestamp *time = reply_new(arena, &google__protobuf__timestamp__descriptor);
    if (time)
        timestamp_from_ms(ms, time);
    return time;
}

static Google__Protobuf__Duration *reply_span(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Duration *span = reply_new(arena, &google__protobuf__duration__descriptor);
    if (span)
        duration_from_ms(ms, span);
    return span;
}

/* Those that are counted no further share what there is beyond the others: as they did when the
 * database last looked, or evenly where it saw too few of one. */
static int64_t let_go_of(const struct handlers_look *look, const char *name, bool *ret_estimate)
{
    int64_t own = 0, counted = 0, uncounted = 0, own_share = 0, shares = 0;
    bool is_even = false;
    for (size_t i = 0; i < look->let_go_count; i++) {
        const struct store_let_go *let_go = &look->let_go[i];
        bool whole = let_go->sagas < STORE_LET_GO_COUNT_MAX;
        counted += whole ? let_go->sagas : 0;
        uncounted += !whole;
        shares += whole ? 0 : let_go->share;
        is_even |= !whole && !let_go->share;
        if (strcmp(let_go->handler, name) == 0) {
            own = let_go->sagas;
            own_share = let_go->share;
            *ret_estimate = !whole;
        }
    }
    if (!*ret_estimate)
        return own;
    double rest = (double)(look->let_go_about - counted);
    double part = is_even ? 1.0 / (double)uncounted : (double)own_share / (double)shares;
    int64_t about = (int64_t)(rest * part);
    return about > own ? about : own;
}

/* False: memory. */
static bool fill_rate(struct arena *arena, int64_t milli, Saga__V1__Rate **ret)
{
    if (!milli)
        return true;
    *ret = reply_new(arena, &saga__v1__rate__descriptor);
    if (*ret)
        rate_from_milli(milli, *ret);
    return *ret != NULL;
}

static int fill_row(const struct handlers_look *look, struct arena *arena,
                    const struct handler *row, Saga__V1__Handler *message)
{
    Saga__V1__Breaker *breaker = reply_new(arena, &saga__v1__breaker__descriptor);
    char *actor = arena_strdup(arena, row->actor), *reason = arena_strdup(arena, row->reason);
    if (!breaker || !actor || !reason ||
        !fill_rate(arena, row->release_rate_milli, &message->release_rate) ||
        !fill_rate(arena, row->rate_milli, &message->rate))
        return -1;
    breaker->failures = handler_breaker(row, look->breaker_failures);
    breaker->is_default = row->breaker_failures == BREAKER_DEFAULT;
    breaker->successes = row->breaker_successes;
    breaker->trial_interval = reply_span(arena, row->breaker_trial_ms);
    message->hold = (Saga__V1__Handler__Hold)(int)row->hold;
    message->hold_time = reply_time(arena, row->held_at_ms);
    message->cap = row->cap;
    message->breaker = breaker;
    message->next_trial_time = reply_time(arena, row->trial_at_ms);
    message->trial_successes = row->trial_successes;
    message->actor = actor;
    message->reason = reason;
    message->change_time = reply_time(arena, row->changed_at_ms);
    return 0;
}

static const struct engine_handler_status *status_of(const struct handlers_look *look,
                                                     const char *name)
{
    for (size_t i = 0; look->status && i < look->status->handler_count; i++)
        if (strcmp(look->status->handlers[i].handler, name) == 0)
            return &look->status->handlers[i];
    return NULL;
}

/* Of what is held or limited every server says what it has; this one's own words are newer. */
static void fill_counts(const struct handlers_look *look, struct arena *arena,
                        const struct store_handler_view *view, Saga__V1__Handler *message)
{
    const struct engine_handler_status *here = status_of(look, message->handler);
    int64_t oldest_ms = view ? view->oldest_ms : 0;
    bool estimate = false;
    message->waiting = view ? view->waiting : 0;
    message->leased = view ? view->leased : 0;
    message->servers = view ? view->nodes : 0;
    if (here) {
        message->workers = (int32_t)here->workers;
        if (here->ready > message->waiting)
            message->waiting = here->ready;
        if (here->leased > message->leased)
            message->leased = here->leased;
        if (here->oldest_ms && (!oldest_ms || here->oldest_ms < oldest_ms))
            oldest_ms = here->oldest_ms;
    }
    message->let_go = let_go_of(look, message->handler, &estimate);
    message->let_go_is_estimate = estimate;
    message->oldest_time = reply_time(arena, oldest_ms);
}

Saga__V1__Handler *handlers_look_message(const struct handlers_look *look, struct arena *arena,
                                         const char *name)
{
    const struct store_handler_view *view = handlers_look_find(look, name);
    Saga__V1__Handler *message = reply_new(arena, &saga__v1__handler__descriptor);
    struct handler none;
    handler_init(&none, name);
    const struct handler *row = view ? &view->row : &none;
    if (!message || !(message->handler = arena_strdup(arena, name)) ||
        fill_row(look, arena, row, message))
        return NULL;
    fill_counts(look, arena, view, message);
    int64_t rate = row->rate_milli;
    if (row->release_rate_milli && (!rate || row->release_rate_milli < rate))
        rate = row->release_rate_milli;
    int64_t waiting = message->waiting + message->let_go;
    if (rate && !row->hold && waiting)
        message->left = reply_span(arena, waiting * 1000000 / rate);
    return arena->oom ? NULL : message;
}
