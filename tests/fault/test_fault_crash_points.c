/* A sagad that dies exactly between two things. Goal: at each crash point of base/fault.h, under
 * load, nothing acknowledged is lost, nothing is done twice, and every saga goes on by itself when
 * it is back. Method: a table of points; at the n-th passing sagad kills itself with -9, which the
 * test verifies; it is started again; outside books judge. */
#include "base/rng.h"
#include "load.h"
#include "page.h"
#include "support/proof.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

enum { DIE_MS = 30000, REST_MS = 60000, ROUNDS_FULL = 25 };

static char page_variable[SCRATCH_PATH_SIZE + 32];
static const char *const server_env[] = { page_variable, NULL };
static struct rig rig = { .server_args = { "--resend-grace", "500ms", "--stream-lost", "500ms" },
                          .server_program = SAGAD_FAULT_BINARY,
                          .server_env = server_env };
static struct page *page;
static struct rng rng;

static int setup(void **state)
{
    (void)state;
    struct err err;
    char path[SCRATCH_PATH_SIZE];
    SETUP_OK(scratch_path("faults", path, &err), &err);
    (void)snprintf(page_variable, sizeof page_variable, FAULT_PAGE_ENV "=%s", path);
    if (!(page = page_map(path, true)) || rig_up(&rig) != 0)
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

static const char *fault_name(enum page_place place)
{
    static char name[PROOF_NAME_SIZE];
    (void)snprintf(name, sizeof name, "kill -9 %s", page_place_names[place]);
    return name;
}

static void workers(void)
{
    (void)rig_worker_threads(&rig, "one", "act:6 undo:4", 6); /* the rig owns them */
    (void)rig_worker_threads(&rig, "two", "act:6 undo:4", 6);
}

/* The process has ended by its own kill -9, at this point, once. */
static void await_death(struct test_process **process, enum page_place place, uint64_t hits_before)
{
    struct err err;
    int status;
    ASSERT_OK(test_process_wait(*process, DIE_MS, &status, &err), &err);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(page_hits(page, place), hits_before + 1);
    *process = test_process_free(*process);
    proof_fault(fault_name(place), 1);
}

/* --- under load ------------------------------------------------------------------------------- */

static void die_under_load(enum page_place place, uint64_t n)
{
    char prefix[32];
    static int round;
    (void)snprintf(prefix, sizeof prefix, "load%d-", round++);
    uint64_t hits = page_hits(page, place);
    page_arm(page, place, n);
    struct load *load = load_start(&rig, LOAD_BANK_LIVES, prefix, 32);
    await_death(&rig.sagad, place, hits);
    rig_server_start(&rig);
    (void)load_judge(load, 0, REST_MS); /* none is parked: the workers live and resend */
}

static void test_p1_p2_p5_p8_a_crash_at_each_point_loses_and_doubles_nothing(void **state)
{
    (void)state;
    PROVES("P1 P2 P4 P5 P8");
    static const struct {
        enum page_place place;
        uint64_t n_max; /* a load has more passings than this */
    } rows[] = {
        { PAGE_BEFORE_COMMIT, 60 },
        { PAGE_AFTER_COMMIT, 60 },
        { PAGE_AFTER_REPLY, 50 },
        { PAGE_AFTER_TASK_SENT, 40 },
    };
    workers();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        die_under_load(rows[i].place, 1);
        for (int j = 0; j < (test_is_full_size() ? ROUNDS_FULL : 1); j++)
            die_under_load(rows[i].place, 2 + rng_below(&rng, rows[i].n_max));
    }
}

/* --- S2 --------------------------------------------------------------------------------------- */

/* The journal without the leases of compensations: one that never reached its worker is given back
 * or runs out, and is granted again. */
static void assert_forward_journal(const char *id, const char *expected)
{
    char text[512];
    rig_text(&rig, RIG_STORE, text, sizeof text,
             "SELECT string_agg(CASE kind WHEN 'LEASE' THEN step || '.' || try || ' ' || outcome"
             " ELSE kind || ' ' || reason END, ', ' ORDER BY seq)"
             " FROM journal JOIN saga USING (shard, saga_uid)"
             " WHERE saga_id = '%s' AND operation IS DISTINCT FROM 'COMPENSATION'",
             id);
    assert_string_equal(text, expected);
}

