/* Goal: a definition means the same in its three forms; every default is filled in, the same
 * content always has the same bytes, and each fault is told once, by its field. Method: messages
 * written by hand; each field set to a value that is not its default and followed through encode
 * and decode; each fault alone in an otherwise good definition; each allocation failed in turn. */
#include "support/check.h"

#include "wire/definition_codec.h"

#include <stdio.h>

struct collected {
    size_t count;
    char field[8][96], text[8][200];
};

static void collect(void *ctx, const char *field, const char *description)
{
    struct collected *collected = ctx;
    assert_true(collected->count < 8);
    (void)snprintf(collected->field[collected->count], 96, "%s", field);
    (void)snprintf(collected->text[collected->count], 200, "%s", description);
    collected->count++;
}

/* A message with one step that can be changed in place. */
struct sample {
    Saga__V1__SagaDefinition message;
    Saga__V1__Step step, second, *steps[2];
    Saga__V1__Operation action, compensation, other;
    Saga__V1__Retry retry, probe_retry;
    Saga__V1__Probe probe;
    Google__Protobuf__Duration durations[13];
    char name[16], step_name[16], second_name[16];
};

static void sample_init(struct sample *sample)
{
    saga__v1__saga_definition__init(&sample->message);
    saga__v1__step__init(&sample->step);
    saga__v1__step__init(&sample->second);
    saga__v1__operation__init(&sample->action);
    saga__v1__operation__init(&sample->compensation);
    saga__v1__operation__init(&sample->other);
    saga__v1__retry__init(&sample->retry);
    saga__v1__retry__init(&sample->probe_retry);
    saga__v1__probe__init(&sample->probe);
    for (size_t i = 0; i < ARRAY_LEN(sample->durations); i++)
        google__protobuf__duration__init(&sample->durations[i]);
    (void)snprintf(sample->name, sizeof sample->name, "pay");
    (void)snprintf(sample->step_name, sizeof sample->step_name, "debit");
    (void)snprintf(sample->second_name, sizeof sample->second_name, "ledger");
    sample->message.name = sample->name;
    sample->steps[0] = &sample->step;
    sample->steps[1] = &sample->second;
    sample->message.steps = sample->steps;
    sample->message.n_steps = 2;
    sample->step.name = sample->step_name;
    sample->step.action = &sample->action;
    sample->action.effect = SAGA__V1__EFFECT__EFFECT_IDEMPOTENT;
    sample->step.undo_case = SAGA__V1__STEP__UNDO_COMPENSATION;
    sample->step.compensation = &sample->compensation;
    sample->compensation.effect = SAGA__V1__EFFECT__EFFECT_IDEMPOTENT;
    sample->step.guarded = 1;
    sample->second.name = sample->second_name;
    sample->second.action = &sample->other;
    sample->other.effect = SAGA__V1__EFFECT__EFFECT_AT_MOST_ONCE;
    sample->second.undo_case = SAGA__V1__STEP__UNDO_NO_COMPENSATION;
    sample->second.no_compensation = 1;
}

static struct definition *read_good(const struct sample *sample)
{
    struct collected collected = { 0 };
    struct definition *definition = NULL;
    size_t faults = 99;
    struct err err;
    ASSERT_OK(
        definition_from_message(&sample->message, collect, &collected, &definition, &faults, &err),
        &err);
    if (collected.count)
        fail_msg("%s %s", collected.field[0], collected.text[0]);
    assert_int_equal(faults, 0);
    return definition;
}

/* Exactly one fault, of that field, whose text has that part. */
static void assert_fault(const struct sample *sample, const char *field, const char *part)
{
    struct collected collected = { 0 };
    struct definition *definition = NULL;
    size_t faults = 0;
    struct err err;
    ASSERT_OK(
        definition_from_message(&sample->message, collect, &collected, &definition, &faults, &err),
        &err);
    assert_null(definition);
    assert_int_equal(faults, collected.count);
    if (faults != 1)
        fail_msg("%zu faults: %s %s; %s %s", faults, collected.field[0], collected.text[0],
                 collected.field[1], collected.text[1]);
    assert_string_equal(collected.field[0], field);
    if (!strstr(collected.text[0], part))
        fail_msg("\"%s\" is not in \"%s\"", part, collected.text[0]);
}

