/* Goal: the judge finds every kind of violation, and calls nothing one that the promises allow.
 * Method: histories by hand, small ones, good and bad; each bad one is a good one with one thing
 * wrong. */
#include "support/check.h"

#include "judge.h"

#include "base/buf.h"
#include "base/mem.h"

#include <unistd.h>

static void verdict_of(const char *text, struct history *history, struct judge_verdict *verdict)
{
    struct err err;
    ASSERT_OK(history_parse(text, history, &err), &err);
    ASSERT_OK(judge(history, verdict, &err), &err);
}

struct sample {
    const char *name, *text;
};

/* The saga of key k at the end: SUCCEEDED, one step. */
#define STARTED                                                                                    \
    "100 1 invoke START client=0 node=0 key=k input=x\n"                                           \
    "200 1 ok uid=u1 run=1 existed=0\n"
#define FINAL(id, state)                                                                           \
    "9000 " #id " invoke SAGA key=k uid=u1 run=1 state=" state " phase=RUNNING input=x\n"          \
    "9000 " #id " ok\n"
#define ENTRY(id, seq, kind, outcome)                                                              \
    "9000 " #id " invoke ENTRY key=k uid=u1 seq=" #seq " kind=" kind " outcome=" outcome "\n"      \
    "9000 " #id " ok\n"

static const struct sample good[] = {
    { "nothing", "" },
    { "a start", STARTED FINAL(2, "RUNNING") },
    { "the same start at once, answered by both",
      "100 1 invoke START client=0 node=0 key=k input=x\n"
      "110 2 invoke START client=1 node=1 key=k input=x\n"
      "200 2 ok uid=u1 run=1 existed=1\n"
      "210 1 ok uid=u1 run=1 existed=0\n" FINAL(3, "RUNNING") },
    { "a start that was never answered, and happened",
      "100 1 invoke START client=0 node=0 key=k input=x\n"
      "200 1 unknown answer=UNAVAILABLE\n"
      "300 2 invoke START client=0 node=1 key=k input=x\n"
      "400 2 ok uid=u1 run=1 existed=1\n" FINAL(3, "RUNNING") },
    { "a start that was never answered, and did not happen",
      "100 1 invoke START client=0 node=0 key=k input=x\n"
      "300 2 invoke GET client=0 node=1 key=k\n"
      "400 2 fail answer=NOT_FOUND\n" },
    { "not found while it is being started",
      STARTED "90 2 invoke GET client=0 node=1 key=k\n"
              "300 2 fail answer=NOT_FOUND\n" FINAL(3, "RUNNING") },
    { "other input", STARTED "150 2 invoke START client=1 node=1 key=k input=y\n"
                             "250 2 fail answer=INPUT_MISMATCH\n" FINAL(3, "RUNNING") },
    { "the one with the other input was the first",
      "100 1 invoke START client=0 node=0 key=k input=x\n"
      "110 2 invoke START client=1 node=1 key=k input=y\n"
      "150 2 fail answer=INPUT_MISMATCH\n"
      "250 1 ok uid=u1 run=1 existed=0\n" FINAL(3, "RUNNING") },
    { "a step, its report, and what was read of it", STARTED
      "300 2 invoke TASK key=k uid=u1 seq=1 step=a node=0\n300 2 ok\n"
      "400 3 invoke REPORT key=k uid=u1 seq=1 outcome=DONE rank=1 node=0\n"
      "450 4 invoke GET key=k node=1\n"
      "460 4 ok uid=u1 run=1 state=RUNNING phase=RUNNING\n"
      "500 3 ok answer=ACCEPTED\n"
      "600 5 invoke GET key=k node=1\n"
      "700 5 ok uid=u1 run=1 state=SUCCEEDED phase=SUCCEEDED\n"
      "600 6 invoke JOURNAL key=k node=1\n"
      "700 6 ok entries=1:LEASE:DONE:\n" FINAL(7, "SUCCEEDED") ENTRY(8, 1, "LEASE", "DONE") },
    { "a report that was too late, and one that was late and counts", STARTED
      "300 2 invoke TASK key=k uid=u1 seq=1 step=a node=0\n300 2 ok\n"
      "400 3 invoke REPORT key=k uid=u1 seq=1 outcome=DONE rank=0 node=0\n"
      "500 3 ok answer=STALE\n"
      "300 4 invoke TASK key=k uid=u1 seq=2 step=a node=0\n300 4 ok\n"
      "400 5 invoke REPORT key=k uid=u1 seq=2 outcome=DONE rank=2 node=0\n"
      "500 5 ok answer=ACCEPTED\n" FINAL(6, "SUCCEEDED") ENTRY(7, 1, "LEASE", "EXPIRED")
          ENTRY(8, 2, "LEASE", "EXPIRED") "9000 9 invoke ENTRY key=k uid=u1 seq=3 kind=LATE_REPORT "
                                          "outcome=DONE about=2\n9000 9 ok\n" },
    { "a report that was never answered, sent again elsewhere",
      STARTED "300 2 invoke TASK key=k uid=u1 seq=1 step=a node=0\n300 2 ok\n"
              "400 3 invoke REPORT key=k uid=u1 seq=1 outcome=REJECTED rank=1 node=0\n"
              "450 4 invoke REPORT key=k uid=u1 seq=1 outcome=REJECTED rank=1 node=1\n"
              "500 4 ok answer=DUPLICATE\n" FINAL(5, "COMPENSATED") ENTRY(6, 1, "LEASE", "REJECTED")
                  ENTRY(7, 2, "COMPENSATE", "") },
    { "a cancel that came too late, and one that did not",
      STARTED "300 2 invoke CANCEL key=k node=1\n400 2 ok\n"
              "500 3 invoke GET key=k node=0\n"
              "600 3 ok uid=u1 run=1 state=PARKED phase=COMPENSATING\n"
              "500 4 invoke CANCEL key=k node=0\n"
              "600 4 fail answer=CANCEL_NOT_ALLOWED\n" FINAL(5, "COMPENSATED") },
    { "two reads at once, of which one is older",
      STARTED "300 2 invoke GET key=k node=0\n310 3 invoke GET key=k node=1\n"
              "320 3 ok uid=u1 run=1 state=SUCCEEDED phase=SUCCEEDED\n"
              "330 2 ok uid=u1 run=1 state=RUNNING phase=RUNNING\n"
              "300 4 invoke JOURNAL key=k node=0\n310 5 invoke JOURNAL key=k node=1\n"
              "320 5 ok entries=1:LEASE:DONE:\n330 4 ok entries=1:LEASE::\n" FINAL(6, "SUCCEEDED")
                  ENTRY(7, 1, "LEASE", "DONE") },
};

