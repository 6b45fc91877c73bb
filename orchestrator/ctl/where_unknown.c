/* What is known of a step that may have taken effect, and what a saga is in doubt of. */
#include "ctl/names.h"
#include "ctl/where_text.h"

#include <inttypes.h>
#include <string.h>

/* "           class    ..." */
static void line(struct buf *out, const char *label)
{
    buf_printf(out, "           %-8s ", label);
}

static void write_attempt(const Saga__V1__UnknownOutcome *unknown, const struct where_view *view,
                          struct buf *out)
{
    line(out, "attempt");
    if (!unknown->lease_time) {
        buf_text(out, "a lease that had been given back reported an effect\n");
        return;
    }
    if (!unknown->fence) {
        buf_text(out, "none of this saga's: it may have run before sagad took over, since ");
        screen_time(out, unknown->lease_time, view->now_ms);
        buf_text(out, "\n");
        return;
    }
    buf_printf(out, "lease with fence %" PRId64 " given to ", unknown->fence);
    screen_text(out, unknown->worker);
    buf_text(out, " ");
    screen_time(out, unknown->lease_time, view->now_ms);
    buf_text(out, ",\n");
    line(out, "");
    buf_text(out, "ended ");
    screen_time(out, unknown->end_time, view->now_ms);
    buf_printf(out, ": %s", name_outcome(unknown->outcome));
    where_write_error(unknown->error, out);
    buf_text(out, "\n");
}

static const char *class_words(const Saga__V1__UnknownOutcome *unknown)
{
    switch (unknown->effect) {
    case SAGA__V1__EFFECT__EFFECT_IDEMPOTENT:
        return unknown->send_before
                   ? "repeated with the same key, as long as the other side remembers it"
                   : "it may be repeated with the same key";
    case SAGA__V1__EFFECT__EFFECT_PROBED:
        return "not repeated before a probe has found out";
    case SAGA__V1__EFFECT__EFFECT_AT_MOST_ONCE:
        return "never repeated by itself";
    default:
        return "this sagactl does not know it";
    }
}

static void write_class(const Saga__V1__UnknownOutcome *unknown, const struct where_view *view,
                        struct buf *out)
{
    line(out, "class");
    buf_printf(out, "%s: %s\n", name_effect(unknown->effect), class_words(unknown));
    if (unknown->settle_time) {
        bool over = screen_time_ms(unknown->settle_time) <= view->now_ms;
        line(out, "settled");
        buf_text(out, over ? "no request can be on its way any more since "
                           : "a request may still be on its way until ");
        screen_time(out, unknown->settle_time, view->now_ms);
        buf_text(out, "\n");
    }
    if (unknown->send_before) {
        bool over = screen_time_ms(unknown->send_before) <= view->now_ms;
        line(out, "window");
        buf_text(out, over ? "the other side may have forgotten the key: nothing is sent since "
                           : "nothing is sent with its key after ");
        screen_time(out, unknown->send_before, view->now_ms);
        buf_text(out, "\n");
    }
}

static void write_probes(const Saga__V1__StepStatus *step, const Saga__V1__Waiting *waiting,
                         const struct where_view *view, struct buf *out)
{
    const Saga__V1__UnknownOutcome *unknown = step->unknown;
    bool waits = waiting && waiting->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE &&
                 strcmp(waiting->step, step->name) == 0;
    if (!unknown->probes && !waits)
        return;
    line(out, "probes");
    buf_printf(out, "%d asked", unknown->probes);
    if (unknown->last_probe_time) {
        buf_printf(out, "; the last one said %s", name_outcome(unknown->last_probe));
        where_write_error(unknown->last_probe_error, out);
        buf_text(out, ", ");
        screen_time(out, unknown->last_probe_time, view->now_ms);
    }
    if (waits && step->next_time && screen_time_ms(step->next_time) > view->now_ms) {
        buf_text(out, "; the next one ");
        screen_time(out, step->next_time, view->now_ms);
    } else if (waits) {
        buf_text(out, "; the next one is due");
    }
    buf_text(out, "\n");
}

