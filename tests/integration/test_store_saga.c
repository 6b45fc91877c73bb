/* Goal: what the core decides is what the database holds, by the same times, and a lost decision is
 * told as lost. Method: sagas driven by hand through a store; after each write the stored saga,
 * replayed, is compared with the copy in memory field by field. */
#include "store_fixture.h"

#include <stdio.h>

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static struct store *store;

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "saga", conninfo);
    store = fixture_store(conninfo);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    store = store_pg_free(store);
    postgres = test_postgres_free(postgres);
    return 0;
}

static void write_and_compare(struct copy *copy)
{
    copy_write(copy, store, STORE_OK);
    copy_assert_stored(copy, store);
}

/* Start without a lease, grant, finish and grant, finish and end. */
static void test_a_saga_succeeds(void **state)
{
    (void)state;
    struct copy copy;
    copy_new(&copy, "happy", NULL);
    write_and_compare(&copy);
    copy_grant(&copy, "w/1");
    write_and_compare(&copy);
    copy_extend(&copy, 1);
    write_and_compare(&copy);
    for (int step = 0; step < 2; step++) {
        copy_report(&copy, OUTCOME_DONE, "out");
        copy_grant(&copy, "w/1");
        write_and_compare(&copy);
    }
    copy_report(&copy, OUTCOME_DONE, "out");
    assert_true(copy.transition.ends);
    write_and_compare(&copy);
    assert_int_equal(saga_row(copy.saga)->state, SAGA_SUCCEEDED);
    struct store_op load = {
        .kind = STORE_LOAD_KEY, .namespace_ = "test", .definition = "pay", .saga_id = "happy"
    };
    fixture_run(store, &load);
    assert_int_equal(load.result, STORE_OK);
    assert_true(load.key.ended);
    assert_int_equal(load.key.final_state, SAGA_SUCCEEDED);
    assert_int_equal(load.saga_count, 1);
    store_op_done(&load);
    copy_done(&copy);
}

/* A retry (finish alone), then a refusal: its phase entry and the compensation's lease with it. */
static void test_a_refusal_compensates(void **state)
{
    (void)state;
    struct copy copy;
    copy_new(&copy, "refused", "w/1");
    write_and_compare(&copy);
    copy_report(&copy, OUTCOME_DONE, "out");
    copy_grant(&copy, "w/1");
    write_and_compare(&copy);
    copy_report(&copy, OUTCOME_RETRY, NULL);
    write_and_compare(&copy);
    copy_grant(&copy, "w/2");
    write_and_compare(&copy);
    copy_report(&copy, OUTCOME_REJECTED, NULL);
    copy_grant(&copy, "w/3");
    assert_true(copy.transition.finishes && copy.transition.phase_change);
    assert_int_equal(copy.transition.append_count, 2);
    write_and_compare(&copy);
    assert_int_equal(saga_row(copy.saga)->state, SAGA_COMPENSATING);
    copy_report(&copy, OUTCOME_DONE, "");
    write_and_compare(&copy);
    assert_int_equal(saga_row(copy.saga)->state, SAGA_COMPENSATED);
    copy_done(&copy);
}

/* A cancel that has nothing to take back ends the saga: an entry and the end in one. */
static void test_a_cancel_before_the_first_lease_ends_it(void **state)
{
    (void)state;
    struct copy copy;
    copy_new(&copy, "cancelled", NULL);
    write_and_compare(&copy);
    copy_cancel(&copy);
    assert_true(copy.transition.ends && copy.transition.phase_change);
    write_and_compare(&copy);
    assert_int_equal(saga_row(copy.saga)->state, SAGA_COMPENSATED);
    struct store_op load = {
        .kind = STORE_LOAD_KEY, .namespace_ = "test", .definition = "pay", .saga_id = "cancelled"
    };
    fixture_run(store, &load);
    assert_true(load.key.ended);
    assert_int_equal(load.key.final_state, SAGA_COMPENSATED);
    store_op_done(&load);
    copy_done(&copy);
}

