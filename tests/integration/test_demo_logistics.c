/* Goal: what the demo's worker claims about a logistics call is true: NOT_SENT only if nothing
 * happened, UNKNOWN whenever it may have, "exists" as ours only under our key; and the service is
 * as awkward as it says: it lands late, forgets keys, and then makes a second waybill. Method: the
 * real service as a child process, each behaviour called, the service killed before and during a
 * call; its log says what really took effect. */
#include "support/check.h"

#include "base/clock.h"
#include "logistics_client.h"
#include "support/process.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

enum { LIMIT_MS = 20000, CALL_MS = 4000, SHORT_CALL_MS = 600, REMEMBER_MS = 3000, LATE_MS = 4500 };

#define BEHAVIOUR(name) DEMO__LOGISTICS__V1__BEHAVIOUR__BEHAVIOUR_##name

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
    const char *const argv[] = { LOGISTICS_SERVICE, "--listen",           "127.0.0.1:0", "--log",
                                 fixture.log,       "--remember-seconds", "3",           NULL };
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

/* Lines of the log with this word and order. */
static int effects(const struct fixture *fixture, const char *what, const char *order_id)
{
    char line[1024], word[32], id[64];
    int count = 0;
    FILE *file = fopen(fixture->log, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        assert_int_equal(sscanf(line, "%*s %31s %*s %63s", word, id), 2);
        count += strcmp(word, what) == 0 && strcmp(id, order_id) == 0;
    }
    (void)fclose(file); /* only read */
    return count;
}

/* The key is the order's own name. */
static struct logistics_outcome create(struct fixture *fixture,
                                       Demo__Logistics__V1__Behaviour behaviour,
                                       const char *order_id, int64_t timeout_ms)
{
    struct logistics_order order = { order_id, order_id, 2, behaviour };
    assert_true(caller_connect(fixture->client, LIMIT_MS));
    return logistics_create(fixture->client, &order, caller_until_ms(timeout_ms));
}

static enum logistics_result find(struct fixture *fixture, const char *key)
{
    assert_true(caller_connect(fixture->client, LIMIT_MS));
    return logistics_find(fixture->client, key, caller_until_ms(SHORT_CALL_MS)).result;
}

static void test_each_behaviour_is_told_as_it_was(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        Demo__Logistics__V1__Behaviour behaviour;
        const char *order_id;
        enum logistics_result result, found;
        int effects;
        bool ours;
    } cases[] = {
        { BEHAVIOUR(NORMAL), "o-normal", LOGISTICS_DONE, LOGISTICS_DONE, 1, false },
        { BEHAVIOUR(REFUSE), "o-refuse", LOGISTICS_REFUSED, LOGISTICS_NOT_FOUND, 0, false },
        { BEHAVIOUR(TAKE_EFFECT_THEN_TIME_OUT), "o-take-effect-then-time-out", LOGISTICS_UNKNOWN,
          LOGISTICS_DONE, 1, false },
        { BEHAVIOUR(GET_LOST), "o-get-lost", LOGISTICS_UNKNOWN, LOGISTICS_NOT_FOUND, 0, false },
        { BEHAVIOUR(EXISTS), "o-exists", LOGISTICS_EXISTS, LOGISTICS_DONE, 1, true },
        { BEHAVIOUR(EXISTS_ELSEWHERE), "o-exists-elsewhere", LOGISTICS_EXISTS, LOGISTICS_NOT_FOUND,
          0, false },
        { BEHAVIOUR(GO_SILENT), "o-go-silent", LOGISTICS_UNKNOWN, LOGISTICS_UNKNOWN, 1, false },
        { BEHAVIOUR(GO_SILENT) + 1, "o-no-such-thing", LOGISTICS_INVALID, LOGISTICS_NOT_FOUND, 0,
          false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *order_id = cases[i].order_id;
        bool silent = cases[i].result == LOGISTICS_UNKNOWN;
        struct logistics_outcome outcome =
            create(fixture, cases[i].behaviour, order_id, silent ? SHORT_CALL_MS : CALL_MS);
        assert_int_equal(outcome.result, cases[i].result);
        assert_int_equal(outcome.ours, cases[i].ours);
        assert_int_equal(effects(fixture, "CREATED", order_id), cases[i].effects);
        bool told = cases[i].result == LOGISTICS_DONE || cases[i].result == LOGISTICS_EXISTS;
        assert_int_equal(*outcome.waybill != '\0', told);
        if (silent)
            assert_string_equal(outcome.code, "DEADLINE_EXCEEDED");
        /* Answers may take 800 ms: then it is not found out, which is no lie. */
        enum logistics_result found = find(fixture, order_id);
        assert_true(found == cases[i].found || found == LOGISTICS_UNKNOWN);
    }
}

