/* Goal: no descriptors and no payload of others break us; what a payload says in JSON is what it
 * says when it is read again. Method: the first byte chooses between bytes of a type of
 * tests/definitions/kinds.proto (checked, printed, read again), JSON text (read, printed, read
 * again), a template with bytes, and a FileDescriptorSet, by whose types its own bytes are looked
 * at; the second says where memory ends. Sets are mutated by their type. */
#include "base/rng.h"
#include "base/utf8.h"
#include "ctl/revision_types.h"
#include "fuzz.h"
#include "mutate_message.h"
#include "schema/payload.h"

#include <google/protobuf/descriptor.pb-c.h>
#include <string.h>

enum mode { MODE_BYTES, MODE_TEXT, MODE_TEMPLATE, MODE_SET, MODE_COUNT };
enum { HEAD_BYTES = 2, SET_BYTES_MAX = 64 * 1024, TEXT_BYTES_MAX = 1024 * 1024 };

/* Append only: the first byte of the kept inputs counts in it. */
static const char *const types[] = {
    "test.kinds.Kinds",
    "test.kinds.Old",
    "test.kinds.Strict",
    "test.kinds.Small",
    "google.protobuf.Any",
    "google.protobuf.Value",
    "google.protobuf.FieldMask",
    "google.protobuf.Timestamp",
    "google.protobuf.DoubleValue",
};

static struct schema *kinds;
static struct revision_types *shown; /* the same as sagactl has it: a step for each of `types` */

/* Step N answers the N-th of `types`. Nothing of it is ever freed. */
static void load_shown(uint8_t *set, size_t size)
{
    static Saga__V1__RegisteredDefinition registered = SAGA__V1__REGISTERED_DEFINITION__INIT;
    static Saga__V1__SagaDefinition definition = SAGA__V1__SAGA_DEFINITION__INIT;
    static Saga__V1__Step steps[ARRAY_LEN(types)], *list[ARRAY_LEN(types)];
    static Saga__V1__Operation actions[ARRAY_LEN(types)];
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        saga__v1__step__init(list[i] = &steps[i]);
        saga__v1__operation__init(steps[i].action = &actions[i]);
        steps[i].name = (char *)(uintptr_t)types[i]; /* is only read */
        actions[i].output_type = steps[i].name;
    }
    definition.n_steps = ARRAY_LEN(types);
    definition.steps = list;
    registered.definition = &definition;
    registered.descriptors = (ProtobufCBinaryData){ .len = size, .data = set };
    FUZZ_OK(revision_types_new(&registered, &shown, &err), &err);
}

static void load_kinds(void)
{
    static uint8_t set[SET_BYTES_MAX];
    FILE *file = fopen(KINDS_SET, "rb");
    FUZZ_CHECK(file);
    size_t size = fread(set, 1, sizeof set, file);
    (void)fclose(file); /* it was only read */
    struct err err;
    FUZZ_OK(schema_new(set, size, &kinds, &err), &err);
    load_shown(set, size);
}

static bool is_refusal(int rc, bool little_memory)
{
    return rc == ERR_INVALID || rc == ERR_LIMIT || (little_memory && rc == ERR_NOMEM);
}

/* Text of ours: it is read (but for keys with a NUL, which no reader of JSON in C takes), and the
 * bytes say the same text. */
static void read_again(const struct schema *schema, const struct schema_message *type,
                       const struct buf *text)
{
    struct bytes bytes = { 0 };
    struct buf again = { 0 };
    struct err err;
    int rc = payload_json_read(schema, type, buf_cstr(text), text->size, &bytes, &err);
    if (rc && strstr(buf_cstr(text), "\\u0000"))
        return;
    FUZZ_OK(rc, &err);
    FUZZ_OK(payload_check(type, bytes.data, bytes.size, &err), &err);
    size_t unknown = 99;
    FUZZ_OK(payload_json_write(schema, type, bytes.data, bytes.size, &again, &unknown, &err), &err);
    FUZZ_CHECK(unknown == 0);
    FUZZ_CHECK(again.size == text->size && strcmp(buf_cstr(&again), buf_cstr(text)) == 0);
    mem_free(bytes.data);
    buf_done(&again);
}

/* `ours`: the types are those of kinds.proto. Others may have two fields that JSON cannot tell
 * apart. */
static void try_bytes(const struct schema *schema, const struct schema_message *type, bool ours,
                      const uint8_t *data, size_t size, uint8_t memory)
{
    struct buf text = { .limit = TEXT_BYTES_MAX };
    struct err err;
    int checked = payload_check(type, data, size, &err);
    FUZZ_CHECK(!checked || is_refusal(checked, false));
    fail_memory(memory);
    int rc = payload_json_write(schema, type, data, size, &text, NULL, &err);
    fail_memory(0);
    FUZZ_CHECK(!rc || (is_refusal(rc, memory) && *err.msg));
    FUZZ_CHECK(rc || !checked);
    if (!rc && ours)
        read_again(schema, type, &text);
    buf_done(&text);
}

