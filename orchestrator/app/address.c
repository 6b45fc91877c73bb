#include "app/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { PORT_MAX = 65535 };
static const char unix_scheme[] = "unix:";

static bool is_unix(const char *address)
{
    return strncmp(address, unix_scheme, sizeof unix_scheme - 1) == 0;
}

/* Splits "host:port" and "[v6]:port"; the host without brackets. */
static bool split(const char *address, char host[ADDRESS_SIZE], const char **ret_port)
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || (size_t)(colon - address) >= ADDRESS_SIZE)
        return false;
    size_t size = (size_t)(colon - address);
    const char *first = address;
    if (*address == '[') {
        if (size < 3 || address[size - 1] != ']')
            return false;
        first++;
        size -= 2;
    } else if (memchr(address, ':', size)) {
        return false; /* an IPv6 address without brackets */
    }
    memcpy(host, first, size);
    host[size] = '\0';
    *ret_port = colon + 1;
    return true;
}

static int check_unix(const char *address, struct err *err)
{
    const char *path = address + sizeof unix_scheme - 1;
    if (*path != '/')
        return err_set(err, ERR_INVALID, "\"%s\": the path of a unix socket starts with /",
                       address);
    if (strlen(path) > ADDRESS_UNIX_PATH_MAX)
        return err_set(err, ERR_INVALID, "\"%s\": the path has %zu bytes, at most %d", address,
                       strlen(path), ADDRESS_UNIX_PATH_MAX);
    return 0;
}

int address_check(const char *address, struct err *err)
{
    if (is_unix(address))
        return check_unix(address, err);
    char host[ADDRESS_SIZE];
    const char *port;
    if (!split(address, host, &port))
        return err_set(err, ERR_INVALID,
                       "\"%s\" is no address: 127.0.0.1:7233, [::1]:7233, name:7233 or unix:/path",
                       address);
    size_t digits = strspn(port, "0123456789");
    if (!digits || digits > 5 || port[digits] || strtol(port, NULL, 10) > PORT_MAX)
        return err_set(err, ERR_INVALID, "\"%s\": the port must be 0 to %d (0: any free one)",
                       address, PORT_MAX);
    if (*address == '[') {
        struct in6_addr v6;
        if (inet_pton(AF_INET6, host, &v6) != 1)
            return err_set(err, ERR_INVALID, "\"%s\": what is in brackets is no IPv6 address",
                           address);
    }
    return 0;
}

bool address_is_local(const char *address)
{
    char host[ADDRESS_SIZE];
    const char *port;
    if (is_unix(address))
        return true;
    if (!split(address, host, &port))
        return false;
    struct in_addr v4;
    struct in6_addr v6;
    if (*address == '[')
        return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return strcmp(host, "localhost") == 0;
}

void address_with_port(const char *address, int port, char ret[ADDRESS_SIZE])
{
    const char *colon = strrchr(address, ':');
    if (is_unix(address) || !colon)
        (void)snprintf(ret, ADDRESS_SIZE, "%s", address);
    else
        (void)snprintf(ret, ADDRESS_SIZE, "%.*s:%d", (int)(colon - address), address, port);
}
