/* Goal: a batch does to each saga of its filter what the single call does, oldest first, with its
 * rate, ends when it should, and may be run again whatever ended it. Method: sagas parked by a real
 * worker; sagactl as people run it; streams that are cut; a set that moves while the batch runs. */
#include "support/sagactl.h"
#include "support/wait.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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

static struct test_process *begin_resume(const char *rate)
{
    const char *argv[] = { SAGACTL_BINARY, "--address", rig.address, "batch", "resume",
                           SUSPENDED,      "--yes",     "--rate",    rate,    NULL };
    struct test_process *sagactl = NULL;
    struct err err;
    ASSERT_OK(test_process_start(&(struct test_process_options){ .argv = argv, .env = ada },
                                 &sagactl, &err),
              &err);
    return sagactl;
}

/* What batches alone resumed. */
static int64_t resumed_by_batch(const char *prefix)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT count(*) FROM journal JOIN saga USING (shard, saga_uid)"
                     " WHERE kind = 'RESUME' AND error_message LIKE '%%(batch %%'"
                     " AND saga_id LIKE '%s%%'",
                     prefix);
}

/* However often a row came by: a batch has done to it what it does once at most. */
static void assert_once_per_batch(const char *prefix)
{
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM (SELECT 1 FROM journal JOIN saga USING (shard, saga_uid)"
                  " WHERE kind = 'RESUME' AND error_message LIKE '%%(batch %%'"
                  " AND saga_id LIKE '%s%%' GROUP BY saga_uid, substring(error_message FROM"
                  " '\\(batch .*') HAVING count(*) > 1) twice",
                  prefix),
        0);
}

struct progress {
    const char *prefix;
    int64_t at_least; /* resumed by batches */
};

static bool has_come_so_far(void *ctx)
{
    const struct progress *progress = ctx;
    return resumed_by_batch(progress->prefix) >= progress->at_least;
}

static void await_resumed(const char *prefix, int64_t at_least)
{
    struct progress progress = { prefix, at_least };
    assert_true(wait_until(has_come_so_far, &progress, SOON));
}

/* Nobody listens to a batch any more, or its server has died: it ends in the middle. Returns how
 * many are as they were, which is what the next one must find. */
static int64_t left_half_done(const char *prefix)
{
    int64_t left = -1;
    for (int i = 0; i < 100 && left != parked(prefix); i++) {
        left = parked(prefix);
        wait_ms(200);
    }
    assert_in_range(left, 1, MANY - 1);
    assert_int_equal(resumed_by_batch(prefix), MANY - left);
    return left;
}

static void test_a_batch_that_was_interrupted_is_run_again(void **state)
{
    (void)state;
    start_suspended("i-", MANY);
    struct test_process *sagactl = begin_resume("40/s");
    await_resumed("i-", 20);
    test_process_kill(sagactl);
    sagactl = test_process_free(sagactl);
    int64_t first_left = left_half_done("i-");
    /* The server goes, too, in the middle of the next one. */
    sagactl = begin_resume("40/s");
    await_resumed("i-", MANY - first_left + 10);
    rig_server_kill(&rig);
    rig_server_start(&rig);
    sagactl = test_process_free(sagactl);
    int64_t left = left_half_done("i-");
    assert_true(left < first_left);
    char all[64];
    (void)snprintf(all, sizeof all, "resumed: %d of %d sagas, 0 refused", (int)left, (int)left);
    EXPECT(0, all, "batch", "resume", SUSPENDED, "--yes");
    rig_await_states(&rig, "job", "i-", "SUCCEEDED", MANY, SOON);
    assert_int_equal(resumed_by_batch("i-"), MANY);
    assert_int_equal(
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM (SELECT saga_uid FROM journal JOIN saga USING (shard,"
                  " saga_uid) WHERE kind = 'RESUME' AND saga_id LIKE 'i-%%' GROUP BY saga_uid"
                  " HAVING count(*) > 1) twice"),
        0);
}

/* The n-th of those that wait, the oldest of them, or the youngest, being 0. */
static const char *waiting(int n, bool youngest, char ret[16])
{
    const char *order = youngest ? "DESC" : "ASC";
    return rig_text(&rig, RIG_STORE, ret, 16,
                    "SELECT saga_id FROM saga WHERE saga_id LIKE 'v-%%' AND state = 'PARKED'"
                    " ORDER BY started_at %s, saga_uid %s OFFSET %d LIMIT 1",
                    order, order, n);
}

static Saga__V1__SagaRef ref_of(const char *saga_id)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    ref.definition = rig_borrow("job");
    ref.saga_id = rig_borrow(saga_id);
    return ref;
}

