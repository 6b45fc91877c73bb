#include "ctl/where_text.h"

#include "ctl/handler_text.h"
#include "ctl/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void line_begin(struct buf *out, const char *label)
{
    buf_printf(out, "  %-8s ", label);
}

void where_write_error(const Saga__V1__ErrorInfo *error, struct buf *out)
{
    if (!error || (!*error->code && !*error->message))
        return;
    buf_text(out, " ");
    screen_text(out, error->code);
    if (*error->message) {
        buf_text(out, *error->code ? ": " : "");
        screen_text(out, error->message);
    }
}

void where_write_state(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    line_begin(out, "state");
    screen_styled(out, name_saga_state(saga->state), style_saga_state(saga->state), view->color);
    if (saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED)
        buf_printf(out, " while %s", name_saga_state(saga->phase));
    buf_text(out, " since ");
    screen_time(out, saga->state_time, view->now_ms);
    if (saga->doubt)
        buf_text(out, ", in doubt");
    buf_text(out, "\n");
}

bool where_lacks_signal(const Saga__V1__ErrorInfo *error)
{
    return error && strcmp(error->code, "NO_SIGNAL") == 0;
}

/* Why it is parked, in plain words. */
static const char *park_words(const Saga__V1__Park *park)
{
    if (where_lacks_signal(park->error))
        return "what the step waits for did not come in time";
    switch (park->reason) {
    case SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN:
        return "the step may have taken effect or not, and may not be repeated by itself";
    case SAGA__V1__PARK_REASON__PARK_REASON_IDEMPOTENCY_WINDOW_OVER:
        return "the other side no longer remembers the key, so a repeat is not safe";
    case SAGA__V1__PARK_REASON__PARK_REASON_RETRIES_EXHAUSTED:
        return "every try failed without an effect, and the retry budget is spent";
    case SAGA__V1__PARK_REASON__PARK_REASON_COMPENSATION_FAILED:
        return "the compensation was refused or its retry budget is spent";
    case SAGA__V1__PARK_REASON__PARK_REASON_REJECTED_AFTER_PIVOT:
        return "a step was refused after the point of no return";
    case SAGA__V1__PARK_REASON__PARK_REASON_DEADLINE_EXCEEDED:
        return "the saga's deadline has passed";
    case SAGA__V1__PARK_REASON__PARK_REASON_FOREIGN_EFFECT:
        return "the effect is there already, but it was not made by this saga";
    case SAGA__V1__PARK_REASON__PARK_REASON_LATE_EFFECT:
        return "a report came late and says that something happened after all";
    case SAGA__V1__PARK_REASON__PARK_REASON_WORKER_KILLER:
        return "each worker that takes the step is lost: the step seems to kill them";
    case SAGA__V1__PARK_REASON__PARK_REASON_LIMIT_REACHED:
        return "the saga has reached a limit of its journal";
    case SAGA__V1__PARK_REASON__PARK_REASON_SUSPENDED:
        return "a person stopped it for now";
    default:
        return "for a reason that this sagactl does not know";
    }
}

void where_write_park(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    (void)view;
    const Saga__V1__Park *park = saga->park;
    if (!park || saga->state != SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED)
        return;
    line_begin(out, "parked");
    buf_printf(out, "%s", name_park_reason(park->reason));
    if (*park->step) {
        buf_text(out, " at step ");
        screen_text(out, park->step);
    }
    buf_printf(out, ": %s", park_words(park));
    if (park->error && (*park->error->code || *park->error->message)) {
        buf_text(out, "\n");
        line_begin(out, "");
        if (park->reason == SAGA__V1__PARK_REASON__PARK_REASON_SUSPENDED) {
            buf_text(out, "because: ");
            screen_text(out, park->error->message);
        } else {
            buf_text(out, "last said:");
            where_write_error(park->error, out);
        }
    }
    buf_text(out, "\n");
}

static const char *cause_words(const Saga__V1__FirstCause *cause)
{
    static const struct {
        const char *reason, *words;
    } causes[] = {
        { "REFUSED", "a step was refused" },
        { "CANCELLED", "it was cancelled" },
        { "DEADLINE", "its deadline passed" },
        { "UNKNOWN", "the outcome of a step stayed unknown" },
        { "EXHAUSTED", "the retry budget of a step was spent" },
        { "START_TIMEOUT", "no worker took a step in time" },
    };
    if (where_lacks_signal(cause->error))
        return "what a step waits for did not come in time";
    for (size_t i = 0; i < ARRAY_LEN(causes); i++)
        if (strcmp(causes[i].reason, cause->reason) == 0)
            return causes[i].words;
    return "it turned back";
}

