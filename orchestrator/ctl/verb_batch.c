/* sagactl batch: one verb on every saga that a filter names. */
#include "ctl/batch_text.h"
#include "ctl/ctl.h"
#include "ctl/options_request.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <saga/v1/operator.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SILENCE_MS = 120 * 1000 };
#define LIFE_MS (INT64_C(30) * 24 * 3600 * 1000) /* of a batch, at most */

#define COMMON_OPTIONS                                                                             \
    { "definition", "NAME", false, "only sagas of this definition" },                              \
        { "rate", "N", false, "at most so many a second, e.g. 600 or 0.5 (default: no limit)" },   \
        { "stop-if-failing", "PERCENT", false,                                                     \
          "end it when more of the latest 200 refuse, or are parked again" },                      \
        { "dry-run", NULL, false, "only count the sagas" }, { "yes", NULL, false, "do not ask" },  \
    {                                                                                              \
        NULL, NULL, false, NULL                                                                    \
    }
#define STEP_OPTION                                                                                \
    {                                                                                              \
        "step", "NAME", false, "which step (default: the one that each saga stands at)"            \
    }
#define REASON_OPTION                                                                              \
    {                                                                                              \
        "reason", "TEXT", false, "why; kept in each journal"                                       \
    }

struct batch {
    struct ctl *ctl;
    const char *done; /* "retried" */
    Saga__V1__RunBatchRequest request;
    int64_t expected; /* as counted before */
    struct batch_progress progress;
    Saga__V1__RunBatchResponse last; /* without results and texts */
    char stopped[256], id[64];
};

/* --- one stream ------------------------------------------------------------------------------- */

static int write_result(const struct batch *batch, const Saga__V1__RunBatchResponse__Result *result,
                        struct err *err)
{
    if (batch->ctl->json)
        return batch_result_json(result, err);
    if (result->code)
        batch_result_text(result, batch->progress.shown);
    return 0;
}

static int take_message(struct batch *batch, const Saga__V1__RunBatchResponse *response,
                        struct err *err)
{
    for (size_t i = 0; i < response->n_results; i++)
        if (write_result(batch, response->results[i], err) != 0)
            return (int)err->code;
    batch->last.matched = response->matched;
    batch->last.done = response->done;
    batch->last.refused = response->refused;
    batch->last.finished = response->finished;
    (void)snprintf(batch->stopped, sizeof batch->stopped, "%s", response->stopped);
    (void)snprintf(batch->id, sizeof batch->id, "%s", response->batch_id);
    batch_progress_show(&batch->progress, response, batch->expected, ctl_now_ms());
    return 0;
}

/* Until its end. A server that says nothing for so long is not waited for. */
static int take_all(struct batch *batch, struct client_stream *stream,
                    struct client_failure *failure, struct err *err)
{
    for (;;) {
        CLEANUP(ctl_message_free_p) ProtobufCMessage *message = NULL;
        bool ended = false;
        int rc = client_stream_next(stream, SILENCE_MS, &message, &ended, failure, err);
        if (rc != 0 || ended)
            return rc;
        if (!message)
            return err_set(err, ERR_UNAVAILABLE, "the server has said nothing for %d s",
                           SILENCE_MS / 1000);
        rc = take_message(batch, (void *)message, err);
        if (rc != 0)
            return rc;
    }
}

