/* Instances that poll (LeaseTasks): what the server keeps of them between their calls. To the
 * engine each LeaseTasks is a stream of its own: its Hello ends the one before, and it lives on
 * after its answer, until the next one comes or the instance falls silent.
 *
 * thread: any, unless said otherwise. */
#ifndef RPC_WORKER_POLL_H
#define RPC_WORKER_POLL_H

#include "engine/engine.h"
#include "rpc/internal.h"
#include "rpc/sender.h"

/* A call of that instance has come: it is alive, and has what the call names. */
void worker_poll_heard(struct rpc_server *server, const struct engine_worker_event *said);
/* It asks for no more tasks. */
void worker_poll_ends(struct rpc_server *server, const struct engine_worker_event *said);
/* Moves what it is to be told of cancelled sagas into the list, as a part of the reply to
 * LeaseTasks or to ExtendLeases. thread: the engine's */
void worker_poll_hints(struct rpc_server *server, const struct engine_worker_event *said,
                       struct send_list *list);

#endif
