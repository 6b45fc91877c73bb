/* A world made up by its seed, and the faults that befall it, until calm sets in and everything
 * must come to its end. */
#ifndef SIM_CHAOS_H
#define SIM_CHAOS_H

#include <stdbool.h>

struct world;

void chaos_open(struct world *world);
/* Runs it to its end; false: something was violated. */
bool chaos_run(struct world *world);

#endif
