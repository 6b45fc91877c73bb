#include "ctl/names.h"
#include "ctl/where_text.h"

#include <string.h>

/* "sagactl [--address A] [--namespace N] VERB DEFINITION KEY" */
static void write_command(const Saga__V1__Saga *saga, const struct where_view *view,
                          const char *verb, struct buf *out)
{
    buf_text(out, "sagactl");
    if (view->address) {
        buf_text(out, " --address ");
        screen_shell_word(out, view->address);
    }
    if (strcmp(saga->namespace_, "default") != 0) {
        buf_text(out, " --namespace ");
        screen_shell_word(out, saga->namespace_);
    }
    buf_printf(out, " %s ", verb);
    if (saga->definition[0] == '-' || saga->saga_id[0] == '-')
        buf_text(out, "-- ");
    screen_shell_word(out, saga->definition);
    buf_text(out, " ");
    screen_shell_word(out, saga->saga_id);
}

static void advise(const Saga__V1__Saga *saga, const struct where_view *view, const char *verb,
                   const char *why, struct buf *out)
{
    write_command(saga, view, verb, out);
    buf_printf(out, "   (%s)", why);
}

/* What a person has to find out; then one call settles it. */
static void advise_resolve(const Saga__V1__Saga *saga, const struct where_view *view,
                           const char *instead, struct buf *out)
{
    write_command(saga, view, "resolve", out);
    if (saga->park && saga->park->step && *saga->park->step) {
        buf_text(out, " --step ");
        screen_shell_word(out, saga->park->step);
    }
    buf_printf(out,
               " --happened --evidence ...   (or --did-not-happen: look it up at the other side"
               " by its key%s)",
               instead);
}

/* Parked while the steps went forward. */
static void advise_forward(const Saga__V1__Saga *saga, const struct where_view *view,
                           struct buf *out)
{
    switch (saga->park ? saga->park->reason : 0) {
    case SAGA__V1__PARK_REASON__PARK_REASON_RETRIES_EXHAUSTED:
    case SAGA__V1__PARK_REASON__PARK_REASON_DEADLINE_EXCEEDED:
        advise(saga, view, "retry", "go on; or sagactl cancel: turn back", out);
        return;
    case SAGA__V1__PARK_REASON__PARK_REASON_WORKER_KILLER:
        advise(saga, view, "retry", "once the worker is mended; or sagactl cancel: turn back", out);
        return;
    case SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN:
    case SAGA__V1__PARK_REASON__PARK_REASON_FOREIGN_EFFECT:
    case SAGA__V1__PARK_REASON__PARK_REASON_LATE_EFFECT:
        advise_resolve(saga, view, "; or sagactl cancel: turn back", out);
        return;
    default:
        advise(saga, view, "cancel",
               "turn back: what was done or may have been done is compensated", out);
        return;
    }
}

/* Parked while compensating: a cancel is no way out. */
static void advise_backward(const Saga__V1__Saga *saga, const struct where_view *view,
                            struct buf *out)
{
    switch (saga->park ? saga->park->reason : 0) {
    case SAGA__V1__PARK_REASON__PARK_REASON_COMPENSATION_FAILED:
    case SAGA__V1__PARK_REASON__PARK_REASON_RETRIES_EXHAUSTED:
    case SAGA__V1__PARK_REASON__PARK_REASON_WORKER_KILLER:
        advise(saga, view, "retry",
               "once what stands in its way is mended; or sagactl skip: go on without it", out);
        return;
    case SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN:
    case SAGA__V1__PARK_REASON__PARK_REASON_FOREIGN_EFFECT:
    case SAGA__V1__PARK_REASON__PARK_REASON_LATE_EFFECT:
        advise_resolve(saga, view, "; or sagactl skip: go on without it", out);
        return;
    default:
        buf_text(out, "compare its journal with the other side: ");
        write_command(saga, view, "history", out);
        return;
    }
}

void where_write_advice(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    const Saga__V1__Waiting *waiting = saga->waiting;
    switch (waiting ? waiting->kind : SAGA__V1__WAIT_KIND__WAIT_KIND_UNSPECIFIED) {
    case SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER:
        if (waiting->workers_connected == 0) {
            buf_text(out, "start a worker that serves ");
            screen_text(out, waiting->handler);
        } else {
            buf_text(out, "all workers that serve ");
            screen_text(out, waiting->handler);
            buf_text(out, " are busy: sagactl status shows their slots");
        }
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_RETRY:
        advise(saga, view, "retry", "now instead of then", out);
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_REPORT:
    case SAGA__V1__WAIT_KIND__WAIT_KIND_SETTLE:
        advise(saga, view, "wait", "it goes on by itself", out);
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_OPERATOR:
        if (saga->phase == SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING)
            advise_backward(saga, view, out);
        else
            advise_forward(saga, view, out);
        break;
    default:
        if (!saga_state_is_end(saga->state))
            advise(saga, view, "history", "its journal", out);
        break;
    }
}