/* A compensation that is refused parks; a retry by an operator goes on. */
static void test_a_parked_saga_is_retried(void **state)
{
    (void)state;
    struct err err;
    enum verdict verdict;
    struct copy copy;
    copy_new(&copy, "parked", "w/1");
    write_and_compare(&copy);
    copy_report(&copy, OUTCOME_DONE, "out");
    write_and_compare(&copy);
    copy_cancel(&copy);
    copy_grant(&copy, "w/1");
    write_and_compare(&copy);
    copy_report(&copy, OUTCOME_REJECTED, NULL);
    write_and_compare(&copy);
    assert_int_equal(saga_row(copy.saga)->state, SAGA_PARKED);
    assert_string_equal(saga_row(copy.saga)->park_code, "CODE");
    ASSERT_OK(saga_on_retry(copy.saga, NULL, "someone", "again", clock_wall_ms(&clock_system),
                            &copy.transition, &verdict, &err),
              &err);
    copy.op = (struct store_op){ .kind = STORE_TRANSITION,
                                 .saga = copy.saga,
                                 .transition = &copy.transition };
    copy_grant(&copy, "w/1");
    write_and_compare(&copy);
    copy_report(&copy, OUTCOME_DONE, "x");
    write_and_compare(&copy);
    assert_int_equal(saga_row(copy.saga)->state, SAGA_COMPENSATED);
    copy_done(&copy);
}

/* A lease that was ended reports after all: once while the saga runs, once after its end. */
static void test_late_reports_are_kept(void **state)
{
    (void)state;
    struct err err;
    enum verdict verdict;
    struct rng rng;
    rng_seed(&rng, 1);
    struct copy copy;
    copy_new(&copy, "late", "w/1");
    write_and_compare(&copy);
    ASSERT_OK(saga_on_lease_end(copy.saga, 1, OUTCOME_STREAM_LOST, clock_wall_ms(&clock_system),
                                &rng, &copy.transition, &verdict, &err),
              &err);
    copy.op = (struct store_op){ .kind = STORE_TRANSITION,
                                 .saga = copy.saga,
                                 .transition = &copy.transition };
    copy_grant(&copy, "w/2");
    write_and_compare(&copy);
    struct report report = { .fence = saga_entry(copy.saga, 1)->fence,
                             .outcome = OUTCOME_RETRY,
                             .error_code = "LATE" };
    copy.transition = (struct transition){ 0 };
    ASSERT_OK(saga_on_report(copy.saga, &report, clock_wall_ms(&clock_system), &rng,
                             &copy.transition, &verdict, &err),
              &err);
    assert_int_equal(copy.transition.append_count, 1);
    assert_false(copy.transition.changes_row);
    write_and_compare(&copy);
    copy_cancel(&copy);
    write_and_compare(&copy);
    while (saga_row(copy.saga)->state != SAGA_COMPENSATED) {
        copy.transition = (struct transition){ 0 };
        copy_report(&copy, OUTCOME_REJECTED, NULL);
        write_and_compare(&copy);
        if (saga_row(copy.saga)->state == SAGA_COMPENSATED)
            break;
        copy_grant(&copy, "w/3");
        write_and_compare(&copy);
        copy_report(&copy, OUTCOME_DONE, "undone");
        write_and_compare(&copy);
    }
    report = (struct report){ .fence = saga_entry(copy.saga, 1)->fence,
                              .outcome = OUTCOME_DONE,
                              .output = { (uint8_t *)"late", 4 } };
    copy.transition = (struct transition){ 0 };
    ASSERT_OK(saga_on_report(copy.saga, &report, clock_wall_ms(&clock_system), &rng,
                             &copy.transition, &verdict, &err),
              &err);
    assert_true(copy.transition.late_row);
    write_and_compare(&copy);
    assert_true(saga_row(copy.saga)->doubt);
    copy_write(&copy, store, STORE_FAILED); /* an empty transition is refused, not ignored */
    copy_done(&copy);
}

