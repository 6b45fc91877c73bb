/* Definitions over the whole stack. Goal: what is wrong is refused by the name of the field, with
 * rule and value, and nothing is stored; the same content is the same revision; what was not given
 * is told apart from an explicit zero. Method: JSON of requests, compared with what is answered. */
#include "base/buf.h"
#include "support/rig.h"
#include "wire/json.h"

#include <stdio.h>

enum { SOON = 10000, INVALID_ARGUMENT = 3, CODE_NOT_FOUND = 5 };

static struct rig rig = { .server_args = { "--resend-grace", "0.3s" } };

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    return rig_check(&rig);
}

static void free_message_p(void *message)
{
    ProtobufCMessage *it = *(ProtobufCMessage **)message;
    if (it)
        protobuf_c_message_free_unpacked(it, NULL);
}
#define RESPONSE CLEANUP(free_message_p) Saga__V1__RegisterDefinitionResponse *

/* A definition with one good step and whatever `more` adds to it. */
static void one_step(struct buf *json, const char *name, const char *step, const char *more)
{
    buf_clear(json);
    buf_printf(json, "{\"definition\":{\"name\":\"%s\"%s,\"steps\":[{\"name\":\"a\",%s}]}}", name,
               more, step);
    assert_false(json->failed);
}

static const char plain[] = "\"action\":{\"effect\":\"EFFECT_IDEMPOTENT\"},\"noCompensation\":true";

static void test_the_same_content_is_the_same_revision_and_other_content_the_next(void **state)
{
    (void)state;
    CLEANUP(buf_done) struct buf json = { 0 };
    one_step(&json, "rev", plain, "");
    RESPONSE first = rig_register(&rig, buf_cstr(&json), NULL);
    assert_true(first->created);
    assert_int_equal(first->registered->revision, 1);
    assert_true(first->registered->current);
    RESPONSE again = rig_register(&rig, buf_cstr(&json), NULL);
    assert_false(again->created);
    assert_int_equal(again->registered->revision, 1);
    /* Said in other words it is the same content: every default is filled in. */
    one_step(&json, "rev",
             "\"action\":{\"effect\":\"EFFECT_IDEMPOTENT\",\"lease\":\"30s\","
             "\"handler\":\"rev.a\",\"lostLeasesMax\":3,\"retry\":{\"for\":\"86400s\"}},"
             "\"noCompensation\":true",
             ",\"namespace\":\"default\"");
    RESPONSE same = rig_register(&rig, buf_cstr(&json), NULL);
    assert_false(same->created);
    assert_int_equal(same->registered->revision, 1);
    one_step(&json, "rev", plain, ",\"description\":\"another\"");
    RESPONSE next = rig_register(&rig, buf_cstr(&json), NULL);
    assert_true(next->created);
    assert_int_equal(next->registered->revision, 2);
    assert_int_equal(
        rig_count(&rig, RIG_STORE, "SELECT current_revision FROM definition WHERE name = 'rev'"),
        2);
    assert_int_equal(
        rig_count(&rig, RIG_STORE, "SELECT count(*) FROM definition_revision WHERE name = 'rev'"),
        2);
}

static void test_validate_only_stores_nothing_and_tells_the_revision(void **state)
{
    (void)state;
    char text[512];
    (void)snprintf(text, sizeof text,
                   "{\"validateOnly\":true,\"definition\":{\"name\":\"dry\",\"steps\":["
                   "{\"name\":\"a\",%s}]}}",
                   plain);
    RESPONSE dry = rig_register(&rig, text, NULL);
    assert_false(dry->created);
    assert_int_equal(dry->registered->revision, 1);
    assert_int_equal(
        rig_count(&rig, RIG_STORE, "SELECT count(*) FROM definition WHERE name = 'dry'"), 0);
}

struct wrong {
    const char *definition; /* what stands between the braces of the definition */
    const char *field;
    const char *says[3]; /* pieces of the description */
};

static void expect_refused(const struct wrong *wrong)
{
    CLEANUP(buf_done) struct buf json = { 0 };
    buf_printf(&json, "{\"definition\":{%s}}", wrong->definition);
    struct client_failure failure = { .code = 0 };
    RESPONSE response = rig_register(&rig, buf_cstr(&json), &failure);
    if (response)
        fail_msg("accepted: %s", wrong->definition);
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    const struct client_violation *found = NULL;
    for (size_t i = 0; i < failure.violation_count && !found; i++)
        if (strcmp(failure.violations[i].field, wrong->field) == 0)
            found = &failure.violations[i];
    if (!found)
        fail_msg("%s: no violation of %s but %s: %s", wrong->definition, wrong->field,
                 failure.violation_count ? failure.violations[0].field : "none", failure.message);
    else
        for (size_t i = 0; i < ARRAY_LEN(wrong->says) && wrong->says[i]; i++)
            if (!strstr(found->description, wrong->says[i]))
                fail_msg("%s does not say \"%s\": %s", wrong->field, wrong->says[i],
                         found->description);
    client_failure_done(&failure);
}