static void test_every_default_is_filled_in(void **state)
{
    (void)state;
    struct sample sample;
    sample_init(&sample);
    struct definition *definition = read_good(&sample);
    assert_string_equal(definition->namespace_, "default");
    assert_string_equal(definition->description, "");
    assert_int_equal(definition->deadline_ms, 0);
    assert_int_equal(definition->on_deadline, ON_DEADLINE_COMPENSATE);
    const struct step_rule *step = &definition->steps[0];
    assert_string_equal(step->action.handler, "pay.debit");
    assert_string_equal(step->compensation.handler, "pay.debit.compensate");
    assert_int_equal(step->settle_ms, -1);
    for (int i = 0; i < 2; i++) {
        const struct operation_rule *rule = i ? &step->compensation : &step->action;
        assert_int_equal(rule->retry.for_ms, 24 * 3600 * 1000);
        assert_int_equal(rule->retry.initial_ms, 1000);
        assert_int_equal(rule->retry.cap_ms, 60 * 1000);
        assert_int_equal(rule->retry.max_attempts, 0);
        assert_int_equal(rule->lease_ms, 30 * 1000);
        assert_int_equal(rule->attempt_timeout_ms, 5 * 60 * 1000);
        assert_int_equal(rule->start_timeout_ms, 0);
        assert_int_equal(rule->on_unknown, ON_UNKNOWN_PARK);
        assert_int_equal(rule->on_exhausted, ON_EXHAUSTED_PARK);
        assert_int_equal(rule->window_ms, 0);
        assert_int_equal(rule->lost_leases_max, 3);
        assert_false(rule->fresh_key);
        assert_null(rule->probe);
    }
    assert_false(definition->steps[1].has_compensation);
    assert_int_equal(definition->steps[1].action.effect, EFFECT_AT_MOST_ONCE);
    definition_free(definition);
}

/* Nothing at its default; `texts` live as long as the sample. */
static void sample_fill(struct sample *sample)
{
    static char namespace_[] = "bank", description[] = "moves money", handler[] = "account/debit-1";
    static char undo[] = "account.refund", probe[] = "account/was-it-debited";
    sample_init(sample);
    Google__Protobuf__Duration *d = sample->durations;
    static const struct {
        int64_t seconds;
        int32_t nanos;
    } values[] = { { 100, 0 }, { 0, 250000000 }, { 7, 0 },    { 45, 0 },   { 90, 500000000 },
                   { 30, 0 },  { 12, 0 },        { 900, 0 },  { 3600, 0 }, { 50, 0 },
                   { 6, 0 },   { 8, 0 },         { 86400, 0 } };
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        d[i].seconds = values[i].seconds;
        d[i].nanos = values[i].nanos;
    }
    sample->message.namespace_ = namespace_;
    sample->message.description = description;
    sample->message.deadline = &d[8];
    sample->message.on_deadline = SAGA__V1__ON_DEADLINE__ON_DEADLINE_PARK;
    sample->message.max_running = INT64_C(5000000000);
    sample->message.publish = SAGA__V1__PUBLISH__PUBLISH_TRANSITIONS;
    sample->action.handler = handler;
    sample->action.retry = &sample->retry;
    sample->retry.for_ = &d[0];
    sample->retry.initial = &d[1];
    sample->retry.cap = &d[2];
    sample->retry._max_attempts_case = SAGA__V1__RETRY___MAX_ATTEMPTS_MAX_ATTEMPTS;
    sample->retry.max_attempts = 9;
    sample->action.lease = &d[3];
    sample->action.attempt_timeout = &d[4];
    sample->action.start_timeout = &d[5];
    sample->action.on_unknown = SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_COMPENSATE;
    sample->action.on_exhausted = SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_COMPENSATE;
    sample->action.idempotency_window = &d[12];
    sample->action.fresh_key_after_not_done = 1;
    sample->action._lost_leases_max_case = SAGA__V1__OPERATION___LOST_LEASES_MAX_LOST_LEASES_MAX;
    sample->action.lost_leases_max = 5;
    sample->action.probe = &sample->probe;
    sample->probe.handler = probe;
    sample->probe.retry = &sample->probe_retry;
    sample->probe_retry.for_ = &d[9];
    sample->probe_retry._max_attempts_case = SAGA__V1__RETRY___MAX_ATTEMPTS_MAX_ATTEMPTS;
    sample->probe_retry.max_attempts = 4;
    sample->probe.lease = &d[10];
    sample->probe.attempt_timeout = &d[11];
    sample->compensation.handler = undo;
    sample->compensation.effect = SAGA__V1__EFFECT__EFFECT_AT_MOST_ONCE;
    sample->compensation.lease = &d[7];
    sample->step.guarded = 0;
    sample->step.settle_time = &d[6];
}

