/* Goal: of each record it is said what becomes of it, by a stable word: a start with its key, input
 * and labels, passed over, or dead with the path of what is wrong; null and empty are never
 * confused; no record is ever an error. Method: tables of rules and records, for definitions with
 * types and without; poison of ten kinds; each allocation failed in turn. */
#include "definitions/sets.h"

#include "base/utf8.h"
#include "kafka/record.h"
#include "schema/definition_types.h"
#include "schema/payload.h"

#include <stdio.h>

static const char source[] =
    "syntax = \"proto3\"; package test;\n"
    "enum Status { NEW = 0; PAID = 1; }\n"
    "message Customer { string id = 1; Customer parent = 2; }\n"
    "message Order { string order_id = 1; int64 amount = 2; Status status = 3;\n"
    "  Customer customer = 4; bool test = 5; double price = 6; bytes blob = 7;\n"
    "  repeated string tags = 8; string code = 9; }\n";

static struct bytes set;
static struct schema *schema;

static int setup(void **state)
{
    (void)state;
    struct err err;
    set = set_of_source(source);
    return schema_new(set.data, set.size, &schema, &err);
}

static int teardown(void **state)
{
    (void)state;
    (void)schema_free(schema);
    mem_free(set.data);
    return 0;
}

/* Of which kind the definition is. */
enum kind {
    PLAIN,    /* no input type */
    TYPED,    /* input test.Order, the key is given */
    KEYED,    /* the same, its key is "o-{order_id}" */
    LABELLED, /* TYPED with the label code = {code} */
};

static struct definition *definition_of(enum kind kind)
{
    struct definition *definition = definition_new(1);
    struct err err;
    assert_non_null(definition);
    definition->name = mem_strdup("pay");
    definition->namespace_ = mem_strdup("default");
    if (kind == PLAIN)
        return definition;
    definition->input_type = mem_strdup("test.Order");
    if (kind == KEYED)
        definition->key_template = mem_strdup("o-{order_id}");
    if (kind == LABELLED) {
        definition->labels[0] = (struct label_template){ mem_strdup("code"), mem_strdup("{code}") };
        definition->label_count = 1;
    }
    ASSERT_OK(definition_types_add(definition, &set, &err), &err);
    return definition;
}

/* "key = value" lines beside topic, definition and start. */
static struct kafka_rule *rule_of(const char *lines)
{
    struct kafka_rule *rule = NULL;
    struct err err;
    char text[512];
    (void)snprintf(text, sizeof text, "topic = t\ndefinition = pay\nstart = group\n%s", lines);
    ASSERT_OK(kafka_rule_new("r", 1, &rule, &err), &err);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *value = strstr(line, " = ");
        if (!value)
            continue;
        *value = '\0';
        ASSERT_OK(kafka_rule_set(rule, line, value + 3, 1, &err), &err);
    }
    ASSERT_OK(kafka_rule_finish(rule, &err), &err);
    return rule;
}

static struct kafka_bytes bytes_of(const char *text) /* NULL: null */
{
    return (struct kafka_bytes){ (const uint8_t *)text, text ? strlen(text) : 0, text != NULL };
}

static struct bytes order_of(const char *json)
{
    struct bytes bytes = { 0 };
    struct err err;
    ASSERT_OK(payload_json_read(schema, schema_message_find(schema, "test.Order"), json,
                                strlen(json), &bytes, &err),
              &err);
    return bytes;
}

static struct kafka_verdict read_within(const struct kafka_rule *rule,
                                        const struct definition *definition,
                                        size_t payload_bytes_max, const struct kafka_record *record)
{
    struct kafka_verdict verdict = { 0 };
    struct err err;
    ASSERT_OK(kafka_record_read(rule, definition, payload_bytes_max, record, &verdict, &err), &err);
    assert_int_equal(verdict.outcome == KAFKA_RECORD_DEAD, verdict.reason != KAFKA_REASON_NONE);
    assert_int_equal(verdict.outcome == KAFKA_RECORD_DEAD, verdict.message[0] != '\0');
    assert_true(!verdict.message[0] || utf8_is_text(verdict.message, strlen(verdict.message)));
    if (verdict.outcome != KAFKA_RECORD_START)
        assert_true(!verdict.input.data && !verdict.labels);
    if (verdict.outcome != KAFKA_RECORD_START && verdict.outcome != KAFKA_RECORD_DEAD)
        assert_null(verdict.saga_id);
    return verdict;
}