#define ACTION(more) "\"action\":{\"effect\":\"EFFECT_IDEMPOTENT\"" more "}"
#define NONE         ",\"noCompensation\":true"
#define STEP(text)   "\"name\":\"bad\",\"steps\":[{\"name\":\"a\"," text "}]"

static void test_b3_s4_a_wrong_definition_is_refused_by_field_rule_and_value(void **state)
{
    (void)state;
    static const struct wrong wrongs[] = {
        { "\"name\":\"bad\"", "steps", { "required" } },
        { "\"name\":\"bad\",\"steps\":[]", "steps", { "required" } },
        { "\"steps\":[{\"name\":\"a\"," ACTION("") NONE "}]", "name", { "required" } },
        { "\"name\":\"no spaces\",\"steps\":[{\"name\":\"a\"," ACTION("") NONE "}]",
          "name",
          { "no spaces" } },
        { "\"name\":\"bad\",\"steps\":[{\"name\":\"a\"," ACTION("") NONE
          "},{\"name\":\"a\"," ACTION("") NONE "}]",
          "steps[1].name",
          { "unique", "steps[0]" } },
        { STEP("\"action\":{\"handler\":\"x\"}" NONE), "steps[0].action.effect", { "required" } },
        { STEP(ACTION("")), "steps[0].undo", { "no_compensation" } },
        { STEP(ACTION("") ",\"noCompensation\":false"), "steps[0].no_compensation", { "true" } },
        { STEP(ACTION("") ",\"compensation\":{\"effect\":\"EFFECT_IDEMPOTENT\"}"),
          "steps[0].settle_time",
          { "required" } },
        { STEP(ACTION("") ",\"guarded\":true,\"compensation\":{\"effect\":\"EFFECT_IDEMPOTENT\","
                          "\"onUnknown\":\"ON_UNKNOWN_COMPENSATE\"}"),
          "steps[0].compensation.on_unknown",
          { "PARK" } },
        { STEP(ACTION("") ",\"guarded\":true,\"compensation\":{\"effect\":\"EFFECT_IDEMPOTENT\","
                          "\"onExhausted\":\"ON_EXHAUSTED_COMPENSATE\"}"),
          "steps[0].compensation.on_exhausted",
          { "PARK" } },
        { STEP(ACTION(",\"lease\":\"4.999s\"") NONE),
          "steps[0].action.lease",
          { "5000 ms", "4999 ms" } },
        { STEP(ACTION(",\"lease\":\"3601s\"") NONE),
          "steps[0].action.lease",
          { "3600000 ms", "3601000 ms" } },
        { STEP(ACTION(",\"attemptTimeout\":\"0.05s\"") NONE),
          "steps[0].action.attempt_timeout",
          { "100 ms", "50 ms" } },
        { STEP(ACTION(",\"startTimeout\":\"0.5s\"") NONE),
          "steps[0].action.start_timeout",
          { "1000 ms", "500 ms" } },
        { STEP(ACTION(",\"retry\":{\"maxAttempts\":0}") NONE),
          "steps[0].action.retry.max_attempts",
          { "0" } },
        { STEP(ACTION(",\"retry\":{\"initial\":\"10s\",\"cap\":\"5s\"}") NONE),
          "steps[0].action.retry.cap",
          { "10000 ms", "5000 ms" } },
        { STEP(ACTION(",\"retry\":{\"for\":\"-1s\"}") NONE),
          "steps[0].action.retry.for",
          { NULL } },
        { STEP(ACTION(",\"handler\":\"a b\"") NONE), "steps[0].action.handler", { "a b" } },
        { STEP(ACTION("") NONE) ",\"deadline\":\"0.5s\"", "deadline", { "1000 ms", "500 ms" } },
        { STEP(ACTION("") NONE) ",\"namespace\":\"UPPER\"", "namespace", { "UPPER" } },
    };
    for (size_t i = 0; i < ARRAY_LEN(wrongs); i++)
        expect_refused(&wrongs[i]);
    assert_int_equal(
        rig_count(&rig, RIG_STORE, "SELECT count(*) FROM definition WHERE name = 'bad'"), 0);
}

