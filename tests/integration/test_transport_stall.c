/* Calls whose SQL is stuck, and sessions that die in the middle of results (T4, D7). Goal: what
 * waits for the database stalls nothing that does not, loses no lease, and comes to its own end
 * within the statement time-out. Method: a hundred workers by hand that extend their leases all the
 * time, row and table locks held by a foreign session, every session of sagad ended while thousands
 * of rows are on their way. (T4 with other sagas and health: test_e2e_crash.) */
#include "base/clock.h"
#include "support/proof.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/wait.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
    SOON = 10000,
    WORKERS = 100,
    LEASE_MS = 5000,
    TIMES_MAX = 100000,
    P99_MS = 500,
    STATEMENT_MS = 30000, /* the longest of any session of sagad */
    OK = 0,
    UNAVAILABLE = 14,
};

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

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

/* --- a call in a thread of its own ------------------------------------------------------------ */

struct asker {
    pthread_t thread;
    const char *method;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *reply_type;
    int code; /* gRPC's */
    int64_t took_ms;
    atomic_bool ended;
};

static void *ask(void *ctx)
{
    struct asker *asker = ctx;
    struct client *client = NULL;
    struct client_failure failure = { .code = -1 };
    ProtobufCMessage *reply = NULL;
    struct err err;
    int64_t from = clock_mono_ms(&clock_system);
    if (client_new(rig.address, &client, &err) == 0 &&
        client_call_explained(client, asker->method, asker->request, asker->reply_type,
                              2 * STATEMENT_MS, &reply, &failure, &err) == 0)
        failure.code = OK;
    asker->code = failure.code;
    asker->took_ms = clock_mono_ms(&clock_system) - from;
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    client_failure_done(&failure);
    client = client_free(client);
    atomic_store(&asker->ended, true);
    return NULL;
}

