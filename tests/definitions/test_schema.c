/* Goal: a set is understood as protoc means it, and whatever is wrong with it is refused with the
 * file and the name. Method: sources compiled by protoc and looked at field by field; sets written
 * in protobuf's text format, one fault each; floods against every limit. */
#include "definitions/sets.h"

#include "base/buf.h"

#include <stdio.h>

static void buf_done_p(struct buf *buf)
{
    buf_done(buf);
}

/* ---- what a good set says ---- */

static const struct schema_field *field_of(const struct schema_message *message, const char *name)
{
    const struct schema_field *field = schema_field_by_name(message, name);
    assert_non_null(field);
    assert_ptr_equal(schema_field_by_number(message, field->number), field);
    assert_ptr_equal(schema_field_by_json_name(message, field->json_name), field);
    return field;
}

static void test_fields_are_what_protoc_means(void **state)
{
    (void)state;
    static const struct {
        const char *name, *json_name;
        uint32_t number;
        enum schema_kind kind;
        bool repeated, packed, presence;
        int oneof;
    } rows[] = {
        { "count", "count", 1, KIND_INT32, false, false, true, -1 },
        { "many", "many", 2, KIND_INT64, true, true, false, -1 },
        { "spread", "spread", 3, KIND_INT64, true, false, false, -1 },
        { "kinds", "kinds", 4, KIND_MESSAGE, true, false, false, -1 },
        { "a", "a", 5, KIND_ENUM, false, false, true, 0 },
        { "b", "b", 6, KIND_MESSAGE, false, false, true, 0 },
        { "note", "note", 7, KIND_STRING, false, false, true, -1 },
        { "c", "c", 8, KIND_BOOL, false, false, true, 1 },
        { "text", "text", 9, KIND_STRING, false, false, false, -1 },
        { "at", "when", 10, KIND_MESSAGE, false, false, true, -1 },
    };
    CLEANUP(schema_free_p) struct schema *schema = schema_of(set_of_source(bank_source));
    const struct schema_message *message = schema_message_find(schema, "bank.v1.Payment");
    assert_non_null(message);
    assert_string_equal(message->file, "test.proto");
    assert_int_equal(message->field_count, ARRAY_LEN(rows));
    assert_int_equal(message->oneof_count, 2);
    assert_string_equal(message->oneof_names[0], "left");
    assert_string_equal(message->oneof_names[1], "right");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct schema_field *field = field_of(message, rows[i].name);
        assert_ptr_equal(field, &message->fields[i]); /* by number */
        assert_string_equal(field->json_name, rows[i].json_name);
        assert_int_equal(field->number, rows[i].number);
        assert_int_equal(field->kind, rows[i].kind);
        assert_int_equal(field->repeated, rows[i].repeated);
        assert_int_equal(field->packed, rows[i].packed);
        assert_int_equal(field->presence, rows[i].presence);
        assert_int_equal(field->oneof, rows[i].oneof);
        assert_false(field->required);
    }
    assert_null(schema_field_by_number(message, 11));
    assert_null(schema_field_by_number(message, 0));
    assert_null(schema_field_by_name(message, "when"));
    assert_null(schema_field_by_json_name(message, "at"));
    assert_true(field_of(message, "kinds")->message->map_entry);
    assert_int_equal(field_of(message, "at")->message->well_known, WELL_KNOWN_TIMESTAMP);
}

static void test_proto2_is_what_protoc_means(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = schema_of(set_of_file("kinds_old.proto"));
    const struct schema_message *old = schema_message_find(schema, "test.kinds.Old");
    assert_non_null(old);
    assert_int_equal(old->required_count, 1);
    assert_true(field_of(old, "id")->required);
    assert_true(field_of(old, "text")->presence);
    assert_string_equal(field_of(old, "text")->default_value, "none");
    assert_string_equal(field_of(old, "closed")->default_value, "TWO");
    assert_null(field_of(old, "data")->default_value);
    assert_true(field_of(old, "packed")->packed);
    assert_false(field_of(old, "some_closed")->packed);
    assert_true(field_of(old, "closed")->enumeration->closed);
    assert_int_equal(field_of(old, "part")->kind, KIND_GROUP);
    const struct schema_message *strict = schema_message_find(schema, "test.kinds.Strict");
    assert_int_equal(strict->required_count, 2);
    assert_int_equal(field_of(strict, "second")->required_index, 1);
}

