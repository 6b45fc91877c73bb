/* From a gRPC status and its details to what client.h promises. Any thread. */
#ifndef CTL_CLIENT_FAILURE_H
#define CTL_CLIENT_FAILURE_H

#include "base/mem.h"
#include "ctl/client.h"

/* Fills both and returns err->code, never 0. `message` is consumed (NULL: out of memory).
 * `details`: a packed google.rpc.Status, or empty; details that cannot be read are left out. code
 * is not 0. */
int client_failure_read(int code, char *message, struct bytes details,
                        struct client_failure *ret_failure, struct err *err);

#endif
