#include "definitions/told.h"

#include "definitions/sets.h"
#include "schema/diff_internal.h"

#include <stdio.h>

void told_as_in(const char *path, const char *text)
{
    if (getenv("SAGAD_GOLDEN_WRITE"))
        file_write(path, text, strlen(text));
    CLEANUP(bytes_done) struct bytes expected = file_read(path);
    if (strcmp((char *)expected.data, text) != 0) {
        (void)fprintf(stderr, "--- %s\n%s--- but it is\n%s---\n", path, (char *)expected.data,
                      text);
        fail();
    }
}

static void tell(void *ctx, enum diff_severity severity, const char *path, const char *text)
{
    assert_in_range(strlen(path), 1, DIFF_PATH_BYTES - 1);
    assert_in_range(strlen(text), 1, DIFF_TEXT_BYTES - 1);
    buf_printf(ctx, "%s %s\n    %s\n", diff_severity_name(severity), path, text);
}

size_t told_total(const struct diff_counts *counts)
{
    size_t sum = 0;
    for (size_t i = 0; i < DIFF_SEVERITY_COUNT; i++)
        sum += counts->of[i];
    return sum;
}

enum diff_severity told_gravest(const struct diff_counts *counts)
{
    return counts->of[DIFF_BREAKING]  ? DIFF_BREAKING
           : counts->of[DIFF_WARNING] ? DIFF_WARNING
                                      : DIFF_NOTE;
}

struct diff_counts told_diff(const Saga__V1__SagaDefinition *was, const struct schema *was_schema,
                             const Saga__V1__SagaDefinition *is, const struct schema *is_schema,
                             struct buf *told)
{
    struct diff_counts counts = { { 0 } };
    struct err err;
    struct buf own = { 0 };
    size_t lines = 0;
    ASSERT_OK(schema_diff(&(struct diff_revision){ was, was_schema },
                          &(struct diff_revision){ is, is_schema }, tell, &own, &counts, &err),
              &err);
    for (const char *at = buf_cstr(&own); (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(2 * told_total(&counts), lines);
    buf_text(told, buf_cstr(&own));
    buf_done(&own);
    return counts;
}