static void test_enums_are_found_by_name_and_number(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = schema_of(set_of_source(bank_source));
    const struct schema_message *message = schema_message_find(schema, "bank.v1.Payment");
    const struct schema_enum *kind = field_of(message, "a")->enumeration;
    assert_string_equal(kind->full_name, "bank.v1.Payment.Kind");
    assert_false(kind->closed);
    assert_int_equal(kind->value_count, 4);
    assert_string_equal(kind->values[1].name, "B");                  /* in the order of the file */
    assert_string_equal(schema_value_by_number(kind, 5)->name, "B"); /* the first of aliases */
    assert_string_equal(schema_value_by_number(kind, -1)->name, "A");
    assert_null(schema_value_by_number(kind, 6));
    assert_int_equal(schema_value_by_name(kind, "C")->number, 5);
    assert_null(schema_value_by_name(kind, "D"));
}

/* The value of the field with that number, of wire type 2. */
static bool option_is(const struct bytes *options, const uint8_t *bytes, size_t size)
{
    return options->size == size && memcmp(options->data, bytes, size) == 0;
}

static void test_services_keep_their_order_and_options(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = schema_of(set_of_source(bank_source));
    assert_int_equal(schema_service_count(schema), 2);
    assert_null(schema_service_at(schema, 2));
    const struct schema_service *service = schema_service_at(schema, 0);
    assert_string_equal(service->name, "Bank");
    assert_string_equal(service->full_name, "bank.v1.Bank");
    assert_string_equal(service->package, "bank.v1");
    assert_string_equal(service->file, "test.proto");
    assert_int_equal(service->method_count, 2);
    /* 50001 and 50002 as strings */
    static const uint8_t owner[] = { 0x8a, 0xb5, 0x18, 2, 'u', 's' };
    static const uint8_t mark[] = { 0x92, 0xb5, 0x18, 2, 'x', 'y' };
    assert_true(option_is(&service->options, owner, sizeof owner));
    const struct schema_method *pay = &service->methods[0], *back = &service->methods[1];
    assert_string_equal(pay->name, "Pay");
    assert_true(option_is(&pay->options, mark, sizeof mark));
    assert_string_equal(pay->input->full_name, "bank.v1.Payment");
    assert_string_equal(pay->output->full_name, "bank.v1.Payment.Inner");
    assert_false(pay->client_streaming);
    assert_true(pay->server_streaming);
    assert_true(back->client_streaming);
    assert_false(back->server_streaming);
    assert_int_equal(back->options.size, 0);
    assert_string_equal(schema_service_at(schema, 1)->full_name, "bank.v1.Empty");
    assert_int_equal(schema_service_at(schema, 1)->options.size, 0);
}

static void test_names_are_resolved_from_the_inside_out(void **state)
{
    (void)state;
    static const struct {
        const char *scope, *name, *full_name; /* NULL: none */
    } rows[] = {
        { "bank.v1", "Payment", "bank.v1.Payment" },
        { "bank.v1.Payment.Inner", "Payment", "bank.v1.Payment" },
        { "bank.v1.Payment", "Inner", "bank.v1.Payment.Inner" },
        { "bank.v1.Payment.Inner", "Inner", "bank.v1.Payment.Inner.Inner" },
        { "bank", "v1.Payment", "bank.v1.Payment" },
        { "", "bank.v1.Payment", "bank.v1.Payment" },
        { "elsewhere.v2", "bank.v1.Payment", "bank.v1.Payment" },
        { "elsewhere", ".bank.v1.Payment", "bank.v1.Payment" },
        { "bank.v1", ".Payment", NULL },
        { "bank", "Payment", NULL },
        { "bank.v1", "Bank", NULL },         /* a service */
        { "bank.v1.Payment", "Kind", NULL }, /* an enum */
        { "bank.v1", "", NULL },
        { "bank.v1", ".", NULL },
    };
    CLEANUP(schema_free_p) struct schema *schema = schema_of(set_of_source(bank_source));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct schema_message *found =
            schema_message_resolve(schema, rows[i].scope, rows[i].name);
        if (!rows[i].full_name)
            assert_null(found);
        else
            assert_ptr_equal(found, schema_message_find(schema, rows[i].full_name));
        assert_true(found || !rows[i].full_name);
    }
    assert_null(schema_message_find(schema, ".bank.v1.Payment"));
    assert_null(schema_message_find(schema, "bank.v1.Bank"));
}

