/* sagactl signal: what one of a saga's steps waits for. */
#include "base/rng.h"
#include "base/uuid.h"
#include "ctl/ctl.h"
#include "ctl/ctl_payload.h"
#include "ctl/verbs.h"
#include "wire/json.h"

#include <assert.h>
#include <stdio.h>

static const struct ctl_option options[] = {
    { "id", "ID", false,
      "whose signal it is, known to its sender: the same again is the same signal (default: a new "
      "UUID)" },
    { "file", "FILE", false, "payload from a file; - reads stdin" },
    { "payload-base64", "BASE64", false, "payload as base64, never as JSON" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

/* The payload as it goes out; prints what is wrong. */
static int make_payload(struct ctl *ctl, Saga__V1__SagaRef *ref, const char *signal,
                        const struct ctl_payload *given, struct bytes *payload)
{
    struct err err;
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    CLEANUP(revision_types_free_p) struct revision_types *types = NULL;
    if (ctl_payload_read(given, payload, &err) != 0)
        return ctl_print_error(&err);
    if (!payload->size || given->base64)
        return 0;
    int rc = ctl_saga_get(ctl, ref, SAGA__V1__SAGA_VIEW__SAGA_VIEW_BASIC, &saga);
    if (rc != 0)
        return rc;
    assert(saga);
    rc = ctl_types_get(ctl, saga->namespace_, saga->definition, saga->revision, &types);
    return rc != 0 ? rc
                   : ctl_payload_make(types, revision_types_signal(types, signal), "the payload",
                                      given, payload);
}

/* Told before the call: whoever does not hear its answer needs it to repeat the call. */
static void make_id(char ret[UUID_TEXT_SIZE])
{
    struct rng rng;
    rng_seed_os(&rng);
    struct uuid uuid = uuid_v7(ctl_now_ms(), &rng, (uint8_t)rng_next(&rng));
    uuid_format(&uuid, ret);
    (void)fprintf(stderr, "sagactl: the signal's id is %s; to repeat it, give --id %s\n", ret, ret);
}

static int print(const struct ctl *ctl, const Saga__V1__SignalSagaRequest *request,
                 const Saga__V1__SignalSagaResponse *response)
{
    if (ctl->json)
        return ctl_print_json(json_pack("{s:s, s:b}", "signalId", request->signal_id, "duplicate",
                                        (int)response->duplicate));
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_text(&text, response->duplicate ? "is there already: " : "signalled: ");
    screen_text(&text, request->saga->definition);
    buf_text(&text, " ");
    screen_text(&text, request->saga->saga_id);
    buf_text(&text, " ");
    screen_text(&text, request->signal);
    buf_text(&text, ", id ");
    screen_text(&text, request->signal_id);
    buf_text(&text, "\n");
    return ctl_print_text(&text);
}

static int send(struct ctl *ctl, Saga__V1__SignalSagaRequest *request,
                const struct ctl_payload *given)
{
    CLEANUP(ctl_message_free_p) Saga__V1__SignalSagaResponse *response = NULL;
    CLEANUP(ctl_bytes_done) struct bytes payload = { NULL, 0 };
    char id[UUID_TEXT_SIZE];
    int rc = make_payload(ctl, request->saga, request->signal, given, &payload);
    if (rc != 0)
        return rc;
    if (!*request->signal_id) {
        make_id(id);
        request->signal_id = id;
    }
    request->payload = (ProtobufCBinaryData){ .len = payload.size, .data = payload.data };
    rc = ctl_call(ctl, "/saga.v1.SagaService/SignalSaga", &request->base,
                  &saga__v1__signal_saga_response__descriptor, &response);
    return rc != 0 ? rc : print(ctl, request, response);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__SignalSagaRequest request = SAGA__V1__SIGNAL_SAGA_REQUEST__INIT;
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    char actor[CTL_ACTOR_SIZE];
    struct err err;
    int64_t number;
    if (ctl_option_number(arguments, "run", 1, INT32_MAX, 0, &number, &err) != 0)
        return ctl_print_error(&err);
    if (ctl->namespace_)
        ref.namespace_ = (char *)ctl->namespace_;
    ref.definition = (char *)arguments->positional[0];
    ref.saga_id = (char *)arguments->positional[1];
    ref.run = (int32_t)number;
    ctl_actor(actor);
    request.saga = &ref;
    request.signal = (char *)arguments->positional[2];
    request.actor = actor;
    if (ctl_take_text(arguments, "id", &request.signal_id) && !*request.signal_id)
        return ctl_print_misuse("--id must not be empty");
    return send(ctl, &request,
                &(struct ctl_payload){ arguments->count > 3 ? arguments->positional[3] : NULL,
                                       ctl_option(arguments, "file"),
                                       ctl_option(arguments, "payload-base64") });
}

const struct ctl_verb verb_signal = {
    "signal",
    "DEFINITION KEY SIGNAL [PAYLOAD|-]",
    3,
    4,
    options,
    "tell a saga what one of its steps waits for\n"
    "\n"
    "  sagactl signal settlement p-17 bank_confirmed --id bank-4711 '{\"reference\": \"R-1\"}'\n"
    "\n"
    "The payload is JSON of the type that the step says; - reads it from stdin. Without a type it "
    "is\n"
    "taken as it is. It is kept until the step's turn. A signal is taken once: after an error the "
    "same\n"
    "command with the same --id is safe.",
    run,
};