static int run_stream(struct batch *batch, bool validate_only)
{
    struct ctl *ctl = batch->ctl;
    struct client_failure failure = { .code = 0, .retry_delay_ms = -1 };
    struct client_stream *stream = NULL;
    struct err err;
    batch->request.validate_only = validate_only;
    batch_progress_begin(&batch->progress, validate_only ? "counting" : batch->done, ctl_now_ms());
    int rc = ctl_connect(ctl, &err);
    if (rc == 0)
        rc = client_stream_open(ctl->client, "/saga.v1.OperatorService/RunBatch",
                                &batch->request.base, &saga__v1__run_batch_response__descriptor,
                                LIFE_MS, &stream, &err);
    if (rc == 0)
        rc = take_all(batch, stream, &failure, &err);
    stream = client_stream_free(stream);
    batch_progress_end(&batch->progress);
    if (rc == 0)
        return 0;
    if (!failure.code && !failure.message) /* it is not the call that failed */
        return ctl_print_error(&err);
    int code = ctl_print_failure(ctl, &failure);
    client_failure_done(&failure);
    return code;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int confirm(const struct batch *batch, const struct ctl_arguments *arguments)
{
    if (ctl_option(arguments, "yes"))
        return 0;
    if (!isatty(STDIN_FILENO))
        return ctl_print_misuse(
            "nobody can be asked here: --yes if it is meant, --dry-run to count");
    char answer[16] = "";
    (void)fprintf(stderr, "%" PRId64 " sagas match. %s? [y/N] ", batch->expected,
                  arguments->verb->name + sizeof "batch " - 1);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return 0;
    (void)fputs("sagactl: nothing was done\n", stderr);
    return CTL_EXIT_FAILED;
}

static int print_end(const struct batch *batch)
{
    const Saga__V1__RunBatchResponse *last = &batch->last;
    bool is_good = last->finished && !*batch->stopped && !last->refused;
    if (batch->ctl->json) {
        json_t *end = json_pack("{s:s, s:I, s:I, s:I, s:s, s:b}", "batchId", batch->id, "matched",
                                (json_int_t)last->matched, "done", (json_int_t)last->done,
                                "refused", (json_int_t)last->refused, "stopped", batch->stopped,
                                "finished", (int)last->finished);
        int rc = batch_line_json(end);
        return rc != 0 ? rc : is_good ? 0 : CTL_EXIT_FAILED;
    }
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_printf(&text, "%s: %" PRId64 " of %" PRId64 " sagas, %" PRId64 " refused (batch %s)\n",
               batch->done, last->done, last->matched, last->refused, batch->id);
    if (*batch->stopped) {
        buf_text(&text, "stopped: ");
        screen_text(&text, batch->stopped);
        buf_text(&text, "\n");
    }
    int rc = ctl_print_text(&text);
    return rc != 0 ? rc : is_good ? 0 : CTL_EXIT_FAILED;
}

static int print_count(const struct batch *batch)
{
    if (batch->ctl->json)
        return batch_line_json(json_pack("{s:I}", "matched", (json_int_t)batch->last.matched));
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_printf(&text, "%" PRId64 " sagas match\n", batch->last.matched);
    return ctl_print_text(&text);
}

static int read_common(struct batch *batch, const struct ctl_arguments *arguments, struct err *err)
{
    Saga__V1__RunBatchRequest *request = &batch->request;
    const char *rate = ctl_option(arguments, "rate");
    int64_t percent = 0;
    if (arguments->count)
        request->filter = (char *)arguments->positional[0];
    (void)ctl_take_text(arguments, "definition", &request->definition); /* or every one */
    if (batch->ctl->namespace_)
        request->namespace_ = (char *)batch->ctl->namespace_;
    if (rate) {
        char *end;
        request->rate = strtod(rate, &end);
        if (end == rate || (*end && strcmp(end, "/s") != 0) || !(request->rate > 0))
            return err_set(err, ERR_INVALID,
                           "--rate must be a number of sagas a second, not \"%s\"", rate);
    }
    const char *given = ctl_option(arguments, "stop-if-failing");
    if (given) {
        char *end;
        percent = strtol(given, &end, 10);
        if (end == given || (*end && strcmp(end, "%") != 0) || percent < 1 || percent > 100)
            return err_set(err, ERR_INVALID, "--stop-if-failing must be 1 to 100 %%, not \"%s\"",
                           given);
    }
    request->stop_if_failing_percent = (int32_t)percent;
    return 0;
}

static int run_batch(struct ctl *ctl, const struct ctl_arguments *arguments, const char *done,
                     const Saga__V1__RunBatchRequest *verb)
{
    struct batch batch = { .ctl = ctl, .done = done, .request = *verb };
    struct err err;
    if (read_common(&batch, arguments, &err) != 0)
        return ctl_print_error(&err);
    int rc = run_stream(&batch, true);
    if (rc != 0)
        return rc;
    batch.expected = batch.last.matched;
    if (ctl_option(arguments, "dry-run") || !batch.expected)
        return print_count(&batch);
    rc = confirm(&batch, arguments);
    if (rc != 0)
        return rc;
    batch.last = (Saga__V1__RunBatchResponse){ 0 };
    rc = run_stream(&batch, false);
    int printed = batch.last.finished ? print_end(&batch) : 0;
    return rc != 0 ? rc : printed;
}

/* --- the verbs -------------------------------------------------------------------------------- */

#define BATCH_HELP(what)                                                                           \
    what " every saga that FILTER (as in sagactl list) names\n"                                    \
         "\n"                                                                                      \
         "They are counted first, and you are asked; then they have their turn, the ones that "    \
         "started\n"                                                                               \
         "first first. Each is decided, and kept in its journal, as if it had been named alone. "  \
         "To run it\n"                                                                             \
         "again, also after an interruption, is safe. What refused is listed; -o json prints a "   \
         "line for\n"                                                                              \
         "each saga."

/* A verb with its request as the member `name` of the batch, whose fields `fill` sets. */
#define BATCH_VERB(name, NAME, Type, TYPE, done, what, fill, ...)                                  \
    static const struct ctl_option name##_options[] = { __VA_ARGS__ COMMON_OPTIONS };              \
    static int run_##name(struct ctl *ctl, const struct ctl_arguments *arguments)                  \
    {                                                                                              \
        char actor[CTL_ACTOR_SIZE];                                                                \
        Saga__V1__RunBatchRequest batch = SAGA__V1__RUN_BATCH_REQUEST__INIT;                       \
        Saga__V1__##Type request = SAGA__V1__##TYPE##__INIT;                                       \
        ctl_actor(actor);                                                                          \
        request.actor = actor;                                                                     \
        batch.verb_case = SAGA__V1__RUN_BATCH_REQUEST__VERB_##NAME;                                \
        batch.name = &request;                                                                     \
        int rc = fill(arguments, &request);                                                        \
        return rc != 0 ? rc : run_batch(ctl, arguments, done, &batch);                             \
    }                                                                                              \
    const struct ctl_verb verb_batch_##name = { "batch " #name, "[FILTER]",       0,         1,    \
                                                name##_options, BATCH_HELP(what), run_##name }

static int fill_retry(const struct ctl_arguments *arguments, Saga__V1__RetryStepRequest *request)
{
    (void)ctl_take_text(arguments, "step", &request->step);     /* or not */
    (void)ctl_take_text(arguments, "reason", &request->reason); /* or not */
    return 0;
}

static int fill_cancel(const struct ctl_arguments *arguments, Saga__V1__CancelSagaRequest *request)
{
    (void)ctl_take_text(arguments, "reason", &request->reason); /* or not */
    return 0;
}

static int fill_suspend(const struct ctl_arguments *arguments,
                        Saga__V1__SuspendSagaRequest *request)
{
    return ctl_take_text(arguments, "reason", &request->reason)
               ? 0
               : ctl_print_misuse("batch suspend needs --reason: it is kept in each journal");
}

static int fill_resume(const struct ctl_arguments *arguments, Saga__V1__ResumeSagaRequest *request)
{
    (void)ctl_take_text(arguments, "reason", &request->reason); /* or not */
    return 0;
}

static int fill_abandon(const struct ctl_arguments *arguments,
                        Saga__V1__AbandonSagaRequest *request)
{
    return ctl_take_text(arguments, "reason", &request->reason)
               ? 0
               : ctl_print_misuse("batch abandon needs --reason: it is kept in each journal");
}

static int fill_skip(const struct ctl_arguments *arguments,
                     Saga__V1__SkipCompensationRequest *request)
{
    (void)ctl_take_text(arguments, "step", &request->step); /* or not */
    return ctl_take_text(arguments, "evidence", &request->evidence)
               ? 0
               : ctl_print_misuse("batch skip needs --evidence: why it is not needed");
}

static int fill_resolve(const struct ctl_arguments *arguments,
                        Saga__V1__ResolveStepRequest *request)
{
    bool happened = ctl_option(arguments, "happened") != NULL;
    if (!ctl_take_text(arguments, "step", &request->step))
        return ctl_print_misuse("batch resolve needs --step: which one was looked into");
    if (!ctl_take_text(arguments, "evidence", &request->evidence))
        return ctl_print_misuse("batch resolve needs --evidence: how it was found out");
    if (happened == (ctl_option(arguments, "did-not-happen") != NULL))
        return ctl_print_misuse("batch resolve needs --happened or --did-not-happen");
    request->result = happened ? SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN
                               : SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_NOT_HAPPEN;
    if (ctl_option(arguments, "compensation"))
        request->operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION;
    return 0;
}

#define EVIDENCE_OPTION                                                                            \
    {                                                                                              \
        "evidence", "TEXT", false, "how it was found out; kept in each journal (required)"         \
    }

BATCH_VERB(retry, RETRY, RetryStepRequest, RETRY_STEP_REQUEST, "retried", "try a step again of",
           fill_retry, STEP_OPTION, REASON_OPTION, );
BATCH_VERB(cancel, CANCEL, CancelSagaRequest, CANCEL_SAGA_REQUEST, "cancelled", "turn back",
           fill_cancel, REASON_OPTION, );
BATCH_VERB(suspend, SUSPEND, SuspendSagaRequest, SUSPEND_SAGA_REQUEST, "suspended", "suspend",
           fill_suspend, REASON_OPTION, );
BATCH_VERB(resume, RESUME, ResumeSagaRequest, RESUME_SAGA_REQUEST, "resumed",
           "take on again, if it is suspended,", fill_resume, REASON_OPTION, );
BATCH_VERB(abandon, ABANDON, AbandonSagaRequest, ABANDON_SAGA_REQUEST, "abandoned",
           "end as it stands, if it is parked,", fill_abandon, REASON_OPTION, );
BATCH_VERB(skip, SKIP, SkipCompensationRequest, SKIP_COMPENSATION_REQUEST, "skipped",
           "go on without the compensation that it is parked at:", fill_skip, STEP_OPTION,
           EVIDENCE_OPTION, );
BATCH_VERB(resolve, RESOLVE, ResolveStepRequest, RESOLVE_STEP_REQUEST, "resolved",
           "settle what became of a step of", fill_resolve,
           { "step", "NAME", false, "which step (required)" }, EVIDENCE_OPTION,
           { "happened", NULL, false, "it took effect" },
           { "did-not-happen", NULL, false, "it had no effect" },
           { "compensation", NULL, false, "of its compensation (default: what is unknown)" }, );

static const struct ctl_option set_options_options[] = { OPTIONS_REQUEST_OPTIONS COMMON_OPTIONS };
static int run_set_options(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    char actor[CTL_ACTOR_SIZE];
    struct options_spans spans;
    struct err err;
    Saga__V1__RunBatchRequest batch = SAGA__V1__RUN_BATCH_REQUEST__INIT;
    Saga__V1__SetOptionsRequest request = SAGA__V1__SET_OPTIONS_REQUEST__INIT;
    if (options_request_read(arguments, &spans, &request, &err) != 0)
        return ctl_print_error(&err);
    ctl_actor(actor);
    request.actor = actor;
    batch.verb_case = SAGA__V1__RUN_BATCH_REQUEST__VERB_SET_OPTIONS;
    batch.set_options = &request;
    return run_batch(ctl, arguments, "options set", &batch);
}
const struct ctl_verb verb_batch_set_options = {
    "batch set-options",
    "[FILTER]",
    0,
    1,
    set_options_options,
    BATCH_HELP("gives another deadline, retry budget, back-off or lease to"),
    run_set_options
};
