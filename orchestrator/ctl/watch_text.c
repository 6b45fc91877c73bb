#include "ctl/watch_text.h"

#include "ctl/names.h"

#include <string.h>

typedef void line_fn(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out);

/* A line is new when its text is: both are written as of the same moment. */
static bool is_same(const struct buf *a, const struct buf *b)
{
    return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

static void take_over(const struct buf *line, const struct buf *old, struct buf *out)
{
    if (!is_same(line, old))
        buf_append(out, line->data, line->size);
    out->failed |= line->failed || old->failed;
}

static void write_line(line_fn *write, const Saga__V1__Saga *before, const Saga__V1__Saga *saga,
                       const struct where_view *view, struct buf *out)
{
    CLEANUP(buf_done) struct buf line = { 0 };
    CLEANUP(buf_done) struct buf old = { 0 };
    if (before)
        write(before, view, &old);
    write(saga, view, &line);
    take_over(&line, &old, out);
}

/* "  step     debit DONE, try 1, by w1/a, since ...: RETRY BUSY: the bank sleeps" */
static void step_line(const Saga__V1__StepStatus *step, const struct where_view *view,
                      struct buf *out)
{
    buf_text(out, "  step     ");
    screen_styled(out, step->name, STYLE_BOLD, view->color);
    buf_text(out, " ");
    screen_styled(out, name_step_state(step->state), style_step_state(step->state), view->color);
    if (step->tries)
        buf_printf(out, ", try %d", step->tries);
    if (*step->worker) {
        buf_text(out, ", by ");
        screen_text(out, step->worker);
    }
    if (step->state_time) {
        buf_text(out, ", since ");
        screen_time(out, step->state_time, view->now_ms);
    }
    if (step->next_time) {
        buf_text(out, ", next at ");
        screen_time(out, step->next_time, view->now_ms);
    }
    if (*name_outcome(step->last_outcome)) {
        buf_printf(out, ": %s", name_outcome(step->last_outcome));
        where_write_error(step->last_error, out);
    }
    buf_text(out, "\n");
}

/* The steps of a revision stay the same, in the same order. */
static void write_steps(const Saga__V1__Saga *before, const Saga__V1__Saga *saga,
                        const struct where_view *view, struct buf *out)
{
    for (size_t i = 0; i < saga->n_steps; i++) {
        CLEANUP(buf_done) struct buf line = { 0 };
        CLEANUP(buf_done) struct buf old = { 0 };
        if (before && i < before->n_steps)
            step_line(before->steps[i], view, &old);
        step_line(saga->steps[i], view, &line);
        take_over(&line, &old, out);
    }
}

void watch_write(const Saga__V1__Saga *before, const Saga__V1__Saga *saga,
                 const struct where_view *view, struct buf *out)
{
    /* What happened to the steps comes before what followed from it. */
    static line_fn *const lines[] = { where_write_cause, where_write_pending, where_write_state,
                                      where_write_park, where_write_waiting };
    if (!before)
        where_write_title(saga, view, out);
    write_steps(before, saga, view, out);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        write_line(lines[i], before, saga, view, out);
}
