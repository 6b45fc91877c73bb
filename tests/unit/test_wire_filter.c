/* Goal: a filter means what it says, and one that cannot be meant is refused with its column and
 * what is allowed there. Method: a table of filters with what becomes of each, written out; each
 * field with each sign. */
#include "support/check.h"

#include "base/buf.h"
#include "wire/filter.h"

#include <inttypes.h>
#include <string.h>

static void write_text(struct buf *out, const char *name, const char *value)
{
    if (value)
        buf_printf(out, "%s=%s ", name, value);
}

static void write_span(struct buf *out, const char *name, const struct span *span)
{
    if (span->has_from)
        buf_printf(out, "%s>=%" PRId64 " ", name, span->from);
    if (span->has_to)
        buf_printf(out, "%s<%" PRId64 " ", name, span->to);
}

static void write_filter(struct buf *out, const struct saga_filter *filter)
{
    write_text(out, "namespace", filter->namespace_);
    write_text(out, "definition", filter->definition);
    write_text(out, "id", filter->saga_id);
    write_text(out, "prefix", filter->saga_id_prefix);
    write_span(out, "revision", &filter->revision);
    for (int i = 0; i < SAGA_STATE_COUNT; i++)
        if (filter->not_states[i])
            buf_printf(out, "-%s ", saga_state_name((enum saga_state)i));
    for (int i = 0; i < PARK_REASON_COUNT; i++)
        if (!filter->not_reasons[i] && saga_filter_wants_parked(filter))
            buf_printf(out, "+%s ", i ? park_reason_name((enum park_reason)i) : "any");
    write_text(out, "step", filter->park_step);
    write_text(out, "code", filter->park_code);
    for (size_t i = 0; i < filter->label_count; i++)
        buf_printf(out, "label %s=%s ", filter->labels[i].key, filter->labels[i].value);
    if (filter->has_doubt)
        buf_text(out, filter->doubt ? "doubt " : "no doubt ");
    write_span(out, "started", &filter->started_us);
    write_span(out, "updated", &filter->updated_us);
    write_span(out, "ended", &filter->ended_us);
    write_text(out, "effect of", filter->step);
    if (filter->has_operation)
        write_text(out, "operation", operation_name(filter->operation));
    write_span(out, "dispatched", &filter->dispatched);
    write_span(out, "sure", &filter->sure);
    write_span(out, "possible", &filter->possible);
    write_span(out, "first", &filter->first_us);
    write_span(out, "last", &filter->last_us);
    if (out->size)
        out->size--; /* the last space */
}

static void check_filter(const char *text, enum filter_scope scope, const char *expected)
{
    CLEANUP(buf_done) struct buf got = { 0 };
    struct saga_filter filter = { 0 };
    struct arena arena = { 0 };
    struct err err;
    int rc = filter_parse(text, scope, &arena, &filter, &err);
    if (rc) {
        assert_int_equal(rc, ERR_INVALID);
        assert_string_equal(err.field, "filter");
        buf_text(&got, err.msg);
    } else {
        write_filter(&got, &filter);
        buf_append(&got, "", 1);
    }
    if (strcmp(buf_cstr(&got), expected) != 0)
        fail_msg("%s\n  is:        %s\n  should be: %s", text, buf_cstr(&got), expected);
    arena_done(&arena);
}

#define ALL_FIELDS                                                                                 \
    "must be one of namespace, definition, revision, saga_id, state, park.reason, park.step,"      \
    " park.error.code, labels.KEY, doubt, start_time, update_time, end_time"
#define JOINED "comparisons are joined by AND; there is no OR, NOT or bracket"

