/* The rig's calls of the API. */
#include "base/buf.h"
#include "base/mem.h"
#include "support/raw_stream.h"
#include "support/rig.h"
#include "wire/json.h"

#include <grpc/health/v1/health.pb-c.h>
#include <stdio.h>

enum { BATCH = 500, DEFINITION_BYTES_MAX = 256 * 1024 };

ProtobufCMessage *rig_call(struct rig *rig, const char *method, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *reply_type,
                           struct client_failure *ret_failure)
{
    char path[128];
    ProtobufCMessage *reply = NULL;
    struct err err;
    (void)snprintf(path, sizeof path, "/saga.v1.%s", method);
    int rc = client_call_explained(rig->client, path, request, reply_type, RIG_CALL_MS, &reply,
                                   ret_failure, &err);
    if (rc != 0 && !ret_failure)
        fail_msg("%s: %s: %s %s", method, err_code_name(err.code), err.reason, err.msg);
    return rc == 0 ? reply : NULL;
}

/* --- definitions ------------------------------------------------------------------------------ */

Saga__V1__RegisterDefinitionResponse *rig_register(struct rig *rig, const char *json,
                                                   struct client_failure *ret_failure)
{
    ProtobufCMessage *request = NULL;
    struct err err;
    if (wire_json_decode(json, strlen(json), &saga__v1__register_definition_request__descriptor,
                         &request, &err) != 0)
        fail_msg("%s\n%s", err.msg, json);
    ProtobufCMessage *reply =
        rig_call(rig, "DefinitionService/RegisterDefinition", request,
                 &saga__v1__register_definition_response__descriptor, ret_failure);
    protobuf_c_message_free_unpacked(request, NULL);
    return (Saga__V1__RegisterDefinitionResponse *)reply;
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* "key=value" of an operation; retry's own go to `retry`. */
static void write_setting(const char *word, struct buf *out, struct buf *retry)
{
    static const char *const of_retry[] = { "for=", "initial=", "cap=", "max_attempts=" };
    const char *value = strchr(word, '=');
    assert_non_null(value);
    int name_size = (int)(value++ - word);
    for (size_t i = 0; i < ARRAY_LEN(of_retry); i++) {
        if (!has_prefix(word, of_retry[i]))
            continue;
        const char *quote = i == 3 ? "" : "\"";
        buf_printf(retry, ",\"%.*s\":%s%s%s", name_size, word, quote, value, quote);
        return;
    }
    if (has_prefix(word, "lost_leases_max=") || has_prefix(word, "max_running=")) {
        buf_printf(out, ",\"%.*s\":%s", name_size, word, value);
        return;
    }
    const char *kind = has_prefix(word, "on_unknown=")     ? "ON_UNKNOWN_"
                       : has_prefix(word, "on_exhausted=") ? "ON_EXHAUSTED_"
                       : has_prefix(word, "on_deadline=")  ? "ON_DEADLINE_"
                       : has_prefix(word, "publish=")      ? "PUBLISH_"
                                                           : "";
    buf_printf(out, ",\"%.*s\":\"%s%s\"", name_size, word, kind, value);
}

/* The words of an operation, and what is given where they say nothing. */
struct written {
    struct buf settings, retry;
    bool handler, lease, initial, cap;
};

static void write_word(struct written *written, const char *word)
{
    written->handler |= has_prefix(word, "handler=");
    written->lease |= has_prefix(word, "lease=");
    written->initial |= has_prefix(word, "initial=");
    written->cap |= has_prefix(word, "cap=");
    write_setting(word, &written->settings, &written->retry);
}

static void write_rest(struct written *written, const char *default_handler, struct buf *out)
{
    if (!written->handler)
        buf_printf(&written->settings, ",\"handler\":\"%s\"", default_handler);
    if (!written->lease)
        buf_text(&written->settings, ",\"lease\":\"5s\"");
    if (!written->initial)
        buf_text(&written->retry, ",\"initial\":\"0.05s\"");
    if (!written->cap && !written->initial)
        buf_text(&written->retry, ",\"cap\":\"0.2s\"");
    buf_printf(out, "%s,\"retry\":{%s}", buf_cstr(&written->settings),
               buf_cstr(&written->retry) + 1);
    buf_done(&written->settings);
    buf_done(&written->retry);
}

static void write_operation(const char *field, const char *default_handler, char *text,
                            struct buf *out)
{
    struct written operation = { 0 }, probe = { 0 };
    const char *effect = NULL;
    bool probed = false;
    for (char *word; (word = strsep(&text, " "));) {
        if (!*word)
            continue;
        if (!effect) {
            effect = strcmp(word, "ONCE") == 0 ? "AT_MOST_ONCE" : word;
            probed = strcmp(word, "PROBED") == 0;
        } else if (strcmp(word, "probe") == 0) {
            probed = true;
        } else if (strcmp(word, "fresh_key") == 0) {
            buf_text(&operation.settings, ",\"fresh_key_after_not_done\":true");
        } else if (has_prefix(word, "probe_")) {
            write_word(&probe, word + strlen("probe_"));
        } else {
            write_word(&operation, word);
        }
    }
    assert_non_null(effect);
    buf_printf(out, ",\"%s\":{\"effect\":\"EFFECT_%s\"", field, effect);
    write_rest(&operation, default_handler, out);
    CLEANUP(buf_done) struct buf json = { 0 };
    write_rest(&probe, "probe", &json);
    if (probed)
        buf_printf(out, ",\"probe\":{%s}", buf_cstr(&json) + 1);
    buf_text(out, "}");
}

/* "a,b": those steps; "-": none. */
static void write_after(const char *names, struct buf *out)
{
    if (*names == '-') {
        buf_text(out, ",\"atStart\":true");
        return;
    }
    buf_text(out, ",\"after\":[");
    for (int size; (size = (int)strcspn(names, ", ")) > 0; names += size + (names[size] == ','))
        buf_printf(out, "%s\"%.*s\"", out->data[out->size - 1] == '[' ? "" : ",", size, names);
    buf_text(out, "]");
}

/* "WAIT timeout=2s on_exhausted=CONTINUE": for the signal that is called as the step. */
static void write_wait(const char *name, char *text, struct buf *out)
{
    CLEANUP(buf_done) struct buf retry = { 0 };
    buf_printf(out, ",\"wait_for_signal\":{\"signal\":\"%s\"", name);
    for (char *word; (word = strsep(&text, " "));)
        if (*word && strcmp(word, "WAIT") != 0)
            write_setting(word, out, &retry);
    buf_text(out, "}");
}

static void write_step(char *line, struct buf *out)
{
    char *rest = line;
    char *name = strsep(&rest, ":");
    char *action = strsep(&rest, "|"), *undo = strsep(&rest, "|"), *options = rest;
    assert_non_null(action);
    assert_non_null(undo);
    name += strspn(name, " ");
    bool none = strstr(undo, "none") != NULL;
    bool guarded = options && strstr(options, "guarded");
    const char *settle = options ? strstr(options, "settle=") : NULL;
    buf_printf(out, "%s{\"name\":\"%s\"", out->data[out->size - 1] == '[' ? "" : ",", name);
    bool waits = strstr(action, "WAIT") != NULL;
    if (waits)
        write_wait(name, action, out);
    else
        write_operation("action", "act", action, out);
    if (none)
        buf_text(out, ",\"no_compensation\":true");
    else
        write_operation("compensation", "undo", undo, out);
    if (guarded)
        buf_text(out, ",\"guarded\":true");
    if (options && strstr(options, "pivot"))
        buf_text(out, ",\"pivot\":true");
    const char *delay = options ? strstr(options, "delay=") : NULL;
    if (delay)
        buf_printf(out, ",\"delay\":\"%.*s\"", (int)strcspn(delay + strlen("delay="), " "),
                   delay + strlen("delay="));
    if (options && strstr(options, "after="))
        write_after(strstr(options, "after=") + strlen("after="), out);
    const char *value = settle ? settle + strlen("settle=") : "0s";
    if (settle || (!none && !guarded))
        buf_printf(out, ",\"settle_time\":\"%.*s\"", (int)strcspn(value, " "), value);
    buf_text(out, "}");
}

void rig_define(struct rig *rig, const char *name, const char *settings, const char *steps)
{
    CLEANUP(buf_done) struct buf json = { .limit = DEFINITION_BYTES_MAX };
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_printf(&json, "{\"definition\":{\"name\":\"%s\"", name);
    buf_text(&text, settings ? settings : "");
    char *rest = (char *)text.data;
    for (char *word; (word = strsep(&rest, " "));)
        if (*word)
            write_setting(word, &json, NULL);
    buf_text(&json, ",\"steps\":[");
    CLEANUP(buf_done) struct buf lines = { 0 };
    buf_text(&lines, steps);
    rest = (char *)lines.data;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (*line)
            write_step(line, &json);
    buf_text(&json, "]}}");
    assert_false(json.failed || lines.failed || text.failed);
    saga__v1__register_definition_response__free_unpacked(rig_register(rig, buf_cstr(&json), NULL),
                                                          NULL);
}

/* --- starts ----------------------------------------------------------------------------------- */

static void fill_start(Saga__V1__StartSagaRequest *request, const char *definition,
                       const char *saga_id, const char *script)
{
    saga__v1__start_saga_request__init(request);
    request->definition = rig_borrow(definition);
    request->saga_id = rig_borrow(saga_id);
    request->input.data = (uint8_t *)rig_borrow(script);
    request->input.len = strlen(script);
}

void rig_start_at(struct rig *rig, const char *definition, const char *saga_id, int64_t at_ms)
{
    Saga__V1__StartSagaRequest request;
    Google__Protobuf__Timestamp at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    fill_start(&request, definition, saga_id, "");
    at.seconds = at_ms / 1000;
    at.nanos = (int32_t)(at_ms % 1000) * 1000000;
    request.start_at = &at;
    saga__v1__start_saga_response__free_unpacked(
        (Saga__V1__StartSagaResponse *)rig_call(rig, "SagaService/StartSaga", &request.base,
                                                &saga__v1__start_saga_response__descriptor, NULL),
        NULL);
}

void rig_start(struct rig *rig, const char *definition, const char *saga_id, const char *script)
{
    Saga__V1__StartSagaRequest request;
    fill_start(&request, definition, saga_id, script);
    Saga__V1__StartSagaResponse *reply =
        (Saga__V1__StartSagaResponse *)rig_call(rig, "SagaService/StartSaga", &request.base,
                                                &saga__v1__start_saga_response__descriptor, NULL);
    saga__v1__start_saga_response__free_unpacked(reply, NULL);
}

static void start_batch(struct rig *rig, const char *definition, const char *prefix, int first,
                        size_t count, const char *script)
{
    static Saga__V1__StartSagaRequest requests[BATCH];
    static char ids[BATCH][64];
    Saga__V1__StartSagaRequest *list[BATCH];
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "%s%d", prefix, first + (int)i);
        fill_start(&requests[i], definition, ids[i], script);
        list[i] = &requests[i];
    }
    Saga__V1__BatchStartSagasRequest request = SAGA__V1__BATCH_START_SAGAS_REQUEST__INIT;
    request.requests = list;
    request.n_requests = count;
    Saga__V1__BatchStartSagasResponse *reply = (Saga__V1__BatchStartSagasResponse *)rig_call(
        rig, "SagaService/BatchStartSagas", &request.base,
        &saga__v1__batch_start_sagas_response__descriptor, NULL);
    assert_int_equal(reply->n_items, count);
    for (size_t i = 0; i < count; i++)
        if (reply->items[i]->result_case != SAGA__V1__BATCH_START_SAGAS_RESPONSE__ITEM__RESULT_SAGA)
            fail_msg("start of %s: %s", ids[i], reply->items[i]->error->message);
    saga__v1__batch_start_sagas_response__free_unpacked(reply, NULL);
}

