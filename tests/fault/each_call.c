#include "each_call.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/proof.h"
#include "support/rig.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

enum {
    SOON = 20000,
    END_MS = 20000,
    SAMPLE = 5,
    CALL_SAMPLE = 2,
    START_SAMPLE = 4,
    MORE_PER_CENT = 10
};

static char page_variable[SCRATCH_PATH_SIZE + 32];
/* What a sanitizer finds ends the process by a signal, which no exit code of sagad's does. */
static const char *const server_env[] = {
    page_variable, "ASAN_OPTIONS=detect_leaks=1:halt_on_error=1:abort_on_error=1",
    "LSAN_OPTIONS=exitcode=99", NULL
};
static struct rig rig = { .server_args = { "--resend-grace", "200ms", "--stream-lost", "200ms" },
                          .server_program = SAGAD_FAULT_BINARY,
                          .server_env = server_env };
static struct page *page;
static struct rng rng;

int each_call_setup(void **state)
{
    (void)state;
    struct err err;
    char path[SCRATCH_PATH_SIZE];
    SETUP_OK(scratch_path("faults", path, &err), &err);
    (void)snprintf(page_variable, sizeof page_variable, FAULT_PAGE_ENV "=%s", path);
    if (!(page = page_map(path, true)) || rig_up(&rig) != 0)
        return -1;
    rng_seed(&rng, proof_seed());
    rig_define(&rig, "short", NULL,
               "a: IDEMPOTENT | IDEMPOTENT | guarded\nb: ONCE | IDEMPOTENT | guarded");
    return 0;
}

int each_call_teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