/* Probes, windows, policies: what would leave an unknown outcome without a way out. */
static void test_b3_s4_a_wrong_way_out_of_the_unknown_is_refused(void **state)
{
    (void)state;
    static const struct wrong wrongs[] = {
        { STEP("\"action\":{\"effect\":\"EFFECT_PROBED\"},\"settleTime\":\"0s\"" NONE),
          "steps[0].action.probe",
          { "required", "PROBED" } },
        { STEP("\"action\":{\"effect\":\"EFFECT_PROBED\",\"probe\":{}}" NONE),
          "steps[0].settle_time",
          { "required", "probe" } },
        { STEP("\"action\":{\"effect\":\"EFFECT_AT_MOST_ONCE\",\"probe\":{}},"
               "\"settleTime\":\"0s\"" NONE),
          "steps[0].action.probe",
          { "AT_MOST_ONCE", "PROBED" } },
        { STEP(ACTION(",\"probe\":{\"lease\":\"1s\"}") ",\"settleTime\":\"0s\"" NONE),
          "steps[0].action.probe.lease",
          { "5000 ms", "1000 ms" } },
        { STEP(ACTION(",\"probe\":{\"retry\":{\"for\":\"9s\"}}") ",\"settleTime\":\"9s\"" NONE),
          "steps[0].action.probe.retry.for",
          { "settle_time", "9000 ms" } },
        { STEP(ACTION(",\"freshKeyAfterNotDone\":true") NONE),
          "steps[0].action.fresh_key_after_not_done",
          { "probe" } },
        { STEP(ACTION(",\"lostLeasesMax\":0") NONE),
          "steps[0].action.lost_leases_max",
          { "1 to 1000", "0" } },
        { STEP(ACTION(",\"idempotencyWindow\":\"3600s\"") NONE),
          "steps[0].settle_time",
          { "required", "idempotency_window" } },
        { STEP(ACTION(",\"idempotencyWindow\":\"0s\"") ",\"settleTime\":\"0s\"" NONE),
          "steps[0].action.idempotency_window",
          { "0 ms" } },
        { STEP(ACTION(",\"idempotencyWindow\":\"5s\"") ",\"settleTime\":\"5s\"" NONE),
          "steps[0].action.idempotency_window",
          { "settle_time", "5000 ms" } },
        { STEP("\"action\":{\"effect\":\"EFFECT_AT_MOST_ONCE\",\"idempotencyWindow\":\"60s\"},"
               "\"settleTime\":\"0s\"" NONE),
          "steps[0].action.idempotency_window",
          { "IDEMPOTENT" } },
        { STEP(ACTION("") ",\"guarded\":true,\"compensation\":{\"effect\":\"EFFECT_IDEMPOTENT\","
                          "\"onUnknown\":\"ON_UNKNOWN_ACCEPT\"}"),
          "steps[0].compensation.on_unknown",
          { "PARK", "ACCEPT" } },
    };
    for (size_t i = 0; i < ARRAY_LEN(wrongs); i++)
        expect_refused(&wrongs[i]);
}

static void test_a_definition_over_a_limit_names_limit_and_value(void **state)
{
    (void)state;
    CLEANUP(buf_done) struct buf json = { 0 };
    CLEANUP(buf_done) struct buf definition = { 0 };
    buf_text(&definition, "\"name\":\"bad\",\"steps\":[");
    for (int i = 0; i < 257; i++)
        buf_printf(&definition, "%s{\"name\":\"s%d\"," ACTION("") NONE "}", i ? "," : "", i);
    buf_text(&definition, "]");
    struct wrong many = { buf_cstr(&definition), "steps", { "256", "257" } };
    expect_refused(&many);
    buf_clear(&definition);
    buf_printf(&definition, "\"name\":\"%0129d\",\"steps\":[{\"name\":\"a\"," ACTION("") NONE "}]",
               0);
    struct wrong name = { buf_cstr(&definition), "name", { "128", "129" } };
    expect_refused(&name);
    buf_clear(&json);
    buf_printf(&json,
               "\"name\":\"bad\",\"description\":\"%01025d\",\"steps\":[{\"name\":\"a\"," ACTION("")
                   NONE "}]",
               0);
    struct wrong description = { buf_cstr(&json), "description", { "1024", "1025" } };
    expect_refused(&description);
    /* Just within: 256 steps run. */
    buf_clear(&json);
    buf_text(&json, "{\"definition\":{\"name\":\"longest\",\"steps\":[");
    for (int i = 0; i < 256; i++)
        buf_printf(&json,
                   "%s{\"name\":\"s%d\",\"action\":{\"effect\":\"EFFECT_IDEMPOTENT\","
                   "\"handler\":\"act\"}" NONE "}",
                   i ? "," : "", i);
    buf_text(&json, "]}}");
    RESPONSE longest = rig_register(&rig, buf_cstr(&json), NULL);
    assert_true(longest->created);
    (void)rig_worker(&rig, "w1", "act:8"); /* the rig owns it */
    rig_start(&rig, "longest", "l1", "");
    rig_await_state(&rig, "longest", "l1", "SUCCEEDED", 3 * SOON);
    assert_int_equal(rig_count(&rig, RIG_BANK, "SELECT count(*) FROM calls WHERE saga_id = 'l1'"),
                     256);
    rig_workers_kill(&rig);
}

