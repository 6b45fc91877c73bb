/* sagactl wait: until a saga has ended; the exit code tells how. */
#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/names.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum {
    POLL_MS = 60 * 1000, /* one call; its server answers by then */
    CALL_SPARE_MS = 10 * 1000,
};

static const struct ctl_option options[] = {
    CTL_OR_PARKED_OPTION,
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

static int print_saga(const struct ctl *ctl, const Saga__V1__Saga *saga)
{
    if (ctl->json)
        return ctl_print_message(&saga->base);
    CLEANUP(buf_done) struct buf text = { 0 };
    screen_text(&text, saga->definition);
    buf_text(&text, " ");
    screen_text(&text, saga->saga_id);
    buf_printf(&text, " (run %d): ", saga->run);
    screen_styled(&text, name_saga_state(saga->state), style_saga_state(saga->state), ctl->color);
    buf_text(&text, "\n");
    return ctl_print_text(&text);
}

static int64_t left_until(int64_t until)
{
    int64_t left = until - clock_mono_ms(&clock_system);
    return left < 0 ? 0 : left;
}

/* One long poll, of `left` at most. */
static int poll_once(struct ctl *ctl, Saga__V1__SagaRef *ref, bool or_parked, int64_t left,
                     Saga__V1__Saga **ret, struct client_failure *failure, struct err *err)
{
    int64_t poll_ms = left < 1 ? 1 : left < POLL_MS ? left : POLL_MS;
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__WaitSagaRequest request = SAGA__V1__WAIT_SAGA_REQUEST__INIT;
    timeout.seconds = poll_ms / 1000;
    timeout.nanos = (int32_t)(poll_ms % 1000 * 1000000);
    request.saga = ref;
    request.timeout = &timeout;
    request.or_parked = or_parked;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    return ctl_call_quietly(ctl, "/saga.v1.SagaService/WaitSaga", &request.base,
                            &saga__v1__saga__descriptor, poll_ms + CALL_SPARE_MS, ret, failure,
                            err);
}

/* Is the server there, and the saga? What comes after may be a restart, which is waited for. */
static int ask_once(struct ctl *ctl, Saga__V1__SagaRef *ref)
{
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    return ctl_saga_get(ctl, ref, SAGA__V1__SAGA_VIEW__SAGA_VIEW_BASIC, &saga);
}

/* Asks until the saga has ended or the time is over. A server that goes away meanwhile is asked
 * again: the wait outlives its restart. */
static int wait_for(struct ctl *ctl, Saga__V1__SagaRef *ref, bool or_parked, int64_t until)
{
    for (;;) {
        CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
        struct client_failure failure;
        struct err err;
        if (poll_once(ctl, ref, or_parked, left_until(until), &saga, &failure, &err) == 0) {
            int code = ctl_exit_code_of(saga->state, or_parked);
            if (code < 0 && left_until(until) > 0)
                continue;
            int rc = print_saga(ctl, saga);
            return rc != 0 ? rc : code < 0 ? CTL_EXIT_TIME_OVER : code;
        }
        int64_t left = left_until(until);
        bool away = err.code == ERR_UNAVAILABLE;
        int rc = away && left > 0 ? 0 : ctl_print_failure(ctl, &failure);
        client_failure_done(&failure);
        if (rc != 0)
            return away ? CTL_EXIT_TIME_OVER : rc;
        (void)usleep((useconds_t)(left < CTL_LOST_PAUSE_MS ? left : CTL_LOST_PAUSE_MS) * 1000);
    }
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    int64_t until = ctl->timeout_given ? clock_mono_ms(&clock_system) + ctl->timeout_ms : INT64_MAX;
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc == 0)
        rc = ask_once(ctl, &named.ref);
    if (rc != 0)
        return rc;
    return wait_for(ctl, &named.ref, ctl_option(arguments, "or-parked") != NULL, until);
}

const struct ctl_verb verb_wait = {
    "wait",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "wait until a saga has ended; the exit code tells how\n"
    "\n"
    "0 SUCCEEDED, 3 COMPENSATED, 4 PARKED (with --or-parked), 5 ABANDONED, 6 --timeout is over,\n"
    "1 the saga is not there or the server cannot be reached. Without --timeout it waits for ever.",
    run,
};
