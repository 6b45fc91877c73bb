/* TCP ports of 127.0.0.1 for servers of a test. They lie below the range from which the kernel
 * takes ports of outgoing connections, so that a server can be killed and started again on its
 * port, and two test programs that run at once never get the same one. Any thread. */
#ifndef SUPPORT_PORTS_H
#define SUPPORT_PORTS_H

#include "base/err.h"

/* The port is this program's until it exits. */
MUST_USE int free_port(int *ret_port, struct err *err);

#endif
