/* A TCP proxy between sagad and PostgreSQL that understands just enough of the protocol to do harm
 * at a chosen moment: it reads whole messages, knows whose session it is (application_name) and
 * which prepared statements its transaction runs. Only the engine's sessions are harmed at a
 * COMMIT. Random choices (which moment, close or reset) come from the seed.
 *
 * Needs sslmode=disable. Two threads for each connection, nothing is held up by the other
 * direction. thread: the owner's calls, one at a time. */
#ifndef FAULT_PROXY_H
#define FAULT_PROXY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum proxy_fault {
    PROXY_CUT_BEFORE_COMMIT,   /* the server never gets COMMIT */
    PROXY_CUT_AFTER_COMMIT,    /* it ran COMMIT; its answer is lost */
    PROXY_KEEP_SYNC,           /* it runs COMMIT, and never gets the Sync behind it */
    PROXY_ROLLBACK_FOR_COMMIT, /* COMMIT is answered ROLLBACK, and was one */
    PROXY_CUT_IN_RESULT,       /* half of a row, then nothing */
    PROXY_FAULT_COUNT
};

struct proxy;

/* Forwards to 127.0.0.1:`server_port`. The caller owns *ret. */
MUST_USE int proxy_start(int server_port, uint64_t seed, struct proxy **ret, struct err *err);
int proxy_port(const struct proxy *proxy);
/* Cuts all. NULL is fine; always returns NULL. */
struct proxy *proxy_free(struct proxy *proxy);

/* At the n-th chance from now, once: a COMMIT of a transaction that runs `statement` (NULL: any
 * that writes), or a row of a result. `statement` is borrowed until it hit. Replaces what was armed
 * before. */
void proxy_arm(struct proxy *proxy, enum proxy_fault fault, const char *statement, int64_t n);
/* Each chance is taken with this probability, with any fault armed or not; 0: never. */
void proxy_chance(struct proxy *proxy, enum proxy_fault fault, int per_mille);
/* Everything that passes, in either direction, waits up to this long. */
void proxy_delay(struct proxy *proxy, int64_t most_ms);
/* Everything is sent one byte at a time. */
void proxy_bytes(struct proxy *proxy, bool on);

int64_t proxy_hits(const struct proxy *proxy, enum proxy_fault fault);
/* Chunks that were held up, and chunks that were cut into bytes. */
int64_t proxy_delays(const struct proxy *proxy);
int64_t proxy_byte_chunks(const struct proxy *proxy);
/* COMMITs in sessions that had not begun a transaction: one that was sent again elsewhere. */
int64_t proxy_stray_commits(const struct proxy *proxy);
int64_t proxy_commits(const struct proxy *proxy);

#endif
