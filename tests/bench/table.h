/* The table of a benchmark: each figure with its reach, the median, smallest and largest of its
 * runs, and whether the median is within reach. One thread. */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { TABLE_RUNS_MAX = 16 };

enum table_bound { TABLE_TELLS, TABLE_AT_LEAST, TABLE_AT_MOST };

struct table_figure {
    const char *name; /* in the JSON line */
    const char *what; /* in the table; NULL: it is no row of it */
    int decimals;
    enum table_bound bound;
    double reach; /* with a bound */
};

struct table_samples {
    size_t count;
    double values[TABLE_RUNS_MAX];
};

void table_add(struct table_samples *samples, double value);
double table_median(const struct table_samples *samples); /* the lower one of two; NaN: none */

bool table_is_short(const struct table_figure *figure, const struct table_samples *samples);

/* Rows of Markdown on stderr, and one JSON line on stdout: the medians by name; with more than one
 * run "runs", "min" and "max", too; "short": the names of those that are out of reach. A figure
 * without a sample is left out. */
void table_print(const struct table_figure *figures, const struct table_samples *samples,
                 size_t count);

#endif
