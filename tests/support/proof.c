#include "support/proof.h"

#include "base/rng.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    char name[PROOF_NAME_SIZE];
    int64_t count;
} faults[PROOF_FAULTS_MAX]; /* of the test thread, as the header says */
static size_t fault_count;

void proof_test(const char *promises, const char *test)
{
    (void)printf("proves: %s | %s\n", promises, test);
    (void)fflush(stdout); /* a test that crashes next has said it */
}

void proof_fault(const char *name, int64_t count)
{
    size_t i = 0;
    while (i < fault_count && strcmp(faults[i].name, name) != 0)
        i++;
    if (i == fault_count) {
        assert(fault_count < PROOF_FAULTS_MAX && strlen(name) < PROOF_NAME_SIZE);
        (void)snprintf(faults[i].name, sizeof faults[i].name, "%s", name); /* fits */
        fault_count++;
    }
    faults[i].count += count;
}

int proof_end(int failed)
{
    int never = 0;
    for (size_t i = 0; i < fault_count; i++) {
        (void)printf("fault: %s | %" PRId64 "\n", faults[i].name, faults[i].count);
        never += faults[i].count == 0;
    }
    if (never > 0)
        (void)printf("%d faults never hit: they prove nothing\n", never);
    (void)fflush(stdout);
    return failed ? failed : never > 0;
}

uint64_t proof_seed(void)
{
    static uint64_t seed; /* 0: not asked for yet */
    const char *given = getenv("SAGAD_TEST_SEED");
    if (seed == 0) {
        struct rng rng;
        rng_seed_os(&rng);
        seed = given && *given ? strtoull(given, NULL, 10) : rng_below(&rng, 1000000000) + 1;
        (void)printf("seed: %" PRIu64 " (again: SAGAD_TEST_SEED=%" PRIu64 ")\n", seed, seed);
        (void)fflush(stdout);
    }
    return seed;
}
