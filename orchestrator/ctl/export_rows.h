/* One exported operation as a line of a file, CSV or JSON, with those fields of its payloads that
 * were asked for. Text only, no calls. thread: the main thread. */
#ifndef CTL_EXPORT_ROWS_H
#define CTL_EXPORT_ROWS_H

#include "ctl/arguments.h"
#include "ctl/revision_types.h"

#include <saga/v1/operator.pb-c.h>

/* "input", "output", "input.card.id": the payload as a whole, or a field of it by its name in the
 * proto or in JSON. */
struct export_field {
    const char *text; /* borrowed */
    bool of_output;
    const char *path; /* behind the dot; NULL: all of it */
};
struct export_fields {
    struct export_field list[CTL_REPEATS_MAX];
    size_t count;
};
/* ERR_INVALID names what is wrong. */
MUST_USE int export_fields_read(const char *const *texts, size_t count, struct export_fields *ret,
                                struct err *err);

/* The first line of a CSV file. */
void export_write_header(const struct export_fields *fields, struct buf *out);
struct export_row {
    const Saga__V1__ExportedOperation *operation;
    const struct revision_types *types; /* of its revision */
    const char *step;
    Saga__V1__OperationKind kind;
};
/* A line with its end. ERR_INVALID: a payload cannot be read, or the type has no such field. */
MUST_USE int export_write_csv(const struct export_row *row, const struct export_fields *fields,
                              struct buf *out, struct err *err);
MUST_USE int export_write_json(const struct export_row *row, const struct export_fields *fields,
                               struct buf *out, struct err *err);

#endif
