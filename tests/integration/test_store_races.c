/* Goal: of two decisions that exclude each other exactly one wins, as a whole, whoever comes first.
 * Method: two sessions with the store's own statements. The first runs its decision and keeps its
 * transaction open; the second runs into it and waits (seen in pg_stat_activity); then the first
 * commits or rolls back. Each pair in both orders and with both ends. */
#include "store_fixture.h"

#include <stdio.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static struct store *store;
static PGconn *watch;

static struct session sessions[2];

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "races", conninfo);
    store = fixture_store(conninfo);
    watch = fixture_connect(conninfo);
    for (int i = 0; i < 2; i++)
        session_open(&sessions[i], conninfo, "node-1");
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        session_close(&sessions[i]);
    PQfinish(watch);
    store = store_pg_free(store);
    postgres = test_postgres_free(postgres);
    return 0;
}

/* What holds after every race, whoever won. */
static void check_saga(const struct uuid *uid, int64_t expected_entries)
{
    struct copy stored; /* replays the journal and checks the invariants */
    copy_load(&stored, store, uid);
    assert_int_equal(saga_last_seq(stored.saga), expected_entries);
    bool refused = false, compensates = false;
    for (int64_t seq = 1; seq <= saga_last_seq(stored.saga); seq++) {
        const struct journal_entry *entry = saga_entry(stored.saga, seq);
        refused = refused || entry->outcome == OUTCOME_REJECTED;
        compensates = compensates || entry->kind == ENTRY_COMPENSATE;
    }
    assert_true(!refused || compensates);
    assert_int_equal(compensates, saga_row(stored.saga)->phase != SAGA_RUNNING &&
                                      saga_row(stored.saga)->phase != SAGA_SUCCEEDED);
    copy_done(&stored);
}

/* Makes two copies of one saga, each with its decision; they exclude each other. */
typedef void scene_fn(const char *id, struct copy *a, struct copy *b);

static void race(scene_fn *scene, const char *name, bool a_first, bool commit)
{
    char id[64];
    (void)snprintf(id, sizeof id, "%s-%d-%d", name, a_first, commit);
    struct copy copies[2];
    scene(id, &copies[0], &copies[1]);
    struct copy *first = &copies[a_first ? 0 : 1], *second = &copies[a_first ? 1 : 0];
    session_send(&sessions[0], &first->op);
    assert_true(session_take(&sessions[0]));
    session_send(&sessions[1], &second->op);
    session_wait_blocked(&sessions[1], watch);
    fixture_exec(sessions[0].conn, commit ? "COMMIT" : "ROLLBACK");
    bool second_won = session_take(&sessions[1]);
    fixture_exec(sessions[1].conn, "COMMIT");
    if (second_won == commit)
        fail_msg("%s: the second decision %s", id, second_won ? "won, too" : "lost to nobody");
    struct copy *winner = commit ? first : second;
    check_saga(&saga_row(winner->saga)->uid, saga_last_seq(winner->saga));
    copy_done(&copies[0]);
    copy_done(&copies[1]);
}

static void race_all(scene_fn *scene, const char *name)
{
    for (int i = 0; i < 4; i++)
        race(scene, name, i & 1, i & 2);
}

/* A saga of which step 1 is leased (or, with `done`, that many steps are done and the next one is
 * leased), loaded twice. */
static void two_copies(const char *id, int done, struct copy *a, struct copy *b)
{
    struct copy made;
    copy_new(&made, id, "w/1");
    copy_write(&made, store, STORE_OK);
    for (int i = 0; i < done; i++) {
        copy_report(&made, OUTCOME_DONE, "out");
        copy_grant(&made, "w/1");
        copy_write(&made, store, STORE_OK);
    }
    copy_load(a, store, &saga_row(made.saga)->uid);
    copy_load(b, store, &saga_row(made.saga)->uid);
    copy_done(&made);
}

/* Form 1: a decision of two entries against a grant at the same position. */
static void scene_two_entries(const char *id, struct copy *a, struct copy *b)
{
    struct copy made;
    copy_new(&made, id, "w/1");
    copy_write(&made, store, STORE_OK);
    copy_report(&made, OUTCOME_DONE, "out");
    copy_write(&made, store, STORE_OK);
    copy_load(a, store, &saga_row(made.saga)->uid);
    copy_load(b, store, &saga_row(made.saga)->uid);
    copy_done(&made);
    copy_cancel(a);
    copy_grant(a, "a/1");
    assert_int_equal(a->transition.append_count, 2);
    copy_grant(b, "b/1");
}

static void test_form_1_a_lost_decision_leaves_no_second_row(void **state)
{
    (void)state;
    race_all(scene_two_entries, "two");
}

