#include "schema/derive_internal.h"

#include "schema/record.h"
#include "wire/validate.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The numbers of proto/saga/v1/options.proto. */
enum { OPTION_SAGA = 51720, OPTION_STEP, OPTION_COMPENSATION, OPTION_PROBE };

static const struct role_option {
    const char *name;
    uint32_t number;
    const ProtobufCMessageDescriptor *type;
} role_options[ROLE_COUNT] = {
    [ROLE_STEP] = { "step", OPTION_STEP, &saga__v1__step_options__descriptor },
    [ROLE_COMPENSATION] = { "compensation", OPTION_COMPENSATION,
                            &saga__v1__compensation_options__descriptor },
    [ROLE_PROBE] = { "probe", OPTION_PROBE, &saga__v1__probe_options__descriptor },
};

/* The next part of an option in options as they came; false: there is none. (schema_new has scanned
 * the bytes, so the end of what is well-formed is their end.) */
static bool next_part(struct records *options, uint32_t number, struct record *ret)
{
    while (records_left(options) && !record_next(options, ret))
        if (ret->number == number)
            return true;
    return false;
}

static bool option_is_there(const struct bytes *options, uint32_t number)
{
    struct records records = { .data = options->data, .size = options->size };
    struct record record;
    return next_part(&records, number, &record);
}

bool schema_service_is_saga(const struct schema_service *service)
{
    return option_is_there(&service->options, OPTION_SAGA);
}

/* `option (saga.v1.step).guarded = true;` gives a part of the message on each line. To protobuf
 * the parts one after the other are the whole. Their number; 0: one is no message, or the arena is
 * full. */
static size_t join_parts(const struct bytes *options, uint32_t number, struct arena *arena,
                         struct bytes *ret)
{
    struct bytes whole = { .data = arena_alloc(arena, options->size) };
    struct records records = { .data = options->data, .size = options->size };
    struct record part;
    size_t count = 0;
    for (; whole.data && next_part(&records, number, &part); count++) {
        if (part.type != RECORD_BYTES)
            return 0;
        if (part.size)
            memcpy(whole.data + whole.size, part.data, part.size);
        whole.size += part.size;
    }
    *ret = whole;
    return count;
}

/* A message in it, or itself, that holds a field which this server does not know; NULL: none does.
 * (No option has a message in a oneof.) */
static const ProtobufCMessage *find_unknown(const ProtobufCMessage *message)
{
    if (message->n_unknown_fields)
        return message;
    const ProtobufCMessage *found = NULL;
    for (unsigned i = 0; i < message->descriptor->n_fields && !found; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        const void *member = (const char *)message + field->offset;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            const ProtobufCMessage *child = *(ProtobufCMessage *const *)member;
            found = child ? find_unknown(child) : NULL;
            continue;
        }
        size_t count =
            *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
        for (size_t j = 0; j < count && !found; j++)
            found = find_unknown((*(ProtobufCMessage *const *const *)member)[j]);
    }
    return found;
}

/* NULL: a fault was told, or the arena is full. */
static const void *read_option(struct derive *derive, const struct rpc *rpc,
                               const struct bytes *options, uint32_t number, const char *name,
                               const ProtobufCMessageDescriptor *type)
{
    static const char *const others = "take the saga/v1/options.proto of this server";
    struct bytes whole = { 0 };
    size_t parts = join_parts(options, number, derive->arena, &whole);
    struct err err = { 0 };
    ProtobufCMessage *message = NULL;
    if (!parts)
        (void)err_set(&err, ERR_INVALID, "is not the message %s", type->name); /* told below */
    if (!parts || wire_unpack(type, whole.data, whole.size, derive->arena, &message, &err) != 0) {
        if (!derive->arena->oom)
            derive_rpc_fault(derive, rpc, name, "%s: %s", err.msg,
                             parts > 1 ? "write the option in one piece, in braces" : others);
        return NULL;
    }
    const ProtobufCMessage *unknown = find_unknown(message);
    if (unknown) {
        derive_rpc_fault(derive, rpc, name,
                         "%s has a field %" PRIu32 ", which this server does not know: it is older "
                         "than your saga/v1/options.proto",
                         unknown->descriptor->name, unknown->unknown_fields[0].tag);
        return NULL;
    }
    return message;
}

static void say_retry(const Saga__V1__RetryOptions *retry, struct says *ret)
{
    if (!retry)
        return;
    ret->times[TIME_RETRY_FOR] = retry->for_;
    ret->times[TIME_RETRY_INITIAL] = retry->initial;
    ret->times[TIME_RETRY_CAP] = retry->cap;
    ret->has_max_attempts =
        retry->_max_attempts_case == SAGA__V1__RETRY_OPTIONS___MAX_ATTEMPTS_MAX_ATTEMPTS;
    ret->max_attempts = retry->max_attempts;
}

static void say_defaults(const Saga__V1__OperationDefaults *options, struct says *ret)
{
    ret->times[TIME_LEASE] = options->lease;
    ret->times[TIME_ATTEMPT_TIMEOUT] = options->attempt_timeout;
    ret->times[TIME_START_TIMEOUT] = options->start_timeout;
    say_retry(options->retry, ret);
    ret->has_lost_leases_max = options->_lost_leases_max_case ==
                               SAGA__V1__OPERATION_DEFAULTS___LOST_LEASES_MAX_LOST_LEASES_MAX;
    ret->lost_leases_max = options->lost_leases_max;
}

