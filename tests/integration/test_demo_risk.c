/* Goal: what the demo's worker claims about a risk call is true: RISK_NOT_SENT only if nothing
 * happened, RISK_UNKNOWN whenever it may have. Method: the real service as a child process, each
 * behaviour called once, the service killed before and during a call; its log says what really took
 * effect. */
#include "support/check.h"

#include "base/clock.h"
#include "base/mem.h"
#include "risk_client.h"
#include "support/process.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

enum { LIMIT_MS = 20000, CALL_MS = 4000, SHORT_CALL_MS = 600 };

#define BEHAVIOUR(name) DEMO__RISK__V1__BEHAVIOUR__BEHAVIOUR_##name

struct fixture {
    struct test_process *service;
    struct caller *client;
    char log[SCRATCH_PATH_SIZE];
};

static int setup(void **state)
{
    static struct fixture fixture;
    struct err err;
    char line[256];
    fixture = (struct fixture){ 0 };
    SETUP_OK(scratch_path("effects", fixture.log, &err), &err);
    const char *const argv[] = {
        RISK_SERVICE, "--listen", "127.0.0.1:0", "--log", fixture.log, NULL
    };
    SETUP_OK(test_process_run(argv, &fixture.service, &err), &err);
    SETUP_OK(
        test_process_wait_output(fixture.service, "serving on ", LIMIT_MS, line, sizeof line, &err),
        &err);
    SETUP_OK(caller_create(strstr(line, "serving on ") + 11, &fixture.client, &err), &err);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    fixture->client = caller_free(fixture->client);
    fixture->service = test_process_free(fixture->service);
    return 0;
}

/* Lines of the log with this word and settlement. */
static int effects(const struct fixture *fixture, const char *what, const char *settlement_id)
{
    char line[1024], word[32], id[64];
    int count = 0;
    FILE *file = fopen(fixture->log, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        assert_int_equal(sscanf(line, "%*s %31s %*s %63s", word, id), 2);
        count += strcmp(word, what) == 0 && strcmp(id, settlement_id) == 0;
    }
    (void)fclose(file); /* only read */
    return count;
}

static struct risk_outcome notify(struct fixture *fixture, Demo__Risk__V1__Behaviour behaviour,
                                  const char *settlement_id, int64_t timeout_ms)
{
    struct risk_notification notification = { "key-1", settlement_id, 7, 1250, behaviour };
    assert_true(caller_connect(fixture->client, LIMIT_MS));
    return risk_client_notify(fixture->client, &notification, caller_until_ms(timeout_ms));
}

static void test_each_behaviour_is_told_as_it_was(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        Demo__Risk__V1__Behaviour behaviour;
        const char *settlement_id;
        enum risk_result result;
        int effects;
    } cases[] = {
        { BEHAVIOUR(NORMAL), "s-normal", RISK_ACCEPTED, 1 },
        { BEHAVIOUR(SLOW), "s-slow", RISK_ACCEPTED, 1 },
        { BEHAVIOUR(REFUSE), "s-refuse", RISK_REFUSED, 0 },
        { BEHAVIOUR(ALREADY_EXISTS), "s-exists", RISK_ALREADY_EXISTS, 1 },
        { BEHAVIOUR(TRY_LATER), "s-later", RISK_TRY_LATER, 0 },
        { BEHAVIOUR(TRY_LATER) + 1, "s-nothing", RISK_INVALID, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct risk_outcome outcome =
            notify(fixture, cases[i].behaviour, cases[i].settlement_id, CALL_MS);
        assert_int_equal(outcome.result, cases[i].result);
        assert_int_equal(effects(fixture, "NOTIFIED", cases[i].settlement_id), cases[i].effects);
        assert_int_equal(outcome.ours, cases[i].result == RISK_ALREADY_EXISTS);
        assert_int_equal(*outcome.reference != '\0', cases[i].effects);
    }
}

static void test_it_is_not_idempotent(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(notify(fixture, BEHAVIOUR(NORMAL), "s-twice", CALL_MS).result, RISK_ACCEPTED);
    assert_int_equal(notify(fixture, BEHAVIOUR(NORMAL), "s-twice", CALL_MS).result, RISK_ACCEPTED);
    assert_int_equal(effects(fixture, "NOTIFIED", "s-twice"), 2);
}

static void test_silence_is_unknown_and_it_took_effect(void **state)
{
    struct fixture *fixture = *state;
    struct risk_outcome outcome =
        notify(fixture, BEHAVIOUR(TAKE_EFFECT_THEN_TIME_OUT), "s-silent", SHORT_CALL_MS);
    assert_int_equal(outcome.result, RISK_UNKNOWN);
    assert_string_equal(outcome.code, "DEADLINE_EXCEEDED");
    assert_int_equal(effects(fixture, "NOTIFIED", "s-silent"), 1);
}

