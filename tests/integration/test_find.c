/* Goal: sagas are found by what is said of them, whoever said their labels; how often a step may
 * have taken effect is what its journal tells; status tells what there is. Method: sagas whose
 * scripts tell a real worker what to answer; lists, effects and status by the API and by sagactl;
 * the view against journals written row by row. */
#include "support/proof.h"
#include "support/sagactl.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 15000, INVALID_ARGUMENT = 3 };

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "0.5s" } };

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker(&rig, "w1", "act:8 undo:8"); /* the rig owns it */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

#define EXPECT(exit_code, part, ...)                                                               \
    sagactl_expect(&rig, exit_code, WORDS(part), WORDS(__VA_ARGS__))

/* How many sagas of all pages of this size; -code when it was refused, with the message. */
static int64_t count_found(const char *filter, int page_size, char ret_message[320])
{
    Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
    char token[512] = "";
    int64_t count = 0;
    request.filter = rig_borrow(filter);
    request.page_size = page_size;
    do {
        struct client_failure failure = { .code = 0 };
        request.page_token = token;
        Saga__V1__ListSagasResponse *page =
            (void *)rig_call(&rig, "SagaService/ListSagas", &request.base,
                             &saga__v1__list_sagas_response__descriptor, &failure);
        if (!page) {
            (void)snprintf(ret_message, 320, "%s", failure.message);
            int code = failure.code;
            client_failure_done(&failure);
            return -code;
        }
        count += (int64_t)page->n_sagas;
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        saga__v1__list_sagas_response__free_unpacked(page, NULL);
    } while (*token);
    return count;
}

static void assert_found(int64_t expected, const char *filter)
{
    char message[320] = "";
    for (int page_size = 1; page_size <= 100; page_size += 33) {
        int64_t found = count_found(filter, page_size, message);
        if (found != expected)
            fail_msg("%s: found %lld, not %lld (%s)", filter, (long long)found, (long long)expected,
                     message);
    }
}

static void start_labelled(const char *definition, const char *saga_id, const char *script,
                           const char *label)
{
    EXPECT(0, saga_id, "start", definition, saga_id, "--input", script, "--label", label, "--label",
           "team=night");
}

static void test_sagas_are_found_by_what_is_said_of_them(void **state)
{
    (void)state;
    rig_define(&rig, "pay", NULL, "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT for=0.2s | none");
    rig_define(&rig, "ship", NULL, "a: IDEMPOTENT | none");
    start_labelled("pay", "f-1", " ", "account=A-77");
    start_labelled("pay", "f-2", "b A * retry code=BUSY", "account=A-77");
    start_labelled("pay", "f-3", "b A * rejected code=NO", "account=A-78");
    start_labelled("ship", "f-4", " ", "account=A-77");
    rig_await_state(&rig, "pay", "f-1", "SUCCEEDED", SOON);
    rig_await_state(&rig, "pay", "f-2", "PARKED RETRIES_EXHAUSTED", SOON);
    rig_await_state(&rig, "pay", "f-3", "COMPENSATED", SOON);
    rig_await_state(&rig, "ship", "f-4", "SUCCEEDED", SOON);
    assert_found(3, "labels.account = A-77");
    assert_found(4, "labels.team = night");
    assert_found(1, "labels.account = A-78 AND labels.team = night");
    assert_found(0, "labels.account = A-78 AND labels.team = day");
    assert_found(2, "labels.account = A-77 AND definition = pay");
    assert_found(1, "park.reason = RETRIES_EXHAUSTED AND park.step = b AND park.error.code = BUSY");
    assert_found(0, "park.reason = RETRIES_EXHAUSTED AND park.step = a");
    assert_found(2, "state = SUCCEEDED AND labels.team = night");
    assert_found(2, "definition = pay AND state != SUCCEEDED AND saga_id = f-*");
    assert_found(1, "definition = pay AND revision = 1 AND end_time > 2020-01-01T00:00:00Z AND"
                    " state = COMPENSATED");
    assert_found(0, "start_time < 2020-01-01T00:00:00Z");
    assert_found(0, "namespace = other AND labels.team = night");
    assert_found(0, "labels.team = \"night' OR true\"");
    EXPECT(0, "f-2 ", "list", "--filter", "park.reason = RETRIES_EXHAUSTED");
    EXPECT(0, "account=A-77", "where", "f-2");
    /* A label leads to sagas as long as they are there. */
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga_label"), 8);
}

