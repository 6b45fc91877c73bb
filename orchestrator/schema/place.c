#include "schema/place.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NEAR = 24 }; /* more places than fit into a path */

static void append_path(const struct place *place, unsigned depth, char *path, size_t size)
{
    if (!place || depth == NEAR)
        return;
    append_path(place->parent, depth + 1, path, size);
    size_t used = strlen(path);
    if (place->name)
        (void)snprintf(path + used, size - used, "%s%s", used ? "." : "", place->name);
    used = strlen(path);
    if (place->key)
        (void)snprintf(path + used, size - used, "[\"%s\"]", place->key);
    else if (place->index != PLACE_NO_INDEX)
        (void)snprintf(path + used, size - used, "[%zu]", place->index);
}

int place_refuse(const struct place *place, struct err *err, enum err_code code, const char *fmt,
                 ...)
{
    char path[sizeof err->field] = "", text[sizeof err->msg];
    append_path(place, 0, path, sizeof path);
    path[utf8_cut(path, strlen(path), sizeof path - 1)] = '\0';
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    int rc = err_set(err, code, "%s%s%s", path, *path ? ": " : "", text);
    (void)snprintf(err->field, sizeof err->field, "%s", path);
    return rc;
}
