/* A connection that can be made to swallow everything: a TCP proxy on 127.0.0.1 for one connection
 * at a time. Frozen it reads and forwards nothing in either direction, and closes nothing: what a
 * pulled cable looks like to both sides. It runs in a thread of its own.
 * thread: the owner's calls, one at a time. */
#ifndef SUPPORT_BLACK_HOLE_H
#define SUPPORT_BLACK_HOLE_H

#include "base/err.h"

struct black_hole;

/* Forwards to 127.0.0.1:`port`. The caller owns *ret. */
MUST_USE int black_hole_start(int port, struct black_hole **ret, struct err *err);
/* "127.0.0.1:..." to connect to; borrowed until free. */
const char *black_hole_address(const struct black_hole *hole);
/* For ever. */
void black_hole_freeze(struct black_hole *hole);
/* Closes both sides. NULL is fine; always returns NULL. */
struct black_hole *black_hole_free(struct black_hole *hole);

#endif