static void test_what_the_promises_allow_is_no_violation(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct history history;
        struct judge_verdict verdict;
        verdict_of(good[i].text, &history, &verdict);
        judge_print(&verdict, stdout);
        if (verdict.total != 0)
            fail_msg("good: %s", good[i].name);
        history_done(&history);
    }
}

static const struct sample bad[] = {
    { "OTHER_SAGA: two clients were told two sagas",
      STARTED "300 2 invoke START client=1 node=1 key=k input=x\n"
              "400 2 ok uid=u2 run=1 existed=1\n" FINAL(3, "RUNNING") },
    { "OTHER_SAGA: another run", STARTED "300 2 invoke START client=1 node=1 key=k input=x\n"
                                         "400 2 ok uid=u1 run=2 existed=1\n" FINAL(3, "RUNNING") },
    { "OTHER_SAGA: a worker was handed another one",
      STARTED "300 2 invoke TASK key=k uid=u2 seq=1 step=a node=0\n300 2 ok\n" FINAL(3, "RUNNING")
          ENTRY(4, 1, "LEASE", "") },
    { "OTHER_SAGA: two rows",
      STARTED FINAL(2, "RUNNING") "9000 3 invoke SAGA key=k uid=u2 run=1 state=RUNNING "
                                  "phase=RUNNING input=x\n9000 3 ok\n" },
    { "TWO_CREATED", STARTED "300 2 invoke START client=1 node=1 key=k input=x\n"
                             "400 2 ok uid=u1 run=1 existed=0\n" FINAL(3, "RUNNING") },
    { "OUT_OF_NOTHING: it existed, and nobody else had begun",
      "100 1 invoke START client=0 node=0 key=k input=x\n"
      "200 1 ok uid=u1 run=1 existed=1\n"
      "300 2 invoke START client=0 node=0 key=k input=x\n"
      "400 2 ok uid=u1 run=1 existed=1\n" FINAL(3, "RUNNING") },
    { "OUT_OF_NOTHING: seen before it was started",
      "50 2 invoke GET key=k node=0\n60 2 ok uid=u1 run=1 state=RUNNING phase=RUNNING\n" STARTED
          FINAL(3, "RUNNING") },
    { "OTHER_INPUT", "100 1 invoke START client=0 node=0 key=k input=y\n"
                     "200 1 ok uid=u1 run=1 existed=0\n" FINAL(2, "RUNNING") },
    { "FALSE_MISMATCH", STARTED "300 2 invoke START client=0 node=0 key=k input=x\n"
                                "400 2 fail answer=INPUT_MISMATCH\n" FINAL(3, "RUNNING") },
    { "LOST_START: not in the end", STARTED },
    { "LOST_START: not found by the other node",
      STARTED "300 2 invoke GET key=k node=1\n400 2 fail answer=NOT_FOUND\n" FINAL(3, "RUNNING") },
    { "LOST_START: not found by a cancel", STARTED
      "300 2 invoke CANCEL key=k node=1\n400 2 fail answer=NOT_FOUND\n" FINAL(3, "RUNNING") },
    { "LOST_REPORT: not in the end",
      STARTED "300 2 invoke TASK key=k uid=u1 seq=1 step=a node=0\n300 2 ok\n"
              "400 3 invoke REPORT key=k uid=u1 seq=1 outcome=DONE rank=0 node=0\n"
              "500 3 ok answer=ACCEPTED\n" FINAL(4, "RUNNING") ENTRY(5, 1, "LEASE", "EXPIRED") },
    { "LOST_REPORT: a duplicate of what is not there",
      STARTED "400 2 invoke REPORT key=k uid=u1 seq=1 outcome=DONE rank=0 node=0\n"
              "500 2 ok answer=DUPLICATE\n" FINAL(3, "RUNNING") ENTRY(4, 1, "LEASE", "RETRY") },
    { "LOST_REPORT: not read at the other node",
      STARTED "400 2 invoke REPORT key=k uid=u1 seq=1 outcome=DONE rank=0 node=0\n"
              "500 2 ok answer=ACCEPTED\n"
              "600 3 invoke JOURNAL key=k node=1\n700 3 ok entries=1:LEASE::\n" FINAL(4, "RUNNING")
                  ENTRY(5, 1, "LEASE", "DONE") },
    { "LOST_REPORT: late, and gone", STARTED
      "400 2 invoke REPORT key=k uid=u1 seq=1 outcome=DONE rank=0 node=0\n"
      "500 2 ok answer=ACCEPTED\n" FINAL(3, "RUNNING")
          ENTRY(4, 1, "LEASE", "EXPIRED") "9000 5 invoke ENTRY key=k uid=u1 seq=2 kind=LATE_REPORT "
                                          "outcome=RETRY about=1\n9000 5 ok\n" },
    { "LOST_FOLLOW_UP: refused, and going forward", STARTED
      "400 2 invoke REPORT key=k uid=u1 seq=1 outcome=REJECTED rank=1 node=0\n"
      "500 2 ok answer=ACCEPTED\n"
      "600 3 invoke GET key=k node=1\n700 3 ok uid=u1 run=1 state=RUNNING phase=RUNNING\n" FINAL(
          4, "COMPENSATED") ENTRY(5, 1, "LEASE", "REJECTED") },
    { "LOST_FOLLOW_UP: the last compensation, and not ended",
      STARTED "400 2 invoke REPORT key=k uid=u1 seq=1 outcome=DONE rank=2 node=0\n"
              "500 2 ok answer=DUPLICATE\n" FINAL(3, "COMPENSATING") ENTRY(4, 1, "LEASE", "DONE") },
    { "LOST_CANCEL: it went on", STARTED
      "300 2 invoke CANCEL key=k node=1\n400 2 ok\n"
      "500 3 invoke GET key=k node=0\n600 3 ok uid=u1 run=1 state=PARKED phase=RUNNING\n" FINAL(
          4, "COMPENSATED") },
    { "LOST_CANCEL: it succeeded",
      STARTED "300 2 invoke CANCEL key=k node=1\n400 2 ok\n" FINAL(3, "SUCCEEDED") },
    { "LOST_LEASE: a task of no lease", STARTED
      "300 2 invoke TASK key=k uid=u1 seq=1 step=a node=0\n300 2 ok\n" FINAL(3, "RUNNING") },
    { "LOST_LEASE: another entry has its place", STARTED
      "300 2 invoke TASK key=k uid=u1 seq=1 step=a node=0\n300 2 ok\n" FINAL(3, "COMPENSATED")
          ENTRY(4, 1, "COMPENSATE", "") },
    { "TWICE_GRANTED",
      STARTED "300 2 invoke TASK key=k uid=u1 seq=1 step=a client=1\n300 2 ok\n"
              "310 3 invoke TASK key=k uid=u1 seq=1 step=a client=2\n310 3 ok\n" FINAL(4, "RUNNING")
                  ENTRY(5, 1, "LEASE", "") },
    { "STALE_COUNTED",
      STARTED "400 2 invoke REPORT key=k uid=u1 seq=1 outcome=DONE rank=0 node=0\n"
              "500 2 ok answer=STALE\n" FINAL(3, "RUNNING") ENTRY(4, 1, "LEASE", "DONE") },
    { "WENT_BACK: from the end",
      STARTED "300 2 invoke GET key=k node=0\n"
              "400 2 ok uid=u1 run=1 state=COMPENSATED phase=COMPENSATED\n" FINAL(3, "SUCCEEDED") },
    { "WENT_BACK: forward again", STARTED
      "300 2 invoke GET key=k node=0\n"
      "400 2 ok uid=u1 run=1 state=COMPENSATING phase=COMPENSATING\n"
      "500 3 invoke GET key=k node=1\n600 3 ok uid=u1 run=1 state=RUNNING phase=RUNNING\n" FINAL(
          4, "COMPENSATED") },
    { "WENT_BACK: an entry is gone", STARTED
      "300 2 invoke JOURNAL key=k node=0\n400 2 ok entries=1:LEASE:DONE:,2:LEASE::\n"
      "500 3 invoke JOURNAL key=k node=1\n600 3 ok entries=1:LEASE:DONE:\n" FINAL(4, "RUNNING")
          ENTRY(5, 1, "LEASE", "DONE") ENTRY(6, 2, "LEASE", "") },
    { "WENT_BACK: an outcome was another one", STARTED
      "300 2 invoke JOURNAL key=k node=0\n400 2 ok entries=1:LEASE:DONE:\n" FINAL(3, "RUNNING")
          ENTRY(4, 1, "LEASE", "REJECTED") },
    { "WENT_BACK: an entry was another one",
      STARTED "300 2 invoke JOURNAL key=k node=0\n400 2 ok entries=1:LEASE::\n" FINAL(3, "RUNNING")
          ENTRY(4, 1, "COMPENSATE", "") },
    { "BAD_ANSWER: a start",
      "100 1 invoke START client=0 node=0 key=k input=x\n200 1 fail answer=INTERNAL\n" },
    { "BAD_ANSWER: a cancel", STARTED
      "300 2 invoke CANCEL key=k node=1\n400 2 fail answer=LEASE_LIVE\n" FINAL(3, "RUNNING") },
};

