#include "ctl/people_text.h"

#include "ctl/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- parked -------------------------------------------------------------------------------------
 */

/* The saga of a group that waits longest, as far as a command needs it. */
static void write_settling(const Saga__V1__ListParkedResponse__Group *group,
                           const struct where_view *view, struct buf *out)
{
    Saga__V1__Park park = SAGA__V1__PARK__INIT;
    Saga__V1__Saga saga = SAGA__V1__SAGA__INIT;
    park.reason = group->reason;
    park.step = group->step;
    saga.namespace_ = group->namespace_;
    saga.definition = group->definition;
    saga.saga_id = group->oldest_saga_id;
    saga.state = SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED;
    saga.phase = group->phase;
    saga.park = &park;
    where_write_settling(&saga, view, out);
}

static void add_group(struct table *table, const Saga__V1__ListParkedResponse__Group *group,
                      const struct where_view *view)
{
    CLEANUP(buf_done) struct buf since = { 0 };
    CLEANUP(buf_done) struct buf definition = { 0 };
    CLEANUP(buf_done) struct buf step = { 0 };
    CLEANUP(buf_done) struct buf command = { 0 };
    bool named = strcmp(group->namespace_, "default") != 0;
    screen_time(&since, group->oldest_time, view->now_ms);
    buf_printf(&definition, "%s%s%s", named ? group->namespace_ : "", named ? "/" : "",
               group->definition);
    if (*group->step && group->phase == SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING)
        buf_text(&step, "compensation of ");
    buf_text(&step, *group->step ? group->step : "-");
    write_settling(group, view, &command);
    table_cellf(table, "%" PRId64, group->count);
    table_cell(table, group->oldest_saga_id, STYLE_BOLD);
    table_cell(table, buf_cstr(&since), STYLE_PLAIN);
    table_cell(table, buf_cstr(&definition), STYLE_PLAIN);
    table_cell(table, buf_cstr(&step), STYLE_PLAIN);
    table_cell(table, name_park_reason(group->reason), STYLE_BAD);
    table_cell(table, *group->error_code ? group->error_code : "-", STYLE_PLAIN);
    table_cell(table, buf_cstr(&command), STYLE_PLAIN);
}

void parked_write(const Saga__V1__ListParkedResponse *parked, const struct where_view *view,
                  struct buf *out)
{
    static const char *const headers[] = { "COUNT", "OLDEST", "SINCE", "DEFINITION",
                                           "STEP",  "REASON", "ERROR", "SETTLES THE OLDEST" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < parked->n_groups; i++)
        add_group(&table, parked->groups[i], view);
    if (parked->n_groups)
        table_write(&table, "", view->color, out);
    table_done(&table);
}

/* --- the floor of the guards ---------------------------------------------------------------------
 */

/* In UTC, with milliseconds: `form` is that of strftime up to the second. */
static void write_utc(int64_t ms, const char *form, const char *zone, struct buf *out)
{
    char text[32];
    struct tm utc;
    int64_t rest = ms % 1000 < 0 ? ms % 1000 + 1000 : ms % 1000;
    time_t seconds = (time_t)((ms - rest) / 1000);
    if (gmtime_r(&seconds, &utc) && strftime(text, sizeof text, form, &utc))
        buf_printf(out, "%s.%03d%s", text, (int)rest, zone);
    else
        buf_printf(out, "%" PRId64 " ms since 1970", ms);
}

static void write_holder(const Saga__V1__GetGuardFloorResponse *floor,
                         const struct where_view *view, struct buf *out)
{
    const Saga__V1__SagaRef *oldest = floor->oldest;
    if (!oldest) {
        buf_text(out, "  no saga is open: it is now, less the margin\n");
        return;
    }
    Saga__V1__Saga saga = SAGA__V1__SAGA__INIT;
    saga.namespace_ = oldest->namespace_;
    saga.definition = oldest->definition;
    saga.saga_id = oldest->saga_id;
    buf_text(out, "  held down by ");
    screen_text(out, oldest->definition);
    buf_text(out, " ");
    screen_text(out, oldest->saga_id);
    buf_printf(out, " (run %d, %s), which is open since ", oldest->run, oldest->uid);
    screen_time(out, floor->oldest_start_time, view->now_ms);
    buf_text(out, "\n  ");
    where_write_command(&saga, view, "get", out);
    buf_text(out, "\n");
}

