/* The verbs on one saga: OperatorService, and CancelSaga. */
#include "rpc/verbs.h"

#include "core/limits.h"
#include "wire/times.h"

/* What is said with a verb on a saga: the step, why, by whom. An absent step is the one that it
 * stands at. */
struct said {
    const char *step;  /* NULL: the verb knows none */
    const char *field; /* what `words` are called */
    const char *words, *actor;
    bool required; /* words */
};

static int read_said(const struct said *from, struct verb_request *ret, struct err *err)
{
    int rc = 0;
    if (from->step) {
        rc = check_text("step", from->step, 0, LIMIT_STEP_NAME_BYTES, err);
        ret->step = or_null(from->step);
    }
    if (!rc && from->required && !*from->words)
        rc = err_field(err, from->field, "%s: required: it is kept in the journal", from->field);
    return rc ? rc : read_words(from->field, from->words, from->actor, ret, err);
}

int verb_read_cancel(const Saga__V1__CancelSagaRequest *request, struct verb_request *ret,
                     struct err *err)
{
    ret->kind = ENGINE_VERB_CANCEL;
    return read_said(&(struct said){ NULL, "reason", request->reason, request->actor, false }, ret,
                     err);
}

int verb_read_retry(const Saga__V1__RetryStepRequest *request, struct verb_request *ret,
                    struct err *err)
{
    ret->kind = ENGINE_VERB_RETRY;
    return read_said(
        &(struct said){ request->step, "reason", request->reason, request->actor, false }, ret,
        err);
}

int verb_read_skip(const Saga__V1__SkipCompensationRequest *request, struct verb_request *ret,
                   struct err *err)
{
    ret->kind = ENGINE_VERB_SKIP;
    return read_said(
        &(struct said){ request->step, "evidence", request->evidence, request->actor, true }, ret,
        err);
}

int verb_read_abandon(const Saga__V1__AbandonSagaRequest *request, struct verb_request *ret,
                      struct err *err)
{
    ret->kind = ENGINE_VERB_ABANDON;
    return read_said(&(struct said){ NULL, "reason", request->reason, request->actor, true }, ret,
                     err);
}

int verb_read_suspend(const Saga__V1__SuspendSagaRequest *request, struct verb_request *ret,
                      struct err *err)
{
    ret->kind = ENGINE_VERB_SUSPEND;
    return read_said(&(struct said){ NULL, "reason", request->reason, request->actor, true }, ret,
                     err);
}

int verb_read_resume(const Saga__V1__ResumeSagaRequest *request, struct verb_request *ret,
                     struct err *err)
{
    ret->kind = ENGINE_VERB_RESUME;
    return read_said(&(struct said){ NULL, "reason", request->reason, request->actor, false }, ret,
                     err);
}

/* The saga first: it is what people look at. */
#define ANSWER(call, read, type)                                                                   \
    do {                                                                                           \
        const type *request = (void *)(call)->request;                                             \
        struct verb_request verb = { .full = true };                                               \
        struct err err;                                                                            \
        int rc = read_ref(request->saga, &verb.ref, &err);                                         \
        if (!rc)                                                                                   \
            rc = read(request, &verb, &err);                                                       \
        answer_verb(call, rc, &verb, &err);                                                        \
    } while (0)

void saga_cancel(struct call *call)
{
    ANSWER(call, verb_read_cancel, Saga__V1__CancelSagaRequest);
}

void operator_retry_step(struct call *call)
{
    ANSWER(call, verb_read_retry, Saga__V1__RetryStepRequest);
}

void operator_skip_compensation(struct call *call)
{
    ANSWER(call, verb_read_skip, Saga__V1__SkipCompensationRequest);
}

void operator_abandon_saga(struct call *call)
{
    ANSWER(call, verb_read_abandon, Saga__V1__AbandonSagaRequest);
}

void operator_suspend_saga(struct call *call)
{
    ANSWER(call, verb_read_suspend, Saga__V1__SuspendSagaRequest);
}

void operator_resume_saga(struct call *call)
{
    ANSWER(call, verb_read_resume, Saga__V1__ResumeSagaRequest);
}

