/* Goal: a batch does to each saga of its filter what the single call does, oldest first, with its
 * rate, ends when it should, and may be run again whatever ended it. Method: sagas parked by a real
 * worker; sagactl as people run it; streams that are cut; a set that moves while the batch runs. */
#include "support/sagactl.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { SOON = 20000, MANY = 120 };

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "0.5s" } };

static const char *const ada[] = { "SAGACTL_ACTOR=ada", NULL };

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker(&rig, "w1", "act:32 undo:8"); /* the rig owns it */
    rig_define(&rig, "job", NULL, "a: IDEMPOTENT for=0.1s | IDEMPOTENT\nb: IDEMPOTENT | none");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static void expect(int exit_code, const char *const *parts, const char *const *words)
{
    sagactl_expect(&rig, exit_code, parts, words);
}
#define EXPECT(exit_code, part, ...) expect(exit_code, WORDS(part), WORDS(__VA_ARGS__))
#define SUSPENDED                    "definition = job AND park.reason = SUSPENDED"

static void start_suspended(const char *prefix, int count)
{
    static int workers = 1;
    char worker[16];
    rig_workers_kill(&rig); /* so that each is there to be suspended */
    rig_start_many(&rig, "job", prefix, count, "");
    char filter[128];
    (void)snprintf(filter, sizeof filter, "definition = job AND saga_id = \"%s*\"", prefix);
    EXPECT(0, "suspended: ", "batch", "suspend", filter, "--reason", "night", "--yes");
    rig_await_states(&rig, "job", prefix, "PARKED SUSPENDED", count, SOON);
    (void)snprintf(worker, sizeof worker, "w%d", ++workers);
    (void)rig_worker(&rig, worker, "act:32 undo:8"); /* the rig owns it */
}

static int64_t parked(const char *prefix)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT count(*) FROM saga WHERE saga_id LIKE '%s%%' AND state = 'PARKED'",
                     prefix);
}

static void test_a_batch_is_counted_first_and_then_done_oldest_first(void **state)
{
    (void)state;
    start_suspended("m-", MANY);
    EXPECT(0, "120 sagas match", "batch", "resume", SUSPENDED, "--dry-run");
    EXPECT(2, "nobody can be asked here: --yes", "batch", "resume", SUSPENDED);
    assert_int_equal(parked("m-"), MANY);
    expect(0, WORDS("resumed: 120 of 120 sagas, 0 refused (batch "),
           WORDS("batch", "resume", SUSPENDED, "--reason", "morning", "--yes", "--rate", "500/s",
                 "--stop-if-failing", "5%"));
    rig_await_states(&rig, "job", "m-", "SUCCEEDED", MANY, SOON);
    /* Each journal says who, why and in which batch; one batch, and in the order of their starts,
     * but for those that were with the engine at the same time. */
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM journal WHERE kind = 'RESUME' AND actor = 'ada'"
                  " AND error_message ~ '^morning \\(batch [0-9a-f-]{36}\\)$'"),
        MANY);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(DISTINCT error_message) FROM journal"
                               " WHERE kind = 'RESUME'"),
                     1);
    assert_int_equal(
        rig_count(
            &rig, RIG_STORE,
            "SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY s.started_at, s.saga_uid)"
            " AS wanted, row_number() OVER (ORDER BY j.finished_at, s.started_at, s.saga_uid)"
            " AS done FROM saga s JOIN journal j USING (shard, saga_uid)"
            " WHERE j.kind = 'RESUME') o WHERE abs(wanted - done) > 64"),
        0);
    EXPECT(0, "0 sagas match", "batch", "resume", SUSPENDED, "--yes");
}

static void test_what_refuses_is_listed_and_the_rest_is_done(void **state)
{
    (void)state;
    start_suspended("r-", 30);
    rig_start(&rig, "job", "r-done", "");
    rig_await_state(&rig, "job", "r-done", "SUCCEEDED", SOON);
    expect(
        1,
        WORDS("job r-done (run 1): ", "[RESUME_NOT_ALLOWED]", "resumed: 30 of 31 sagas, 1 refused"),
        WORDS("batch", "resume", "definition = job AND saga_id = \"r-*\"", "--yes"));
    rig_await_states(&rig, "job", "r-", "SUCCEEDED", 31, SOON);
}