static void scene_two_grants(const char *id, struct copy *a, struct copy *b)
{
    struct copy made;
    copy_new(&made, id, NULL);
    copy_write(&made, store, STORE_OK);
    copy_load(a, store, &saga_row(made.saga)->uid);
    copy_load(b, store, &saga_row(made.saga)->uid);
    copy_done(&made);
    copy_grant(a, "a/1");
    copy_grant(b, "b/1");
}

static void test_form_1_one_position_is_granted_once(void **state)
{
    (void)state;
    race_all(scene_two_grants, "grants");
}

/* Form 2: a refusal against a cancel; the loser leaves neither outcome nor entry. */
static void scene_refusal_cancel(const char *id, struct copy *a, struct copy *b)
{
    two_copies(id, 1, a, b);
    copy_report(a, OUTCOME_REJECTED, NULL);
    assert_true(a->transition.finishes && a->transition.phase_change);
    copy_cancel(b);
}

static void test_form_2_a_refusal_and_a_cancel(void **state)
{
    (void)state;
    race_all(scene_refusal_cancel, "refusal");
}

/* Form 2: a refusal against the same lease's end by another node. */
static void scene_refusal_lost(const char *id, struct copy *a, struct copy *b)
{
    struct err err;
    enum verdict verdict;
    struct rng rng;
    rng_seed(&rng, 1);
    two_copies(id, 1, a, b);
    copy_report(a, OUTCOME_REJECTED, NULL);
    ASSERT_OK(saga_on_lease_end(b->saga, saga_last_seq(b->saga), OUTCOME_STREAM_LOST,
                                clock_wall_ms(&clock_system), &rng, &b->transition, &verdict, &err),
              &err);
    assert_int_equal(verdict, VERDICT_ACCEPTED);
    b->op = (struct store_op){ .kind = STORE_TRANSITION,
                               .saga = b->saga,
                               .transition = &b->transition };
}

static void test_form_2_a_refusal_and_a_lost_stream(void **state)
{
    (void)state;
    race_all(scene_refusal_lost, "stream");
}

/* Form 2: the end against a cancel. The end has no entry: the row decides. When the cancel wins,
 * the outcome of the last step is durable all the same. */
static void scene_end_cancel(const char *id, struct copy *a, struct copy *b)
{
    two_copies(id, 2, a, b);
    copy_report(a, OUTCOME_DONE, "out");
    assert_true(a->transition.ends);
    copy_cancel(b);
}

static void test_form_2_the_end_and_a_cancel(void **state)
{
    (void)state;
    race_all(scene_end_cancel, "end");
}

/* Form 3: a report whose follow-up lost. */
static void scene_report_cancel(const char *id, struct copy *a, struct copy *b)
{
    two_copies(id, 0, a, b);
    copy_report(a, OUTCOME_DONE, "out");
    copy_grant(a, "a/1");
    copy_cancel(b);
}

static void test_form_3_a_follow_up_that_loses_is_told(void **state)
{
    (void)state;
    race_all(scene_report_cancel, "report");
    /* The same through the store: the outcome is durable, the answer is LOST, and a new decision
     * on what was loaded goes through. */
    struct copy a, b, again;
    scene_report_cancel("report-store", &a, &b);
    copy_write(&b, store, STORE_OK);
    copy_write(&a, store, STORE_LOST);
    copy_load(&again, store, &saga_row(a.saga)->uid);
    assert_int_equal(saga_last_seq(again.saga), 2);
    assert_int_equal(saga_entry(again.saga, 1)->outcome, OUTCOME_DONE);
    assert_int_equal(saga_entry(again.saga, 2)->kind, ENTRY_COMPENSATE);
    copy_grant(&again, "w/1");
    copy_write(&again, store, STORE_OK);
    copy_assert_stored(&again, store);
    copy_done(&a);
    copy_done(&b);
    copy_done(&again);
}

/* Form 5: the lease has run out; one node says so while another one extends it. */
static void expire(struct copy *copy)
{
    struct err err;
    enum verdict verdict;
    struct rng rng;
    rng_seed(&rng, 1);
    copy->transition = (struct transition){ 0 };
    ASSERT_OK(saga_on_time(copy->saga, clock_wall_ms(&clock_system) + 2 * DEFAULT_LEASE_MS, true,
                           &rng, &copy->transition, &verdict, &err),
              &err);
    assert_int_equal(verdict, VERDICT_ACCEPTED);
    assert_true(copy->transition.only_if_expired);
    copy->op = (struct store_op){ .kind = STORE_TRANSITION,
                                  .saga = copy->saga,
                                  .transition = &copy->transition };
}

static void scene_expiry_extension(const char *id, struct copy *a, struct copy *b)
{
    two_copies(id, 0, a, b);
    fixture_exec(watch, "UPDATE journal SET lease_until = now() - interval '1 s'"
                        " WHERE outcome IS NULL");
    expire(a);
    copy_extend(b, 1);
}

