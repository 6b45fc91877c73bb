/* What a comparison of two definitions tells, as text, and golden files of it. A failure fails the
 * test. thread: the test thread only. */
#ifndef DEFINITIONS_TOLD_H
#define DEFINITIONS_TOLD_H

#include "support/check.h"

#include "base/buf.h"
#include "schema/diff.h"

#define TOLD_GOLDEN SOURCE_DIR "/tests/definitions/golden/diff/"

static inline void buf_done_p(struct buf *buf)
{
    buf_done(buf);
}

size_t told_total(const struct diff_counts *counts);
/* NOTE where nothing is. */
enum diff_severity told_gravest(const struct diff_counts *counts);
/* Appends two lines a change: severity and path, and the text. */
struct diff_counts told_diff(const Saga__V1__SagaDefinition *was, const struct schema *was_schema,
                             const Saga__V1__SagaDefinition *is, const struct schema *is_schema,
                             struct buf *told);
/* Compares with a file; SAGAD_GOLDEN_WRITE=1 writes it. */
void told_as_in(const char *path, const char *text);

#endif
