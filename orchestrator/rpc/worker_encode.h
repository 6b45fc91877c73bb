/* What the server says to a worker: messages packed at once, so that nothing of the engine's is
 * borrowed afterwards. The engine's thread. */
#ifndef RPC_WORKER_ENCODE_H
#define RPC_WORKER_ENCODE_H

#include "engine/engine.h"
#include "rpc/sender.h"

/* Each adds one message, or several where one would be too large to receive; a failure is kept in
 * the list. */
void worker_tasks_write(struct send_list *list, const struct engine_task *tasks, size_t count);
/* Parts of one reply instead (Tasks, Acks, Extended have their fields where the replies of the
 * unary calls have them). Of the tasks those that fit: the first ones; returns how many, *ret_bytes
 * grows by theirs. */
size_t worker_tasks_part(struct send_list *list, const struct engine_task *tasks, size_t count,
                         size_t bytes_max, size_t *ret_bytes);
void worker_acks_part(struct send_list *list, const struct engine_lease_ack *acks, size_t count);
void worker_extended_part(struct send_list *list, const struct engine_lease_extended *leases,
                          size_t count);
void worker_acks_write(struct send_list *list, const struct engine_lease_ack *acks, size_t count);
void worker_extended_write(struct send_list *list, const struct engine_lease_extended *leases,
                           size_t count);
void worker_cancel_hint_write(struct send_list *list, const struct uuid *uid, int64_t fence);
void worker_welcome_write(struct send_list *list, char *node, uint64_t session, int64_t tick_ms);
void worker_drain_write(struct send_list *list, int64_t grace_ms);
void worker_tick_write(struct send_list *list);

#endif