static struct kafka_verdict read_record(const struct kafka_rule *rule,
                                        const struct definition *definition,
                                        const struct kafka_record *record)
{
    return read_within(rule, definition, LIMIT_PAYLOAD_BYTES, record);
}

/* The value as text, or as JSON that is made a test.Order (it begins with '@'). */
struct record_case {
    enum kind kind;
    const char *rule, *key, *value;
    const char *headers[6]; /* name and value in turn */
    enum kafka_outcome outcome;
    const char *saga_id;      /* NULL: none */
    enum kafka_reason reason; /* DEAD */
    const char *part;         /* of the message; START: the labels, NULL: none */
};
#define STARTS(id)      .outcome = KAFKA_RECORD_START, .saga_id = (id)
#define DIES(why, text) .outcome = KAFKA_RECORD_DEAD, .reason = KAFKA_REASON_##why, .part = (text)
#define IS(what)        .outcome = KAFKA_RECORD_##what
#define RECORD_KEY      "key = record-key\n"

static void check_case(size_t row, const struct record_case *this)
{
    CLEANUP(definition_free_p) struct definition *definition = definition_of(this->kind);
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(this->rule);
    struct bytes made = { 0 };
    struct kafka_header headers[3];
    struct kafka_record record = { .topic = "t", .key = bytes_of(this->key), .headers = headers };
    for (size_t i = 0; i < 6 && this->headers[i]; i += 2)
        headers[record.header_count++] =
            (struct kafka_header){ this->headers[i], bytes_of(this->headers[i + 1]) };
    record.value = bytes_of(this->value);
    if (this->value && *this->value == '@') {
        made = order_of(this->value + 1);
        record.value = (struct kafka_bytes){ made.data, made.size, true };
    }
    struct kafka_verdict verdict = read_record(rule, definition, &record);
    if (verdict.outcome != this->outcome || verdict.reason != this->reason)
        fail_msg("row %zu: outcome %d, %s %s", row, (int)verdict.outcome,
                 kafka_reason_name(verdict.reason), verdict.message);
    if (this->outcome == KAFKA_RECORD_DEAD && !strstr(verdict.message, this->part))
        fail_msg("row %zu: %s", row, verdict.message);
    if (this->saga_id && (!verdict.saga_id || strcmp(verdict.saga_id, this->saga_id) != 0))
        fail_msg("row %zu: key %s", row, verdict.saga_id ? verdict.saga_id : "(none)");
    if (this->outcome == KAFKA_RECORD_START && this->part)
        assert_string_equal(verdict.labels, this->part);
    if (this->outcome == KAFKA_RECORD_START && rule->value != KAFKA_VALUE_JSON) {
        assert_int_equal(verdict.input.size, record.value.size);
        assert_memory_equal(verdict.input.data, record.value.data, record.value.size);
    }
    kafka_verdict_done(&verdict);
    bytes_done(&made);
}

static void check_cases(const struct record_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_case(i, &cases[i]);
}