void guard_floor_write(const Saga__V1__GetGuardFloorResponse *floor, const struct where_view *view,
                       struct buf *out)
{
    if (!floor->floor) {
        buf_text(out, "the server says no floor\n");
        return;
    }
    int64_t ms = screen_time_ms(floor->floor);
    write_utc(ms, "%Y-%m-%dT%H:%M:%S", "Z", out);
    buf_text(out, "\n");
    write_holder(floor, view, out);
    buf_text(out, "PostgreSQL, as the owner; the last one until it answers 0:\n"
                  "  SELECT saga_guard.raise_floor('");
    write_utc(ms, "%Y-%m-%d %H:%M:%S", "+00", out);
    buf_text(out, "');\n  SELECT saga_guard.purge(10000);\n");
    buf_printf(
        out,
        "MySQL and MariaDB, as the owner; the last one until it deletes no row, both again on "
        "1205:\n"
        "  SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"
        "  SET SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1;\n"
        "  UPDATE saga_guard_floor SET floor_us = GREATEST(floor_us, %" PRId64 ");\n"
        "  SET @saga_guard = CONCAT('ALTER TABLE saga_guard ALTER COLUMN floor_us SET DEFAULT ',"
        " (SELECT floor_us FROM saga_guard_floor));\n"
        "  PREPARE saga_guard FROM @saga_guard;\n"
        "  EXECUTE saga_guard;\n"
        "  DELETE FROM saga_guard WHERE saga_started_us < (SELECT floor_us FROM saga_guard_floor)"
        " AND saga_started_us < DEFAULT(floor_us)"
        " ORDER BY saga_started_us LIMIT 1000;\n",
        ms * 1000);
}

/* --- workers ---------------------------------------------------------------------------------- */

static const char *word_of(const Saga__V1__ListWorkersResponse__Worker *worker)
{
    if (worker->unresponsive)
        return "unresponsive";
    if (worker->draining)
        return "draining";
    return worker->congested ? "congested" : "";
}

static void write_worker(const Saga__V1__ListWorkersResponse__Worker *worker,
                         const struct where_view *view, struct table *table)
{
    for (size_t i = 0; i < worker->n_handlers; i++) { /* the worker once, then its handlers */
        const Saga__V1__ListWorkersResponse__Handler *handler = worker->handlers[i];
        CLEANUP(buf_done) struct buf since = { 0 };
        if (!i)
            screen_span(&since, view->now_ms - screen_time_ms(worker->connect_time));
        table_cell(table, i ? NULL : worker->worker_id, STYLE_PLAIN);
        table_cell(table, i ? NULL : worker->instance, STYLE_FAINT);
        table_cell(table, i ? NULL : worker->sdk, STYLE_PLAIN);
        table_cell(table, i ? NULL : buf_cstr(&since), STYLE_PLAIN);
        table_cell(table, handler->handler, STYLE_PLAIN);
        table_cellf(table, "%" PRId64, handler->in_flight);
        table_cellf(table, "%" PRId64, handler->credit);
        table_cellf(table, "%d", handler->max_in_flight);
        table_cell(table, i ? NULL : word_of(worker), STYLE_BAD);
    }
}

static void write_unserved(const Saga__V1__ListWorkersResponse *workers,
                           const struct where_view *view, struct buf *out)
{
    static const char *const headers[] = { "NOBODY HERE SERVES", "BUT WORKERS OF", "WAITING HERE",
                                           "LET GO", "OLDEST STARTED" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < workers->n_unserved; i++) {
        const Saga__V1__ListWorkersResponse__Unserved *unserved = workers->unserved[i];
        CLEANUP(buf_done) struct buf oldest = { 0 };
        CLEANUP(buf_done) struct buf elsewhere = { 0 };
        screen_time(&oldest, unserved->oldest_start_time, view->now_ms);
        for (size_t j = 0; j < unserved->n_served_by; j++)
            buf_printf(&elsewhere, "%s%s", j ? ", " : "", unserved->served_by[j]);
        bool is_served = unserved->n_served_by > 0;
        table_cell(&table, unserved->handler, is_served ? STYLE_PLAIN : STYLE_BAD);
        table_cell(&table, is_served ? buf_cstr(&elsewhere) : "nobody",
                   is_served ? STYLE_PLAIN : STYLE_BAD);
        table_cellf(&table, "%" PRId64, unserved->waiting);
        table_cellf(&table, "%" PRId64, unserved->let_go);
        table_cell(&table, buf_cstr(&oldest), STYLE_PLAIN);
    }
    table_write(&table, "", view->color, out);
    table_done(&table);
}

void workers_write(const Saga__V1__ListWorkersResponse *workers, const struct where_view *view,
                   struct buf *out)
{
    static const char *const headers[] = { "WORKER",    "INSTANCE", "SDK",     "FOR", "HANDLER",
                                           "IN FLIGHT", "FREE",     "AT MOST", "" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    buf_text(out, "node ");
    screen_text(out, workers->node);
    buf_text(out, "\n");
    for (size_t i = 0; i < workers->n_workers; i++)
        write_worker(workers->workers[i], view, &table);
    if (workers->n_workers) {
        buf_text(out, "\n");
        table_write(&table, "", view->color, out);
    }
    table_done(&table);
    if (workers->n_unserved) {
        buf_text(out, "\n");
        write_unserved(workers, view, out);
    }
}