static void test_each_kind_of_violation_is_found_and_no_other(void **state)
{
    (void)state;
    bool seen[VIOLATION_COUNT] = { false };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct history history;
        struct judge_verdict verdict;
        verdict_of(bad[i].text, &history, &verdict);
        size_t name_size = strcspn(bad[i].name, ":");
        for (int j = 0; j < VIOLATION_COUNT; j++) {
            bool expected = strncmp(violation_names[j], bad[i].name, name_size) == 0 &&
                            strlen(violation_names[j]) == name_size;
            if (expected != (verdict.found[j] > 0)) {
                judge_print(&verdict, stdout);
                fail_msg("%s: %s was %sfound", bad[i].name, violation_names[j],
                         expected ? "not " : "");
            }
            seen[j] |= expected;
        }
        history_done(&history);
    }
    for (int j = 0; j < VIOLATION_COUNT; j++)
        if (!seen[j])
            fail_msg("no history has a %s", violation_names[j]);
}

static void test_keys_are_judged_apart_and_oks_are_counted(void **state)
{
    (void)state;
    struct history history;
    struct judge_verdict verdict;
    verdict_of(
        STARTED FINAL(
            2,
            "RUNNING") "100 3 invoke START key=m input=x\n200 3 ok uid=u2 run=1 existed=0\n"
                       "9000 4 invoke SAGA key=m uid=u2 run=1 state=RUNNING phase=RUNNING input=x\n"
                       "9000 4 ok\n"
                       "300 5 invoke GET key=m node=0\n400 5 unknown answer=UNAVAILABLE\n",
        &history, &verdict);
    assert_int_equal(verdict.total, 0);
    assert_int_equal(verdict.keys, 2);
    assert_int_equal(verdict.oks, 2);
    history_done(&history);
}

