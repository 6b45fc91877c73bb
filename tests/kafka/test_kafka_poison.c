/* Goal: K4: a record that can start nothing holds up nothing. It becomes a dead letter with its
 * bytes, its place and a reason; null and empty are two things; all others start. Method: bad
 * records of many kinds among good ones, of a definition with types (the settlement of
 * tests/definitions), as protobuf and as JSON. */
#include "definitions/sets.h"
#include "support/proof.h"
#include "support/sagactl.h"
#include "support/scratch.h"
#include "support/wait.h"
#include "world.h"

#include <inttypes.h>
#include <stdio.h>

enum { PARTITIONS = 4, WAIT_MS = 60000, BIG_BYTES = 300 * 1024, TEXT_BYTES = 1024 };

static struct world world;

static struct rig *first(void)
{
    return &world.nodes[0];
}

static int setup(void **state)
{
    (void)state;
    return world_up(&world, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return world_down(&world);
}

static int check(void **state)
{
    (void)state;
    return world_check(&world);
}

static void register_settlement(void)
{
    char out[SCRATCH_PATH_SIZE];
    struct err err;
    ASSERT_OK(scratch_path("set", out, &err), &err);
    run("%s -I %s -I %s -I %s/proto --include_imports --include_source_info "
        "--descriptor_set_out=%s settlement.proto",
        PROTOC, SOURCE_DIR "/tests/definitions/golden", PROTO_WELL_KNOWN, SOURCE_DIR, out);
    CLEANUP(bytes_done) struct bytes set = file_read(out);
    Saga__V1__RegisterDefinitionRequest request = SAGA__V1__REGISTER_DEFINITION_REQUEST__INIT;
    request.descriptors = (ProtobufCBinaryData){ set.size, set.data };
    ProtobufCMessage *reply =
        rig_call(first(), "DefinitionService/RegisterDefinition", &request.base,
                 &saga__v1__register_definition_response__descriptor, NULL);
    protobuf_c_message_free_unpacked(reply, NULL);
}

/* --- good ones and bad ones ------------------------------------------------------------------- */

struct poison {
    const char *key, *value; /* NULL: null */
    size_t key_size, value_size;
    const char *reason;
};
#define BAD(key_text, value_text, why)                                                             \
    {                                                                                              \
        .key = (key_text), .key_size = sizeof(key_text) - 1, .value = (value_text),                \
        .value_size = sizeof(value_text) - 1, .reason = (why)                                      \
    }

static char big[BIG_BYTES], long_key[257];

/* payment_id 1, account 2, amount_cents 3. */
static const struct poison protobufs[] = {
    BAD("b-0",
        "\x0a\x7f"
        "b-0",
        "VALUE_UNDECODABLE"),                        /* truncated */
    BAD("b-1", "\x08\x05", "TYPE_MISMATCH"),         /* a number where a text is */
    BAD("b-2", "\x0a\x02\xc3\x28", "TYPE_MISMATCH"), /* no UTF-8 */
    { .key = "b-3",
      .key_size = 3,
      .value = big,
      .value_size = BIG_BYTES,
      .reason = "VALUE_TOO_LARGE" },
    BAD("b\0004",
        "\x0a\x03"
        "b-4",
        "KEY_INVALID"), /* NUL */
    BAD("b\xff",
        "\x0a\x03"
        "b-5",
        "KEY_INVALID"),
    BAD("",
        "\x0a\x03"
        "b-6",
        "KEY_INVALID"),
    { .key = long_key,
      .key_size = sizeof long_key,
      .value = "\x0a\x03"
               "b-7",
      .value_size = 5,
      .reason = "KEY_INVALID" },
    { .value = "\x0a\x03"
               "b-8",
      .value_size = 5,
      .reason = "KEY_MISSING" },
    { .key = "b-9", .key_size = 3, .reason = "VALUE_NULL" },
    BAD("b-10", "", "VALUE_EMPTY"),
    BAD("b-11",
        "\x0a\x05"
        "other",
        "KEY_MISMATCH"),
    BAD("b-12",
        "\x0a\x04"
        "b-12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        "VALUE_UNDECODABLE"),
};
/* The key is a header; these come without one. */
static const struct poison jsons[] = {
    BAD("c-0", "{\"paymentId\": \"c-0\"", "VALUE_UNDECODABLE"),
    BAD("c-1", "{\"paymentId\": \"c-1\", \"nobodyKnows\": 1}", "TYPE_MISMATCH"),
    BAD("c-2", "{\"paymentId\": 7, \"account\": \"x\"}", "TYPE_MISMATCH"),
    BAD("c-3", "[]", "TYPE_MISMATCH"),
    BAD("c-4", "", "VALUE_EMPTY"),
    { .key = "c-5", .key_size = 3, .reason = "VALUE_NULL" },
    BAD("c-6", "\xef\xbb\xbf{}\0", "VALUE_UNDECODABLE"),
};

enum { BAD_MAX = 16 };

/* Good records; from time to time a bad one: its offset is where the partition was. */
struct place {
    int partition;
    int64_t offset;
};

static void mixed_produce(const char *topic, int good, bool json, const struct poison *bad,
                          size_t bad_count, struct place places[BAD_MAX])
{
    struct err err;
    int64_t ends[PARTITIONS] = { 0 };
    size_t next = 0;
    struct test_kafka_record *records = mem_calloc((size_t)good + bad_count, sizeof *records);
    char(*texts)[2][64] = mem_calloc((size_t)good, sizeof *texts);
    assert_non_null(records);
    assert_non_null(texts);
    static const struct test_kafka_header type = { "type", "settlement", 10 };
    struct test_kafka_header(*headers)[3] = mem_calloc((size_t)good, sizeof *headers);
    assert_non_null(headers);
    size_t count = 0;
    for (int i = 0; i < good; i++) {
        char *key = texts[i][0], *value = texts[i][1];
        int size = snprintf(key, 64, "%s-%05d", json ? "j" : "g", i);
        size_t value_size = (size_t)(json ? snprintf(value, 64, "{\"paymentId\": \"%s\"}", key)
                                          : snprintf(value, 64, "\x0a\x07%s\x10\x07", key));
        /* The key as a header, twice: the last one counts. */
        headers[i][0] = type;
        headers[i][1] = (struct test_kafka_header){ "key", "wrong", 5 };
        headers[i][2] = (struct test_kafka_header){ "key", key, (size_t)size };
        records[count] = (struct test_kafka_record){ .partition = i % PARTITIONS,
                                                     .key = key,
                                                     .key_size = (size_t)size,
                                                     .value = value,
                                                     .value_size = value_size,
                                                     .headers = headers[i],
                                                     .header_count = json ? 3 : 1 };
        ends[records[count++].partition]++;
        if (next < bad_count && (size_t)i * bad_count / (size_t)good >= next) {
            int partition = (int)(next % PARTITIONS);
            places[next] = (struct place){ partition, ends[partition]++ };
            records[count++] = (struct test_kafka_record){ .partition = partition,
                                                           .key = bad[next].key,
                                                           .key_size = bad[next].key_size,
                                                           .value = bad[next].value,
                                                           .value_size = bad[next].value_size,
                                                           .headers = &type,
                                                           .header_count = 1 };
            next++;
        }
    }
    assert_int_equal(next, bad_count);
    /* Of a type that the rule does not know: passed over. */
    ASSERT_OK(test_kafka_produce(world.kafka, topic, records, count, &err), &err);
    ASSERT_OK(test_kafka_put(world.kafka, topic, 0, "unknown", "type", &err), &err);
    mem_free(headers);
    mem_free(texts);
    mem_free(records);
}

static void hex_of(const char *bytes, size_t size, char *ret)
{
    for (size_t i = 0; bytes && i < size; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", (unsigned char)bytes[i]); /* two digits */
    if (!bytes || size == 0)
        (void)snprintf(ret, 8, "%s", bytes ? "" : "null"); /* fits */
}

static void assert_letter(const char *rule, const struct poison *bad, const struct place *place)
{
    char expected[TEXT_BYTES + 64], key[TEXT_BYTES], value[TEXT_BYTES], text[TEXT_BYTES + 64];
    bool is_big = bad->value_size > 256;
    hex_of(bad->key, bad->key_size, key);
    if (is_big)
        (void)snprintf(value, sizeof value, "%zu bytes", bad->value_size); /* fits */
    else
        hex_of(bad->value, bad->value_size, value);
    (void)snprintf(expected, sizeof expected, "%s key %s value %s", bad->reason, key, value);
    rig_text(first(), RIG_STORE, text, sizeof text,
             "SELECT reason || ' key ' || coalesce(encode(key, 'hex'), 'null') || ' value ' ||"
             " CASE WHEN length(value) > 256 THEN length(value) || ' bytes'"
             "  ELSE coalesce(encode(value, 'hex'), 'null') END"
             " FROM dead_letter WHERE rule = '%s' AND partition = %d AND record_offset = %" PRId64,
             rule, place->partition, place->offset);
    if (strcmp(text, expected) != 0)
        fail_msg("partition %d, offset %" PRId64 ":\n  is       %s\n  expected %s",
                 place->partition, place->offset, text, expected);
}

static void poisoned(const char *name, int good, const struct poison *bad, size_t bad_count,
                     struct place places[BAD_MAX], bool json)
{
    char text[160], expected[160];
    world_topic(&world, name, PARTITIONS);
    mixed_produce(name, good, json, bad, bad_count, places);
    world_await_handled(&world, name, good + (int64_t)bad_count + 1, WORLD_REST_MS);
    for (size_t i = 0; i < bad_count; i++)
        assert_letter(name, &bad[i], &places[i]);
    (void)snprintf(expected, sizeof expected, "started %d letters %zu filtered 1 duplicates 0",
                   good, bad_count);
    rig_text(first(), RIG_STORE, text, sizeof text,
             "SELECT format('started %%s letters %%s filtered %%s duplicates %%s', sum(started),"
             " sum(dead_letters), sum(filtered), sum(duplicates)) FROM kafka_cursor"
             " WHERE rule = '%s'",
             name);
    assert_string_equal(text, expected);
    assert_int_equal(rig_count(first(), RIG_STORE,
                               "SELECT count(*) FROM dead_letter"
                               " WHERE rule = '%s'",
                               name),
                     bad_count);
    assert_int_equal(rig_health(first()->address, 5000), 1);
    sagactl_expect(first(), 0, WORDS(name, bad[0].reason),
                   WORDS("dead-letter", "list", "--rule", name));
}

static const char rule_head[] =
    "[kafka %s]\ntopic = %s\ndefinition = settlement\nstart = earliest\n"
    "filter = header:type=settlement\n%s";

static void test_k4_p8_ten_kinds_of_poison_hold_up_nothing(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    static const char name[] = "poison";
    struct place places[BAD_MAX];
    memset(big, 'x', sizeof big);
    memset(long_key, 'k', sizeof long_key);
    world_rules(&world, 0, rule_head, name, name, "key = record-key\nvalue = protobuf\n");
    world_start(&world, 0);
    register_settlement();
    poisoned(name, test_is_full_size() ? 1000 : 300, protobufs, ARRAY_LEN(protobufs), places,
             false);

    /* Replayed as it is, a letter stays one; replayed after the rule was put right, it starts. */
    char id[48];
    rig_text(first(), RIG_STORE, id, sizeof id,
             "SELECT dead_letter_id FROM dead_letter WHERE rule = '%s' AND reason = 'KEY_MISSING'",
             name);
    sagactl_expect(first(), 0, WORDS("1"),
                   WORDS("dead-letter", "replay", id, "--reason", "tried as it is"));
    rig_await(first(), RIG_STORE, "OPEN t", WAIT_MS,
              "SELECT state || ' ' || (replay_error IS NOT NULL)::text::char(1) FROM dead_letter"
              " WHERE dead_letter_id = '%s'",
              id);
    rig_server_kill(first());
    world_rules(&world, 0, rule_head, name, name,
                "key = template:{payment_id}\nvalue = protobuf\n");
    world_start(&world, 0);
    sagactl_expect(first(), 0, WORDS("1"),
                   WORDS("dead-letter", "replay", id, "--reason", "the key is in the value"));
    rig_await(first(), RIG_STORE, "REPLAYED", WAIT_MS,
              "SELECT state FROM dead_letter WHERE dead_letter_id = '%s'", id);
    assert_int_equal(rig_count(first(), RIG_STORE,
                               "SELECT count(*) FROM saga WHERE definition = 'settlement'"
                               " AND saga_id = 'b-8'"),
                     1);
    proof_fault("kafka: a record that starts nothing", ARRAY_LEN(protobufs));
}

static void test_k4_json_that_is_none_and_keys_that_are_missing(void **state)
{
    (void)state;
    KAFKA_OR_SKIP(world.kafka);
    PROVES("P7 P8");
    static const char name[] = "poison-json";
    struct place places[BAD_MAX];
    world_rules(&world, 0, rule_head, name, name, "key = header:key\nvalue = json\n");
    world_start(&world, 0);
    register_settlement();
    poisoned(name, 60, jsons, ARRAY_LEN(jsons), places, true);

    struct err err;
    static const struct test_kafka_header type = { "type", "settlement", 10 };
    const struct test_kafka_record keyless = { .key = "k",
                                               .key_size = 1,
                                               .value = "{\"paymentId\": \"k\"}",
                                               .value_size = 18,
                                               .headers = &type,
                                               .header_count = 1 };
    ASSERT_OK(test_kafka_produce(world.kafka, name, &keyless, 1, &err), &err);
    rig_await(first(), RIG_STORE, "1", WAIT_MS,
              "SELECT count(*) FROM dead_letter WHERE rule = '%s' AND reason = 'HEADER_MISSING'"
              " AND message LIKE '%%key%%'",
              name);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_k4_p8_ten_kinds_of_poison_hold_up_nothing),
        TEST(test_k4_json_that_is_none_and_keys_that_are_missing),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown)) ? 1 : 0;
}