static void test_a_batch_stops_when_too_many_refuse(void **state)
{
    (void)state;
    rig_start_many(&rig, "job", "s-", MANY, "");
    rig_await_states(&rig, "job", "s-", "SUCCEEDED", MANY, SOON);
    expect(1, WORDS("of 100 sagas, 100 refused", "stopped: 100 % of the latest sagas failed"),
           WORDS("batch", "resume", "definition = job AND saga_id = \"s-*\"", "--yes",
                 "--stop-if-failing", "5"));
}

/* A mass retry that only parks them again. */
static void test_a_batch_stops_when_what_it_took_on_is_parked_again(void **state)
{
    (void)state;
    rig_start_many(&rig, "job", "p-", MANY, "a A * retry code=DOWN");
    rig_await_states(&rig, "job", "p-", "PARKED RETRIES_EXHAUSTED", MANY, SOON);
    expect(1, WORDS("stopped: ", "of the latest sagas failed, the limit is 20 %"),
           WORDS("batch", "retry", "definition = job AND park.reason = RETRIES_EXHAUSTED", "--yes",
                 "--rate", "100", "--stop-if-failing", "20"));
    int64_t tried = rig_count(&rig, RIG_STORE,
                              "SELECT count(DISTINCT saga_uid) FROM journal JOIN saga USING (shard,"
                              " saga_uid) WHERE kind = 'RETRY' AND saga_id LIKE 'p-%%'");
    assert_in_range(tried, 20, MANY - 1);
    rig_await_states(&rig, "job", "p-", "PARKED RETRIES_EXHAUSTED", MANY, SOON);
    expect(0, WORDS("abandoned: 120 of 120 sagas"),
           WORDS("batch", "abandon", "definition = job AND park.reason = RETRIES_EXHAUSTED",
                 "--reason", "the test is over", "--yes"));
}

/* Is some of it done, and some not? */
static bool is_half_done(void *ctx)
{
    int64_t left = parked(ctx);
    return left > 0 && left < MANY - 20;
}

static void test_a_batch_that_was_interrupted_is_run_again(void **state)
{
    (void)state;
    start_suspended("i-", MANY);
    const char *argv[] = { SAGACTL_BINARY, "--address", rig.address, "batch", "resume",
                           SUSPENDED,      "--yes",     "--rate",    "100/s", NULL };
    struct test_process *sagactl = NULL;
    struct err err;
    ASSERT_OK(test_process_start(&(struct test_process_options){ .argv = argv, .env = ada },
                                 &sagactl, &err),
              &err);
    assert_true(wait_until(is_half_done, (void *)(uintptr_t) "i-", SOON));
    test_process_kill(sagactl);
    sagactl = test_process_free(sagactl);
    /* Nobody listens: it ends, and leaves the rest as it was. */
    int64_t left = parked("i-");
    for (int i = 0; i < 100; i++) {
        (void)usleep(200 * 1000);
        int64_t now = parked("i-");
        if (now == left)
            break;
        left = now;
    }
    assert_true(left > 0);
    /* The server goes, too, in the middle of the next one. */
    ASSERT_OK(test_process_start(&(struct test_process_options){ .argv = argv, .env = ada },
                                 &sagactl, &err),
              &err);
    (void)usleep(300 * 1000);
    rig_server_kill(&rig);
    rig_server_start(&rig);
    sagactl = test_process_free(sagactl);
    EXPECT(0, "0 refused", "batch", "resume", SUSPENDED, "--yes");
    rig_await_states(&rig, "job", "i-", "SUCCEEDED", MANY, SOON);
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM (SELECT saga_uid FROM journal JOIN saga USING (shard,"
                  " saga_uid) WHERE kind = 'RESUME' AND saga_id LIKE 'i-%%' GROUP BY saga_uid"
                  " HAVING count(*) > 1) twice"),
        0);
}