void rig_start_many(struct rig *rig, const char *definition, const char *prefix, int count,
                    const char *script)
{
    for (int first = 0; first < count; first += BATCH)
        start_batch(rig, definition, prefix, first,
                    (size_t)(count - first < BATCH ? count - first : BATCH), script);
}

/* --- calls about one saga --------------------------------------------------------------------- */

static void fill_ref(Saga__V1__SagaRef *ref, const char *definition, const char *saga_id)
{
    saga__v1__saga_ref__init(ref);
    ref->definition = rig_borrow(definition);
    ref->saga_id = rig_borrow(saga_id);
}

Saga__V1__Saga *rig_get(struct rig *rig, const char *definition, const char *saga_id)
{
    Saga__V1__SagaRef ref;
    fill_ref(&ref, definition, saga_id);
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    return (Saga__V1__Saga *)rig_call(rig, "SagaService/GetSaga", &request.base,
                                      &saga__v1__saga__descriptor, NULL);
}

static int verb(struct rig *rig, const char *method, const ProtobufCMessage *request,
                char ret_reason[RIG_REASON_SIZE])
{
    struct client_failure failure = { .code = 0 };
    ProtobufCMessage *reply = rig_call(rig, method, request, &saga__v1__saga__descriptor, &failure);
    if (ret_reason)
        (void)snprintf(ret_reason, RIG_REASON_SIZE, "%s", reply ? "" : failure.reason);
    int code = reply ? 0 : failure.code;
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    else
        client_failure_done(&failure);
    return code;
}

