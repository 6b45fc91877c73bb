/* A small synchronous gRPC client: one call at a time for each thread that asks, each with a
 * deadline, each with its own completion queue. Knows protobuf-c messages and the error details of
 * google.rpc; nothing of what the calls mean. It never repeats a call.
 *
 * thread: client_call from any number of threads at once; new and free by the owner. */
#ifndef CTL_CLIENT_H
#define CTL_CLIENT_H

#include "base/err.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;

/* "127.0.0.1:7233", "[::1]:7233" or "unix:/path". Connects with the first call; each client has a
 * connection of its own. */
MUST_USE int client_new(const char *address, struct client **ret, struct err *err);
/* No call may be running. NULL is fine; always returns NULL. */
struct client *client_free(struct client *client);

/* What the server said about a call that it refused, in full. */
struct client_violation {
    char *field, *description; /* owned */
};
struct client_failure {
    int code;               /* gRPC status code; -1: the call was not answered with a status */
    char *message;          /* owned; NULL: out of memory */
    char reason[64];        /* google.rpc.ErrorInfo; "" if none */
    int64_t retry_delay_ms; /* google.rpc.RetryInfo; -1 if none */
    struct client_violation *violations; /* google.rpc.BadRequest */
    size_t violation_count;
};
void client_failure_done(struct client_failure *failure);
/* "NOT_FOUND", ...; "UNKNOWN" for numbers that gRPC does not define. */
const char *client_code_name(int code);

/* One unary call: method is "/saga.v1.SagaService/GetSaga". On success the caller owns *ret:
 * protobuf_c_message_free_unpacked(*ret, NULL). On failure err has the matching code, the server's
 * message, the reason and the first field violation; ret_failure (NULL: not wanted) has everything
 * and is to be freed with client_failure_done. A deadline that passes is ERR_UNAVAILABLE with
 * reason DEADLINE_EXCEEDED: the call may have had its effect. timeout_ms > 0. */
MUST_USE int client_call(struct client *client, const char *method, const ProtobufCMessage *request,
                         const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ms,
                         ProtobufCMessage **ret, struct err *err);
MUST_USE int client_call_explained(struct client *client, const char *method,
                                   const ProtobufCMessage *request,
                                   const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ms,
                                   ProtobufCMessage **ret, struct client_failure *ret_failure,
                                   struct err *err);

/* A call that is answered with many messages, one after the other. */
struct client_stream;
MUST_USE int client_stream_open(struct client *client, const char *method,
                                const ProtobufCMessage *request,
                                const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ms,
                                struct client_stream **ret, struct err *err);
/* 0: *ret is the next message, owned by the caller; NULL where none came within limit_ms, or where
 * the stream has ended well (*ret_ended). Otherwise it has ended as client_call_explained fails. */
MUST_USE int client_stream_next(struct client_stream *stream, int64_t limit_ms,
                                ProtobufCMessage **ret, bool *ret_ended,
                                struct client_failure *ret_failure, struct err *err);
/* Ends the call if it has not ended. NULL is fine; always returns NULL. */
struct client_stream *client_stream_free(struct client_stream *stream);

#endif
