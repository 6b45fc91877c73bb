#include "ctl/definition_file.h"

#include "core/limits.h"
#include "ctl/ctl.h"
#include "wire/json.h"

#include <string.h>

enum definition_file_kind definition_file_kind(const char *path, bool *ret_known)
{
    static const struct ending {
        const char *text;
        enum definition_file_kind kind;
    } endings[] = {
        { ".json", DEFINITION_JSON },      { ".proto", DEFINITION_PROTO },
        { ".textproto", DEFINITION_TEXT }, { ".txtpb", DEFINITION_TEXT },
        { ".pbtxt", DEFINITION_TEXT },     { ".textpb", DEFINITION_TEXT },
        { ".binpb", DEFINITION_SET },      { ".pb", DEFINITION_SET },
        { ".desc", DEFINITION_SET },       { ".bin", DEFINITION_SET },
        { ".fds", DEFINITION_SET },        { ".protoset", DEFINITION_SET },
    };
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; ending && i < ARRAY_LEN(endings); i++) {
        if (strcmp(ending, endings[i].text) == 0) {
            if (ret_known)
                *ret_known = true;
            return endings[i].kind;
        }
    }
    if (ret_known)
        *ret_known = false;
    return DEFINITION_JSON;
}

int definition_file_read(const char *path, const struct protoc_includes *includes,
                         Saga__V1__SagaDefinition **ret, struct err *err)
{
    CLEANUP(buf_done) struct buf content = { 0 };
    if (definition_file_kind(path, NULL) == DEFINITION_TEXT) {
        if (protoc_encode(path, includes, &content, err) != 0)
            return err->code;
        Saga__V1__SagaDefinition *definition =
            saga__v1__saga_definition__unpack(NULL, content.size, content.data);
        if (!definition)
            return err_set(err, ERR_INTERNAL, "%s: what protoc made of it cannot be read", path);
        *ret = definition;
        return 0;
    }
    ProtobufCMessage *message;
    if (ctl_read_file(path, LIMIT_MESSAGE_BYTES, &content, err) != 0)
        return err->code;
    if (wire_json_decode(buf_cstr(&content), content.size, &saga__v1__saga_definition__descriptor,
                         &message, err) != 0)
        return err_wrap(err, "%s", path);
    *ret = (Saga__V1__SagaDefinition *)message;
    return 0;
}
