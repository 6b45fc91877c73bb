/* What a worker says, checked and turned into an event for the engine. Any thread. */
#ifndef RPC_WORKER_DECODE_H
#define RPC_WORKER_DECODE_H

#include "engine/engine.h"
#include "wire/arena.h"

#include <saga/v1/worker.pb-c.h>

/* Fills kind and contents of the event; text and payloads are borrowed from the message, arrays are
 * made in the arena. ERR_INVALID or ERR_LIMIT, with the path of the field. */
MUST_USE int worker_event_read(const Saga__V1__WorkerMessage *message, struct arena *arena,
                               struct engine_worker_event *ret, struct err *err);

#endif
