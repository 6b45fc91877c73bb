/* Calls that come to nothing, made as a handler would make them. */
#include "worker.h"

#include "caller.h"

#include <errno.h>
#include <google/protobuf/empty.pb-c.h>
#include <libpq-fe.h>
#include <mysql.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* HTTP over a socket: there is no one library for it that every C program has. */
static void http(struct saga_task *task, const char *host, int port)
{
    char service[16], reply[512];
    struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found = NULL;
    (void)snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(host, service, &hints, &found);
    if (rc != 0) {
        (void)saga_task_failed(task, SAGA_CLIENT_RESOLVE, rc, gai_strerror(rc));
        return;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        (void)saga_task_failed(task, SAGA_CLIENT_CONNECT, errno, strerror(errno));
    } else {
        static const char request[] = "POST /charge HTTP/1.1\r\nHost: there\r\n"
                                      "Content-Length: 2\r\n\r\n{}";
        bool sent = send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0;
        bool answered = sent && recv(fd, reply, sizeof reply, 0) > 0;
        if (answered)
            (void)saga_task_done(task, NULL, 0);
        else
            (void)saga_task_unknown(task, "HTTP_CUT", "the connection ended before the answer");
    }
    if (fd >= 0)
        (void)close(fd); /* nothing more is expected of it */
    freeaddrinfo(found);
}

static void grpc(struct saga_task *task, int port)
{
    enum { CONNECT_MS = 5000, CALL_MS = 10000 };
    char address[32];
    struct caller *caller;
    struct err err;
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", port);
    if (caller_create(address, &caller, &err) != 0) {
        (void)saga_task_retry(task, "GRPC_NO_CLIENT", err.msg, 0);
        return;
    }
    Google__Protobuf__Empty request = GOOGLE__PROTOBUF__EMPTY__INIT;
    struct caller_reply reply;
    if (!caller_connect(caller, CONNECT_MS))
        (void)fprintf(stderr, "no connection to %s\n", address); /* the call then says NOT_SENT */
    caller_call(caller, "/there.Service/Charge", &request.base, caller_until_ms(CALL_MS), &reply);
    if (reply.result == CALLER_NOT_SENT)
        (void)saga_task_retry(task, "GRPC_NOT_SENT", reply.message, 0);
    else
        (void)saga_task_unknown(task, "GRPC_CUT", reply.message);
    caller_reply_done(&reply);
    caller = caller_free(caller);
}

static void postgresql(struct saga_task *task, int port)
{
    char conninfo[128];
    (void)snprintf(conninfo, sizeof conninfo,
                   "host=127.0.0.1 port=%d user=u dbname=d connect_timeout=10", port);
    PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK)
        (void)saga_task_failed(task, SAGA_CLIENT_POSTGRESQL, (int)PQstatus(conn),
                               PQerrorMessage(conn));
    PQfinish(conn);
}

static void mysql(struct saga_task *task, int port)
{
    MYSQL *conn = mysql_init(NULL);
    if (conn && !mysql_real_connect(conn, "127.0.0.1", "u", "", "d", (unsigned)port, NULL, 0))
        (void)saga_task_failed(task, SAGA_CLIENT_MYSQL, (int)mysql_errno(conn), mysql_error(conn));
    mysql_close(conn);
}

void client_refused(struct saga_task *task, const char *client, int port)
{
    if (strcmp(client, "http") == 0)
        http(task, "127.0.0.1", port);
    else if (strcmp(client, "dns") == 0)
        http(task, "name.invalid", 80);
    else if (strcmp(client, "grpc") == 0)
        grpc(task, port);
    else if (strcmp(client, "postgresql") == 0)
        postgresql(task, port);
    else if (strcmp(client, "mysql") == 0)
        mysql(task, port);
}
