/* A TCP gate between a sagad and PostgreSQL. Open, it lets everything pass. Armed, it shuts at the
 * first message to the server that holds a text (the name of a prepared statement), for that
 * connection: that message and what follows it wait inside, until the gate is opened again and they
 * arrive, late. Needs sslmode=disable. thread: the owner's calls, one at a time; it has threads of
 * its own. */
#ifndef KAFKA_GATE_H
#define KAFKA_GATE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct gate;

/* Forwards to 127.0.0.1:`server_port`. The caller owns *ret. */
MUST_USE int gate_start(int server_port, struct gate **ret, struct err *err);
/* Cuts all. NULL is fine; always returns NULL. */
struct gate *gate_free(struct gate *gate);
int gate_port(const struct gate *gate);

/* `text` is borrowed until the gate shuts or is opened. */
void gate_arm(struct gate *gate, const char *text);
bool gate_is_shut(const struct gate *gate);
/* What waits inside goes on; no longer armed. */
void gate_open(struct gate *gate);

#endif
