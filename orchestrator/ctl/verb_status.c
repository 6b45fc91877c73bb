/* sagactl status: sagas by state, who serves what, the rules of Kafka in short, the database, the
 * server's counters. */
#include "ctl/handler_text.h"
#include "ctl/kafka_server.h"
#include "ctl/kafka_text.h"
#include "ctl/names.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"
#include "wire/json.h"

#include <inttypes.h>
#include <saga/v1/operator.pb-c.h>

static void write_counters(const Saga__V1__GetStatusResponse *status, bool color, struct buf *out)
{
    static const char *const headers[] = { "COUNTER", "VALUE", "WHAT IT COUNTS" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < status->n_counters; i++) {
        table_cell(&table, status->counters[i]->name, STYLE_PLAIN);
        table_cellf(&table, "%" PRId64, status->counters[i]->value);
        table_cell(&table, status->counters[i]->help, STYLE_FAINT);
    }
    table_write(&table, "", color, out);
    table_done(&table);
}

static void write_count(struct table *table, int64_t count, int64_t estimate, int64_t counted_up_to)
{
    if (estimate)
        table_cellf(table, "about %" PRId64, estimate);
    else
        table_cellf(table, "%" PRId64 "%s", count, count >= counted_up_to ? " or more" : "");
}

static void write_handlers(const Saga__V1__GetStatusResponse *status, const struct where_view *view,
                           struct buf *out)
{
    static const char *const headers[] = { "HANDLER", "WORKERS", "FREE SLOTS",   "WAITING",
                                           "LEASED",  "LET GO",  "OLDEST LET GO" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < status->n_handlers; i++) {
        const Saga__V1__HandlerStatus *handler = status->handlers[i];
        CLEANUP(buf_done) struct buf oldest = { 0 };
        screen_time(&oldest, handler->oldest_let_go_time, view->now_ms);
        table_cell(&table, handler->handler, STYLE_PLAIN);
        table_cellf(&table, "%d", handler->workers);
        table_cellf(&table, "%" PRId64, handler->credit);
        table_cellf(&table, "%" PRId64, handler->ready);
        table_cellf(&table, "%" PRId64, handler->leased);
        write_count(&table, handler->let_go, 0,
                    status->counted_up_to ? status->counted_up_to : INT64_MAX);
        table_cell(&table, buf_cstr(&oldest), STYLE_PLAIN);
    }
    table_write(&table, "", view->color, out);
    table_done(&table);
}

static void write_states(const Saga__V1__GetStatusResponse *status, bool color, struct buf *out)
{
    static const char *const headers[] = { "SAGAS", "HOW MANY" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < status->n_states; i++) {
        const Saga__V1__GetStatusResponse__StateCount *state = status->states[i];
        table_cell(&table, name_saga_state(state->state), style_saga_state(state->state));
        write_count(&table, state->count, state->estimate, status->counted_up_to);
    }
    for (size_t i = 0; i < status->n_parked; i++) {
        const Saga__V1__GetStatusResponse__ParkedCount *parked = status->parked[i];
        CLEANUP(buf_done) struct buf name = { 0 };
        buf_printf(&name, "PARKED: %s", name_park_reason(parked->reason));
        table_cell(&table, buf_cstr(&name), STYLE_BAD);
        write_count(&table, parked->count, parked->estimate, status->counted_up_to);
    }
    table_write(&table, "", color, out);
    table_done(&table);
}

static void write_bytes(struct table *table, int64_t bytes)
{
    if (bytes < INT64_C(1) << 30)
        table_cellf(table, "%.1f MiB", (double)bytes / (1 << 20));
    else
        table_cellf(table, "%.1f GiB", (double)bytes / (1 << 30));
}

static void write_tables(const Saga__V1__GetStatusResponse *status, bool color, struct buf *out)
{
    static const char *const headers[] = { "TABLE", "ROWS (ABOUT)", "SIZE" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < status->n_tables; i++) {
        table_cell(&table, status->tables[i]->name, STYLE_PLAIN);
        table_cellf(&table, "%" PRId64, status->tables[i]->rows);
        write_bytes(&table, status->tables[i]->bytes);
    }
    table_write(&table, "", color, out);
    table_done(&table);
}

static long long milliseconds(const Google__Protobuf__Duration *duration)
{
    return duration ? (long long)(duration->seconds * 1000 + duration->nanos / 1000000) : 0;
}

