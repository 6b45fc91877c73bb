/* Goal: the night. A service dies under a pile of sagas: its breaker holds it within so many
 * failures, nobody is tried more than he must, other definitions go on as if nothing were; when the
 * service is back it is released at a rate, those first who have waited longest, and everything
 * ends well. Method: a whole installation; the service is down as long as a row of the
 * participant's database says so. Everyday 2,000 sagas wait, at full size 100,000. */
#include "base/clock.h"
#include "support/proof.h"
#include "support/rig.h"
#include "support/wait.h"

#include <stdio.h>

enum { FAILURES = 20, SLOTS = 32, TRIAL_S = 2, SOON = 20000 };

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

static int pile_size(void)
{
    return test_is_full_size() ? 100000 : 2000;
}

/* Sagas of the other definition that end in so many seconds, a steady stream of them. */
static int64_t goodput(const char *prefix, int seconds)
{
    enum { EACH = 40, EVERY_MS = 200 };
    int64_t until_ms = clock_mono_ms(&clock_system) + seconds * 1000;
    int count = 0;
    for (int round = 0; clock_mono_ms(&clock_system) < until_ms; round++, count += EACH) {
        char batch[64];
        (void)snprintf(batch, sizeof batch, "%s%d-", prefix, round);
        int64_t next_ms = clock_mono_ms(&clock_system) + EVERY_MS;
        rig_start_many(&rig, "other", batch, EACH, "");
        int64_t left_ms = next_ms - clock_mono_ms(&clock_system);
        if (left_ms > 0)
            wait_ms(left_ms);
    }
    wait_ms(500);
    return rig_count(&rig, RIG_STORE,
                     "SELECT count(*) * 1000 / %d FROM saga WHERE definition = 'other'"
                     " AND saga_id LIKE '%s%%' AND state = 'SUCCEEDED'",
                     count, prefix);
}

static void set_breaker(void)
{
    Saga__V1__SetHandlerLimitsRequest request = SAGA__V1__SET_HANDLER_LIMITS_REQUEST__INIT;
    Saga__V1__Breaker breaker = SAGA__V1__BREAKER__INIT;
    Google__Protobuf__Duration often = GOOGLE__PROTOBUF__DURATION__INIT;
    often.seconds = TRIAL_S;
    breaker.failures = FAILURES;
    breaker.trial_interval = &often;
    request.handler = rig_borrow("risk");
    request.breaker = &breaker;
    protobuf_c_message_free_unpacked(rig_call(&rig, "OperatorService/SetHandlerLimits",
                                              &request.base, &saga__v1__handler__descriptor, NULL),
                                     NULL);
}

static void release(int64_t per_second)
{
    Saga__V1__ReleaseHandlerRequest request = SAGA__V1__RELEASE_HANDLER_REQUEST__INIT;
    Saga__V1__Rate rate = SAGA__V1__RATE__INIT;
    rate.tasks = per_second;
    request.handler = rig_borrow("risk");
    request.rate = &rate;
    protobuf_c_message_free_unpacked(rig_call(&rig, "OperatorService/ReleaseHandler", &request.base,
                                              &saga__v1__handler__descriptor, NULL),
                                     NULL);
}

/* How long a question takes, in ms. */
static int64_t ask(const char *method, const ProtobufCMessage *request,
                   const ProtobufCMessageDescriptor *type)
{
    int64_t began_ms = clock_mono_ms(&clock_system);
    protobuf_c_message_free_unpacked(rig_call(&rig, method, request, type, NULL), NULL);
    return clock_mono_ms(&clock_system) - began_ms;
}

static int64_t journal_count(const char *where)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT count(*) FROM journal j JOIN saga s USING (shard, saga_uid)"
                     " WHERE s.definition = 'pile' AND %s",
                     where);
}

/* While the breaker holds, nobody is granted anything but its trials, the first of them an interval
 * after it tripped; and these are for those who have waited longest, who are not of the pile. */
static void assert_only_trials_were_granted(void)
{
    int64_t trials_at_most =
        rig_count(&rig, RIG_STORE,
                  "SELECT floor(extract(epoch FROM clock_timestamp() - held_at)"
                  " / %d) FROM handler WHERE name = 'risk'",
                  TRIAL_S);
    /* Half an interval: what raced the trip is over, and no trial has begun. */
    int64_t trials = journal_count("j.leased_at > (SELECT held_at + interval '1 s' FROM handler"
                                   " WHERE name = 'risk')");
    print_message("granted while it was held: %lld, trials at most %lld\n", (long long)trials,
                  (long long)trials_at_most);
    assert_in_range(trials, trials_at_most / 2, trials_at_most);
    assert_int_equal(journal_count("s.saga_id LIKE 'wait-%'"), 0);
}