static void test_where_the_key_comes_from(void **state)
{
    (void)state;
    static const struct record_case cases[] = {
        { PLAIN, RECORD_KEY "value = bytes\n", "k", "v", STARTS("k") },
        { PLAIN, RECORD_KEY "value = bytes\n", "\u00e9", "v", STARTS("\u00e9") },
        { PLAIN, RECORD_KEY "value = bytes\n", NULL, "v", DIES(KEY_MISSING, "key is null") },
        { PLAIN, RECORD_KEY "value = bytes\n", "", "v", DIES(KEY_INVALID, "is empty") },
        { PLAIN, RECORD_KEY "value = bytes\n", "a\nb", "v",
          DIES(KEY_INVALID, "the record's key has control characters") },
        { PLAIN, RECORD_KEY "value = bytes\n", "\xff", "v", DIES(KEY_INVALID, "UTF-8") },
        { PLAIN, "key = header:id\nvalue = bytes\n", "k", "v", { "id", "h" }, STARTS("h") },
        /* of several with one name the last counts */
        { PLAIN,
          "key = header:id\nvalue = bytes\n",
          "k",
          "v",
          { "id", "1", "x", "2", "id", "3" },
          STARTS("3") },
        { PLAIN,
          "key = header:id\nvalue = bytes\n",
          "k",
          "v",
          { "id", "1", "id", NULL },
          DIES(HEADER_MISSING, "the header \"id\"") },
        { PLAIN,
          "key = header:id\nvalue = bytes\n",
          "k",
          "v",
          { "ID", "1" },
          DIES(HEADER_MISSING, "the header \"id\", which holds the business key, is missing") },
        { PLAIN,
          "key = header:id\nvalue = bytes\n",
          "k",
          "v",
          { "id", "" },
          DIES(KEY_INVALID, "the header that holds the business key is empty") },
        { PLAIN, "key = template:{a.b}/{c}\nvalue = json\n", "k", "{\"a\":{\"b\":7},\"c\":\"x\"}",
          STARTS("7/x") },
        { PLAIN, "key = template:{a}\nvalue = json\n", "k", "{\"b\":1}",
          DIES(TEMPLATE, "key: {a}: is not there") },
        { PLAIN, "key = template:{a}\nvalue = json\n", "k", "{\"a\":\"\"}",
          DIES(TEMPLATE, "key: {a}: is empty") },
        { PLAIN, "key = template:{a}\nvalue = json\n", "k", "{\"a\":1.5}",
          DIES(TEMPLATE, "no single spelling") },
        { PLAIN, "key = template:{a}\nvalue = json\n", "k", "{\"a\":\"x\\u0000y\"}",
          DIES(KEY_INVALID, "the key that is made of the value has control characters") },
        { TYPED, "key = template:{order_id}-{customer.id}\nvalue = protobuf\n", NULL,
          "@{\"orderId\":\"1\",\"customer\":{\"id\":\"c\"}}", STARTS("1-c") },
        { TYPED, "key = template:{order_id}\nvalue = protobuf\n", NULL, "@{\"amount\":\"1\"}",
          DIES(TEMPLATE, "key: {order_id}: is empty") },
        { KEYED, "value = protobuf\n", NULL, "@{\"orderId\":\"1\"}", STARTS("o-1") },
        { KEYED, RECORD_KEY "value = protobuf\n", "o-1", "@{\"orderId\":\"1\"}", STARTS("o-1") },
        { KEYED, RECORD_KEY "value = protobuf\n", "o-2", "@{\"orderId\":\"1\"}",
          DIES(KEY_MISMATCH, "is \"o-2\", but the definition makes \"o-1\""), .saga_id = "o-2" },
        { KEYED, "key = template:x{order_id}\nvalue = protobuf\n", NULL, "@{\"orderId\":\"1\"}",
          DIES(KEY_MISMATCH, "makes \"o-1\""), .saga_id = "x1" },
    };
    check_cases(cases, ARRAY_LEN(cases));
}