void where_write_cause(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    const Saga__V1__FirstCause *cause = saga->cause;
    if (!cause)
        return;
    line_begin(out, "cause");
    screen_text(out, cause->reason);
    buf_printf(out, ": %s", cause_words(cause));
    if (*cause->step) {
        buf_text(out, ", step ");
        screen_text(out, cause->step);
    }
    if (cause->try_ > 0)
        buf_printf(out, ", try %d", cause->try_);
    if (*cause->actor) {
        buf_text(out, ", by ");
        screen_text(out, cause->actor);
        buf_text(out, ACTOR_UNPROVEN);
    }
    if (cause->error && (*cause->error->code || *cause->error->message)) {
        buf_text(out, ",");
        where_write_error(cause->error, out);
    }
    buf_text(out, ", ");
    screen_time(out, cause->time, view->now_ms);
    buf_text(out, "\n");
}

void where_write_pending(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    const Saga__V1__Pending *pending = saga->pending;
    if (!pending)
        return;
    line_begin(out, "pending");
    screen_text(out, pending->reason);
    buf_text(out, ": turns back if step ");
    screen_text(out, pending->step);
    buf_text(out, ", the pivot, turns out to have had no effect");
    if (*pending->actor) {
        buf_text(out, ", by ");
        screen_text(out, pending->actor);
        buf_text(out, ACTOR_UNPROVEN);
    }
    buf_text(out, ", ");
    screen_time(out, pending->time, view->now_ms);
    buf_text(out, "\n");
}

static void write_related_saga(const Saga__V1__Saga *saga, const Saga__V1__RelatedSaga *other,
                               const struct where_view *view, struct buf *out)
{
    bool same_key = strcmp(other->saga_id, saga->saga_id) == 0 &&
                    strcmp(other->definition, saga->definition) == 0;
    if (same_key) {
        buf_printf(out, "run %d", other->run);
    } else {
        screen_text(out, other->definition);
        buf_text(out, " ");
        screen_text(out, other->saga_id);
        if (other->run > 1)
            buf_printf(out, " (run %d)", other->run);
    }
    buf_text(out, ", ");
    screen_styled(out, name_saga_state(other->state), style_saga_state(other->state), view->color);
    buf_printf(out, "   %s\n", other->uid);
}

/* Whom it corrects or repeats, and who does so with it. */
static void write_related(const Saga__V1__Saga *saga, const struct where_view *view,
                          struct buf *out)
{
    if (*saga->related_saga) {
        line_begin(out, "related");
        buf_text(out, "to ");
        if (saga->related) {
            write_related_saga(saga, saga->related, view, out);
        } else {
            screen_text(out, saga->related_saga);
            buf_text(out, ", which is not there any more\n");
        }
    }
    for (size_t i = 0; i < saga->n_related_by; i++) {
        line_begin(out, "related");
        buf_text(out, "by ");
        write_related_saga(saga, saga->related_by[i], view, out);
    }
}

static void write_times(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    line_begin(out, "started");
    screen_time(out, saga->start_time, view->now_ms);
    if (saga->start_at_time && !saga_state_is_end(saga->state)) {
        buf_text(out, ", to begin at ");
        screen_time(out, saga->start_at_time, view->now_ms);
    }
    if (saga->deadline_time && !saga_state_is_end(saga->state)) {
        buf_text(out, ", deadline ");
        screen_time(out, saga->deadline_time, view->now_ms);
    }
    if (saga->end_time) {
        buf_text(out, ", ended ");
        screen_time(out, saga->end_time, view->now_ms);
    }
    buf_text(out, "\n");
    if (saga->n_labels) {
        line_begin(out, "labels");
        for (size_t i = 0; i < saga->n_labels; i++) {
            buf_text(out, i ? ", " : "");
            screen_text(out, saga->labels[i]->key);
            buf_text(out, "=");
            screen_text(out, saga->labels[i]->value);
        }
        buf_text(out, "\n");
    }
    write_related(saga, view, out);
}

/* --- the steps -----------------------------------------------------------------------------------
 */

static void step_row(const Saga__V1__StepStatus *step, const struct where_view *view,
                     struct table *table)
{
    CLEANUP(buf_done) struct buf last = { 0 };
    CLEANUP(buf_done) struct buf since = { 0 };
    buf_text(&last, name_outcome(step->last_outcome));
    where_write_error(step->last_error, &last);
    screen_time(&since, step->state_time, view->now_ms);
    table_cell(table, step->name, STYLE_BOLD);
    table_cell(table, name_step_state(step->state), style_step_state(step->state));
    if (step->tries)
        table_cellf(table, "%d", step->tries);
    else
        table_cell(table, "-", STYLE_FAINT);
    table_cell(table, *step->worker ? step->worker : "-",
               *step->worker ? STYLE_PLAIN : STYLE_FAINT);
    if (step->fence)
        table_cellf(table, "%" PRId64, step->fence);
    else
        table_cell(table, "-", STYLE_FAINT);
    table_cell(table, buf_cstr(&since), STYLE_PLAIN);
    table_cell(table, last.size ? buf_cstr(&last) : "-", STYLE_PLAIN);
}

