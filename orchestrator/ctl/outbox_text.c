#include "ctl/kafka_text.h"

#include <inttypes.h>
#include <string.h>

static void write_relay(const Saga__V1__Outbox__Relay *relay, const struct where_view *view,
                        struct buf *out)
{
    buf_text(out, "outbox at ");
    screen_styled(out, relay->node, STYLE_BOLD, view->color);
    buf_text(out, ": ");
    if (*relay->problem) {
        screen_styled(out, "EVENTS WAIT", STYLE_BAD, view->color);
        buf_text(out, ": ");
        screen_text(out, relay->problem);
    } else {
        screen_styled(out, "running", STYLE_GOOD, view->color);
    }
    buf_printf(out, "; %" PRId64 " published, %" PRId64 " refusals since it began\n",
               relay->published, relay->refused);
}

static void add_span(struct table *table, const Google__Protobuf__Timestamp *since,
                     const struct where_view *view)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (since)
        screen_span(&text, view->now_ms - screen_time_ms(since));
    table_cell(table, buf_cstr(&text), STYLE_PLAIN);
}

static void add_refused(struct table *table, const Saga__V1__Outbox__Refused *refused,
                        const struct where_view *view)
{
    CLEANUP(buf_done) struct buf saga = { 0 };
    if (*refused->handler) {
        buf_printf(&saga, "handler %s", refused->handler);
    } else if (!*refused->definition) {
        buf_text(&saga, "gone");
    } else {
        if (strcmp(refused->namespace_, "default") != 0)
            buf_printf(&saga, "%s/", refused->namespace_);
        buf_printf(&saga, "%s %s", refused->definition, refused->saga_id);
    }
    table_cell(table, refused->event_id, STYLE_BOLD);
    table_cell(table, buf_cstr(&saga), STYLE_PLAIN);
    add_span(table, refused->event_time, view);
    table_cellf(table, "%d", refused->refusals);
    add_span(table, refused->refuse_time, view);
    table_cell(table, refused->error, STYLE_BAD);
}

void kafka_write_outbox(const Saga__V1__Outbox *outbox, const struct where_view *view,
                        struct buf *out)
{
    static const char *const headers[] = { "REFUSED EVENT", "OF",       "WAITS",
                                           "REFUSALS",      "LAST AGO", "WHY" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < outbox->n_relays; i++)
        write_relay(outbox->relays[i], view, out);
    if (!outbox->n_relays && outbox->waiting) {
        buf_text(out, "outbox: ");
        screen_styled(out, "EVENTS WAIT", STYLE_BAD, view->color);
        buf_text(out, ": no sagad with an outbox-topic runs\n");
    }
    for (size_t i = 0; i < outbox->n_refused; i++)
        add_refused(&table, outbox->refused[i], view);
    if (outbox->n_refused) {
        table_write(&table, "  ", view->color, out);
        if (outbox->more_refused)
            buf_text(out, "  there are more\n");
        buf_text(out, "  the later events of the same wait: sagactl outbox publish | discard "
                      "EVENT --reason ...\n");
    }
    table_done(&table);
}
