/* Goal: what schema_prune leaves of a set is complete, and the same bytes for all who say the same;
 * whatever bytes come, they are refused or taken. Method: sources that differ in what does not
 * matter, and in one thing that does; sets cut and changed byte by byte, and each allocation failed
 * in turn, with the sanitizers as judge. */
#include "definitions/sets.h"

#include "base/buf.h"
#include "base/rng.h"
#include "support/scratch.h"

#include <stdio.h>

static void buf_done_p(struct buf *buf)
{
    buf_done(buf);
}

static struct bytes prune(struct bytes set, const char *const *names, size_t count)
{
    struct bytes pruned = { 0 };
    struct err err;
    ASSERT_OK(schema_prune(set.data, set.size, names, count, &pruned, &err), &err);
    mem_free(set.data);
    return pruned;
}

static void assert_same(const struct bytes *a, const struct bytes *b)
{
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->data, b->data, a->size);
}

static const char *const payment_name[] = { "bank.v1.Payment" };

static void test_prune_keeps_what_is_needed_and_nothing_else(void **state)
{
    (void)state;
    CLEANUP(bytes_done) struct bytes pruned = prune(set_of_source(bank_source), payment_name, 1);
    struct bytes copy = { 0 };
    assert_int_equal(mem_bytes_copy(pruned.data, pruned.size, &copy), 0);
    CLEANUP(schema_free_p) struct schema *schema = schema_of(copy);
    CLEANUP(schema_free_p) struct schema *whole = schema_of(set_of_source(bank_source));
    assert_int_equal(schema_service_count(schema), 0);
    assert_null(schema_message_find(schema, "google.protobuf.ServiceOptions"));
    assert_non_null(schema_message_find(schema, "google.protobuf.Timestamp"));
    const struct schema_message *a = schema_message_find(schema, "bank.v1.Payment");
    const struct schema_message *b = schema_message_find(whole, "bank.v1.Payment");
    assert_int_equal(a->field_count, b->field_count);
    for (size_t i = 0; i < a->field_count; i++) {
        const struct schema_field *x = &a->fields[i], *y = &b->fields[i];
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->json_name, y->json_name);
        assert_int_equal(x->number, y->number);
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->repeated, y->repeated);
        assert_int_equal(x->packed, y->packed);
        assert_int_equal(x->presence, y->presence);
        assert_int_equal(x->oneof, y->oneof);
        assert_string_equal(x->message ? x->message->full_name : "",
                            y->message ? y->message->full_name : "");
        assert_int_equal(x->message && x->message->map_entry, y->message && y->message->map_entry);
    }
    assert_int_equal(schema_field_by_name(a, "a")->enumeration->value_count, 4);
    /* and again the same */
    CLEANUP(bytes_done) struct bytes again = { 0 };
    struct err err;
    ASSERT_OK(schema_prune(pruned.data, pruned.size, payment_name, 1, &again, &err), &err);
    assert_same(&pruned, &again);
}

/* protoc itself takes what is left: it decodes a message by it. */
static void test_prune_leaves_what_protoc_takes(void **state)
{
    (void)state;
    static const char *const names[] = { "test.kinds.Kinds", "test.kinds.Strict" };
    CLEANUP(bytes_done) struct bytes pruned = prune(set_of_file("kinds.proto"), names, 2);
    char path[256];
    struct err err;
    ASSERT_OK(scratch_path("pruned", path, &err), &err);
    file_write(path, pruned.data, pruned.size);
    struct bytes copy = { 0 };
    assert_int_equal(mem_bytes_copy(pruned.data, pruned.size, &copy), 0);
    CLEANUP(schema_free_p) struct schema *schema = schema_of(copy);
    run("printf '\\010\\003' | %s --descriptor_set_in=%s --decode=test.kinds.Small %s | "
        "grep -q 'number: 3'",
        PROTOC, path, schema_message_find(schema, "test.kinds.Small")->file);
}

static void test_what_is_around_a_nested_type_is_left_empty(void **state)
{
    (void)state;
    static const char *const names[] = { "bank.v1.Payment.Inner.Inner" };
    CLEANUP(schema_free_p)
    struct schema *schema = schema_of(prune(set_of_source(bank_source), names, 1));
    assert_non_null(schema_message_find(schema, names[0]));
    const struct schema_message *around = schema_message_find(schema, "bank.v1.Payment");
    assert_non_null(around);
    assert_int_equal(around->field_count, 0);
    assert_null(schema_message_find(schema, "google.protobuf.Timestamp"));
}

