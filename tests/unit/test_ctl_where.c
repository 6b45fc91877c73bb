/* Goal: `sagactl where` tells on one screen where a saga stands, what it waits for and what to do.
 * Method: sagas written as JSON, rendered at a fixed time in UTC, compared as text; every wait and
 * every reason to be parked swept for advice. */
#include "support/check.h"

#include "base/mem.h"
#include "ctl/names.h"
#include "ctl/people_text.h"
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
    const struct where_view view = { .now_ms = NOW_MS, .color = color, .address = address };
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

static void test_an_output_that_did_not_fit_says_where_it_is(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"definition\":\"d\",\"sagaId\":\"k\",\"namespace\":\"default\",\"steps\":[{\"name\":"
           "\"a\",\"outputBytesLeftOut\":\"1048576\"},{\"name\":\"b\",\"output\":\"Yg==\"}]}",
           false, NULL, &text);
    assert_non_null(strstr(buf_cstr(&text),
                           "  output   a: 1048576 bytes: sagactl history d k --full\n"
                           "           b: b\n"));
    buf_done(&text);
}

static void test_what_it_waits_for_and_until_when(void **state)
{
    (void)state;
    static const struct {
        const char *waiting, *waits, *next;
    } rows[] = {
        { "{\"kind\":\"WAIT_KIND_WORKER\",\"handler\":\"bank.debit\",\"step\":\"debit\"}",
          "a worker that serves bank.debit for debit: nobody serves it",
          "start a worker that serves bank.debit" },
        { "{\"kind\":\"WAIT_KIND_WORKER\",\"handler\":\"h\",\"servedBy\":[\"two\",\"three\"]}",
          "a worker that serves h: nobody serves it here, workers of two, three do",
          "sagactl wait d k   (a server that has workers for it takes it by itself)" },
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
        { "{\"kind\":\"WAIT_KIND_SIGNAL\",\"step\":\"s\",\"signal\":\"confirmed\","
          "\"untilTime\":\"2026-03-02T14:08:41Z\"}",
          "the signal confirmed for s, given up at 2026-03-02 14:08:41 (in 30 s)",
          "sagactl signal d k confirmed --id ..." },
        { "{\"kind\":\"WAIT_KIND_DELAY\",\"step\":\"s\",\"untilTime\":\"2026-03-02T14:08:41Z\"}",
          "the end of the delay for s at 2026-03-02 14:08:41 (in 30 s)", "sagactl wait d k" },
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

#define PAYLOADS                                                                                   \
    "{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","                            \
    "\"startTime\":\"2026-03-02T14:05:11Z\",\"startAtTime\":\"2026-03-02T14:08:41Z\","             \
    "\"state\":\"SAGA_STATE_RUNNING\",\"input\":\"eyJhIjogMTJ9\",\"steps\":["                      \
    "{\"name\":\"a\",\"output\":\"AAEC\"},{\"name\":\"b\"},{\"name\":\"c\",\"output\":\"b2s=\"}]}"

/* Of a revision that says no types; test_revision_types has the others. */
static void test_input_and_outputs_are_shown_and_long_ones_cut(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render(PAYLOADS, false, NULL, &text);
    const char *input = strstr(buf_cstr(&text), "  input    {\"a\": 12}\n    STEP");
    const char *outputs = strstr(buf_cstr(&text), "  output   a: base64 AAEC\n           c: ok\n");
    if (!input || !outputs || input > outputs || strstr(buf_cstr(&text), "--full") ||
        !strstr(buf_cstr(&text), ", to begin at 2026-03-02 14:08:41 (in 30 s)\n"))
        fail_msg("%s", buf_cstr(&text));
    buf_done(&text);
    const struct where_view view = { .now_ms = NOW_MS, .payload_max = 5 };
    Saga__V1__Saga *saga = saga_from(PAYLOADS);
    where_write(saga, &view, &text);
    saga__v1__saga__free_unpacked(saga, NULL);
    if (!strstr(buf_cstr(&text), "  input    {\"a\":... (9 bytes)\n") ||
        !strstr(buf_cstr(&text), "           c: ok\n  cut      sagactl get d k --full   ("))
        fail_msg("%s", buf_cstr(&text));
    buf_done(&text);
}

static void test_a_cancel_that_waits_for_the_pivot(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","
           "\"state\":\"SAGA_STATE_RUNNING\",\"phase\":\"SAGA_STATE_RUNNING\",\"pending\":"
           "{\"reason\":\"CANCELLED\",\"step\":\"pay\",\"actor\":\"anna\","
           "\"time\":\"2026-03-02T14:05:11Z\"}}",
           false, NULL, &text);
    if (!strstr(buf_cstr(&text),
                "  pending  CANCELLED: turns back if step pay, the pivot, turns out to"
                " have had no effect, by anna"))
        fail_msg("%s", buf_cstr(&text));
    buf_done(&text);
}

/* What is known: who had it, how it ended, what may still come, what the probes said. */
static void test_an_unknown_outcome_tells_all_that_is_known_and_how_to_settle_it(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"namespace\":\"default\",\"definition\":\"order\",\"sagaId\":\"o-1\",\"run\":1,"
           "\"state\":\"SAGA_STATE_RUNNING\",\"phase\":\"SAGA_STATE_RUNNING\","
           "\"steps\":[{\"name\":\"ship\",\"state\":\"STEP_STATE_UNKNOWN\",\"tries\":2,"
           "\"operation\":\"OPERATION_KIND_ACTION\",\"idempotencyKey\":\"0123abcd\","
           "\"nextTime\":\"2026-03-02T14:08:41Z\",\"unknown\":{"
           "\"operation\":\"OPERATION_KIND_ACTION\",\"attempts\":2,\"worker\":\"w2/b\","
           "\"fence\":\"7\",\"leaseTime\":\"2026-03-02T14:05:11Z\","
           "\"endTime\":\"2026-03-02T14:06:11Z\",\"outcome\":\"OUTCOME_UNKNOWN\","
           "\"error\":{\"code\":\"TIMEOUT\",\"message\":\"no answer\"},"
           "\"settleTime\":\"2026-03-02T14:10:11Z\",\"sendBefore\":\"2026-03-02T15:08:11Z\","
           "\"probes\":3,\"lastProbe\":\"OUTCOME_STILL_UNKNOWN\","
           "\"lastProbeError\":{\"code\":\"BUSY\"},"
           "\"lastProbeTime\":\"2026-03-02T14:07:11Z\",\"effect\":\"EFFECT_IDEMPOTENT\"}}],"
           "\"waiting\":{\"kind\":\"WAIT_KIND_RETRY\",\"step\":\"ship\","
           "\"operation\":\"OPERATION_KIND_PROBE\",\"untilTime\":\"2026-03-02T14:08:41Z\"}}",
           false, NULL, &text);
    static const char *const parts[] = {
        "  unknown  the action of ship may have taken effect, in each of 2 attempts\n"
        "           attempt  lease with fence 7 given to w2/b 2026-03-02 14:05:11 (3 min ago),\n"
        "                    ended 2026-03-02 14:06:11 (2 min ago): UNKNOWN TIMEOUT: no answer\n"
        "           class    IDEMPOTENT: repeated with the same key, as long as the other side"
        " remembers it\n"
        "           settled  a request may still be on its way until 2026-03-02 14:10:11 (in 2"
        " min)\n"
        "           window   nothing is sent with its key after 2026-03-02 15:08:11 (in 1 h)\n"
        "           probes   3 asked; the last one said STILL_UNKNOWN BUSY, 2026-03-02 14:07:11 (1"
        " min ago); the next one 2026-03-02 14:08:41 (in 30 s)\n"
        "           key      0123abcd\n"
        "           settle   sagactl resolve order o-1 --step ship --happened --fence 7 --evidence"
        " ...\n"
        "           or       sagactl resolve order o-1 --step ship --did-not-happen --fence 7"
        " --evidence ...\n",
        "for the next try for the probe of ship at 2026-03-02 14:08:41 (in 30 s)\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (!strstr(buf_cstr(&text), parts[i]))
            fail_msg("part %zu is not in:\n%s", i, buf_cstr(&text));
    buf_done(&text);
}

/* What the words of an unknown outcome depend on. */
static void test_an_unknown_outcome_says_what_its_class_and_its_times_mean(void **state)
{
    (void)state;
    static const struct {
        const char *step, *unknown, *part, *absent;
    } rows[] = {
        { "\"state\":\"STEP_STATE_UNKNOWN\"",
          "\"effect\":\"EFFECT_PROBED\",\"settleTime\":\"2026-03-02T14:08:01Z\"",
          "no request can be on its way any more since 2026-03-02 14:08:01 (10 s ago)", "window" },
        { "\"state\":\"STEP_STATE_UNKNOWN\"", "\"effect\":\"EFFECT_PROBED\"",
          "PROBED: not repeated before a probe has found out", "probes" },
        { "\"state\":\"STEP_STATE_UNKNOWN\"", "\"effect\":\"EFFECT_AT_MOST_ONCE\"",
          "AT_MOST_ONCE: never repeated by itself", "settled" },
        { "\"state\":\"STEP_STATE_UNKNOWN\"",
          "\"effect\":\"EFFECT_IDEMPOTENT\",\"sendBefore\":\"2026-03-02T14:08:01Z\"",
          "may have forgotten the key: nothing is sent since 2026-03-02 14:08:01", "probes" },
        { "\"state\":\"STEP_STATE_UNCONFIRMED\"", "\"effect\":\"EFFECT_AT_MOST_ONCE\"",
          "may have taken effect; the saga went on with the step unconfirmed\n", "doubt    " },
        { "\"state\":\"STEP_STATE_LEASED\"", "\"effect\":\"EFFECT_IDEMPOTENT\"",
          "it may be repeated with the same key", "resolve" }, /* refused while it is live */
        { "\"state\":\"STEP_STATE_COMPENSATION_UNKNOWN\"",
          "\"operation\":\"OPERATION_KIND_COMPENSATION\"",
          "--step s --compensation --happened --evidence", "action of" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf json = { 0 }, text = { 0 };
        buf_printf(&json,
                   "{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","
                   "\"doubt\":true,\"state\":\"SAGA_STATE_RUNNING\","
                   "\"phase\":\"SAGA_STATE_RUNNING\",\"park\":{\"step\":\"s\"},"
                   "\"steps\":[{\"name\":\"s\",%s,\"unknown\":{%s}},"
                   "{\"name\":\"t\",\"state\":\"STEP_STATE_UNCONFIRMED\",\"unknown\":{}}]}",
                   rows[i].step, rows[i].unknown);
        render(buf_cstr(&json), false, NULL, &text);
        char *second = strstr(buf_cstr(&text), "the action of t"); /* of s alone */
        assert_non_null(second);
        *second = '\0';
        if (!strstr(buf_cstr(&text), rows[i].part) || strstr(buf_cstr(&text), rows[i].absent))
            fail_msg("row %zu: %s", i, buf_cstr(&text));
        buf_done(&json);
        buf_done(&text);
    }
}

/* Those that wait for their turn are named; the one that it stands at is told in full. */
static void test_what_may_have_run_before_is_named(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","
           "\"state\":\"SAGA_STATE_PARKED\",\"phase\":\"SAGA_STATE_RUNNING\","
           "\"steps\":[{\"name\":\"a\",\"state\":\"STEP_STATE_DONE\"},"
           "{\"name\":\"b\",\"state\":\"STEP_STATE_UNKNOWN\",\"suspect\":true,\"unknown\":"
           "{\"attempts\":1,\"leaseTime\":\"2026-03-02T14:05:11Z\"}},"
           "{\"name\":\"c\",\"state\":\"STEP_STATE_PENDING\",\"suspect\":true,\"unknown\":{}},"
           "{\"name\":\"e\",\"state\":\"STEP_STATE_PENDING\",\"suspect\":true,\"unknown\":{}}"
           "]}",
           false, NULL, &text);
    static const char *const parts[] = {
        "  unknown  the action of b may have taken effect\n"
        "           attempt  none of this saga's: it may have run before sagad took over, since "
        "2026-03-02 14:05:11 (3 min ago)\n",
        "--step b --did-not-happen --evidence",
        "  suspect  may have run before sagad took over: c, e\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (!strstr(buf_cstr(&text), parts[i]))
            fail_msg("part %zu is not in:\n%s", i, buf_cstr(&text));
    assert_null(strstr(buf_cstr(&text), "the action of c"));
    buf_done(&text);
}

static void test_what_is_in_doubt_names_the_command_that_clears_it(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\",\"doubt\":true,"
           "\"state\":\"SAGA_STATE_COMPENSATED\",\"phase\":\"SAGA_STATE_COMPENSATED\","
           "\"steps\":[{\"name\":\"debit\",\"state\":\"STEP_STATE_COMPENSATION_SKIPPED\"}]}",
           false, NULL, &text);
    assert_non_null(strstr(buf_cstr(&text), "state    COMPENSATED since -, in doubt\n"));
    assert_non_null(strstr(buf_cstr(&text),
                           "  doubt    the compensation of debit was skipped: was it taken back by"
                           " hand?\n"
                           "           settle   sagactl resolve d k --step debit --compensation"
                           " --happened --evidence ...\n"
                           "           or       sagactl resolve d k --step debit --compensation"
                           " --did-not-happen --evidence ...\n"));
    buf_done(&text);
    render("{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\",\"doubt\":true,"
           "\"state\":\"SAGA_STATE_SUCCEEDED\",\"phase\":\"SAGA_STATE_SUCCEEDED\"}",
           false, NULL, &text);
    assert_non_null(strstr(buf_cstr(&text), "sagactl history d k\n"));
    assert_non_null(strstr(buf_cstr(&text), "sagactl resolve d k --step STEP --happened"));
    buf_done(&text);
}

static void test_a_suspended_saga_says_why_and_how_it_goes_on(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","
           "\"state\":\"SAGA_STATE_PARKED\",\"phase\":\"SAGA_STATE_RUNNING\","
           "\"park\":{\"reason\":\"PARK_REASON_SUSPENDED\",\"error\":{\"code\":\"SUSPENDED\","
           "\"message\":\"bank is down\"}},\"waiting\":{\"kind\":\"WAIT_KIND_OPERATOR\"}}",
           false, NULL, &text);
    assert_non_null(strstr(buf_cstr(&text), "  parked   SUSPENDED: a person stopped it for now\n"
                                            "           because: bank is down\n"));
    assert_non_null(strstr(buf_cstr(&text), "  next     sagactl resume d k   (go on"));
    buf_done(&text);
}

