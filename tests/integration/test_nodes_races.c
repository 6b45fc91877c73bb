/* S3: several causes at once, at three servers. Goal: whatever comes together, one cause turns the
 * saga back, once, and each route by itself does it with the same plan. Method: a step held by hand
 * at the node that keeps the deadline; the report of it comes to another one, a cancel to the
 * third, all within 10 ms; the routes one by one. */
#include "base/clock.h"
#include "base/rng.h"
#include "support/nodes.h"
#include "support/proof.h"
#include "support/raw_worker.h"
#include "support/wait.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SOON = 10000,
    AT_ONCE = 6, /* sagas of a round, with a thread each */
    SPREAD_US = 10000,
    DEADLINE_MS = 1000,
    FAILED_PRECONDITION = 9
};
#define ACCEPTED SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define DONE     SAGA__V1__OUTCOME__OUTCOME_DONE
#define REJECTED SAGA__V1__OUTCOME__OUTCOME_REJECTED

static struct nodes nodes;
static struct rig *const one = &nodes.at[0], *const two = &nodes.at[1], *const three = &nodes.at[2];
static struct rng rng;

static int setup(void **state)
{
    (void)state;
    rng_seed(&rng, proof_seed());
    return nodes_up(&nodes, 3, NULL);
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

/* --- races ------------------------------------------------------------------------------------ */

struct canceller {
    pthread_t thread;
    int64_t at_us; /* wall clock */
    char saga_id[24];
    int code; /* gRPC */
    char reason[RIG_REASON_SIZE];
};

static void sleep_until_us(int64_t wall_us)
{
    struct timespec at = { .tv_sec = wall_us / 1000000, .tv_nsec = wall_us % 1000000 * 1000 };
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL) != 0)
        continue; /* a signal */
}

static void *cancel_at(void *ctx)
{
    struct canceller *canceller = ctx;
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__CancelSagaRequest request = SAGA__V1__CANCEL_SAGA_REQUEST__INIT;
    struct client_failure failure = { .code = 0 };
    ProtobufCMessage *reply = NULL;
    struct err err;
    ref.definition = rig_borrow("s3");
    ref.saga_id = canceller->saga_id;
    request.saga = &ref;
    sleep_until_us(canceller->at_us);
    int rc =
        client_call_explained(three->client, "/saga.v1.SagaService/CancelSaga", &request.base,
                              &saga__v1__saga__descriptor, RIG_CALL_MS, &reply, &failure, &err);
    canceller->code = rc == 0 ? 0 : failure.code;
    (void)snprintf(canceller->reason, sizeof canceller->reason, "%s",
                   rc == 0 ? "" : failure.reason);
    if (rc == 0)
        protobuf_c_message_free_unpacked(reply, NULL);
    client_failure_done(&failure);
    return NULL;
}

static int64_t some_us(int64_t middle_us)
{
    return middle_us - SPREAD_US / 2 + (int64_t)rng_below(&rng, SPREAD_US);
}

/* The held steps of a round, in the order of their sagas (fence 0: it did not come). Returns how
 * many: on a machine that stood still the deadline may be there before the step. */
static int hold_round(struct raw_worker *worker, int round, struct raw_lease *ret_leases)
{
    memset(ret_leases, 0, AT_ONCE * sizeof *ret_leases);
    for (int i = 0; i < AT_ONCE; i++) {
        const Saga__V1__Task *task = raw_worker_task(worker, DEADLINE_MS + 500);
        if (!task)
            return i;
        int of = -1, number = -1;
        assert_int_equal(sscanf(task->saga_id, "race%d-%d", &of, &number), 2);
        assert_true(of == round && number >= 0 && number < AT_ONCE);
        ret_leases[number] = raw_lease_of(task);
    }
    return AT_ONCE;
}

struct tally { /* of what came first */
    int refused, cancelled, deadline, completed;
};

