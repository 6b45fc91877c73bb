/* sagactl watch: a saga's changes as they happen, until it has ended; the exit code tells how. */
#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/ctl_payload.h"
#include "ctl/verbs.h"
#include "ctl/watch_text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    EXIT_INTERRUPTED = 130,
    SILENCE_MS = 75 * 1000, /* the server says something every 30 s: it is gone */
    TOKEN_SIZE = 257,
};

static const struct ctl_option options[] = {
    CTL_OR_PARKED_OPTION,
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

struct watch {
    struct ctl *ctl;
    const char *uid; /* of the run that was found first, whatever comes after it */
    bool or_parked;
    int64_t until;
    struct revision_types *types; /* of its revision */
    Saga__V1__Saga *last;         /* that was shown; NULL: none yet */
    char token[TOKEN_SIZE];       /* of the last message, for a stream that goes on */
    int exit_code;                /* -1: it goes on */
};

/* Nothing is to be tidied up: what was printed has been flushed. */
static void on_interrupt(int signal_number)
{
    (void)signal_number;
    _exit(EXIT_INTERRUPTED);
}

static int64_t left_until(int64_t until)
{
    int64_t left = until - clock_mono_ms(&clock_system);
    return left < 0 ? 0 : left;
}

static int show(struct watch *watch, const Saga__V1__Saga *saga)
{
    if (watch->ctl->json) {
        json_t *value;
        struct err err;
        return ctl_saga_json(saga, watch->types, &value, &err) == 0 ? ctl_print_json_line(value)
                                                                    : ctl_print_error(&err);
    }
    const struct where_view view = ctl_where_view(watch->ctl);
    CLEANUP(buf_done) struct buf text = { 0 };
    watch_write(watch->last, saga, &view, &text);
    return ctl_print_text(&text);
}

/* Takes the saga out of the message. */
static void take(struct watch *watch, Saga__V1__WatchSagaResponse *message)
{
    Saga__V1__Saga *saga = TAKE(message->saga);
    int rc = 0;
    if (!message->unchanged || !watch->last)
        rc = show(watch, saga);
    watch->exit_code = rc ? rc : ctl_exit_code_of(saga->state, watch->or_parked);
    (void)snprintf(watch->token, sizeof watch->token, "%s", message->resume_token);
    ctl_message_free_p(&watch->last);
    watch->last = saga;
}

static int open_stream(struct watch *watch, struct client_stream **ret, struct err *err)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__WatchSagaRequest request = SAGA__V1__WATCH_SAGA_REQUEST__INIT;
    ref.uid = (char *)watch->uid;
    request.saga = &ref;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    request.resume_token = watch->token;
    return client_stream_open(watch->ctl->client, "/saga.v1.SagaService/WatchSaga", &request.base,
                              &saga__v1__watch_saga_response__descriptor, left_until(watch->until),
                              ret, err);
}

/* Reads on until the saga rests, the time is over or the stream has broken. */
static int read_stream(struct watch *watch, struct client_stream *stream,
                       struct client_failure *failure, struct err *err)
{
    bool ended = false;
    while (watch->exit_code < 0 && !ended) {
        CLEANUP(ctl_message_free_p) Saga__V1__WatchSagaResponse *message = NULL;
        ProtobufCMessage *next;
        if (client_stream_next(stream, SILENCE_MS, &next, &ended, failure, err) != 0)
            return (int)err->code;
        message = (Saga__V1__WatchSagaResponse *)next;
        if (!message)
            break; /* silence, or an end although it goes on: another stream */
        if (message->saga)
            take(watch, message);
    }
    return 0;
}

static int watch_once(struct watch *watch, struct client_failure *failure, struct err *err)
{
    struct client_stream *stream = NULL;
    if (open_stream(watch, &stream, err) != 0) {
        *failure = (struct client_failure){ .code = -1, .retry_delay_ms = -1 };
        failure->message = mem_strdup(err->msg); /* NULL: out of memory, as its header says */
        return (int)err->code;
    }
    int rc = read_stream(watch, stream, failure, err);
    (void)client_stream_free(stream); /* always NULL */
    return rc;
}

/* A server that goes away meanwhile is asked again: the watch outlives its restart, and goes on
 * where it was. */
static int watch_on(struct watch *watch)
{
    while (watch->exit_code < 0 && left_until(watch->until) > 0) {
        struct client_failure failure = { 0 };
        struct err err;
        int rc = watch_once(watch, &failure, &err);
        if (rc != 0 && err.code != ERR_UNAVAILABLE)
            watch->exit_code = ctl_print_failure(watch->ctl, &failure);
        if (rc != 0)
            client_failure_done(&failure);
        int64_t left = left_until(watch->until);
        if (watch->exit_code < 0)
            (void)usleep((useconds_t)(left < CTL_LOST_PAUSE_MS ? left : CTL_LOST_PAUSE_MS) * 1000);
    }
    return watch->exit_code < 0 ? CTL_EXIT_TIME_OVER : watch->exit_code;
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *first = NULL;
    const struct sigaction interrupt = { .sa_handler = on_interrupt };
    struct watch watch = {
        .ctl = ctl,
        .or_parked = ctl_option(arguments, "or-parked") != NULL,
        .until = ctl->timeout_given ? clock_mono_ms(&clock_system) + ctl->timeout_ms : INT64_MAX,
        .exit_code = -1,
    };
    (void)sigaction(SIGINT, &interrupt, NULL); /* a signal that exists */
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc == 0)
        rc = ctl_saga_get(ctl, &named.ref, SAGA__V1__SAGA_VIEW__SAGA_VIEW_BASIC, &first);
    if (rc != 0)
        return rc;
    watch.uid = first->uid;
    watch.types = ctl->json ? ctl_types_of_saga(ctl, first) : NULL;
    rc = watch_on(&watch);
    ctl_message_free_p(&watch.last);
    watch.types = revision_types_free(watch.types);
    return rc;
}

const struct ctl_verb verb_watch = {
    "watch",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "a saga as it is, then what changes as it happens, until it has ended\n"
    "\n"
    "Lines as where has them; with -o json the whole saga, one object a line. Goes on by itself "
    "when\n"
    "the server goes away. The exit code is that of wait: 0 SUCCEEDED, 3 COMPENSATED, 4 PARKED "
    "(with\n"
    "--or-parked), 5 ABANDONED, 6 --timeout is over, 1 the saga is not there or the server cannot "
    "be\n"
    "reached at first; Ctrl-C: 130.",
    run,
};
