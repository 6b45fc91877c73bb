/* CSV as RFC 4180 has it: fields with a comma, a quote or a line end in them are quoted, a quote is
 * doubled; lines end with LF or CRLF. One owner thread. */
#ifndef CTL_CSV_H
#define CTL_CSV_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

enum { CSV_FIELDS_MAX = 64, CSV_RECORD_BYTES_MAX = 1024 * 1024 };

/* Appends a field, with a comma before it unless it is the first. NULL is an empty one. */
void csv_field(struct buf *out, bool first, const char *text, size_t size);

struct csv_reader {
    FILE *file;   /* borrowed */
    int64_t line; /* where the record begins, from 1 */
    int64_t next; /* where the next one does */
    struct buf record;
    size_t offsets[CSV_FIELDS_MAX]; /* in record */
    size_t count;
};
/* The next record that is not empty. *ret_more false: the end. ERR_INVALID says what is wrong with
 * the record, without its line; it can be read on from the next line. ERR_UNAVAILABLE: it cannot be
 * read. */
MUST_USE int csv_read(struct csv_reader *reader, bool *ret_more, struct err *err);
/* Of the record, NUL-terminated; "" where it has fewer. */
const char *csv_text(const struct csv_reader *reader, size_t field);
void csv_reader_done(struct csv_reader *reader);

#endif
