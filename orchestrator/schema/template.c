#include "schema/template.h"

#include <string.h>

int template_next(const char **text, struct template_part *ret, struct err *err)
{
    const char *start = *text;
    size_t size = strcspn(start, "{}");
    if (size) {
        *ret = (struct template_part){ start, size, false };
        *text += size;
        return 0;
    }
    if (start[0] == start[1]) { /* {{ or }} */
        *ret = (struct template_part){ start, 1, false };
        *text += 2;
        return 0;
    }
    if (*start == '}')
        return err_set(err, ERR_INVALID, "a } without its { (as text it is }})");
    size = strcspn(start + 1, "{}");
    if (start[1 + size] != '}')
        return err_set(err, ERR_INVALID, "a { without its } (as text it is {{)");
    *ret = (struct template_part){ start + 1, size, true };
    *text += size + 2;
    return 0;
}
