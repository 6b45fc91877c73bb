/* What an engine says to a worker, encoded as the server does it: whole messages, within the limit
 * of one, and clean text. */
#ifndef FUZZ_SERVER_WORDS_H
#define FUZZ_SERVER_WORDS_H

#include "engine/engine.h"

void words_tasks(const struct engine_task *tasks, size_t count);
void words_acks(const struct engine_lease_ack *acks, size_t count);
void words_extended(const struct engine_lease_extended *leases, size_t count);
void words_cancel_hint(const struct uuid *uid, int64_t fence);
void words_welcome(uint64_t session);

#endif