static void write_steps(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    static const char *const headers[] = { "STEP",  "STATE", "TRIES",       "WORKER",
                                           "FENCE", "SINCE", "LAST OUTCOME" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < saga->n_steps; i++)
        step_row(saga->steps[i], view, &table);
    table_write(&table, "    ", view->color, out);
    table_done(&table);
}

/* --- what it waits for -------------------------------------------------------------------------
 */

static void write_of_step(const Saga__V1__Waiting *waiting, struct buf *out)
{
    if (!*waiting->step)
        return;
    if (waiting->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION)
        buf_text(out, " for the compensation of ");
    else if (waiting->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE)
        buf_text(out, " for the probe of ");
    else
        buf_text(out, " for ");
    screen_text(out, waiting->step);
}

static void write_until(const Saga__V1__Waiting *waiting, const char *words,
                        const struct where_view *view, struct buf *out)
{
    if (!waiting->until_time)
        return;
    buf_text(out, words);
    screen_time(out, waiting->until_time, view->now_ms);
}

static void write_who_serves(const Saga__V1__Waiting *waiting, struct buf *out)
{
    int here = waiting->workers_connected;
    if (here || !waiting->n_served_by) {
        if (here)
            buf_printf(out, ": %d worker%s connected serve%s it", here, here == 1 ? "" : "s",
                       here == 1 ? "s" : "");
        else
            buf_text(out, ": nobody serves it");
        return;
    }
    buf_text(out, ": nobody serves it here, workers of ");
    for (size_t i = 0; i < waiting->n_served_by; i++) {
        buf_text(out, i ? ", " : "");
        screen_text(out, waiting->served_by[i]);
    }
    buf_text(out, " do");
}

static void write_waiting_for(const Saga__V1__Waiting *waiting, const struct where_view *view,
                              struct buf *out)
{
    switch (waiting->kind) {
    case SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER:
        if (waiting->brake) {
            buf_text(out, "its turn");
            write_of_step(waiting, out);
            buf_text(out, ": handler ");
            handler_write_state(waiting->brake, view, out);
            break;
        }
        buf_text(out, "a worker that serves ");
        screen_text(out, waiting->handler);
        write_of_step(waiting, out);
        write_who_serves(waiting, out);
        write_until(waiting, ", given up at ", view, out);
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_RETRY:
        buf_text(out, "the next try");
        write_of_step(waiting, out);
        write_until(waiting, " at ", view, out);
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_REPORT:
        buf_text(out, "the report of worker ");
        screen_text(out, waiting->worker);
        write_of_step(waiting, out);
        write_until(waiting, ", whose lease ends at ", view, out);
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_SETTLE:
        buf_text(out, "a request that may still be on its way");
        write_of_step(waiting, out);
        write_until(waiting, " until ", view, out);
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_OPERATOR:
        buf_text(out, "a person");
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_DELAY:
        buf_text(out, "the end of the delay");
        write_of_step(waiting, out);
        write_until(waiting, " at ", view, out);
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_SIGNAL:
        buf_text(out, "the signal ");
        screen_text(out, waiting->signal);
        write_of_step(waiting, out);
        write_until(waiting, ", given up at ", view, out);
        break;
    default:
        buf_text(out, "something that this sagactl does not know");
        break;
    }
}

void where_write_waiting(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    const Saga__V1__Waiting *waiting = saga->waiting;
    if (!waiting || waiting->kind == SAGA__V1__WAIT_KIND__WAIT_KIND_UNSPECIFIED)
        return;
    line_begin(out, "waits");
    buf_text(out, "for ");
    write_waiting_for(waiting, view, out);
    if (waiting->since_time) {
        buf_text(out, ", since ");
        screen_time(out, waiting->since_time, view->now_ms);
    }
    buf_text(out, "\n");
}

void where_write_title(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    CLEANUP(buf_done) struct buf title = { 0 };
    buf_printf(
        &title, "%s%s%s %s", strcmp(saga->namespace_, "default") == 0 ? "" : saga->namespace_,
        strcmp(saga->namespace_, "default") == 0 ? "" : "/", saga->definition, saga->saga_id);
    screen_styled(out, buf_cstr(&title), STYLE_BOLD, view->color);
    buf_printf(out, "  (run %d, revision %d, %s)\n", saga->run, saga->revision, saga->uid);
}

void where_write(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    where_write_title(saga, view, out);
    where_write_state(saga, view, out);
    where_write_park(saga, view, out);
    where_write_cause(saga, view, out);
    where_write_pending(saga, view, out);
    write_times(saga, view, out);
    bool cut = where_write_input(saga, view, out);
    write_steps(saga, view, out);
    cut |= where_write_outputs(saga, view, out);
    if (cut)
        where_write_cut(saga, view, out);
    where_write_unknown(saga, view, out);
    where_write_waiting(saga, view, out);
    CLEANUP(buf_done) struct buf advice = { 0 };
    where_write_advice(saga, view, &advice);
    if (advice.size) {
        line_begin(out, "next");
        buf_printf(out, "%s\n", buf_cstr(&advice));
    }
}
