#include "worker_program.h"

#include "message.h"

#include <stdio.h>
#include <string.h>

enum { DRAIN_MS = 5000 };

static const struct worker_option *option_find(const struct worker_option *options, size_t count,
                                               const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

bool worker_options_parse(int argc, char **argv, const struct worker_option *options, size_t count)
{
    if ((size_t)argc != 1 + 2 * count)
        return false;
    for (size_t i = 0; i < count; i++)
        *options[i].value = NULL;
    for (int i = 1; i < argc; i += 2) {
        const struct worker_option *option = option_find(options, count, argv[i]);
        if (!option || *option->value)
            return false;
        *option->value = argv[i + 1];
    }
    return true;
}

/* The handler of this rpc, the last part of its name. */
static const struct worker_handler *handler_find(const struct worker_program *program,
                                                 const char *rpc, size_t size)
{
    for (size_t i = 0; i < program->handler_count; i++) {
        const char *dot = strrchr(program->handlers[i].name, '.');
        if (dot && strlen(dot + 1) == size && memcmp(dot + 1, rpc, size) == 0)
            return &program->handlers[i];
    }
    return NULL;
}

static int handle(struct saga_worker *worker, const struct worker_handler *one,
                  struct saga_error *error)
{
    return saga_worker_handle(worker, one->name, one->in_flight, one->handler, one->ctx, error);
}

static int handle_only(struct saga_worker *worker, const struct worker_program *program,
                       struct saga_error *error)
{
    int rc = 0;
    for (const char *rpc = program->only; !rc && rpc;) {
        size_t size = strcspn(rpc, ",");
        const struct worker_handler *one = handler_find(program, rpc, size);
        if (!one) {
            (void)snprintf(error->message, sizeof error->message, /* may be cut */
                           "--only: there is no handler %.*s", (int)size, rpc);
            return -1;
        }
        rc = handle(worker, one, error);
        rpc = rpc[size] ? rpc + size + 1 : NULL;
    }
    return rc;
}

int worker_serve(const struct worker_program *program)
{
    const char *addresses[] = { program->sagad, NULL };
    struct saga_worker_options options = {
        .addresses = addresses,
        .worker_id = program->id,
        .threads = program->threads,
        .drain_ms = DRAIN_MS,
        .handle_signals = true,
    };
    struct saga_worker *worker = NULL;
    struct saga_error error;
    int rc = saga_worker_new(&options, &worker, &error);
    if (!rc && program->only)
        rc = handle_only(worker, program, &error);
    for (size_t i = 0; !rc && !program->only && i < program->handler_count; i++)
        rc = handle(worker, &program->handlers[i], &error);
    if (!rc) {
        (void)printf("%s: serving as %s\n", program->name, program->id);
        (void)fflush(stdout); /* whoever reads it waits for the line */
        rc = saga_worker_run(worker, &error);
    }
    if (rc)
        (void)fprintf(stderr, "%s: %s\n", program->name, error.message);
    saga_worker_free(worker);
    return rc ? 1 : 0;
}

/* The setters fail only when memory is out; the task is then reported as UNKNOWN. */

void *worker_request(struct saga_task *task, const ProtobufCMessageDescriptor *type)
{
    char why[256]; /* may be cut */
    const char *declared = saga_task_request_type(task);
    if (strcmp(declared, type->name) != 0) { /* another version of this program may have it */
        (void)snprintf(why, sizeof why, "the request is \"%s\", this worker has %s", declared,
                       type->name);
        (void)saga_task_retry(task, "WRONG_TYPE", why, 0);
        return NULL;
    }
    struct saga_bytes bytes = saga_task_request(task);
    void *request = protobuf_c_message_unpack(type, NULL, bytes.size, bytes.data);
    if (!request) {
        (void)snprintf(why, sizeof why, "the request is no %s", type->name);
        (void)saga_task_rejected(task, "BAD_REQUEST", why);
    }
    return request;
}

int worker_done(struct saga_task *task, const ProtobufCMessage *answer)
{
    CLEANUP(buf_done) struct buf packed = { 0 };
    if (answer && !message_pack(answer, &packed))
        return -1;
    return saga_task_done(task, packed.data, packed.size);
}

int worker_already_done(struct saga_task *task, const ProtobufCMessage *answer, bool ours)
{
    CLEANUP(buf_done) struct buf packed = { 0 };
    if (answer && !message_pack(answer, &packed))
        return -1;
    return saga_task_already_done(task, packed.data, packed.size, ours);
}

bool worker_may_call(struct saga_task *task, struct caller *caller, int64_t connect_ms,
                     int64_t most_ms, int64_t *ret_until_ms)
{
    if (!caller_connect(caller, connect_ms)) {
        (void)saga_task_retry(task, "AWAY", "no connection to the service", 0);
        return false;
    }
    *ret_until_ms = worker_call_until_ms(task, most_ms); /* before the look: see caller.h */
    if (!saga_task_still_mine(task)) {
        (void)saga_task_retry(task, "TOO_LATE", "the lease was over before the call", 0);
        return false;
    }
    return true;
}

int64_t worker_call_until_ms(const struct saga_task *task, int64_t most_ms)
{
    int64_t left_ms = saga_task_time_left_ms(task);
    return caller_until_ms(left_ms < most_ms ? left_ms : most_ms);
}