static void assert_filled(const struct definition *definition)
{
    assert_string_equal(definition->namespace_, "bank");
    assert_string_equal(definition->name, "pay");
    assert_string_equal(definition->description, "moves money");
    assert_int_equal(definition->deadline_ms, 3600000);
    assert_int_equal(definition->on_deadline, ON_DEADLINE_PARK);
    assert_int_equal(definition->max_running, INT64_C(5000000000));
    assert_int_equal(definition->publish, PUBLISH_TRANSITIONS);
    const struct step_rule *step = &definition->steps[0];
    assert_string_equal(step->name, "debit");
    assert_string_equal(step->action.handler, "account/debit-1");
    assert_int_equal(step->action.effect, EFFECT_IDEMPOTENT);
    assert_int_equal(step->action.retry.for_ms, 100000);
    assert_int_equal(step->action.retry.initial_ms, 250);
    assert_int_equal(step->action.retry.cap_ms, 7000);
    assert_int_equal(step->action.retry.max_attempts, 9);
    assert_int_equal(step->action.lease_ms, 45000);
    assert_int_equal(step->action.attempt_timeout_ms, 90500);
    assert_int_equal(step->action.start_timeout_ms, 30000);
    assert_int_equal(step->action.on_unknown, ON_UNKNOWN_COMPENSATE);
    assert_int_equal(step->action.on_exhausted, ON_EXHAUSTED_COMPENSATE);
    assert_int_equal(step->action.window_ms, 86400000);
    assert_int_equal(step->action.lost_leases_max, 5);
    assert_true(step->action.fresh_key);
    const struct operation_rule *probe = step->action.probe;
    assert_non_null(probe);
    assert_string_equal(probe->handler, "account/was-it-debited");
    assert_int_equal(probe->retry.for_ms, 50000);
    assert_int_equal(probe->retry.max_attempts, 4);
    assert_int_equal(probe->lease_ms, 6000);
    assert_int_equal(probe->attempt_timeout_ms, 8000);
    assert_true(step->has_compensation);
    assert_null(step->compensation.probe);
    assert_int_equal(step->compensation.lost_leases_max, 3);
    assert_string_equal(step->compensation.handler, "account.refund");
    assert_int_equal(step->compensation.effect, EFFECT_AT_MOST_ONCE);
    assert_int_equal(step->compensation.lease_ms, 900000);
    assert_false(step->guarded);
    assert_int_equal(step->settle_ms, 12000);
    assert_string_equal(definition->steps[1].action.handler, "pay.ledger");
}

static void test_every_field_goes_through_all_three_forms(void **state)
{
    (void)state;
    struct sample sample;
    struct err err;
    sample_fill(&sample);
    struct definition *definition = read_good(&sample);
    assert_filled(definition);
    struct bytes content = { 0 }, again = { 0 };
    ASSERT_OK(definition_encode(definition, &content, &err), &err);
    struct definition *decoded = NULL;
    ASSERT_OK(definition_decode(&content, &decoded, &err), &err);
    assert_filled(decoded);
    ASSERT_OK(definition_encode(decoded, &again, &err), &err);
    assert_int_equal(content.size, again.size);
    assert_memory_equal(content.data, again.data, content.size);
    mem_free(content.data);
    mem_free(again.data);
    definition_free(definition);
    definition_free(decoded);
}

