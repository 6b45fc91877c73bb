/* Where in a payload we are, so that a fault can be told with its path ("items[2].price.units").
 * A place stands on the stack of whoever looks at it and points to the one around it. Any thread.
 */
#ifndef SCHEMA_PLACE_H
#define SCHEMA_PLACE_H

#include "base/err.h"

#include <stddef.h>

#define PLACE_NO_INDEX ((size_t)-1)

struct place {
    const struct place *parent; /* NULL: the whole payload */
    const char *name;           /* of a field; NULL: an element of what is around it */
    const char *key;            /* of a map's element; NULL: none */
    size_t index;               /* of a list's element; PLACE_NO_INDEX: none */
};

static inline struct place place_field(const struct place *parent, const char *name)
{
    return (struct place){ .parent = parent, .name = name, .index = PLACE_NO_INDEX };
}
static inline struct place place_index(const struct place *parent, size_t index)
{
    return (struct place){ .parent = parent, .index = index };
}
static inline struct place place_key(const struct place *parent, const char *key)
{
    return (struct place){ .parent = parent, .key = key, .index = PLACE_NO_INDEX };
}

/* "path: text" with the path in err->field; returns code. */
FMT(4, 5)
int place_refuse(const struct place *place, struct err *err, enum err_code code, const char *fmt,
                 ...);

#endif