static void test_a_bad_filter_says_where_and_what_is_allowed(void **state)
{
    (void)state;
    char message[320];
    assert_int_equal(count_found("definition = pay AND stat = PARKED", 10, message),
                     -INVALID_ARGUMENT);
    assert_non_null(strstr(message, "filter: column 22: stat: must be one of namespace,"));
    EXPECT(1, "column 1: possible: must be one of", "list", "--filter", "possible > 1");
    EXPECT(1, "definition: the filter has a value for it, too", "list", "--definition", "pay",
           "--filter", "definition = pay");
    EXPECT(1, "labels", "start", "pay", "bad", "--label", "a=1", "--label", "b=1", "--label", "c=1",
           "--label", "d=1", "--label", "e=1");
}

/* --- effects ---------------------------------------------------------------------------------- */

/* "STEP OPERATION DISPATCHED SURE POSSIBLE", one line each. */
static void assert_effects(const char *saga_id, const char *expected)
{
    char got[512];
    rig_text(
        &rig, RIG_STORE, got, sizeof got,
        "SELECT string_agg(format('%%s %%s %%s %%s %%s', step, operation, dispatched, sure,"
        " possible), ', ' ORDER BY step_index, operation) FROM saga_effect WHERE saga_id = '%s'",
        saga_id);
    assert_string_equal(got, expected);
}

static void test_effects_are_what_the_journal_tells(void **state)
{
    (void)state;
    rig_define(&rig, "risk", NULL,
               "a: IDEMPOTENT | IDEMPOTENT\n"
               "notify: ONCE lease=5s | none");
    rig_start(&rig, "risk", "e-plain", "");
    rig_start(&rig, "risk", "e-retry", "a A 1 retry code=BUSY\nnotify A 1 retry code=BUSY");
    rig_start(&rig, "risk", "e-unknown", "notify A 1 unknown code=TIMEOUT");
    rig_start(&rig, "risk", "e-twice", "a A 1 unknown code=TIMEOUT");
    rig_start(&rig, "risk", "e-back", "notify A 1 rejected code=NO");
    rig_await_state(&rig, "risk", "e-plain", "SUCCEEDED", SOON);
    rig_await_state(&rig, "risk", "e-retry", "SUCCEEDED", SOON);
    rig_await_state(&rig, "risk", "e-unknown", "PARKED OUTCOME_UNKNOWN", SOON);
    rig_await_state(&rig, "risk", "e-twice", "SUCCEEDED", SOON);
    rig_await_state(&rig, "risk", "e-back", "COMPENSATED", SOON);
    assert_effects("e-plain", "a ACTION 1 1 1, notify ACTION 1 1 1");
    assert_effects("e-retry", "a ACTION 2 1 1, notify ACTION 2 1 1");
    assert_effects("e-unknown", "a ACTION 1 1 1, notify ACTION 1 0 1");
    assert_effects("e-twice", "a ACTION 2 1 2, notify ACTION 1 1 1");
    assert_effects("e-back", "a ACTION 1 1 1, a COMPENSATION 1 1 1, notify ACTION 1 0 0");
    EXPECT(0, "resolved", "resolve", "risk", "e-unknown", "--step", "notify", "--did-not-happen",
           "--evidence", "their file");
    rig_await_state(&rig, "risk", "e-unknown", "SUCCEEDED", SOON);
    assert_effects("e-unknown", "a ACTION 1 1 1, notify ACTION 2 1 1");
    /* An open lease may take effect; so may what was reported late. */
    rig_exec(&rig, RIG_STORE,
             "UPDATE journal j SET outcome = NULL FROM saga s WHERE s.saga_uid = j.saga_uid"
             " AND s.saga_id = 'e-plain' AND j.step = 'notify'");
    assert_effects("e-plain", "a ACTION 1 1 1, notify ACTION 1 0 1");
    rig_exec(&rig, RIG_STORE,
             "INSERT INTO late_report (shard, saga_uid, fence, outcome, effect, received_at)"
             " SELECT j.shard, j.saga_uid, j.fence, 'DONE', true, now() FROM journal j JOIN saga s"
             " ON s.saga_uid = j.saga_uid WHERE s.saga_id = 'e-plain' AND j.step = 'notify'");
    assert_effects("e-plain", "a ACTION 1 1 1, notify ACTION 1 1 1");
    rig_exec(&rig, RIG_STORE,
             "DELETE FROM late_report; UPDATE journal j SET outcome = 'DONE' FROM saga s"
             " WHERE s.saga_uid = j.saga_uid AND s.saga_id = 'e-plain' AND j.step = 'notify'");
}