static void test_a_log_is_read_back_as_it_was_written(void **state)
{
    (void)state;
    char path[] = "/tmp/sagad-history-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    struct history_log *log;
    struct history history;
    struct history_call asked, answer;
    struct err err;
    ASSERT_OK(history_log_open(path, &log, &err), &err);
    history_call_init(&asked, HISTORY_REPORT);
    (void)snprintf(asked.key, sizeof asked.key, "k");
    (void)snprintf(asked.outcome, sizeof asked.outcome, "DONE");
    asked.seq = 7;
    asked.rank = 0;
    int64_t id = history_invoke(log, &asked);
    int64_t open = history_invoke(log, &asked);
    history_call_init(&answer, HISTORY_REPORT);
    answer.end = HISTORY_OK;
    (void)snprintf(answer.answer, sizeof answer.answer, "ACCEPTED");
    answer.entries = (char *)(uintptr_t) "1:LEASE:DONE:";
    history_end(log, id, &answer);
    log = history_log_close(log);
    ASSERT_OK(history_read(path, &history, &err), &err);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(history.count, 2);
    const struct history_call *call = &history.calls[id - 1];
    assert_int_equal(call->what, HISTORY_REPORT);
    assert_int_equal(call->end, HISTORY_OK);
    assert_string_equal(call->key, "k");
    assert_string_equal(call->outcome, "DONE");
    assert_string_equal(call->answer, "ACCEPTED");
    assert_string_equal(call->entries, "1:LEASE:DONE:");
    assert_int_equal(call->seq, 7);
    assert_int_equal(call->rank, 0);
    assert_int_equal(call->run, -1);
    assert_true(call->ended_us >= call->invoked_us && call->invoked_us > 0);
    assert_int_equal(history.calls[open - 1].end, HISTORY_OPEN);
    assert_true(history.calls[open - 1].ended_us == INT64_MAX);
    history_done(&history);
}

