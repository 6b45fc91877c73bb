/* The pieces of a template: text with fields in braces, as "order-{order_id}" ({{ and }}: the
 * braces). Any thread; nothing is kept. */
#ifndef SCHEMA_TEMPLATE_H
#define SCHEMA_TEMPLATE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Text as it is, or the path of a field ("customer.id"). Borrowed from the template. */
struct template_part {
    const char *text;
    size_t size;
    bool is_path;
};

/* Takes one piece from the front of *text, which is not empty. ERR_INVALID: a brace without its
 * other one. */
MUST_USE int template_next(const char **text, struct template_part *ret, struct err *err);

#endif