static void test_a_default_that_is_spelt_out_gives_the_same_bytes(void **state)
{
    (void)state;
    static char namespace_[] = "default", handler[] = "pay.debit";
    struct sample sample;
    struct err err;
    struct bytes absent = { 0 }, explicit_ = { 0 };
    sample_init(&sample);
    struct definition *definition = read_good(&sample);
    ASSERT_OK(definition_encode(definition, &absent, &err), &err);
    definition_free(definition);
    sample.message.namespace_ = namespace_;
    sample.action.handler = handler;
    sample.durations[0].seconds = 30;
    sample.action.lease = &sample.durations[0];
    sample.action.on_unknown = SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_PARK;
    sample.message.on_deadline = SAGA__V1__ON_DEADLINE__ON_DEADLINE_COMPENSATE;
    sample.message.publish = SAGA__V1__PUBLISH__PUBLISH_NONE;
    definition = read_good(&sample);
    ASSERT_OK(definition_encode(definition, &explicit_, &err), &err);
    definition_free(definition);
    assert_int_equal(absent.size, explicit_.size);
    assert_memory_equal(absent.data, explicit_.data, absent.size);
    mem_free(absent.data);
    mem_free(explicit_.data);
}

static void test_an_effect_must_be_said(void **state)
{
    (void)state;
    struct sample sample;
    sample_init(&sample);
    sample.action.effect = SAGA__V1__EFFECT__EFFECT_UNSPECIFIED;
    assert_fault(&sample, "steps[0].action.effect", "required");
    sample.action.effect = (Saga__V1__Effect)99;
    assert_fault(&sample, "steps[0].action.effect", "99");
    sample.action.effect = SAGA__V1__EFFECT__EFFECT_PROBED;
    sample.durations[0].seconds = 5;
    sample.step.settle_time = &sample.durations[0];
    assert_fault(&sample, "steps[0].action.probe", "is required: the effect is PROBED");
    sample_init(&sample);
    sample.compensation.effect = SAGA__V1__EFFECT__EFFECT_UNSPECIFIED;
    assert_fault(&sample, "steps[0].compensation.effect", "required");
    sample_init(&sample);
    sample.step.action = NULL;
    assert_fault(&sample, "steps[0].action.effect", "required");
}

static void test_a_step_says_how_it_is_taken_back(void **state)
{
    (void)state;
    struct sample sample;
    sample_init(&sample);
    sample.second.undo_case = SAGA__V1__STEP__UNDO__NOT_SET;
    assert_fault(&sample, "steps[1].undo", "no_compensation");
    sample_init(&sample);
    sample.second.no_compensation = 0;
    assert_fault(&sample, "steps[1].no_compensation", "only true");
    sample_init(&sample);
    sample.step.guarded = 0;
    assert_fault(&sample, "steps[0].settle_time", "required");
    sample.durations[0].seconds = 0; /* an explicit 0 is accepted */
    sample.step.settle_time = &sample.durations[0];
    struct definition *definition = read_good(&sample);
    assert_int_equal(definition->steps[0].settle_ms, 0);
    definition_free(definition);
}

static void test_wrong_durations_are_told_once_with_their_value(void **state)
{
    (void)state;
    struct sample sample;
    sample_init(&sample);
    Google__Protobuf__Duration *d = &sample.durations[0];
    d->seconds = 0;
    sample.message.deadline = d; /* an explicit 0 is not "none" */
    assert_fault(&sample, "deadline", "0 ms");
    d->seconds = -5;
    assert_fault(&sample, "deadline", "-5000 ms");
    d->seconds = 5;
    d->nanos = 1;
    assert_fault(&sample, "deadline", "whole milliseconds");
    d->nanos = -1;
    assert_fault(&sample, "deadline", "not a duration");
    d->nanos = 0;
    d->seconds = INT64_MAX;
    assert_fault(&sample, "deadline", "not a duration");
    sample.message.deadline = NULL;
    sample.action.lease = d;
    d->seconds = 1;
    assert_fault(&sample, "steps[0].action.lease", "1000");
    sample.action.lease = NULL;
    sample.compensation.start_timeout = d;
    d->seconds = 0;
    assert_fault(&sample, "steps[0].compensation.start_timeout", "0 ms");
    sample.compensation.start_timeout = NULL;
    sample.step.settle_time = d;
    d->seconds = -1;
    assert_fault(&sample, "steps[0].settle_time", "-1000 ms");
}