static void test_b3_an_explicit_zero_is_told_apart_from_a_value_not_given(void **state)
{
    (void)state;
    /* max_attempts: absent is no limit by count, 1 is one try, 0 was refused above. */
    rig_define(&rig, "absent", NULL, "a: IDEMPOTENT for=2s initial=0.01s cap=0.01s | none");
    rig_define(&rig, "one", NULL, "a: IDEMPOTENT max_attempts=1 | none");
    /* settle_time: absent was refused above, 0 s is accepted and means no waiting. */
    rig_define(&rig, "zero", NULL, "a: IDEMPOTENT | IDEMPOTENT | settle=0s\nb: ONCE | none");
    (void)rig_worker(&rig, "w1", "act:8 undo:8"); /* the rig owns it */
    rig_start(&rig, "absent", "absent", "a A * retry");
    rig_start(&rig, "one", "one", "a A * retry");
    rig_start(&rig, "zero", "zero", "a A 1 unknown\na A 2 rejected");
    rig_await_state(&rig, "one", "one", "PARKED RETRIES_EXHAUSTED", SOON);
    rig_assert_journal(&rig, "one", "one", "a.1 RETRY, PARK RETRIES_EXHAUSTED");
    rig_await_state(&rig, "zero", "zero", "COMPENSATED", SOON);
    rig_await_state(&rig, "absent", "absent", "PARKED RETRIES_EXHAUSTED", SOON);
    assert_true(rig_count(&rig, RIG_BANK, "SELECT count(*) FROM calls WHERE saga_id = 'absent'") >
                5);
    /* The stored content keeps the difference: no default was made of a zero. */
    Saga__V1__GetDefinitionRequest request = SAGA__V1__GET_DEFINITION_REQUEST__INIT;
    request.name = rig_borrow("zero");
    CLEANUP(free_message_p)
    Saga__V1__RegisteredDefinition *zero = (Saga__V1__RegisteredDefinition *)rig_call(
        &rig, "DefinitionService/GetDefinition", &request.base,
        &saga__v1__registered_definition__descriptor, NULL);
    const Saga__V1__Step *step = zero->definition->steps[0];
    assert_non_null(step->settle_time);
    assert_int_equal(step->settle_time->seconds, 0);
    assert_int_equal(step->action->retry->_max_attempts_case, 0);
    assert_int_equal(step->action->retry->for_->seconds, 24 * 3600);
    assert_int_equal(step->action->attempt_timeout->seconds, 300);
    request.name = rig_borrow("one");
    CLEANUP(free_message_p)
    Saga__V1__RegisteredDefinition *one = (Saga__V1__RegisteredDefinition *)rig_call(
        &rig, "DefinitionService/GetDefinition", &request.base,
        &saga__v1__registered_definition__descriptor, NULL);
    assert_int_not_equal(one->definition->steps[0]->action->retry->_max_attempts_case, 0);
    assert_int_equal(one->definition->steps[0]->action->retry->max_attempts, 1);
    assert_null(one->definition->steps[0]->settle_time);
    rig_workers_kill(&rig);
}