static void say_step(const Saga__V1__StepOptions *options, struct says *ret)
{
    *ret = (struct says){
        .probed_by = options->probed_by,
        .idempotency_key = options->idempotency_key,
        .handler = options->handler,
        .effect = options->effect,
        .on_unknown = options->on_unknown,
        .on_exhausted = options->on_exhausted,
        .fresh_key_after_not_done = options->fresh_key_after_not_done,
    };
    ret->times[TIME_LEASE] = options->lease;
    ret->times[TIME_ATTEMPT_TIMEOUT] = options->attempt_timeout;
    ret->times[TIME_START_TIMEOUT] = options->start_timeout;
    ret->times[TIME_IDEMPOTENCY_WINDOW] = options->idempotency_window;
    ret->times[TIME_SETTLE] = options->settle_time;
    ret->times[TIME_DELAY] = options->delay;
    if (options->wait_for_signal)
        ret->times[TIME_SIGNAL_TIMEOUT] = options->wait_for_signal->timeout;
    say_retry(options->retry, ret);
    ret->has_lost_leases_max =
        options->_lost_leases_max_case == SAGA__V1__STEP_OPTIONS___LOST_LEASES_MAX_LOST_LEASES_MAX;
    ret->lost_leases_max = options->lost_leases_max;
}

static void say_compensation(const Saga__V1__CompensationOptions *options, struct says *ret)
{
    *ret = (struct says){
        .probed_by = options->probed_by,
        .idempotency_key = options->idempotency_key,
        .handler = options->handler,
        .effect = options->effect,
        .fresh_key_after_not_done = options->fresh_key_after_not_done,
    };
    ret->times[TIME_LEASE] = options->lease;
    ret->times[TIME_ATTEMPT_TIMEOUT] = options->attempt_timeout;
    ret->times[TIME_START_TIMEOUT] = options->start_timeout;
    ret->times[TIME_IDEMPOTENCY_WINDOW] = options->idempotency_window;
    say_retry(options->retry, ret);
    ret->has_lost_leases_max = options->_lost_leases_max_case ==
                               SAGA__V1__COMPENSATION_OPTIONS___LOST_LEASES_MAX_LOST_LEASES_MAX;
    ret->lost_leases_max = options->lost_leases_max;
}

static void say_probe(const Saga__V1__ProbeOptions *options, struct says *ret)
{
    *ret = (struct says){ .handler = options->handler };
    ret->times[TIME_LEASE] = options->lease;
    ret->times[TIME_ATTEMPT_TIMEOUT] = options->attempt_timeout;
    say_retry(options->retry, ret);
}

static void keep_options(struct rpc *rpc, const void *options)
{
    switch (rpc->role) {
    case ROLE_STEP:
        rpc->step = options;
        say_step(options, &rpc->says);
        break;
    case ROLE_COMPENSATION:
        say_compensation(options, &rpc->says);
        break;
    default:
        say_probe(options, &rpc->says);
    }
}

/* An rpc that claims to be two things counts as the first of them from here on. */
static void read_rpc(struct derive *derive, struct rpc *rpc)
{
    const struct schema_method *method = rpc->method;
    if (method->client_streaming || method->server_streaming)
        derive_rpc_fault(derive, rpc, "",
                         "has a stream: an operation has one request and one response, leave out "
                         "the word `stream`");
    for (enum role role = ROLE_STEP; role < ROLE_COUNT; role++) {
        const struct role_option *option = &role_options[role];
        if (!option_is_there(&method->options, option->number))
            continue;
        if (rpc->role) {
            derive_rpc_fault(derive, rpc, option->name,
                             "must be absent: the rpc has the option %s already, and is one of the "
                             "two",
                             role_options[rpc->role].name);
            continue;
        }
        rpc->role = role;
        const void *message =
            read_option(derive, rpc, &method->options, option->number, option->name, option->type);
        if (message)
            keep_options(rpc, message);
    }
    if (!rpc->role)
        derive_rpc_fault(derive, rpc, "",
                         "has none of the options step, compensation and probe: say which of them "
                         "it is, or move it to another service");
}

bool derive_options_read(struct derive *derive)
{
    const struct schema_service *service = derive->service;
    if (service->method_count > RPCS_MAX) {
        derive_rpc_fault(derive, NULL, "",
                         "has %zu rpcs: at most %d, for %d steps with a compensation and probes",
                         service->method_count, RPCS_MAX, LIMIT_STEPS);
        return false;
    }
    derive->saga = read_option(derive, NULL, &service->options, OPTION_SAGA, "saga",
                               &saga__v1__saga_options__descriptor);
    derive->rpcs = arena_array(derive->arena, service->method_count, sizeof *derive->rpcs);
    derive->steps = arena_array(derive->arena, service->method_count, sizeof(struct rpc *));
    if (!derive->rpcs || !derive->steps)
        return false;
    for (size_t i = 0; i < service->method_count; i++) {
        struct rpc *rpc = &derive->rpcs[derive->rpc_count++];
        rpc->method = &service->methods[i];
        read_rpc(derive, rpc);
        if (rpc->role == ROLE_STEP)
            derive->steps[derive->step_count++] = rpc;
    }
    if (derive->saga && derive->saga->defaults)
        say_defaults(derive->saga->defaults, &derive->defaults);
    return derive->saga != NULL;
}

bool derive_field_is_set(const ProtobufCMessage *options, const char *name)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(options->descriptor, name);
    const void *member = (const char *)options + field->offset;
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(const void *)((const char *)options +
                                                 field->quantifier_offset) == field->id;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return derive_is_said(*(char *const *)member);
    case PROTOBUF_C_TYPE_MESSAGE:
        return *(ProtobufCMessage *const *)member != NULL;
    case PROTOBUF_C_TYPE_BOOL:
        return *(const protobuf_c_boolean *)member != 0;
    default: /* an enum */
        return *(const int *)member != 0;
    }
}
