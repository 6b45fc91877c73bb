/* Processes that stand still and then go on as if nothing had happened. Goal: what was given to
 * others meanwhile stays theirs, what nobody took is settled by the late report, each guarded
 * effect is there once, and what may not be repeated was not. Method: SIGSTOP for twice the lease
 * under load, then SIGCONT; outside books judge. */
#include "base/rng.h"
#include "load.h"
#include "support/proof.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>

enum { LEASE_MS = 5000, SLOTS = 6, REST_MS = 90000 };

static struct rig rig = { .server_args = { "--resend-grace", "500ms", "--stream-lost", "500ms" } };
static struct rng rng;

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    load_define(&rig);
    rng_seed(&rng, proof_seed());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

static void judge(struct load *load, int parked_max)
{
    (void)load_judge(load, parked_max, REST_MS);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE state = 'PARKED'"
                               " AND (park_reason <> 'OUTCOME_UNKNOWN' OR park_step <> 'b')"),
                     0);
}

static int64_t outcomes(const char *prefix, const char *outcome)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT count(*) FROM journal JOIN saga USING (shard, saga_uid)"
                     " WHERE starts_with(saga_id, '%s') AND outcome = '%s'",
                     prefix, outcome);
}

static void test_l2_p3_p4_a_worker_stands_still_for_twice_its_lease(void **state)
{
    (void)state;
    PROVES("P3 P4 P8");
    for (int round = 0; round < (test_is_full_size() ? 5 : 1); round++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "worker%d-", round);
        struct test_process *stopped = rig_worker_threads(&rig, "stopped", "act:6 undo:4", 6);
        (void)rig_worker_threads(&rig, "other", "act:6 undo:4", 6); /* the rig owns it */
        struct load *load = load_start(&rig, LOAD_BANK_LIVES, prefix, 300);
        while (load_acked(load) < 60)
            wait_ms(1);
        wait_ms((int64_t)rng_below(&rng, 200));
        rig_worker_signal(stopped, SIGSTOP);
        wait_ms(2 * LEASE_MS + 500);
        int64_t expired = outcomes(prefix, "EXPIRED");
        rig_worker_signal(stopped, SIGCONT);
        /* Late reports settle what was parked, but for tasks that had not begun: nobody says so. */
        judge(load, SLOTS);
        proof_fault("SIGSTOP of a worker: leases expired", expired);
        rig_workers_kill(&rig);
    }
}

static void test_p3_p8_the_only_sagad_stands_still_for_twice_the_lease(void **state)
{
    (void)state;
    PROVES("P1 P3 P4 P8");
    for (int round = 0; round < (test_is_full_size() ? 5 : 1); round++) {
        char prefix[32];
        struct err err;
        (void)snprintf(prefix, sizeof prefix, "sagad%d-", round);
        (void)rig_worker_threads(&rig, "one", "act:6 undo:4", 6); /* the rig owns them */
        (void)rig_worker_threads(&rig, "two", "act:6 undo:4", 6);
        struct load *load = load_start(&rig, LOAD_BANK_LIVES, prefix, 150);
        while (load_acked(load) < 60)
            wait_ms(1);
        wait_ms((int64_t)rng_below(&rng, 100));
        ASSERT_OK(test_process_signal(rig.sagad, SIGSTOP, &err), &err);
        wait_ms(2 * LEASE_MS + 500);
        ASSERT_OK(test_process_signal(rig.sagad, SIGCONT, &err), &err);
        judge(load, 2 * SLOTS); /* as above */
        proof_fault("SIGSTOP of the only sagad", 1);
        rig_workers_kill(&rig);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_l2_p3_p4_a_worker_stands_still_for_twice_its_lease),
        TEST(test_p3_p8_the_only_sagad_stands_still_for_twice_the_lease),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
