/* Calls to a third party, one blocking call at a time for each thread. What it must get right is
 * the answer to "did anything leave?": only a failure from before the request was sent is NOT_SENT;
 * after that, silence and broken connections are UNKNOWN. It never repeats a call. Any thread; one
 * caller serves many. */
#ifndef DEMO_CALLER_H
#define DEMO_CALLER_H

#include "base/buf.h"
#include "base/err.h"

#include <protobuf-c/protobuf-c.h>

struct caller;

enum caller_result {
    CALLER_ANSWERED, /* `data` is the answer */
    CALLER_INVALID,  /* the service could not read the request: no effect, no use in repeating */
    CALLER_NOT_SENT, /* no connection: nothing left this process */
    CALLER_UNKNOWN,  /* it may have taken effect */
};

struct caller_reply {
    enum caller_result result;
    char code[32]; /* "DEADLINE_EXCEEDED", "CONNECTION_LOST", "INTERNAL", ...; "" if answered */
    char message[256];
    struct buf data; /* owned: caller_reply_done */
};

/* Does not connect yet. */
MUST_USE int caller_create(const char *address, struct caller **ret, struct err *err);
/* Waits until there is a connection. Done before the last look at whether the call is still ours to
 * make, so that nothing slow stands between the look and the call. */
MUST_USE bool caller_connect(struct caller *caller, int64_t timeout_ms);
/* When so long has passed from now: the end of a call. It is taken before the last look at whether
 * the call is still ours to make, so that a process that stands still after the look does not send
 * when it goes on. */
int64_t caller_until_ms(int64_t timeout_ms);
/* `path` is "/package.Service/Method". CALLER_NOT_SENT at once when there is no connection. */
void caller_call(struct caller *caller, const char *path, const ProtobufCMessage *request,
                 int64_t until_ms, struct caller_reply *ret);
static inline void caller_reply_done(struct caller_reply *reply)
{
    buf_done(&reply->data);
}
struct caller *caller_free(struct caller *caller); /* NULL is fine; always returns NULL */

#endif