int each_call_check(void **state)
{
    (void)state;
    page_arm(page, PAGE_ALLOCATION, 0);
    page_arm(page, PAGE_LIBPQ, 0);
    atomic_store(&page->libpq_only, 0);
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

/* --- calls that are repeated ------------------------------------------------------------------ */

/* Until it is answered. NULL: with this code, which is no error of the server's. */
static ProtobufCMessage *insist(const char *method, const ProtobufCMessage *request,
                                const ProtobufCMessageDescriptor *reply_type, const char *code)
{
    int64_t until = clock_mono_ms(&clock_system) + SOON;
    for (;;) {
        struct client_failure failure = { .code = 0 };
        ProtobufCMessage *reply = rig_call(&rig, method, request, reply_type, &failure);
        if (reply)
            return reply;
        const char *got = client_code_name(failure.code);
        bool expected = code && strcmp(got, code) == 0;
        if (!expected && strcmp(got, "UNAVAILABLE") != 0 && strcmp(got, "ABORTED") != 0 &&
            strcmp(got, "RESOURCE_EXHAUSTED") != 0)
            fail_msg("%s: %s: %s", method, got, failure.message ? failure.message : "");
        client_failure_done(&failure);
        if (expected)
            return NULL;
        if (clock_mono_ms(&clock_system) > until)
            fail_msg("%s: no answer but errors for %d ms", method, SOON);
        wait_ms(2);
    }
}

/* False: answered with the code. */
static bool insist_done(const char *method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *reply_type, const char *code)
{
    ProtobufCMessage *reply = insist(method, request, reply_type, code);
    if (!reply)
        return false;
    protobuf_c_message_free_unpacked(reply, NULL);
    return true;
}

static void start(const char *id, const char *script)
{
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow("short");
    request.saga_id = rig_borrow(id);
    request.input.data = (uint8_t *)rig_borrow(script);
    request.input.len = strlen(script);
    (void)insist_done("SagaService/StartSaga", &request.base,
                      &saga__v1__start_saga_response__descriptor, NULL);
}

static void fill_ref(Saga__V1__SagaRef *ref, const char *id)
{
    saga__v1__saga_ref__init(ref);
    ref->definition = rig_borrow("short");
    ref->saga_id = rig_borrow(id);
}

/* False: it has ended. */
static bool cancel(const char *id)
{
    Saga__V1__SagaRef ref;
    fill_ref(&ref, id);
    Saga__V1__CancelSagaRequest request = SAGA__V1__CANCEL_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.actor = rig_borrow("tester");
    request.reason = rig_borrow("a test");
    return insist_done("SagaService/CancelSaga", &request.base, &saga__v1__saga__descriptor,
                       "FAILED_PRECONDITION");
}

static void await(const char *id, const char *expected)
{
    int64_t until = clock_mono_ms(&clock_system) + SOON;
    char state[64];
    for (;;) {
        rig_text(&rig, RIG_STORE, state, sizeof state,
                 "SELECT state || coalesce(' ' || park_reason, '') FROM saga"
                 " WHERE definition = 'short' AND saga_id = '%s'",
                 id);
        if (strcmp(state, expected) == 0)
            return;
        if (clock_mono_ms(&clock_system) > until)
            fail_msg("%s: %s, not %s", id, state, expected);
        wait_ms(3);
    }
}

/* --- scenarios -------------------------------------------------------------------------------- */

static void success(const char *id)
{
    start(id, "* * * guarded");
    await(id, "SUCCEEDED");
}

static void refusal(const char *id)
{
    start(id, "b A * rejected\n* * * guarded");
    await(id, "COMPENSATED");
}

/* Somebody waits for its end meanwhile. */
static void retry(const char *id)
{
    Saga__V1__SagaRef ref;
    fill_ref(&ref, id);
    Saga__V1__WaitSagaRequest wait = SAGA__V1__WAIT_SAGA_REQUEST__INIT;
    wait.saga = &ref;
    start(id, "a A 1 after=5 retry\n* * * guarded");
    (void)insist_done("SagaService/WaitSaga", &wait.base, &saga__v1__saga__descriptor, NULL);
    await(id, "SUCCEEDED");
}

static void unknown(const char *id)
{
    start(id, "b A 1 unknown\n* * * guarded");
    await(id, "PARKED OUTCOME_UNKNOWN");
    (void)cancel(id); /* a repeated one may find that it has ended by now */
    await(id, "COMPENSATED");
}

static void cancelled(const char *id)
{
    start(id, "b A 1 sleep=30 guarded\n* * * guarded");
    while (rig_effects(&rig, id, "a", "A") == 0)
        wait_ms(3);
    await(id, cancel(id) ? "COMPENSATED" : "SUCCEEDED");
}

static void many(const char *id)
{
    enum { COUNT = 8 };
    Saga__V1__StartSagaRequest requests[COUNT], *list[COUNT];
    Saga__V1__BatchStartSagasRequest batch = SAGA__V1__BATCH_START_SAGAS_REQUEST__INIT;
    char ids[COUNT][64];
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "%s-%d", id, i);
        saga__v1__start_saga_request__init(&requests[i]);
        requests[i].definition = rig_borrow("short");
        requests[i].saga_id = ids[i];
        list[i] = &requests[i];
    }
    batch.requests = list;
    batch.n_requests = COUNT;
    for (bool all = false; !all;) { /* each of them is answered by itself */
        Saga__V1__BatchStartSagasResponse *reply = (Saga__V1__BatchStartSagasResponse *)insist(
            "SagaService/BatchStartSagas", &batch.base,
            &saga__v1__batch_start_sagas_response__descriptor, NULL);
        assert_int_equal(reply->n_items, COUNT);
        all = true;
        for (int i = 0; i < COUNT; i++)
            all &= reply->items[i]->result_case ==
                   SAGA__V1__BATCH_START_SAGAS_RESPONSE__ITEM__RESULT_SAGA;
        saga__v1__batch_start_sagas_response__free_unpacked(reply, NULL);
    }
    for (int i = 0; i < COUNT; i++)
        await(ids[i], "SUCCEEDED");
}

static void registration(const char *id)
{
    Saga__V1__Operation action = SAGA__V1__OPERATION__INIT;
    Saga__V1__Step step = SAGA__V1__STEP__INIT, *steps[] = { &step };
    Saga__V1__SagaDefinition definition = SAGA__V1__SAGA_DEFINITION__INIT;
    Saga__V1__RegisterDefinitionRequest request = SAGA__V1__REGISTER_DEFINITION_REQUEST__INIT;
    action.handler = rig_borrow("act");
    action.effect = SAGA__V1__EFFECT__EFFECT_IDEMPOTENT;
    step.name = rig_borrow("only");
    step.action = &action;
    step.undo_case = SAGA__V1__STEP__UNDO_NO_COMPENSATION;
    step.no_compensation = true;
    definition.name = rig_borrow(id);
    definition.steps = steps;
    definition.n_steps = 1;
    request.definition = &definition;
    (void)insist_done("DefinitionService/RegisterDefinition", &request.base,
                      &saga__v1__register_definition_response__descriptor, NULL);
    (void)insist_done("DefinitionService/RegisterDefinition", &request.base,
                      &saga__v1__register_definition_response__descriptor, NULL);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM definition_revision WHERE name = '%s'", id),
                     1);
}