static void test_what_took_over_may_have_run_before(void **state)
{
    (void)state;
    EXPECT(0, "e-suspect", "start", "risk", "e-suspect", "--suspect");
    rig_await_state(&rig, "risk", "e-suspect", "PARKED OUTCOME_UNKNOWN", SOON);
    assert_effects("e-suspect", "a ACTION 1 1 2, notify ACTION 0 0 1");
    EXPECT(0, "resolved", "resolve", "risk", "e-suspect", "--step", "notify", "--happened",
           "--evidence", "their file");
    rig_await_state(&rig, "risk", "e-suspect", "SUCCEEDED", SOON);
    assert_effects("e-suspect", "a ACTION 1 1 2, notify ACTION 0 1 1");
}

static void test_effects_are_listed_by_filter(void **state)
{
    (void)state;
    EXPECT(0, "e-twice", "effects", "--definition", "risk", "--step", "a", "possible > 1");
    json_t *found = sagactl_json(&rig, WORDS("effects", "--definition", "risk", "--since", "1h",
                                             "possible > 1 AND saga_id = \"e-t*\"", "-o", "json"));
    assert_int_equal(json_array_size(json_object_get(found, "effects")), 1);
    json_decref(found);
    EXPECT(0, "no effect matches", "effects", "--step", "notify", "dispatched > 5");
    EXPECT(0, "no effect matches", "effects", "--until", "2020-01-01");
    EXPECT(2, "--since must be", "effects", "--since", "yesterday");
    EXPECT(1, "column 11: >: operation is compared with", "effects", "operation > 1");
    /* Every row once, also when pages end within a saga. */
    json_t *all =
        sagactl_json(&rig, WORDS("effects", "--definition", "risk", "--all", "-o", "json"));
    int64_t rows =
        rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga_effect WHERE definition = 'risk'");
    assert_int_equal(json_array_size(json_object_get(all, "effects")), rows);
    json_decref(all);
    for (int page_size = 1; page_size <= 4; page_size++) {
        Saga__V1__ListEffectsRequest request = SAGA__V1__LIST_EFFECTS_REQUEST__INIT;
        char token[512] = "", seen[4096] = "";
        int64_t count = 0;
        request.definition = rig_borrow("risk");
        request.page_size = page_size;
        do {
            request.page_token = token;
            Saga__V1__ListEffectsResponse *page =
                (void *)rig_call(&rig, "SagaService/ListEffects", &request.base,
                                 &saga__v1__list_effects_response__descriptor, NULL);
            for (size_t i = 0; i < page->n_effects; i++) {
                char key[128];
                (void)snprintf(key, sizeof key, "<%s/%s/%d>", page->effects[i]->saga_id,
                               page->effects[i]->step, (int)page->effects[i]->operation);
                assert_null(strstr(seen, key));
                (void)strncat(seen, key, sizeof seen - strlen(seen) - 1);
            }
            count += (int64_t)page->n_effects;
            (void)snprintf(token, sizeof token, "%s", page->next_page_token);
            saga__v1__list_effects_response__free_unpacked(page, NULL);
        } while (*token);
        assert_int_equal(count, rows);
    }
}