/* fence 0: nothing is unknown. */
static void write_commands(const Saga__V1__Saga *saga, const struct where_view *view,
                           const char *step, const char *which, int64_t fence, struct buf *out)
{
    static const char *const results[] = { "--happened", "--did-not-happen" };
    for (size_t i = 0; i < ARRAY_LEN(results); i++) {
        CLEANUP(buf_done) struct buf options = { 0 };
        buf_printf(&options, "%s%s", which, results[i]);
        if (fence)
            buf_printf(&options, " --fence %" PRId64, fence);
        line(out, i ? "or" : "settle");
        where_write_resolve(saga, view, step, buf_cstr(&options), out);
        buf_text(out, "\n");
    }
}

/* Would a resolve be refused now: a worker holds it, or the end says all there is to say? */
static bool is_closed(const Saga__V1__Saga *saga, const Saga__V1__StepStatus *step)
{
    return step->state == SAGA__V1__STEP_STATE__STEP_STATE_LEASED ||
           step->state == SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_LEASED ||
           (saga_state_is_end(saga->state) && !saga->doubt);
}

static void write_step(const Saga__V1__Saga *saga, const Saga__V1__StepStatus *step,
                       const struct where_view *view, struct buf *out)
{
    const Saga__V1__UnknownOutcome *unknown = step->unknown;
    bool undo = unknown->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION;
    buf_text(out, "  unknown  ");
    buf_text(out, undo ? "the compensation of " : "the action of ");
    screen_styled(out, step->name, STYLE_BOLD, view->color);
    buf_text(out, " may have taken effect");
    if (unknown->attempts > 1)
        buf_printf(out, ", in each of %d attempts", unknown->attempts);
    if (step->state == SAGA__V1__STEP_STATE__STEP_STATE_UNCONFIRMED)
        buf_text(out, "; the saga went on with the step unconfirmed");
    buf_text(out, "\n");
    write_attempt(unknown, view, out);
    write_class(unknown, view, out);
    write_probes(step, saga->waiting, view, out);
    if (undo == (step->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION) &&
        *step->idempotency_key) {
        line(out, "key");
        screen_text(out, step->idempotency_key);
        buf_text(out, "\n");
    }
    if (!is_closed(saga, step))
        write_commands(saga, view, step->name, undo ? "--compensation " : "", unknown->fence, out);
}

/* What a person has yet to say although the saga goes on, or has ended. */
static void write_doubt(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    bool told = !saga->doubt;
    for (size_t i = 0; i < saga->n_steps; i++) {
        const Saga__V1__StepStatus *step = saga->steps[i];
        if (step->state == SAGA__V1__STEP_STATE__STEP_STATE_UNCONFIRMED && step->unknown)
            told = true; /* as unknown */
        if (step->state != SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_SKIPPED || !saga->doubt)
            continue;
        told = true;
        buf_text(out, "  doubt    the compensation of ");
        screen_styled(out, step->name, STYLE_BOLD, view->color);
        buf_text(out, " was skipped: was it taken back by hand?\n");
        write_commands(saga, view, step->name, "--compensation ", 0, out);
    }
    if (told)
        return;
    bool parked = saga->park && *saga->park->step;
    buf_text(out, "  doubt    something speaks against what is recorded, or was never confirmed: ");
    where_write_command(saga, view, "history", out);
    buf_text(out, "\n");
    write_commands(saga, view, parked ? saga->park->step : "STEP", "", 0, out);
}

/* Does a step that may have run before only wait for its turn? */
static bool waits_suspect(const Saga__V1__StepStatus *step)
{
    return step->suspect && step->state != SAGA__V1__STEP_STATE__STEP_STATE_UNKNOWN &&
           step->state != SAGA__V1__STEP_STATE__STEP_STATE_UNCONFIRMED;
}

static void write_suspects(const Saga__V1__Saga *saga, struct buf *out)
{
    bool any = false;
    for (size_t i = 0; i < saga->n_steps; i++) {
        if (!waits_suspect(saga->steps[i]))
            continue;
        buf_text(out, any ? ", " : "  suspect  may have run before sagad took over: ");
        screen_text(out, saga->steps[i]->name);
        any = true;
    }
    if (any)
        buf_text(out, "\n");
}

void where_write_unknown(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    for (size_t i = 0; i < saga->n_steps; i++)
        if (saga->steps[i]->unknown && !waits_suspect(saga->steps[i]))
            write_step(saga, saga->steps[i], view, out);
    write_suspects(saga, out);
    write_doubt(saga, view, out);
}
