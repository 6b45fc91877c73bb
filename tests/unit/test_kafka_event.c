/* Goal: an event is the same record whenever it is made, and says what its kind promises: who,
 * what, and nothing that may change. Method: each kind of event by hand, its record unpacked; every
 * allocation fails once. */
#include "support/check.h"

#include "kafka/event.h"

#include <saga/v1/event.pb-c.h>
#include <string.h>

static char namespace_[] = "bank", definition[] = "pay.v1", saga_id[] = "order-\xc3\xa4";
static char labels[] = "{\"color\": \"blue\", \"size\": \"9\"}", step[] = "debit", worker[] = "w/1";
static char code[] = "CODE", message[] = "no money";

static struct store_event sample(enum store_event_part part, int64_t seq, enum entry_kind kind)
{
    const struct uuid uid = { { 1, 2, [15] = 0xab } };
    return (struct store_event){
        .id = { uid, seq, part, 0 },
        .time_ms = 1790000000123,
        .due = true,
        .saga = { .uid = uid,
                  .namespace_ = namespace_,
                  .definition = definition,
                  .revision = 3,
                  .saga_id = saga_id,
                  .run = 2,
                  .state = SAGA_COMPENSATED,
                  .labels = labels,
                  .related = { { 9 } },
                  .has_related = true,
                  .started_at_ms = 1789999999000 },
        .entry = { .seq = seq,
                   .fence = kind == ENTRY_LEASE ? 7 : 0,
                   .kind = kind,
                   .step = 0,
                   .try_ = 1,
                   .worker = worker,
                   .leased_at_ms = 1789999999500,
                   .attempt_until_ms = 1790000009500,
                   .lease_until_ms = 1790000003500,
                   .outcome = kind == ENTRY_LEASE ? OUTCOME_REJECTED : OUTCOME_NONE,
                   .finished_at_ms = 1790000000123,
                   .error_code = code,
                   .error_message = message,
                   .reason = kind == ENTRY_PARK ? PARK_OUTCOME_UNKNOWN : 0 },
        .step = step,
    };
}

static void arena_done_p(struct arena *arena)
{
    arena_done(arena);
}

static const char *header(const struct producer_record *record, const char *name)
{
    for (size_t i = 0; i < PRODUCER_HEADERS; i++)
        if (strcmp(record->headers[i].name, name) == 0)
            return record->headers[i].value;
    return NULL;
}

static const struct {
    enum store_event_part part;
    int64_t seq;
    enum entry_kind kind;
    const char *type, *id;
    Saga__V1__SagaEvent__Kind said;
    Saga__V1__SagaState state;
} cases[] = {
    { STORE_EVENT_START, 0, ENTRY_LEASE, "saga.v1.started",
      "01020000-0000-0000-0000-0000000000ab/0/0", SAGA__V1__SAGA_EVENT__KIND__KIND_STARTED,
      SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING },
    { STORE_EVENT_ENTRY, 4, ENTRY_LEASE, "saga.v1.attempt_ended",
      "01020000-0000-0000-0000-0000000000ab/4/1", SAGA__V1__SAGA_EVENT__KIND__KIND_ATTEMPT_ENDED,
      SAGA__V1__SAGA_STATE__SAGA_STATE_UNSPECIFIED },
    { STORE_EVENT_ENTRY, 5, ENTRY_COMPENSATE, "saga.v1.decided",
      "01020000-0000-0000-0000-0000000000ab/5/1", SAGA__V1__SAGA_EVENT__KIND__KIND_DECIDED,
      SAGA__V1__SAGA_STATE__SAGA_STATE_UNSPECIFIED },
    { STORE_EVENT_ENTRY, 6, ENTRY_PARK, "saga.v1.parked",
      "01020000-0000-0000-0000-0000000000ab/6/1", SAGA__V1__SAGA_EVENT__KIND__KIND_PARKED,
      SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED },
    { STORE_EVENT_END, 6, ENTRY_LEASE, "saga.v1.ended", "01020000-0000-0000-0000-0000000000ab/6/2",
      SAGA__V1__SAGA_EVENT__KIND__KIND_ENDED, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED },
};

static void assert_entry(const Saga__V1__JournalEntry *entry, int64_t seq)
{
    assert_non_null(entry);
    assert_int_equal(entry->seq, seq);
    assert_string_equal(entry->step, "debit");
    assert_string_equal(entry->error->message, "no money");
    assert_int_equal(entry->output.len, 0);
    assert_null(entry->attempt_until_time);
    assert_null(entry->lease_until_time);
}

