/* sagactl status: the server's counters and who serves what. */
#include "ctl/ctl.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"

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

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    (void)arguments;
    Saga__V1__GetStatusRequest request = SAGA__V1__GET_STATUS_REQUEST__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__GetStatusResponse *status = NULL;
    int rc = ctl_call(ctl, "/saga.v1.OperatorService/GetStatus", &request.base,
                      &saga__v1__get_status_response__descriptor, &status);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&status->base);
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
    return ctl_print_text(&text);
}

const struct ctl_verb verb_status = {
    "status", "", 0, 0, NULL, "the server's counters, and who serves which handler", run,
};
