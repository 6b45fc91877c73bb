/* The limits of design: each named, each an error or back-pressure when reached. */
#ifndef CORE_LIMITS_H
#define CORE_LIMITS_H

#include <stdint.h>

enum {
    LIMIT_PAYLOAD_BYTES = 256 * 1024,           /* input, output: unless it is raised, ... */
    LIMIT_PAYLOAD_BYTES_MOST = 1024 * 1024,     /* ... up to here */
    LIMIT_TASK_BYTES = 3 * 1024 * 1024,         /* request of a task in total */
    LIMIT_MESSAGE_BYTES = 4 * 1024 * 1024,      /* one gRPC message */
    LIMIT_TASK_MESSAGE_BYTES = 6 * 1024 * 1024, /* one with a single task in it */
    LIMIT_REGISTER_BYTES = 5 * 1024 * 1024, /* the one that is larger: a set of descriptors in it */
    LIMIT_DESCRIPTORS_BYTES = 2 * 1024 * 1024, /* what is kept of them with a revision */
    LIMIT_JOURNAL_ENTRIES = 10000,             /* a saga; then parked */
    LIMIT_JOURNAL_BYTES = 10 * 1024 * 1024,
    LIMIT_JOURNAL_RESERVE = 64, /* entries kept free for decisions once leases are refused */
    LIMIT_STEPS = 256,          /* a definition */
    LIMIT_SAGA_ID_BYTES = 256,
    LIMIT_NAMESPACE_BYTES = 64,
    LIMIT_DEFINITION_NAME_BYTES = 128,
    LIMIT_STEP_NAME_BYTES = 64,
    LIMIT_HANDLER_BYTES = 128,
    LIMIT_IDEMPOTENCY_KEY_BYTES = 256,
    LIMIT_TEMPLATE_BYTES = 256, /* of a business key, an idempotency key, a label */
    LIMIT_TYPE_BYTES = 512,     /* full name of a message */
    LIMIT_REQUEST_FIELDS = 257, /* the input and every step */
    LIMIT_WORKER_BYTES = 128,   /* worker id; instance 64 */
    LIMIT_INSTANCE_BYTES = 64,
    LIMIT_ACTOR_BYTES = 128,
    LIMIT_SIGNAL_ID_BYTES = 128,
    LIMIT_REASON_BYTES = 1024,
    LIMIT_ERROR_CODE_BYTES = 128,
    LIMIT_ERROR_MESSAGE_BYTES = 1024, /* longer ones are cut at a character */
    LIMIT_DESCRIPTION_BYTES = 1024,
    LIMIT_LABELS = 4,
    LIMIT_LABEL_BYTES = 64,
    LIMIT_PAGE_ITEMS = 1000,
    LIMIT_BATCH_EVENTS = 512,  /* one transaction of the engine */
    LIMIT_REPORTS = 512,       /* one Report message */
    LIMIT_BATCH_STARTS = 1000, /* one BatchStartSagas */
    LIMIT_LOST_LEASES = 1000,  /* lost_leases_max */
    ATTEMPT_LEAST_MS = 100,    /* the shortest attempt_timeout; a window with less left is over */
};

/* What an action answers comes on top of its task's request in its compensation's, and once more
 * beside it. */
_Static_assert(LIMIT_TASK_BYTES + 2 * LIMIT_PAYLOAD_BYTES_MOST + 64 * 1024 <=
                   LIMIT_TASK_MESSAGE_BYTES,
               "whatever an action answers, its compensation's task fits into a message");

/* A saga may be asked to begin so far ahead. */
#define LIMIT_START_AT_MS (INT64_C(366) * 24 * 3600 * 1000)

#endif