/* --- status ----------------------------------------------------------------------------------- */

static bool is_waiting(void *ctx)
{
    (void)ctx;
    json_t *status = sagactl_json(&rig, WORDS("status", "-o", "json"));
    size_t i;
    json_t *handler;
    bool found = false;
    json_array_foreach(json_object_get(status, "handlers"), i, handler)
    {
        const char *name = "", *ready = "0";
        (void)json_unpack(handler, "{s:s, s?s}", "handler", &name, "ready", &ready);
        found = found || (strcmp(name, "nobody") == 0 && strcmp(ready, "1") == 0);
    }
    json_decref(status);
    return found;
}

static void test_status_tells_what_there_is(void **state)
{
    (void)state;
    rig_define(&rig, "none", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start(&rig, "none", "s-1", "");
    assert_true(wait_until(is_waiting, NULL, SOON));
    sagactl_expect(&rig, 0,
                   WORDS("primary, epoch ", "no synchronous standby", "PARKED: RETRIES_EXHAUSTED",
                         "SUCCEEDED", "transactions: ", "saga_key", "OLDEST LET GO"),
                   WORDS("status"));
    json_t *status = sagactl_json(&rig, WORDS("status", "-o", "json"));
    json_t *database = json_object_get(status, "database");
    assert_string_equal(json_string_value(json_object_get(database, "role")),
                        "DATABASE_ROLE_PRIMARY");
    assert_true(json_array_size(json_object_get(status, "states")) == 6);
    assert_non_null(json_object_get(json_object_get(status, "batches"), "medianTime"));
    json_decref(status);
}

/* --- many ------------------------------------------------------------------------------------- */

enum { PARKED_EVERY = 10, MANY_PAGE = 500 };

static int many(void)
{
    return test_is_full_size() ? 1000000 : 20000;
}

/* Of so many rows one in ten is parked and stays, one in ten comes and goes. */
static void fill(void)
{
    rig_exec(
        &rig, RIG_STORE,
        "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run, state,"
        " phase, doubt, park_reason, started_at, updated_at)"
        " SELECT i %% 256, gen_random_uuid(), 'default', 'many', 1, i::text, 1, r.state,"
        " CASE r.state WHEN 'SUCCEEDED' THEN r.state ELSE 'RUNNING' END, false,"
        " CASE r.state WHEN 'PARKED' THEN 'SUSPENDED' END,"
        " now() - make_interval(secs => (i / 7)::float8 / 10), now()"
        " FROM generate_series(0, %d) AS i, LATERAL (SELECT CASE i %% %d WHEN 0 THEN 'PARKED'"
        " WHEN 1 THEN 'RUNNING' ELSE 'SUCCEEDED' END AS state) AS r",
        many() - 1, PARKED_EVERY);
    rig_exec(&rig, RIG_STORE, "ANALYZE saga");
}

static void some_come_and_go(int round)
{
    rig_exec(
        &rig, RIG_STORE,
        "UPDATE saga SET state = CASE state WHEN 'PARKED' THEN 'RUNNING' ELSE 'PARKED' END,"
        " park_reason = CASE state WHEN 'PARKED' THEN NULL ELSE 'SUSPENDED' END"
        " WHERE namespace = 'default' AND definition = 'many' AND state IN ('PARKED', 'RUNNING')"
        " AND saga_id::int %% %d = 1 AND saga_id::int / %d %% 7 = %d",
        PARKED_EVERY, PARKED_EVERY, round % 7);
}

/* Page after page, while rows come and go: what stays is told once, what moves at most once. */
static void test_f2_no_row_is_skipped_or_told_twice_at_any_page(void **state)
{
    (void)state;
    rig_define(&rig, "many", NULL, "a: IDEMPOTENT | none");
    fill();
    uint8_t *told = calloc((size_t)many(), 1);
    assert_non_null(told);
    Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
    request.filter = rig_borrow("definition = many AND state = PARKED");
    request.page_size = MANY_PAGE;
    char token[512] = "";
    int pages = 0;
    do {
        request.page_token = token;
        Saga__V1__ListSagasResponse *page =
            (void *)rig_call(&rig, "SagaService/ListSagas", &request.base,
                             &saga__v1__list_sagas_response__descriptor, NULL);
        for (size_t i = 0; i < page->n_sagas; i++)
            told[strtol(page->sagas[i]->saga_id, NULL, 10)]++;
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        saga__v1__list_sagas_response__free_unpacked(page, NULL);
        if (pages++ % 8 == 0)
            some_come_and_go(pages / 8);
    } while (*token);
    int sum = 0;
    for (int i = 0; i < many(); i++)
        sum += told[i];
    print_message("%d pages, %d rows told\n", pages, sum);
    assert_true(pages >= many() / PARKED_EVERY / MANY_PAGE);
    for (int i = 0; i < many(); i++) {
        bool wrong = i % PARKED_EVERY == 0 ? told[i] != 1 : told[i] > (i % PARKED_EVERY == 1);
        if (wrong)
            fail_msg("row %d of %d was told %d times", i, many(), told[i]);
    }
    free(told);
}

struct way {
    const char *filter, *index;
    int64_t scans; /* of the index, before */
};

static int64_t index_scans(const struct way *way)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '%s'",
                     way->index);
}

