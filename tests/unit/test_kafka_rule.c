/* Goal: a rule says what its keys say, and nothing that cannot be; the canary and the fingerprint
 * are the CRC-32 that everybody computes. Method: tables of values for each key; limits at and
 * beyond them; each allocation failed in turn. */
#include "support/check.h"

#include "base/mem.h"
#include "kafka/record.h"
#include "kafka/rule.h"

#include <stdio.h>
#include <string.h>

static struct kafka_rule *new_rule(void)
{
    struct kafka_rule *rule = NULL;
    struct err err;
    ASSERT_OK(kafka_rule_new("r", 1, &rule, &err), &err);
    return rule;
}

/* NULL: it is taken. Borrowed until the next call. */
static const char *set_fault(const char *key, const char *value)
{
    static struct err err;
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = new_rule();
    int rc = kafka_rule_set(rule, key, value, 1, &err);
    if (!rc)
        return NULL;
    assert_int_equal(rc, ERR_INVALID);
    return err.msg;
}

static const struct value_case {
    const char *key, *value, *fault; /* NULL: it is taken */
} value_cases[] = {
    { "topic", "A.b_c-9", NULL },
    { "topic", "", "topic: must be a topic" },
    { "topic", ".", "must be a topic" },
    { "topic", "..", "must be a topic" },
    { "topic", "a b", "1 to 249 of [A-Za-z0-9._-]" },
    { "topic", "^a.*", "must be a topic" },
    { "definition", "bank.v1.Settlement", NULL },
    { "definition", "a/b", "definition: must be a definition" },
    { "namespace", "a-1", NULL },
    { "namespace", "", "must be a namespace" },
    { "namespace", "A", "namespace: must be a namespace" },
    { "group", "", NULL },
    { "group", "a group", NULL },
    { "group", "a\001b", "group: must be text" },
    { "instance", "", NULL },
    { "instance", "i", NULL },
    { "start", "group", NULL },
    { "start", "2026-11-01T00:00:00+01:00", NULL },
    { "start", "", "start: must be group, earliest, latest or a time" },
    { "start", "Earliest", "not \"Earliest\"" },
    { "start", "2026-11-01", "must be group" },
    { "start", "1969-12-31T23:59:59Z", "must be group" },
    { "confirm-earliest", "yes", NULL },
    { "confirm-earliest", "true", "must be yes or no, not \"true\"" },
    { "key", "", NULL },
    { "key", "record-key", NULL },
    { "key", "header:order-id", NULL },
    { "key", "header:", "the name of a header has 1 to 255 bytes, not 0" },
    { "key", "template:{a.b}-{{x}}", NULL },
    { "key", "template:x", "a template names a field of the value" },
    { "key", "template:{{a}}", "a template names a field of the value" },
    { "key", "template:", "a template names a field of the value" },
    { "key", "template:{}", "a field without a name" },
    { "key", "template:{a", "a { without its }" },
    { "key", "template:a}", "a } without its {" },
    { "key", "order_id", "must be record-key, header:NAME or template:{field}" },
    { "value", "protobuf", NULL },
    { "value", "avro", "must be protobuf, json or bytes, not \"avro\"" },
    { "filter", "header:a=", NULL },
    { "filter", "header:a!=b!=c", NULL },
    { "filter", "field:a.b=x", NULL },
    { "filter", "header:=b", "the name of a header" },
    { "filter", "header:!=b", "the name of a header" },
    { "filter", "header:a", "must have = or !=" },
    { "filter", "field:=x", "a field is names with dots" },
    { "filter", "field:.a=x", "a field is names with dots" },
    { "filter", "field:a.=x", "a field is names with dots" },
    { "filter", "field:a..b=x", "a field is names with dots" },
    { "filter", "a=b", "must be header:NAME=TEXT or field:PATH=TEXT" },
    { "filter", "", NULL },
    { "canary", "1", NULL },
    { "canary", "100", NULL },
    { "canary", "0", "canary: must be a number from 1 to 100, not \"0\"" },
    { "canary", "101", "from 1 to 100" },
    { "canary", "5%", "from 1 to 100" },
    { "canary", "99999999999999999999", "from 1 to 100" },
    { "on-mismatch", "dead-letter", NULL },
    { "on-mismatch", "last-wins", "must be first-wins or dead-letter" },
    { "tombstone", "ignore", NULL },
    { "tombstone", "delete", "must be dead-letter or ignore" },
    { "batch", "1", NULL },
    { "batch", "1000", NULL },
    { "batch", "1001", "from 1 to 1000" },
    { "batch", "", "from 1 to 1000" },
    { "batches", "1", "unknown key \"batches\" (sagad --print-example" },
    { "librdkafka.", "1", "a property of librdkafka is [a-z0-9._]" },
    { "librdkafka.A", "1", "a property of librdkafka is [a-z0-9._]" },
    { "librdkafka.fetch.min.bytes", "1", NULL },
    { "librdkafka.fetch.min.bytes", "-1", "fetch.min.bytes" },
    { "librdkafka.security.protocol", "sasl_ssl", NULL },
    { "librdkafka.security.protocol", "tls", "librdkafka.security.protocol: " },
    { "librdkafka.group.id", "g", "cannot be set: that is group" },
    { "librdkafka.isolation.level", "read_uncommitted", "that were aborted start nothing" },
    { "librdkafka.rebalance_cb", "1", "it is no setting" },
    { "librdkafka.plugin.library.paths", "/tmp/x.so", "loads no library" },
    { "librdkafka.ssl.engine.location", "/tmp/x.so", "loads no library" },
    { "librdkafka.test.mock.num.brokers", "3", "fakes brokers" },
    { "librdkafka.test.mock.broker.rtt", "1", "fakes brokers" },
    { "librdkafka.group.protocol", "consumer", "static members" },
    { "librdkafka.group.protocol.type", "x", "a group of another kind" },
    { "librdkafka.topic.blacklist", "pay", "never read" },
    { "librdkafka.queuing.strategy", "lifo", "in order" },
    { "librdkafka.queued.max.messages.kbytes", "1", "bounded by sagad" },
    { "librdkafka.fetch.max.bytes", "1000000", "bounded by sagad" },
    { "librdkafka.api.version.request", "false", "headers and times" },
    { "librdkafka.log.queue", "true", "in the log of sagad" },
    { "librdkafka.internal.termination.signal", "9", "ends librdkafka itself" },
    { "librdkafka.enabled_events", "1", "it is no setting" },
};