static void test_each_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err;
        struct producer_record record;
        CLEANUP(arena_done_p) struct arena arena = { 0 };
        const struct store_event event = sample(cases[i].part, cases[i].seq, cases[i].kind);
        ASSERT_OK(event_record(&arena, &event, &record, &err), &err);
        assert_string_equal(header(&record, "ce_specversion"), "1.0");
        assert_string_equal(header(&record, "ce_id"), cases[i].id);
        assert_string_equal(header(&record, "ce_type"), cases[i].type);
        assert_string_equal(header(&record, "ce_source"), "/sagad/bank/pay.v1");
        assert_string_equal(header(&record, "ce_subject"), saga_id);
        assert_string_equal(header(&record, "ce_time"), "2026-09-21T14:13:20.123Z");
        assert_string_equal(header(&record, "content-type"), "application/protobuf");
        assert_int_equal(record.timestamp_ms, event.time_ms);
        assert_int_equal(record.key.size, strlen(saga_id));
        assert_memory_equal(record.key.data, saga_id, record.key.size);
        Saga__V1__SagaEvent *said =
            saga__v1__saga_event__unpack(NULL, record.value.size, record.value.data);
        assert_non_null(said);
        assert_string_equal(said->id, cases[i].id);
        assert_int_equal(said->kind, cases[i].said);
        assert_int_equal(said->state, cases[i].state);
        assert_int_equal(said->n_labels, 2);
        assert_int_equal(said->run, 2);
        assert_string_equal(said->related_saga, "09000000-0000-0000-0000-000000000000");
        if (cases[i].part == STORE_EVENT_ENTRY)
            assert_entry(said->entry, cases[i].seq);
        else
            assert_null(said->entry);
        saga__v1__saga_event__free_unpacked(said, NULL);
    }
}

/* The saga has gone on meanwhile, and so has the lease while it ran: the event has not. */
static void test_it_is_the_same_later(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err;
        struct producer_record record, later;
        CLEANUP(arena_done_p) struct arena arena = { 0 };
        struct store_event event = sample(cases[i].part, cases[i].seq, cases[i].kind);
        ASSERT_OK(event_record(&arena, &event, &record, &err), &err);
        event.entry.lease_until_ms += 5000;
        if (cases[i].part != STORE_EVENT_END)
            event.saga.state = SAGA_ABANDONED;
        event.saga.doubt = true;
        event.saga.park_reason = PARK_LATE_EFFECT;
        event.saga.updated_at_ms = event.saga.ended_at_ms = 1800000000000;
        ASSERT_OK(event_record(&arena, &event, &later, &err), &err);
        assert_int_equal(record.value.size, later.value.size);
        assert_memory_equal(record.value.data, later.value.data, record.value.size);
    }
}

/* Of a database that was restored: the same position, and another event. */
static void test_another_epoch_is_another_event(void **state)
{
    (void)state;
    struct err err;
    struct producer_record record;
    CLEANUP(arena_done_p) struct arena arena = { 0 };
    struct store_event event = sample(STORE_EVENT_ENTRY, 4, ENTRY_LEASE);
    event.id.epoch = 2;
    ASSERT_OK(event_record(&arena, &event, &record, &err), &err);
    assert_string_equal(header(&record, "ce_id"),
                        "01020000-0000-0000-0000-0000000000ab/2199023255556/1");
    Saga__V1__SagaEvent *said =
        saga__v1__saga_event__unpack(NULL, record.value.size, record.value.data);
    assert_non_null(said);
    assert_string_equal(said->id, header(&record, "ce_id"));
    assert_int_equal(said->epoch, 2);
    saga__v1__saga_event__free_unpacked(said, NULL);
}

