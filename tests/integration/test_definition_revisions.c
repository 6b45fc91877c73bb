/* Revisions over the whole stack. Goal: a running saga stays on its revision, new ones take the one
 * that was promoted last; a paused definition starts none and loses none; what is in use is not
 * deleted. Method: sagas that wait for workers while everything around them changes, on two nodes.
 */
#include "support/nodes.h"

#include <stdio.h>

enum {
    NOT_FOUND = 5,
    FAILED_PRECONDITION = 9,
    UNAVAILABLE = 14,
    INVALID_ARGUMENT = 3,
    SOON = 10000
};

static struct nodes nodes;
static struct rig *rig;

static int setup(void **state)
{
    (void)state;
    rig = &nodes.at[0];
    return nodes_up(&nodes, 2, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return nodes_down(&nodes);
}

static int check(void **state)
{
    (void)state;
    return nodes_check(&nodes);
}

/* --- calls ------------------------------------------------------------------------------------ */

#define STEP(name)                                                                                 \
    "{\"name\":\"" name "\",\"action\":{\"effect\":\"EFFECT_IDEMPOTENT\",\"handler\":\"act\"},"    \
    "\"noCompensation\":true}"

/* Each content another one; an even one has another step before the step "a". Returns its revision.
 */
static int32_t put(const char *name, int content, bool keep_current)
{
    char json[512];
    (void)snprintf(json, sizeof json,
                   "{%s\"definition\":{\"name\":\"%s\",\"description\":\"%d\",\"steps\":[%s]}}",
                   keep_current ? "\"keepCurrent\":true," : "", name, content,
                   content % 2 ? STEP("a") : STEP("inserted") "," STEP("a"));
    Saga__V1__RegisterDefinitionResponse *reply = rig_register(rig, json, NULL);
    int32_t revision = reply->registered->revision;
    saga__v1__register_definition_response__free_unpacked(reply, NULL);
    return revision;
}

/* One of the calls about a definition: the status code, and the reason. */
struct answer {
    int code;
    char reason[64];
    Saga__V1__RegisteredDefinition *registered; /* owned; NULL: refused, or a deletion */
};

static void answer_done(struct answer *answer)
{
    if (answer->registered)
        saga__v1__registered_definition__free_unpacked(answer->registered, NULL);
    answer->registered = NULL;
}

static struct answer call(const char *method, const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *reply_type)
{
    struct answer answer = { .code = 0 };
    struct client_failure failure = { .code = 0 };
    ProtobufCMessage *reply = rig_call(rig, method, request, reply_type, &failure);
    if (!reply) {
        answer.code = failure.code;
        (void)snprintf(answer.reason, sizeof answer.reason, "%s", failure.reason);
        client_failure_done(&failure);
    } else if (reply->descriptor == &saga__v1__registered_definition__descriptor) {
        answer.registered = (Saga__V1__RegisteredDefinition *)reply;
    } else {
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return answer;
}

static struct answer promote(const char *name, int32_t revision)
{
    Saga__V1__PromoteDefinitionRequest request = SAGA__V1__PROMOTE_DEFINITION_REQUEST__INIT;
    request.name = rig_borrow(name);
    request.revision = revision;
    return call("DefinitionService/PromoteDefinition", &request.base,
                &saga__v1__registered_definition__descriptor);
}

static struct answer pause_it(const char *name, const char *actor, const char *reason)
{
    Saga__V1__PauseDefinitionRequest request = SAGA__V1__PAUSE_DEFINITION_REQUEST__INIT;
    request.name = rig_borrow(name);
    request.actor = rig_borrow(actor);
    request.reason = rig_borrow(reason);
    return call("DefinitionService/PauseDefinition", &request.base,
                &saga__v1__registered_definition__descriptor);
}

static struct answer resume(const char *name)
{
    Saga__V1__ResumeDefinitionRequest request = SAGA__V1__RESUME_DEFINITION_REQUEST__INIT;
    request.name = rig_borrow(name);
    return call("DefinitionService/ResumeDefinition", &request.base,
                &saga__v1__registered_definition__descriptor);
}

static struct answer delete_it(const char *name, int32_t revision)
{
    Saga__V1__DeleteRevisionRequest request = SAGA__V1__DELETE_REVISION_REQUEST__INIT;
    request.name = rig_borrow(name);
    request.revision = revision;
    return call("DefinitionService/DeleteRevision", &request.base,
                &saga__v1__delete_revision_response__descriptor);
}

static void expect(struct answer answer, int code, const char *reason)
{
    if (answer.code != code || (reason && strcmp(answer.reason, reason) != 0))
        fail_msg("%s %s instead of %s %s", client_code_name(answer.code), answer.reason,
                 client_code_name(code), reason ? reason : "");
    answer_done(&answer);
}

/* At that node; 0, or the code of the refusal with `ret_failure`. */
static int start_at(struct rig *node, const char *definition, const char *saga_id,
                    int32_t *ret_revision, struct client_failure *ret_failure)
{
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow(definition);
    request.saga_id = rig_borrow(saga_id);
    *ret_failure = (struct client_failure){ .code = 0 };
    ProtobufCMessage *reply = rig_call(node, "SagaService/StartSaga", &request.base,
                                       &saga__v1__start_saga_response__descriptor, ret_failure);
    if (!reply)
        return ret_failure->code;
    protobuf_c_message_free_unpacked(reply, NULL);
    *ret_revision = (int32_t)rig_count(
        node, RIG_STORE, "SELECT revision FROM saga WHERE definition = '%s' AND saga_id = '%s'",
        definition, saga_id);
    return 0;
}

static void expect_start(struct rig *node, const char *definition, const char *saga_id,
                         int32_t revision)
{
    struct client_failure failure;
    int32_t got = 0;
    if (start_at(node, definition, saga_id, &got, &failure) != 0)
        fail_msg("start %s: %s", saga_id, failure.message);
    if (got != revision)
        fail_msg("%s started on revision %d, not %d", saga_id, got, revision);
}

/* --- which revision --------------------------------------------------------------------------- */

static void test_s7_a_running_saga_stays_on_its_revision_and_promoting_rolls_back(void **state)
{
    (void)state;
    assert_int_equal(put("roll", 1, false), 1);
    expect_start(rig, "roll", "on-1", 1);
    assert_int_equal(put("roll", 2, true), 2);
    expect_start(rig, "roll", "still-1", 1);
    struct answer answer = promote("roll", 2);
    assert_int_equal(answer.code, 0);
    assert_true(answer.registered->current);
    assert_int_equal(answer.registered->revision, 2);
    answer_done(&answer);
    expect_start(rig, "roll", "on-2", 2);
    expect(promote("roll", 1), 0, NULL);
    expect(promote("roll", 1), 0, NULL); /* again is the same */
    expect_start(rig, "roll", "back-on-1", 1);
    assert_int_equal(put("roll", 2, false), 2); /* registering is promoting, too */
    expect_start(rig, "roll", "again-on-2", 2);
    assert_int_equal(put("roll", 1, true), 1);
    expect_start(rig, "roll", "kept-on-2", 2);
    /* The other node hears of it with its next heartbeat. */
    expect(promote("roll", 1), 0, NULL);
    for (int32_t i = 0, got = 2; got != 1; i++) {
        char saga_id[32];
        struct client_failure failure;
        assert_true(i < 200);
        (void)snprintf(saga_id, sizeof saga_id, "elsewhere-%d", i);
        assert_int_equal(start_at(&nodes.at[1], "roll", saga_id, &got, &failure), 0);
        rig_exec(rig, RIG_STORE, "SELECT pg_sleep(0.02)");
    }
    expect(promote("roll", 3), NOT_FOUND, NULL);
    expect(promote("roll", 0), INVALID_ARGUMENT, NULL);
    expect(promote("none", 1), NOT_FOUND, NULL);
    (void)nodes_worker(&nodes, 0, 1, "w", "act:8");
    rig_await_states(
        rig, "roll", "", "SUCCEEDED",
        rig_count(rig, RIG_STORE, "SELECT count(*) FROM saga WHERE definition = 'roll'"), SOON);
    rig_assert_journal(rig, "roll", "on-1", "a.1 DONE");
    rig_assert_journal(rig, "roll", "still-1", "a.1 DONE");
    rig_assert_journal(rig, "roll", "on-2", "inserted.1 DONE, a.1 DONE");
    rig_assert_journal(rig, "roll", "back-on-1", "a.1 DONE");
}

/* --- pause ------------------------------------------------------------------------------------ */

static void test_a_paused_definition_starts_none_and_ends_what_runs(void **state)
{
    (void)state;
    assert_int_equal(put("pausing", 1, false), 1);
    expect_start(rig, "pausing", "before", 1);
    struct answer first = pause_it("pausing", "ann", "bank is down");
    assert_int_equal(first.code, 0);
    assert_string_equal(first.registered->pause->actor, "ann");
    assert_string_equal(first.registered->pause->reason, "bank is down");
    struct answer again = pause_it("pausing", "bob", "");
    assert_int_equal(again.registered->pause->time->seconds,
                     first.registered->pause->time->seconds);
    assert_int_equal(again.registered->pause->time->nanos, first.registered->pause->time->nanos);
    assert_string_equal(again.registered->pause->actor, "ann");
    answer_done(&first);
    answer_done(&again);
    struct client_failure failure;
    int32_t revision;
    assert_int_equal(start_at(rig, "pausing", "during", &revision, &failure), UNAVAILABLE);
    assert_string_equal(failure.reason, "DEFINITION_PAUSED");
    assert_true(failure.retry_delay_ms > 0);
    assert_non_null(strstr(failure.message, "bank is down"));
    client_failure_done(&failure);
    expect_start(rig, "pausing", "before", 1); /* a key that is known */
    (void)rig_worker(rig, "w", "act:8");
    rig_await_state(rig, "pausing", "before", "SUCCEEDED", SOON);
    struct answer resumed = resume("pausing");
    assert_null(resumed.registered->pause);
    answer_done(&resumed);
    expect(resume("pausing"), 0, NULL);
    expect_start(rig, "pausing", "after", 1);
    expect(pause_it("none", "", ""), NOT_FOUND, NULL);
    expect(resume("none"), NOT_FOUND, NULL);
    expect(pause_it("", "", ""), INVALID_ARGUMENT, NULL);
    rig_await_state(rig, "pausing", "after", "SUCCEEDED", SOON);
}

/* --- lists ------------------------------------------------------------------------------------ */

static Saga__V1__ListRevisionsResponse *list(const char *name, int32_t page_size, const char *token)
{
    Saga__V1__ListRevisionsRequest request = SAGA__V1__LIST_REVISIONS_REQUEST__INIT;
    request.name = rig_borrow(name);
    request.page_size = page_size;
    request.page_token = rig_borrow(token);
    return (Saga__V1__ListRevisionsResponse *)rig_call(
        rig, "DefinitionService/ListRevisions", &request.base,
        &saga__v1__list_revisions_response__descriptor, NULL);
}

static void test_revisions_are_listed_newest_first_with_what_they_still_have_to_do(void **state)
{
    (void)state;
    static const int64_t open[] = { 2, 0, 1 };
    for (int32_t i = 1; i <= 3; i++) {
        assert_int_equal(put("listed", i, false), i);
        for (int64_t saga = 0; saga < open[i - 1]; saga++) {
            char saga_id[32];
            (void)snprintf(saga_id, sizeof saga_id, "s-%d-%d", (int)i, (int)saga);
            expect_start(rig, "listed", saga_id, i);
        }
    }
    char token[512] = "";
    int32_t expected = 3;
    do {
        Saga__V1__ListRevisionsResponse *page = list("listed", 2, token);
        for (size_t i = 0; i < page->n_revisions; i++, expected--) {
            assert_int_equal(page->revisions[i]->revision, expected);
            assert_int_equal(page->revisions[i]->current, expected == 3);
            assert_int_equal(page->revisions[i]->open_sagas, open[expected - 1]);
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        assert_true(*token || expected == 0);
        saga__v1__list_revisions_response__free_unpacked(page, NULL);
    } while (*token);
    assert_int_equal(expected, 0);
    /* A token is of one definition, and of this method. */
    Saga__V1__ListRevisionsResponse *page = list("listed", 1, "");
    Saga__V1__ListRevisionsRequest request = SAGA__V1__LIST_REVISIONS_REQUEST__INIT;
    request.name = rig_borrow("roll");
    request.page_token = page->next_page_token;
    expect(call("DefinitionService/ListRevisions", &request.base,
                &saga__v1__list_revisions_response__descriptor),
           INVALID_ARGUMENT, NULL);
    Saga__V1__ListDefinitionsRequest other = SAGA__V1__LIST_DEFINITIONS_REQUEST__INIT;
    other.page_token = page->next_page_token;
    expect(call("DefinitionService/ListDefinitions", &other.base,
                &saga__v1__list_definitions_response__descriptor),
           INVALID_ARGUMENT, NULL);
    saga__v1__list_revisions_response__free_unpacked(page, NULL);
    request.name = rig_borrow("none");
    request.page_token = rig_borrow("");
    expect(call("DefinitionService/ListRevisions", &request.base,
                &saga__v1__list_revisions_response__descriptor),
           NOT_FOUND, NULL);
    (void)rig_worker(rig, "w", "act:8");
    rig_await_states(rig, "listed", "s-", "SUCCEEDED", 3, SOON);
}

/* --- deletion --------------------------------------------------------------------------------- */

static void test_a_revision_in_use_is_not_deleted(void **state)
{
    (void)state;
    assert_int_equal(put("used", 1, false), 1);
    expect_start(rig, "used", "runs", 1);
    expect(delete_it("used", 1), FAILED_PRECONDITION, "REVISION_IN_USE"); /* the last one, too */
    assert_int_equal(put("used", 2, false), 2);
    assert_int_equal(put("used", 3, true), 3);
    expect(delete_it("used", 2), FAILED_PRECONDITION, "REVISION_CURRENT");
    expect(delete_it("used", 1), FAILED_PRECONDITION, "REVISION_IN_USE");
    (void)rig_worker(rig, "w", "act:8");
    rig_await_state(rig, "used", "runs", "SUCCEEDED", SOON);
    expect(delete_it("used", 1), FAILED_PRECONDITION, "REVISION_IN_USE"); /* its journal is kept */
    expect(delete_it("used", 3), 0, NULL);
    expect(delete_it("used", 3), NOT_FOUND, NULL);
    expect(promote("used", 3), NOT_FOUND, NULL);
    assert_int_equal(put("used", 3, true), 4); /* no number twice */
    expect_start(rig, "used", "goes on", 2);
    rig_await_state(rig, "used", "goes on", "SUCCEEDED", SOON);
}

static void test_a_definition_goes_with_its_last_revision(void **state)
{
    (void)state;
    struct client_failure failure;
    int32_t revision;
    assert_int_equal(put("last", 1, false), 1);
    expect(pause_it("last", "ann", ""), 0, NULL);
    expect(delete_it("last", 1), 0, NULL);
    assert_int_equal(start_at(rig, "last", "none", &revision, &failure), NOT_FOUND);
    assert_string_equal(failure.reason, "DEFINITION_NOT_FOUND");
    client_failure_done(&failure);
    assert_int_equal(put("last", 1, false), 2);
    expect_start(rig, "last", "anew", 2);
    (void)rig_worker(rig, "w", "act:8");
    rig_await_state(rig, "last", "anew", "SUCCEEDED", SOON);
}

#define NODES_TEST(name) cmocka_unit_test_teardown(name, check)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODES_TEST(test_s7_a_running_saga_stays_on_its_revision_and_promoting_rolls_back),
        NODES_TEST(test_a_paused_definition_starts_none_and_ends_what_runs),
        NODES_TEST(test_revisions_are_listed_newest_first_with_what_they_still_have_to_do),
        NODES_TEST(test_a_revision_in_use_is_not_deleted),
        NODES_TEST(test_a_definition_goes_with_its_last_revision),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
