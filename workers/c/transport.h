/* One gRPC stream to the orchestrator: opens it, sends and receives whole messages, says when it
 * ended and why. Knows nothing of what the messages mean.
 * thread: the I/O thread; transport_wake from any. */
#ifndef WORKER_TRANSPORT_H
#define WORKER_TRANSPORT_H

#include "base/err.h"
#include "base/mem.h"

#include <stdint.h>

enum transport_event {
    TRANSPORT_NOTHING, /* the time is over, or somebody woke us */
    TRANSPORT_MESSAGE, /* one came in */
    TRANSPORT_SENT,    /* the next one may be sent */
    TRANSPORT_ENDED    /* close it */
};

struct transport; /* opaque */

MUST_USE int transport_new(struct transport **ret_transport, struct err *err);
struct transport *transport_free(struct transport *transport); /* closed; NULL is fine */

/* "host:port" or "unix:/path". A fresh connection each time. A longer message ends the stream. */
MUST_USE int transport_open(struct transport *transport, const char *address, int message_bytes_max,
                            struct err *err);
/* One at a time: not before TRANSPORT_SENT of the one before. The bytes are copied. */
MUST_USE int transport_send(struct transport *transport, const struct bytes *message,
                            struct err *err);
/* Waits at most `wait_ms`. MESSAGE: *ret_message is the caller's. ENDED: `err` says why. */
enum transport_event transport_wait(struct transport *transport, int64_t wait_ms,
                                    struct bytes *ret_message, struct err *err);
/* Ends the stream: in order if the server answers within `linger_ms`, else at once. Messages that
 * come in meanwhile are dropped. Fine if it is closed. */
void transport_close(struct transport *transport, int64_t linger_ms);
/* Makes a transport_wait return, now or the next one. */
void transport_wake(struct transport *transport);

#endif
