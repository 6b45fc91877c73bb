/* Goal: `sagactl where` tells on one screen where a saga stands, what it waits for and what to do.
 * Method: sagas written as JSON, rendered at a fixed time in UTC, compared as text; every wait and
 * every reason to be parked swept for advice. */
#include "support/check.h"

#include "base/mem.h"
#include "ctl/names.h"
#include "ctl/where_text.h"
#include "wire/json.h"

#include <string.h>
#include <time.h>

/* 2026-03-02T14:08:11Z, three minutes after things happened. */
#define NOW_MS INT64_C(1772460491000)

static Saga__V1__Saga *saga_from(const char *json)
{
    struct err err;
    ProtobufCMessage *message;
    ASSERT_OK(wire_json_decode(json, strlen(json), &saga__v1__saga__descriptor, &message, &err),
              &err);
    return (Saga__V1__Saga *)message;
}

static void render(const char *json, bool color, const char *address, struct buf *out)
{
    const struct where_view view = { NOW_MS, color, address };
    Saga__V1__Saga *saga = saga_from(json);
    where_write(saga, &view, out);
    assert_false(out->failed);
    saga__v1__saga__free_unpacked(saga, NULL);
}

static void assert_renders(const char *json, const char *expected)
{
    struct buf text = { 0 };
    render(json, false, NULL, &text);
    assert_string_equal(buf_cstr(&text), expected);
    buf_done(&text);
}

static void test_unknown_outcome_names_step_error_and_way_out(void **state)
{
    (void)state;
    assert_renders(
        "{\"uid\":\"01900000-0000-7000-8000-000000000001\",\"namespace\":\"default\","
        "\"definition\":\"settlement\",\"sagaId\":\"s-17\",\"run\":1,\"revision\":2,"
        "\"state\":\"SAGA_STATE_PARKED\",\"phase\":\"SAGA_STATE_RUNNING\","
        "\"stateTime\":\"2026-03-02T14:05:11Z\",\"startTime\":\"2026-03-02T14:05:01Z\","
        "\"park\":{\"reason\":\"PARK_REASON_OUTCOME_UNKNOWN\",\"step\":\"risk\","
        "\"error\":{\"code\":\"TIMEOUT\",\"message\":\"no answer in 2 s\"}},"
        "\"steps\":[{\"name\":\"debit\",\"state\":\"STEP_STATE_DONE\",\"tries\":1,\"worker\":\"w1/"
        "a\","
        "\"fence\":1,\"stateTime\":\"2026-03-02T14:05:02Z\",\"lastOutcome\":\"OUTCOME_DONE\"},"
        "{\"name\":\"risk\",\"state\":\"STEP_STATE_UNKNOWN\",\"tries\":1,\"worker\":\"w2/b\","
        "\"fence\":\"2\",\"stateTime\":\"2026-03-02T14:05:11Z\",\"lastOutcome\":\"OUTCOME_"
        "UNKNOWN\","
        "\"lastError\":{\"code\":\"TIMEOUT\",\"message\":\"no answer in 2 s\"}},"
        "{\"name\":\"mail\",\"state\":\"STEP_STATE_PENDING\"}],"
        "\"waiting\":{\"kind\":\"WAIT_KIND_OPERATOR\",\"step\":\"risk\","
        "\"sinceTime\":\"2026-03-02T14:05:11Z\"}}",
        "settlement s-17  (run 1, revision 2, 01900000-0000-7000-8000-000000000001)\n"
        "  state    PARKED while RUNNING since 2026-03-02 14:05:11 (3 min ago)\n"
        "  parked   OUTCOME_UNKNOWN at step risk: the step may have taken effect or not, and may "
        "not"
        " be repeated by itself\n"
        "           last said: TIMEOUT: no answer in 2 s\n"
        "  started  2026-03-02 14:05:01 (3 min ago)\n"
        "    STEP   STATE    TRIES  WORKER  FENCE  SINCE                            LAST OUTCOME\n"
        "    debit  DONE     1      w1/a    1      2026-03-02 14:05:02 (3 min ago)  DONE\n"
        "    risk   UNKNOWN  1      w2/b    2      2026-03-02 14:05:11 (3 min ago)  UNKNOWN "
        "TIMEOUT:"
        " no answer in 2 s\n"
        "    mail   PENDING  -      -       -      -                                -\n"
        "  waits    for a person, since 2026-03-02 14:05:11 (3 min ago)\n"
        "  next     sagactl resolve settlement s-17 --step risk --happened --evidence ...   (or "
        "--did-not-happen: look it up at the other side by its key; or sagactl cancel: turn "
        "back)\n");
}

