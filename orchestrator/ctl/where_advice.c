#include "ctl/names.h"
#include "ctl/where_text.h"

#include <inttypes.h>
#include <string.h>

void where_write_command(const Saga__V1__Saga *saga, const struct where_view *view,
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

void where_write_resolve(const Saga__V1__Saga *saga, const struct where_view *view,
                         const char *step, const char *options, struct buf *out)
{
    where_write_command(saga, view, "resolve", out);
    if (step && *step) {
        buf_text(out, " --step ");
        screen_shell_word(out, step);
    }
    buf_printf(out, " %s --evidence ...", options);
}

/* What ends the wait for a person, by what it is parked for. */
struct way {
    Saga__V1__ParkReason reason;
    const char *verb;
    const char *why; /* resolve: what else could be done */
};

#define REASON(name) SAGA__V1__PARK_REASON__PARK_REASON_##name

/* Parked while the steps went forward. */
static const struct way forward[] = {
    { REASON(RETRIES_EXHAUSTED), "retry", "go on; or sagactl cancel: turn back" },
    { REASON(DEADLINE_EXCEEDED), "retry", "go on; or sagactl cancel: turn back" },
    { REASON(WORKER_KILLER), "retry", "once the worker is mended; or sagactl cancel: turn back" },
    { REASON(OUTCOME_UNKNOWN), "resolve", "; or sagactl cancel: turn back" },
    { REASON(IDEMPOTENCY_WINDOW_OVER), "resolve", "; or sagactl cancel: turn back" },
    { REASON(FOREIGN_EFFECT), "resolve", "; or sagactl cancel: turn back" },
    { REASON(LATE_EFFECT), "resolve", "; or sagactl cancel: turn back" },
    { REASON(SUSPENDED), "resume", "go on as its journal then says; or sagactl cancel: turn back" },
    { 0, "cancel", "turn back: what was done or may have been done is compensated" },
};

/* After the pivot: nor is anything taken back. */
static const struct way past_pivot[] = {
    { REASON(RETRIES_EXHAUSTED), "retry", "once what stands in its way is mended" },
    { REASON(DEADLINE_EXCEEDED), "retry", "go on" },
    { REASON(REJECTED_AFTER_PIVOT), "retry", "once the other side takes it" },
    { REASON(WORKER_KILLER), "retry", "once the worker is mended" },
    { REASON(OUTCOME_UNKNOWN), "resolve", "" },
    { REASON(IDEMPOTENCY_WINDOW_OVER), "resolve", "" },
    { REASON(FOREIGN_EFFECT), "resolve", "" },
    { REASON(LATE_EFFECT), "resolve", "" },
    { REASON(SUSPENDED), "resume", "go on as its journal then says" },
    { 0, "abandon", "as it stands: what was done stays done" },
};

/* Parked while compensating: a cancel is no way out. */
static const struct way backward[] = {
    { REASON(COMPENSATION_FAILED), "retry",
      "once what stands in its way is mended; or sagactl skip: go on without it" },
    { REASON(RETRIES_EXHAUSTED), "retry",
      "once what stands in its way is mended; or sagactl skip: go on without it" },
    { REASON(WORKER_KILLER), "retry",
      "once what stands in its way is mended; or sagactl skip: go on without it" },
    { REASON(OUTCOME_UNKNOWN), "resolve", "; or sagactl skip: go on without it" },
    { REASON(IDEMPOTENCY_WINDOW_OVER), "resolve", "; or sagactl skip: go on without it" },
    { REASON(FOREIGN_EFFECT), "resolve", "; or sagactl skip: go on without it" },
    { REASON(LATE_EFFECT), "resolve", "; or sagactl skip: go on without it" },
    { REASON(SUSPENDED), "resume", "go on taking back, as its journal then says" },
    { 0, "history", "its journal: compare it with the other side" },
};

static const struct way *way_out(const Saga__V1__Saga *saga)
{
    Saga__V1__ParkReason reason = saga->park ? saga->park->reason : 0;
    const struct way *way = saga->phase == SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING ? backward
                            : saga->past_pivot ? past_pivot
                                               : forward;
    while (way->reason && way->reason != reason)
        way++;
    return way;
}

static void advise(const Saga__V1__Saga *saga, const struct where_view *view, const char *verb,
                   const char *why, struct buf *out)
{
    where_write_command(saga, view, verb, out);
    buf_printf(out, "   (%s)", why);
}

/* Of the step that it is parked at; and of which attempt, if that is unknown. */
static void write_resolve(const Saga__V1__Saga *saga, const struct where_view *view,
                          struct buf *out)
{
    const char *step = saga->park ? saga->park->step : NULL;
    CLEANUP(buf_done) struct buf options = { 0 };
    buf_text(&options, "--happened");
    for (size_t i = 0; step && i < saga->n_steps; i++)
        if (saga->steps[i]->unknown && strcmp(saga->steps[i]->name, step) == 0)
            buf_printf(&options, " --fence %" PRId64, saga->steps[i]->unknown->fence);
    where_write_resolve(saga, view, step, buf_cstr(&options), out);
}

void where_write_settling(const Saga__V1__Saga *saga, const struct where_view *view,
                          struct buf *out)
{
    const struct way *way = way_out(saga);
    if (strcmp(way->verb, "resolve") == 0)
        write_resolve(saga, view, out);
    else
        where_write_command(saga, view, way->verb, out);
}

/* Was the step that it is parked at probed? Then a retry asks again. */
static bool is_probed(const Saga__V1__Saga *saga)
{
    for (size_t i = 0; saga->park && i < saga->n_steps; i++)
        if (strcmp(saga->steps[i]->name, saga->park->step) == 0)
            return saga->steps[i]->unknown && saga->steps[i]->unknown->probes > 0;
    return false;
}

static void advise_person(const Saga__V1__Saga *saga, const struct where_view *view,
                          struct buf *out)
{
    const struct way *way = way_out(saga);
    where_write_settling(saga, view, out);
    if (strcmp(way->verb, "resolve") == 0) /* what a person has to find out; one call settles it */
        buf_printf(out, "   (or --did-not-happen: look it up at the other side by its key%s%s)",
                   is_probed(saga) ? "; or sagactl retry: probe again" : "", way->why);
    else if (saga->park && where_lacks_signal(saga->park->error))
        buf_printf(out, "   (wait for it anew; when the signal comes, it goes on by itself%s)",
                   saga->past_pivot ? "" : "; or sagactl cancel: turn back");
    else
        buf_printf(out, "   (%s)", way->why);
}

void where_write_advice(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    const Saga__V1__Waiting *waiting = saga->waiting;
    switch (waiting ? waiting->kind : SAGA__V1__WAIT_KIND__WAIT_KIND_UNSPECIFIED) {
    case SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER:
        if (waiting->brake && waiting->brake->hold) {
            buf_text(out, "sagactl handler release ");
            screen_shell_word(out, waiting->handler);
            buf_text(out, "   (--rate 600/s: gradually)");
        } else if (waiting->brake) {
            buf_text(out, "sagactl handler list ");
            screen_shell_word(out, waiting->handler);
            buf_text(out, "   (it goes on by itself, in its turn)");
        } else if (waiting->workers_connected == 0 && waiting->n_served_by) {
            advise(saga, view, "wait", "a server that has workers for it takes it by itself", out);
        } else if (waiting->workers_connected == 0) {
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
    case SAGA__V1__WAIT_KIND__WAIT_KIND_DELAY:
        advise(saga, view, "wait", "it goes on by itself", out);
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_SIGNAL:
        where_write_command(saga, view, "signal", out);
        buf_text(out, " ");
        screen_shell_word(out, waiting->signal);
        buf_text(out, " --id ...   (in place of who would send it)");
        break;
    case SAGA__V1__WAIT_KIND__WAIT_KIND_OPERATOR:
        advise_person(saga, view, out);
        break;
    default:
        if (!saga_state_is_end(saga->state))
            advise(saga, view, "history", "its journal", out);
        break;
    }
}