/* Sagas come and go while it runs. */
static void test_a_set_that_moves_while_the_batch_runs(void **state)
{
    (void)state;
    start_suspended("v-", MANY);
    const char *argv[] = { SAGACTL_BINARY, "--address", rig.address, "batch", "resume",
                           SUSPENDED,      "--yes",     "--rate",    "20/s",  NULL };
    struct test_process *sagactl = NULL;
    struct err err;
    ASSERT_OK(test_process_start(&(struct test_process_options){ .argv = argv, .env = ada },
                                 &sagactl, &err),
              &err);
    assert_true(wait_until(is_half_done, (void *)(uintptr_t) "v-", SOON));
    EXPECT(0, "abandoned", "abandon", "job", "v-119", "--reason", "by hand");
    for (int i = 0; i < 20; i++) { /* after it began: not its */
        char id[16];
        (void)snprintf(id, sizeof id, "w-%d", i);
        rig_start_at(&rig, "job", id, (int64_t)time(NULL) * 1000 + 3600 * 1000);
    }
    EXPECT(0, "suspended: 20 of 20", "batch", "suspend", "definition = job AND saga_id = \"w-*\"",
           "--reason", "night", "--yes");
    int status = -1;
    ASSERT_OK(test_process_wait(sagactl, SOON, &status, &err), &err);
    sagactl = test_process_free(sagactl);
    rig_await_states(&rig, "job", "v-", "SUCCEEDED", MANY - 1, SOON);
    assert_int_equal(parked("w-"), 20);
    EXPECT(0, "cancelled: 20 of 20", "batch", "cancel", SUSPENDED, "--reason", "enough", "--yes");
    rig_await_states(&rig, "job", "w-", "COMPENSATED", 20, SOON);
}

static void test_what_is_wrong_is_refused_before_anything_is_done(void **state)
{
    (void)state;
    EXPECT(1, "filter: this or `definition` is required", "batch", "resume", "--yes");
    EXPECT(1, "filter: column 1: nothing:", "batch", "resume", "nothing = 1", "--yes");
    EXPECT(2, "needs --reason", "batch", "abandon", SUSPENDED, "--yes");
    EXPECT(2, "needs --evidence", "batch", "resolve", SUSPENDED, "--step", "a", "--yes");
    EXPECT(2, "--happened or --did-not-happen", "batch", "resolve", SUSPENDED, "--step", "a",
           "--evidence", "x");
    EXPECT(2, "--rate must be", "batch", "resume", SUSPENDED, "--rate", "fast");
    EXPECT(2, "--stop-if-failing must be", "batch", "resume", SUSPENDED, "--stop-if-failing", "0");
    EXPECT(1, "rate: must be 0 to 10000", "batch", "resume", SUSPENDED, "--rate", "1e9", "--yes");
}