static void write_head(const Saga__V1__GetStatusResponse *status, struct buf *out)
{
    const Saga__V1__GetStatusResponse__Database *database = status->database;
    const Saga__V1__GetStatusResponse__Batches *batches = status->batches;
    buf_text(out, "node ");
    screen_text(out, status->node);
    buf_text(out, ", sagad ");
    screen_text(out, status->version);
    if (database) {
        bool is_primary =
            database->role == SAGA__V1__GET_STATUS_RESPONSE__DATABASE_ROLE__DATABASE_ROLE_PRIMARY;
        buf_text(out, "\ndatabase ");
        screen_text(out, database->name);
        buf_printf(out, ", PostgreSQL ");
        screen_text(out, database->server_version);
        buf_printf(out, ", %s, epoch %" PRId64 ", ", is_primary ? "primary" : "standby",
                   database->epoch);
        if (*database->synchronous_standbys) {
            buf_text(out, "synchronous standbys: ");
            screen_text(out, database->synchronous_standbys);
        } else {
            buf_text(out, "no synchronous standby");
        }
    } else {
        buf_text(out, "\ndatabase: ");
        screen_text(out, status->database_problem);
    }
    if (batches && batches->count)
        buf_printf(out,
                   "\nlast %d transactions: %.1f items each, median %lld ms, p99 %lld ms,"
                   " longest %lld ms",
                   batches->count, (double)batches->items / batches->count,
                   milliseconds(batches->median_time), milliseconds(batches->p99_time),
                   milliseconds(batches->longest_time));
    buf_text(out, "\n");
}

/* The status, with the rules as "kafkaRules", and the handlers that are held as "heldHandlers". */
static int print_json(const Saga__V1__GetStatusResponse *status,
                      const Saga__V1__ListRulesResponse *rules,
                      const Saga__V1__ListHandlersResponse *handlers)
{
    json_t *value;
    struct err err;
    if (wire_json_from_message(&status->base, &value, &err) != 0)
        return ctl_print_error(&err);
    json_t *list = json_array();
    int rc = ctl_add_page(list, &rules->base, "rules", &err);
    if (rc == 0 && json_object_set(value, "kafkaRules", list) != 0)
        rc = err_set(&err, ERR_NOMEM, "out of memory");
    json_decref(list);
    list = json_array();
    if (rc == 0)
        rc = ctl_add_page(list, &handlers->base, "handlers", &err);
    if (rc == 0 && json_object_set(value, "heldHandlers", list) != 0)
        rc = err_set(&err, ERR_NOMEM, "out of memory");
    json_decref(list);
    if (rc == 0)
        return ctl_print_json(value);
    json_decref(value);
    return ctl_print_error(&err);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    (void)arguments;
    Saga__V1__GetStatusRequest request = SAGA__V1__GET_STATUS_REQUEST__INIT;
    request.with_database = 1;
    CLEANUP(ctl_message_free_p) Saga__V1__GetStatusResponse *status = NULL;
    int rc = ctl_call(ctl, "/saga.v1.OperatorService/GetStatus", &request.base,
                      &saga__v1__get_status_response__descriptor, &status);
    if (rc != 0)
        return rc;
    CLEANUP(ctl_message_free_p) Saga__V1__ListRulesResponse *rules = NULL;
    struct where_view view = ctl_where_view(ctl);
    if (status->database) /* else they cannot be had either */
        rc = kafka_rules(ctl, "", true, &rules, &view);
    if (rc != 0)
        return rc;
    CLEANUP(ctl_message_free_p) Saga__V1__ListHandlersResponse *handlers = NULL;
    Saga__V1__ListHandlersRequest braked = SAGA__V1__LIST_HANDLERS_REQUEST__INIT;
    braked.braked = 1;
    if (status->database)
        rc = ctl_call(ctl, "/saga.v1.OperatorService/ListHandlers", &braked.base,
                      &saga__v1__list_handlers_response__descriptor, &handlers);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return rules ? print_json(status, rules, handlers) : ctl_print_message(&status->base);
    CLEANUP(buf_done) struct buf text = { 0 };
    write_head(status, &text);
    if (status->n_states) {
        buf_text(&text, "\n");
        write_states(status, ctl->color, &text);
    }
    if (status->n_handlers) {
        buf_text(&text, "\n");
        write_handlers(status, &view, &text);
    }
    for (size_t i = 0; handlers && i < handlers->n_handlers; i++) {
        buf_text(&text, i ? "handler " : "\nhandler ");
        handler_write_state(handlers->handlers[i], &view, &text);
        buf_text(&text, "\n");
    }
    if (rules && rules->n_rules) {
        buf_text(&text, "\n");
        kafka_write_rules(rules->rules, rules->n_rules, &view, &text);
    }
    if (status->n_tables) {
        buf_text(&text, "\n");
        write_tables(status, ctl->color, &text);
    }
    buf_text(&text, "\n");
    write_counters(status, ctl->color, &text);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_status = {
    "status",
    "",
    0,
    0,
    NULL,
    "sagas by state, who serves which handler, the database, the server's counters\n"
    "\n"
    "Sagas are those of all servers; workers, times and counters those of the server that answers. "
    "A\n"
    "count has an end; beyond it the statistics of PostgreSQL say about how many there are. -o "
    "json for\n"
    "alerts.",
    run,
};