/* On a screen and for scripts, whatever it is; a screen gets no control characters. */
static void show(const char *name, const uint8_t *data, size_t size)
{
    const struct revision_type type =
        revision_types_step(shown, name, SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION);
    const ProtobufCBinaryData payload = { .len = size, .data = (uint8_t *)(uintptr_t)data };
    struct buf whole = { 0 }, cut = { 0 };
    struct err err;
    FUZZ_CHECK(type.message);
    FUZZ_CHECK(!revision_types_write(shown, type, &payload, 0, &whole) && !whole.failed);
    FUZZ_CHECK(utf8_is_text(buf_cstr(&whole), whole.size));
    (void)revision_types_write(shown, type, &payload, 16, &cut); /* as it is long */
    FUZZ_CHECK(utf8_is_text(buf_cstr(&cut), cut.size));
    json_t *object = json_object();
    FUZZ_OK(revision_types_add_json(shown, type, &payload, "output", object, &err), &err);
    FUZZ_CHECK(!json_object_get(object, "outputJson") ==
               (!size || json_object_get(object, "outputProblem")));
    json_decref(object);
    buf_done(&whole);
    buf_done(&cut);
}

static void try_text(const struct schema_message *type, const uint8_t *data, size_t size,
                     uint8_t memory)
{
    struct bytes bytes = { 0 };
    struct buf text = { 0 };
    struct err err;
    fail_memory(memory);
    int rc = payload_json_read(kinds, type, (const char *)data, size, &bytes, &err);
    fail_memory(0);
    FUZZ_CHECK(!rc || (is_refusal(rc, memory) && *err.msg && !bytes.data));
    if (!rc) {
        FUZZ_OK(payload_json_write(kinds, type, bytes.data, bytes.size, &text, NULL, &err), &err);
        read_again(kinds, type, &text);
    }
    mem_free(bytes.data);
    buf_done(&text);
}

static void try_template(const struct schema_message *type, struct script *script, uint8_t memory)
{
    size_t size;
    const uint8_t *piece = script_piece(script, &size);
    struct buf text = { 0 }, out = { 0 };
    struct err err;
    buf_append(&text, piece, size);
    int checked = payload_template_check(type, buf_cstr(&text), &err);
    FUZZ_CHECK(!checked || (checked == ERR_INVALID && *err.msg));
    fail_memory(memory);
    int rc =
        payload_template_fill(type, buf_cstr(&text), script->data, script->left, 64, &out, &err);
    fail_memory(0);
    FUZZ_CHECK(!rc || (is_refusal(rc, memory) && *err.msg));
    FUZZ_CHECK(rc || (!checked && out.size <= 64));
    buf_done(&text);
    buf_done(&out);
}

/* What is left of a set has what was asked for, and is left of itself. */
static void prune(const uint8_t *data, size_t size, const char *name, uint8_t memory)
{
    struct bytes pruned = { 0 }, again = { 0 };
    struct err err;
    fail_memory(memory);
    int rc = schema_prune(data, size, &name, 1, &pruned, &err);
    fail_memory(0);
    FUZZ_CHECK(!rc || (memory && (rc == ERR_NOMEM || rc == ERR_LIMIT)));
    if (!rc) {
        FUZZ_OK(schema_prune(pruned.data, pruned.size, &name, 1, &again, &err), &err);
        FUZZ_CHECK(again.size == pruned.size && memcmp(again.data, pruned.data, again.size) == 0);
    }
    mem_free(pruned.data);
    mem_free(again.data);
}

static void try_set(const uint8_t *data, size_t size, uint8_t memory)
{
    struct schema *schema = NULL;
    struct err err;
    fail_memory(memory);
    int rc = schema_new(data, size, &schema, &err);
    fail_memory(0);
    FUZZ_CHECK(!rc == (schema != NULL));
    FUZZ_CHECK(!rc || (is_refusal(rc, memory) && *err.msg));
    if (rc)
        return;
    static const char *const names[] = { "A", "p.A", "p.A.B", "test.kinds.Old", "bank.v1.Payment" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct schema_message *type = schema_message_find(schema, names[i]);
        FUZZ_CHECK(type == schema_message_resolve(schema, "", names[i]));
        if (!type)
            continue;
        try_bytes(schema, type, false, data, size, 0);
        prune(data, size, names[i], memory);
    }
    for (size_t i = 0; i < schema_service_count(schema); i++)
        FUZZ_CHECK(*schema_service_at(schema, i)->name);
    (void)schema_free(schema); /* always NULL */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!kinds)
        load_kinds();
    if (size < HEAD_BYTES)
        return 0;
    const struct schema_message *type =
        schema_message_find(kinds, types[data[0] / MODE_COUNT % ARRAY_LEN(types)]);
    struct script script = { data + HEAD_BYTES, size - HEAD_BYTES };
    switch ((enum mode)(data[0] % MODE_COUNT)) {
    case MODE_BYTES:
        try_bytes(kinds, type, true, script.data, script.left, data[1]);
        show(type->full_name, script.data, script.left);
        break;
    case MODE_TEXT:
        try_text(type, script.data, script.left, data[1]);
        break;
    case MODE_TEMPLATE:
        try_template(type, &script, data[1]);
        break;
    default:
        try_set(script.data, script.left, data[1]);
    }
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    if (size < HEAD_BYTES || size_max < HEAD_BYTES || data[0] % MODE_COUNT != MODE_SET ||
        !rng_below(&rng, 20))
        return LLVMFuzzerMutate(data, size, size_max);
    return HEAD_BYTES + mutate_message(&google__protobuf__file_descriptor_set__descriptor,
                                       data + HEAD_BYTES, size - HEAD_BYTES, size_max - HEAD_BYTES,
                                       &rng);
}
