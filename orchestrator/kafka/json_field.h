/* Fields of JSON that has no type, read from its text: numbers stay as they are written. RFC 8259
 * in UTF-8, at most PAYLOAD_DEPTH_MAX deep; a stricter reader than that would refuse nothing of
 * what is taken here. Any thread; nothing is kept, nothing is allocated for what is passed over.
 *
 * Errors: ERR_INVALID with line and column for what is no JSON; with the path in err->field for a
 * field that cannot be text. ERR_LIMIT: too deep. ERR_NOMEM. */
#ifndef KAFKA_JSON_FIELD_H
#define KAFKA_JSON_FIELD_H

#include "base/buf.h"
#include "base/err.h"

/* Is it JSON? */
MUST_USE int json_field_check(const char *text, size_t size, struct err *err);

/* Appends the text of the field at the end of a path of names ("customer.id"): strings as they are,
 * whole numbers as they are written, true and false. *ret_is_there is false, and nothing appended,
 * where there is no such member, or null. Refused: objects, lists, numbers with a fraction or an
 * exponent (they have no single spelling), a member that is there twice, a path through something
 * that is no object. */
MUST_USE int json_field_write(const char *text, size_t size, const char *path, size_t path_size,
                              struct buf *out, bool *ret_is_there, struct err *err);

/* Fills a template (schema/template.h) from such fields; the rules are those of
 * payload_template_fill, and a field that is not there is an error. `out` is as it was on failure.
 */
MUST_USE int json_template_fill(const char *text, size_t size, const char *template_, size_t max,
                                struct buf *out, struct err *err);

#endif