static const struct {
    const char *text, *expected;
} cases[] = {
    { "", "" },
    { " \t\n", "" },
    { "definition = settlement", "definition=settlement" },
    { "definition=settlement", "definition=settlement" },
    { "  namespace = 'a b'  AND\n definition = \"x\\\"y\\\\\"", "namespace=a b definition=x\"y\\" },
    { "saga_id = S-1", "id=S-1" },
    { "saga_id = S-1*", "prefix=S-1" },
    { "saga_id = \"S-1*\"", "prefix=S-1" },
    { "saga_id = \"S-1\\*\"", "id=S-1*" },
    { "saga_id = \"S*1\"", "id=S*1" },
    { "definition = a*", "definition=a*" },
    { "revision = 3", "revision>=3 revision<4" },
    { "revision > 3 AND revision <= 7", "revision>=4 revision<8" },
    { "revision >= 3 AND revision > 5 AND revision < 9 AND revision <= 9",
      "revision>=6 revision<9" },
    { "state = PARKED", "-RUNNING -COMPENSATING -SUCCEEDED -COMPENSATED -ABANDONED" },
    { "state != SUCCEEDED AND state != ABANDONED", "-SUCCEEDED -ABANDONED" },
    { "state = PARKED AND state = RUNNING",
      "-RUNNING -COMPENSATING -PARKED -SUCCEEDED -COMPENSATED -ABANDONED" },
    { "park.reason = OUTCOME_UNKNOWN", "+OUTCOME_UNKNOWN" },
    { "park.reason != SUSPENDED AND park.reason != FOREIGN_EFFECT",
      "+OUTCOME_UNKNOWN +IDEMPOTENCY_WINDOW_OVER +RETRIES_EXHAUSTED +COMPENSATION_FAILED"
      " +REJECTED_AFTER_PIVOT +DEADLINE_EXCEEDED +LATE_EFFECT +WORKER_KILLER +LIMIT_REACHED" },
    { "park.step = debit AND park.error.code = \"no limit\"",
      "+any +OUTCOME_UNKNOWN +IDEMPOTENCY_WINDOW_OVER +RETRIES_EXHAUSTED +COMPENSATION_FAILED"
      " +REJECTED_AFTER_PIVOT +DEADLINE_EXCEEDED +FOREIGN_EFFECT +LATE_EFFECT +WORKER_KILLER"
      " +LIMIT_REACHED +SUSPENDED step=debit code=no limit" },
    { "labels.account = A-77 AND labels.\"the key\" = 'v'", "label account=A-77 label the key=v" },
    { "labels.a.b = c", "label a.b=c" },
    { "doubt = true", "doubt" },
    { "doubt=false", "no doubt" },
    { "start_time >= \"1970-01-01T00:00:01Z\" AND start_time < 1970-01-01T00:00:02.5Z",
      "started>=1000000 started<2500000" },
    { "update_time > \"1970-01-01T00:00:01Z\" AND end_time <= \"1970-01-01T01:00:01+01:00\"",
      "updated>=1000001 ended<1000001" },

    { "stat = PARKED", "filter: column 1: stat: " ALL_FIELDS },
    { "possible > 1", "filter: column 1: possible: " ALL_FIELDS },
    { "definition = a AND = b", "filter: column 20: =: " ALL_FIELDS },
    { "definition = \xc3\xa4\xc3\xb6 AND x = 1", "filter: column 21: x: " ALL_FIELDS },
    { "a_field_whose_name_is_longer_than_what_is_shown_here = 1",
      "filter: column 1: a_field_whose_name_is_longer_than_what_i...: " ALL_FIELDS },
    { "definition", "filter: column 11: the end: definition is compared with =" },
    { "definition > a", "filter: column 12: >: definition is compared with =" },
    { "definition != a", "filter: column 12: !=: definition is compared with =" },
    { "definition : a", "filter: column 12: :: definition is compared with =" },
    { "state < PARKED", "filter: column 7: <: state is compared with = or !=" },
    { "revision != 1", "filter: column 10: !=: revision is compared with =, <, <=, > or >=" },
    { "definition =", "filter: column 13: the end: a value is missing here" },
    { "definition = (a)", "filter: column 14: (a): a value is missing here" },
    { "definition = \"a", "filter: column 14: the quote is not closed" },
    { "definition = 'a\\'", "filter: column 14: the quote is not closed" },
    { "definition = ''", "filter: column 14: definition: 1 to 128 bytes, not 0" },
    { "namespace = a\xc2\x85z", "filter: column 13: namespace: has no control characters" },
    { "saga_id = *", "filter: column 11: saga_id: 1 to 256 bytes, not 0" },
    { "labels.'' = a", "filter: column 8: a label's key: 1 to 64 bytes, not 0" },
    { "labels. = a", "filter: column 8: the end: a value is missing here" },
    { "labels.a = ''", "filter: column 12: a label: 1 to 64 bytes, not 0" },
    { "labels.a = "
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
      "filter: column 12: a label: 1 to 64 bytes, not 65" },
    { "labels.a = 1 AND labels.b = 1 AND labels.c = 1 AND labels.d = 1 AND labels.e = 1",
      "filter: column 69: labels: a saga has at most 4" },
    { "labels.a = 1 AND labels.a = 2", "filter: column 18: labels.a has a value already" },
    { "definition = a AND definition = b", "filter: column 20: definition has a value already" },
    { "saga_id = a AND saga_id = b*", "filter: column 17: saga_id has a value already" },
    { "doubt = true AND doubt = false", "filter: column 18: doubt has a value already" },
    { "doubt = yes", "filter: column 9: yes: doubt must be true or false" },
    { "revision = -1", "filter: column 12: -1: revision must be a whole number from 0 on" },
    { "revision = ''", "filter: column 12: '': revision must be a whole number from 0 on" },
    { "revision = 12345678901",
      "filter: column 12: 12345678901: revision must be a whole number from 0 on" },
    { "state = DONE", "filter: column 9: DONE: state must be RUNNING, COMPENSATING, PARKED,"
                      " SUCCEEDED, COMPENSATED or ABANDONED" },
    { "start_time > 22:00", "filter: column 14: 22:00: start_time must be an RFC 3339 time such as"
                            " \"2026-11-30T22:00:00Z\"" },
    { "definition = a OR definition = b", "filter: column 16: OR: " JOINED },
    { "definition = a ANDx", "filter: column 16: ANDx: " JOINED },
    { "definition = a, definition = b", "filter: column 15: ,: " JOINED },
    { "(definition = a)", "filter: column 1: (definition: " ALL_FIELDS },
    { "definition = a AND ", "filter: column 20: a comparison is missing behind AND" },
};