static void test_resolve_and_skip_by_filter(void **state)
{
    (void)state;
    rig_define(&rig, "once", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\nb: ONCE | none\nc: IDEMPOTENT | none");
    rig_start_many(&rig, "once", "u-", 20, "b A 1 unknown code=TIMEOUT");
    rig_await_states(&rig, "once", "u-", "PARKED OUTCOME_UNKNOWN", 20, SOON);
    EXPECT(0, "resolved: 20 of 20", "batch", "resolve",
           "definition = once AND park.reason = OUTCOME_UNKNOWN AND park.step = b", "--step", "b",
           "--happened", "--evidence", "their file of the day", "--yes");
    rig_await_states(&rig, "once", "u-", "SUCCEEDED", 20, SOON);
    rig_start_many(&rig, "once", "k-", 20, "c A 1 rejected\na C * rejected code=CLOSED");
    rig_await_states(&rig, "once", "k-", "PARKED COMPENSATION_FAILED", 20, SOON);
    EXPECT(0, "skipped: 20 of 20", "batch", "skip",
           "definition = once AND park.reason = COMPENSATION_FAILED", "--evidence", "by hand",
           "--yes");
    rig_await_states(&rig, "once", "k-", "COMPENSATED", 20, SOON);
}

static void test_other_numbers_for_all_of_a_filter(void **state)
{
    (void)state;
    rig_define(&rig, "budget", NULL, "a: IDEMPOTENT max_attempts=2 | none");
    rig_start_many(&rig, "budget", "b-", 20, "a A 1 retry\na A 2 retry\na A 3 retry\na A 4 retry");
    rig_await_states(&rig, "budget", "b-", "PARKED RETRIES_EXHAUSTED", 20, SOON);
    EXPECT(2, "--reason is required", "batch", "set-options", "definition = budget",
           "--max-attempts", "9", "--yes");
    EXPECT(0, "options set: 20 of 20 sagas, 0 refused", "batch", "set-options",
           "definition = budget", "--max-attempts", "9", "--reason", "the bank is slow", "--yes");
    EXPECT(0, "retried: 20 of 20", "batch", "retry", "definition = budget", "--yes");
    rig_await_states(&rig, "budget", "b-", "SUCCEEDED", 20, SOON);
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM journal WHERE kind = 'OPTIONS' AND actor = 'ada'"
                  " AND error_message LIKE 'the bank is slow (batch %%'"),
        20);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM audit WHERE verb = 'batch-set-options'"
                               " AND detail = 'definition = budget'"),
                     1);
}

/* After an outage what is in its back-off does not wait out the rest of it. */
static void test_q1_after_an_outage_a_batch_ends_the_back_off(void **state)
{
    (void)state;
    enum {
        COUNT = 20
    }; /* back-offs of up to a day: that one ends by itself meanwhile is as good as never */
    rig_define(&rig, "outage", NULL, "a: IDEMPOTENT for=604800s initial=86400s cap=86400s | none");
    rig_start_many(&rig, "outage", "q-", COUNT, "a A 1 retry");
    rig_await(&rig, RIG_STORE, "20", SOON,
              "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 'outage' AND j.outcome = 'RETRY'");
    rig_await(&rig, RIG_STORE, "t", SOON,
              "SELECT avg(j.retry_at - j.finished_at) > interval '2 h'"
              " AND max(j.retry_at - j.finished_at) <= interval '24 h'"
              " FROM journal j JOIN saga s USING (shard, saga_uid)"
              " WHERE s.definition = 'outage' AND j.outcome = 'RETRY'");
    EXPECT(0, "20 sagas match", "batch", "retry", "definition = outage AND state = RUNNING",
           "--dry-run");
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE definition = 'outage'"
                               " AND state = 'RUNNING'"),
                     COUNT);
    EXPECT(0, "20 of 20 sagas, 0 refused", "batch", "retry",
           "definition = outage AND state = RUNNING", "--reason", "the bank is back", "--yes");
    rig_await_states(&rig, "outage", "q-", "SUCCEEDED", COUNT, SOON);
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM journal r JOIN journal l USING (shard, saga_uid)"
                  " WHERE r.kind = 'RETRY' AND r.error_message LIKE 'the bank is back%%'"
                  " AND l.kind = 'LEASE' AND l.seq > r.seq"
                  " AND l.leased_at <= r.finished_at + interval '5 s'"),
        COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_batch_is_counted_first_and_then_done_oldest_first),
        cmocka_unit_test(test_what_refuses_is_listed_and_the_rest_is_done),
        cmocka_unit_test(test_a_batch_stops_when_too_many_refuse),
        cmocka_unit_test(test_a_batch_stops_when_what_it_took_on_is_parked_again),
        cmocka_unit_test(test_a_batch_that_was_interrupted_is_run_again),
        cmocka_unit_test(test_a_set_that_moves_while_the_batch_runs),
        cmocka_unit_test(test_what_is_wrong_is_refused_before_anything_is_done),
        cmocka_unit_test(test_resolve_and_skip_by_filter),
        cmocka_unit_test(test_other_numbers_for_all_of_a_filter),
        cmocka_unit_test(test_q1_after_an_outage_a_batch_ends_the_back_off),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
