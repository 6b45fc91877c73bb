#include "store/outbox.h"

#include "store/decode.h"
#include "store/session.h"

#include <assert.h>
#include <string.h>

enum {
    CALL_MS = 6000, /* a second longer than a statement may run */
    SLICE_SHARDS = 256 / OUTBOX_SLICES,
    AFTER_ENTRY = 22, /* the column of OUTBOX_PAGE behind the entry */
    SAGA_COLUMNS_READ = 10,
};

struct store_outbox {
    struct store_session *session;
    char *node;
    struct uuid instance;
};

int store_outbox_new(const struct store_outbox_options *options, struct store_outbox **ret,
                     struct err *err)
{
    const struct store_session_options session_options = {
        .conninfo = options->conninfo,
        .role = CONNECT_OUTBOX,
        .stmts = outbox_stmts,
        .stmt_count = OUTBOX_COUNT,
        .wake_fd = options->wake_fd,
        .call_ms = CALL_MS,
    };
    struct store_outbox *outbox = mem_calloc(1, sizeof *outbox);
    if (!outbox || !(outbox->node = mem_strdup(options->node))) {
        (void)store_outbox_free(outbox); /* always NULL */
        return err_set(err, ERR_NOMEM, "outbox");
    }
    outbox->instance = options->instance;
    if (store_session_new(&session_options, &outbox->session, err) != 0) {
        (void)store_outbox_free(outbox); /* always NULL */
        return (int)err->code;
    }
    *ret = outbox;
    return 0;
}

struct store_outbox *store_outbox_free(struct store_outbox *outbox)
{
    if (!outbox)
        return NULL;
    outbox->session = store_session_free(outbox->session);
    mem_free(outbox->node);
    mem_free(outbox);
    return NULL;
}

/* --- slices ----------------------------------------------------------------------------------- */

/* No row: all are others'. */
static int take_slices(const PGresult *result, uint16_t *ret_slices, int *ret_share,
                       struct err *err)
{
    struct columns columns = { .result = result, .table = "outbox_slice", .err = err };
    uint16_t slices = 0;
    int share = OUTBOX_SLICES;
    for (; columns.row < PQntuples(result); columns.row++) {
        columns.at = 0;
        int16_t slice = columns_int2(&columns, -1);
        bool kept = columns_bool(&columns);
        share = columns_int4(&columns);
        if (columns.failed)
            return (int)err->code;
        if (slice < 0 || slice >= OUTBOX_SLICES)
            return err_set(err, ERR_INTERNAL, "outbox_slice: there is no slice %d", slice);
        if (kept)
            slices = (uint16_t)(slices | 1U << slice);
    }
    *ret_slices = slices;
    *ret_share = share;
    return 0;
}

int store_outbox_claim(struct store_outbox *outbox, const struct store_outbox_claim *claim,
                       uint16_t *ret_slices, int *ret_share, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    struct params *params = store_session_start(outbox->session, OUTBOX_CLAIM);
    params_uuid(params, &outbox->instance);
    params_text(params, outbox->node);
    params_int8(params, claim->ttl_ms);
    params_int4(params, claim->give);
    params_int8(params, claim->published);
    params_int8(params, claim->refused);
    params_text(params, claim->problem);
    if (store_session_run(outbox->session, &result, err) != 0)
        return (int)err->code;
    return take_slices(result, ret_slices, ret_share, err);
}

int store_outbox_leave(struct store_outbox *outbox, struct err *err)
{
    struct params *params = store_session_start(outbox->session, OUTBOX_LEAVE);
    params_uuid(params, &outbox->instance);
    return store_session_do(outbox->session, err);
}

/* --- a page ----------------------------------------------------------------------------------- */

void store_event_done(struct store_event *event)
{
    saga_row_done(&event->saga);
    journal_entry_done(&event->entry);
    mem_free(event->step);
    mem_free(event->handler.handler);
    mem_free(event->handler.actor);
    mem_free(event->handler.reason);
    mem_free(event->fault);
    *event = (struct store_event){ 0 };
}