static void test_a_probe_has_defaults_of_its_own(void **state)
{
    (void)state;
    static char explicit_[] = "pay.debit.compensate.probe";
    struct sample sample;
    struct err err;
    struct bytes content = { 0 }, again = { 0 };
    sample_init(&sample);
    sample.durations[0].seconds = 5;
    sample.step.settle_time = &sample.durations[0];
    sample.compensation.effect = SAGA__V1__EFFECT__EFFECT_PROBED;
    sample.compensation.probe = &sample.probe;
    struct definition *definition = read_good(&sample);
    const struct operation_rule *probe = definition->steps[0].compensation.probe;
    assert_null(definition->steps[0].action.probe);
    assert_string_equal(probe->handler, "pay.debit.compensate.probe");
    assert_int_equal(probe->effect, EFFECT_IDEMPOTENT);
    assert_int_equal(probe->retry.for_ms, 24 * 3600 * 1000);
    assert_int_equal(probe->retry.initial_ms, 1000);
    assert_int_equal(probe->retry.cap_ms, 60 * 1000);
    assert_int_equal(probe->retry.max_attempts, 0);
    assert_int_equal(probe->lease_ms, 30 * 1000);
    assert_int_equal(probe->attempt_timeout_ms, 5 * 60 * 1000);
    ASSERT_OK(definition_encode(definition, &content, &err), &err);
    definition_free(definition);
    sample.probe.handler = explicit_;
    sample.compensation._lost_leases_max_case =
        SAGA__V1__OPERATION___LOST_LEASES_MAX_LOST_LEASES_MAX;
    sample.compensation.lost_leases_max = 3;
    definition = read_good(&sample);
    ASSERT_OK(definition_encode(definition, &again, &err), &err);
    definition_free(definition);
    assert_int_equal(content.size, again.size);
    assert_memory_equal(content.data, again.data, content.size);
    mem_free(content.data);
    mem_free(again.data);
}

static void test_what_is_wrong_about_probes_windows_and_lost_leases(void **state)
{
    (void)state;
    struct sample sample;
    Google__Protobuf__Duration *d = sample.durations;
    sample_init(&sample);
    sample.step.settle_time = &d[0]; /* 0 s */
    sample.action.idempotency_window = &d[1];
    assert_fault(&sample, "steps[0].action.idempotency_window", "0 ms");
    d[0].seconds = d[1].seconds = 5;
    assert_fault(&sample, "steps[0].action.idempotency_window", "longer than settle_time");
    sample.action.idempotency_window = NULL;
    sample.action.probe = &sample.probe;
    sample.probe.lease = &d[2];
    d[2].seconds = 1;
    assert_fault(&sample, "steps[0].action.probe.lease", "1000");
    sample.probe.lease = NULL;
    sample.probe.retry = &sample.probe_retry;
    sample.probe_retry.for_ = &d[2];
    assert_fault(&sample, "steps[0].action.probe.retry.for", "settle_time");
    sample.probe_retry.for_ = NULL;
    sample.probe_retry._max_attempts_case = SAGA__V1__RETRY___MAX_ATTEMPTS_MAX_ATTEMPTS;
    assert_fault(&sample, "steps[0].action.probe.retry.max_attempts", "0");
    sample_init(&sample);
    sample.action.fresh_key_after_not_done = 1;
    assert_fault(&sample, "steps[0].action.fresh_key_after_not_done", "needs a probe");
    sample_init(&sample);
    sample.action._lost_leases_max_case = SAGA__V1__OPERATION___LOST_LEASES_MAX_LOST_LEASES_MAX;
    assert_fault(&sample, "steps[0].action.lost_leases_max", "is 0");
    sample.action.lost_leases_max = UINT32_MAX;
    assert_fault(&sample, "steps[0].action.lost_leases_max", "1 to 1000");
}

