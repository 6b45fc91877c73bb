/* Load that goes on whatever dies, and the judge of what came of it.
 *
 * A thread starts sagas one after the other and repeats each start until it is acknowledged. Every
 * second saga's script is another one, so that all ways (success, refusal, retry) are under way at
 * once. The judge compares what sagad says of each saga with what the participant's own books say.
 *
 * thread: the test thread only. What fails, fails the running test. */
#ifndef FAULT_LOAD_H
#define FAULT_LOAD_H

#include "support/rig.h"

struct load;

/* Registers the definition "load": a and c guarded, b AT_MOST_ONCE and not guarded. */
void load_define(struct rig *rig);

/* What b does to the books: without the guard a second call would show, but it needs a bank that
 * lives; with it the bank may die, too. */
enum load_books { LOAD_BANK_LIVES, LOAD_BANK_DIES };

/* Starts "<prefix>0" to "<prefix><count - 1>". */
struct load *load_start(struct rig *rig, enum load_books books, const char *prefix, int count);
/* The same; a start that fails is repeated at the next of these addresses (NULL at the end). */
struct load *load_start_at(struct rig *rig, const char *const *addresses, enum load_books books,
                           const char *prefix, int count);
/* Not beyond so many starts, until more are allowed: else it may be through before the last fault.
 */
void load_allow(struct load *load, int count);
/* Starts of it that are acknowledged so far. */
int load_acked(const struct load *load);
/* Starts that were answered with an error, or not at all, and were repeated. */
int load_repeated(const struct load *load);
/* Waits until every start is acknowledged and every saga at rest: terminal, or parked. */
void load_await(struct load *load, int64_t limit_ms);
/* Waits, and judges: every acknowledged saga is there, once; SUCCEEDED ones have each effect once,
 * COMPENSATED ones none that was not taken back; what may not be repeated was not. Parked ones fail
 * the test unless allowed (then they need a reason). Returns how many are parked; ends the load. */
int load_judge(struct load *load, int parked_max, int64_t limit_ms);
/* Ends it as it is. NULL is fine; always returns NULL. */
struct load *load_free(struct load *load);

#endif