static void test_the_empty_set_is_a_set(void **state)
{
    (void)state;
    struct err err;
    struct schema *schema = NULL;
    ASSERT_OK(schema_new(NULL, 0, &schema, &err), &err);
    assert_int_equal(schema_service_count(schema), 0);
    assert_null(schema_message_find(schema, "a"));
    assert_null(schema_free(schema));
    assert_null(schema_free(NULL));
}

/* ---- what is refused ---- */

#define FILE_OF(text)    "file { name: \"a.proto\" syntax: \"proto3\" " text " }"
#define FILE_2(text)     "file { name: \"a.proto\" " text " }"
#define MESSAGE_OF(text) FILE_OF("package: \"p\" message_type { name: \"M\" " text " }")
#define MESSAGE_2(text)  FILE_2("package: \"p\" message_type { name: \"M\" " text " }")
#define ENTRY(text)                                                                                \
    MESSAGE_OF(                                                                                    \
        "field { name: \"m\" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE "                  \
        "type_name: \".p.M.E\" } nested_type { name: \"E\" options { map_entry: true } " text      \
        " }")
#define KEY   "field { name: \"key\" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } "
#define VALUE "field { name: \"value\" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL } "
#define WELL(name, text)                                                                           \
    "file { name: \"w.proto\" package: \"google.protobuf\" syntax: \"proto3\" message_type { "     \
    "name: \"" name "\" " text " } }"