static void asker_begin(struct asker *asker)
{
    assert_int_equal(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static void asker_end(struct asker *asker)
{
    assert_int_equal(pthread_join(asker->thread, NULL), 0);
}

/* --- T4 --------------------------------------------------------------------------------------- */

static struct raw_worker *workers[WORKERS];
static struct raw_lease leases[WORKERS];
static int64_t times[TIMES_MAX];
static size_t time_count;

static int compare_times(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void lease_one_each(void)
{
    rig_define(&rig, "held", NULL, "a: ONCE handler=held lease=5s attempt_timeout=600s | none");
    rig_start_many(&rig, "held", "held", WORKERS, "");
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = raw_worker_hello(rig.address, "held", NULL, "held", NULL, 0);
        raw_worker_credit(workers[i], "held", 1);
        const Saga__V1__Task *task = raw_worker_task(workers[i], SOON);
        assert_non_null(task);
        leases[i] = raw_lease_of(task);
    }
}

/* Every worker extends its lease; all of them at once. */
static void heartbeats(void)
{
    int64_t sent[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        sent[i] = clock_mono_ms(&clock_system);
        raw_worker_extend(workers[i], &leases[i]);
    }
    for (int i = 0; i < WORKERS; i++) {
        assert_true(raw_worker_extended(workers[i], SOON) > 0);
        if (time_count < TIMES_MAX)
            times[time_count++] = clock_mono_ms(&clock_system) - sent[i];
    }
}

/* The leases live on while the call comes to its end: what had to wait long is tried again only
 * some seconds later. */
static void heartbeats_until_ended(struct asker *asker)
{
    while (!atomic_load(&asker->ended)) {
        heartbeats();
        wait_ms(100);
    }
    asker_end(asker);
}

static void heartbeats_for(int64_t ms, const char *what)
{
    int64_t until = clock_mono_ms(&clock_system) + ms;
    time_count = 0;
    while (clock_mono_ms(&clock_system) < until) {
        heartbeats();
        wait_ms(100);
    }
    qsort(times, time_count, sizeof times[0], compare_times);
    int64_t p99 = times[time_count * 99 / 100];
    print_message("%s: %zu heartbeats, p50 %lld ms, p99 %lld ms, worst %lld ms\n", what, time_count,
                  (long long)times[time_count / 2], (long long)p99,
                  (long long)times[time_count - 1]);
    assert_true(time_count >= 5 * WORKERS);
    assert_true(p99 < P99_MS);
}

static void test_t4_a_call_that_waits_for_a_row_lock_stalls_no_heartbeat(void **state)
{
    (void)state;
    int64_t lock_ms = test_is_full_size() ? 20000 : 6000; /* longer than the lease in any case */
    rig_define(&rig, "locked", NULL, "a: ONCE handler=nobody | none");
    rig_start(&rig, "locked", "locked", "");
    lease_one_each();
    PGconn *foreign = rig_connect(&rig, RIG_STORE);
    PQclear(PQexec(foreign, "BEGIN"));
    PGresult *locked = PQexec(foreign, "SELECT 1 FROM saga WHERE saga_id = 'locked' FOR UPDATE");
    assert_int_equal(PQntuples(locked), 1);
    PQclear(locked);
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__CancelSagaRequest request = SAGA__V1__CANCEL_SAGA_REQUEST__INIT;
    ref.definition = rig_borrow("locked");
    ref.saga_id = rig_borrow("locked");
    request.saga = &ref;
    struct asker cancel = { .method = "/saga.v1.SagaService/CancelSaga",
                            .request = &request.base,
                            .reply_type = &saga__v1__saga__descriptor };
    asker_begin(&cancel);
    heartbeats_for(lock_ms, "a row is locked");
    PQclear(PQexec(foreign, "ROLLBACK"));
    PQfinish(foreign);
    heartbeats_until_ended(&cancel);
    assert_int_equal(cancel.code, OK);
    assert_true(cancel.took_ms >= lock_ms - 1000); /* it did wait all the time */
    rig_await_state(&rig, "locked", "locked", "COMPENSATED", SOON);
    proof_fault("a row lock under a call", 1);
}

static void test_t4_queries_that_wait_for_a_table_lock_stall_no_heartbeat(void **state)
{
    (void)state;
    int64_t lock_ms = test_is_full_size() ? 20000 : 3000;
    enum { ASKERS = 8 };
    static struct asker askers[ASKERS];
    PGconn *foreign = rig_connect(&rig, RIG_STORE);
    PQclear(PQexec(foreign, "BEGIN"));
    PGresult *locked = PQexec(foreign, "LOCK TABLE definition IN ACCESS EXCLUSIVE MODE");
    assert_int_equal(PQresultStatus(locked), PGRES_COMMAND_OK);
    PQclear(locked);
    Saga__V1__ListDefinitionsRequest list = SAGA__V1__LIST_DEFINITIONS_REQUEST__INIT;
    for (int i = 0; i < ASKERS; i++) {
        askers[i].method = "/saga.v1.DefinitionService/ListDefinitions";
        askers[i].request = &list.base;
        askers[i].reply_type = &saga__v1__list_definitions_response__descriptor;
        asker_begin(&askers[i]);
    }
    heartbeats_for(lock_ms, "a table is locked");
    PQclear(PQexec(foreign, "ROLLBACK"));
    PQfinish(foreign);
    for (int i = 0; i < ASKERS; i++) {
        heartbeats_until_ended(&askers[i]);
        if (askers[i].code != OK && askers[i].code != UNAVAILABLE)
            fail_msg("status %d after %lld ms", askers[i].code, (long long)askers[i].took_ms);
        assert_true(askers[i].took_ms <= lock_ms + STATEMENT_MS);
    }
    proof_fault("a table lock under queries", ASKERS);
}

static void test_t4_no_lease_was_lost(void **state)
{
    (void)state;
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(
            raw_worker_settle(workers[i], &leases[i], SAGA__V1__OUTCOME__OUTCOME_DONE, ""),
            SAGA__V1__ACK__RESULT__RESULT_ACCEPTED);
        workers[i] = raw_worker_cut(workers[i]);
    }
    rig_await_states(&rig, "held", "held", "SUCCEEDED", WORKERS, SOON);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'held' AND (outcome <> 'DONE' OR try > 1)"),
                     0);
}

/* --- D7 --------------------------------------------------------------------------------------- */

/* Starts and reads, one after the other, until it is told to stop. */
struct client_load {
    pthread_t thread;
    int number;
    atomic_bool *stop;
    int64_t slowest_ms;
    size_t started, read, unavailable;
    int other; /* a status that must not be; 0: none */
};

enum { CLIENTS = 12, INPUT = 20 * 1024, SAGAS_MAX = 20000 };
static char input[INPUT + 1];
static bool acked[CLIENTS][SAGAS_MAX];

/* False: a status that must not be. */
static bool count_call(struct client_load *load, int code, int64_t took_ms)
{
    load->slowest_ms = took_ms > load->slowest_ms ? took_ms : load->slowest_ms;
    if (code == UNAVAILABLE)
        load->unavailable++;
    else if (code != OK)
        load->other = code;
    return load->other == 0;
}

static int one_call(struct client *client, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *type, int64_t *ret_took_ms)
{
    struct client_failure failure = { .code = OK };
    ProtobufCMessage *reply = NULL;
    struct err err;
    int64_t from = clock_mono_ms(&clock_system);
    int code = OK;
    if (client_call_explained(client, method, request, type, 2 * STATEMENT_MS, &reply, &failure,
                              &err) != 0)
        code = failure.code;
    *ret_took_ms = clock_mono_ms(&clock_system) - from;
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    client_failure_done(&failure);
    return code;
}

