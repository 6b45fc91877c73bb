/* A file of verdicts: what the other side says became of operations, a line of CSV for each. Reads
 * it row by row, says what is wrong in which line, and knows its SHA-256. One owner thread. */
#ifndef CTL_VERDICT_FILE_H
#define CTL_VERDICT_FILE_H

#include "ctl/csv.h"

#include <saga/v1/operator.pb-c.h>

enum verdict_kind { VERDICT_DID_HAPPEN, VERDICT_DID_NOT_HAPPEN, VERDICT_NOT_KNOWN };

struct verdict { /* texts are borrowed until the next row; "" where the file says nothing */
    int64_t line;
    enum verdict_kind kind;
    const char *uid, *definition, *saga_id; /* uid, or the other two */
    int32_t run;                            /* 0: the latest */
    const char *step;
    Saga__V1__OperationKind operation;
    int64_t fence; /* 0: not said */
    const char *result, *evidence;
};

struct verdict_file; /* opaque */
/* definition and step (NULL: none): for rows that do not say. ERR_INVALID: it has no such columns;
 * ERR_UNAVAILABLE: it cannot be read. The columns, by the first line, in any order and case:
 * verdict, and uid or saga_id; definition, run, step, operation, fence, result, evidence; others
 * are passed over. */
MUST_USE int verdict_file_open(const char *path, const char *definition, const char *step,
                               struct verdict_file **ret, struct err *err);
struct verdict_file *verdict_file_close(struct verdict_file *file); /* NULL is fine; NULL */
/* ERR_INVALID: what is wrong in line verdict->line; the next call reads the next row. */
MUST_USE int verdict_file_next(struct verdict_file *file, struct verdict *ret, bool *ret_more,
                               struct err *err);
/* From the first row again. */
MUST_USE int verdict_file_rewind(struct verdict_file *file, struct err *err);
/* The first 32 hex digits. */
const char *verdict_file_digest(const struct verdict_file *file);
/* Without its folder. */
const char *verdict_file_name(const struct verdict_file *file);

#endif
