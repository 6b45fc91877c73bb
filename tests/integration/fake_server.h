/* An orchestrator's side of one worker stream, played by a test: it says only what the test tells
 * it to, and keeps everything that it was told. One stream at a time; a newer one replaces the one
 * before. thread: the test thread; the server pumps in a thread of its own. */
#ifndef TEST_FAKE_SERVER_H
#define TEST_FAKE_SERVER_H

#include "base/err.h"

#include <saga/v1/worker.pb-c.h>
#include <stdbool.h>

enum { FAKE_MESSAGES_MAX = 1024 };

struct fake_server; /* opaque */

/* `address` as gRPC wants it ("unix:/path", "127.0.0.1:7000"). It answers Hello with Welcome. */
MUST_USE int fake_server_start(const char *address, struct fake_server **ret_server,
                               struct err *err);
struct fake_server *fake_server_stop(struct fake_server *server); /* NULL is fine */
/* Sent on the current stream as soon as there is one. */
void fake_server_send(struct fake_server *server, const Saga__V1__ServerMessage *message);
/* The same for a task of one saga ("order-17", 5 minutes for the handler), an ack (ACCEPTED) and an
 * extension (0: the lease is lost). */
void fake_server_task(struct fake_server *server, const char *handler, int64_t fence,
                      int64_t lease_ms);
void fake_server_ack(struct fake_server *server, int64_t fence);
void fake_server_extended(struct fake_server *server, int64_t fence, int64_t lease_ms);
void fake_server_send_garbage(struct fake_server *server);
/* The current stream dies. */
void fake_server_drop(struct fake_server *server);
/* The n-th message (from 0) of that kind of all that came, on any stream; waits up to 10 s for it.
 * Borrowed until stop; NULL if it did not come. */
const Saga__V1__WorkerMessage *fake_server_wait(struct fake_server *server,
                                                Saga__V1__WorkerMessage__CommandCase command,
                                                size_t nth);
/* How many of that kind have come so far. */
size_t fake_server_count(struct fake_server *server, Saga__V1__WorkerMessage__CommandCase command);

#endif
