/* gRPC's own log, as lines of ours. It is also the only place where gRPC says that it has given up
 * a socket: accept failed once, and whoever connects to it from then on waits in the kernel's queue
 * for ever. Of the whole process. Any thread. */
#ifndef RPC_GRPC_LOG_H
#define RPC_GRPC_LOG_H

#include <stdbool.h>

/* From now on; before grpc_init. */
void grpc_log_take(void);
/* Has a socket been given up since? */
bool grpc_log_accept_failed(void);

#endif
