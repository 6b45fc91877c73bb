/* Something that happens at its time (sim/world.h); embedded in whatever waits. */
#ifndef SIM_TIMER_H
#define SIM_TIMER_H

#include "base/heap.h"

struct world;
struct timer;

typedef void timer_fn(struct world *world, struct timer *timer);

struct timer {
    struct heap_node place;
    timer_fn *fire;
};

#endif