int rig_cancel(struct rig *rig, const char *definition, const char *saga_id,
               char ret_reason[RIG_REASON_SIZE])
{
    Saga__V1__SagaRef ref;
    fill_ref(&ref, definition, saga_id);
    Saga__V1__CancelSagaRequest request = SAGA__V1__CANCEL_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.actor = rig_borrow("tester");
    request.reason = rig_borrow("a test");
    return verb(rig, "SagaService/CancelSaga", &request.base, ret_reason);
}

void rig_hold(struct rig *rig, const char *handler)
{
    Saga__V1__HoldHandlerRequest request = SAGA__V1__HOLD_HANDLER_REQUEST__INIT;
    request.handler = rig_borrow(handler);
    request.actor = rig_borrow("tester");
    request.reason = rig_borrow("a test");
    protobuf_c_message_free_unpacked(rig_call(rig, "OperatorService/HoldHandler", &request.base,
                                              &saga__v1__handler__descriptor, NULL),
                                     NULL);
}

void rig_release(struct rig *rig, const char *handler)
{
    Saga__V1__ReleaseHandlerRequest request = SAGA__V1__RELEASE_HANDLER_REQUEST__INIT;
    request.handler = rig_borrow(handler);
    request.actor = rig_borrow("tester");
    request.reason = rig_borrow("a test");
    protobuf_c_message_free_unpacked(rig_call(rig, "OperatorService/ReleaseHandler", &request.base,
                                              &saga__v1__handler__descriptor, NULL),
                                     NULL);
}

