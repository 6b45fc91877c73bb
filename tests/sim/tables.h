/* The invariants and the faults as Markdown, for the README. */
#ifndef SIM_TABLES_H
#define SIM_TABLES_H

#include "sim/runner.h"

/* To stdout. */
void tables_print(void);
/* What hit how often, and the lines for the table of promises. False: something never did. */
bool tables_print_hits(const struct runner_result *result);

#endif