static void render_parked(const char *json, struct buf *out)
{
    const struct where_view view = { .now_ms = NOW_MS, .address = "h:1" };
    ProtobufCMessage *message;
    struct err err;
    ASSERT_OK(wire_json_decode(json, strlen(json), &saga__v1__list_parked_response__descriptor,
                               &message, &err),
              &err);
    parked_write((Saga__V1__ListParkedResponse *)message, &view, out);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void test_parked_groups_are_a_table_with_the_command_of_the_oldest(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render_parked("{\"groups\":[{\"namespace\":\"default\",\"definition\":\"d\","
                  "\"step\":\"risk\",\"reason\":\"PARK_REASON_OUTCOME_UNKNOWN\","
                  "\"errorCode\":\"TIMEOUT\",\"count\":\"12\",\"oldestSagaId\":\"k 1\","
                  "\"oldestTime\":\"2026-03-02T14:05:11Z\",\"phase\":\"SAGA_STATE_RUNNING\"},"
                  "{\"namespace\":\"shop\",\"definition\":\"e\",\"step\":\"debit\","
                  "\"reason\":\"PARK_REASON_COMPENSATION_FAILED\",\"count\":\"1\","
                  "\"oldestSagaId\":\"k2\",\"oldestTime\":\"2026-03-02T14:06:11Z\","
                  "\"phase\":\"SAGA_STATE_COMPENSATING\"},"
                  "{\"namespace\":\"default\",\"definition\":\"f\","
                  "\"reason\":\"PARK_REASON_SUSPENDED\",\"errorCode\":\"SUSPENDED\","
                  "\"count\":\"2\",\"oldestSagaId\":\"k3\",\"phase\":\"SAGA_STATE_RUNNING\","
                  "\"oldestTime\":\"2026-03-02T14:07:11Z\"}],\"parked\":\"15\"}",
                  &text);
    static const char *const parts[] = {
        "COUNT  OLDEST  SINCE ",
        "12     k 1     2026-03-02 14:05:11 (3 min ago)  d           risk                   "
        "OUTCOME_UNKNOWN      TIMEOUT    sagactl --address h:1 resolve d 'k 1' --step risk"
        " --happened --evidence ...\n",
        "shop/e      compensation of debit  COMPENSATION_FAILED  -          sagactl --address h:1"
        " --namespace shop retry e k2\n",
        "f           -                      SUSPENDED            SUSPENDED  sagactl --address h:1"
        " resume f k3\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (!strstr(buf_cstr(&text), parts[i]))
            fail_msg("part %zu is not in:\n%s", i, buf_cstr(&text));
    buf_done(&text);
    render_parked("{}", &text);
    assert_int_equal(text.size, 0);
    buf_done(&text);
}

static void test_the_guard_floor_names_its_holder_and_the_statements(void **state)
{
    (void)state;
    const struct where_view view = { .now_ms = NOW_MS };
    Saga__V1__GetGuardFloorResponse floor = SAGA__V1__GET_GUARD_FLOOR_RESPONSE__INIT;
    Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Google__Protobuf__Timestamp started = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Saga__V1__SagaRef oldest = SAGA__V1__SAGA_REF__INIT;
    struct buf text = { 0 };
    time.seconds = NOW_MS / 1000 - 3720;
    time.nanos = 45000000;
    floor.floor = &time;
    guard_floor_write(&floor, &view, &text);
    assert_memory_equal(buf_cstr(&text),
                        "2026-03-02T13:06:11.045Z\n  no saga is open: it is now, less the margin\n",
                        71);
    assert_non_null(strstr(buf_cstr(&text),
                           "  SELECT saga_guard.raise_floor('2026-03-02 13:06:11.045+00');\n"
                           "  SELECT saga_guard.purge(10000);\n"));
    assert_non_null(strstr(buf_cstr(&text), "GREATEST(floor_us, 1772456771045000);\n"));
    buf_done(&text);
    started.seconds = NOW_MS / 1000 - 120;
    oldest.namespace_ = (char *)"shop";
    oldest.definition = (char *)"d";
    oldest.saga_id = (char *)"k";
    oldest.uid = (char *)"0190";
    oldest.run = 2;
    floor.oldest = &oldest;
    floor.oldest_start_time = &started;
    guard_floor_write(&floor, &view, &text);
    assert_non_null(strstr(buf_cstr(&text),
                           "  held down by d k (run 2, 0190), which is open since 2026-03-02"
                           " 14:06:11 (2 min ago)\n  sagactl --namespace shop get d k\n"));
    buf_done(&text);
}

static void advice_for(Saga__V1__ParkReason reason, Saga__V1__SagaState phase, bool past_pivot,
                       struct buf *out)
{
    const struct where_view view = { .now_ms = NOW_MS };
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
    saga.past_pivot = past_pivot;
    where_write_advice(&saga, &view, out);
}

static void test_every_park_reason_has_words_and_an_advice_that_is_allowed(void **state)
{
    (void)state;
    const ProtobufCEnumDescriptor *type = &saga__v1__park_reason__descriptor;
    for (unsigned i = 1; i < type->n_values; i++) {
        Saga__V1__ParkReason reason = (Saga__V1__ParkReason)type->values[i].value;
        struct buf forward = { 0 }, backward = { 0 }, past = { 0 };
        advice_for(reason, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING, false, &forward);
        advice_for(reason, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING, true, &past);
        advice_for(reason, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING, false, &backward);
        assert_true(forward.size > 0 && backward.size > 0);
        /* A cancel is refused once it has turned back; a retry of an unknown is refused always. */
        assert_null(strstr(buf_cstr(&backward), "cancel"));
        assert_true(past.size > 0); /* and once the pivot is done */
        assert_null(strstr(buf_cstr(&past), "cancel"));
        if (reason == SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN) {
            assert_null(strstr(buf_cstr(&forward), "retry"));
            assert_null(strstr(buf_cstr(&backward), "retry"));
            assert_non_null(strstr(buf_cstr(&forward), "sagactl resolve d k"));
            assert_non_null(strstr(buf_cstr(&backward), "sagactl resolve d k"));
        }
        if (reason == SAGA__V1__PARK_REASON__PARK_REASON_SUSPENDED) {
            assert_non_null(strstr(buf_cstr(&forward), "sagactl resume d k"));
            assert_non_null(strstr(buf_cstr(&backward), "sagactl resume d k"));
        }
        if (reason == SAGA__V1__PARK_REASON__PARK_REASON_RETRIES_EXHAUSTED)
            assert_non_null(strstr(buf_cstr(&forward), "sagactl retry d k"));
        buf_done(&forward);
        buf_done(&backward);
        buf_done(&past);
    }
}

/* No worker failed: what is said of a spent budget would mislead. */
static void test_a_signal_that_did_not_come(void **state)
{
    (void)state;
    struct buf text = { 0 };
    render("{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","
           "\"state\":\"SAGA_STATE_PARKED\",\"phase\":\"SAGA_STATE_RUNNING\","
           "\"park\":{\"reason\":\"PARK_REASON_RETRIES_EXHAUSTED\",\"step\":\"callback\","
           "\"error\":{\"code\":\"NO_SIGNAL\",\"message\":\"signal\"}},"
           "\"waiting\":{\"kind\":\"WAIT_KIND_OPERATOR\",\"step\":\"callback\"}}",
           false, NULL, &text);
    assert_non_null(strstr(buf_cstr(&text), "what the step waits for did not come in time"));
    assert_non_null(strstr(buf_cstr(&text), "sagactl retry d k   (wait for it anew; when the signal"
                                            " comes, it goes on by itself; or sagactl cancel"));
    assert_null(strstr(buf_cstr(&text), "budget"));
    buf_done(&text);
    render("{\"namespace\":\"default\",\"definition\":\"d\",\"sagaId\":\"k\","
           "\"state\":\"SAGA_STATE_COMPENSATING\",\"phase\":\"SAGA_STATE_COMPENSATING\","
           "\"cause\":{\"reason\":\"START_TIMEOUT\",\"step\":\"callback\","
           "\"error\":{\"code\":\"NO_SIGNAL\",\"message\":\"signal\"}}}",
           false, NULL, &text);
    assert_non_null(strstr(buf_cstr(&text), "what a step waits for did not come in time"));
    assert_null(strstr(buf_cstr(&text), "worker"));
    buf_done(&text);
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
        cmocka_unit_test(test_an_output_that_did_not_fit_says_where_it_is),
        cmocka_unit_test(test_what_it_waits_for_and_until_when),
        cmocka_unit_test(test_input_and_outputs_are_shown_and_long_ones_cut),
        cmocka_unit_test(test_a_cancel_that_waits_for_the_pivot),
        cmocka_unit_test(test_an_unknown_outcome_tells_all_that_is_known_and_how_to_settle_it),
        cmocka_unit_test(test_an_unknown_outcome_says_what_its_class_and_its_times_mean),
        cmocka_unit_test(test_what_may_have_run_before_is_named),
        cmocka_unit_test(test_what_is_in_doubt_names_the_command_that_clears_it),
        cmocka_unit_test(test_a_suspended_saga_says_why_and_how_it_goes_on),
        cmocka_unit_test(test_parked_groups_are_a_table_with_the_command_of_the_oldest),
        cmocka_unit_test(test_the_guard_floor_names_its_holder_and_the_statements),
        cmocka_unit_test(test_every_park_reason_has_words_and_an_advice_that_is_allowed),
        cmocka_unit_test(test_a_signal_that_did_not_come),
        cmocka_unit_test(test_an_ended_saga_asks_for_nothing),
        cmocka_unit_test(test_colours_only_where_asked_for),
        cmocka_unit_test(test_states_are_read_in_every_spelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
