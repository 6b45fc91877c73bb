/* The API over the whole stack. Goal: each call answers as proto/saga/v1 says, also to wrong and to
 * repeated requests, and stores nothing it has refused. Method: a server, one worker, and the calls
 * themselves. */
#include "base/clock.h"
#include "base/mem.h"
#include "support/raw_stream.h"
#include "support/rig.h"
#include "support/wait.h"

#include <grpc/health/v1/health.pb-c.h>
#include <pthread.h>
#include <stdio.h>

enum {
    SOON = 10000,
    INVALID_ARGUMENT = 3,
    CODE_NOT_FOUND = 5,
    ALREADY_EXISTS = 6,
    UNIMPLEMENTED = 12,
    PAYLOAD_MAX = 256 * 1024,
    ID_MAX = 256,
};

static struct rig rig = { .server_args = { "--resend-grace", "0.3s" } };

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker_threads(&rig, "w1", "act:32 undo:32", 16); /* the rig owns it */
    rig_define(&rig, "quick", NULL, "a: IDEMPOTENT | none");
    rig_define(&rig, "never", NULL, "a: IDEMPOTENT handler=nobody | IDEMPOTENT");
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
    return rig_check(&rig);
}

static void free_saga_p(Saga__V1__Saga **saga)
{
    saga__v1__saga__free_unpacked(*saga, NULL);
}
#define SAGA CLEANUP(free_saga_p) Saga__V1__Saga *

static void free_message_p(void *message)
{
    ProtobufCMessage *it = *(ProtobufCMessage **)message;
    if (it)
        protobuf_c_message_free_unpacked(it, NULL);
}
#define MESSAGE(type) CLEANUP(free_message_p) Saga__V1__##type *

static Saga__V1__StartSagaRequest start_of(const char *definition, const char *saga_id,
                                           const char *input)
{
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    request.definition = rig_borrow(definition);
    request.saga_id = rig_borrow(saga_id);
    request.input.data = (uint8_t *)rig_borrow(input);
    request.input.len = strlen(input);
    return request;
}

/* The status code; `ret_reason` and the first field violation if wanted. */
static int try_start(const Saga__V1__StartSagaRequest *request, char ret_reason[RIG_REASON_SIZE],
                     Saga__V1__StartSagaResponse **ret)
{
    struct client_failure failure = { .code = 0 };
    ProtobufCMessage *reply = rig_call(&rig, "SagaService/StartSaga", &request->base,
                                       &saga__v1__start_saga_response__descriptor, &failure);
    if (!reply) {
        int code = failure.code;
        (void)snprintf(ret_reason, RIG_REASON_SIZE, "%s", failure.reason);
        if (failure.violation_count)
            (void)snprintf(ret_reason, RIG_REASON_SIZE, "field %s", failure.violations[0].field);
        client_failure_done(&failure);
        return code;
    }
    if (ret)
        *ret = (Saga__V1__StartSagaResponse *)reply;
    else
        protobuf_c_message_free_unpacked(reply, NULL);
    return 0;
}

static Saga__V1__SagaRef ref_of(const char *definition, const char *saga_id)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    ref.definition = rig_borrow(definition);
    ref.saga_id = rig_borrow(saga_id);
    return ref;
}

/* --- the happy path --------------------------------------------------------------------------- */

static void test_three_steps_run_in_order_and_see_the_outputs_before_them(void **state)
{
    (void)state;
    rig_define(&rig, "happy", NULL,
               "a: IDEMPOTENT | IDEMPOTENT | guarded\nb: ONCE | none\nc: IDEMPOTENT | IDEMPOTENT");
    rig_start(&rig, "happy", "h1",
              "a A 1 out=one guarded\nb A 1 out=two\nc A 1 join=a join=b done");
    rig_await_state(&rig, "happy", "h1", "SUCCEEDED", SOON);
    rig_assert_journal(&rig, "happy", "h1", "a.1 DONE, b.1 DONE, c.1 DONE");
    SAGA saga = rig_get(&rig, "happy", "h1");
    assert_int_equal(saga->n_steps, 3);
    assert_int_equal(saga->steps[2]->output.len, strlen("[a=one][b=two]"));
    assert_memory_equal(saga->steps[2]->output.data, "[a=one][b=two]", saga->steps[2]->output.len);
    assert_int_equal(saga->steps[0]->state, SAGA__V1__STEP_STATE__STEP_STATE_DONE);
    assert_string_equal(saga->namespace_, "default");
    assert_int_equal(saga->run, 1);
    assert_int_equal(saga->revision, 1);
    assert_non_null(saga->start_time);
    assert_non_null(saga->end_time);
    assert_int_equal(saga->waiting ? (int)saga->waiting->kind : 0, 0);
    /* The key of a step is 32 hexadecimal digits, and no two steps share one. */
    assert_int_equal(rig_count(&rig, RIG_BANK,
                               "SELECT count(DISTINCT key) FROM calls WHERE saga_id = 'h1'"
                               " AND key ~ '^[0-9a-f]{32}$'"),
                     3);
}

