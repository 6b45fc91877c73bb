/* The real services of rpc/ between a call, an engine and a reader that the target plays:
 * everything that a service lets through is looked at here. */
#ifndef FUZZ_FAKE_SERVER_H
#define FUZZ_FAKE_SERVER_H

#include "rpc/internal.h"

enum fake_mood {
    FAKE_ENGINE_REFUSES = 1, /* its mailbox is full */
    FAKE_DRAINING = 2,
    FAKE_ANSWERS_ERRORS = 4, /* the engine and the reader do */
};

/* Gives the request to the method's handler, and sees to it that the call is answered once. */
void fake_server_call(const struct method *method, const uint8_t *data, size_t size, unsigned mood);

#endif
