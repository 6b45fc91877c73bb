/* One gRPC call over the C core with nothing in between: any method, any bytes in both directions.
 * For what the client and the SDK would never send. Each call has a connection of its own, so that
 * cutting it is what a dying process does.
 *
 * thread: one at a time. Nothing is received while nobody calls: that is a reader that has stopped
 * reading. */
#ifndef SUPPORT_RAW_STREAM_H
#define SUPPORT_RAW_STREAM_H

#include "base/err.h"
#include "base/mem.h"

#include <stdint.h>

struct raw_stream;

/* Streams that are opened from now on ping their server so often by themselves, also without a call
 * (while somebody waits on them); 0: never, as at the beginning. */
void raw_stream_keepalive(int ms);
/* Starts the call; the connection is made meanwhile. The caller owns *ret. */
MUST_USE int raw_stream_open(const char *address, const char *method, int64_t timeout_ms,
                             struct raw_stream **ret, struct err *err);
/* Cuts the connection if the call has not ended. NULL is fine; always returns NULL. */
struct raw_stream *raw_stream_free(struct raw_stream *stream);

/* Waits until the message was handed to the transport. Fails when the call has ended or the limit
 * is over. */
MUST_USE int raw_stream_send(struct raw_stream *stream, const void *data, size_t size,
                             int64_t limit_ms, struct err *err);
/* No more messages from us. */
MUST_USE int raw_stream_half_close(struct raw_stream *stream, int64_t limit_ms, struct err *err);
/* 1: *ret is the next message, owned by the caller; 0: none came within the limit; -1: the stream
 * has ended. */
int raw_stream_receive(struct raw_stream *stream, int64_t limit_ms, struct bytes *ret);
/* The status code once the call has ended, -1 if it has not within the limit. *ret_message, if not
 * NULL, is borrowed until free. */
int raw_stream_status(struct raw_stream *stream, int64_t limit_ms, const char **ret_message);

/* A unary call: one message, its answer, its status. *ret_reply (NULL: not wanted) is owned. */
int raw_call(const char *address, const char *method, const void *data, size_t size,
             int64_t timeout_ms, struct bytes *ret_reply);

#endif
