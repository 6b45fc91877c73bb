#include "support/ports.h"

#include "base/rng.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PORT_FIRST = 20000, PORT_COUNT = 12000, PORT_TRIES = 200 };

/* An abstract socket named after the port is the claim: the kernel lets one process have it and
 * gives it back when that process ends. It stays open on purpose. */
static bool port_claim(int port)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    int size = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "sagad-test-port-%d", port);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
    if (bind(fd, (struct sockaddr *)&name, length) == 0)
        return true;
    (void)close(fd); /* nothing was written */
    return false;
}

static bool port_is_free(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool bound = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    (void)close(fd); /* nothing was written */
    return bound;
}

int free_port(int *ret_port, struct err *err)
{
    struct rng rng;
    rng_seed_os(&rng);
    for (int i = 0; i < PORT_TRIES; i++) {
        int port = PORT_FIRST + (int)rng_below(&rng, PORT_COUNT);
        if (port_is_free(port) && port_claim(port)) {
            *ret_port = port;
            return 0;
        }
    }
    return err_set(err, ERR_UNAVAILABLE, "no free port among %d tries: %s", PORT_TRIES,
                   strerror(errno));
}
