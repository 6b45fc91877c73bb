/* What is different between two revisions, as lines for people: the gravest first. Text only, no
 * calls. Any thread. */
#ifndef CTL_DEFINITION_CHANGES_H
#define CTL_DEFINITION_CHANGES_H

#include "base/buf.h"
#include "schema/diff.h"

#include <jansson.h>

struct changes { /* all-zero but for `color` is empty */
    struct buf lines[DIFF_SEVERITY_COUNT];
    struct diff_counts counts;
    json_t *json; /* an array of {severity, path, text}; NULL: none yet */
    bool color;
};

/* A schema_diff_fn; ctx is the changes. */
void changes_add(void *ctx, enum diff_severity severity, const char *path, const char *text);
/* Takes what a server told. */
void changes_add_told(struct changes *changes, Saga__V1__DefinitionChange *const *told,
                      size_t count);
/* "BREAKING  steps.debit.compensation: was ..., is none: ..." */
void changes_write(const struct changes *changes, struct buf *out);
/* "1 breaking, 2 warnings, 1 note"; "no difference". */
void changes_write_counts(const struct diff_counts *counts, struct buf *out);
void changes_done(struct changes *changes);

#endif
