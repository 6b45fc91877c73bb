#include "ctl/handler_text.h"

#include "ctl/screen.h"
#include "wire/times.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void handler_write_count(int64_t count, struct buf *out)
{
    char digits[24];
    (void)snprintf(digits, sizeof digits, "%" PRId64, count);
    size_t size = strlen(digits);
    for (size_t i = 0; i < size; i++)
        buf_printf(out, "%c%s", digits[i], (size - 1 - i) % 3 == 0 && i + 1 < size ? "," : "");
}

void handler_write_rate(const Saga__V1__Rate *rate, struct buf *out)
{
    handler_write_count(rate->tasks, out);
    if (rate->seconds == 1)
        buf_text(out, "/s");
    else if (rate->seconds == 60)
        buf_text(out, "/min");
    else if (rate->seconds == 3600)
        buf_text(out, "/h");
    else
        buf_printf(out, " in %d s", rate->seconds);
}

static void write_waiting(const Saga__V1__Handler *handler, struct buf *out)
{
    if (handler->let_go_is_estimate)
        buf_text(out, "~");
    handler_write_count(handler->waiting + handler->let_go, out);
}

/* The one that is in force; NULL: none. */
static const Saga__V1__Rate *rate_of(const Saga__V1__Handler *handler)
{
    const Saga__V1__Rate *release = handler->release_rate, *rate = handler->rate;
    if (!release || !rate)
        return release ? release : rate;
    return release->tasks * rate->seconds < rate->tasks * release->seconds ? release : rate;
}

static void write_who(const Saga__V1__Handler *handler, struct buf *out)
{
    if (handler->hold == SAGA__V1__HANDLER__HOLD__HOLD_BREAKER)
        buf_text(out, " by its breaker");
    else if (*handler->actor) {
        buf_text(out, " by ");
        screen_text(out, handler->actor);
    }
    if (*handler->reason) {
        buf_text(out, " (");
        screen_text(out, handler->reason);
        buf_text(out, ")");
    }
}

void handler_write_state(const Saga__V1__Handler *handler, const struct where_view *view,
                         struct buf *out)
{
    screen_text(out, handler->handler);
    if (handler->hold) {
        buf_text(out, " held since ");
        screen_time(out, handler->hold_time, view->now_ms);
        write_who(handler, out);
    } else if (handler->release_rate) {
        buf_text(out, " released gradually");
    } else if (handler->rate || handler->cap > 0) {
        buf_text(out, " limited");
        if (handler->cap > 0)
            buf_printf(out, " to %d at a time", handler->cap);
    }
    buf_text(out, ", ");
    write_waiting(handler, out);
    buf_text(out, " waiting");
    if (handler->left) {
        buf_text(out, ", about ");
        screen_span(out, duration_to_ms(handler->left));
        buf_text(out, " at ");
        handler_write_rate(rate_of(handler), out);
    }
}

/* --- the table ---------------------------------------------------------------------------------
 */

static void add_state(struct table *table, const Saga__V1__Handler *handler)
{
    if (handler->hold)
        table_cell(table,
                   handler->hold == SAGA__V1__HANDLER__HOLD__HOLD_BREAKER ? "HELD (breaker)"
                                                                          : "HELD",
                   STYLE_BAD);
    else if (handler->release_rate)
        table_cell(table, "RELEASING", STYLE_BUSY);
    else
        table_cell(table, handler->rate || handler->cap > 0 ? "LIMITED" : "OPEN", STYLE_GOOD);
}

static void add_limits(struct table *table, const Saga__V1__Handler *handler)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (rate_of(handler))
        handler_write_rate(rate_of(handler), &text);
    if (handler->cap > 0)
        buf_printf(&text, "%scap %d", text.size ? ", " : "", handler->cap);
    if (handler->breaker && handler->breaker->failures > 0)
        buf_printf(&text, "%sbreaker %d", text.size ? ", " : "", handler->breaker->failures);
    table_cell(table, text.size ? buf_cstr(&text) : "-", text.size ? STYLE_PLAIN : STYLE_FAINT);
}

static void add_handler(struct table *table, const Saga__V1__Handler *handler,
                        const struct where_view *view)
{
    CLEANUP(buf_done) struct buf since = { 0 };
    CLEANUP(buf_done) struct buf waiting = { 0 };
    CLEANUP(buf_done) struct buf oldest = { 0 };
    CLEANUP(buf_done) struct buf left = { 0 };
    CLEANUP(buf_done) struct buf why = { 0 };
    screen_time(&since, handler->hold_time, view->now_ms);
    write_waiting(handler, &waiting);
    screen_time(&oldest, handler->oldest_time, view->now_ms);
    if (handler->left)
        screen_span(&left, duration_to_ms(handler->left));
    if (*handler->actor)
        buf_printf(&why, "%s: ", handler->actor);
    buf_text(&why, handler->reason);
    table_cell(table, handler->handler, STYLE_BOLD);
    add_state(table, handler);
    table_cell(table, buf_cstr(&since), STYLE_PLAIN);
    table_cell(table, buf_cstr(&waiting), STYLE_PLAIN);
    table_cell(table, buf_cstr(&oldest), STYLE_PLAIN);
    table_cellf(table, "%" PRId64, handler->leased);
    add_limits(table, handler);
    table_cell(table, left.size ? buf_cstr(&left) : "-", left.size ? STYLE_PLAIN : STYLE_FAINT);
    table_cellf(table, "%d", handler->workers);
    table_cell(table, why.size ? buf_cstr(&why) : NULL, STYLE_FAINT);
}

void handlers_write(const Saga__V1__ListHandlersResponse *handlers, const struct where_view *view,
                    struct buf *out)
{
    static const char *const headers[] = { "HANDLER", "STATE",      "HELD SINCE", "WAITING",
                                           "OLDEST",  "LEASED",     "LIMITS",     "ABOUT LEFT",
                                           "WORKERS", "WHO AND WHY" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < handlers->n_handlers; i++)
        add_handler(&table, handlers->handlers[i], view);
    table_write(&table, "", view->color, out);
    table_done(&table);
}