int verb_read_resolve(const Saga__V1__ResolveStepRequest *request, size_t payload_bytes_max,
                      struct verb_request *ret, struct err *err)
{
    ret->kind = ENGINE_VERB_RESOLVE;
    int rc = read_said(
        &(struct said){ request->step, "evidence", request->evidence, request->actor, true }, ret,
        err);
    if (!rc && !ret->step)
        rc = err_field(err, "step", "step: is required");
    if (rc)
        return rc;
    switch (request->operation) {
    case SAGA__V1__OPERATION_KIND__OPERATION_KIND_UNSPECIFIED:
        ret->operation = OPERATION_COUNT;
        break;
    case SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION:
        ret->operation = OPERATION_ACTION;
        break;
    case SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION:
        ret->operation = OPERATION_COMPENSATION;
        break;
    default:
        return err_field(err, "operation", "operation: ACTION or COMPENSATION, not %d",
                         (int)request->operation);
    }
    if (request->result != SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN &&
        request->result != SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_NOT_HAPPEN)
        return err_field(err, "result", "result: required: DID_HAPPEN or DID_NOT_HAPPEN");
    ret->happened = request->result == SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN;
    if (request->output.len > payload_bytes_max)
        return err_field(err, "output", "output: has %zu bytes, the limit is %zu",
                         request->output.len, payload_bytes_max);
    ret->output = (struct bytes){ request->output.data, request->output.len };
    ret->fence = request->fence;
    return 0;
}

void operator_resolve_step(struct call *call)
{
    const Saga__V1__ResolveStepRequest *request = (void *)call->request;
    struct verb_request verb = { .full = true };
    struct err err;
    int rc = read_ref(request->saga, &verb.ref, &err);
    if (!rc)
        rc = verb_read_resolve(request, call->server->payload_bytes_max, &verb, &err);
    answer_verb(call, rc, &verb, &err);
}

/* Absent: as it is. 0 would be taken for that, and is none that any of them may have. */
static int read_span(const char *field, const Google__Protobuf__Duration *message, int64_t *ret,
                     struct err *err)
{
    if (!message)
        return 0;
    if (!duration_is_valid(message) || duration_to_ms(message) <= 0)
        return err_field(err, field, "%s: must be more than 0 s", field);
    *ret = duration_to_ms(message);
    return 0;
}

static int read_new_deadline(const Saga__V1__SetOptionsRequest *request,
                             struct saga_options *options, struct err *err)
{
    switch (request->deadline_case) {
    case SAGA__V1__SET_OPTIONS_REQUEST__DEADLINE__NOT_SET:
        return 0;
    case SAGA__V1__SET_OPTIONS_REQUEST__DEADLINE_NO_DEADLINE:
        options->deadline_ms = 0;
        return request->no_deadline ? 0
                                    : err_field(err, "no_deadline", "no_deadline: true, or absent");
    case SAGA__V1__SET_OPTIONS_REQUEST__DEADLINE_DEADLINE_TIME:
    default:
        break;
    }
    const Google__Protobuf__Timestamp *time = request->deadline_time;
    if (!time || !timestamp_is_valid(time) || time->seconds < 1)
        return err_field(err, "deadline_time", "deadline_time: is no time after 1970");
    options->deadline_ms = time->seconds * 1000 + (time->nanos + 999999) / 1000000;
    return 0;
}

static int read_operation(Saga__V1__OperationKind message, enum operation *ret, struct err *err)
{
    if (message < SAGA__V1__OPERATION_KIND__OPERATION_KIND_UNSPECIFIED ||
        message > SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE)
        return err_field(err, "operation", "operation: ACTION, COMPENSATION or PROBE, not %d",
                         (int)message);
    *ret = message == SAGA__V1__OPERATION_KIND__OPERATION_KIND_UNSPECIFIED
               ? OPERATION_COUNT
               : (enum operation)((int)message - 1);
    return 0;
}

static int read_options(const Saga__V1__SetOptionsRequest *request, struct saga_options *ret,
                        struct err *err)
{
    struct saga_options options = OPTIONS_NONE;
    int rc = read_operation(request->operation, &options.operation, err);
    if (!rc)
        rc = read_span("retry_for", request->retry_for, &options.retry_for_ms, err);
    if (!rc)
        rc = read_span("retry_initial", request->retry_initial, &options.retry_initial_ms, err);
    if (!rc)
        rc = read_span("retry_cap", request->retry_cap, &options.retry_cap_ms, err);
    if (!rc)
        rc = read_span("lease", request->lease, &options.lease_ms, err);
    if (!rc)
        rc = read_new_deadline(request, &options, err);
    if (!rc &&
        request->_max_attempts_case == SAGA__V1__SET_OPTIONS_REQUEST___MAX_ATTEMPTS_MAX_ATTEMPTS) {
        if (request->max_attempts < 0)
            rc = err_field(err, "max_attempts", "max_attempts: must not be negative: %d",
                           request->max_attempts);
        options.max_attempts = request->max_attempts;
    }
    if (!rc)
        *ret = options;
    return rc;
}

int verb_read_options(const Saga__V1__SetOptionsRequest *request, struct verb_request *ret,
                      struct err *err)
{
    ret->kind = ENGINE_VERB_OPTIONS;
    int rc = read_said(
        &(struct said){ request->step, "reason", request->reason, request->actor, true }, ret, err);
    return rc ? rc : read_options(request, &ret->options, err);
}

void operator_set_options(struct call *call)
{
    ANSWER(call, verb_read_options, Saga__V1__SetOptionsRequest);
}