static void test_values_of_each_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(value_cases); i++) {
        const char *fault = set_fault(value_cases[i].key, value_cases[i].value);
        if ((fault == NULL) != (value_cases[i].fault == NULL) ||
            (fault && !strstr(fault, value_cases[i].fault)))
            fail_msg("%s = %s: %s", value_cases[i].key, value_cases[i].value,
                     fault ? fault : "is taken");
    }
}

static void test_limits_of_values(void **state)
{
    (void)state;
    static const struct {
        const char *key, *before;
        size_t max; /* bytes of 'a' behind that */
        const char *after;
    } rows[] = {
        { "topic", "", KAFKA_TOPIC_BYTES, "" },
        { "definition", "", LIMIT_DEFINITION_NAME_BYTES, "" },
        { "namespace", "", LIMIT_NAMESPACE_BYTES, "" },
        { "group", "", KAFKA_GROUP_BYTES, "" },
        { "instance", "", KAFKA_INSTANCE_BYTES, "" },
        { "key", "header:", KAFKA_HEADER_NAME_BYTES, "" },
        { "key", "template:{x}", LIMIT_TEMPLATE_BYTES - 3, "" },
        { "filter", "header:", KAFKA_HEADER_NAME_BYTES, "=x" },
        { "filter", "field:x=", KAFKA_FILTER_BYTES - 8, "" },
        { "librdkafka.client.id", "", KAFKA_PROPERTY_BYTES, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (size_t more = 0; more < 2; more++) {
            CLEANUP(buf_done) struct buf text = { 0 };
            buf_text(&text, rows[i].before);
            for (size_t n = 0; n < rows[i].max + more; n++)
                buf_text(&text, "a");
            buf_text(&text, rows[i].after);
            const char *fault = set_fault(rows[i].key, buf_cstr(&text));
            if ((fault != NULL) != (more > 0))
                fail_msg("%s, %zu: %s", rows[i].key, more, fault ? fault : "is taken");
        }
    }
}

static void test_how_many_filters_and_properties(void **state)
{
    (void)state;
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = new_rule();
    struct err err;
    for (int i = 0; i < KAFKA_FILTERS_MAX; i++)
        ASSERT_OK(kafka_rule_set(rule, "filter", "header:a=b", 1, &err), &err);
    assert_int_equal(kafka_rule_set(rule, "filter", "header:a=b", 1, &err), ERR_INVALID);
    assert_string_equal(err.msg, "filter: more than 16");
    assert_int_equal(rule->filter_count, KAFKA_FILTERS_MAX);
}

static void set_all(struct kafka_rule *rule, const char *const *pairs)
{
    struct err err;
    for (; *pairs; pairs += 2)
        ASSERT_OK(kafka_rule_set(rule, pairs[0], pairs[1], 1, &err), &err);
}

static void test_what_does_not_go_together(void **state)
{
    (void)state;
    static const struct {
        const char *pairs[16], *fault;
    } rows[] = {
        { { "topic", "t" }, "definition is missing, as in \"definition = settlement\"" },
        { { "topic", "t", "definition", "d" }, "start is missing" },
        { { "topic", "t", "definition", "d", "start", "group" }, "value is missing" },
        { { "topic", "t", "definition", "d", "start", "group", "value", "bytes" }, NULL },
        { { "topic", "t", "definition", "d", "start", "group", "value", "bytes", "key",
            "template:{a}" },
          "key: a template needs fields" },
        { { "topic", "t", "definition", "d", "start", "group", "value", "bytes", "filter",
            "header:a=b", "filter", "field:a=b" },
          "filter: field:a needs fields" },
        { { "topic", "t", "definition", "d", "start", "group", "value", "json", "key",
            "template:{a}", "filter", "field:a=b" },
          NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = new_rule();
        struct err err;
        set_all(rule, rows[i].pairs);
        assert_int_equal(kafka_rule_finish(rule, &err), rows[i].fault ? ERR_INVALID : 0);
        if (rows[i].fault && !strstr(err.msg, rows[i].fault))
            fail_msg("%s lacks %s", err.msg, rows[i].fault);
    }
}

static void test_a_rule_that_is_refused_is_as_it_was(void **state)
{
    (void)state;
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = new_rule();
    struct err err;
    static const char *const pairs[] = { "key", "header:h", "topic", "t", NULL };
    set_all(rule, pairs);
    assert_int_equal(kafka_rule_set(rule, "key", "record-key", 1, &err), ERR_INVALID);
    assert_string_equal(err.msg, "key: given twice");
    assert_int_equal(rule->key, KAFKA_KEY_HEADER);
    assert_string_equal(rule->key_text, "h");
    assert_int_equal(kafka_rule_set(rule, "filter", "header:x", 1, &err), ERR_INVALID);
    assert_int_equal(rule->filter_count, 0);
    assert_null(rule->filters[0].name);
}

static void test_secrets_are_known(void **state)
{
    (void)state;
    static const char *const secret[] = { "sasl.password",
                                          "ssl.key.password",
                                          "ssl.key.pem",
                                          "ssl.keystore.password",
                                          "sasl.oauthbearer.client.secret",
                                          "sasl.oauthbearer.config" };
    static const char *const open[] = { "sasl.username", "ssl.key.location", "security.protocol",
                                        "ssl.ca.location" };
    for (size_t i = 0; i < ARRAY_LEN(secret); i++)
        assert_true(kafka_property_is_secret(secret[i]));
    for (size_t i = 0; i < ARRAY_LEN(open); i++)
        assert_false(kafka_property_is_secret(open[i]));
}

static void test_memory_that_is_out_is_told(void **state)
{
    (void)state;
    static const char *const pairs[] = {
        "key", "template:{a}", "filter", "header:a=b",       "group",
        "g",   "topic",        "t",      "librdkafka.debug", "all"
    };
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        struct kafka_rule *rule = NULL;
        struct err err;
        mem_fail_at(n, false);
        int rc = kafka_rule_new("r", 1, &rule, &err);
        for (size_t i = 0; !rc && i < ARRAY_LEN(pairs); i += 2)
            rc = kafka_rule_set(rule, pairs[i], pairs[i + 1], 1, &err);
        mem_fail_at(0, false);
        done = rc == 0;
        if (rc)
            assert_int_equal(rc, ERR_NOMEM);
        assert_null(kafka_rule_free(rule));
        assert_true(n < 100);
    }
}

/* The figures are those of zlib.crc32 in Python. */
static void test_crc32(void **state)
{
    (void)state;
    uint8_t all[256];
    for (unsigned i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)i;
    assert_int_equal(kafka_crc32(0, NULL, 0), 0);
    assert_int_equal(kafka_crc32(0, "123456789", 9), 0xcbf43926);
    assert_int_equal(kafka_crc32(0, all, sizeof all), 0x29058c73);
    for (size_t cut = 0; cut <= sizeof all; cut++)
        assert_int_equal(kafka_crc32(kafka_crc32(0, all, cut), all + cut, sizeof all - cut),
                         0x29058c73);
}

static void test_the_canary_takes_its_share_and_keeps_it(void **state)
{
    (void)state;
    unsigned taken = 0;
    assert_true(kafka_canary_takes(17, "order-1007", 10)); /* crc32 % 100 is 16 */
    assert_false(kafka_canary_takes(16, "order-1007", 10));
    for (unsigned i = 0; i < 10000; i++) {
        char key[32];
        size_t size = (size_t)snprintf(key, sizeof key, "order-%u", i);
        bool is_taken = kafka_canary_takes(5, key, size);
        taken += is_taken;
        assert_true(kafka_canary_takes(100, key, size));
        if (is_taken) /* more percent take more, never others */
            assert_true(kafka_canary_takes(6, key, size));
    }
    assert_in_range(taken, 400, 600);
}

static void test_the_fingerprint_tells_records_apart(void **state)
{
    (void)state;
    static const struct kafka_bytes null = { NULL, 0, false };
    static const struct kafka_bytes empty = { NULL, 0, true };
    static const struct kafka_bytes a = { (const uint8_t *)"a", 1, true };
    static const struct kafka_bytes ab = { (const uint8_t *)"ab", 2, true };
    static const struct kafka_bytes b = { (const uint8_t *)"b", 1, true };
    const struct {
        const struct kafka_bytes *key, *value;
    } records[] = { { &null, &null },   { &null, &empty }, { &empty, &null },
                    { &empty, &empty }, { &a, &b },        { &ab, &empty },
                    { &empty, &ab },    { &null, &ab },    { &ab, &null } };
    for (size_t i = 0; i < ARRAY_LEN(records); i++)
        for (size_t j = 0; j < ARRAY_LEN(records); j++)
            assert_int_equal(kafka_record_crc(records[i].key, records[i].value) ==
                                 kafka_record_crc(records[j].key, records[j].value),
                             i == j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_of_each_key),
        cmocka_unit_test(test_limits_of_values),
        cmocka_unit_test(test_how_many_filters_and_properties),
        cmocka_unit_test(test_what_does_not_go_together),
        cmocka_unit_test(test_a_rule_that_is_refused_is_as_it_was),
        cmocka_unit_test(test_secrets_are_known),
        cmocka_unit_test(test_memory_that_is_out_is_told),
        cmocka_unit_test(test_crc32),
        cmocka_unit_test(test_the_canary_takes_its_share_and_keeps_it),
        cmocka_unit_test(test_the_fingerprint_tells_records_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
