#include "ctl/protoc.h"

#include "core/limits.h"
#include "ctl/arguments.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char definition_proto[] = "saga/v1/definition.proto";
static const char options_proto[] = "saga/v1/options.proto";
enum { FOLDERS_UP_MAX = 4, ARGS_MAX = CTL_REPEATS_MAX + 8 };

struct arguments {
    const char *items[ARGS_MAX]; /* NULL at the end */
    size_t count;
};

/* --- where sagad's own protos are ------------------------------------------------------------- */

static bool holds(const char *folder, const char *file)
{
    char path[PATH_MAX];
    int size = snprintf(path, sizeof path, "%s/%s", folder, file);
    return size > 0 && size < PATH_MAX && access(path, R_OK) == 0;
}

static bool take_if_holds(char ret[PATH_MAX], const char *file, const char *folder,
                          const char *below)
{
    int length = snprintf(ret, PATH_MAX, "%s%s", folder, below);
    return length > 0 && length < PATH_MAX && holds(ret, file);
}

/* <program>/../share/sagad/proto where it is installed; <a folder above>/proto in a source tree;
 * the tree of which this program was built. */
static bool find_beside_program(const char *file, char ret[PATH_MAX])
{
    char folder[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[size > 0 ? size : 0] = '\0';
    for (int i = 0; i <= FOLDERS_UP_MAX; i++) {
        char *slash = strrchr(folder, '/');
        if (!slash)
            break;
        *slash = '\0';
        if (take_if_holds(ret, file, folder, "/share/sagad/proto") ||
            take_if_holds(ret, file, folder, "/proto"))
            return true;
    }
    return take_if_holds(ret, file, SAGAD_PROTO_DIR, "");
}

/* *ret_given: the caller's folders hold it, `ret` is not needed. */
static int find_protos(const char *file, const struct protoc_includes *includes, bool *ret_given,
                       char ret[PATH_MAX], struct err *err)
{
    const char *env = getenv("SAGACTL_PROTO_PATH");
    *ret_given = false;
    for (size_t i = 0; i < includes->count && !*ret_given; i++)
        *ret_given = holds(includes->folders[i], file);
    if (*ret_given)
        return 0;
    if (env && *env)
        return take_if_holds(ret, file, env, "")
                   ? 0
                   : err_set(err, ERR_NOT_FOUND, "SAGACTL_PROTO_PATH: %s does not hold %s", env,
                             file);
    if (find_beside_program(file, ret))
        return 0;
    return err_set(err, ERR_NOT_FOUND, "%s is not installed beside sagactl: say where with -I DIR",
                   file);
}

/* --- the child -------------------------------------------------------------------------------- */

static void add(struct arguments *arguments, const char *word)
{
    if (arguments->count + 1 < ARGS_MAX)
        arguments->items[arguments->count++] = word;
}

/* Starts protoc with the file on its stdin (NULL: nothing is); *ret_output reads its stdout. */
static int start(const struct arguments *arguments, const char *input, pid_t *ret_pid,
                 int *ret_output, struct err *err)
{
    extern char **environ;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return err_set(err, ERR_UNAVAILABLE, "pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);
    if (!failed) {
        failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO,
                                                  input ? input : "/dev/null", O_RDONLY, 0);
        if (!failed)
            failed = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (!failed)
            failed = posix_spawnp(ret_pid, arguments->items[0], &actions, NULL,
                                  (char *const *)arguments->items, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(ends[1]); /* the child has it */
    if (failed) {
        (void)close(ends[0]); /* never used */
        if (failed == ENOENT)
            return err_set(err, ERR_NOT_FOUND,
                           "needs protoc, which is not in PATH (Debian: packages"
                           " protobuf-compiler and libprotobuf-dev); a descriptor set (buf build"
                           " -o x.binpb) or JSON works without it");
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
        return err_set(err, ERR_LIMIT, "what protoc made of it has more than %d bytes",
                       LIMIT_MESSAGE_BYTES);
    return 0;
}

static int run(const struct arguments *arguments, const char *input, struct buf *ret,
               struct err *err)
{
    pid_t pid = 0;
    int output = -1, status;
    if (start(arguments, input, &pid, &output, err) != 0)
        return err->code;
    int rc = read_output(output, ret, err);
    (void)close(output); /* it was only read */
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set(err, ERR_INTERNAL, "protoc: %s", strerror(errno));
    if (rc == 0 && status != 0)
        return err_set(err, ERR_UNAVAILABLE, "protoc refuses it");
    return rc;
}

/* --- what it is asked for --------------------------------------------------------------------- */

static int compile(const char *path, const struct protoc_includes *includes, struct buf *ret,
                   struct err *err)
{
    struct arguments arguments = { .count = 0 };
    char protos[PATH_MAX], own[PATH_MAX];
    bool given;
    if (access(path, R_OK) != 0)
        return err_set(err, ERR_NOT_FOUND, "%s", strerror(errno));
    if (find_protos(options_proto, includes, &given, protos, err) != 0)
        return err->code;
    const char *slash = strrchr(path, '/');
    int length = slash == path ? 1 : slash ? (int)(slash - path) : 0;
    (void)snprintf(own, sizeof own, "%.*s", length, path);
    add(&arguments, "protoc");
    add(&arguments, "--include_imports");
    add(&arguments, "--descriptor_set_out=/dev/stdout");
    char folders[CTL_REPEATS_MAX + 2][PATH_MAX + 16];
    size_t count = 0;
    for (size_t i = 0; i < includes->count && i < CTL_REPEATS_MAX; i++)
        (void)snprintf(folders[count++], sizeof folders[0], "--proto_path=%s",
                       includes->folders[i]);
    (void)snprintf(folders[count++], sizeof folders[0], "--proto_path=%s", length ? own : ".");
    if (!given)
        (void)snprintf(folders[count++], sizeof folders[0], "--proto_path=%s", protos);
    for (size_t i = 0; i < count; i++)
        add(&arguments, folders[i]);
    add(&arguments, path);
    return run(&arguments, NULL, ret, err);
}

int protoc_compile(const char *path, const struct protoc_includes *includes, struct buf *ret,
                   struct err *err)
{
    return compile(path, includes, ret, err) == 0 ? 0 : err_wrap(err, "%s", path);
}

static int encode(const char *path, const struct protoc_includes *includes, struct buf *ret,
                  struct err *err)
{
    struct arguments arguments = { .count = 0 };
    char protos[PATH_MAX], include[PATH_MAX + 16];
    bool given = false;
    if (access(path, R_OK) != 0)
        return err_set(err, ERR_NOT_FOUND, "%s", strerror(errno));
    for (size_t i = 0; i < includes->count && !given; i++)
        given = take_if_holds(protos, definition_proto, includes->folders[i], "");
    if (includes->count && !given)
        return err_set(err, ERR_NOT_FOUND, "%s does not hold %s", includes->folders[0],
                       definition_proto);
    if (!given && find_protos(definition_proto, includes, &given, protos, err) != 0)
        return err->code;
    (void)snprintf(include, sizeof include, "--proto_path=%s", protos);
    add(&arguments, "protoc");
    add(&arguments, "--encode=saga.v1.SagaDefinition");
    add(&arguments, include);
    add(&arguments, definition_proto);
    return run(&arguments, path, ret, err);
}

int protoc_encode(const char *path, const struct protoc_includes *includes, struct buf *ret,
                  struct err *err)
{
    return encode(path, includes, ret, err) == 0 ? 0 : err_wrap(err, "%s", path);
}