static const struct {
    const char *set, *part;
} faults[] = {
    { "file { }", "a file without a proper name" },
    { "file { name: \"a\\tb\" }", "a file without a proper name" },
    { "file { name: \"a.proto\" syntax: \"editions\" }",
      "a.proto: syntax \"editions\" is not supported; proto2 and proto3 are" },
    { "file { name: \"a.proto\" package: \"p..q\" }", "a.proto: its package is not a name" },
    { "file { name: \"a.proto\" package: \"p.\" }", "a.proto: its package is not a name" },
    { "file { name: \"a.proto\" package: \"p-q\" }", "a.proto: its package is not a name" },
    { "file { name: \"a.proto\" } file { name: \"a.proto\" }", "a.proto: is in the set twice" },
    { "file { name: \"a.proto\" dependency: \"b.proto\" }",
      "a.proto: imports b.proto, which is not in the set" },
    { "file { name: \"a.proto\" dependency: \"a.proto\" }",
      "a.proto: imports a.proto, which imports it in turn" },
    { "file { name: \"a.proto\" dependency: \"b.proto\" }"
      "file { name: \"b.proto\" dependency: \"c.proto\" }"
      "file { name: \"c.proto\" dependency: \"a.proto\" }",
      "c.proto: imports a.proto, which imports it in turn" },
    { FILE_OF("message_type { }"), "a.proto: declares \"\", which is no name" },
    { FILE_OF("package: \"p\" enum_type { name: \"1x\" }"),
      "a.proto: p: declares \"1x\", which is no name" },
    { MESSAGE_OF("nested_type { name: \"a.b\" }"),
      "a.proto: p.M: declares \"a.b\", which is no name" },
    { FILE_OF("service { name: \"s s\" }"), "declares \"s s\", which is no name" },
    { FILE_OF("message_type { name: \"M\" } service { name: \"M\" }"),
      "a.proto: M: is declared twice" },
    { MESSAGE_OF("nested_type { name: \"N\" } enum_type { name: \"N\" }"),
      "a.proto: p.M.N: is declared twice" },
    { FILE_OF("message_type { name: \"M\" }") "file { name: \"b.proto\" message_type { name: "
                                              "\"M\" } }",
      "M: is declared twice, as in " },
    { FILE_OF("message_type { name: \"p\" }") "file { name: \"b.proto\" package: \"p.q\" }",
      "b.proto: p: is the name of a package and of a type" },
    /* fields */
    { MESSAGE_OF("field { number: 1 type: TYPE_BOOL }"),
      "a.proto: p.M: has a field \"\", which is no name" },
    { MESSAGE_OF("field { name: \"x\" number: 0 type: TYPE_BOOL }"),
      "a.proto: p.M.x: its number is not 1 to 536870911" },
    { MESSAGE_OF("field { name: \"x\" number: -1 type: TYPE_BOOL }"), "its number is not 1" },
    { MESSAGE_OF("field { name: \"x\" number: 536870912 type: TYPE_BOOL }"),
      "its number is not 1" },
    { MESSAGE_OF("field { name: \"x\" number: 19000 type: TYPE_BOOL }"),
      "a.proto: p.M.x: its number is one of 19000 to 19999, which protobuf reserves" },
    { MESSAGE_OF("field { name: \"x\" number: 19999 type: TYPE_BOOL }"), "protobuf reserves" },
    { MESSAGE_OF("field { name: \"x\" number: 1 }"), "a.proto: p.M.x: it has no type" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_MESSAGE }"),
      "a.proto: p.M.x: its type \"\" is no message" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_MESSAGE type_name: \".p.N\" }"),
      "a.proto: p.M.x: its type .p.N is nowhere in the set" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type_name: \"N\" }"),
      "a.proto: p.M.x: its type N is nowhere in the set" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_ENUM type_name: \".p.M\" }"),
      "a.proto: p.M.x: its type \"p.M\" is no enum" },
    { MESSAGE_OF("enum_type { name: \"E\" value { name: \"Z\" number: 0 } } field { name: "
                 "\"x\" number: 1 type: TYPE_MESSAGE type_name: \"E\" }"),
      "a.proto: p.M.x: its type \"p.M.E\" is no message" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_BOOL type_name: \".p.M\" }"),
      "a.proto: p.M.x: a scalar with the name of a type" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type_name: \".N\" }") "file { name: "
                                                                      "\"b.proto\" dependency: "
                                                                      "\"a.proto\" message_type { "
                                                                      "name: \"N\" } }",
      "a.proto: p.M.x: its type N is in b.proto, which is not imported" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_BOOL json_name: \"a\\nb\" }"),
      "a.proto: p.M.x: its JSON name is no text" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_BOOL } field { name: \"y\" number: "
                 "1 type: TYPE_BOOL }"),
      "its number is that of another field" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_BOOL } field { name: \"x\" number: "
                 "2 type: TYPE_BOOL }"),
      "a.proto: p.M.x: is declared twice" },
    { MESSAGE_OF("field { name: \"a_b\" number: 1 type: TYPE_BOOL } field { name: \"aB\" "
                 "number: 2 type: TYPE_BOOL }"),
      "its JSON name is that of another field" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_BOOL label: LABEL_REQUIRED }"),
      "a.proto: p.M.x: required is of proto2" },
    { MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_BOOL oneof_index: 0 }"),
      "a.proto: p.M.x: its oneof does not exist" },
    { MESSAGE_OF("oneof_decl { name: \"o\" } field { name: \"x\" number: 1 type: TYPE_BOOL "
                 "oneof_index: -1 }"),
      "its oneof does not exist" },
    { MESSAGE_OF("oneof_decl { name: \"o\" } field { name: \"x\" number: 1 type: TYPE_BOOL "
                 "oneof_index: 0 label: LABEL_REPEATED }"),
      "a.proto: p.M.x: in a oneof, but not optional" },
    { MESSAGE_OF("oneof_decl { name: \"o o\" } field { name: \"x\" number: 1 type: TYPE_BOOL "
                 "oneof_index: 0 }"),
      "a.proto: p.M: has a oneof \"o o\", which is no name" },
    /* enums */
    { FILE_OF("enum_type { name: \"E\" }"), "a.proto: E: an enum without values" },
    { FILE_OF("enum_type { name: \"E\" value { name: \"\" } }"),
      "a.proto: E: has a value \"\", which is no name" },
    { FILE_OF("enum_type { name: \"E\" value { name: \"A\" number: 1 } }"),
      "a.proto: E: the first value of an enum of proto3 is 0" },
    { FILE_OF("enum_type { name: \"E\" value { name: \"A\" number: 0 } value { name: \"A\" "
              "number: 1 } }"),
      "a.proto: E.A: is declared twice" },
    /* services */
    { FILE_OF("service { name: \"S\" method { } }"),
      "a.proto: S: has a method \"\", which is no name" },
    { FILE_OF("service { name: \"S\" method { name: \"f\" output_type: \".S\" } }"),
      "a.proto: S.f: its type \"\" is no message of the set" },
    { FILE_OF("message_type { name: \"M\" } service { name: \"S\" method { name: \"f\" "
              "input_type: \".M\" output_type: \".S\" } }"),
      "a.proto: S.f: its type \".S\" is no message of the set" },
    { FILE_OF("message_type { name: \"M\" } service { name: \"S\" method { name: \"f\" "
              "input_type: \".M\" output_type: \".M\" } method { name: \"f\" input_type: "
              "\".M\" output_type: \".M\" } }"),
      "a.proto: S.f: is declared twice" },
    /* maps */
    { ENTRY(KEY), "a.proto: p.M.E: a map's entry has a key 1" },
    { ENTRY("field { name: \"key\" number: 1 type: TYPE_DOUBLE } " VALUE), "a map's entry" },
    { ENTRY("field { name: \"key\" number: 1 type: TYPE_BYTES } " VALUE), "a map's entry" },
    { ENTRY("field { name: \"kay\" number: 1 type: TYPE_STRING } " VALUE), "a map's entry" },
    { ENTRY("field { name: \"key\" number: 3 type: TYPE_STRING } " VALUE), "a map's entry" },
    { ENTRY(KEY "field { name: \"value\" number: 2 type: TYPE_BOOL label: LABEL_REPEATED }"),
      "a map's entry" },
    { ENTRY(KEY VALUE "field { name: \"more\" number: 3 type: TYPE_BOOL }"), "a map's entry" },
    { ENTRY(KEY VALUE) "file { name: \"b.proto\" dependency: \"a.proto\" message_type { name: "
                       "\"N\" field { name: \"x\" number: 1 label: LABEL_REPEATED type: "
                       "TYPE_MESSAGE type_name: \".p.M.E\" } } }",
      "b.proto: N: x is made of the entries of a map, but is none" },
    { MESSAGE_OF("field { name: \"m\" number: 1 type_name: \".p.M.E\" } nested_type { name: \"E\" "
                 "options { map_entry: true } " KEY VALUE "}"),
      "a.proto: p.M: m is made of the entries of a map, but is none" },
    { ENTRY(KEY VALUE) "file { name: \"b.proto\" service { name: \"S\" method { name: \"f\" "
                       "input_type: \".p.M.E\" output_type: \".p.M\" } } }",
      "b.proto: S: f takes or returns the entry of a map" },
    /* google.protobuf's own */
    { WELL("Timestamp", "field { name: \"seconds\" number: 1 type: TYPE_STRING }"),
      "w.proto: google.protobuf.Timestamp: has other fields than it has in protobuf" },
    { WELL("Any", ""), "google.protobuf.Any: has other fields" },
    { WELL("Struct", ""), "google.protobuf.Struct: has other fields" },
    { WELL("Int32Value", "field { name: \"value\" number: 1 type: TYPE_INT64 }"),
      "google.protobuf.Int32Value: has other fields" },
    { WELL("FieldMask", "field { name: \"paths\" number: 1 type: TYPE_STRING }"),
      "google.protobuf.FieldMask: has other fields" },
};

