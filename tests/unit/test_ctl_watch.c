/* Goal: `sagactl watch` shows all of a saga once, then each line that has changed and no other.
 * Method: sagas written as JSON, rendered at a fixed time in UTC, compared as text. */
#include "support/check.h"

#include "ctl/watch_text.h"
#include "wire/json.h"

#include <string.h>
#include <time.h>

/* 2026-03-02T14:08:15Z, three minutes after things happened. */
#define NOW_MS INT64_C(1772460495000)

#define SAGA(state, debit, risk, more)                                                             \
    "{\"definition\":\"pay\",\"sagaId\":\"s-1\",\"namespace\":\"default\",\"run\":1,\"revision\":" \
    "2,\"state\":\"SAGA_STATE_" state "\",\"phase\":\"SAGA_STATE_RUNNING\",\"stateTime\":"         \
    "\"2026-03-02T14:05:11Z\",\"steps\":[{\"name\":\"debit\",\"state\":\"STEP_STATE_" debit        \
    "},{\"name\":\"risk\",\"state\":\"STEP_STATE_" risk "}]" more "}"
#define LEASED                                                                                     \
    "LEASED\",\"tries\":1,\"worker\":\"w1/a\",\"stateTime\":\"2026-03-02T14:05:12Z\"," LEASE_END
#define LEASE_END "\"leaseUntilTime\":\"2026-03-02T14:09:12Z\""
#define DONE                                                                                       \
    "DONE\",\"tries\":1,\"worker\":\"w1/a\",\"stateTime\":\"2026-03-02T14:05:13Z\","               \
    "\"lastOutcome\":\"OUTCOME_DONE\""
#define BACKOFF                                                                                    \
    "BACKOFF\",\"tries\":2,\"worker\":\"w\\u001bx/b\",\"stateTime\":\"2026-03-02T14:05:14Z\","     \
    "\"nextTime\":\"2026-03-02T14:08:23Z\",\"lastOutcome\":\"OUTCOME_RETRY\",\"lastError\":"       \
    "{\"code\":\"BUSY\",\"message\":\"sleeps\"}"
#define SINCE " since 2026-03-02 14:05:"
#define AGO   " (3 min ago)"

static Saga__V1__Saga *saga_from(const char *json)
{
    struct err err;
    ProtobufCMessage *message;
    ASSERT_OK(wire_json_decode(json, strlen(json), &saga__v1__saga__descriptor, &message, &err),
              &err);
    return (Saga__V1__Saga *)message;
}

static void assert_shows(const char *before, const char *now, const char *expected)
{
    const struct where_view view = { .now_ms = NOW_MS };
    CLEANUP(buf_done) struct buf text = { 0 };
    Saga__V1__Saga *old = before ? saga_from(before) : NULL, *saga = saga_from(now);
    watch_write(old, saga, &view, &text);
    assert_false(text.failed);
    assert_string_equal(buf_cstr(&text), expected);
    saga__v1__saga__free_unpacked(saga, NULL);
    if (old)
        saga__v1__saga__free_unpacked(old, NULL);
}

static void test_the_first_look_shows_all_of_it(void **state)
{
    (void)state;
    assert_shows(NULL, SAGA("RUNNING", LEASED, "PENDING\"", ""),
                 "pay s-1  (run 1, revision 2, )\n"
                 "  step     debit LEASED, try 1, by w1/a," SINCE "12" AGO "\n"
                 "  step     risk PENDING\n"
                 "  state    RUNNING" SINCE "11" AGO "\n");
}

static void test_then_what_is_new(void **state)
{
    (void)state;
    static const char first[] = SAGA("RUNNING", LEASED, "PENDING\"", "");
    static const char second[] = SAGA("RUNNING", DONE, BACKOFF, "");
    assert_shows(first, first, "");
    assert_shows(first, second,
                 "  step     debit DONE, try 1, by w1/a," SINCE "13" AGO ": DONE\n"
                 "  step     risk BACKOFF, try 2, by w?x/b," SINCE "14" AGO
                 ", next at 2026-03-02 14:08:23 (in 8 s): RETRY BUSY: sleeps\n");
    assert_shows(second,
                 SAGA("PARKED", DONE, BACKOFF,
                      ",\"park\":{\"reason\":\"PARK_REASON_SUSPENDED\"},"
                      "\"waiting\":{\"kind\":\"WAIT_KIND_OPERATOR\"}"),
                 "  state    PARKED while RUNNING" SINCE "11" AGO "\n"
                 "  parked   SUSPENDED: a person stopped it for now\n"
                 "  waits    for a person\n");
}

/* What is not there any more has no line. */
static void test_what_it_waited_for_goes_without_a_word(void **state)
{
    (void)state;
    assert_shows(SAGA("RUNNING", DONE, "READY\"",
                      ",\"waiting\":{\"kind\":\"WAIT_KIND_WORKER\",\"handler\":\"risk\"}"),
                 SAGA("SUCCEEDED", DONE, DONE, ""),
                 "  step     risk DONE, try 1, by w1/a," SINCE "13" AGO ": DONE\n"
                 "  state    SUCCEEDED" SINCE "11" AGO "\n");
}

int main(void)
{
    (void)setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_look_shows_all_of_it),
        cmocka_unit_test(test_then_what_is_new),
        cmocka_unit_test(test_what_it_waited_for_goes_without_a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