static void test_a_saga_that_turned_back_tells_its_first_cause(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"namespace\":\"shop\",\"definition\":\"d\",\"sagaId\":\"o 1\",\"run\":2,"
           "\"state\":\"SAGA_STATE_COMPENSATING\",\"phase\":\"SAGA_STATE_COMPENSATING\","
           "\"stateTime\":\"2026-03-02T14:05:11Z\",\"deadlineTime\":\"2026-03-02T15:08:11Z\","
           "\"labels\":{\"a\":\"1\",\"b\":\"2\"},\"doubt\":true,"
           "\"cause\":{\"reason\":\"REFUSED\",\"step\":\"risk\",\"try\":2,\"time\":"
           "\"2026-03-02T14:05:11Z\",\"error\":{\"code\":\"LIMIT\",\"message\":\"too "
           "\\u001b[31mred\"}},"
           "\"waiting\":{\"kind\":\"WAIT_KIND_RETRY\",\"step\":\"debit\","
           "\"operation\":\"OPERATION_KIND_COMPENSATION\",\"untilTime\":\"2026-03-02T14:08:23Z\"}}",
           false, "unix:/run/my sock", &text);
    const char *out = buf_cstr(&text);
    assert_non_null(strstr(out, "shop/d o 1  (run 2,"));
    assert_non_null(strstr(out, "in doubt"));
    assert_non_null(strstr(out,
                           "  cause    REFUSED: a step was refused, step risk, try 2, LIMIT: too "
                           "?[31mred, 2026-03-02 14:05:11 (3 min ago)\n"));
    assert_non_null(strstr(out, "deadline 2026-03-02 15:08:11 (in 1 h)\n"));
    assert_non_null(strstr(out, "  labels   a=1, b=2\n"));
    assert_non_null(strstr(out,
                           "for the next try for the compensation of debit at 2026-03-02 14:08:23"
                           " (in 12 s)\n"));
    assert_non_null(
        strstr(out, "sagactl --address 'unix:/run/my sock' --namespace shop retry d 'o 1'"));
    buf_done(&text);
}