static void test_faults_are_told_with_file_and_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        CLEANUP(bytes_done) struct bytes set = set_of_text(faults[i].set);
        struct schema *schema = NULL;
        struct err err;
        int rc = schema_new(set.data, set.size, &schema, &err);
        if (!rc)
            print_error("taken: %s\n", faults[i].set);
        assert_error(&err, rc, ERR_INVALID, "", faults[i].part);
        assert_null(schema);
    }
}

static void test_what_is_odd_but_right_is_taken(void **state)
{
    (void)state;
    static const char *const sets[] = {
        FILE_2("syntax: \"proto2\" message_type { name: \"M\" }"),
        FILE_2("enum_type { name: \"E\" value { name: \"A\" number: 7 } }"),
        /* in any order */
        "file { name: \"a.proto\" dependency: \"b.proto\" } file { name: \"b.proto\" }",
        /* a type that is told by its name alone, and relative to where it is named */
        MESSAGE_OF("field { name: \"x\" number: 1 type_name: \"M\" }"),
        MESSAGE_OF("field { name: \"x\" number: 1 type_name: \"p.M\" type: TYPE_MESSAGE }"),
        MESSAGE_OF("enum_type { name: \"E\" value { name: \"Z\" number: 0 } } field { name: \"x\" "
                   "number: 1 type_name: \"E\" }"),
        MESSAGE_OF("field { name: \"x\" number: 536870911 type: TYPE_BOOL } field { name: \"y\" "
                   "number: 18999 type: TYPE_BOOL } field { name: \"z\" number: 20000 type: "
                   "TYPE_BOOL }"),
        MESSAGE_2("field { name: \"x\" number: 1 type: TYPE_BOOL label: LABEL_REQUIRED }"),
        ENTRY(KEY VALUE),
        WELL("Duration", "field { name: \"seconds\" number: 1 type: TYPE_INT64 } field { name: "
                         "\"nanos\" number: 2 type: TYPE_INT32 }"),
    };
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        struct schema *schema = schema_of(set_of_text(sets[i]));
        assert_null(schema_free(schema));
    }
}