/* What nobody said is not there; the saga's fields are not, whatever stands in them. */
static void test_what_became_of_a_handler(void **state)
{
    (void)state;
    static char handler[] = "pay.v1/risk", actor[] = "anna", reason[] = "the bank asked";
    static const struct {
        enum handler_event kind;
        const char *type;
        Saga__V1__HandlerEvent__Change said;
    } changes[] = {
        { HANDLER_EVENT_HELD, "saga.v1.handler_held",
          SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_HELD },
        { HANDLER_EVENT_RELEASED, "saga.v1.handler_released",
          SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_RELEASED },
        { HANDLER_EVENT_LIMITED, "saga.v1.handler_limited",
          SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_LIMITED },
        { HANDLER_EVENT_DRAINED, "saga.v1.handler_drained",
          SAGA__V1__HANDLER_EVENT__CHANGE__CHANGE_DRAINED },
    };
    assert_int_equal(ARRAY_LEN(changes), HANDLER_EVENT_COUNT - 1);
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        struct err err;
        struct producer_record record;
        CLEANUP(arena_done_p) struct arena arena = { 0 };
        bool first = i == 0;
        struct store_event event = {
            .id = { { { 1, 2, [15] = 0xab } }, 12, STORE_EVENT_HANDLER, 0 },
            .time_ms = 1790000000123,
            .handler = { .handler = handler,
                         .actor = actor,
                         .reason = reason,
                         .kind = changes[i].kind,
                         .hold = first ? HOLD_BREAKER : HOLD_NONE,
                         .release_rate_milli = first ? 0 : 2500,
                         .has_waiting = first,
                         .waiting = 0 },
        };
        ASSERT_OK(event_record(&arena, &event, &record, &err), &err);
        assert_string_equal(header(&record, "ce_id"), "01020000-0000-0000-0000-0000000000ab/12/3");
        assert_string_equal(header(&record, "ce_type"), changes[i].type);
        assert_string_equal(header(&record, "ce_source"), "/sagad");
        assert_string_equal(header(&record, "ce_subject"), handler);
        assert_string_equal(header(&record, "ce_time"), "2026-09-21T14:13:20.123Z");
        assert_int_equal(record.key.size, strlen(handler));
        assert_memory_equal(record.key.data, handler, record.key.size);
        Saga__V1__SagaEvent *said =
            saga__v1__saga_event__unpack(NULL, record.value.size, record.value.data);
        assert_non_null(said);
        assert_string_equal(said->id, header(&record, "ce_id"));
        assert_int_equal(said->kind, SAGA__V1__SAGA_EVENT__KIND__KIND_HANDLER);
        assert_int_equal(said->time->seconds, 1790000000);
        assert_string_equal(said->uid, "");
        assert_string_equal(said->saga_id, "");
        assert_null(said->entry);
        const Saga__V1__HandlerEvent *about = said->handler;
        assert_string_equal(about->handler, handler);
        assert_int_equal(about->version, 12);
        assert_int_equal(about->change, changes[i].said);
        assert_int_equal(about->hold, first ? SAGA__V1__HANDLER__HOLD__HOLD_BREAKER
                                            : SAGA__V1__HANDLER__HOLD__HOLD_UNSPECIFIED);
        assert_string_equal(about->actor, "anna");
        assert_string_equal(about->reason, "the bank asked");
        assert_int_equal(about->_waiting_case == SAGA__V1__HANDLER_EVENT___WAITING_WAITING, first);
        assert_null(about->rate);
        assert_int_equal(about->release_rate != NULL, !first);
        if (!first) {
            assert_int_equal(about->release_rate->tasks, 150);
            assert_int_equal(about->release_rate->seconds, 60);
        }
        saga__v1__saga_event__free_unpacked(said, NULL);
    }
}

static void test_labels_that_are_none_are_an_error(void **state)
{
    (void)state;
    struct err err;
    struct producer_record record;
    char bad[] = "[1]";
    CLEANUP(arena_done_p) struct arena arena = { 0 };
    struct store_event event = sample(STORE_EVENT_START, 0, ENTRY_LEASE);
    event.saga.labels = bad;
    assert_int_equal(event_record(&arena, &event, &record, &err), ERR_INTERNAL);
    event.saga.labels = NULL;
    ASSERT_OK(event_record(&arena, &event, &record, &err), &err);
}

static void test_memory_that_is_out_is_an_error(void **state)
{
    (void)state;
    const struct store_event event = sample(STORE_EVENT_ENTRY, 4, ENTRY_LEASE);
    int rc = -1;
    for (uint64_t n = 1; rc; n++) {
        struct err err = { 0 };
        struct producer_record record;
        CLEANUP(arena_done_p) struct arena arena = { 0 };
        mem_fail_at(n, true);
        rc = event_record(&arena, &event, &record, &err);
        mem_fail_at(0, false);
        if (rc)
            assert_int_equal(rc, ERR_NOMEM);
        assert_true(n < 100);
        assert_true(rc || n > 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind),
        cmocka_unit_test(test_it_is_the_same_later),
        cmocka_unit_test(test_another_epoch_is_another_event),
        cmocka_unit_test(test_what_became_of_a_handler),
        cmocka_unit_test(test_labels_that_are_none_are_an_error),
        cmocka_unit_test(test_memory_that_is_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