/* By how many places one of the pile was granted too early or too late. Who came at the same time
 * has no order among themselves. */
static int64_t places_off(void)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT max(greatest(came - went, went - (came + together - 1), 0))"
                     " FROM (SELECT rank() OVER (ORDER BY s.started_at) AS came,"
                     " count(*) OVER (PARTITION BY s.started_at) AS together,"
                     " row_number() OVER (ORDER BY j.leased_at, s.started_at) AS went"
                     " FROM journal j JOIN saga s USING (shard, saga_uid)"
                     " WHERE s.definition = 'pile' AND s.saga_id LIKE 'wait-%%') o");
}

static void test_the_night(void **state)
{
    (void)state;
    PROVES("P8");
    const int pile = pile_size();
    const int64_t rate = test_is_full_size() ? 1500 : 400;
    rig_define(&rig, "pile", "deadline=30s", "r: IDEMPOTENT handler=risk start_timeout=20s | none");
    rig_define(&rig, "other", NULL, "a: IDEMPOTENT handler=fine | none");
    set_breaker();
    (void)rig_worker(&rig, "w1", "fine:32");
    int64_t before = goodput("before-", 4);

    /* The service is down: whoever asks it is told to try again. */
    struct test_process *down = rig_worker(&rig, "w2", "risk:32");
    rig_start_many(&rig, "pile", "down-", 200, "r A * sleep=20 retry code=DOWN");
    rig_await(&rig, RIG_STORE, "BREAKER", SOON, "SELECT hold FROM handler WHERE name = 'risk'");
    assert_in_range(journal_count("j.leased_at <= (SELECT held_at FROM handler)"), FAILURES,
                    FAILURES + 2 * SLOTS); /* what was at work when it tripped */
    rig_start_many(&rig, "pile", "wait-", pile, "");
    int64_t during = goodput("during-", 4);
    print_message("goodput of others: %lld of 1000 before, %lld while %d wait\n", (long long)before,
                  (long long)during, pile);
    assert_true(during * 100 >= before * 95);
    rig_await(&rig, RIG_STORE, "t", SOON,
              "SELECT sum(waiting) >= %d FROM handler_node WHERE handler = 'risk'",
              pile < 90000 ? pile : 90000);
    Saga__V1__ListHandlersRequest list = SAGA__V1__LIST_HANDLERS_REQUEST__INIT;
    int64_t took_ms = ask("OperatorService/ListHandlers", &list.base,
                          &saga__v1__list_handlers_response__descriptor);
    print_message("handler list beside %d that wait: %lld ms\n", pile, (long long)took_ms);
    assert_true(took_ms < 1000);

    /* Nothing was lost to deadline or start time-out: half a minute has passed. */
    wait_ms(22000);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE definition = 'pile'"
                               " AND saga_id LIKE 'wait-%%' AND state <> 'RUNNING'"),
                     0);
    assert_only_trials_were_granted();

    /* The service is back. */
    for (int i = 0; i < 200; i++) {
        char key[32], reason[RIG_REASON_SIZE];
        (void)snprintf(key, sizeof key, "down-%d", i);
        (void)rig_cancel(&rig, "pile", key, reason);
    }
    int64_t began_ms = clock_mono_ms(&clock_system);
    release(rate);
    rig_await_states(&rig, "pile", "wait-", "SUCCEEDED", pile, 600000);
    took_ms = clock_mono_ms(&clock_system) - began_ms;
    print_message("%d released at %lld/s in %lld ms\n", pile, (long long)rate, (long long)took_ms);
    assert_true(took_ms > (pile - rate) * 1000 / rate);
    assert_int_equal(journal_count("s.saga_id LIKE 'wait-%' AND j.try > 1"), 0);
    assert_int_equal(journal_count("s.saga_id LIKE 'wait-%' AND j.held_ms IS NULL"), 0);
    /* Those first who have waited longest: nobody is farther from his place than a batch. */
    int64_t off = places_off();
    print_message("the farthest from his place: %lld\n", (long long)off);
    assert_true(off <= (pile < 40000 ? pile / 20 : 2000));
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM handler_event WHERE kind = 'DRAINED'");
    rig_worker_kill(&rig, down);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_night),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