static void test_what_the_value_is(void **state)
{
    (void)state;
    static const struct record_case cases[] = {
        { PLAIN, RECORD_KEY "value = bytes\n", "k", "", STARTS("k") },
        { PLAIN, RECORD_KEY "value = bytes\n", "k", NULL, DIES(VALUE_NULL, "the value is null"),
          .saga_id = "k" },
        { PLAIN, RECORD_KEY "value = bytes\ntombstone = ignore\n", "k", NULL,
          IS(TOMBSTONE_IGNORED) },
        { PLAIN, RECORD_KEY "value = bytes\ntombstone = ignore\n", NULL, NULL,
          IS(TOMBSTONE_IGNORED) },
        { PLAIN, RECORD_KEY "value = bytes\ntombstone = ignore\n", "k", "", STARTS("k") },
        { PLAIN, RECORD_KEY "value = json\n", "k", " [1, 2] ", STARTS("k") },
        { PLAIN, RECORD_KEY "value = json\n", "k", "",
          DIES(VALUE_EMPTY, "the value is empty: value: line 1"), .saga_id = "k" },
        { PLAIN, RECORD_KEY "value = json\n", "k", "{\"a\":\n1,}",
          DIES(VALUE_UNDECODABLE, "value: line 2, column 3: the name of a member is missing") },
        /* empty is a message with every field at its default */
        { TYPED, RECORD_KEY "value = protobuf\n", "k", "", STARTS("k") },
        { KEYED, "value = protobuf\n", "k", "",
          DIES(VALUE_EMPTY, "the value is empty: key: {order_id}: is empty") },
        { TYPED, RECORD_KEY "value = protobuf\n", "k", "\x0a\x05hell",
          DIES(VALUE_UNDECODABLE, "value: ") },
        { TYPED, RECORD_KEY "value = protobuf\n", "k", "not protobuf at all",
          DIES(VALUE_UNDECODABLE, "value: ") },
        { TYPED, RECORD_KEY "value = protobuf\n", "k", "\x08\x01",
          DIES(TYPE_MISMATCH, "value: order_id: wrong wire type") },
        { TYPED, RECORD_KEY "value = protobuf\n", "k", "\x0a\x01\xff",
          DIES(TYPE_MISMATCH, "value: order_id: is not valid UTF-8") },
        { TYPED, RECORD_KEY "value = json\n", "k",
          "{\"orderId\":\"1\",\"amount\":\"9007199254740993\"}", STARTS("k") },
        { TYPED, RECORD_KEY "value = json\n", "k", "{}", STARTS("k") },
        { TYPED, RECORD_KEY "value = json\n", "k", "",
          DIES(VALUE_EMPTY, "the value is empty: value: line 1") },
        { TYPED, RECORD_KEY "value = json\n", "k",
          "{\"orderId\":", DIES(VALUE_UNDECODABLE, "value: line 1, column") },
        { TYPED, RECORD_KEY "value = json\n", "k", "{\"orderID\":\"1\"}",
          DIES(TYPE_MISMATCH, "test.Order has no such field") },
        { TYPED, RECORD_KEY "value = json\n", "k", "{\"customer\":{\"id\":5}}",
          DIES(TYPE_MISMATCH, "value: customer.id: must be a string, not a number") },
        { TYPED, RECORD_KEY "value = json\n", "k", "[]",
          DIES(TYPE_MISMATCH, "must be an object, not a list") },
        { TYPED, RECORD_KEY "value = json\n", "k", "{\"amount\":1,\"amount\":2}",
          DIES(TYPE_MISMATCH, "amount") },
        { LABELLED, RECORD_KEY "value = json\n", "k", "{\"code\":\"x\"}", STARTS("k"),
          .part = "{\"code\":\"x\"}" },
        { LABELLED, RECORD_KEY "value = json\n", "k", "{}",
          DIES(TEMPLATE, "input: code \"{code}\" cannot be made of it"), .saga_id = "k" },
        { LABELLED, RECORD_KEY "value = protobuf\n", "k", "",
          DIES(VALUE_EMPTY, "the value is empty: input: code"), .saga_id = "k" },
    };
    check_cases(cases, ARRAY_LEN(cases));
}