/* One cause, once, and each compensation once: nothing else fits one of these journals. */
static void judge_race(const struct canceller *canceller, bool refuses, struct tally *tally)
{
    char cause[32], journal[256];
    const char *id = canceller->saga_id;
    rig_await(one, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM saga WHERE saga_id = '%s' AND state IN ('SUCCEEDED',"
              " 'COMPENSATED')",
              id);
    rig_text(one, RIG_STORE, cause, sizeof cause,
             "SELECT reason FROM journal JOIN saga USING (shard, saga_uid)"
             " WHERE saga_id = '%s' AND kind = 'COMPENSATE'",
             id);
    if (refuses)
        (void)snprintf(journal, sizeof journal, "a.1 DONE, b.1 REJECTED, COMPENSATE %s, ~a.1 DONE",
                       cause);
    else if (*cause)
        (void)snprintf(journal, sizeof journal,
                       "a.1 DONE, b.1 DONE, COMPENSATE %s, ~b.1 DONE, ~a.1 DONE", cause);
    else
        (void)snprintf(journal, sizeof journal, "a.1 DONE, b.1 DONE");
    rig_assert_journal(one, "s3", id, journal);
    /* The end that somebody saw is the end. */
    bool too_late = canceller->code == FAILED_PRECONDITION &&
                    strcmp(canceller->reason, "CANCEL_NOT_ALLOWED") == 0;
    if (canceller->code != 0 && !too_late)
        fail_msg("cancel of %s: code %d %s", id, canceller->code, canceller->reason);
    if (too_late != (*cause == '\0'))
        fail_msg("cancel of %s: code %d, and its cause is \"%s\"", id, canceller->code, cause);
    tally->completed += *cause == '\0';
    tally->refused += strcmp(cause, "REFUSED") == 0;
    tally->cancelled += strcmp(cause, "CANCELLED") == 0;
    tally->deadline += strcmp(cause, "DEADLINE") == 0;
}

/* False: not all of its steps were held in time, so that nothing raced. */
static bool race(struct raw_worker *holder, struct raw_worker *reporter, int round,
                 struct canceller *cancellers)
{
    struct raw_lease leases[AT_ONCE];
    int64_t reports_us[AT_ONCE];
    char prefix[16];
    (void)snprintf(prefix, sizeof prefix, "race%d-", round);
    rig_start_many(one, "s3", prefix, AT_ONCE, "");
    if (hold_round(holder, round, leases) < AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++)
            if (leases[i].fence)
                raw_worker_report(reporter, &leases[i], DONE, "word");
        return false;
    }
    /* One batch, one transaction, one deadline; database and test have one clock. */
    int64_t due_us = rig_count(one, RIG_STORE,
                               "SELECT extract(epoch FROM deadline_at) * 1000000 FROM saga"
                               " WHERE saga_id = '%s0'",
                               prefix);
    for (int i = 0; i < AT_ONCE; i++) {
        cancellers[i] = (struct canceller){ .at_us = some_us(due_us) };
        (void)snprintf(cancellers[i].saga_id, sizeof cancellers[i].saga_id, "%s%d", prefix, i);
        assert_int_equal(pthread_create(&cancellers[i].thread, NULL, cancel_at, &cancellers[i]), 0);
        reports_us[i] = some_us(due_us);
    }
    for (int left = AT_ONCE; left > 0; left--) {
        int next = 0;
        for (int i = 1; i < AT_ONCE; i++)
            next = reports_us[i] < reports_us[next] ? i : next;
        sleep_until_us(reports_us[next]);
        raw_worker_report(reporter, &leases[next], next % 2 ? REJECTED : DONE, "word");
        reports_us[next] = INT64_MAX;
    }
    for (int i = 0; i < AT_ONCE; i++)
        assert_int_equal(pthread_join(cancellers[i].thread, NULL), 0);
    return true;
}