static bool decode_event_saga(struct columns *columns, struct saga_row *ret)
{
    bool present;
    ret->uid = columns_uuid(columns, &present);
    if (!present)
        return false;
    ret->namespace_ = columns_text(columns);
    ret->definition = columns_text(columns);
    ret->revision = columns_int4(columns);
    ret->saga_id = columns_text(columns);
    ret->run = columns_int4(columns);
    ret->labels = columns_text(columns);
    ret->related = columns_uuid(columns, &ret->has_related);
    ret->started_at_ms = columns_time_ms(columns);
    ret->state = columns_saga_state(columns);
    return true;
}

static int64_t number(struct columns *columns, bool *ret_present)
{
    *ret_present = !columns_is_null(columns);
    if (*ret_present)
        return columns_int8(columns);
    columns->at++;
    return 0;
}

static void fault_before(struct columns *columns, const char *what)
{
    columns->at--;
    columns_fault(columns, what);
    columns->at++;
}

static int decode_handler(struct columns *columns, struct store_handler_event *ret, struct err *err)
{
    bool present;
    if (columns_is_null(columns))
        return err_set(err, ERR_INTERNAL, "what became of the handler is not known any more");
    ret->handler = columns_text(columns);
    const char *kind = columns_borrow(columns);
    if (!kind || !handler_event_parse(kind, &ret->kind))
        fault_before(columns, "holds an unknown word");
    ret->actor = columns_text(columns);
    ret->reason = columns_text(columns);
    const char *hold = columns_borrow(columns);
    if (hold && !handler_hold_parse(hold, &ret->hold))
        fault_before(columns, "holds an unknown word");
    ret->release_rate_milli = number(columns, &present);
    ret->rate_milli = number(columns, &present);
    present = !columns_is_null(columns);
    ret->cap = present ? columns_int4(columns) : 0;
    columns->at += !present;
    ret->waiting = number(columns, &ret->has_waiting);
    return columns->failed ? (int)err->code : 0;
}

/* What it tells of. ERR_INTERNAL: nothing can be said of it. */
static int decode_content(struct columns *columns, struct store_event *event, struct err *err)
{
    if (event->id.part == STORE_EVENT_HANDLER) {
        columns->at += SAGA_COLUMNS_READ;
        return decode_handler(columns, &event->handler, err);
    }
    if (!decode_event_saga(columns, &event->saga))
        return err_set(err, ERR_INTERNAL, "its saga was purged");
    if (columns->failed || event->id.part != STORE_EVENT_ENTRY)
        return columns->failed ? (int)err->code : 0;
    int seq_column = 1, step_column = AFTER_ENTRY;
    if (PQgetisnull(columns->result, columns->row, seq_column))
        return err_set(err, ERR_INTERNAL, "its journal entry is gone");
    if (decode_entry(columns->result, columns->row, &event->id.uid, &event->entry, err) != 0)
        return (int)err->code;
    columns->at = step_column;
    event->step = columns_text(columns);
    return columns->failed ? (int)err->code : 0;
}

static int decode_event(const PGresult *result, int row, struct store_event *ret, struct err *err)
{
    struct columns columns = {
        .result = result, .row = row, .at = AFTER_ENTRY + 1, .table = "outbox", .err = err
    };
    struct store_event event = { 0 };
    bool present;
    event.id.uid = columns.uid = columns_uuid(&columns, &present);
    event.id.seq = columns_int8(&columns);
    int16_t part = columns_int2(&columns, -1);
    event.id.epoch = columns_int4(&columns);
    event.time_ms = columns_time_ms(&columns);
    event.due = columns_bool(&columns);
    if (columns.failed)
        return (int)err->code;
    if (part < STORE_EVENT_START || part >= STORE_EVENT_PART_COUNT)
        return err_set(err, ERR_INTERNAL, "outbox.part: there is no part %d", part);
    event.id.part = (enum store_event_part)part;
    if (decode_content(&columns, &event, err) != 0) {
        if (err->code == ERR_INTERNAL)
            event.fault = mem_strdup(err->msg);
        if (!event.fault) {
            store_event_done(&event);
            return err_set(err, ERR_NOMEM, "outbox");
        }
    }
    *ret = event;
    return 0;
}