static void test_a_known_key_starts_nothing(void **state)
{
    (void)state;
    struct copy first, second, third;
    copy_new(&first, "twice", "w/1");
    copy_write(&first, store, STORE_OK);
    copy_new(&second, "twice", "w/1");
    copy_new(&third, "twice-new", "w/1");
    second.op.next = &third.op;
    fixture_run(store, &second.op);
    copy_expect(&second, STORE_EXISTS);
    copy_expect(&third, STORE_OK);
    assert_memory_equal(&second.op.key.uid, &saga_row(first.saga)->uid, 16);
    assert_int_equal(second.op.key.input_digest[0], 7);
    assert_int_equal(second.op.key.run, 1);
    assert_false(second.op.key.ended);
    copy_assert_stored(&first, store);
    copy_done(&first);
    copy_done(&second);
    copy_done(&third);
}

/* The same key twice in one batch: one of them starts, the other learns of it. */
static void test_one_batch_starts_a_key_once(void **state)
{
    (void)state;
    struct copy copies[2];
    for (int i = 0; i < 2; i++)
        copy_new(&copies[i], "batch-twice", NULL);
    copies[0].op.next = &copies[1].op;
    fixture_run(store, &copies[0].op);
    int won = copies[0].op.result == STORE_OK ? 0 : 1;
    copy_expect(&copies[won], STORE_OK);
    copy_expect(&copies[1 - won], STORE_EXISTS);
    assert_memory_equal(&copies[1 - won].op.key.uid, &saga_row(copies[won].saga)->uid, 16);
    for (int i = 0; i < 2; i++)
        copy_done(&copies[i]);
}

enum { CHUNK = 64 };

/* How many of them are of the large batch; each has the lease that it was started with, or none. */
static size_t load_chunk(const struct uuid *uids, size_t count)
{
    struct store_op loads[CHUNK];
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        loads[i] = (struct store_op){ .kind = STORE_LOAD_UID,
                                      .uid = uids[i],
                                      .next = i + 1 < count ? &loads[i + 1] : NULL };
    fixture_run(store, loads);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(loads[i].result, STORE_OK);
        const struct store_saga *saga = &loads[i].sagas[0];
        assert_memory_equal(&saga->row.uid, &uids[i], sizeof uids[i]);
        assert_false(saga_state_is_terminal(saga->row.state));
        if (strncmp(saga->row.saga_id, "many-", 5) == 0) {
            found++;
            assert_int_equal(saga->entry_count, strtol(saga->row.saga_id + 5, NULL, 10) % 2);
        }
        store_op_done(&loads[i]);
    }
    return found;
}

/* Many in one batch, more than one statement takes; all loaded again in chunks. */
static void test_a_large_batch_and_loading_all(void **state)
{
    (void)state;
    enum { MANY = 500 };
    static struct copy copies[MANY];
    for (int i = 0; i < MANY; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "many-%d", i);
        copy_new(&copies[i], id, i % 2 ? "w/1" : NULL);
        if (i > 0)
            copies[i - 1].op.next = &copies[i].op;
    }
    fixture_run(store, &copies[0].op);
    size_t found = 0;
    for (int i = 0; i < MANY; i++)
        copy_expect(&copies[i], STORE_OK);
    struct store_op own = { .kind = STORE_OWN, .from_start = true, .limit = CHUNK };
    for (;;) {
        fixture_run(store, &own);
        assert_int_equal(own.result, STORE_OK);
        if (own.uid_count == 0)
            break;
        found += load_chunk(own.uids, own.uid_count);
        struct uuid last = own.uids[own.uid_count - 1];
        store_op_done(&own);
        own = (struct store_op){ .kind = STORE_OWN, .after = last, .limit = CHUNK };
    }
    assert_int_equal(found, MANY);
    for (int i = 0; i < MANY; i++)
        copy_done(&copies[i]);
}

