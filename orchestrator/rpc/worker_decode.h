/* What a worker says, checked and turned into an event for the engine. Any thread. */
#ifndef RPC_WORKER_DECODE_H
#define RPC_WORKER_DECODE_H

#include "engine/engine.h"
#include "wire/arena.h"

#include <saga/v1/worker.pb-c.h>

/* Fills kind and contents of the event; text and payloads are borrowed from the message, arrays are
 * made in the arena. ERR_INVALID or ERR_LIMIT, with the path of the field. */
MUST_USE int worker_event_read(const Saga__V1__WorkerMessage *message, size_t payload_bytes_max,
                               struct arena *arena, struct engine_worker_event *ret,
                               struct err *err);

/* The same for the calls of workers without a stream. */
struct worker_lease_ask {
    struct engine_worker_event hello, credit;
    int64_t wait_ms;
};
MUST_USE int worker_lease_read(const Saga__V1__LeaseTasksRequest *request, struct arena *arena,
                               struct worker_lease_ask *ret, struct err *err);
MUST_USE int worker_report_read(const Saga__V1__ReportOutcomesRequest *request,
                                size_t payload_bytes_max, struct arena *arena,
                                struct engine_worker_event *ret, struct err *err);
MUST_USE int worker_extend_read(const Saga__V1__ExtendLeasesRequest *request, struct arena *arena,
                                struct engine_worker_event *ret, struct err *err);
MUST_USE int worker_release_read(const Saga__V1__ReleaseTasksRequest *request, struct arena *arena,
                                 struct engine_worker_event *ret, struct err *err);

#endif
