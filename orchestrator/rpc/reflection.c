#include "rpc/reflection.h"

#include <grpc/status.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Grpc__Reflection__V1__ServerReflectionRequest request_message;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_message;

enum { ERROR_TEXT_BYTES = 320, NAME_SHOWN_BYTES = 200 };

static void *message_new(struct arena *arena, const ProtobufCMessageDescriptor *type)
{
    void *message = arena_alloc(arena, type->sizeof_message);
    if (message)
        protobuf_c_message_init(type, message);
    return message;
}

static char *borrow(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c's fields are not const; packing only reads */
}

static int fail(struct arena *arena, response_message *response, int code, const char *what,
                const char *name)
{
    Grpc__Reflection__V1__ErrorResponse *error =
        message_new(arena, &grpc__reflection__v1__error_response__descriptor);
    char *text = arena_alloc(arena, ERROR_TEXT_BYTES);
    if (!error || !text)
        return -1;
    int shown = (int)strlen(name);
    if (shown > NAME_SHOWN_BYTES) /* cut at a character */
        for (shown = NAME_SHOWN_BYTES; shown && ((uint8_t)name[shown] & 0xc0) == 0x80;)
            shown--;
    (void)snprintf(text, ERROR_TEXT_BYTES, "%s%.*s", what, shown, name);
    error->error_code = code;
    error->error_message = text;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response->error_response = error;
    return 0;
}

static int answer_file(struct arena *arena, response_message *response,
                       const struct reflection_file *file)
{
    Grpc__Reflection__V1__FileDescriptorResponse *files =
        message_new(arena, &grpc__reflection__v1__file_descriptor_response__descriptor);
    if (!files)
        return -1;
    files->file_descriptor_proto =
        arena_array(arena, file->needed_count, sizeof *files->file_descriptor_proto);
    if (!files->file_descriptor_proto)
        return -1;
    for (size_t i = 0; i < file->needed_count; i++) {
        const struct reflection_file *needed = &reflection_files[file->needed[i]];
        files->file_descriptor_proto[i].data = (uint8_t *)(uintptr_t)needed->bytes; /* read only */
        files->file_descriptor_proto[i].len = needed->size;
    }
    files->n_file_descriptor_proto = file->needed_count;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response->file_descriptor_response = files;
    return 0;
}

static int by_name(struct arena *arena, response_message *response, const char *name)
{
    for (size_t i = 0; i < reflection_file_count; i++)
        if (strcmp(reflection_files[i].name, name) == 0)
            return answer_file(arena, response, &reflection_files[i]);
    return fail(arena, response, GRPC_STATUS_NOT_FOUND, "no such file: ", name);
}

static int compare_symbol(const void *name, const void *symbol)
{
    return strcmp(name, ((const struct reflection_symbol *)symbol)->name);
}

static const struct reflection_symbol *find_symbol(const char *name)
{
    return bsearch(name, reflection_symbols, reflection_symbol_count, sizeof *reflection_symbols,
                   compare_symbol);
}

static int by_symbol(struct arena *arena, response_message *response, const char *name)
{
    const struct reflection_symbol *symbol = find_symbol(name);
    if (!symbol)
        return fail(arena, response, GRPC_STATUS_NOT_FOUND, "no such symbol: ", name);
    return answer_file(arena, response, &reflection_files[symbol->file]);
}

static int by_extension(struct arena *arena, response_message *response,
                        const Grpc__Reflection__V1__ExtensionRequest *asked)
{
    for (size_t i = 0; i < reflection_extension_count; i++) {
        const struct reflection_extension *extension = &reflection_extensions[i];
        if (extension->number == asked->extension_number &&
            strcmp(extension->type, asked->containing_type) == 0)
            return answer_file(arena, response, &reflection_files[extension->file]);
    }
    char what[48];
    (void)snprintf(what, sizeof what, "no extension %" PRId32 " of ", asked->extension_number);
    return fail(arena, response, GRPC_STATUS_NOT_FOUND, what, asked->containing_type);
}

static int extension_numbers(struct arena *arena, response_message *response, const char *type)
{
    const struct reflection_symbol *symbol = find_symbol(type);
    if (!symbol || !symbol->is_message)
        return fail(arena, response, GRPC_STATUS_NOT_FOUND, "no such message: ", type);
    Grpc__Reflection__V1__ExtensionNumberResponse *numbers =
        message_new(arena, &grpc__reflection__v1__extension_number_response__descriptor);
    if (!numbers)
        return -1;
    numbers->base_type_name = borrow(symbol->name);
    numbers->extension_number =
        arena_array(arena, reflection_extension_count + 1, sizeof *numbers->extension_number);
    if (!numbers->extension_number)
        return -1;
    for (size_t i = 0; i < reflection_extension_count; i++)
        if (strcmp(reflection_extensions[i].type, type) == 0)
            numbers->extension_number[numbers->n_extension_number++] =
                reflection_extensions[i].number;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
    response->all_extension_numbers_response = numbers;
    return 0;
}

static int services(struct arena *arena, response_message *response)
{
    Grpc__Reflection__V1__ListServiceResponse *list =
        message_new(arena, &grpc__reflection__v1__list_service_response__descriptor);
    if (!list)
        return -1;
    list->service = arena_array(arena, reflection_service_count, sizeof(ProtobufCMessage *));
    if (!list->service)
        return -1;
    for (size_t i = 0; i < reflection_service_count; i++) {
        list->service[i] = message_new(arena, &grpc__reflection__v1__service_response__descriptor);
        if (!list->service[i])
            return -1;
        list->service[i]->name = borrow(reflection_services[i]);
    }
    list->n_service = reflection_service_count;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    response->list_services_response = list;
    return 0;
}

static int answer(struct arena *arena, const request_message *request, response_message *response)
{
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        return by_name(arena, response, request->file_by_filename);
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        return by_symbol(arena, response, request->file_containing_symbol);
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        return by_extension(arena, response, request->file_containing_extension);
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        return extension_numbers(arena, response, request->all_extension_numbers_of_type);
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        return services(arena, response);
    default:
        return fail(arena, response, GRPC_STATUS_INVALID_ARGUMENT,
                    "message_request: nothing that this server knows is asked for", "");
    }
}

response_message *reflection_answer(struct arena *arena, request_message *request)
{
    response_message *response =
        message_new(arena, &grpc__reflection__v1__server_reflection_response__descriptor);
    if (!response)
        return NULL;
    response->valid_host = request->host;
    response->original_request = request;
    return answer(arena, request, response) ? NULL : response;
}