static void test_every_policy_of_an_action_is_accepted(void **state)
{
    (void)state;
    struct sample sample;
    struct err err;
    sample_init(&sample);
    sample.action.on_unknown = SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_ACCEPT;
    sample.action.on_exhausted = SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_CONTINUE;
    struct definition *definition = read_good(&sample), *decoded = NULL;
    struct bytes content = { 0 };
    ASSERT_OK(definition_encode(definition, &content, &err), &err);
    ASSERT_OK(definition_decode(&content, &decoded, &err), &err);
    assert_int_equal(decoded->steps[0].action.on_unknown, ON_UNKNOWN_ACCEPT);
    assert_int_equal(decoded->steps[0].action.on_exhausted, ON_EXHAUSTED_CONTINUE);
    mem_free(content.data);
    definition_free(definition);
    definition_free(decoded);
}

/* What was registered by a server that did not know of probes, windows and lost leases. */
static void test_stored_bytes_of_an_older_server_are_read_with_the_defaults(void **state)
{
    (void)state;
    struct sample sample;
    struct err err;
    sample_init(&sample);
    struct bytes old = { .size = saga__v1__saga_definition__get_packed_size(&sample.message) };
    old.data = mem_calloc(1, old.size);
    assert_non_null(old.data);
    assert_int_equal(saga__v1__saga_definition__pack(&sample.message, old.data), old.size);
    struct definition *decoded = NULL;
    ASSERT_OK(definition_decode(&old, &decoded, &err), &err);
    assert_int_equal(decoded->steps[0].action.lost_leases_max, 3);
    assert_null(decoded->steps[0].action.probe);
    assert_int_equal(decoded->steps[0].action.window_ms, 0);
    definition_free(decoded);
    mem_free(old.data);
}

static void test_other_faults(void **state)
{
    (void)state;
    struct sample sample;
    sample_init(&sample);
    sample.action.retry = &sample.retry;
    sample.retry._max_attempts_case = SAGA__V1__RETRY___MAX_ATTEMPTS_MAX_ATTEMPTS;
    sample.retry.max_attempts = 0;
    assert_fault(&sample, "steps[0].action.retry.max_attempts", "0");
    sample_init(&sample);
    (void)snprintf(sample.second_name, sizeof sample.second_name, "debit");
    assert_fault(&sample, "steps[1].name", "unique");
    sample_init(&sample);
    sample.message.n_steps = 0;
    assert_fault(&sample, "steps", "required");
    sample_init(&sample);
    sample.message.on_deadline = (Saga__V1__OnDeadline)7;
    assert_fault(&sample, "on_deadline", "7");
    sample_init(&sample);
    sample.message.publish = (Saga__V1__Publish)4;
    assert_fault(&sample, "publish", "4");
    sample_init(&sample);
    sample.message.max_running = -1;
    assert_fault(&sample, "max_running", "-1");
    sample_init(&sample);
    sample.compensation.on_unknown = SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_COMPENSATE;
    assert_fault(&sample, "steps[0].compensation.on_unknown", "PARK");
}

static struct bytes encoded(const struct sample *sample)
{
    struct bytes content = { 0 };
    struct err err;
    struct definition *definition = read_good(sample);
    ASSERT_OK(definition_encode(definition, &content, &err), &err);
    definition_free(definition);
    return content;
}

/* And NONE, as before there were events, is not written at all: the same content is the same
 * revision. */