static void test_filters(void **state)
{
    (void)state;
#define BYTES RECORD_KEY "value = bytes\n"
#define JSON  RECORD_KEY "value = json\n"
#define PROTO RECORD_KEY "value = protobuf\n"
    static const struct record_case cases[] = {
        { PLAIN, BYTES "filter = header:t=a\n", "k", "v", { "t", "a" }, STARTS("k") },
        { PLAIN, BYTES "filter = header:t=a\n", "k", "v", { "t", "ab" }, IS(FILTERED) },
        { PLAIN, BYTES "filter = header:t=a\n", "k", "v", { "t", NULL }, IS(FILTERED) },
        { PLAIN, BYTES "filter = header:t=\n", "k", "v", { "t", "" }, STARTS("k") },
        { PLAIN, BYTES "filter = header:t=\n", "k", "v", { "t", NULL }, IS(FILTERED) },
        { PLAIN, BYTES "filter = header:t=a\n", "k", "v", { "t", "a", "t", "b" }, IS(FILTERED) },
        { PLAIN, BYTES "filter = header:t=a\n", "k", "v", { "t", "b", "t", "a" }, STARTS("k") },
        { PLAIN, BYTES "filter = header:t!=a\n", "k", "v", { "t", "a" }, IS(FILTERED) },
        { PLAIN, BYTES "filter = header:t!=a\n", "k", "v", { "t", "b" }, STARTS("k") },
        { PLAIN, BYTES "filter = header:t!=a\n", "k", "v", STARTS("k") },
        { PLAIN,
          BYTES "filter = header:t=a\nfilter = header:u=b\n",
          "k",
          "v",
          { "t", "a", "u", "b" },
          STARTS("k") },
        { PLAIN,
          BYTES "filter = header:t=a\nfilter = header:u=b\n",
          "k",
          "v",
          { "t", "a", "u", "c" },
          IS(FILTERED) },
        /* what is not the rule's is passed over whatever is wrong with it */
        { PLAIN, BYTES "filter = header:t=a\n", NULL, NULL, IS(FILTERED) },
        { PLAIN, JSON "filter = field:s=PAID\n", NULL, "{\"s\":\"NEW\"}", IS(FILTERED) },
        { PLAIN, JSON "filter = field:s=PAID\n", "k", "{\"s\":\"PAID\"}", STARTS("k") },
        { PLAIN, JSON "filter = field:s=PAID\n", "k", "{}", IS(FILTERED) },
        { PLAIN, JSON "filter = field:s!=PAID\n", "k", "{}", STARTS("k") },
        { PLAIN, JSON "filter = field:s!=PAID\n", "k", "{\"s\":null}", STARTS("k") },
        { PLAIN, JSON "filter = field:a.n=12345678901234567890\n", "k",
          "{\"a\":{\"n\":12345678901234567890}}", STARTS("k") },
        { PLAIN, JSON "filter = field:a.n=12345678901234567890\n", "k",
          "{\"a\":{\"n\":12345678901234567891}}", IS(FILTERED) },
        { PLAIN, JSON "filter = field:yes=true\n", "k", "{\"yes\":true}", STARTS("k") },
        /* and what cannot be told is not passed over */
        { PLAIN, JSON "filter = field:s!=PAID\n", "k", "{\"s\":{}}",
          DIES(TYPE_MISMATCH, "filter: {s}: meets an object"), .saga_id = "k" },
        { PLAIN, JSON "filter = field:s=PAID\n", "k", "[]", DIES(TYPE_MISMATCH, "meets a list") },
        { PLAIN, JSON "filter = field:s=PAID\n", "k", "", DIES(VALUE_EMPTY, "is empty") },
        { TYPED, PROTO "filter = field:status=PAID\n", "k", "@{\"status\":\"PAID\"}", STARTS("k") },
        { TYPED, PROTO "filter = field:status=PAID\n", "k", "", IS(FILTERED) },
        { TYPED, PROTO "filter = field:status!=NEW\n", "k", "", IS(FILTERED) },
        { TYPED, PROTO "filter = field:status=7\n", "k", "\x18\x07", STARTS("k") },
        { TYPED, PROTO "filter = field:customer.parent.id=\n", "k", "", STARTS("k") },
        { TYPED, PROTO "filter = field:code=\n", "k", "@{\"code\":\"x\"}", IS(FILTERED) },
        { TYPED, PROTO "filter = field:test=false\nfilter = field:amount=-5\n", "k",
          "@{\"amount\":\"-5\"}", STARTS("k") },
        { TYPED, JSON "filter = field:status=PAID\n", "k", "{\"status\":1}", STARTS("k") },
    };
    check_cases(cases, ARRAY_LEN(cases));
}

/* crc32("1006") % 100 is 6, that of "1000" is 35 (zlib.crc32). */
static void test_the_canary_goes_before_what_is_wrong(void **state)
{
    (void)state;
#define FEW "canary = 20\n"
    static const struct record_case cases[] = {
        { PLAIN, BYTES FEW, "1006", "v", STARTS("1006") },
        { PLAIN, BYTES FEW, "1000", "v", IS(NOT_CANARY) },
        { PLAIN, BYTES FEW, "1000", NULL, IS(NOT_CANARY) },
        { PLAIN, BYTES FEW, "1006", NULL, DIES(VALUE_NULL, "null") },
        { PLAIN, JSON FEW, "1000", "{", IS(NOT_CANARY) },
        { PLAIN, JSON FEW, "1006", "{", DIES(VALUE_UNDECODABLE, "line 1") },
        { PLAIN, BYTES FEW, NULL, "v", DIES(KEY_MISSING, "null") },
        { PLAIN, "key = template:{a}\nvalue = json\n" FEW, NULL, "{\"a\":1000}", IS(NOT_CANARY) },
        { PLAIN, "key = template:{a}\nvalue = json\n" FEW, NULL, "{\"a\":1006}", STARTS("1006") },
        /* a label that cannot be made is the others' to see */
        { LABELLED, JSON FEW, "1000", "{}", IS(NOT_CANARY) },
    };
    check_cases(cases, ARRAY_LEN(cases));
}