static void suspend(const char *saga_id)
{
    Saga__V1__SagaRef ref = ref_of(saga_id);
    Saga__V1__SuspendSagaRequest request = SAGA__V1__SUSPEND_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.reason = rig_borrow("by hand");
    protobuf_c_message_free_unpacked(rig_call(&rig, "OperatorService/SuspendSaga", &request.base,
                                              &saga__v1__saga__descriptor, NULL),
                                     NULL);
}

static void resume(const char *saga_id)
{
    Saga__V1__SagaRef ref = ref_of(saga_id);
    Saga__V1__ResumeSagaRequest request = SAGA__V1__RESUME_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.reason = rig_borrow("by hand");
    protobuf_c_message_free_unpacked(rig_call(&rig, "OperatorService/ResumeSaga", &request.base,
                                              &saga__v1__saga__descriptor, NULL),
                                     NULL);
}

/* The state, and how often it was resumed by a batch and by hand: "PARKED 1 0". */
static void assert_resumed(const char *saga_id, const char *expected)
{
    char got[64];
    rig_text(&rig, RIG_STORE, got, sizeof got,
             "SELECT concat_ws(' ', s.state, count(*) FILTER (WHERE error_message LIKE"
             " '%%(batch %%'), count(*) FILTER (WHERE error_message = 'by hand')) FROM saga s"
             " JOIN journal j USING (shard, saga_uid) WHERE saga_id = '%s' AND kind = 'RESUME'"
             " GROUP BY s.state",
             saga_id);
    assert_string_equal(got, expected);
}

/* Sagas come and go while it runs: some of the last that it would take leave, half of those come
 * back before it is there; some that it took come back behind it; some are new. */
static void test_a_set_that_moves_while_the_batch_runs(void **state)
{
    (void)state;
    enum { EACH = 3, FIRST_PAGE = 100 };
    char back[EACH][16], gone[EACH][16], again[EACH][16], lost[16], id[16];
    start_suspended("v-", MANY);
    rig_hold(&rig, "act"); /* so that what was resumed does not end, and can be suspended again */
    for (int i = 0; i < EACH; i++) {
        (void)waiting(i, false, again[i]);
        (void)waiting(i, true, back[i]);
        (void)waiting(EACH + i, true, gone[i]);
    }
    (void)waiting(2 * EACH, true, lost);
    struct test_process *sagactl = begin_resume("20/s");
    await_resumed("v-", 20);
    for (int i = 0; i < EACH; i++) {
        suspend(again[i]);
        resume(back[i]);
        suspend(back[i]);
        resume(gone[i]);
    }
    EXPECT(0, "abandoned", "abandon", "job", lost, "--reason", "by hand");
    for (int i = 0; i < 20; i++) { /* after it began: not its */
        (void)snprintf(id, sizeof id, "w-%d", i);
        rig_start_at(&rig, "job", id, (int64_t)time(NULL) * 1000 + 3600 * 1000);
    }
    EXPECT(0, "suspended: 20 of 20", "batch", "suspend", "definition = job AND saga_id = \"w-*\"",
           "--reason", "night", "--yes");
    assert_in_range(resumed_by_batch("v-"), 20, FIRST_PAGE - 1); /* all that before it was there */
    int status = -1;
    struct err err;
    ASSERT_OK(test_process_wait(sagactl, SOON, &status, &err), &err);
    char *output = test_process_output(sagactl);
    assert_non_null(output);
    if (status != 0 || !strstr(output, "resumed: 116 of 116 sagas, 0 refused"))
        fail_msg("status %d: %s", status, output);
    mem_free(output);
    sagactl = test_process_free(sagactl);
    for (int i = 0; i < EACH; i++) {
        assert_resumed(again[i], "PARKED 1 0");
        assert_resumed(back[i], "RUNNING 1 1");
        assert_resumed(gone[i], "RUNNING 0 1");
    }
    assert_int_equal(parked("v-"), EACH);
    assert_int_equal(parked("w-"), 20);
    /* What came back behind the batch is the next one's. */
    static const char those[] = SUSPENDED " AND saga_id = \"v-*\"";
    EXPECT(0, "resumed: 3 of 3 sagas, 0 refused", "batch", "resume", those, "--yes");
    assert_once_per_batch("v-");
    rig_release(&rig, "act");
    rig_await_states(&rig, "job", "v-", "SUCCEEDED", MANY - 1, SOON);
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
