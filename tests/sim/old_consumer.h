/* Whoever ran an operation before its saga took it over, and has stopped: it made the effects of
 * some steps, in their order, with the keys and the guard that sagad's workers have, and nobody
 * knows how far it came. Its last request may be on its way still: no longer than settle time,
 * where that is declared. */
#ifndef SIM_OLD_CONSUMER_H
#define SIM_OLD_CONSUMER_H

#include <stdint.h>

struct world;
struct business_key;

/* It was at work since key->suspect_since_ms. steps: how many it came to; the last one's request
 * lands after lands_ms, 0: at once, like those before it. */
void old_consumer_ran(struct world *world, const struct business_key *key, int steps,
                      int64_t lands_ms);
/* By chance. */
void old_consumer_made_up(struct world *world, const struct business_key *key);

#endif