/* Around the report of a refusal: its entry, its reason and the change of phase are one commit. */
static void refusal(enum page_place place, bool worker_dies, const char *expected)
{
    char id[64];
    (void)snprintf(id, sizeof id, "s2-%s%s", page_place_names[place], worker_dies ? "-alone" : "");
    struct test_process *worker = rig_worker(&rig, "s2", "act:1 undo:1");
    rig_start(&rig, "load", id, "b A 1 sleep=400 rejected\n* * * guarded");
    rig_await_call(&rig, id, "b", "A", 1, REST_MS);
    uint64_t hits = page_hits(page, place);
    page_arm(page, place, 1); /* the next commit or reply is that of the report */
    await_death(&rig.sagad, place, hits);
    if (worker_dies)
        rig_worker_kill(&rig, worker);
    int64_t phases =
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM journal JOIN saga USING (shard, saga_uid)"
                  " WHERE saga_id = '%s' AND kind = 'COMPENSATE' AND saga.state = 'COMPENSATING'",
                  id);
    int64_t refusals =
        rig_count(&rig, RIG_STORE,
                  "SELECT count(*) FROM journal JOIN saga USING (shard, saga_uid)"
                  " WHERE saga_id = '%s' AND outcome = 'REJECTED' AND error_code = 'SCRIPT'",
                  id);
    assert_int_equal(phases, place == PAGE_BEFORE_COMMIT ? 0 : 1);
    assert_int_equal(refusals, phases);
    rig_server_start(&rig);
    if (worker_dies)
        (void)rig_worker(&rig, "s2-next", "act:1 undo:1"); /* the rig owns it */
    bool unknown = worker_dies && place == PAGE_BEFORE_COMMIT;
    rig_await_state(&rig, "load", id, unknown ? "PARKED OUTCOME_UNKNOWN" : "COMPENSATED", REST_MS);
    assert_forward_journal(id, expected);
    assert_int_equal(rig_effects(&rig, id, "a", "A"), 1);
    assert_int_equal(rig_effects(&rig, id, "a", "C"), unknown ? 0 : 1);
    rig_workers_kill(&rig);
}

static void test_s2_p2_a_crash_around_the_report_of_a_refusal(void **state)
{
    (void)state;
    PROVES("P2 P5 P8");
    static const char whole[] = "a.1 DONE, b.1 REJECTED, COMPENSATE REFUSED";
    refusal(PAGE_BEFORE_COMMIT, false, whole);
    refusal(PAGE_AFTER_COMMIT, false, whole);
    refusal(PAGE_AFTER_REPLY, false, whole);
    refusal(PAGE_AFTER_COMMIT, true, whole);
    /* Nobody resends: b, which may not be repeated, may have happened. */
    refusal(PAGE_BEFORE_COMMIT, true, "a.1 DONE, b.1 EXPIRED, PARK OUTCOME_UNKNOWN");
}

/* --- migration -------------------------------------------------------------------------------- */

static struct test_process *serve(const char *conninfo, const char *const *env)
{
    const char *argv[] = { SAGAD_FAULT_BINARY, "serve",       "--database", conninfo,
                           "--listen",         "127.0.0.1:0", NULL };
    const struct test_process_options options = { .name = "migrating", .argv = argv, .env = env };
    struct test_process *process;
    struct err err;
    ASSERT_OK(test_process_start(&options, &process, &err), &err);
    return process;
}

static int64_t migrations(const char *name)
{
    struct err err;
    int64_t count;
    ASSERT_OK(test_postgres_count(rig.postgres, name,
                                  "SELECT count(*) FROM pg_class WHERE relname ="
                                  " 'schema_migrations'",
                                  &count, &err),
              &err);
    if (count > 0)
        ASSERT_OK(test_postgres_count(rig.postgres, name,
                                      "SELECT count(*) FROM sagad.schema_migrations", &count, &err),
                  &err);
    return count;
}

/* Dies in the n-th one; another sagad that waits for it meanwhile, or comes later, finishes. */
static void die_in_migration(int n, bool beside)
{
    struct err err;
    char name[32], conninfo[POSTGRES_CONNINFO_SIZE];
    (void)snprintf(name, sizeof name, "fresh_%d_%d", n, beside);
    ASSERT_OK(test_postgres_createdb(rig.postgres, name, conninfo, &err), &err);
    uint64_t hits = page_hits(page, PAGE_INSIDE_MIGRATION);
    page_arm(page, PAGE_INSIDE_MIGRATION, (uint64_t)n);
    struct test_process *first = serve(conninfo, server_env);
    struct test_process *second = beside ? serve(conninfo, NULL) : NULL;
    await_death(&first, PAGE_INSIDE_MIGRATION, hits);
    if (!beside) {
        assert_int_equal(migrations(name), n - 1); /* all of it, or nothing */
        second = serve(conninfo, NULL);
    }
    ASSERT_OK(test_process_wait_output(second, "sagad: serving on", REST_MS, NULL, 0, &err), &err);
    (void)test_process_free(second); /* always NULL */
    assert_int_equal(migrations(name), migrations("store"));
    ASSERT_OK(test_postgres_dropdb(rig.postgres, name, &err), &err);
}

static void test_p8_a_crash_in_a_migration(void **state)
{
    (void)state;
    PROVES("P8");
    int count = (int)migrations("store");
    assert_true(count > 0);
    for (int n = 1; n <= count; n++)
        die_in_migration(n, false);
    die_in_migration(1, true);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_p1_p2_p5_p8_a_crash_at_each_point_loses_and_doubles_nothing),
        TEST(test_s2_p2_a_crash_around_the_report_of_a_refusal),
        TEST(test_p8_a_crash_in_a_migration),
    };
    for (int i = 0; i < PAGE_BEFORE_INGEST; i++)
        if (i != PAGE_INSIDE_ADOPTION) /* of test_fault_nodes */
            proof_fault(fault_name((enum page_place)i), 0);
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