static void test_prune_gives_the_same_for_the_same(void **state)
{
    (void)state;
    /* the same messages: other order, other services, comments, options, other messages, oneofs and
     * packed as by default */
    static const char other[] =
        "syntax = \"proto3\";\n"
        "package bank.v1;\n"
        "// words\n"
        "import \"google/protobuf/empty.proto\";\n"
        "import \"google/protobuf/timestamp.proto\";\n"
        "message Another { google.protobuf.Empty empty = 1; }\n"
        "service Other { rpc Do(Another) returns (Payment); }\n"
        "message Payment {\n"
        "  option deprecated = true; reserved 20 to 30; reserved \"gone\";\n"
        "  message Unneeded { }\n"
        "  message Inner { message Inner { } Inner inner = 2; Payment payment = 1; }\n"
        "  enum Kind { option allow_alias = true; NONE = 0; B = 5; C = 5; A = -1; }\n"
        "  oneof right { bool c = 8; } oneof left { Inner b = 6; Kind a = 5; }\n"
        "  google.protobuf.Timestamp at = 10 [json_name = \"when\"];\n"
        "  optional string note = 7 [deprecated = true]; map<string, Kind> kinds = 4;\n"
        "  repeated int64 spread = 3 [packed = false]; repeated int64 many = 2 [packed = true];\n"
        "  optional int32 count = 1; /* behind */ string text = 9 [json_name = \"text\"];\n"
        "}\n";
    CLEANUP(bytes_done) struct bytes a = prune(set_of_source(bank_source), payment_name, 1);
    CLEANUP(bytes_done) struct bytes b = prune(set_of_source(other), payment_name, 1);
    assert_same(&a, &b);
}

/* How files are called is a matter of folders. */
static void test_prune_forgets_the_names_of_files(void **state)
{
    (void)state;
    static const char text[] =
        "file { name: \"%s\" package: \"p\" syntax: \"proto3\" message_type { name: \"Price\" } }"
        "file { name: \"%s\" package: \"p\" syntax: \"proto3\" dependency: \"%s\" message_type {"
        " name: \"Item\" field { name: \"price\" number: 1 label: LABEL_OPTIONAL"
        " type: TYPE_MESSAGE type_name: \".p.Price\" json_name: \"price\" } } }";
    static const char *const names[] = { "p.Item" };
    char one[1024], other[1024];
    (void)snprintf(one, sizeof one, text, "a.proto", "b.proto", "a.proto");
    (void)snprintf(other, sizeof other, text, "shop/z.proto", "shop/b.proto", "shop/z.proto");
    CLEANUP(bytes_done) struct bytes a = prune(set_of_text(one), names, 1);
    CLEANUP(bytes_done) struct bytes b = prune(set_of_text(other), names, 1);
    assert_same(&a, &b);
    struct bytes copy = { 0 };
    assert_int_equal(mem_bytes_copy(a.data, a.size, &copy), 0);
    struct schema *schema = schema_of(copy);
    assert_non_null(schema_message_find(schema, "p.Price"));
    (void)schema_free(schema); /* always NULL */
}

static void test_prune_tells_what_is_not_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } changes[] = {
        { "string text = 9", "string words = 9" },
        { "string text = 9", "string text = 11" },
        { "string text = 9", "bytes text = 9" },
        { "optional int32", "int32" },
        { "[packed = false]", "" },
        { "repeated int64 many", "int64 many" },
        { "A = -1", "A = -2" },
        { "A = -1", "Z = -1" },
        { "map<string", "map<int32" },
        { "json_name = \"when\"", "deprecated = true" },
        { "oneof left", "oneof lift" },
        { "Inner { } Inner inner", "Inner { bool x = 1; } Inner inner" },
    };
    CLEANUP(bytes_done) struct bytes before = prune(set_of_source(bank_source), payment_name, 1);
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        CLEANUP(buf_done_p) struct buf source = { 0 };
        const char *at = strstr(bank_source, changes[i].from);
        assert_non_null(at);
        buf_append(&source, bank_source, (size_t)(at - bank_source));
        buf_text(&source, changes[i].to);
        buf_text(&source, at + strlen(changes[i].from));
        CLEANUP(bytes_done)
        struct bytes after = prune(set_of_source(buf_cstr(&source)), payment_name, 1);
        if (before.size == after.size && memcmp(before.data, after.data, before.size) == 0)
            fail_msg("%s -> %s changes nothing", changes[i].from, changes[i].to);
    }
}

static void test_prune_refuses_names_that_are_not_there(void **state)
{
    (void)state;
    static const char *const names[] = { "bank.v1.Payment", "bank.v1.Bank" };
    CLEANUP(bytes_done) struct bytes set = set_of_source(bank_source);
    struct bytes pruned = { 0 };
    struct err err;
    int rc = schema_prune(set.data, set.size, names, 2, &pruned, &err);
    assert_error(&err, rc, ERR_NOT_FOUND, NULL, "no message bank.v1.Bank in the set");
    assert_null(pruned.data);
    ASSERT_OK(schema_prune(set.data, set.size, NULL, 0, &pruned, &err), &err);
    assert_int_equal(pruned.size, 0);
    assert_error(&err, schema_prune((const uint8_t *)"\x80", 1, names, 1, &pruned, &err),
                 ERR_INVALID, NULL, "no FileDescriptorSet");
}

