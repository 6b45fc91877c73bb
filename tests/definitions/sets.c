#include "definitions/sets.h"

#include "support/process.h"
#include "support/scratch.h"

#include <stdio.h>

#define FOLDER SOURCE_DIR "/tests/definitions"

const char bank_source[] =
    "syntax = \"proto3\";\n"
    "package bank.v1;\n"
    "import \"google/protobuf/timestamp.proto\";\n"
    "import \"google/protobuf/descriptor.proto\";\n"
    "extend google.protobuf.ServiceOptions { string owner = 50001; }\n"
    "extend google.protobuf.MethodOptions { bytes mark = 50002; }\n"
    "message Payment {\n"
    "  string text = 9; optional int32 count = 1; repeated int64 many = 2;\n"
    "  repeated int64 spread = 3 [packed = false]; map<string, Kind> kinds = 4;\n"
    "  oneof left { Kind a = 5; Inner b = 6; } optional string note = 7;\n"
    "  oneof right { bool c = 8; } google.protobuf.Timestamp at = 10 [json_name = \"when\"];\n"
    "  enum Kind { option allow_alias = true; NONE = 0; B = 5; C = 5; A = -1; }\n"
    "  message Inner { Payment payment = 1; message Inner { } Inner inner = 2; }\n"
    "}\n"
    "service Bank { option (owner) = \"us\";\n"
    "  rpc Pay(Payment) returns (stream Payment.Inner) { option (mark) = \"xy\"; }\n"
    "  rpc Back(stream Payment) returns (Payment); }\n"
    "service Empty { }\n";

enum { COMMAND_SIZE = 2048, LIMIT_MS = 120000 };

void run(const char *fmt, ...)
{
    char command[COMMAND_SIZE];
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    int size = vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    assert_in_range(size, 1, sizeof command - 1);
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    struct test_process_options options = { .argv = argv };
    struct err err;
    if (test_process_must_succeed(&options, LIMIT_MS, &err) != 0)
        fail_msg("%s: %s", command, err.msg);
}

struct bytes file_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct bytes bytes = { 0 };
    size_t capacity = 4096, got;
    bytes.data = mem_calloc(1, capacity + 1);
    assert_non_null(bytes.data);
    while ((got = fread(bytes.data + bytes.size, 1, capacity - bytes.size, file)) > 0) {
        bytes.size += got;
        if (bytes.size == capacity) {
            capacity *= 2;
            bytes.data = mem_realloc(bytes.data, capacity + 1);
            assert_non_null(bytes.data);
        }
    }
    assert_int_equal(fclose(file), 0);
    bytes.data[bytes.size] = 0;
    return bytes;
}

void file_write(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void path_of(const char *name, char ret[SCRATCH_PATH_SIZE])
{
    struct err err;
    ASSERT_OK(scratch_path(name, ret, &err), &err);
}

struct bytes set_of_file(const char *proto)
{
    char out[SCRATCH_PATH_SIZE];
    path_of("set", out);
    run("%s -I %s -I %s -I %s/proto --include_imports --descriptor_set_out=%s %s", PROTOC, FOLDER,
        PROTO_WELL_KNOWN, SOURCE_DIR, out, proto);
    return file_read(out);
}

struct bytes set_of_source(const char *source)
{
    char out[SCRATCH_PATH_SIZE], folder[SCRATCH_PATH_SIZE], path[SCRATCH_PATH_SIZE + 16];
    path_of("set", out);
    path_of("source", folder);
    run("mkdir %s", folder);
    (void)snprintf(path, sizeof path, "%s/test.proto", folder);
    file_write(path, source, strlen(source));
    run("%s -I %s -I %s -I %s/proto --include_imports --include_source_info "
        "--descriptor_set_out=%s test.proto",
        PROTOC, folder, PROTO_WELL_KNOWN, SOURCE_DIR, out);
    return file_read(out);
}

static struct bytes encode(const char *flags, const char *type, const char *proto, const char *text)
{
    char in[SCRATCH_PATH_SIZE], out[SCRATCH_PATH_SIZE];
    path_of("text", in);
    path_of("message", out);
    file_write(in, text, strlen(text));
    run("%s %s -I %s --encode=%s %s <%s >%s", PROTOC, flags, PROTO_WELL_KNOWN, type, proto, in,
        out);
    return file_read(out);
}

struct bytes set_of_text(const char *text)
{
    return encode("", "google.protobuf.FileDescriptorSet", "google/protobuf/descriptor.proto",
                  text);
}

struct bytes message_of_text(const char *type, const char *text)
{
    return encode("-I " FOLDER, type, "kinds.proto", text);
}

struct schema *schema_of(struct bytes set)
{
    struct schema *schema = NULL;
    struct err err;
    ASSERT_OK(schema_new(set.data, set.size, &schema, &err), &err);
    mem_free(set.data);
    return schema;
}

void assert_error(const struct err *err, int rc, enum err_code code, const char *field,
                  const char *part)
{
    if (rc != (int)code)
        fail_msg("%s instead of %s: %s", err_code_name((enum err_code)rc), err_code_name(code),
                 rc ? err->msg : "");
    assert_int_equal(err->code, code);
    if (field)
        assert_string_equal(err->field, field);
    if (!strstr(err->msg, part))
        fail_msg("\"%s\" is not in \"%s\"", part, err->msg);
}