static void queries(const char *id)
{
    (void)id;
    Saga__V1__SagaRef ref;
    fill_ref(&ref, "read-me");
    Saga__V1__GetSagaRequest get = SAGA__V1__GET_SAGA_REQUEST__INIT;
    get.saga = &ref;
    get.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    (void)insist_done("SagaService/GetSaga", &get.base, &saga__v1__saga__descriptor, NULL);
    Saga__V1__ListJournalRequest journal = SAGA__V1__LIST_JOURNAL_REQUEST__INIT;
    journal.saga = &ref;
    (void)insist_done("SagaService/ListJournal", &journal.base,
                      &saga__v1__list_journal_response__descriptor, NULL);
    Saga__V1__ListSagasRequest list = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
    (void)insist_done("SagaService/ListSagas", &list.base,
                      &saga__v1__list_sagas_response__descriptor, NULL);
}

/* All sessions end while sagas are open: connect, prepare, load. */
static void reconnect(const char *id)
{
    char other[64];
    (void)snprintf(other, sizeof other, "%s-open", id);
    start(id, "* * * sleep=20 guarded");
    rig_exec(&rig, RIG_STORE,
             "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
             " WHERE application_name IN ('sagad engine', 'sagad reader')");
    start(other, "* * * guarded");
    queries(id);
    await(id, "SUCCEEDED");
    await(other, "SUCCEEDED");
}

/* A worker comes and goes; it serves nothing that is needed. */
static void worker(const char *id)
{
    struct test_process *guest = rig_worker_threads(&rig, "guest", "other:3", 1);
    struct err err;
    ASSERT_OK(test_process_wait_output(guest, "scripted_worker: connected", SOON, NULL, 0, &err),
              &err);
    rig_worker_kill(&rig, guest);
    start(id, "* * * guarded");
    await(id, "SUCCEEDED");
}

static const struct scenario {
    const char *name;
    void (*run)(const char *id);
} scenarios[] = {
    { "success", success },       { "refusal", refusal },  { "retry", retry },
    { "unknown", unknown },       { "cancel", cancelled }, { "batch start", many },
    { "register", registration }, { "queries", queries },  { "reconnect", reconnect },
    { "worker", worker },
};

/* --- the n-th fails --------------------------------------------------------------------------- */

/* Runs it with the n-th passing of the place armed (0: none); returns how many there were. */
static uint64_t run(const struct scenario *scenario, enum page_place place, uint64_t n)
{
    static int runs;
    char id[48];
    (void)snprintf(id, sizeof id, "run-%d", runs++);
    uint64_t before = page_passed(page, place);
    page_arm(page, place, n);
    scenario->run(id);
    page_arm(page, place, 0);
    if (!test_process_running(rig.sagad))
        fail_msg("%s: sagad died of n = %llu", scenario->name, (unsigned long long)n);
    return page_passed(page, place) - before;
}

static void clean_end(const char *what)
{
    struct err err;
    int status;
    ASSERT_OK(test_process_signal(rig.sagad, SIGTERM, &err), &err);
    ASSERT_OK(test_process_wait(rig.sagad, END_MS, &status, &err), &err);
    if (status != 0) /* leaks, too */
        fail_msg("%s: sagad ended with status 0x%x", what, (unsigned)status);
    rig.sagad = test_process_free(rig.sagad);
}

static void fail_each(const struct scenario *scenario, enum page_place place, const char *fault,
                      int sample)
{
    (void)run(scenario, place, 0); /* what is made once and kept */
    uint64_t count = run(scenario, place, 0), hits = page_hits(page, place);
    if (test_is_full_size())
        for (uint64_t n = 1; n <= count + count * MORE_PER_CENT / 100; n++)
            (void)run(scenario, place, n);
    else
        for (int i = 0; i < sample && count > 0; i++)
            (void)run(scenario, place, 1 + rng_below(&rng, count));
    print_message("%s: %s: %llu, %llu of them failed\n", fault, scenario->name,
                  (unsigned long long)count, (unsigned long long)(page_hits(page, place) - hits));
    if (place == PAGE_ALLOCATION) /* else each call of libpq is counted by its name */
        proof_fault(fault, (int64_t)(page_hits(page, place) - hits));
}

void each_call_fail(enum page_place place, const char *fault)
{
    (void)rig_worker_threads(&rig, "one", "act:8 undo:4", 8); /* the rig owns it */
    start("read-me", "* * * guarded");
    await("read-me", "SUCCEEDED");
    for (size_t i = 0; i < ARRAY_LEN(scenarios); i++)
        fail_each(&scenarios[i], place, fault, SAMPLE);
    rig_workers_kill(&rig);
    clean_end(fault);
    rig_server_start(&rig);
}