/* JSON names are always said in what is left, and so a set may become a longer one. */
static void test_what_is_left_is_bounded_too(void **state)
{
    (void)state;
    static const char *const names[] = { "M" };
    CLEANUP(buf_done_p) struct buf text = { 0 };
    buf_text(&text, "file { name: \"a\" message_type { name: \"M\" ");
    for (int i = 1; i <= 17000; i++)
        buf_printf(&text, "field { name: \"a%0*d\" number: %d type: TYPE_BOOL }",
                   SCHEMA_FIELD_NAME_BYTES - 1, i, i);
    buf_text(&text, "} }");
    CLEANUP(bytes_done) struct bytes set = set_of_text(buf_cstr(&text));
    assert_in_range(set.size, 1, SCHEMA_BYTES_MAX);
    struct bytes pruned = { 0 };
    struct err err;
    int rc = schema_prune(set.data, set.size, names, 1, &pruned, &err);
    assert_error(&err, rc, ERR_LIMIT, NULL,
                 "descriptors: more than 4194304 bytes (SCHEMA_BYTES_MAX)");
    assert_null(pruned.data);
}

/* ---- whatever comes ---- */

/* Every answer but a crash is right, as long as a refusal says why. */
static void try_both(const uint8_t *data, size_t size)
{
    struct bytes copy = { 0 }, pruned = { 0 };
    struct schema *schema = NULL;
    struct err err = { 0 };
    assert_int_equal(mem_bytes_copy(data, size, &copy), 0); /* a read beyond the end is seen */
    int rc = schema_new(copy.data, copy.size, &schema, &err);
    assert_true((rc == 0) == (schema != NULL));
    assert_true(!rc || ((rc == ERR_INVALID || rc == ERR_LIMIT) && *err.msg));
    if (schema && schema_message_find(schema, payment_name[0]))
        ASSERT_OK(schema_prune(copy.data, copy.size, payment_name, 1, &pruned, &err), &err);
    (void)schema_free(schema); /* always NULL */
    mem_free(copy.data);
    mem_free(pruned.data);
}

static void test_sets_that_were_changed(void **state)
{
    (void)state;
    CLEANUP(bytes_done) struct bytes set = prune(set_of_source(bank_source), payment_name, 1);
    for (size_t size = 0; size < set.size; size++)
        try_both(set.data, size);
    struct rng rng;
    uint64_t seed = 20260302;
    print_message("seed %llu\n", (unsigned long long)seed);
    rng_seed(&rng, seed);
    size_t rounds = test_is_full_size() ? 64 : 8;
    for (size_t i = 0; i < set.size * rounds; i++) {
        uint8_t before = set.data[i / rounds];
        set.data[i / rounds] = (uint8_t)rng_next(&rng);
        try_both(set.data, set.size);
        set.data[i / rounds] = before;
    }
}

static void test_memory_that_is_out(void **state)
{
    (void)state;
    CLEANUP(bytes_done) struct bytes set = set_of_source(bank_source);
    int rc = -1;
    for (uint64_t n = 1; rc != 0; n++) {
        assert_in_range(n, 1, 10000);
        struct bytes pruned = { 0 };
        struct err err;
        mem_fail_at(n, false);
        rc = schema_prune(set.data, set.size, payment_name, 1, &pruned, &err);
        mem_fail_at(0, false);
        if (rc && rc != ERR_NOMEM && rc != ERR_LIMIT) /* the unpacked: a limit */
            fail_msg("allocation %llu: %s", (unsigned long long)n, err.msg);
        assert_true(rc == 0 || !pruned.data);
        mem_free(pruned.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prune_keeps_what_is_needed_and_nothing_else),
        cmocka_unit_test(test_prune_leaves_what_protoc_takes),
        cmocka_unit_test(test_what_is_around_a_nested_type_is_left_empty),
        cmocka_unit_test(test_prune_gives_the_same_for_the_same),
        cmocka_unit_test(test_prune_tells_what_is_not_the_same),
        cmocka_unit_test(test_prune_forgets_the_names_of_files),
        cmocka_unit_test(test_prune_refuses_names_that_are_not_there),
        cmocka_unit_test(test_what_is_left_is_bounded_too),
        cmocka_unit_test(test_sets_that_were_changed),
        cmocka_unit_test(test_memory_that_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
