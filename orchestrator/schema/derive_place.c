#include "schema/derive_internal.h"

#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void derive_place(const struct derive *derive, const struct rpc *rpc, const char *field, char *ret,
                  size_t size)
{
    (void)snprintf(ret, size, "%s: %s%s%s%s%s", derive->service->file, derive->service->full_name,
                   rpc ? "." : "", rpc ? rpc->method->name : "", *field ? ": " : "", field);
    ret[utf8_cut(ret, strlen(ret), size - 1)] = '\0';
}

/* What follows `prefix` in the path; NULL: it does not begin so. */
static const char *after(const char *path, const char *prefix)
{
    size_t size = strlen(prefix);
    return strncmp(path, prefix, size) == 0 ? path + size : NULL;
}

/* The rpc of a step, and what is left of the path; NULL: the path is not of one. */
static const struct rpc *find_step(const struct derive *derive, const char **path)
{
    const char *number = after(*path, "steps[");
    if (!number)
        return NULL;
    char *end;
    unsigned long index = strtoul(number, &end, 10);
    const char *rest = after(end, "]");
    if (!rest || index >= derive->step_count)
        return NULL;
    *path = *rest == '.' ? rest + 1 : rest;
    return derive->steps[index];
}

/* From the step to its operation, and to the probe of that. */
static const struct rpc *find_operation(const struct rpc *rpc, const char **path)
{
    const char *rest = after(*path, "compensation.");
    if (rest && rpc->undo) {
        rpc = rpc->undo;
        *path = rest;
    } else if ((rest = after(*path, "action."))) {
        *path = rest;
    }
    if (rpc->probe && (rest = after(*path, "probe."))) {
        rpc = rpc->probe;
        *path = rest;
    }
    return rpc;
}

/* Fields whose options have another name; "": what the rpc is as such. */
static const char *option_name(const char *field)
{
    static const struct renamed {
        const char *field, *option;
    } renamed[] = {
        { "steps", "" },
        { "input_type", "input" },
        { "action", "" },
        { "undo", "compensated_by" },
        { "compensation", "compensated_by" },
        { "probe", "probed_by" },
        { "output_type", "response" },
        { "wait_for_signal.payload_type", "response" },
        { "wait_for_signal.on_exhausted", "on_exhausted" },
    };
    for (size_t i = 0; i < ARRAY_LEN(renamed); i++)
        if (strcmp(renamed[i].field, field) == 0)
            return renamed[i].option;
    return after(field, "request.") ? "request" : field;
}

static bool says_field(const struct says *says, const char *field)
{
    for (enum time_field i = 0; i < TIME_COUNT; i++)
        if (strcmp(derive_time_name(i), field) == 0)
            return derive_is_said(says->times[i]);
    if (strcmp(field, "retry.max_attempts") == 0)
        return says->has_max_attempts;
    return strcmp(field, "lost_leases_max") == 0 && says->has_lost_leases_max;
}

void schema_fault_place(const struct derived *derived, const char *path, char *ret, size_t size)
{
    const struct derive *derive = derived->origin;
    const struct rpc *rpc = find_step(derive, &path);
    if (rpc)
        rpc = find_operation(rpc, &path);
    const char *field = option_name(path);
    char text[64];
    if (rpc && !says_field(&rpc->says, field) && says_field(&derive->defaults, field)) {
        rpc = NULL;
        (void)snprintf(text, sizeof text, "defaults.%s", field);
        field = text;
    }
    derive_place(derive, rpc, field, ret, size);
}