static void test_bytes_that_are_no_set(void **state)
{
    (void)state;
    static const struct {
        struct bytes set;
        const char *part;
    } rows[] = {
        { { (uint8_t *)"\x80", 1 }, "no FileDescriptorSet: malformed field number" },
        { { (uint8_t *)"\x0a\x05", 2 }, "no FileDescriptorSet: length beyond the end" },
        { { (uint8_t *)"\x08\x01", 2 }, "no FileDescriptorSet: wrong wire type" },
        { { (uint8_t *)"\x0a\x02\x08\x01", 4 }, "file 1: name: wrong wire type" },
        { { (uint8_t *)"\x0a\x03\x0a\x01\xff", 5 }, "file 1: name: is not valid UTF-8" },
        { { (uint8_t *)"\x0a\x03\x0a\x01z\x0a\x03\x22\x01\x0a", 10 }, "file 2: message_type[0]" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct schema *schema = NULL;
        struct err err;
        int rc = schema_new(rows[i].set.data, rows[i].set.size, &schema, &err);
        assert_error(&err, rc, ERR_INVALID, NULL, rows[i].part);
    }
}

/* ---- limits ---- */

static void text_repeat(struct buf *out, size_t count, const char *before, const char *after)
{
    for (size_t i = 0; i < count; i++)
        buf_printf(out, "%s%zu%s", before, i, after);
}

static void assert_limit(struct buf *text, const char *name)
{
    assert_false(text->failed);
    CLEANUP(bytes_done) struct bytes set = set_of_text(buf_cstr(text));
    struct schema *schema = NULL;
    struct err err;
    int rc = schema_new(set.data, set.size, &schema, &err);
    if (name)
        assert_error(&err, rc, ERR_LIMIT, NULL, name);
    else
        ASSERT_OK(rc, &err);
    (void)schema_free(schema); /* always NULL */
    buf_clear(text);
}

static void test_limits_of_files_and_types(void **state)
{
    (void)state;
    CLEANUP(buf_done_p) struct buf text = { 0 };
    for (size_t more = 0; more < 2; more++) { /* the limit itself is fine */
        text_repeat(&text, SCHEMA_FILES_MAX + more, "file { name: \"", "\" }");
        assert_limit(&text, more ? "descriptors: more than 1000 files (SCHEMA_FILES_MAX)" : NULL);
        buf_text(&text, "file { name: \"a\" ");
        text_repeat(&text, SCHEMA_TYPES_MAX - 1 + more, "message_type { name: \"M", "\" }");
        buf_text(&text, "enum_type { name: \"E\" value { name: \"A\" number: 0 } } }");
        assert_limit(&text,
                     more ? "descriptors: more than 20000 messages and enums (SCHEMA_TYPES_MAX)"
                          : NULL);
        buf_text(&text, "file { name: \"a\" ");
        text_repeat(&text, SCHEMA_SERVICES_MAX + more, "service { name: \"S", "\" }");
        buf_text(&text, "}");
        assert_limit(&text,
                     more ? "descriptors: more than 1000 services (SCHEMA_SERVICES_MAX)" : NULL);
        buf_text(&text, "file { name: \"a\" message_type { name: \"M\" } service { name: \"S\" ");
        text_repeat(&text, SCHEMA_METHODS_MAX + more, "method { name: \"m",
                    "\" input_type: \".M\" output_type: \".M\" }");
        buf_text(&text, "} }");
        assert_limit(&text,
                     more ? "descriptors: more than 10000 methods (SCHEMA_METHODS_MAX)" : NULL);
    }
}

static void test_limit_of_fields_and_values(void **state)
{
    (void)state;
    CLEANUP(buf_done_p) struct buf text = { 0 };
    for (size_t more = 0; more < 2; more++) {
        for (size_t i = 0; i < 4; i++) { /* one file alone is over the limit of the scan */
            buf_printf(&text, "file { name: \"%zu\" package: \"p%zu\" enum_type { name: \"E\" ", i,
                       i);
            text_repeat(&text, SCHEMA_FIELDS_MAX / 4 - (i == 0), "value { name: \"V",
                        "\" number: 0 }");
            buf_text(&text, "} }");
        }
        buf_text(&text, "file { name: \"m\" message_type { name: \"M\" ");
        for (size_t i = 0; i < 1 + more; i++)
            buf_printf(&text, "field { name: \"f%zu\" number: %zu type: TYPE_BOOL }", i, i + 1);
        buf_text(&text, "} }");
        assert_limit(&text,
                     more ? "descriptors: more than 100000 fields and values (SCHEMA_FIELDS_MAX)"
                          : NULL);
    }
}

/* `count` bytes of the letter a. */
static const char *letters(size_t count)
{
    static const char all[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    _Static_assert(sizeof all > SCHEMA_NAME_BYTES + 1, "longer than any limit");
    return all + sizeof all - 1 - count;
}

static void test_limits_of_names_nesting_and_required(void **state)
{
    (void)state;
    CLEANUP(buf_done_p) struct buf text = { 0 };
    for (size_t more = 0; more < 2; more++) {
        buf_printf(&text, FILE_OF("message_type { name: \"%s\" }"),
                   letters(SCHEMA_NAME_BYTES + more));
        assert_limit(&text, more ? "a.proto: more than 512 bytes in a full name (SCHEMA_NAME_BYTES)"
                                 : NULL);
        buf_printf(&text, "file { name: \"%s\" }", letters(SCHEMA_NAME_BYTES + more));
        assert_limit(
            &text,
            more ? ": more than 512 bytes in the name of a file or package (SCHEMA_NAME_BYTES)"
                 : NULL);
        buf_printf(&text, "file { name: \"a\" package: \"%s\" }",
                   letters(SCHEMA_NAME_BYTES + more));
        assert_limit(
            &text,
            more ? ": more than 512 bytes in the name of a file or package (SCHEMA_NAME_BYTES)"
                 : NULL);
        buf_printf(&text, MESSAGE_OF("field { name: \"%s\" number: 1 type: TYPE_BOOL }"),
                   letters(SCHEMA_FIELD_NAME_BYTES + more));
        assert_limit(&text, more ? "a.proto: p.M: more than 127 bytes in the name of a field "
                                   "(SCHEMA_FIELD_NAME_BYTES)"
                                 : NULL);
        buf_printf(&text,
                   MESSAGE_OF("field { name: \"x\" number: 1 type: TYPE_BOOL json_name: \"%s\" }"),
                   letters(SCHEMA_FIELD_NAME_BYTES + more));
        assert_limit(&text, more ? "a.proto: p.M: more than 127 bytes in the name of a field "
                                   "(SCHEMA_FIELD_NAME_BYTES)"
                                 : NULL);
        buf_text(&text, "file { name: \"a\" message_type { name: \"M\" ");
        for (size_t i = 1; i < SCHEMA_NESTING_MAX + more; i++)
            buf_text(&text, "nested_type { name: \"M\" ");
        for (size_t i = 0; i < SCHEMA_NESTING_MAX + more; i++)
            buf_text(&text, "} ");
        buf_text(&text, "}");
        assert_limit(&text,
                     more ? "a: more than 32 messages declared in one another (SCHEMA_NESTING_MAX)"
                          : NULL);
        buf_text(&text, "file { name: \"a\" message_type { name: \"M\" ");
        for (size_t i = 0; i < SCHEMA_REQUIRED_MAX + more; i++)
            buf_printf(&text,
                       "field { name: \"f%zu\" number: %zu type: TYPE_BOOL label: LABEL_REQUIRED }",
                       i, i + 1);
        buf_text(&text, "} }");
        assert_limit(
            &text, more ? "a: M: more than 64 required fields in one message (SCHEMA_REQUIRED_MAX)"
                        : NULL);
    }
}

static void test_limits_of_bytes_and_memory(void **state)
{
    (void)state;
    struct schema *schema = NULL;
    struct err err;
    size_t size = SCHEMA_BYTES_MAX + 1;
    uint8_t *data = mem_calloc(1, size);
    assert_non_null(data);
    assert_error(&err, schema_new(data, size, &schema, &err), ERR_LIMIT, NULL, "SCHEMA_BYTES_MAX");
    /* one file of many, of empty messages of two bytes each: 150,000 are within the scan's limit */
    size = 0;
    for (size_t i = 0; i < 12; i++) {
        static const uint8_t head[] = { 0x0a, 0xe3, 0x93, 0x12, 0x0a, 0x01, 'a' };
        memcpy(data + size, head, sizeof head);
        data[size + 6] = (uint8_t)('a' + i);
        size += sizeof head;
        for (size_t j = 0; j < 150000; j++) {
            data[size++] = 0x22;
            data[size++] = 0;
        }
    }
    assert_error(&err, schema_new(data, size, &schema, &err), ERR_LIMIT, NULL, "memory");
    /* messages in messages, deeper than the scan allows */
    size = 0;
    static uint8_t room[64 * 1024];
    size_t at = sizeof room;
    for (size_t i = 0; i < 5000; i++) {
        size_t length = sizeof room - at;
        uint8_t varint[3] = { (uint8_t)(length | 0x80), (uint8_t)((length >> 7) | 0x80),
                              (uint8_t)(length >> 14) };
        at -= sizeof varint;
        memcpy(room + at, varint, sizeof varint);
        room[--at] = i == 4999 ? 0x0a : i == 4998 ? 0x22 : 0x1a;
    }
    assert_error(&err, schema_new(room + at, sizeof room - at, &schema, &err), ERR_LIMIT, NULL,
                 "deeper than 100");
    assert_null(schema);
    mem_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_are_what_protoc_means),
        cmocka_unit_test(test_proto2_is_what_protoc_means),
        cmocka_unit_test(test_enums_are_found_by_name_and_number),
        cmocka_unit_test(test_services_keep_their_order_and_options),
        cmocka_unit_test(test_names_are_resolved_from_the_inside_out),
        cmocka_unit_test(test_the_empty_set_is_a_set),
        cmocka_unit_test(test_faults_are_told_with_file_and_name),
        cmocka_unit_test(test_what_is_odd_but_right_is_taken),
        cmocka_unit_test(test_bytes_that_are_no_set),
        cmocka_unit_test(test_limits_of_files_and_types),
        cmocka_unit_test(test_limit_of_fields_and_values),
        cmocka_unit_test(test_limits_of_names_nesting_and_required),
        cmocka_unit_test(test_limits_of_bytes_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