/* Each function by itself, where all are called that are not of the start. */
void each_call_fail_by_name(void)
{
    static const struct scenario two[] = { { "reconnect", reconnect },
                                           { "register", registration } };
    (void)rig_worker_threads(&rig, "one", "act:8 undo:4", 8); /* the rig owns it */
    start("read-me", "* * * guarded");
    for (int i = 0; i < PAGE_LIBPQ_COUNT; i++) {
        atomic_store(&page->libpq_only, 1 + i);
        for (size_t j = 0; j < ARRAY_LEN(two); j++)
            fail_each(&two[j], PAGE_LIBPQ, page_libpq_names[i], CALL_SAMPLE);
    }
    rig_workers_kill(&rig);
    atomic_store(&page->libpq_only, 0);
    clean_end("libpq");
    rig_server_start(&rig);
}

/* --- at the start ----------------------------------------------------------------------------- */

/* It serves, or says what is wrong and exits. False: the latter. */
static bool start_server(void)
{
    const char *argv[] = { SAGAD_FAULT_BINARY, "serve",     "--database", rig.store,
                           "--listen",         rig.address, "--node",     "rig",
                           "--start-timeout",  "3s",        NULL };
    const struct test_process_options options = { .name = "starting",
                                                  .argv = argv,
                                                  .env = server_env };
    struct err err;
    int status;
    ASSERT_OK(test_process_start(&options, &rig.sagad, &err), &err);
    if (test_process_wait_output(rig.sagad, "sagad: serving on", SOON, NULL, 0, &err) == 0)
        return true;
    ASSERT_OK(test_process_wait(rig.sagad, 0, &status, &err), &err);
    char *output = test_process_output(rig.sagad);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 1 && WEXITSTATUS(status) != 2) ||
        !strstr(output, "sagad: "))
        fail_msg("status 0x%x: %s", (unsigned)status, output);
    mem_free(output);
    rig.sagad = test_process_free(rig.sagad);
    return false;
}

static void fail_start(enum page_place place, const char *fault)
{
    rig_server_kill(&rig);
    uint64_t before = page_passed(page, place), hits = page_hits(page, place);
    assert_true(start_server());
    uint64_t count = page_passed(page, place) - before;
    int served = 0, refused = 0;
    for (uint64_t i = 1; i <= (test_is_full_size() ? count : START_SAMPLE); i++) {
        if (rig.sagad)
            clean_end(fault);
        page_arm(page, place, test_is_full_size() ? i : 1 + rng_below(&rng, count));
        bool serves = start_server();
        page_arm(page, place, 0);
        served += serves;
        refused += !serves;
    }
    if (!rig.sagad)
        assert_true(start_server()); /* no harm was done */
    clean_end(fault);
    print_message("%s: %llu, served %d times, refused %d times\n", fault, (unsigned long long)count,
                  served, refused);
    proof_fault(fault, (int64_t)(page_hits(page, place) - hits));
    rig_server_start(&rig);
}

/* The calls that only the start makes. */
void each_call_fail_start_by_name(void)
{
    for (int i = 0; i < PAGE_LIBPQ_COUNT; i++) {
        if (atomic_load(&page->libpq_hits[i]) > 0)
            continue;
        rig_server_kill(&rig);
        atomic_store(&page->libpq_only, 1 + i);
        page_arm(page, PAGE_LIBPQ, 1);
        bool serves = start_server();
        page_arm(page, PAGE_LIBPQ, 0);
        atomic_store(&page->libpq_only, 0);
        print_message("%s at the start: %s\n", page_libpq_names[i], serves ? "served" : "refused");
        if (!serves)
            assert_true(start_server());
    }
}

void each_call_fail_start(enum page_place place, const char *fault)
{
    start("open-at-the-start", "* * * guarded"); /* something to load */
    fail_start(place, fault);
    (void)rig_worker_threads(&rig, "one", "act:8 undo:4", 8); /* the rig owns it */
    await("open-at-the-start", "SUCCEEDED");
}

void each_call_count_by_name(void)
{
    for (int i = 0; page && i < PAGE_LIBPQ_COUNT; i++) {
        char name[PROOF_NAME_SIZE];
        (void)snprintf(name, sizeof name, "%s fails", page_libpq_names[i]);
        proof_fault(name, (int64_t)atomic_load(&page->libpq_hits[i]));
    }
}
