/* What people look for: pages of sagas, and the ways to them. */
#include "store/reader_internal.h"

#include "store/connect.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

/* Rows that are looked at for one page when the index does not say all that is asked: some 50 ms.
 */
enum { SCAN_ROWS = 10000 };

/* The smallest text behind everything that begins with `prefix`, by bytes (COLLATE "C" is code
 * point order): the last character that has a successor, replaced by it. A prefix of nothing but
 * the last code point has no end; the longest id possible is then taken. */
static int prefix_end(const char *prefix, struct buf *ret, struct err *err)
{
    size_t size = strlen(prefix);
    while (size > 0) {
        size_t at = size - 1;
        while (at > 0 && ((uint8_t)prefix[at] & 0xc0) == 0x80)
            at--;
        uint32_t point = (uint8_t)prefix[at];
        size_t length = size - at;
        if (length > 1)
            point &= 0x7fu >> length;
        for (size_t i = 1; i < length; i++)
            point = point << 6 | ((uint8_t)prefix[at + i] & 0x3fu);
        if (point < 0x10ffff) {
            point = point == 0xd7ff ? 0xe000 : point + 1;
            buf_append(ret, prefix, at);
            uint8_t utf8[4] = { (uint8_t)point, 0, 0, 0 };
            size_t bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
            for (size_t i = bytes; bytes > 1 && i > 0; i--) {
                utf8[i - 1] = (uint8_t)(0x80 | (point & 0x3f));
                point >>= 6;
            }
            if (bytes > 1) {
                static const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
                utf8[0] = (uint8_t)(lead[bytes] | (utf8[0] & (0x7fu >> bytes)));
            }
            buf_append(ret, utf8, bytes);
            break;
        }
        size = at;
    }
    for (int i = 0; size == 0 && i <= 64; i++)
        buf_text(ret, "\xf4\x8f\xbf\xbf");
    return ret->failed ? err_set(err, ERR_NOMEM, "list") : 0;
}

struct find {
    const struct store_list *list;
    struct find_way way;
    struct store_saga *sagas;
    int64_t *started_us;
    size_t count;
    struct store_list_end end;
};

/* --- ways ------------------------------------------------------------------------------------- */

static bool by_id(const struct saga_filter *filter)
{
    return filter->saga_id || filter->saga_id_prefix;
}

static bool wants_reason(const struct saga_filter *filter)
{
    for (int reason = PARK_NONE + 1; reason < PARK_REASON_COUNT; reason++)
        if (filter->not_reasons[reason])
            return true;
    return false;
}

static enum find_stmt_id choose_way(const struct saga_filter *filter)
{
    if (by_id(filter))
        return FIND_BY_ID;
    if (filter->label_count)
        return FIND_BY_LABEL;
    if (filter->has_doubt && filter->doubt)
        return FIND_BY_DOUBT;
    return wants_reason(filter) ? FIND_BY_REASON : FIND_BY_TIME;
}

/* Is something asked that the way does not know? */
static bool asks_more(const struct saga_filter *filter, enum find_stmt_id way)
{
    bool states = false;
    for (int state = 0; state < SAGA_STATE_COUNT; state++)
        states = states || filter->not_states[state];
    bool of_row = span_is_set(&filter->revision) || span_is_set(&filter->updated_us) ||
                  span_is_set(&filter->ended_us) || filter->park_step || filter->park_code;
    switch (way) {
    case FIND_BY_ID:
        return false; /* everything is asked at once */
    case FIND_BY_LABEL:
        return of_row || states || filter->definition || filter->has_doubt ||
               filter->label_count > 1 || wants_reason(filter);
    case FIND_BY_DOUBT:
        return of_row || wants_reason(filter);
    case FIND_BY_REASON:
        return of_row || filter->has_doubt || filter->not_states[SAGA_PARKED];
    default:
        return of_row || filter->has_doubt;
    }
}

int find_way_choose(const struct saga_filter *filter, struct find_way *ret, struct err *err)
{
    struct find_way way = { .statement = choose_way(filter) };
    if (way.statement == FIND_BY_ID && !filter->saga_id) {
        way.id_from = filter->saga_id_prefix;
        if (prefix_end(filter->saga_id_prefix, &way.id_to, err) != 0)
            return (int)err->code;
    } else if (way.statement == FIND_BY_ID) {
        const char *prefix = filter->saga_id_prefix ? filter->saga_id_prefix : "";
        way.id_from = filter->saga_id;
        buf_text(&way.id_to, filter->saga_id);
        if (strncmp(filter->saga_id, prefix, strlen(prefix)) == 0)
            buf_text(&way.id_to, "\x01"); /* no text lies between an id and this; else: nothing fits
                                           */
    }
    if (way.id_to.failed)
        return err_set(err, ERR_NOMEM, "list");
    *ret = way;
    return 0;
}

void find_way_done(struct find_way *way)
{
    buf_done(&way->id_to);
}

/* --- parameters ------------------------------------------------------------------------------- */

static void put_states(struct params *params, const struct saga_filter *filter)
{
    bool parked_only = saga_filter_wants_parked(filter);
    for (int state = 0; state < SAGA_STATE_COUNT; state++) {
        params_seek(params, 2);
        if (!filter->not_states[state] && (!parked_only || state == SAGA_PARKED))
            params_text(params, saga_state_name((enum saga_state)state));
    }
}

