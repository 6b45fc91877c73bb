/* sagactl status: the server's counters, who serves what, and the rules of Kafka in short. */
#include "ctl/kafka_server.h"
#include "ctl/kafka_text.h"
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

static void write_handlers(const Saga__V1__GetStatusResponse *status, bool color, struct buf *out)
{
    static const char *const headers[] = { "HANDLER", "WORKERS", "FREE SLOTS", "WAITING",
                                           "LEASED" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < status->n_handlers; i++) {
        const Saga__V1__HandlerStatus *handler = status->handlers[i];
        table_cell(&table, handler->handler, STYLE_PLAIN);
        table_cellf(&table, "%d", handler->workers);
        table_cellf(&table, "%" PRId64, handler->credit);
        table_cellf(&table, "%" PRId64, handler->ready);
        table_cellf(&table, "%" PRId64, handler->leased);
    }
    table_write(&table, "", color, out);
    table_done(&table);
}

/* The status, with the rules as "kafkaRules". */
static int print_json(const Saga__V1__GetStatusResponse *status,
                      const Saga__V1__ListRulesResponse *rules)
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
    if (rc == 0)
        return ctl_print_json(value);
    json_decref(value);
    return ctl_print_error(&err);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    (void)arguments;
    Saga__V1__GetStatusRequest request = SAGA__V1__GET_STATUS_REQUEST__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__GetStatusResponse *status = NULL;
    int rc = ctl_call(ctl, "/saga.v1.OperatorService/GetStatus", &request.base,
                      &saga__v1__get_status_response__descriptor, &status);
    if (rc != 0)
        return rc;
    CLEANUP(ctl_message_free_p) Saga__V1__ListRulesResponse *rules = NULL;
    struct where_view view;
    rc = kafka_rules(ctl, "", true, &rules, &view);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return print_json(status, rules);
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_text(&text, "node ");
    screen_text(&text, status->node);
    buf_text(&text, ", sagad ");
    screen_text(&text, status->version);
    buf_text(&text, "\n\n");
    write_counters(status, ctl->color, &text);
    if (status->n_handlers) {
        buf_text(&text, "\n");
        write_handlers(status, ctl->color, &text);
    }
    if (rules->n_rules) {
        buf_text(&text, "\n");
        kafka_write_rules(rules->rules, rules->n_rules, &view, &text);
    }
    return ctl_print_text(&text);
}

const struct ctl_verb verb_status = {
    "status", "", 0, 0, NULL, "the server's counters, and who serves which handler", run,
};