static void test_what_is_published_goes_through_all_three_forms(void **state)
{
    (void)state;
    static const struct {
        Saga__V1__Publish said;
        enum publish read;
    } cases[] = { { SAGA__V1__PUBLISH__PUBLISH_UNSPECIFIED, PUBLISH_NONE },
                  { SAGA__V1__PUBLISH__PUBLISH_NONE, PUBLISH_NONE },
                  { SAGA__V1__PUBLISH__PUBLISH_ENDS, PUBLISH_ENDS },
                  { SAGA__V1__PUBLISH__PUBLISH_TRANSITIONS, PUBLISH_TRANSITIONS } };
    struct sample sample;
    struct err err;
    sample_init(&sample);
    struct bytes before = encoded(&sample);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sample.message.publish = cases[i].said;
        struct bytes content = encoded(&sample);
        struct definition *decoded = NULL;
        ASSERT_OK(definition_decode(&content, &decoded, &err), &err);
        assert_int_equal(decoded->publish, cases[i].read);
        assert_int_equal(content.size, before.size + (cases[i].read == PUBLISH_NONE ? 0 : 2));
        mem_free(content.data);
        definition_free(decoded);
    }
    mem_free(before.data);
}

/* What a step comes after, and whether it is the pivot, in all three forms. */
static void test_the_order_of_steps(void **state)
{
    (void)state;
    static char debit[] = "debit";
    char *after[] = { debit };
    struct sample sample;
    struct err err;
    sample_init(&sample);
    struct bytes absent = encoded(&sample);
    sample.second.after = after;
    sample.second.n_after = 1;
    struct bytes spelt_out = encoded(&sample);
    assert_int_equal(absent.size, spelt_out.size); /* the step before it is what nothing means */
    assert_memory_equal(absent.data, spelt_out.data, absent.size);
    sample.second.n_after = 0;
    sample.second.at_start = true;
    struct bytes at_start = encoded(&sample);
    struct definition *decoded = NULL;
    ASSERT_OK(definition_decode(&at_start, &decoded, &err), &err);
    assert_false(step_set_has(&decoded->steps[1].after, 0));
    definition_free(decoded);
    sample_init(&sample);
    sample.second.pivot = true;
    struct bytes pivot = encoded(&sample);
    ASSERT_OK(definition_decode(&pivot, &decoded, &err), &err);
    assert_int_equal(decoded->pivot, 1);
    assert_true(decoded->steps[1].pivot && step_set_has(&decoded->steps[1].after_all, 0));
    definition_free(decoded);
    mem_free(absent.data);
    mem_free(spelt_out.data);
    mem_free(at_start.data);
    mem_free(pivot.data);
    sample_init(&sample);
    sample.durations[0].seconds = 90;
    sample.second.delay = &sample.durations[0];
    struct bytes delay = encoded(&sample);
    ASSERT_OK(definition_decode(&delay, &decoded, &err), &err);
    assert_int_equal(decoded->steps[1].delay_ms, 90000);
    definition_free(decoded);
    mem_free(delay.data);
    sample.durations[0].seconds = 0;
    delay = encoded(&sample); /* none at all */
    sample.second.delay = NULL;
    absent = encoded(&sample);
    assert_int_equal(delay.size, absent.size);
    mem_free(delay.data);
    mem_free(absent.data);
    sample.second.delay = &sample.durations[0];
    sample.durations[0].seconds = 367 * 86400;
    assert_fault(&sample, "steps[1].delay", "must be 1 ms to");
}

