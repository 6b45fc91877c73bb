#include "table.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void table_add(struct table_samples *samples, double value)
{
    assert(samples->count < TABLE_RUNS_MAX);
    samples->values[samples->count++] = value;
}

static int double_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static struct table_samples sorted(const struct table_samples *samples)
{
    struct table_samples copy = *samples;
    qsort(copy.values, copy.count, sizeof(copy.values[0]), double_compare);
    return copy;
}

double table_median(const struct table_samples *samples)
{
    if (samples->count == 0)
        return NAN;
    return sorted(samples).values[(samples->count - 1) / 2];
}

static bool is_short(const struct table_figure *figure, double value)
{
    /* So that what is no number is short. */
    return (figure->bound == TABLE_AT_LEAST && !(value >= figure->reach)) ||
           (figure->bound == TABLE_AT_MOST && !(value <= figure->reach));
}

bool table_is_short(const struct table_figure *figure, const struct table_samples *samples)
{
    return is_short(figure, table_median(samples));
}

static void print_row(const struct table_figure *figure, const struct table_samples *samples)
{
    struct table_samples all = sorted(samples);
    double median = table_median(samples);
    char reach[32] = "";
    if (figure->bound != TABLE_TELLS)
        (void)snprintf(reach, sizeof(reach), "%s %.6g",
                       figure->bound == TABLE_AT_LEAST ? ">=" : "<=", figure->reach); /* fits */
    const char *verdict = figure->bound == TABLE_TELLS ? ""
                          : is_short(figure, median)   ? "short"
                                                       : "pass";
    (void)fprintf(stderr, "| %s | %s | %.*f | %.*f | %.*f | %s |\n", figure->what, reach,
                  figure->decimals, median, figure->decimals, all.values[0], figure->decimals,
                  all.values[all.count - 1], verdict); /* best effort, as all here */
}

enum which { THE_MEDIAN, THE_LEAST, THE_MOST };

static void print_values(const struct table_figure *figures, const struct table_samples *samples,
                         size_t count, enum which which)
{
    const char *separator = "";
    for (size_t i = 0; i < count; i++) {
        if (samples[i].count == 0)
            continue;
        struct table_samples all = sorted(&samples[i]);
        double value = which == THE_MEDIAN  ? table_median(&samples[i])
                       : which == THE_LEAST ? all.values[0]
                                            : all.values[all.count - 1];
        if (!isfinite(value))
            (void)printf("%s\"%s\": null", separator, figures[i].name);
        else
            (void)printf("%s\"%s\": %.*f", separator, figures[i].name, figures[i].decimals, value);
        separator = ", ";
    }
}

static void print_json(const struct table_figure *figures, const struct table_samples *samples,
                       size_t count)
{
    size_t runs = 0;
    for (size_t i = 0; i < count; i++)
        runs = samples[i].count > runs ? samples[i].count : runs;
    (void)printf("{"); /* best effort, as all here */
    print_values(figures, samples, count, THE_MEDIAN);
    if (runs > 1) {
        (void)printf(", \"runs\": %zu, \"min\": {", runs);
        print_values(figures, samples, count, THE_LEAST);
        (void)printf("}, \"max\": {");
        print_values(figures, samples, count, THE_MOST);
        (void)printf("}");
    }
    (void)printf(", \"short\": [");
    const char *separator = "";
    for (size_t i = 0; i < count; i++) {
        if (samples[i].count == 0 || !is_short(&figures[i], table_median(&samples[i])))
            continue;
        (void)printf("%s\"%s\"", separator, figures[i].name);
        separator = ", ";
    }
    (void)printf("]}\n");
}

void table_print(const struct table_figure *figures, const struct table_samples *samples,
                 size_t count)
{
    (void)fprintf(stderr, "\n| figure | reach | median | least | most | |\n"
                          "|---|---|---|---|---|---|\n"); /* best effort */
    for (size_t i = 0; i < count; i++)
        if (figures[i].what && samples[i].count > 0)
            print_row(&figures[i], &samples[i]);
    (void)fflush(stderr); /* best effort */
    print_json(figures, samples, count);
}