static void test_a_request_it_cannot_read_has_no_effect(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(notify(fixture, BEHAVIOUR(NORMAL), "two words", CALL_MS).result, RISK_INVALID);
    assert_int_equal(notify(fixture, BEHAVIOUR(NORMAL), "", CALL_MS).result, RISK_INVALID);
    struct risk_outcome outcome =
        risk_client_withdraw(fixture->client, "key-1", "", caller_until_ms(CALL_MS));
    assert_int_equal(outcome.result, RISK_INVALID);
}

static void test_withdraw_may_be_repeated(void **state)
{
    struct fixture *fixture = *state;
    assert_true(caller_connect(fixture->client, LIMIT_MS));
    for (int i = 0; i < 2; i++) {
        struct risk_outcome outcome =
            risk_client_withdraw(fixture->client, "key-2", "s-back", caller_until_ms(CALL_MS));
        assert_int_equal(outcome.result, RISK_ACCEPTED);
    }
    assert_int_equal(effects(fixture, "WITHDRAWN", "s-back"), 2);
}

struct background {
    struct fixture *fixture;
    struct risk_outcome outcome;
};

static void *call_slowly(void *ctx)
{
    struct background *background = ctx;
    struct risk_notification notification = { "key-1", "s-killed", 7, 1250, BEHAVIOUR(SLOW) };
    background->outcome =
        risk_client_notify(background->fixture->client, &notification, caller_until_ms(LIMIT_MS));
    return NULL;
}

static bool has_taken_effect(void *ctx)
{
    return effects(ctx, "NOTIFIED", "s-killed") == 1;
}

static void test_killed_during_the_call_is_unknown_and_before_it_not_sent(void **state)
{
    struct fixture *fixture = *state;
    struct background background = { .fixture = fixture };
    pthread_t thread;
    assert_true(caller_connect(fixture->client, LIMIT_MS));
    assert_int_equal(pthread_create(&thread, NULL, call_slowly, &background), 0);
    bool in_mid_call = wait_until(has_taken_effect, fixture, LIMIT_MS);
    test_process_kill(fixture->service);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(in_mid_call);
    assert_int_equal(background.outcome.result, RISK_UNKNOWN);
    assert_string_equal(background.outcome.code, "CONNECTION_LOST");

    assert_false(caller_connect(fixture->client, SHORT_CALL_MS));
    struct risk_notification notification = { "key-1", "s-after", 7, 1250, BEHAVIOUR(NORMAL) };
    struct risk_outcome outcome =
        risk_client_notify(fixture->client, &notification, caller_until_ms(CALL_MS));
    assert_int_equal(outcome.result, RISK_NOT_SENT);
    assert_int_equal(effects(fixture, "NOTIFIED", "s-after"), 0);
}

static void *call_in_silence(void *ctx)
{
    struct background *background = ctx;
    struct risk_notification notification = { "key-1", "s-killed", 7, 1250,
                                              BEHAVIOUR(TAKE_EFFECT_THEN_TIME_OUT) };
    background->outcome =
        risk_client_notify(background->fixture->client, &notification, caller_until_ms(LIMIT_MS));
    return NULL;
}

static void test_it_ends_in_order_with_a_call_that_it_never_answers(void **state)
{
    struct fixture *fixture = *state;
    struct background background = { .fixture = fixture };
    struct err err;
    pthread_t thread;
    int status = -1;
    assert_true(caller_connect(fixture->client, LIMIT_MS));
    assert_int_equal(pthread_create(&thread, NULL, call_in_silence, &background), 0);
    bool in_mid_call = wait_until(has_taken_effect, fixture, LIMIT_MS);
    int signalled = test_process_signal(fixture->service, SIGTERM, &err);
    int waited = test_process_wait(fixture->service, LIMIT_MS, &status, &err);
    if (waited)
        test_process_kill(fixture->service); /* so that the call ends and the thread with it */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(in_mid_call);
    assert_int_equal(signalled, 0);
    assert_int_equal(waited, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(background.outcome.result, RISK_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_behaviour_is_told_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_is_not_idempotent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silence_is_unknown_and_it_took_effect, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_request_it_cannot_read_has_no_effect, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_withdraw_may_be_repeated, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_killed_during_the_call_is_unknown_and_before_it_not_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_ends_in_order_with_a_call_that_it_never_answers,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