static void test_what_it_waits_for_and_until_when(void **state)
{
    (void)state;
    static const struct {
        const char *waiting, *waits, *next;
    } rows[] = {
        { "{\"kind\":\"WAIT_KIND_WORKER\",\"handler\":\"bank.debit\",\"step\":\"debit\"}",
          "a worker that serves bank.debit for debit: 0 workers connected serve it",
          "start a worker that serves bank.debit" },
        { "{\"kind\":\"WAIT_KIND_WORKER\",\"handler\":\"h\",\"workersConnected\":1}",
          "1 worker connected serves it", "are busy" },
        { "{\"kind\":\"WAIT_KIND_REPORT\",\"worker\":\"w1/x\",\"step\":\"risk\","
          "\"untilTime\":\"2026-03-02T14:08:41Z\"}",
          "the report of worker w1/x for risk, whose lease ends at 2026-03-02 14:08:41 (in 30 s)",
          "sagactl wait d k" },
        { "{\"kind\":\"WAIT_KIND_SETTLE\",\"step\":\"risk\",\"untilTime\":\"2026-03-02T14:10:"
          "11Z\"}",
          "still be on its way for risk until 2026-03-02 14:10:11 (in 2 min)", "sagactl wait d k" },
        { "{\"kind\":\"WAIT_KIND_RETRY\",\"step\":\"s\",\"untilTime\":\"2026-03-02T14:08:11Z\"}",
          "the next try for s at 2026-03-02 14:08:11 (0 s ago)", "sagactl retry d k" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf json = { 0 }, text = { 0 };
        buf_printf(
            &json,
            "{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","
            "\"state\":\"SAGA_STATE_RUNNING\",\"phase\":\"SAGA_STATE_RUNNING\",\"waiting\":%s}",
            rows[i].waiting);
        render(buf_cstr(&json), false, NULL, &text);
        if (!strstr(buf_cstr(&text), rows[i].waits) || !strstr(buf_cstr(&text), rows[i].next))
            fail_msg("row %zu: %s", i, buf_cstr(&text));
        buf_done(&json);
        buf_done(&text);
    }
}

static void advice_for(Saga__V1__ParkReason reason, Saga__V1__SagaState phase, struct buf *out)
{
    const struct where_view view = { NOW_MS, false, NULL };
    Saga__V1__Park park = SAGA__V1__PARK__INIT;
    Saga__V1__Waiting waiting = SAGA__V1__WAITING__INIT;
    Saga__V1__Saga saga = SAGA__V1__SAGA__INIT;
    park.reason = reason;
    waiting.kind = SAGA__V1__WAIT_KIND__WAIT_KIND_OPERATOR;
    saga.namespace_ = (char *)"default";
    saga.definition = (char *)"d";
    saga.saga_id = (char *)"k";
    saga.state = SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED;
    saga.phase = phase;
    saga.park = &park;
    saga.waiting = &waiting;
    where_write_advice(&saga, &view, out);
}

static void test_every_park_reason_has_words_and_an_advice_that_is_allowed(void **state)
{
    (void)state;
    const ProtobufCEnumDescriptor *type = &saga__v1__park_reason__descriptor;
    for (unsigned i = 1; i < type->n_values; i++) {
        Saga__V1__ParkReason reason = (Saga__V1__ParkReason)type->values[i].value;
        struct buf forward = { 0 }, backward = { 0 };
        advice_for(reason, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING, &forward);
        advice_for(reason, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING, &backward);
        assert_true(forward.size > 0 && backward.size > 0);
        /* A cancel is refused once it has turned back; a retry of an unknown is refused always. */
        assert_null(strstr(buf_cstr(&backward), "cancel"));
        if (reason == SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN) {
            assert_null(strstr(buf_cstr(&forward), "retry"));
            assert_null(strstr(buf_cstr(&backward), "retry"));
            assert_non_null(strstr(buf_cstr(&forward), "sagactl resolve d k"));
            assert_non_null(strstr(buf_cstr(&backward), "sagactl resolve d k"));
        }
        if (reason == SAGA__V1__PARK_REASON__PARK_REASON_RETRIES_EXHAUSTED)
            assert_non_null(strstr(buf_cstr(&forward), "sagactl retry d k"));
        buf_done(&forward);
        buf_done(&backward);
    }
}

static void test_an_ended_saga_asks_for_nothing(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","
           "\"state\":\"SAGA_STATE_SUCCEEDED\",\"phase\":\"SAGA_STATE_SUCCEEDED\","
           "\"startTime\":\"2026-03-02T14:05:11Z\",\"endTime\":\"2026-03-02T14:08:10Z\"}",
           false, NULL, &text);
    assert_null(strstr(buf_cstr(&text), "waits"));
    assert_null(strstr(buf_cstr(&text), "next"));
    assert_non_null(strstr(buf_cstr(&text), "ended 2026-03-02 14:08:10 (1 s ago)"));
    assert_null(strchr(buf_cstr(&text), '\033'));
    buf_done(&text);
}

static void test_colours_only_where_asked_for(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","
           "\"state\":\"SAGA_STATE_PARKED\",\"phase\":\"SAGA_STATE_RUNNING\"}",
           true, NULL, &text);
    assert_non_null(strstr(buf_cstr(&text), "\033[31mPARKED\033[0m"));
    buf_done(&text);
}

static void test_states_are_read_in_every_spelling(void **state)
{
    (void)state;
    Saga__V1__SagaState read = 0;
    assert_true(name_saga_state_read("parked", &read));
    assert_int_equal(read, SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED);
    assert_true(name_saga_state_read("SAGA_STATE_RUNNING", &read));
    assert_int_equal(read, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
    assert_false(name_saga_state_read("UNSPECIFIED", &read));
    assert_false(name_saga_state_read("stuck", &read));
}

int main(void)
{
    (void)setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_outcome_names_step_error_and_way_out),
        cmocka_unit_test(test_a_saga_that_turned_back_tells_its_first_cause),
        cmocka_unit_test(test_what_it_waits_for_and_until_when),
        cmocka_unit_test(test_every_park_reason_has_words_and_an_advice_that_is_allowed),
        cmocka_unit_test(test_an_ended_saga_asks_for_nothing),
        cmocka_unit_test(test_colours_only_where_asked_for),
        cmocka_unit_test(test_states_are_read_in_every_spelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
