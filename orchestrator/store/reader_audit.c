#include "store/reader_audit.h"

#include "store/connect.h"
#include "store/reader_internal.h"

#include <limits.h>
#include <string.h>

#define FAR_FUTURE_US INT64_C(253402300800000000) /* the year 10000 */

void store_audit_line_done(struct store_audit_line *line)
{
    mem_free(line->verb);
    mem_free(line->namespace_);
    mem_free(line->definition);
    mem_free(line->saga_id);
    mem_free(line->step);
    mem_free(line->operation);
    mem_free(line->subject);
    mem_free(line->actor);
    mem_free(line->reason);
    mem_free(line->detail);
    *line = (struct store_audit_line){ 0 };
}

int reader_audit_add(struct store_reader *reader, const struct store_audit_note *note,
                     struct err *err)
{
    struct params *params = reader_start_people(reader, PEOPLE_AUDIT_ADD);
    params_text(params, note->verb);
    params_text(params, note->namespace_);
    params_text(params, note->definition);
    params_text(params, note->subject);
    params_text(params, note->actor);
    params_text(params, note->reason);
    params_text(params, note->detail);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    return reader_execute(reader, &result, err);
}

struct note_query {
    const struct store_audit_note *note;
};

static int note_run(struct store_reader *reader, void *ctx, struct err *err)
{
    const struct note_query *query = ctx;
    return reader_audit_add(reader, query->note, err);
}

int store_reader_audit_add(struct store_reader *reader, const struct store_audit_note *note,
                           struct err *err)
{
    struct note_query query = { note };
    return reader_with_connection(reader, note_run, &query, err);
}

struct audit_query {
    const struct store_audit_filter *filter;
    struct store_audit_line *lines;
    size_t count;
    bool more;
    struct store_audit_place next;
};

static void query_drop(struct audit_query *query)
{
    while (query->count > 0)
        store_audit_line_done(&query->lines[--query->count]);
    query->more = false;
}

static bool looks_for_some(const struct store_audit_filter *filter)
{
    return filter->actor || filter->namespace_ || filter->definition || filter->verb_count;
}

/* How many to look at: one more than are wanted tells whether there are further ones. */
static int64_t scan_of(const struct store_audit_filter *filter)
{
    return looks_for_some(filter) ? AUDIT_SCAN_MAX : (int64_t)filter->limit + 1;
}

static struct store_audit_place begin_of(const struct store_audit_filter *filter)
{
    if (filter->has_before)
        return filter->before;
    struct store_audit_place place = { .at_us = FAR_FUTURE_US };
    if (filter->until_ms)
        place.at_us = filter->until_ms * 1000;
    return place;
}

static void put_filter(struct params *params, const struct store_audit_filter *filter)
{
    struct store_audit_place place = begin_of(filter);
    params_time(params, decode_time_pg(place.at_us));
    params_uuid(params, &place.id);
    params_int8(params, place.seq);
    params_time(params, decode_time_pg(filter->since_ms * 1000));
    params_text(params, filter->actor);
    size_t column = params->at;
    for (size_t i = 0; i < filter->verb_count; i++) {
        params_seek(params, column);
        params_text(params, filter->verbs[i]);
    }
    params_seek(params, column + 1);
    params_text(params, filter->namespace_);
    params_text(params, filter->definition);
    params_int8(params, scan_of(filter));
}

static int start_list(struct store_reader *reader, const struct store_audit_filter *filter,
                      struct err *err)
{
    struct uuid uid;
    if (!filter->saga) {
        put_filter(reader_start_people(reader, PEOPLE_AUDIT_LIST), filter);
        return 0;
    }
    if (reader_resolve(reader, filter->saga, &uid, err) != 0)
        return (int)err->code;
    struct params *params = reader_start_people(reader, PEOPLE_AUDIT_OF_SAGA);
    put_filter(params, filter);
    params_int2(params, uuid_shard(&uid));
    params_uuid(params, &uid);
    return 0;
}

/* The place, the number, and whether it is asked for; then the line itself. */
static int decode_line(const PGresult *result, int row, struct store_audit_line *ret,
                       int64_t *ret_n, bool *ret_fits, struct err *err)
{
    struct columns columns = { .result = result, .row = row, .table = "audit", .err = err };
    struct store_audit_line line = { 0 };
    bool present;
    line.place.at_us = columns_int8(&columns) - decode_time_pg(0);
    line.place.id = columns_uuid(&columns, &present);
    line.place.seq = columns_int8(&columns);
    *ret_n = columns_int8(&columns);
    *ret_fits = columns_bool(&columns);
    line.verb = columns_text(&columns);
    line.namespace_ = columns_text(&columns);
    line.definition = columns_text(&columns);
    line.saga_id = columns_text(&columns);
    line.run = columns_int4(&columns);
    line.saga_uid = columns_uuid(&columns, &line.has_saga);
    line.step = columns_text(&columns);
    line.operation = columns_text(&columns);
    line.subject = columns_text(&columns);
    line.actor = columns_text(&columns);
    line.reason = columns_text(&columns);
    line.detail = columns_text(&columns);
    if (columns.failed) {
        store_audit_line_done(&line);
        return (int)err->code;
    }
    *ret = line;
    return 0;
}

static int take_lines(const PGresult *result, struct audit_query *query, struct err *err)
{
    size_t limit = query->filter->limit;
    int rows = PQntuples(result);
    for (int row = 0; row < rows; row++) {
        struct store_audit_line line = { 0 };
        int64_t n = 0;
        bool fits = false;
        if (decode_line(result, row, &line, &n, &fits, err) != 0)
            return (int)err->code;
        if (fits && query->count == limit) { /* the next page begins with it */
            store_audit_line_done(&line);
            query->more = true;
            return 0;
        }
        query->next = line.place;
        if (fits)
            query->lines[query->count++] = line;
        else
            store_audit_line_done(&line);
        query->more = n >= scan_of(query->filter);
    }
    return 0;
}

static int audit_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct audit_query *query = ctx;
    query_drop(query); /* of a first try that broke */
    if (start_list(reader, query->filter, err) != 0)
        return (int)err->code;
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    int rc = reader_execute(reader, &result, err);
    return rc ? rc : take_lines(result, query, err);
}

int store_reader_audit(struct store_reader *reader, const struct store_audit_filter *filter,
                       struct store_audit_line *ret, size_t *ret_count, bool *ret_more,
                       struct store_audit_place *ret_next, struct err *err)
{
    struct audit_query query = { .filter = filter, .lines = ret };
    int rc = reader_with_connection(reader, audit_run, &query, err);
    if (rc) {
        query_drop(&query);
        return rc;
    }
    *ret_count = query.count;
    *ret_more = query.more;
    *ret_next = query.next;
    return 0;
}