static void test_filters_mean_what_they_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_filter(cases[i].text, FILTER_SAGAS, cases[i].expected);
}

static void test_filters_of_effects_know_more(void **state)
{
    (void)state;
    check_filter("step = notify_risk AND possible > 1 AND sure = 0 AND dispatched <= 4"
                 " AND operation = ACTION AND last_time >= \"1970-01-01T00:00:01Z\""
                 " AND first_time < \"1970-01-01T00:00:02Z\" AND definition = d",
                 FILTER_EFFECTS,
                 "definition=d effect of=notify_risk operation=ACTION dispatched<5 sure>=0 sure<1"
                 " possible>=2 first<2000000 last>=1000000");
    check_filter("operation = PROBE", FILTER_EFFECTS,
                 "filter: column 13: PROBE: operation must be ACTION or COMPENSATION");
    check_filter("operation = ACTION AND operation = ACTION", FILTER_EFFECTS,
                 "filter: column 24: operation has a value already");
    check_filter("likely > 1", FILTER_EFFECTS,
                 "filter: column 1: likely: " ALL_FIELDS
                 ", step, operation, dispatched, sure, possible, first_time, last_time");
}

static void test_what_has_a_value_keeps_it(void **state)
{
    (void)state;
    struct saga_filter filter = { .definition = "a" };
    struct arena arena = { 0 };
    struct err err;
    assert_int_equal(filter_parse("definition = b", FILTER_SAGAS, &arena, &filter, &err),
                     ERR_INVALID);
    assert_string_equal(err.msg, "filter: column 1: definition has a value already");
    filter = (struct saga_filter){ .saga_id_prefix = "a" };
    assert_int_equal(filter_parse("saga_id = b", FILTER_SAGAS, &arena, &filter, &err), ERR_INVALID);
    arena_done(&arena);
}

static void test_a_filter_is_bounded(void **state)
{
    (void)state;
    CLEANUP(buf_done) struct buf text = { 0 };
    struct saga_filter filter = { 0 };
    struct arena arena = { 0 };
    struct err err;
    buf_text(&text, "revision > 1");
    while (text.size <= FILTER_BYTES_MAX)
        buf_text(&text, " AND revision > 1");
    assert_int_equal(filter_parse(buf_cstr(&text), FILTER_SAGAS, &arena, &filter, &err),
                     ERR_INVALID);
    assert_non_null(strstr(err.msg, "the limit is 4096"));
    arena_done(&arena);
    arena = (struct arena){ .limit = 1 };
    assert_int_equal(filter_parse("definition = a", FILTER_SAGAS, &arena, &filter, &err),
                     ERR_NOMEM);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filters_mean_what_they_say),
        cmocka_unit_test(test_filters_of_effects_know_more),
        cmocka_unit_test(test_what_has_a_value_keeps_it),
        cmocka_unit_test(test_a_filter_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