/* From where on, and how far, in the order of the list. */
static void put_start(struct params *params, const struct store_list *list)
{
    static const struct uuid first = { { 0 } };
    struct uuid last;
    memset(last.bytes, 0xff, sizeof last.bytes);
    const struct span *started = &list->filter.started_us;
    bool oldest = list->oldest_first;
    bool has_near = oldest ? started->has_from : started->has_to;
    bool has_far = oldest ? started->has_to : started->has_from;
    params_seek(params, 3);
    if (list->has_after) {
        params_time(params, decode_time_pg(list->after_started_us));
        params_uuid(params, &list->after_uid);
    } else if (oldest) { /* behind the last saga of the microsecond before */
        params_time(params, has_near ? decode_time_pg(started->from) - 1 : INT64_MIN);
        params_uuid(params, has_near ? &last : &first);
    } else {
        params_time(params, has_near ? decode_time_pg(started->to) : INT64_MAX);
        params_uuid(params, has_near ? &first : &last);
    }
    params_seek(params, 7);
    if (has_far)
        params_time(params, decode_time_pg(oldest ? started->to : started->from));
    else
        params_time(params, oldest ? INT64_MAX : INT64_MIN); /* infinity, -infinity */
}

void find_put_numbers(struct params *params, const struct span *span)
{
    if (span->has_from)
        params_int8(params, span->from);
    else
        params_null(params);
    if (span->has_to)
        params_int8(params, span->to);
    else
        params_null(params);
}

void find_put_times(struct params *params, const struct span *span)
{
    if (span->has_from)
        params_time(params, decode_time_pg(span->from));
    else
        params_null(params);
    if (span->has_to)
        params_time(params, decode_time_pg(span->to));
    else
        params_null(params);
}

static void put_reasons(struct params *params, const struct saga_filter *filter)
{
    bool some = wants_reason(filter);
    for (int reason = PARK_NONE + 1; some && reason < PARK_REASON_COUNT; reason++) {
        params_seek(params, 11);
        if (!filter->not_reasons[reason])
            params_text(params, park_reason_name((enum park_reason)reason));
    }
}

void find_way_put(const struct find_way *way, const struct store_list *list, struct params *params)
{
    const struct saga_filter *filter = &list->filter;
    params_text(params, filter->namespace_);
    params_text(params, filter->definition);
    put_states(params, filter);
    put_start(params, list);
    params_seek(params, 5);
    params_int8(params, list->limit > INT_MAX ? INT_MAX : (int64_t)list->limit);
    if (filter->has_doubt)
        params_bool(params, filter->doubt);
    else
        params_null(params);
    params_seek(params, 8);
    size_t scan = list->scan_rows ? list->scan_rows : SCAN_ROWS;
    bool asks = list->is_looked_into || asks_more(filter, way->statement);
    params_int8(params, asks ? (int64_t)scan : 0);
    find_put_numbers(params, &filter->revision);
    put_reasons(params, filter);
    params_seek(params, 12);
    params_text(params, filter->park_step);
    params_text(params, filter->park_code);
    find_put_times(params, &filter->updated_us);
    find_put_times(params, &filter->ended_us);
    for (size_t i = 0; i < filter->label_count; i++) {
        params_seek(params, 18);
        params_text(params, filter->labels[i].key);
        params_text(params, filter->labels[i].value);
    }
    params_seek(params, 20);
    if (way->statement == FIND_BY_ID) {
        params_text(params, way->id_from);
        params_text(params, buf_cstr(&way->id_to));
    } else if (way->statement == FIND_BY_LABEL) {
        params_text(params, filter->labels[0].key);
        params_text(params, filter->labels[0].value);
    }
}

/* --- pages ------------------------------------------------------------------------------------ */

static int find_take_row(struct find *find, const PGresult *result, int row, struct err *err)
{
    struct columns columns = { .result = result, .row = row, .table = "saga", .err = err };
    int64_t started_us = columns_int8(&columns) - decode_time_pg(0);
    struct store_saga saga = { 0 };
    if (columns.failed || decode_saga(result, row, &saga.row, err) != 0)
        return (int)err->code;
    columns.at = PQnfields(result) - 3;
    saga.park_step = columns_text(&columns);
    bool fits = columns_bool(&columns);
    bool last = columns_bool(&columns);
    if (columns.failed) {
        store_saga_done(&saga);
        return (int)err->code;
    }
    if (last)
        find->end = (struct store_list_end){ true, started_us, saga.row.uid };
    if (!fits) {
        store_saga_done(&saga);
        return 0;
    }
    find->started_us[find->count] = started_us;
    find->sagas[find->count++] = saga;
    return 0;
}

static void find_drop(struct find *find)
{
    while (find->count > 0)
        store_saga_done(&find->sagas[--find->count]);
    find->end = (struct store_list_end){ 0 };
}

static int find_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct find *find = ctx;
    find_drop(find); /* of a first try that broke */
    struct params *params = reader_start_find(
        reader, (enum find_stmt_id)(find->way.statement + (find->list->oldest_first ? 1 : 0)));
    find_way_put(&find->way, find->list, params);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = reader_execute(reader, &result, err);
    for (int row = 0; !rc && row < PQntuples(result); row++) {
        if (find->count == find->list->limit)
            return err_set(err, ERR_INTERNAL, "list: more rows than were asked for");
        rc = find_take_row(find, result, row, err);
    }
    return rc;
}

int store_reader_list(struct store_reader *reader, const struct store_list *list,
                      struct store_saga *ret_sagas, int64_t *ret_started_us, size_t *ret_count,
                      struct store_list_end *ret_end, struct err *err)
{
    struct find find = { .list = list, .sagas = ret_sagas, .started_us = ret_started_us };
    if (find_way_choose(&list->filter, &find.way, err) != 0)
        return (int)err->code;
    int rc = reader_with_connection(reader, find_run, &find, err);
    find_way_done(&find.way);
    if (rc != 0) {
        find_drop(&find);
        return rc;
    }
    *ret_count = find.count;
    *ret_end = find.end;
    return 0;
}