static void test_a_repeat_is_the_same_waybill_while_the_key_is_remembered(void **state)
{
    struct fixture *fixture = *state;
    struct logistics_outcome first = create(fixture, BEHAVIOUR(NORMAL), "o-again", CALL_MS);
    struct logistics_outcome second = create(fixture, BEHAVIOUR(NORMAL), "o-again", CALL_MS);
    assert_int_equal(first.result, LOGISTICS_DONE);
    assert_int_equal(second.result, LOGISTICS_EXISTS);
    assert_true(second.ours);
    assert_string_equal(second.waybill, first.waybill);
    assert_int_equal(effects(fixture, "CREATED", "o-again"), 1);
}

static void test_a_repeat_is_a_second_waybill_when_the_key_is_forgotten(void **state)
{
    struct fixture *fixture = *state;
    struct logistics_outcome first = create(fixture, BEHAVIOUR(NORMAL), "o-forgotten", CALL_MS);
    wait_ms(REMEMBER_MS);
    struct logistics_outcome second = create(fixture, BEHAVIOUR(NORMAL), "o-forgotten", CALL_MS);
    assert_int_equal(second.result, LOGISTICS_DONE);
    assert_string_not_equal(second.waybill, first.waybill);
    assert_int_equal(effects(fixture, "CREATED", "o-forgotten"), 2);
    assert_true(find(fixture, "o-forgotten") != LOGISTICS_NOT_FOUND); /* the books forget nothing */
}

static bool has_landed(void *ctx)
{
    return effects(ctx, "CREATED", "o-late") == 1;
}

static void test_a_late_request_is_in_the_books_when_nobody_expects_it(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(create(fixture, BEHAVIOUR(LAND_LATE), "o-late", SHORT_CALL_MS).result,
                     LOGISTICS_UNKNOWN);
    assert_int_equal(effects(fixture, "CREATED", "o-late"), 0);
    assert_true(find(fixture, "o-late") != LOGISTICS_DONE);
    assert_true(wait_until(has_landed, fixture, LATE_MS));
    assert_true(find(fixture, "o-late") != LOGISTICS_NOT_FOUND);
}

/* What settle_time is for: nobody repeats before it is over. If somebody does, the key helps. */
static void test_a_repeat_before_the_late_request_is_one_waybill(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(create(fixture, BEHAVIOUR(LAND_LATE), "o-late", SHORT_CALL_MS).result,
                     LOGISTICS_UNKNOWN);
    wait_ms(1500); /* so that the key is still remembered when the late one comes */
    assert_int_equal(create(fixture, BEHAVIOUR(LAND_LATE), "o-late", CALL_MS).result,
                     LOGISTICS_DONE);
    wait_ms(LATE_MS - 2000);
    assert_int_equal(effects(fixture, "CREATED", "o-late"), 1);
}

static void test_cancelling_may_be_repeated(void **state)
{
    struct fixture *fixture = *state;
    (void)create(fixture, BEHAVIOUR(NORMAL), "o-back", CALL_MS);
    for (int i = 0; i < 2; i++) {
        struct logistics_outcome outcome =
            logistics_cancel(fixture->client, "key-2", "o-back", caller_until_ms(CALL_MS));
        assert_int_equal(outcome.result, LOGISTICS_DONE);
        assert_int_equal(effects(fixture, "CANCELLED", "o-back"), 1);
    }
    assert_true(find(fixture, "o-back") != LOGISTICS_DONE);
    assert_int_equal(
        logistics_cancel(fixture->client, "key-3", "o-never", caller_until_ms(CALL_MS)).result,
        LOGISTICS_DONE);
    assert_int_equal(effects(fixture, "CANCELLED", "o-never"), 0);
}

