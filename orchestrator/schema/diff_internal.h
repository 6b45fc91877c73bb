/* What the files of the comparison share:
 *
 *   diff.c         the whole: steps and labels by name, changes as text
 *   diff_rules.c   of each field: how grave a change is, and why
 *   diff_fields.c  compares messages by these rules
 *   diff_order.c   which step comes after which, and the pivot
 *   diff_types.c   payloads' types, field by field */
#ifndef SCHEMA_DIFF_INTERNAL_H
#define SCHEMA_DIFF_INTERNAL_H

#include "core/step_set.h"
#include "schema/diff.h"

enum {
    DIFF_PATH_BYTES = 256,
    DIFF_TEXT_BYTES = 2560,
    DIFF_VALUE_BYTES = 128, /* of a text that is quoted; longer ones are cut */
};

struct diff_side {
    const Saga__V1__SagaDefinition *definition;
    const struct schema *schema;
    int twin[LIMIT_STEPS]; /* index of the step of that name on the other side; -1: none */
    struct step_set after[LIMIT_STEPS];     /* as it is said */
    struct step_set after_all[LIMIT_STEPS]; /* and what those come after */
};

struct diff_pair; /* two types that were compared, or will be */

struct diff {
    schema_diff_fn *on_change;
    void *ctx;
    struct diff_side was, is;
    struct diff_counts counts;
    /* Two steps of different names are held against each other: changes are counted, not told. */
    const char *renamed_from, *renamed_to; /* NULL: no */
    size_t renamed_changes;
    struct diff_pair *pairs;    /* a hash table, in the order of their finding */
    struct diff_pair *compared; /* the last that was */
    bool blind;                 /* it was told that types cannot be compared */
    bool oom;
};

FMT(4, 5)
void diff_tell(struct diff *diff, enum diff_severity severity, const char *path, const char *fmt,
               ...);
/* "base.field"; base "": "field". Returns ret. */
const char *diff_path(const char *base, const char *field, char ret[DIFF_PATH_BYTES]);
/* Text in quotes, cut where it is long. Returns ret. */
const char *diff_quote(const char *text, char ret[DIFF_VALUE_BYTES]);

/* ---- Rules ----------------------------------------------------------------------------------- */

struct diff_verdict {
    enum diff_severity severity;
    const char *why;
};

struct diff_rule {
    const char *field;
    const char *absent; /* how it is said that it is not there; NULL: "none" */
    bool absent_is_most;
    bool is_type; /* the full name of a message */
    /* Less: a number, a time, a value's number is lower; what was there is not. Text is neither:
     * `more` without a reason is as `less`. */
    struct diff_verdict less, more;
};

struct diff_rules {
    const struct diff_rule *items;
    size_t count;
};

enum diff_of {
    DIFF_OF_DEFINITION,
    DIFF_OF_LABEL,
    DIFF_OF_STEP,
    DIFF_OF_OPERATION,
    DIFF_OF_RETRY,
    DIFF_OF_PROBE,
    DIFF_OF_REQUEST,
    DIFF_OF_REQUEST_FIELD,
    DIFF_OF_WAIT,
    DIFF_OF_COUNT
};

extern const struct diff_rules diff_rules[DIFF_OF_COUNT];

/* ---- Fields ---------------------------------------------------------------------------------- */

void diff_definition_fields(struct diff *diff);
void diff_step_fields(struct diff *diff, const char *path, const Saga__V1__Step *was,
                      const Saga__V1__Step *is);
void diff_label_fields(struct diff *diff, const char *path, const Saga__V1__LabelTemplate *was,
                       const Saga__V1__LabelTemplate *is);

/* ---- Order ----------------------------------------------------------------------------------- */

void diff_order(struct diff *diff);
void diff_pivot(struct diff *diff);

/* ---- Types ----------------------------------------------------------------------------------- */

/* A message of this full name on both sides, and all that it is made of. */
void diff_type(struct diff *diff, const char *path, const char *full_name);
void diff_types_done(struct diff *diff);

#endif
