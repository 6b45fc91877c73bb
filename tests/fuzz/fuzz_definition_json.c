/* Goal: JSON of others becomes a message or is refused with its place; what was read is written and
 * read again without a change, passes the scan of the server, and a definition that has no fault
 * keeps its content when it is stored. Method: the first byte chooses the message's type, mostly a
 * definition, the second where memory ends; the rest is the text. */
#include "fuzz.h"
#include "wire/definition_codec.h"
#include "wire/json.h"
#include "wire/scan.h"

#include <every.pb-c.h>
#include <saga/v1/saga.pb-c.h>
#include <saga/v1/worker.pb-c.h>
#include <string.h>

/* The last ones have what a definition has not: bytes, maps, every kind of number, times. */
static const ProtobufCMessageDescriptor *const types[] = {
    &saga__v1__saga_definition__descriptor,
    &saga__v1__register_definition_request__descriptor,
    &saga__v1__start_saga_request__descriptor,
    &saga__v1__saga__descriptor,
    &saga__v1__journal_entry__descriptor,
    &saga__v1__credit__descriptor,
    &saga__v1__task__descriptor,
    &saga__v1__server_message__descriptor,
};

static struct bytes pack(const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    struct bytes bytes = { mem_calloc(1, size + 1), size };
    FUZZ_CHECK(bytes.data);
    FUZZ_CHECK(protobuf_c_message_pack(message, bytes.data) == size);
    return bytes;
}

static bool equal(const struct bytes *a, const struct bytes *b)
{
    return a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

static void check_again(const ProtobufCMessage *message, const struct bytes *packed)
{
    char *text = NULL;
    ProtobufCMessage *again = NULL;
    struct err err;
    FUZZ_OK(wire_json_encode(message, &text, &err), &err);
    FUZZ_OK(wire_json_decode(text, strlen(text), message->descriptor, &again, &err), &err);
    struct bytes packed_again = pack(again);
    FUZZ_CHECK(equal(packed, &packed_again));
    mem_free(packed_again.data);
    protobuf_c_message_free_unpacked(again, NULL);
    mem_free(text);
}

static void on_fault(void *ctx, const char *field, const char *description)
{
    FUZZ_CHECK(field && *description);
    ++*(size_t *)ctx;
}

static void check_definition(const Saga__V1__SagaDefinition *message)
{
    struct definition *definition = NULL;
    size_t faults = 0, told = 0;
    struct err err;
    FUZZ_OK(definition_from_message(message, on_fault, &told, &definition, &faults, &err), &err);
    FUZZ_CHECK(faults == told);
    FUZZ_CHECK((faults == 0) == (definition != NULL));
    if (!definition)
        return;
    struct bytes content = { 0 }, again = { 0 };
    FUZZ_OK(definition_encode(definition, &content, &err), &err);
    definition = definition_free(definition);
    FUZZ_OK(definition_decode(&content, &definition, &err), &err);
    FUZZ_OK(definition_encode(definition, &again, &err), &err);
    FUZZ_CHECK(equal(&content, &again));
    (void)definition_free(definition); /* always NULL */
    mem_free(content.data);
    mem_free(again.data);
}

/* The same with too little memory: an error, or all is well; nothing is left behind. */
static void check_memory(const Saga__V1__SagaDefinition *message, uint8_t memory)
{
    struct definition *definition = NULL;
    struct bytes content = { 0 };
    size_t faults = 0, told = 0;
    struct err err;
    fail_memory(memory);
    int rc = definition_from_message(message, on_fault, &told, &definition, &faults, &err);
    if (!rc && definition)
        rc = definition_encode(definition, &content, &err);
    if (!rc && definition) {
        definition = definition_free(definition);
        rc = definition_decode(&content, &definition, &err);
    }
    fail_memory(0);
    FUZZ_CHECK(!rc || rc == ERR_NOMEM);
    (void)definition_free(definition); /* always NULL */
    mem_free(content.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script script = { data, size };
    unsigned choice = script_choice(&script, 32);
    const ProtobufCMessageDescriptor *type = types[choice < ARRAY_LEN(types) ? choice : 0];
    uint8_t memory = script_byte(&script);
    ProtobufCMessage *message = NULL;
    struct err err;
    fail_memory(memory);
    int rc = wire_json_decode((const char *)script.data, script.left, type, &message, &err);
    fail_memory(0);
    if (rc) {
        FUZZ_CHECK(rc == ERR_INVALID || rc == ERR_UNIMPLEMENTED || (memory && rc == ERR_NOMEM));
        FUZZ_CHECK(*err.msg);
        return 0;
    }
    FUZZ_CHECK(protobuf_c_message_check(message));
    struct bytes packed = pack(message);
    FUZZ_OK(wire_scan(type, packed.data, packed.size, &err), &err);
    check_again(message, &packed);
    if (type == types[0] && memory)
        check_memory((void *)message, memory);
    else if (type == types[0])
        check_definition((void *)message);
    mem_free(packed.data);
    protobuf_c_message_free_unpacked(message, NULL);
    return 0;
}