static void test_get_saga_answers_basic_or_full(void **state)
{
    (void)state;
    rig_start(&rig, "never", "views", "the input");
    Saga__V1__SagaRef ref = ref_of("never", "views");
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    request.saga = &ref;
    MESSAGE(Saga)
    basic = (Saga__V1__Saga *)rig_call(&rig, "SagaService/GetSaga", &request.base,
                                       &saga__v1__saga__descriptor, NULL);
    assert_int_equal(basic->n_steps, 0);
    assert_int_equal(basic->input.len, 0);
    assert_null(basic->waiting);
    assert_int_equal(basic->state, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
    /* By uid, too. */
    Saga__V1__SagaRef by_uid = SAGA__V1__SAGA_REF__INIT;
    by_uid.uid = basic->uid;
    request.saga = &by_uid;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    MESSAGE(Saga)
    full = (Saga__V1__Saga *)rig_call(&rig, "SagaService/GetSaga", &request.base,
                                      &saga__v1__saga__descriptor, NULL);
    assert_string_equal(full->saga_id, "views");
    assert_int_equal(full->n_steps, 1);
    assert_int_equal(full->input.len, strlen("the input"));
    assert_non_null(full->waiting);
    static const struct {
        const char *definition, *saga_id, *uid;
        int code;
    } wrong[] = {
        { "never", "nobody", "", CODE_NOT_FOUND },
        { "nothing", "views", "", CODE_NOT_FOUND },
        { "", "", "00000000-0000-7000-8000-000000000000", CODE_NOT_FOUND },
        { "", "", "no-uuid", INVALID_ARGUMENT },
        { "never", "", "", INVALID_ARGUMENT },
        { "", "views", "", INVALID_ARGUMENT },
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct client_failure failure = { .code = 0 };
        Saga__V1__SagaRef no = ref_of(wrong[i].definition, wrong[i].saga_id);
        no.uid = rig_borrow(wrong[i].uid);
        request.saga = &no;
        assert_null(rig_call(&rig, "SagaService/GetSaga", &request.base,
                             &saga__v1__saga__descriptor, &failure));
        assert_int_equal(failure.code, wrong[i].code);
        client_failure_done(&failure);
    }
}

/* --- U7, P1: keys ----------------------------------------------------------------------------- */

struct starter {
    pthread_t thread;
    int code;
    char uid[40];
    bool existed;
};

static void *start_once(void *ctx)
{
    struct starter *starter = ctx;
    Saga__V1__StartSagaRequest request = start_of("never", "u7", "same bytes");
    ProtobufCMessage *reply = NULL;
    struct err err;
    starter->code =
        client_call(rig.client, "/saga.v1.SagaService/StartSaga", &request.base,
                    &saga__v1__start_saga_response__descriptor, RIG_CALL_MS, &reply, &err);
    if (starter->code == 0) {
        const Saga__V1__StartSagaResponse *response = (const Saga__V1__StartSagaResponse *)reply;
        (void)snprintf(starter->uid, sizeof starter->uid, "%s", response->uid);
        starter->existed = response->existed;
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return NULL;
}

static void test_p1_u7_a_key_starts_one_saga_however_many_start_it_at_once(void **state)
{
    (void)state;
    enum { STARTERS = 50 };
    static struct starter starters[STARTERS];
    for (int i = 0; i < STARTERS; i++)
        assert_int_equal(pthread_create(&starters[i].thread, NULL, start_once, &starters[i]), 0);
    int created = 0;
    for (int i = 0; i < STARTERS; i++) {
        assert_int_equal(pthread_join(starters[i].thread, NULL), 0);
        assert_int_equal(starters[i].code, 0);
        assert_string_equal(starters[i].uid, starters[0].uid);
        created += !starters[i].existed;
    }
    assert_int_equal(created, 1);
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga WHERE saga_id = 'u7'"),
                     1);
}

static void test_u7_other_bytes_for_a_known_key_are_a_mismatch_also_after_the_end(void **state)
{
    (void)state;
    char reason[RIG_REASON_SIZE];
    Saga__V1__StartSagaRequest first = start_of("quick", "u7b", "a A 1 sleep=300");
    Saga__V1__StartSagaRequest other = start_of("quick", "u7b", "a A 1 sleep=301");
    assert_int_equal(try_start(&first, reason, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(try_start(&other, reason, NULL), ALREADY_EXISTS);
        assert_string_equal(reason, "INPUT_MISMATCH");
        Saga__V1__StartSagaResponse *reply = NULL;
        assert_int_equal(try_start(&first, reason, &reply), 0);
        assert_true(reply->existed);
        assert_int_equal(reply->state, i ? SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED
                                         : SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
        saga__v1__start_saga_response__free_unpacked(reply, NULL);
        rig_await_state(&rig, "quick", "u7b", "SUCCEEDED", SOON);
    }
    rig_assert_calls(&rig, "u7b", "a.1");
    /* The same key of another definition is another key. */
    Saga__V1__StartSagaRequest elsewhere = start_of("never", "u7b", "");
    assert_int_equal(try_start(&elsewhere, reason, NULL), 0);
}

static void test_wrong_starts_are_refused_by_name_and_store_nothing(void **state)
{
    (void)state;
    static char long_id[ID_MAX + 2], big[PAYLOAD_MAX + 2], label[66];
    memset(long_id, 'i', ID_MAX + 1);
    memset(big, ' ', PAYLOAD_MAX + 1);
    memset(label, 'l', 65);
    int64_t before = rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga_key");
    const struct {
        const char *definition, *saga_id, *input, *reason;
        int code;
    } wrong[] = {
        { "quick", "", "", "field saga_id", INVALID_ARGUMENT },
        { "quick", long_id, "", "field saga_id", INVALID_ARGUMENT },
        { "quick", "tab\there", "", "field saga_id", INVALID_ARGUMENT },
        { "quick", "\x7f", "", "field saga_id", INVALID_ARGUMENT },
        { "", "x", "", "field definition", INVALID_ARGUMENT },
        { "quick", "x", big, "field input", INVALID_ARGUMENT },
    };
    char reason[RIG_REASON_SIZE];
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        Saga__V1__StartSagaRequest request =
            start_of(wrong[i].definition, wrong[i].saga_id, wrong[i].input);
        assert_int_equal(try_start(&request, reason, NULL), wrong[i].code);
        assert_string_equal(reason, wrong[i].reason);
    }
    Saga__V1__StartSagaRequest unknown = start_of("no-such-definition", "x", "");
    assert_int_equal(try_start(&unknown, reason, NULL), CODE_NOT_FOUND);
    Saga__V1__StartSagaRequest not_utf8 = start_of("quick", "\xff\xfe", "");
    assert_int_equal(try_start(&not_utf8, reason, NULL), INVALID_ARGUMENT);
    /* Labels: five, an empty key, a long one; a related saga that is no uid. */
    Saga__V1__StartSagaRequest__LabelsEntry entries[5], *list[5];
    static const char *const names[] = { "a", "b", "c", "d", "e" };
    for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
        saga__v1__start_saga_request__labels_entry__init(&entries[i]);
        entries[i].key = rig_borrow(names[i]);
        entries[i].value = rig_borrow("v");
        list[i] = &entries[i];
    }
    Saga__V1__StartSagaRequest labelled = start_of("quick", "labels", "");
    labelled.labels = list;
    labelled.n_labels = 5;
    assert_int_equal(try_start(&labelled, reason, NULL), INVALID_ARGUMENT);
    labelled.n_labels = 1;
    entries[0].key = rig_borrow("");
    assert_int_equal(try_start(&labelled, reason, NULL), INVALID_ARGUMENT);
    entries[0].key = label;
    assert_int_equal(try_start(&labelled, reason, NULL), INVALID_ARGUMENT);
    Saga__V1__StartSagaRequest related = start_of("quick", "related", "");
    related.related_saga = rig_borrow("not-a-uid");
    assert_int_equal(try_start(&related, reason, NULL), INVALID_ARGUMENT);
    assert_int_equal(rig_count(&rig, RIG_STORE, "SELECT count(*) FROM saga_key"), before);
    /* What is just within the limits goes. */
    long_id[ID_MAX] = '\0';
    big[PAYLOAD_MAX] = '\0';
    Saga__V1__StartSagaRequest largest = start_of("quick", long_id, big);
    entries[0].key = rig_borrow("k");
    largest.labels = list;
    largest.n_labels = 4;
    assert_int_equal(try_start(&largest, reason, NULL), 0);
    rig_await_state(&rig, "quick", long_id, "SUCCEEDED", SOON);
    SAGA saga = rig_get(&rig, "quick", long_id);
    assert_int_equal(saga->input.len, PAYLOAD_MAX);
    assert_int_equal(saga->n_labels, 4);
}

static void test_a_batch_is_answered_item_by_item(void **state)
{
    (void)state;
    Saga__V1__StartSagaRequest items[] = {
        start_of("quick", "batch1", "x"),   start_of("quick", "batch1", "x"),
        start_of("quick", "batch1", "y"),   start_of("quick", "", "x"),
        start_of("no-such", "batch2", "x"), start_of("quick", "batch3", "x"),
    };
    Saga__V1__StartSagaRequest *list[ARRAY_LEN(items)];
    for (size_t i = 0; i < ARRAY_LEN(items); i++)
        list[i] = &items[i];
    Saga__V1__BatchStartSagasRequest request = SAGA__V1__BATCH_START_SAGAS_REQUEST__INIT;
    request.requests = list;
    request.n_requests = ARRAY_LEN(items);
    MESSAGE(BatchStartSagasResponse)
    reply = (Saga__V1__BatchStartSagasResponse *)rig_call(
        &rig, "SagaService/BatchStartSagas", &request.base,
        &saga__v1__batch_start_sagas_response__descriptor, NULL);
    assert_int_equal(reply->n_items, ARRAY_LEN(items));
    Saga__V1__BatchStartSagasResponse__Item **it = reply->items;
    assert_false(it[0]->saga->existed);
    assert_true(it[1]->saga->existed);
    assert_string_equal(it[1]->saga->uid, it[0]->saga->uid);
    assert_int_equal(it[2]->error->code, ALREADY_EXISTS);
    assert_string_equal(it[2]->error->reason, "INPUT_MISMATCH");
    assert_int_equal(it[3]->error->code, INVALID_ARGUMENT);
    assert_non_null(strstr(it[3]->error->field, "saga_id"));
    assert_int_equal(it[4]->error->code, CODE_NOT_FOUND);
    assert_false(it[5]->saga->existed);
    struct client_failure failure = { .code = 0 };
    request.n_requests = 0;
    assert_null(rig_call(&rig, "SagaService/BatchStartSagas", &request.base,
                         &saga__v1__batch_start_sagas_response__descriptor, &failure));
    assert_int_equal(failure.code, INVALID_ARGUMENT);
    client_failure_done(&failure);
}

/* --- lists ------------------------------------------------------------------------------------ */

static Saga__V1__ListSagasResponse *list_page(const Saga__V1__ListSagasRequest *request,
                                              int *ret_code)
{
    struct client_failure failure = { .code = 0 };
    ProtobufCMessage *reply = rig_call(&rig, "SagaService/ListSagas", &request->base,
                                       &saga__v1__list_sagas_response__descriptor, &failure);
    *ret_code = reply ? 0 : failure.code;
    if (!reply)
        client_failure_done(&failure);
    return (Saga__V1__ListSagasResponse *)reply;
}

/* Pages over sagas "<prefix>0".. while others are started, and wants each once, in order. */
static void page_over(bool oldest_first, int count)
{
    enum { PAGE = 7, SEEN_MAX = 200 };
    bool seen[SEEN_MAX] = { false };
    char token[512] = "", id[32];
    int pages = 0, found = 0;
    int64_t last = oldest_first ? 0 : INT64_MAX;
    assert_true(count <= SEEN_MAX);
    do {
        Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
        int code;
        request.definition = rig_borrow("never");
        request.saga_id_prefix = rig_borrow("page-");
        request.oldest_first = oldest_first;
        request.page_size = PAGE;
        request.page_token = token;
        MESSAGE(ListSagasResponse) page = list_page(&request, &code);
        assert_int_equal(code, 0);
        for (size_t i = 0; i < page->n_sagas; i++) {
            const Saga__V1__Saga *saga = page->sagas[i];
            int64_t at = saga->start_time->seconds * 1000000 + saga->start_time->nanos / 1000;
            assert_true(oldest_first ? at >= last : at <= last);
            last = at;
            int number = (int)strtol(saga->saga_id + strlen("page-"), NULL, 10);
            if (number >= count)
                continue; /* started while we read */
            assert_false(seen[number]);
            seen[number] = true;
            found++;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        /* Rows come and change while pages are read. */
        (void)snprintf(id, sizeof id, "page-%d", 1000 + pages + (oldest_first ? 500 : 0));
        rig_start(&rig, "never", id, "");
        (void)snprintf(id, sizeof id, "page-%d", pages + (oldest_first ? 0 : 20));
        assert_int_equal(rig_cancel(&rig, "never", id, NULL), 0);
        pages++;
    } while (*token && pages < 100);
    assert_int_equal(found, count);
}

static void test_pages_of_a_list_lose_and_repeat_nothing_while_rows_change(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    rig_start_many(&rig, "never", "page-", COUNT, "");
    page_over(true, COUNT);
    page_over(false, COUNT);
    int code;
    static const char *const tokens[] = { "garbage", "AAAA", "%%%", "////////////////" };
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
        request.page_token = rig_borrow(tokens[i]);
        assert_null(list_page(&request, &code));
        assert_int_equal(code, INVALID_ARGUMENT);
    }
    static const int sizes[] = { -1, 1001 };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
        request.page_size = sizes[i];
        assert_null(list_page(&request, &code));
        assert_int_equal(code, INVALID_ARGUMENT);
    }
}

