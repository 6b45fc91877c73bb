/* The end of a librdkafka client, which may wait for a broker that is gone: a thread of its own
 * does, and is left behind when it takes too long. Any thread; nobody uses the client beside it. */
#ifndef KAFKA_CLIENT_CLOSE_H
#define KAFKA_CLIENT_CLOSE_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

/* closes: of a consumer, its group is told. `ended` is called once, when the client calls back no
 * more: before client_close returns, or, after timeout_ms, whenever it has ended, in its own
 * thread. Never where there is no memory or thread to end it in, which the log tells. */
void client_close(rd_kafka_t *handle, bool closes, int64_t timeout_ms, void (*ended)(void *owner),
                  void *owner);

#endif