static int64_t table_scans(void)
{
    return rig_count(&rig, RIG_STORE,
                     "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN"
                     " ('saga', 'saga_label')");
}

/* Asks again, since a session tells what it scanned with what it is asked a second later. */
static bool went_by_index(void *ctx)
{
    const struct way *way = ctx;
    Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
    request.filter = rig_borrow(way->filter);
    request.page_size = 50;
    Saga__V1__ListSagasResponse *page =
        (void *)rig_call(&rig, "SagaService/ListSagas", &request.base,
                         &saga__v1__list_sagas_response__descriptor, NULL);
    assert_true(page->n_sagas > 0);
    saga__v1__list_sagas_response__free_unpacked(page, NULL);
    return index_scans(way) > way->scans;
}

/* What PostgreSQL itself counts, of the plans that sagad's own sessions run, beside all those rows
 * of the test before. */
static void test_f2_filters_go_by_their_index_and_scan_no_table(void **state)
{
    (void)state;
    struct way ways[] = {
        { "", "saga_list", 0 },
        { "definition = many AND state = SUCCEEDED", "saga_list", 0 },
        { "definition = many AND start_time < 2100-01-01T00:00:00Z", "saga_list", 0 },
        { "definition = many AND park.reason = SUSPENDED", "saga_parked", 0 },
        { "saga_id = \"4711\"", "saga_by_id", 0 },
        { "saga_id = \"471*\"", "saga_by_id", 0 },
        { "doubt = true", "saga_doubt", 0 },
        { "labels.account = A-77", "saga_label_find", 0 },
    };
    rig_exec(&rig, RIG_STORE,
             "UPDATE saga SET doubt = true WHERE definition = 'many' AND saga_id = '4711'");
    wait_ms(1100); /* then our own scans are counted, too */
    (void)table_scans();
    int64_t before = table_scans();
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        ways[i].scans = index_scans(&ways[i]);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        (void)went_by_index(&ways[i]); /* so that one second tells of all */
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        if (!wait_until(went_by_index, &ways[i], SOON))
            fail_msg("'%s' does not go by %s", ways[i].filter, ways[i].index);
    assert_int_equal(table_scans(), before);
    rig_exec(&rig, RIG_STORE, "DELETE FROM saga WHERE definition = 'many'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sagas_are_found_by_what_is_said_of_them),
        cmocka_unit_test(test_a_bad_filter_says_where_and_what_is_allowed),
        cmocka_unit_test(test_effects_are_what_the_journal_tells),
        cmocka_unit_test(test_what_took_over_may_have_run_before),
        cmocka_unit_test(test_effects_are_listed_by_filter),
        cmocka_unit_test(test_status_tells_what_there_is),
        cmocka_unit_test(test_f2_no_row_is_skipped_or_told_twice_at_any_page),
        cmocka_unit_test(test_f2_filters_go_by_their_index_and_scan_no_table),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