static size_t list_count(Saga__V1__ListSagasRequest *request)
{
    int code;
    request->page_size = 1000;
    MESSAGE(ListSagasResponse) page = list_page(request, &code);
    assert_int_equal(code, 0);
    return page->n_sagas;
}

static void test_a_list_is_filtered_by_definition_state_and_key(void **state)
{
    (void)state;
    rig_define(&rig, "listed", NULL, "a: ONCE | none");
    rig_start(&rig, "listed", "ok-1", "");
    rig_start(&rig, "listed", "ok-2", "");
    rig_start(&rig, "listed", "no_1", "a A 1 rejected");
    rig_start(&rig, "listed", "no%1", "a A 1 unknown");
    rig_await_states(&rig, "listed", "ok", "SUCCEEDED", 2, SOON);
    rig_await_state(&rig, "listed", "no_1", "COMPENSATED", SOON);
    rig_await_state(&rig, "listed", "no%1", "PARKED OUTCOME_UNKNOWN", SOON);
    Saga__V1__SagaState states[] = { SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED,
                                     SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED };
    const struct {
        const char *namespace_, *prefix, *saga_id;
        size_t states, expected;
    } cases[] = {
        { "", "", "", 0, 4 },   { "", "", "", 1, 1 },      { "", "", "", 2, 2 },
        { "", "ok", "", 0, 2 }, { "", "no_", "", 0, 1 },   { "", "no%", "", 0, 1 },
        { "", "ok", "", 2, 0 }, { "", "", "ok-2", 0, 1 },  { "-", "", "", 0, 4 },
        { "", "", "ok", 0, 0 }, { "other", "", "", 0, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
        request.namespace_ = rig_borrow(cases[i].namespace_);
        request.definition = rig_borrow("listed");
        request.saga_id_prefix = rig_borrow(cases[i].prefix);
        request.saga_id = rig_borrow(cases[i].saga_id);
        request.states = states;
        request.n_states = cases[i].states;
        if (list_count(&request) != cases[i].expected)
            fail_msg("filter %zu: %zu sagas, not %zu", i, list_count(&request), cases[i].expected);
    }
}

static void test_the_journal_is_read_in_pages(void **state)
{
    (void)state;
    rig_define(&rig, "journal", NULL, "a: IDEMPOTENT initial=0.001s cap=0.001s | none");
    rig_start(&rig, "journal", "j1",
              "a A 1 retry\na A 2 retry\na A 3 retry\na A 4 retry\na A 5 out=end done");
    rig_await_state(&rig, "journal", "j1", "SUCCEEDED", SOON);
    Saga__V1__SagaRef ref = ref_of("journal", "j1");
    char token[512] = "";
    int64_t seq = 0;
    int pages = 0;
    do {
        Saga__V1__ListJournalRequest request = SAGA__V1__LIST_JOURNAL_REQUEST__INIT;
        request.saga = &ref;
        request.page_size = 2;
        request.page_token = token;
        MESSAGE(ListJournalResponse)
        page = (Saga__V1__ListJournalResponse *)rig_call(
            &rig, "SagaService/ListJournal", &request.base,
            &saga__v1__list_journal_response__descriptor, NULL);
        for (size_t i = 0; i < page->n_entries; i++) {
            const Saga__V1__JournalEntry *entry = page->entries[i];
            assert_int_equal(entry->seq, ++seq);
            assert_int_equal(entry->try_, seq);
            assert_string_equal(entry->step, "a");
            assert_int_equal(entry->kind, SAGA__V1__JOURNAL_ENTRY__KIND__KIND_LEASE);
            assert_non_null(strstr(entry->worker, "w1/"));
            assert_int_equal(entry->outcome, seq < 5 ? SAGA__V1__OUTCOME__OUTCOME_RETRY
                                                     : SAGA__V1__OUTCOME__OUTCOME_DONE);
            assert_int_equal(entry->output.len, seq < 5 ? 0 : strlen("end"));
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        pages++;
    } while (*token && pages < 10);
    assert_int_equal(seq, 5);
    assert_true(pages == 3);
}

/* --- wait ------------------------------------------------------------------------------------- */

/* Who waits is told what who asks is told. */
static void assert_as_get(Saga__V1__SagaRef *ref, const Saga__V1__Saga *saga)
{
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    request.saga = ref;
    MESSAGE(Saga)
    got = (Saga__V1__Saga *)rig_call(&rig, "SagaService/GetSaga", &request.base,
                                     &saga__v1__saga__descriptor, NULL);
    size_t size = saga__v1__saga__get_packed_size(saga);
    assert_int_equal(saga__v1__saga__get_packed_size(got), size);
    CLEANUP(mem_free_p) uint8_t *waited = mem_calloc(2, size);
    assert_non_null(waited);
    (void)saga__v1__saga__pack(saga, waited);       /* the size from above */
    (void)saga__v1__saga__pack(got, waited + size); /* as well */
    assert_memory_equal(waited, waited + size, size);
}

static int64_t wait_saga(const char *definition, const char *saga_id, int timeout_ms,
                         bool or_parked, Saga__V1__SagaState expected)
{
    Saga__V1__SagaRef ref = ref_of(definition, saga_id);
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__WaitSagaRequest request = SAGA__V1__WAIT_SAGA_REQUEST__INIT;
    timeout.seconds = timeout_ms / 1000;
    timeout.nanos = timeout_ms % 1000 * 1000000;
    request.saga = &ref;
    request.timeout = &timeout;
    request.or_parked = or_parked;
    int64_t from = clock_mono_ms(&clock_system);
    MESSAGE(Saga)
    saga = (Saga__V1__Saga *)rig_call(&rig, "SagaService/WaitSaga", &request.base,
                                      &saga__v1__saga__descriptor, NULL);
    int64_t took = clock_mono_ms(&clock_system) - from;
    assert_int_equal(saga->state, expected);
    if (expected != SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING)
        assert_as_get(&ref, saga);
    return took;
}

static void test_wait_answers_at_the_end_or_when_parked_or_when_the_time_is_over(void **state)
{
    (void)state;
    rig_define(&rig, "waited", NULL, "a: ONCE | none");
    rig_start(&rig, "waited", "w-end", "a A 1 sleep=400");
    rig_start(&rig, "waited", "w-park", "a A 1 sleep=400 unknown");
    rig_start(&rig, "never", "w-over", "");
    (void)wait_saga("waited", "w-end", 10000, false, SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED);
    (void)wait_saga("waited", "w-park", 10000, true, SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED);
    /* Parked is no end unless asked for. */
    assert_true(
        wait_saga("waited", "w-park", 300, false, SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED) >= 300);
    int64_t took =
        wait_saga("never", "w-over", 300, true, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
    assert_true(took >= 300 && took < 3000);
    rig_define(&rig, "taken_back", NULL, "a: IDEMPOTENT | IDEMPOTENT\nb: IDEMPOTENT | none");
    rig_start(&rig, "taken_back", "w-back", "b A 1 sleep=200 rejected code=NO");
    (void)wait_saga("taken_back", "w-back", 10000, false,
                    SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED);
    /* What has ended is answered at once. */
    assert_true(wait_saga("waited", "w-end", 10000, false,
                          SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED) < 2000);
}

/* --- health, unknown methods ------------------------------------------------------------------ */

static void test_health_is_served_and_watched_and_unknown_methods_are_told(void **state)
{
    (void)state;
    assert_int_equal(rig_health(rig.address, 5000), 1);
    static const char *const unknown[] = { "/saga.v1.SagaService/NoSuchCall",
                                           "/no.such.Service/Call", "/grpc.health.v1.Health/List",
                                           "/saga.v1.SagaService/", "/" };
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
        int64_t from = clock_mono_ms(&clock_system);
        assert_int_equal(raw_call(rig.address, unknown[i], NULL, 0, 5000, NULL), UNIMPLEMENTED);
        assert_true(clock_mono_ms(&clock_system) - from < 2000);
    }
    struct raw_stream *watch = NULL;
    struct bytes message;
    struct err err;
    ASSERT_OK(raw_stream_open(rig.address, "/grpc.health.v1.Health/Watch", 60000, &watch, &err),
              &err);
    ASSERT_OK(raw_stream_send(watch, NULL, 0, 5000, &err), &err);
    ASSERT_OK(raw_stream_half_close(watch, 5000, &err), &err);
    assert_int_equal(raw_stream_receive(watch, 5000, &message), 1);
    static const uint8_t serving[] = { 0x08, 0x01 };
    assert_int_equal(message.size, sizeof serving);
    assert_memory_equal(message.data, serving, sizeof serving);
    mem_free(message.data);
    /* It is told of the change, and the stream stays open until then. */
    assert_int_equal(raw_stream_receive(watch, 200, &message), 0);
    (void)rig_server_stop(&rig, 20000); /* how long it takes is another test's */
    assert_int_equal(raw_stream_receive(watch, 5000, &message), 1);
    static const uint8_t not_serving[] = { 0x08, 0x02 };
    assert_memory_equal(message.data, not_serving, sizeof not_serving);
    mem_free(message.data);
    watch = raw_stream_free(watch);
    rig_server_start(&rig);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_three_steps_run_in_order_and_see_the_outputs_before_them),
        TEST(test_get_saga_answers_basic_or_full),
        TEST(test_p1_u7_a_key_starts_one_saga_however_many_start_it_at_once),
        TEST(test_u7_other_bytes_for_a_known_key_are_a_mismatch_also_after_the_end),
        TEST(test_wrong_starts_are_refused_by_name_and_store_nothing),
        TEST(test_a_batch_is_answered_item_by_item),
        TEST(test_pages_of_a_list_lose_and_repeat_nothing_while_rows_change),
        TEST(test_a_list_is_filtered_by_definition_state_and_key),
        TEST(test_the_journal_is_read_in_pages),
        TEST(test_wait_answers_at_the_end_or_when_parked_or_when_the_time_is_over),
        TEST(test_health_is_served_and_watched_and_unknown_methods_are_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
