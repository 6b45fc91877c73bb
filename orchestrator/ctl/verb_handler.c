/* sagactl handler list, hold, release, cap, rate, breaker. */
#include "ctl/ctl.h"
#include "ctl/handler_text.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"
#include "wire/times.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tell(struct ctl *ctl, const char *method, const ProtobufCMessage *request)
{
    CLEANUP(ctl_message_free_p) Saga__V1__Handler *handler = NULL;
    CLEANUP(buf_done) struct buf text = { 0 };
    int rc = ctl_call(ctl, method, request, &saga__v1__handler__descriptor, &handler);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&handler->base);
    const struct where_view view = ctl_where_view(ctl);
    handler_write_state(handler, &view, &text);
    buf_text(&text, "\n");
    return ctl_print_text(&text);
}

/* "600/s", "600", "30/m", "10/h", "off" */
static bool read_rate(const char *text, Saga__V1__Rate *ret)
{
    static const struct {
        const char *unit;
        int32_t seconds;
    } units[] = { { "", 1 }, { "/s", 1 }, { "/m", 60 }, { "/min", 60 }, { "/h", 3600 } };
    char *end = NULL;
    errno = 0;
    ret->tasks = strcmp(text, "off") == 0 ? (end = "", 0) : strtoll(text, &end, 10);
    if (end == text || errno || ret->tasks < 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (strcmp(end, units[i].unit) == 0) {
            ret->seconds = units[i].seconds;
            return true;
        }
    return false;
}

static int misuse_rate(const char *text)
{
    CLEANUP(buf_done) struct buf what = { 0 };
    buf_text(&what, "a rate is written 600/s, 30/m or 10/h, not ");
    screen_text(&what, text);
    return ctl_print_misuse(buf_cstr(&what));
}

/* --- list ------------------------------------------------------------------------------------- */

static const struct ctl_option list_options[] = {
    { "held", NULL, false, "only those that are held or released gradually" },
    { NULL, NULL, false, NULL },
};

static int run_list(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__ListHandlersRequest request = SAGA__V1__LIST_HANDLERS_REQUEST__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__ListHandlersResponse *handlers = NULL;
    CLEANUP(buf_done) struct buf text = { 0 };
    if (arguments->count)
        request.handler = (char *)arguments->positional[0];
    request.braked = ctl_option(arguments, "held") != NULL;
    int rc = ctl_call(ctl, "/saga.v1.OperatorService/ListHandlers", &request.base,
                      &saga__v1__list_handlers_response__descriptor, &handlers);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&handlers->base);
    const struct where_view view = ctl_where_view(ctl);
    handlers_write(handlers, &view, &text);
    if (handlers->more)
        (void)fputs("sagactl: there are more handlers than these\n", stderr);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_handler_list = {
    "handler list",
    "[HANDLER]",
    0,
    1,
    list_options,
    "what handlers are held or limited, how much waits for each, since when, and how long it "
    "takes\n"
    "\n"
    "WAITING counts what waits in the memory of the servers and what waits in the database alone; "
    "~:\n"
    "an estimate. ABOUT LEFT is how long that takes at the rate that is in force.",
    run_list,
};

/* --- hold, release ---------------------------------------------------------------------------- */

static const struct ctl_option hold_options[] = {
    { "reason", "TEXT", false, "why; whoever finds it held sees it (required)" },
    { NULL, NULL, false, NULL },
};

static int run_hold(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__HoldHandlerRequest request = SAGA__V1__HOLD_HANDLER_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    ctl_actor(actor);
    request.handler = (char *)arguments->positional[0];
    request.actor = actor;
    if (!ctl_take_text(arguments, "reason", &request.reason))
        return ctl_print_misuse(
            "handler hold needs --reason: whoever finds it held wants to know why");
    return tell(ctl, "/saga.v1.OperatorService/HoldHandler", &request.base);
}

const struct ctl_verb verb_handler_hold = {
    "handler hold",
    "HANDLER",
    1,
    1,
    hold_options,
    "grant nothing more of a handler until it is released; what waits for it loses nothing\n"
    "\n"
    "It burns no try, no retry budget, no start time-out and no deadline. Tasks that workers have "
    "go\n"
    "on, and are recorded.",
    run_hold,
};

static const struct ctl_option release_options[] = {
    { "rate", "N/s", false,
      "no faster than that, until what waited is through (default: at once)" },
    { "reason", "TEXT", false, "why" },
    { NULL, NULL, false, NULL },
};

static int run_release(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__ReleaseHandlerRequest request = SAGA__V1__RELEASE_HANDLER_REQUEST__INIT;
    Saga__V1__Rate rate = SAGA__V1__RATE__INIT;
    const char *given = ctl_option(arguments, "rate");
    char actor[CTL_ACTOR_SIZE];
    ctl_actor(actor);
    request.handler = (char *)arguments->positional[0];
    request.actor = actor;
    (void)ctl_take_text(arguments, "reason", &request.reason); /* it need not be given */
    if (given && (!read_rate(given, &rate) || !rate.tasks))
        return misuse_rate(given);
    if (given)
        request.rate = &rate;
    return tell(ctl, "/saga.v1.OperatorService/ReleaseHandler", &request.base);
}

const struct ctl_verb verb_handler_release = {
    "handler release",
    "HANDLER",
    1,
    1,
    release_options,
    "let a held handler go on, those first who have waited longest\n"
    "\n"
    "With --rate the other side is not knocked over by all that has piled up; the rate is gone by "
    "itself\n"
    "once nothing waits any more. Asked again, it is another rate.",
    run_release,
};

/* --- limits ----------------------------------------------------------------------------------- */

static const struct ctl_option limit_options[] = {
    { "reason", "TEXT", false, "why" },
    { NULL, NULL, false, NULL },
};

static int limit(struct ctl *ctl, const struct ctl_arguments *arguments,
                 Saga__V1__SetHandlerLimitsRequest *request)
{
    char actor[CTL_ACTOR_SIZE];
    ctl_actor(actor);
    request->handler = (char *)arguments->positional[0];
    request->actor = actor;
    (void)ctl_take_text(arguments, "reason", &request->reason); /* it need not be given */
    return tell(ctl, "/saga.v1.OperatorService/SetHandlerLimits", &request->base);
}

/* false: it is no number in that range. */
static bool read_number(const char *text, long most, int32_t *ret)
{
    char *end = NULL;
    errno = 0;
    long value = strcmp(text, "off") == 0 ? (end = "", 0) : strtol(text, &end, 10);
    if (end == text || *end || errno || value < 0 || value > most)
        return false;
    *ret = (int32_t)value;
    return true;
}

static int run_cap(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__SetHandlerLimitsRequest request = SAGA__V1__SET_HANDLER_LIMITS_REQUEST__INIT;
    request._cap_case = SAGA__V1__SET_HANDLER_LIMITS_REQUEST___CAP_CAP;
    if (!read_number(arguments->positional[1], 1000000, &request.cap))
        return ctl_print_misuse("handler cap needs a number of tasks at a time, or off");
    return limit(ctl, arguments, &request);
}

static int run_rate(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__SetHandlerLimitsRequest request = SAGA__V1__SET_HANDLER_LIMITS_REQUEST__INIT;
    Saga__V1__Rate rate = SAGA__V1__RATE__INIT;
    if (!read_rate(arguments->positional[1], &rate))
        return misuse_rate(arguments->positional[1]);
    request.rate = &rate;
    return limit(ctl, arguments, &request);
}

const struct ctl_verb verb_handler_cap = {
    "handler cap",
    "HANDLER N|off",
    2,
    2,
    limit_options,
    "so many tasks of a handler at a time, of all servers together, for good\n"
    "\n"
    "Shared out among the servers that have workers for it, at least one each.",
    run_cap,
};

const struct ctl_verb verb_handler_rate = {
    "handler rate",
    "HANDLER N/s|off",
    2,
    2,
    limit_options,
    "so many tasks of a handler a second, of all servers together, for good\n"
    "\n"
    "Waiting for it counts as any wait does: for the start time-out, the retry budget and the\n"
    "deadline. To let what piled up go gradually: sagactl handler release --rate.",
    run_rate,
};

static const struct ctl_option breaker_options[] = {
    { "trial", "TIME", false, "while it holds, one task every so often (default 10s)" },
    { "successes", "N", false, "of trials in a row, that release it (default 3)" },
    { "reason", "TEXT", false, "why" },
    { NULL, NULL, false, NULL },
};

static int run_breaker(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__SetHandlerLimitsRequest request = SAGA__V1__SET_HANDLER_LIMITS_REQUEST__INIT;
    Saga__V1__Breaker breaker = SAGA__V1__BREAKER__INIT;
    Google__Protobuf__Duration interval = GOOGLE__PROTOBUF__DURATION__INIT;
    const char *trial = ctl_option(arguments, "trial");
    int64_t trial_ms = 0, successes = 0;
    struct err err;
    if (!read_number(arguments->positional[1], 10000, &breaker.failures))
        return ctl_print_misuse("handler breaker needs a number of failures in a row, or off");
    if (trial && !ctl_duration(trial, &trial_ms))
        return ctl_print_misuse("--trial needs a time such as 10s");
    if (ctl_option_number(arguments, "successes", 1, 1000, 0, &successes, &err))
        return ctl_print_error(&err);
    breaker.successes = (int32_t)successes;
    if (trial) {
        duration_from_ms(trial_ms, &interval);
        breaker.trial_interval = &interval;
    }
    request.breaker = &breaker;
    return limit(ctl, arguments, &request);
}

const struct ctl_verb verb_handler_breaker = {
    "handler breaker",
    "HANDLER N|off",
    2,
    2,
    breaker_options,
    "hold a handler by itself after so many failures in a row (20 is a good number)\n"
    "\n"
    "A failure is UNKNOWN, RETRY, or a time-out of the attempt; a worker that is lost is none. "
    "While it\n"
    "holds, one task is tried every 10 seconds; three that succeed release it, and so does "
    "sagactl\n"
    "handler release. Not for a handler that says RETRY to mean \"not yet\".",
    run_breaker,
};