/* In one batch with a usual start; a known key starts nothing. */
static void test_a_saga_that_took_over(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    int64_t now_ms = clock_wall_ms(&clock_system);
    const int64_t since_ms[COUNT] = { now_ms - 3600 * 1000, now_ms + 3600 * 1000, 0, now_ms };
    static const char *const ids[COUNT] = { "taken-1", "taken-2", "usual", "taken-1" };
    struct copy copies[COUNT];
    struct err err;
    for (int i = 0; i < COUNT; i++) {
        copy_new(&copies[i], ids[i], NULL);
        if (since_ms[i])
            ASSERT_OK(saga_suspect(copies[i].saga, i ? NULL : "kafka/orders", since_ms[i],
                                   now_ms + 1000, &copies[i].transition, &err),
                      &err);
        copies[i].op.next = i + 1 < COUNT - 1 ? &copies[i + 1].op : NULL;
    }
    fixture_run(store, &copies[0].op);
    for (int i = 0; i < COUNT - 1; i++) {
        copy_expect(&copies[i], STORE_OK);
        copy_assert_stored(&copies[i], store);
    }
    copy_write(&copies[3], store, STORE_EXISTS);
    const struct journal_entry *entry = saga_entry(copies[0].saga, 1);
    assert_int_equal(entry->leased_at_ms, since_ms[0]);
    assert_string_equal(entry->actor, "kafka/orders");
    entry = saga_entry(copies[1].saga, 1); /* no later than the start, by the database's clock */
    assert_int_equal(entry->leased_at_ms, entry->finished_at_ms);
    for (int step = 0; step < 3; step++) {
        copy_grant(&copies[0], "w/1");
        write_and_compare(&copies[0]);
        copy_report(&copies[0], step ? OUTCOME_DONE : OUTCOME_ALREADY_DONE, "out");
        write_and_compare(&copies[0]);
    }
    assert_int_equal(saga_row(copies[0].saga)->state, SAGA_SUCCEEDED);
    for (int i = 0; i < COUNT; i++)
        copy_done(&copies[i]);
}

static void test_loads_that_find_nothing(void **state)
{
    (void)state;
    struct store_op ops[4] = {
        { .kind = STORE_LOAD_UID },
        { .kind = STORE_LOAD_KEY, .namespace_ = "test", .definition = "pay", .saga_id = "nobody" },
        { .kind = STORE_LOAD_DEFINITION, .namespace_ = "test", .definition = "nothing" },
        { .kind = STORE_LOAD_DEFINITION, .namespace_ = "test", .definition = "pay" },
    };
    for (int i = 0; i < 3; i++)
        ops[i].next = &ops[i + 1];
    fixture_run(store, ops);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ops[i].result, STORE_NOT_FOUND);
    assert_int_equal(ops[3].result, STORE_OK);
    assert_int_equal(ops[3].revision, 1);
    assert_int_equal(ops[3].content.size, 15);
    store_op_done(&ops[3]);
}

/* Unknown text is refused on load, naming where it stands. */
static void test_a_bad_row_is_named(void **state)
{
    (void)state;
    struct copy copy;
    copy_new(&copy, "bad", "w/1");
    copy_write(&copy, store, STORE_OK);
    PGconn *conn = fixture_connect(conninfo);
    fixture_exec(conn, "UPDATE journal SET kind = 'NONSENSE' WHERE saga_uid ="
                       " (SELECT saga_uid FROM saga WHERE saga_id = 'bad')");
    struct store_op load = { .kind = STORE_LOAD_UID, .uid = saga_row(copy.saga)->uid };
    fixture_run(store, &load);
    assert_int_equal(load.result, STORE_FAILED);
    assert_int_equal(load.err.code, ERR_INTERNAL);
    assert_non_null(strstr(load.err.msg, "journal.kind"));
    char uid[UUID_TEXT_SIZE];
    uuid_format(&saga_row(copy.saga)->uid, uid);
    assert_non_null(strstr(load.err.msg, uid));
    fixture_exec(conn, "UPDATE journal SET kind = 'LEASE' WHERE kind = 'NONSENSE'");
    PQfinish(conn);
    copy_assert_stored(&copy, store);
    copy_done(&copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_saga_succeeds),
        cmocka_unit_test(test_a_refusal_compensates),
        cmocka_unit_test(test_a_cancel_before_the_first_lease_ends_it),
        cmocka_unit_test(test_a_parked_saga_is_retried),
        cmocka_unit_test(test_late_reports_are_kept),
        cmocka_unit_test(test_a_known_key_starts_nothing),
        cmocka_unit_test(test_one_batch_starts_a_key_once),
        cmocka_unit_test(test_a_large_batch_and_loading_all),
        cmocka_unit_test(test_a_saga_that_took_over),
        cmocka_unit_test(test_loads_that_find_nothing),
        cmocka_unit_test(test_a_bad_row_is_named),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