static void test_the_same_json_is_the_same_input(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"orderId\":\"1\",\"amount\":\"5\",\"customer\":{\"id\":\"c\"}}",
        " { \"customer\": {\"id\": \"c\"}, \"amount\": 5, \"order_id\": \"\\u0031\" } ",
    };
    CLEANUP(definition_free_p) struct definition *definition = definition_of(TYPED);
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(JSON);
    CLEANUP(bytes_done) struct bytes expected = order_of(texts[0]);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct kafka_record record = { .key = bytes_of("k"), .value = bytes_of(texts[i]) };
        struct kafka_verdict verdict = read_record(rule, definition, &record);
        assert_int_equal(verdict.outcome, KAFKA_RECORD_START);
        assert_int_equal(verdict.input.size, expected.size);
        assert_memory_equal(verdict.input.data, expected.data, expected.size);
        kafka_verdict_done(&verdict);
    }
}

static struct kafka_bytes many(struct buf *buf, const char *before, size_t count, const char *after)
{
    buf_text(buf, before);
    for (size_t i = 0; i < count; i++)
        buf_append(buf, "a", 1);
    buf_text(buf, after);
    assert_false(buf->failed);
    return (struct kafka_bytes){ buf->data, buf->size, true };
}

static void test_how_large_values_and_keys_may_be(void **state)
{
    (void)state;
    static const struct {
        enum kind kind;
        const char *rule, *before, *after;
        size_t max; /* of a's between them */
    } rows[] = {
        { PLAIN, BYTES, "", "", LIMIT_PAYLOAD_BYTES },
        { PLAIN, JSON, "\"", "\"", LIMIT_PAYLOAD_BYTES - 2 },
        { TYPED, JSON, "{\"orderId\":\"", "\"}", LIMIT_PAYLOAD_BYTES - 4 },
        { TYPED, JSON, "{\"amount\":7,\"price\":0,\"code\":\"", "\"}", LIMIT_PAYLOAD_BYTES - 6 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(definition_free_p) struct definition *definition = definition_of(rows[i].kind);
        CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(rows[i].rule);
        for (size_t more = 0; more < 2; more++) {
            CLEANUP(buf_done) struct buf buf = { 0 };
            struct kafka_record record = { .key = bytes_of("k") };
            record.value = many(&buf, rows[i].before, rows[i].max + more, rows[i].after);
            struct kafka_verdict verdict = read_record(rule, definition, &record);
            if (verdict.reason != (more ? KAFKA_REASON_VALUE_TOO_LARGE : KAFKA_REASON_NONE))
                fail_msg("row %zu, %zu more: %s %s", i, more, kafka_reason_name(verdict.reason),
                         verdict.message);
            kafka_verdict_done(&verdict);
        }
    }
    CLEANUP(definition_free_p) struct definition *definition = definition_of(PLAIN);
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(BYTES);
    for (size_t size = LIMIT_SAGA_ID_BYTES; size <= LIMIT_SAGA_ID_BYTES + 1; size++) {
        CLEANUP(buf_done) struct buf buf = { 0 };
        struct kafka_record record = { .key = many(&buf, "", size, ""), .value = bytes_of("v") };
        struct kafka_verdict verdict = read_record(rule, definition, &record);
        assert_int_equal(verdict.reason,
                         size > LIMIT_SAGA_ID_BYTES ? KAFKA_REASON_KEY_INVALID : KAFKA_REASON_NONE);
        kafka_verdict_done(&verdict);
    }
}

/* As bytes and as what JSON becomes. */
static void test_the_limit_of_a_value_can_be_raised(void **state)
{
    (void)state;
    for (enum kind kind = PLAIN; kind <= TYPED; kind++) {
        CLEANUP(definition_free_p) struct definition *definition = definition_of(kind);
        CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(kind == TYPED ? JSON : BYTES);
        const char *before = kind == TYPED ? "{\"orderId\":\"" : "";
        const char *after = kind == TYPED ? "\"}" : "";
        size_t frame = kind == TYPED ? 4 : 0; /* of the field: tag, length */
        for (size_t more = 0; more < 2; more++) {
            CLEANUP(buf_done) struct buf buf = { 0 };
            struct kafka_record record = { .key = bytes_of("k") };
            record.value = many(&buf, before, LIMIT_PAYLOAD_BYTES_MOST - frame + more, after);
            struct kafka_verdict verdict =
                read_within(rule, definition, LIMIT_PAYLOAD_BYTES_MOST, &record);
            assert_int_equal(verdict.reason,
                             more ? KAFKA_REASON_VALUE_TOO_LARGE : KAFKA_REASON_NONE);
            assert_true(!more || strstr(verdict.message, "at most 1048576"));
            assert_int_equal(verdict.input.size, more ? 0 : LIMIT_PAYLOAD_BYTES_MOST);
            kafka_verdict_done(&verdict);
        }
    }
}

/* JSON of which nothing is left as protobuf is bounded as text. */
static void test_json_that_is_mostly_space(void **state)
{
    (void)state;
    CLEANUP(definition_free_p) struct definition *definition = definition_of(TYPED);
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(JSON);
    CLEANUP(buf_done) struct buf buf = { 0 };
    struct kafka_record record = { .key = bytes_of("k") };
    record.value = many(&buf, "", LIMIT_MESSAGE_BYTES + 1, "");
    memset(buf.data, ' ', buf.size);
    buf.data[0] = '{';
    buf.data[buf.size - 1] = '}';
    struct kafka_verdict verdict = read_record(rule, definition, &record);
    assert_int_equal(verdict.reason, KAFKA_REASON_VALUE_TOO_LARGE);
    kafka_verdict_done(&verdict);
    record.value.size = LIMIT_MESSAGE_BYTES;
    buf.data[record.value.size - 1] = '}';
    verdict = read_record(rule, definition, &record);
    assert_int_equal(verdict.outcome, KAFKA_RECORD_START);
    assert_int_equal(verdict.input.size, 0);
    kafka_verdict_done(&verdict);
}

static void test_a_key_with_a_nul(void **state)
{
    (void)state;
    CLEANUP(definition_free_p) struct definition *definition = definition_of(PLAIN);
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(BYTES);
    struct kafka_record record = { .key = { (const uint8_t *)"a\0b", 3, true },
                                   .value = bytes_of("v") };
    struct kafka_verdict verdict = read_record(rule, definition, &record);
    assert_int_equal(verdict.reason, KAFKA_REASON_KEY_INVALID);
    assert_null(verdict.saga_id);
    kafka_verdict_done(&verdict);
}

/* What the message quotes of the record is cut at 100 bytes, here within a character. */
static void test_messages_are_text(void **state)
{
    (void)state;
    CLEANUP(definition_free_p) struct definition *definition = definition_of(KEYED);
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(PROTO);
    CLEANUP(buf_done) struct buf key = { 0 };
    CLEANUP(bytes_done) struct bytes order = order_of("{\"orderId\":\"1\"}");
    buf_text(&key, "x");
    for (int i = 0; i < 60; i++)
        buf_text(&key, "\u00e9");
    struct kafka_record record = { .key = { key.data, key.size, true },
                                   .value = { order.data, order.size, true } };
    struct kafka_verdict verdict = read_record(rule, definition, &record); /* looks at it */
    assert_int_equal(verdict.reason, KAFKA_REASON_KEY_MISMATCH);
    assert_non_null(strstr(verdict.message, "?\", but"));
    kafka_verdict_done(&verdict);
}

static void test_what_a_rule_cannot_do_with_a_definition(void **state)
{
    (void)state;
    static const struct {
        enum kind kind;
        const char *rule, *fault; /* NULL: none */
    } rows[] = {
        { PLAIN, BYTES, NULL },
        { PLAIN, JSON "filter = field:a.b=c\n", NULL },
        { PLAIN, "key = template:{a}\nvalue = json\n", NULL },
        { PLAIN, PROTO, "[kafka r]: value = protobuf: pay has no input type to read it by" },
        { PLAIN, "value = json\n", "key is missing: pay makes none of its input" },
        { TYPED, "value = protobuf\n", "key is missing" },
        { TYPED, BYTES, "value = bytes: the input of pay is a test.Order" },
        { KEYED, "value = json\n", NULL },
        { TYPED, "key = template:{order}\nvalue = json\n",
          "key = template: {order}: test.Order has no field \"order\"" },
        { TYPED, "key = template:{price}\nvalue = json\n", "no single spelling" },
        { TYPED, "key = template:{tags}\nvalue = json\n", "tags is repeated" },
        { TYPED, PROTO "filter = field:customer.name=x\n",
          "filter = field:customer.name: {customer.name}: test.Customer has no field \"name\"" },
        { TYPED, PROTO "filter = field:customer=x\n", "no single spelling" },
        { TYPED, PROTO "filter = field:status=PAYED\n", "\"PAYED\" is no value of test.Status" },
        { TYPED, PROTO "filter = field:status=1\n", NULL },
        { TYPED, PROTO "filter = field:test=yes\n", "is true or false, never \"yes\"" },
        { TYPED, PROTO "filter = field:amount=1.0\n", "is a whole number, never \"1.0\"" },
        { TYPED, PROTO "filter = field:amount!=-1\n", NULL },
        { TYPED, PROTO "filter = header:whatever=x\n", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(definition_free_p) struct definition *definition = definition_of(rows[i].kind);
        CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(rows[i].rule);
        struct kafka_record record = { .key = bytes_of("k"), .value = bytes_of("v") };
        struct kafka_verdict verdict = { 0 };
        struct err err;
        int rc = kafka_rule_check(rule, definition, &err);
        if ((rc == 0) != (rows[i].fault == NULL) || (rc && !strstr(err.msg, rows[i].fault)))
            fail_msg("row %zu: %s", i, rc ? err.msg : "is taken");
        if (rc) /* no record is blamed for it */
            assert_int_equal(
                kafka_record_read(rule, definition, LIMIT_PAYLOAD_BYTES, &record, &verdict, &err),
                ERR_INVALID);
    }
}

/* Of a record nothing is said that memory alone is to blame for. */
static void memory_runs_out(enum kind kind, const char *lines, const char *value)
{
    CLEANUP(definition_free_p) struct definition *definition = definition_of(kind);
    CLEANUP(kafka_rule_free_p) struct kafka_rule *rule = rule_of(lines);
    struct kafka_record record = { .key = bytes_of("k"), .value = bytes_of(value) };
    struct kafka_verdict verdict = { 0 };
    int rc = ERR_NOMEM;
    uint64_t n = 1;
    for (; rc && n < 200; n++) {
        struct err err;
        mem_fail_at(n, false);
        rc = kafka_record_read(rule, definition, LIMIT_PAYLOAD_BYTES, &record, &verdict, &err);
        mem_fail_at(0, false);
        if (rc)
            assert_int_equal(rc, ERR_NOMEM);
    }
    assert_in_range(n, 3, 199);
    assert_int_equal(verdict.outcome, KAFKA_RECORD_START);
    kafka_verdict_done(&verdict);
}

static void test_memory_that_runs_out_is_no_fault_of_a_record(void **state)
{
    (void)state;
    memory_runs_out(PLAIN, BYTES, "v");
    memory_runs_out(PLAIN, "key = template:{a}\nfilter = field:b=x\nvalue = json\n",
                    "{\"a\":\"\\u0041\",\"b\":\"x\"}");
    memory_runs_out(LABELLED, JSON "filter = field:code=x\n", "{\"code\":\"x\"}");
    memory_runs_out(KEYED, "value = json\n", "{\"orderId\":\"1\"}");
}

static void test_reasons_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < KAFKA_REASON_COUNT; i++) {
        const char *name = kafka_reason_name((enum kafka_reason)i);
        assert_int_equal(strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), strlen(name));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, kafka_reason_name((enum kafka_reason)j));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_the_key_comes_from),
        cmocka_unit_test(test_what_the_value_is),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_the_canary_goes_before_what_is_wrong),
        cmocka_unit_test(test_the_same_json_is_the_same_input),
        cmocka_unit_test(test_how_large_values_and_keys_may_be),
        cmocka_unit_test(test_the_limit_of_a_value_can_be_raised),
        cmocka_unit_test(test_json_that_is_mostly_space),
        cmocka_unit_test(test_a_key_with_a_nul),
        cmocka_unit_test(test_messages_are_text),
        cmocka_unit_test(test_what_a_rule_cannot_do_with_a_definition),
        cmocka_unit_test(test_memory_that_runs_out_is_no_fault_of_a_record),
        cmocka_unit_test(test_reasons_have_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