static void test_a_request_it_cannot_read_has_no_effect(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(create(fixture, BEHAVIOUR(NORMAL), "two words", CALL_MS).result,
                     LOGISTICS_INVALID);
    assert_int_equal(create(fixture, BEHAVIOUR(NORMAL), "", CALL_MS).result, LOGISTICS_INVALID);
    struct logistics_order other = { "o-mine", "o-other", 1, BEHAVIOUR(NORMAL) };
    assert_int_equal(create(fixture, BEHAVIOUR(NORMAL), "o-mine", CALL_MS).result, LOGISTICS_DONE);
    assert_int_equal(logistics_create(fixture->client, &other, caller_until_ms(CALL_MS)).result,
                     LOGISTICS_INVALID);
    assert_int_equal(effects(fixture, "CREATED", "o-other"), 0);
    assert_int_equal(logistics_find(fixture->client, "", caller_until_ms(CALL_MS)).result,
                     LOGISTICS_INVALID);
    assert_int_equal(
        logistics_cancel(fixture->client, "key-1", "", caller_until_ms(CALL_MS)).result,
        LOGISTICS_INVALID);
}

struct background {
    struct fixture *fixture;
    struct logistics_outcome outcome;
};

static void *call_in_silence(void *ctx)
{
    struct background *background = ctx;
    struct logistics_order order = { "key-1", "o-killed", 1, BEHAVIOUR(TAKE_EFFECT_THEN_TIME_OUT) };
    background->outcome =
        logistics_create(background->fixture->client, &order, caller_until_ms(LIMIT_MS));
    return NULL;
}

static bool has_taken_effect(void *ctx)
{
    return effects(ctx, "CREATED", "o-killed") == 1;
}

static void test_killed_during_the_call_is_unknown_and_before_it_not_sent(void **state)
{
    struct fixture *fixture = *state;
    struct background background = { .fixture = fixture };
    pthread_t thread;
    assert_true(caller_connect(fixture->client, LIMIT_MS));
    assert_int_equal(pthread_create(&thread, NULL, call_in_silence, &background), 0);
    bool in_mid_call = wait_until(has_taken_effect, fixture, LIMIT_MS);
    test_process_kill(fixture->service);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(in_mid_call);
    assert_int_equal(background.outcome.result, LOGISTICS_UNKNOWN);
    assert_string_equal(background.outcome.code, "CONNECTION_LOST");

    assert_false(caller_connect(fixture->client, SHORT_CALL_MS));
    struct logistics_order order = { "key-2", "o-after", 1, BEHAVIOUR(NORMAL) };
    struct logistics_outcome outcome =
        logistics_create(fixture->client, &order, caller_until_ms(CALL_MS));
    assert_int_equal(outcome.result, LOGISTICS_NOT_SENT);
    assert_int_equal(logistics_find(fixture->client, "key-2", caller_until_ms(CALL_MS)).result,
                     LOGISTICS_NOT_SENT);
    assert_int_equal(effects(fixture, "CREATED", "o-after"), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_each_behaviour_is_told_as_it_was),
        TEST(test_a_repeat_is_the_same_waybill_while_the_key_is_remembered),
        TEST(test_a_repeat_is_a_second_waybill_when_the_key_is_forgotten),
        TEST(test_a_late_request_is_in_the_books_when_nobody_expects_it),
        TEST(test_a_repeat_before_the_late_request_is_one_waybill),
        TEST(test_cancelling_may_be_repeated),
        TEST(test_a_request_it_cannot_read_has_no_effect),
        TEST(test_killed_during_the_call_is_unknown_and_before_it_not_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