static void test_form_5_an_extension_saves_a_lease(void **state)
{
    (void)state;
    race_all(scene_expiry_extension, "expiry");
}

/* Two nodes extend one lease; the transaction that began first comes second. */
static void test_form_5_an_extension_never_moves_a_lease_back(void **state)
{
    (void)state;
    struct copy a, b;
    two_copies("back", 0, &a, &b);
    copy_extend(&a, 1);
    copy_extend(&b, 1);
    fixture_exec(sessions[0].conn, "BEGIN; SELECT now()");
    for (int i = 0; i < 2; i++) { /* first the one that began later */
        struct session *session = &sessions[1 - i];
        session_send(session, i == 0 ? &b.op : &a.op);
        assert_true(session_take(session));
        fixture_exec(session->conn, "COMMIT");
        if (i == 0)
            fixture_exec(watch, "CREATE TEMP TABLE before AS SELECT lease_until FROM journal"
                                " JOIN saga USING (shard, saga_uid) WHERE saga_id = 'back'");
    }
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM journal JOIN saga USING (shard,"
                                          " saga_uid) JOIN before USING (lease_until)"
                                          " WHERE saga_id = 'back'"),
                     1);
    copy_done(&a);
    copy_done(&b);
}

static void scene_expiry_report(const char *id, struct copy *a, struct copy *b)
{
    scene_expiry_extension(id, a, b);
    copy_report(b, OUTCOME_DONE, "out");
}

static void test_form_5_a_lease_ends_once(void **state)
{
    (void)state;
    race_all(scene_expiry_report, "once");
}

static void test_form_5_expiry_is_refused_while_the_lease_runs(void **state)
{
    (void)state;
    struct copy a, b;
    two_copies("running", 0, &a, &b);
    expire(&a);
    copy_write(&a, store, STORE_LOST);
    copy_assert_stored(&b, store); /* nothing happened */
    copy_done(&a);
    copy_done(&b);
}

/* Two starts of one key: neither row of the loser is there. */
static void scene_starts(const char *id, struct copy *a, struct copy *b)
{
    copy_new(a, id, "a/1");
    copy_new(b, id, "b/1");
}

static void test_a_key_starts_once(void **state)
{
    (void)state;
    race_all(scene_starts, "start");
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM saga WHERE saga_id LIKE 'start-%'"),
                     4);
}

/* Evidence is not appended behind an end that its copy has not seen. */
static void test_evidence_does_not_follow_an_end(void **state)
{
    (void)state;
    struct err err;
    enum verdict verdict;
    struct rng rng;
    rng_seed(&rng, 1);
    struct copy a, b;
    scene_refusal_lost("evidence", &a, &b); /* a: will be stale; b: step 2 is lost */
    copy_done(&a);
    copy_write(&b, store, STORE_OK);
    for (int i = 0; i < 2; i++) {
        copy_grant(&b, "b/1");
        copy_write(&b, store, STORE_OK);
        if (i == 1)
            copy_load(&a, store, &saga_row(b.saga)->uid);
        copy_report(&b, OUTCOME_DONE, "out");
        copy_write(&b, store, STORE_OK);
    }
    assert_int_equal(saga_row(b.saga)->state, SAGA_SUCCEEDED);
    struct report report = { .fence = saga_entry(a.saga, 2)->fence, .outcome = OUTCOME_RETRY };
    ASSERT_OK(saga_on_report(a.saga, &report, clock_wall_ms(&clock_system), &rng, &a.transition,
                             &verdict, &err),
              &err);
    assert_int_equal(a.transition.append_count, 1);
    a.op =
        (struct store_op){ .kind = STORE_TRANSITION, .saga = a.saga, .transition = &a.transition };
    copy_write(&a, store, STORE_LOST);
    copy_assert_stored(&b, store);
    copy_done(&a);
    copy_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form_1_a_lost_decision_leaves_no_second_row),
        cmocka_unit_test(test_form_1_one_position_is_granted_once),
        cmocka_unit_test(test_form_2_a_refusal_and_a_cancel),
        cmocka_unit_test(test_form_2_a_refusal_and_a_lost_stream),
        cmocka_unit_test(test_form_2_the_end_and_a_cancel),
        cmocka_unit_test(test_form_3_a_follow_up_that_loses_is_told),
        cmocka_unit_test(test_form_5_an_extension_saves_a_lease),
        cmocka_unit_test(test_form_5_an_extension_never_moves_a_lease_back),
        cmocka_unit_test(test_form_5_a_lease_ends_once),
        cmocka_unit_test(test_form_5_expiry_is_refused_while_the_lease_runs),
        cmocka_unit_test(test_a_key_starts_once),
        cmocka_unit_test(test_evidence_does_not_follow_an_end),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