static void test_what_is_no_history_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "nonsense\n",
        "100 1 began START key=k\n",
        "100 1 invoke SOMETHING key=k\n",
        "100 1 invoke START colour=red\n",
        "100 1 invoke START key\n",
        "100 1 invoke START seq=x\n",
        "100 0 invoke START key=k\n",
        "100 1 ok uid=u1\n",                                            /* never began */
        "100 2 invoke START key=k\n",                                   /* nor did the first */
        "100 1 invoke START key=k\n100 1 invoke START key=k\n",         /* twice */
        "100 1 invoke START key=k\n200 1 ok uid=u1\n200 1 ok uid=u1\n", /* answered twice */
        "100 1 invoke START key=0123456789012345678901234567890123456789012345678901234567890\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct history history;
        struct err err;
        if (history_parse(texts[i], &history, &err) == 0)
            fail_msg("accepted: %s", texts[i]);
    }
    struct history history;
    struct judge_verdict verdict;
    struct err err;
    ASSERT_OK(
        history_parse("100 1 invoke JOURNAL key=k\n200 1 ok entries=1:LEASE\n", &history, &err),
        &err);
    assert_int_not_equal(judge(&history, &verdict, &err), 0);
    history_done(&history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_promises_allow_is_no_violation),
        cmocka_unit_test(test_each_kind_of_violation_is_found_and_no_other),
        cmocka_unit_test(test_keys_are_judged_apart_and_oks_are_counted),
        cmocka_unit_test(test_a_log_is_read_back_as_it_was_written),
        cmocka_unit_test(test_what_is_no_history_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