static void test_what_is_wrong_about_the_order_of_steps(void **state)
{
    (void)state;
    static const struct {
        size_t step, count;
        bool at_start;
        const char *names[2], *field, *says;
    } cases[] = {
        { 1, 1, false, { "nobody" }, "steps[1].after[0]", "names no step: \"nobody\"" },
        { 1, 1, false, { "ledger" }, "steps[1].after[0]", "\"ledger\" is itself" },
        { 0, 1, false, { "ledger" }, "steps[0].after[0]", "\"ledger\" stands after it" },
        { 1, 2, false, { "debit", "debit" }, "steps[1].after[1]", "\"debit\" twice" },
        { 1, 1, true, { "debit" }, "steps[1].at_start", "leave out `after`" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char texts[2][16], *names[] = { texts[0], texts[1] };
        struct sample sample;
        sample_init(&sample);
        for (size_t j = 0; j < cases[i].count; j++)
            (void)snprintf(texts[j], sizeof texts[j], "%s", cases[i].names[j]);
        Saga__V1__Step *step = sample.steps[cases[i].step];
        step->after = names;
        step->n_after = cases[i].count;
        step->at_start = cases[i].at_start;
        assert_fault(&sample, cases[i].field, cases[i].says);
    }
}

static void test_too_many_names_are_one_fault(void **state)
{
    (void)state;
    static char debit[] = "debit", *names[LIMIT_STEPS + 1];
    struct sample sample;
    sample_init(&sample);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        names[i] = debit;
    sample.second.after = names;
    sample.second.n_after = ARRAY_LEN(names);
    assert_fault(&sample, "steps[1].after", "must be at most 256 names, is 257");
}

static void test_too_many_steps_are_one_fault(void **state)
{
    (void)state;
    struct sample sample;
    sample_init(&sample);
    Saga__V1__Step *steps[257];
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        steps[i] = &sample.step;
    sample.message.steps = steps;
    sample.message.n_steps = ARRAY_LEN(steps);
    assert_fault(&sample, "steps", "257");
}

static void test_bytes_that_are_not_ours_are_an_internal_error(void **state)
{
    (void)state;
    struct sample sample;
    struct err err;
    struct bytes content = { 0 };
    struct definition *decoded = NULL;
    sample_init(&sample);
    struct definition *definition = read_good(&sample);
    ASSERT_OK(definition_encode(definition, &content, &err), &err);
    definition_free(definition);
    for (size_t cut = 1; cut < content.size; cut++) {
        struct bytes part = { content.data, content.size - cut };
        int rc = definition_decode(&part, &decoded, &err);
        if (rc) /* a cut between two fields is a shorter definition */
            assert_int_equal(rc, ERR_INTERNAL);
        decoded = definition_free(decoded);
    }
    struct bytes nothing = { NULL, 0 };
    assert_int_equal(definition_decode(&nothing, &decoded, &err), ERR_INTERNAL);
    assert_null(decoded);
    mem_free(content.data);
}

static void test_memory_that_runs_out_is_an_error(void **state)
{
    (void)state;
    struct sample sample;
    sample_fill(&sample);
    for (uint64_t n = 1; n < 100; n++) {
        struct definition *definition = NULL, *decoded = NULL;
        struct bytes content = { 0 };
        struct collected collected = { 0 };
        size_t faults = 0;
        struct err err;
        mem_fail_at(n, false);
        int rc = definition_from_message(&sample.message, collect, &collected, &definition, &faults,
                                         &err);
        if (!rc)
            rc = definition_encode(definition, &content, &err);
        if (!rc)
            rc = definition_decode(&content, &decoded, &err);
        mem_fail_at(0, false);
        if (rc)
            assert_int_equal(rc, ERR_NOMEM);
        definition_free(definition);
        definition_free(decoded);
        mem_free(content.data);
        if (!rc) {
            assert_true(n > 10);
            return;
        }
    }
    fail_msg("it never succeeded");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_default_is_filled_in),
        cmocka_unit_test(test_every_field_goes_through_all_three_forms),
        cmocka_unit_test(test_a_default_that_is_spelt_out_gives_the_same_bytes),
        cmocka_unit_test(test_an_effect_must_be_said),
        cmocka_unit_test(test_a_step_says_how_it_is_taken_back),
        cmocka_unit_test(test_wrong_durations_are_told_once_with_their_value),
        cmocka_unit_test(test_a_probe_has_defaults_of_its_own),
        cmocka_unit_test(test_what_is_wrong_about_probes_windows_and_lost_leases),
        cmocka_unit_test(test_every_policy_of_an_action_is_accepted),
        cmocka_unit_test(test_stored_bytes_of_an_older_server_are_read_with_the_defaults),
        cmocka_unit_test(test_other_faults),
        cmocka_unit_test(test_what_is_published_goes_through_all_three_forms),
        cmocka_unit_test(test_the_order_of_steps),
        cmocka_unit_test(test_what_is_wrong_about_the_order_of_steps),
        cmocka_unit_test(test_too_many_names_are_one_fault),
        cmocka_unit_test(test_too_many_steps_are_one_fault),
        cmocka_unit_test(test_bytes_that_are_not_ours_are_an_internal_error),
        cmocka_unit_test(test_memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