static void test_definitions_are_found_and_listed_in_pages(void **state)
{
    (void)state;
    char name[32], token[512] = "";
    for (int i = 0; i < 12; i++) {
        (void)snprintf(name, sizeof name, "paged%02d", i);
        rig_define(&rig, name, "namespace=pages", "a: ONCE | none");
    }
    int found = 0;
    do {
        Saga__V1__ListDefinitionsRequest request = SAGA__V1__LIST_DEFINITIONS_REQUEST__INIT;
        request.namespace_ = rig_borrow("pages");
        request.page_size = 5;
        request.page_token = token;
        CLEANUP(free_message_p)
        Saga__V1__ListDefinitionsResponse *page = (Saga__V1__ListDefinitionsResponse *)rig_call(
            &rig, "DefinitionService/ListDefinitions", &request.base,
            &saga__v1__list_definitions_response__descriptor, NULL);
        for (size_t i = 0; i < page->n_definitions; i++) {
            (void)snprintf(name, sizeof name, "paged%02d", found++);
            assert_string_equal(page->definitions[i]->definition->name, name);
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
    } while (*token);
    assert_int_equal(found, 12);
    static const struct {
        const char *namespace_, *name;
        int revision, code;
    } wrong[] = { { "pages", "nothing", 0, CODE_NOT_FOUND },
                  { "pages", "paged00", 2, CODE_NOT_FOUND },
                  { "default", "paged00", 0, CODE_NOT_FOUND },
                  { "pages", "", 0, INVALID_ARGUMENT },
                  { "pages", "paged00", -1, INVALID_ARGUMENT } };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        Saga__V1__GetDefinitionRequest request = SAGA__V1__GET_DEFINITION_REQUEST__INIT;
        struct client_failure failure = { .code = 0 };
        request.namespace_ = rig_borrow(wrong[i].namespace_);
        request.name = rig_borrow(wrong[i].name);
        request.revision = wrong[i].revision;
        assert_null(rig_call(&rig, "DefinitionService/GetDefinition", &request.base,
                             &saga__v1__registered_definition__descriptor, &failure));
        assert_int_equal(failure.code, wrong[i].code);
        client_failure_done(&failure);
    }
}

/* What a revision's rows hold, of all of a definition. */
static void stored_content(const char *name, int32_t last, char *ret, size_t size)
{
    rig_text(&rig, RIG_STORE, ret, size,
             "SELECT md5(string_agg(r::text, ';' ORDER BY revision)) FROM definition_revision r"
             " WHERE name = '%s' AND revision <= %d",
             name, (int)last);
}

static void start_and_expect(const char *saga_id, const char *script, const char *state,
                             const char *calls)
{
    rig_start(&rig, "s7", saga_id, script);
    rig_await_state(&rig, "s7", saga_id, state, SOON);
    rig_assert_calls(&rig, saga_id, calls);
}

static void promote(const char *name, int32_t revision)
{
    Saga__V1__PromoteDefinitionRequest request = SAGA__V1__PROMOTE_DEFINITION_REQUEST__INIT;
    request.name = rig_borrow(name);
    request.revision = revision;
    CLEANUP(free_message_p)
    Saga__V1__RegisteredDefinition *promoted = (Saga__V1__RegisteredDefinition *)rig_call(
        &rig, "DefinitionService/PromoteDefinition", &request.base,
        &saga__v1__registered_definition__descriptor, NULL);
    assert_int_equal(promoted->revision, revision);
}

/* A hundred wait in the middle while a step is put in before them and a compensation goes. */
static void test_s7_running_sagas_keep_their_steps_and_compensations(void **state)
{
    enum { HELD = 100 };
    (void)state;
    rig_define(&rig, "s7", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT handler=later | IDEMPOTENT\n"
               "c: IDEMPOTENT | none");
    (void)rig_worker(&rig, "w1", "act:32 undo:32"); /* the rig owns it */
    rig_start_many(&rig, "s7", "ends", HELD / 2, "");
    rig_start_many(&rig, "s7", "turns", HELD / 2, "c A 1 rejected");
    rig_await(&rig, RIG_STORE, "100", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 's7' AND step = 'a' AND outcome = 'DONE'");
    rig_define(&rig, "s7", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nx: IDEMPOTENT | IDEMPOTENT\n"
               "b: IDEMPOTENT | IDEMPOTENT\nc: IDEMPOTENT | none");
    rig_define(&rig, "s7", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nx: IDEMPOTENT | IDEMPOTENT\n"
               "b: IDEMPOTENT | none\nc: IDEMPOTENT | none");
    char before[64], after[64];
    stored_content("s7", 3, before, sizeof before);
    start_and_expect("three", "c A 1 rejected", "COMPENSATED", "a.1, x.1, b.1, c.1, ~x.1, ~a.1");
    promote("s7", 2);
    start_and_expect("two", "c A 1 rejected", "COMPENSATED",
                     "a.1, x.1, b.1, c.1, ~b.1, ~x.1, ~a.1");
    /* The first one again, but for its last step: no older revision is touched by that. */
    rig_define(&rig, "s7", NULL, "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT");
    stored_content("s7", 3, after, sizeof after);
    assert_string_equal(after, before);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT max(revision) FROM definition_revision WHERE name = 's7'"),
                     4);
    start_and_expect("four", "", "SUCCEEDED", "a.1, b.1");

    (void)rig_worker(&rig, "w2", "later:32"); /* the rig owns it */
    rig_await_states(&rig, "s7", "ends", "SUCCEEDED", HELD / 2, 3 * SOON);
    rig_await_states(&rig, "s7", "turns", "COMPENSATED", HELD / 2, 3 * SOON);
    for (int i = 0; i < HELD / 2; i++) {
        char saga_id[16];
        (void)snprintf(saga_id, sizeof saga_id, "ends%d", i);
        rig_assert_calls(&rig, saga_id, "a.1, b.1, c.1");
        (void)snprintf(saga_id, sizeof saga_id, "turns%d", i);
        rig_assert_calls(&rig, saga_id, "a.1, b.1, c.1, ~b.1, ~a.1");
    }
    rig_workers_kill(&rig);
}