static void *start_and_read(void *ctx)
{
    struct client_load *load = ctx;
    struct client *client = NULL;
    struct err err;
    if (client_new(rig.address, &client, &err) != 0)
        load->other = -1;
    for (int i = 0; !load->other && i < SAGAS_MAX && !atomic_load(load->stop); i++) {
        char id[32];
        int64_t took_ms;
        (void)snprintf(id, sizeof id, "d7-%d-%d", load->number, i);
        Saga__V1__StartSagaRequest start = SAGA__V1__START_SAGA_REQUEST__INIT;
        start.definition = rig_borrow("d7");
        start.saga_id = id;
        start.input = (ProtobufCBinaryData){ INPUT, (uint8_t *)input };
        int code = one_call(client, "/saga.v1.SagaService/StartSaga", &start.base,
                            &saga__v1__start_saga_response__descriptor, &took_ms);
        acked[load->number][i] = code == OK;
        load->started += code == OK;
        if (!count_call(load, code, took_ms))
            break;
        Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
        Saga__V1__GetSagaRequest get = SAGA__V1__GET_SAGA_REQUEST__INIT;
        ref.definition = rig_borrow("d7");
        ref.saga_id = code == OK ? id : rig_borrow("d7-first");
        get.saga = &ref;
        get.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
        code = one_call(client, "/saga.v1.SagaService/GetSaga", &get.base,
                        &saga__v1__saga__descriptor, &took_ms);
        load->read += code == OK;
        if (!count_call(load, code, took_ms))
            break;
    }
    client = client_free(client);
    return NULL;
}

static void assert_acked_are_there(const struct client_load *load)
{
    char id[32];
    for (int i = 0; i < SAGAS_MAX; i++) {
        if (!acked[load->number][i])
            continue;
        (void)snprintf(id, sizeof id, "d7-%d-%d", load->number, i);
        if (rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga WHERE saga_id = '%s'", id) != 1)
            fail_msg("%s was acknowledged and is not there", id);
    }
}

static void test_d7_sessions_that_end_in_the_middle_of_results_hold_up_no_call(void **state)
{
    (void)state;
    PROVES("P1");
    static struct client_load loads[CLIENTS];
    int rounds = test_is_full_size() ? 60 : 8;
    int64_t ended = 0;
    atomic_bool stop = false;
    memset(input, 'i', INPUT);
    rig_define(&rig, "d7", NULL,
               "a: IDEMPOTENT handler=d7 | none\nb: IDEMPOTENT handler=d7 | none");
    rig_start(&rig, "d7", "d7-first", input);
    (void)rig_worker(&rig, "d7", "d7:64"); /* the rig owns it */
    for (int i = 0; i < CLIENTS; i++) {
        loads[i] = (struct client_load){ .number = i, .stop = &stop };
        assert_int_equal(pthread_create(&loads[i].thread, NULL, start_and_read, &loads[i]), 0);
    }
    for (int round = 0; round < rounds; round++) {
        wait_ms(200 + 37 * (round % 5));
        ended += rig_count(&rig, RIG_STORE,
                           "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))"
                           " FROM pg_stat_activity WHERE datname = 'store'"
                           " AND application_name LIKE 'sagad%%' AND state = 'active'");
    }
    wait_ms(500);
    atomic_store(&stop, true);
    size_t started = 0, read = 0, unavailable = 0;
    int64_t slowest = 0;
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(loads[i].thread, NULL), 0);
        if (loads[i].other)
            fail_msg("a call ended with status %d", loads[i].other);
        started += loads[i].started;
        read += loads[i].read;
        unavailable += loads[i].unavailable;
        slowest = loads[i].slowest_ms > slowest ? loads[i].slowest_ms : slowest;
        assert_acked_are_there(&loads[i]);
    }
    print_message("%lld sessions ended; %zu started, %zu read, %zu unavailable, slowest %lld ms\n",
                  (long long)ended, started, read, unavailable, (long long)slowest);
    assert_true(started > 0 && read > 0);
    assert_true(slowest < STATEMENT_MS);
    rig_await(&rig, RIG_STORE, "0", 6L * SOON,
              "SELECT count(*) FROM saga WHERE definition = 'd7' AND state <> 'SUCCEEDED'");
    proof_fault("active sessions ended", ended);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_t4_a_call_that_waits_for_a_row_lock_stalls_no_heartbeat),
        cmocka_unit_test(test_t4_queries_that_wait_for_a_table_lock_stall_no_heartbeat),
        TEST(test_t4_no_lease_was_lost),
        TEST(test_d7_sessions_that_end_in_the_middle_of_results_hold_up_no_call),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
