#include "ctl/definition_file.h"

#include "base/buf.h"
#include "core/limits.h"
#include "ctl/ctl.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char proto_file[] = "saga/v1/definition.proto";
enum { FOLDERS_UP_MAX = 4 };

bool definition_file_is_text_format(const char *path)
{
    static const char *const endings[] = { ".textproto", ".txtpb", ".pbtxt", ".textpb" };
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; ending && i < ARRAY_LEN(endings); i++)
        if (strcmp(ending, endings[i]) == 0)
            return true;
    return false;
}

static bool holds_protos(const char *folder)
{
    char path[PATH_MAX];
    int size = snprintf(path, sizeof path, "%s/%s", folder, proto_file);
    return size > 0 && size < PATH_MAX && access(path, R_OK) == 0;
}

/* <program>/../share/sagad/proto where it is installed; <a folder above>/proto in a source tree. */
static bool find_beside_program(char ret[PATH_MAX])
{
    char folder[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (size <= 0)
        return false;
    folder[size] = '\0';
    for (int i = 0; i <= FOLDERS_UP_MAX; i++) {
        char *slash = strrchr(folder, '/');
        if (!slash)
            return false;
        *slash = '\0';
        static const char *const places[] = { "share/sagad/proto", "proto" };
        for (size_t place = 0; place < ARRAY_LEN(places); place++) {
            int length = snprintf(ret, PATH_MAX, "%s/%s", folder, places[place]);
            if (length > 0 && length < PATH_MAX && holds_protos(ret))
                return true;
        }
    }
    return false;
}

static int find_protos(const char *option, char ret[PATH_MAX], struct err *err)
{
    const char *env = getenv("SAGACTL_PROTO_PATH");
    const char *folder = option ? option : env && *env ? env : NULL;
    if (!folder && find_beside_program(ret))
        return 0;
    if (!folder)
        return err_set(err, ERR_NOT_FOUND,
                       "%s is not installed beside sagactl: say where with --proto-path DIR",
                       proto_file);
    if (!holds_protos(folder) || strlen(folder) >= PATH_MAX)
        return err_set(err, ERR_NOT_FOUND, "%s does not hold %s", folder, proto_file);
    (void)snprintf(ret, PATH_MAX, "%s", folder);
    return 0;
}

/* Starts protoc with the file on its stdin; *ret_output reads its stdout. What it has to say about
 * the file goes to our stderr. */
static int start_protoc(const char *path, const char *protos, pid_t *ret_pid, int *ret_output,
                        struct err *err)
{
    extern char **environ;
    int ends[2];
    char include[PATH_MAX + 16];
    (void)snprintf(include, sizeof include, "--proto_path=%s", protos);
    const char *const argv[] = { "protoc", "--encode=saga.v1.SagaDefinition", include, proto_file,
                                 NULL };
    if (pipe2(ends, O_CLOEXEC) != 0)
        return err_set(err, ERR_UNAVAILABLE, "pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);
    if (!failed) {
        failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, path, O_RDONLY, 0);
        if (!failed)
            failed = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (!failed)
            failed = posix_spawnp(ret_pid, argv[0], &actions, NULL, (char *const *)argv, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(ends[1]); /* the child has it */
    if (failed) {
        (void)close(ends[0]); /* never used */
        if (failed == ENOENT)
            return err_set(err, ERR_NOT_FOUND,
                           "the text format needs protoc, which is not in PATH (Debian: package"
                           " protobuf-compiler); JSON works without it");
        return err_set(err, ERR_UNAVAILABLE, "protoc: %s", strerror(failed));
    }
    *ret_output = ends[0];
    return 0;
}

static int read_output(int output, struct buf *ret, struct err *err)
{
    uint8_t block[16384];
    ssize_t count;
    while ((count = read(output, block, sizeof block)) > 0 || (count < 0 && errno == EINTR))
        if (count > 0 && ret->size <= LIMIT_MESSAGE_BYTES)
            buf_append(ret, block, (size_t)count);
    if (count < 0)
        return err_set(err, ERR_UNAVAILABLE, "protoc: %s", strerror(errno));
    if (ret->failed)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (ret->size > LIMIT_MESSAGE_BYTES)
        return err_set(err, ERR_LIMIT, "the definition has more than %d bytes",
                       LIMIT_MESSAGE_BYTES);
    return 0;
}

static int encode_with_protoc(const char *path, const char *proto_path, struct buf *ret,
                              struct err *err)
{
    char protos[PATH_MAX];
    pid_t pid = 0;
    int output = -1, status;
    if (access(path, R_OK) != 0)
        return err_set(err, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    if (find_protos(proto_path, protos, err) != 0 ||
        start_protoc(path, protos, &pid, &output, err) != 0)
        return err->code;
    int rc = read_output(output, ret, err);
    (void)close(output); /* it was only read */
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set(err, ERR_INTERNAL, "protoc: %s", strerror(errno));
    if (rc == 0 && status != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: protoc refuses it", path);
    return rc;
}

int definition_file_read(const char *path, const char *proto_path, Saga__V1__SagaDefinition **ret,
                         struct err *err)
{
    CLEANUP(buf_done) struct buf content = { 0 };
    if (definition_file_is_text_format(path)) {
        if (encode_with_protoc(path, proto_path, &content, err) != 0)
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
