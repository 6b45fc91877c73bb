/* Random numbers, injected and seeded (xoshiro256**, Blackman and Vigna): jitter and ids, never
 * secrets. One owner; not shared between threads. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t s[4];
};

void rng_seed(struct rng *rng, uint64_t seed);
/* From the operating system. */
void rng_seed_os(struct rng *rng);
uint64_t rng_next(struct rng *rng);
/* Uniform in [0, below); 0 if below is 0. */
uint64_t rng_below(struct rng *rng, uint64_t below);

#endif
