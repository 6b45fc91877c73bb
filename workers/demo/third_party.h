/* The server of a third party of the demo: one thread on the gRPC C core, unary calls. It decodes
 * nothing itself; what is said, and when, comes from the third party's desk. Calls that are never
 * answered live until the caller gives up. */
#ifndef DEMO_THIRD_PARTY_H
#define DEMO_THIRD_PARTY_H

#include "base/buf.h"
#include "base/err.h"

enum { THIRD_PARTY_NEVER = -1 };

struct third_party_answer {
    int64_t delay_ms; /* THIRD_PARTY_NEVER: it is never answered */
    bool fails;       /* with status INTERNAL; the reply is its message, a text */
};

struct third_party {
    const char *program;        /* its name in messages */
    const char *const *methods; /* "/package.Service/Method" */
    size_t method_count;
    /* One request. On success *reply holds the packed answer. ERR_INVALID: the request is wrong and
     * nothing took effect; anything else is told as INTERNAL. `method` is an index of `methods`. */
    int (*decide)(void *ctx, size_t method, const uint8_t *request, size_t size, int64_t mono_ms,
                  struct third_party_answer *ret_answer, struct buf *reply, struct err *err);
    /* What happens without a request; called at least every 200 ms. NULL: nothing does. An error
     * ends the service. */
    int (*tick)(void *ctx, int64_t mono_ms, struct err *err);
    void *ctx;
};

/* Serves on "127.0.0.1:PORT" (0: any) until SIGTERM or SIGINT, and prints "PROGRAM: serving on
 * ADDRESS" when it does. Returns the exit code of the program. Once in a process. */
MUST_USE int third_party_serve(const struct third_party *party, const char *address);

/* A delay as of a healthy service: 20 to 250 ms, one in a hundred up to 800 ms. */
struct rng;
int64_t third_party_normal_delay_ms(struct rng *rng);

#endif