static void fill_ranges(struct params *params, uint16_t slices,
                        const struct store_outbox_cursor *cursors, size_t limit)
{
    static const struct uuid nil;
    size_t count = 0;
    for (int slice = 0; slice < OUTBOX_SLICES; slice++) {
        if (!(slices & 1U << slice))
            continue;
        const struct store_outbox_cursor *cursor = &cursors[slice];
        int16_t low = (int16_t)(slice * SLICE_SHARDS);
        params_seek(params, 0);
        params_int2(params, low);
        params_int2(params, (int16_t)(low + SLICE_SHARDS - 1));
        params_int2(params, cursor->begun ? uuid_shard(&cursor->after) : -1);
        params_uuid(params, cursor->begun ? &cursor->after : &nil);
        count++;
    }
    params_seek(params, 4);
    params_int8(params, (int64_t)(limit / (count ? count : 1)));
}

/* How many came of each slice tells which is at its end. False: the round is over. */
static bool move_cursors(uint16_t slices, size_t limit, const struct store_event *events,
                         size_t count, struct store_outbox_cursor *cursors)
{
    size_t of_slice[OUTBOX_SLICES] = { 0 }, ranges = 0;
    bool more = false;
    for (size_t i = 0; i < count; i++) {
        const struct uuid *uid = &events[i].id.uid;
        size_t slice = uuid_shard(uid) / SLICE_SHARDS;
        struct store_outbox_cursor *cursor = &cursors[slice];
        bool further = !cursor->begun || uuid_shard(&cursor->after) < uuid_shard(uid) ||
                       (uuid_shard(&cursor->after) == uuid_shard(uid) &&
                        memcmp(&cursor->after, uid, sizeof *uid) < 0);
        if (further) {
            cursor->begun = true;
            cursor->after = *uid;
        }
        of_slice[slice]++;
    }
    for (size_t slice = 0; slice < OUTBOX_SLICES; slice++)
        ranges += (slices & 1U << slice) != 0;
    for (size_t slice = 0; slice < OUTBOX_SLICES; slice++) {
        if (!(slices & 1U << slice))
            continue;
        if (of_slice[slice] < limit / ranges) {
            cursors[slice].begun = false;
            cursors[slice].passed = true;
        }
        more = more || !cursors[slice].passed;
    }
    for (size_t slice = 0; slice < OUTBOX_SLICES && !more; slice++)
        cursors[slice].passed = false;
    return more;
}

int store_outbox_page(struct store_outbox *outbox, uint16_t slices, size_t limit,
                      struct store_outbox_cursor cursors[OUTBOX_SLICES], struct store_event *ret,
                      size_t *ret_count, bool *ret_more, struct err *err)
{
    assert(limit >= OUTBOX_SLICES);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    fill_ranges(store_session_start(outbox->session, OUTBOX_PAGE), slices, cursors, limit);
    if (store_session_run(outbox->session, &result, err) != 0)
        return (int)err->code;
    size_t count = 0;
    int rc = 0;
    if ((size_t)PQntuples(result) > limit)
        rc = err_set(err, ERR_INTERNAL, "outbox_page: %d rows came back", PQntuples(result));
    while (!rc && count < (size_t)PQntuples(result)) {
        rc = decode_event(result, (int)count, &ret[count], err);
        if (!rc)
            count++;
    }
    if (rc) {
        while (count > 0)
            store_event_done(&ret[--count]);
        return rc;
    }
    *ret_more = move_cursors(slices, limit, ret, count, cursors);
    *ret_count = count;
    return 0;
}

/* --- what became of them ---------------------------------------------------------------------- */

static void put_id(struct params *params, const struct store_event_id *id)
{
    params_seek(params, 0);
    params_int2(params, uuid_shard(&id->uid));
    params_uuid(params, &id->uid);
    params_int8(params, id->seq);
    params_int2(params, (int16_t)id->part);
}

int store_outbox_published(struct store_outbox *outbox, const struct store_event_id *ids,
                           size_t count, struct err *err)
{
    struct params *params = store_session_start(outbox->session, OUTBOX_PUBLISHED);
    for (size_t i = 0; i < count; i++)
        put_id(params, &ids[i]);
    return store_session_do(outbox->session, err);
}

int store_outbox_refused(struct store_outbox *outbox, const struct store_event_id *id,
                         const char *why, struct err *err)
{
    struct params *params = store_session_start(outbox->session, OUTBOX_REFUSED);
    put_id(params, id);
    params_text(params, why);
    return store_session_do(outbox->session, err);
}
