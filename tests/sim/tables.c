#include "sim/tables.h"

#include "sim/hits.h"
#include "sim/invariants.h"

#include <inttypes.h>
#include <stdio.h>

void tables_print(void)
{
    (void)printf("| invariant | promise | what must hold |\n|---|---|---|\n");
    for (int i = 0; i < INVARIANT_COUNT; i++)
        (void)printf("| %s | %s | %s |\n", invariant_name((enum invariant)i),
                     invariant_promise((enum invariant)i), invariant_text((enum invariant)i));
    (void)printf("\n| fault | what happens |\n|---|---|\n");
    for (int i = 0; i < FAULT_COUNT; i++)
        (void)printf("| %s | %s |\n", hit_name((enum hit)i), hit_text((enum hit)i));
}

bool tables_print_hits(const struct runner_result *result)
{
    bool all = true;
    for (int i = 0; i < HIT_COUNT; i++) {
        (void)printf("  %10" PRIu64 "  %s: %s\n", result->hits[i], hit_name((enum hit)i),
                     hit_text((enum hit)i));
        all = all && result->hits[i] > 0;
    }
    for (int i = 0; i < FAULT_COUNT; i++) /* support/proof.h */
        (void)printf("fault: sim %s | %" PRIu64 "\n", hit_name((enum hit)i), result->hits[i]);
    return all;
}