static void test_s3_p5_p6_refusal_deadline_and_cancel_at_once_are_one_turn(void **state)
{
    (void)state;
    enum { ROUNDS = 5, ROUNDS_FULL = 167 };
    static struct canceller cancellers[2 * ROUNDS_FULL][AT_ONCE];
    PROVES("P3 P5 P6 P8");
    int rounds = test_is_full_size() ? ROUNDS_FULL : ROUNDS, begun = 0, raced = 0;
    struct tally tally = { 0 };
    rig_define(one, "s3", "deadline=1s",
               "a: IDEMPOTENT | IDEMPOTENT\nb: ONCE handler=held lease=60s | IDEMPOTENT");
    /* None at the node that gets the reports: what follows from them is for others to do. */
    (void)rig_worker(one, "w1", "act:8 undo:8"); /* the rigs own them */
    (void)rig_worker(three, "w3", "act:8 undo:8");
    struct raw_worker *holder = raw_worker_hello(one->address, "hand", NULL, "held", NULL, 0);
    struct raw_worker *reporter = raw_worker_hello(two->address, "hand", NULL, "held", NULL, 0);
    for (; raced < rounds && begun < 2 * rounds; begun++) {
        /* Each time: a stream that says nothing for some ticks is ended. */
        raw_worker_credit(holder, "held", 2 * (uint64_t)rounds * AT_ONCE);
        raced += race(holder, reporter, begun, cancellers[begun]);
    }
    assert_int_equal(raced, rounds);
    holder = raw_worker_cut(holder);
    reporter = raw_worker_cut(reporter);
    for (int i = 0; i < begun * AT_ONCE; i++)
        if (*cancellers[i / AT_ONCE][i % AT_ONCE].saga_id)
            judge_race(&cancellers[i / AT_ONCE][i % AT_ONCE], i % AT_ONCE % 2, &tally);
    print_message("%d refused, %d cancelled, %d deadline, %d completed first; %d rounds missed\n",
                  tally.refused, tally.cancelled, tally.deadline, tally.completed, begun - raced);
    if (test_is_full_size()) /* a race that one always wins is none */
        assert_true(tally.refused > 0 && tally.cancelled > 0 && tally.deadline > 0 &&
                    tally.completed > 0);
}

/* --- each route alone ------------------------------------------------------------------------- */

static void test_s3_p5_each_route_alone_turns_back_with_the_same_plan(void **state)
{
    (void)state;
    PROVES("P5");
    static const struct {
        const char *name, *settings, *action, *script, *cause, *attempts;
    } routes[] = {
        { "refused", NULL, "ONCE", "c A 1 rejected", "REFUSED", "c.1 REJECTED" },
        { "exhausted", NULL, "IDEMPOTENT max_attempts=2 on_exhausted=COMPENSATE", "c A * retry",
          "EXHAUSTED", "c.1 RETRY, c.2 RETRY" },
        { "timeout", NULL, "ONCE attempt_timeout=0.5s on_unknown=COMPENSATE", "c A 1 sleep=1500",
          "UNKNOWN", "c.1 EXPIRED" },
        { "unknown", NULL, "ONCE on_unknown=COMPENSATE", "c A 1 unknown", "UNKNOWN",
          "c.1 UNKNOWN" },
        { "start", NULL, "ONCE handler=nobody start_timeout=1s on_exhausted=COMPENSATE", "",
          "START_TIMEOUT", NULL },
        { "deadline", "deadline=1s", "IDEMPOTENT", "c A 1 after=600000 retry", "DEADLINE",
          "c.1 RETRY" },
        { "cancel", NULL, "IDEMPOTENT", "c A 1 after=600000 retry", "CANCELLED", "c.1 RETRY" },
    };
    (void)rig_worker(one, "w1", "act:8 undo:8"); /* the rigs own them */
    (void)rig_worker(two, "w2", "act:8 undo:8");
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        char definition[32], steps[256];
        (void)snprintf(definition, sizeof definition, "route_%s", routes[i].name);
        (void)snprintf(steps, sizeof steps,
                       "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | IDEMPOTENT\nc: %s | none",
                       routes[i].action);
        rig_define(one, definition, routes[i].settings, steps);
        rig_start(one, definition, routes[i].name, routes[i].script);
    }
    rig_await(one, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id = 'cancel' AND outcome = 'RETRY'");
    assert_int_equal(rig_cancel(three, "route_cancel", "cancel", NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        char definition[32], journal[256];
        (void)snprintf(definition, sizeof definition, "route_%s", routes[i].name);
        (void)snprintf(journal, sizeof journal,
                       "a.1 DONE, b.1 DONE, %s%sCOMPENSATE %s, ~b.1 DONE, ~a.1 DONE",
                       routes[i].attempts ? routes[i].attempts : "", routes[i].attempts ? ", " : "",
                       routes[i].cause);
        rig_await_state(one, definition, routes[i].name, "COMPENSATED", SOON);
        rig_assert_journal(one, definition, routes[i].name, journal);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_s3_p5_p6_refusal_deadline_and_cancel_at_once_are_one_turn),
        TEST(test_s3_p5_each_route_alone_turns_back_with_the_same_plan),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
