/* Addresses that the server listens on: "127.0.0.1:7233", "[::1]:0", "localhost:7233",
 * "unix:/path". Any thread. */
#ifndef APP_ADDRESS_H
#define APP_ADDRESS_H

#include "base/err.h"

enum { ADDRESS_SIZE = 300, ADDRESS_UNIX_PATH_MAX = 107 /* sun_path, less its NUL */ };

/* ERR_INVALID says what is wrong and what is allowed. */
MUST_USE int address_check(const char *address, struct err *err);
/* Reachable from this machine alone? `address` has passed address_check. */
bool address_is_local(const char *address);
/* The address with the port that was really bound; unix sockets as they are. */
void address_with_port(const char *address, int port, char ret[ADDRESS_SIZE]);

#endif