int rig_retry(struct rig *rig, const char *definition, const char *saga_id, const char *step,
              char ret_reason[RIG_REASON_SIZE])
{
    Saga__V1__SagaRef ref;
    fill_ref(&ref, definition, saga_id);
    Saga__V1__RetryStepRequest request = SAGA__V1__RETRY_STEP_REQUEST__INIT;
    request.saga = &ref;
    request.step = rig_borrow(step ? step : "");
    request.actor = rig_borrow("tester");
    request.reason = rig_borrow("a test");
    return verb(rig, "OperatorService/RetryStep", &request.base, ret_reason);
}

int rig_signal(struct rig *rig, const char *definition, const char *saga_id, const char *signal,
               const char *signal_id, const char *payload, char ret_reason[RIG_REASON_SIZE])
{
    Saga__V1__SagaRef ref;
    fill_ref(&ref, definition, saga_id);
    Saga__V1__SignalSagaRequest request = SAGA__V1__SIGNAL_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.signal = rig_borrow(signal);
    request.signal_id = rig_borrow(signal_id);
    request.payload.data = (uint8_t *)rig_borrow(payload);
    request.payload.len = strlen(payload);
    request.actor = rig_borrow("bank");
    struct client_failure failure = { .code = 0 };
    Saga__V1__SignalSagaResponse *reply = (Saga__V1__SignalSagaResponse *)rig_call(
        rig, "SagaService/SignalSaga", &request.base, &saga__v1__signal_saga_response__descriptor,
        &failure);
    (void)snprintf(ret_reason, RIG_REASON_SIZE, "%s",
                   !reply             ? failure.reason
                   : reply->duplicate ? "duplicate"
                                      : "");
    int code = reply ? 0 : failure.code;
    if (!reply)
        client_failure_done(&failure);
    saga__v1__signal_saga_response__free_unpacked(reply, NULL);
    return code;
}

int64_t rig_counter(struct rig *rig, const char *name)
{
    Saga__V1__GetStatusRequest request = SAGA__V1__GET_STATUS_REQUEST__INIT;
    Saga__V1__GetStatusResponse *status =
        (Saga__V1__GetStatusResponse *)rig_call(rig, "OperatorService/GetStatus", &request.base,
                                                &saga__v1__get_status_response__descriptor, NULL);
    int64_t value = -1;
    for (size_t i = 0; i < status->n_counters; i++)
        if (strcmp(status->counters[i]->name, name) == 0)
            value = status->counters[i]->value;
    saga__v1__get_status_response__free_unpacked(status, NULL);
    if (value < 0)
        fail_msg("no counter %s", name);
    return value;
}

int rig_health(const char *address, int64_t timeout_ms)
{
    struct bytes reply = { NULL, 0 };
    int code = raw_call(address, "/grpc.health.v1.Health/Check", NULL, 0, timeout_ms, &reply);
    if (code != 0)
        return code > 0 ? -code : -100;
    Grpc__Health__V1__HealthCheckResponse *health =
        grpc__health__v1__health_check_response__unpack(NULL, reply.size, reply.data);
    mem_free(reply.data);
    int status = health ? (int)health->status : -100;
    grpc__health__v1__health_check_response__free_unpacked(health, NULL);
    return status;
}
