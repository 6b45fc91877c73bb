/* What the workers of both stories have in common: arguments, serving until a signal, requests and
 * answers as messages, and the look before a call to a third party. */
#ifndef DEMO_WORKER_PROGRAM_H
#define DEMO_WORKER_PROGRAM_H

#include "caller.h"

#include <sagaworker.h>

struct worker_option {
    const char *name;   /* "--sagad" */
    const char **value; /* gets it */
};

/* Each option is given once, with a value; nothing else is. */
bool worker_options_parse(int argc, char **argv, const struct worker_option *options, size_t count);

struct worker_handler {
    const char *name;
    int in_flight;
    saga_handler *handler;
    void *ctx;
};

struct worker_program {
    const char *name;       /* in messages */
    const char *sagad, *id; /* address; worker id */
    const char *only;       /* rpcs by comma: serves these of its handlers; NULL: all */
    int threads;
    const struct worker_handler *handlers;
    size_t handler_count;
};

/* Prints "NAME: serving as ID" and serves until SIGTERM or SIGINT. Returns the exit code. */
int worker_serve(const struct worker_program *program);

/* What the task asks, as the message of this type that its handler takes: the caller frees it
 * (CLEANUP(message_p)). NULL: an outcome is set, nothing was done. */
void *worker_request(struct saga_task *task, const ProtobufCMessageDescriptor *type);
/* DONE, with this answer (NULL: google.protobuf.Empty). -1: memory is out, nothing is set. */
int worker_done(struct saga_task *task, const ProtobufCMessage *answer);
/* ALREADY_DONE, the same. */
int worker_already_done(struct saga_task *task, const ProtobufCMessage *answer, bool ours);

/* Everything up to the last look: a connection, the call's end, and the lease still ours. False:
 * the outcome RETRY is set, nothing was sent. */
bool worker_may_call(struct saga_task *task, struct caller *caller, int64_t connect_ms,
                     int64_t most_ms, int64_t *ret_until_ms);
/* When a call has to be over (caller_until_ms): after so long, or when the attempt's time is. */
int64_t worker_call_until_ms(const struct saga_task *task, int64_t most_ms);

#endif