static int64_t revision_of(const char *saga_id)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT revision FROM saga WHERE definition = 'stale' AND saga_id = '%s'",
                     saga_id);
}

/* What another node does until this one hears of it; alone on the database, it never does. */
static void test_a_start_on_a_revision_that_is_gone_takes_what_is_current(void **state)
{
    (void)state;
    rig_define(&rig, "stale", "", "a: IDEMPOTENT | none");
    (void)rig_worker(&rig, "w", "act:8");
    rig_start(&rig, "stale", "on-1", "");
    assert_int_equal(revision_of("on-1"), 1);
    rig_await_state(&rig, "stale", "on-1", "SUCCEEDED", SOON);
    rig_exec(&rig, RIG_STORE,
             "BEGIN; DELETE FROM journal; DELETE FROM saga_key; DELETE FROM saga;"
             "INSERT INTO definition_revision (namespace, name, revision, digest, content)"
             " SELECT namespace, name, 2, sha256('2'), content FROM definition_revision"
             " WHERE name = 'stale';"
             "DELETE FROM definition_revision WHERE name = 'stale' AND revision = 1;"
             "UPDATE definition SET current_revision = 2, last_revision = 2 WHERE name = 'stale';"
             "COMMIT");
    int64_t lost = rig_counter(&rig, "decisions_lost");
    rig_start(&rig, "stale", "on-2", "");
    assert_int_equal(revision_of("on-2"), 2);
    assert_int_equal(rig_counter(&rig, "decisions_lost"), lost + 1); /* it had not heard */
    rig_start(&rig, "stale", "also-on-2", "");
    assert_int_equal(rig_counter(&rig, "decisions_lost"), lost + 1);
    rig_await_states(&rig, "stale", "", "SUCCEEDED", 2, SOON);
    /* All of it is gone: the answer is the one of an unknown definition. */
    rig_exec(&rig, RIG_STORE,
             "BEGIN; DELETE FROM journal; DELETE FROM saga_key; DELETE FROM saga;"
             "DELETE FROM definition_revision WHERE name = 'stale';"
             "UPDATE definition SET current_revision = 0 WHERE name = 'stale'; COMMIT");
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow("stale");
    request.saga_id = rig_borrow("nowhere");
    struct client_failure failure = { .code = 0 };
    assert_null(rig_call(&rig, "SagaService/StartSaga", &request.base,
                         &saga__v1__start_saga_response__descriptor, &failure));
    assert_string_equal(failure.reason, "DEFINITION_NOT_FOUND");
    client_failure_done(&failure);
    rig_workers_kill(&rig);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_the_same_content_is_the_same_revision_and_other_content_the_next),
        TEST(test_validate_only_stores_nothing_and_tells_the_revision),
        TEST(test_b3_s4_a_wrong_definition_is_refused_by_field_rule_and_value),
        TEST(test_b3_s4_a_wrong_way_out_of_the_unknown_is_refused),
        TEST(test_a_definition_over_a_limit_names_limit_and_value),
        TEST(test_b3_an_explicit_zero_is_told_apart_from_a_value_not_given),
        TEST(test_definitions_are_found_and_listed_in_pages),
        TEST(test_s7_running_sagas_keep_their_steps_and_compensations),
        TEST(test_a_start_on_a_revision_that_is_gone_takes_what_is_current),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
