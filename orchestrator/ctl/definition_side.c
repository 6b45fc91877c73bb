#include "ctl/definition_side.h"

#include "ctl/screen.h"

#include <stdio.h>
#include <string.h>

int side_of_source(const char *path, const struct source_options *options, bool typed,
                   struct side *ret)
{
    struct side side = { 0 };
    struct err err;
    if (source_read(path, options, &side.source, &err) != 0) {
        (void)ctl_print_error(&err);
        return CTL_EXIT_FAILED; /* the file is wrong, not the usage */
    }
    side.sagas = mem_calloc(side.source.count, sizeof *side.sagas);
    int rc = side.sagas ? 0 : err_set(&err, ERR_NOMEM, "out of memory");
    for (; rc == 0 && side.count < side.source.count; side.count++) {
        struct side_saga *saga = &side.sagas[side.count];
        rc = source_check(&side.source, side.count, options->namespace_, typed, &saga->checked,
                          &err);
        if (rc != 0)
            break;
        saga->definition = saga->checked.definition;
        saga->schema = side.source.schema;
        side.faults += saga->checked.fault_count;
    }
    if (rc != 0) {
        side_done(&side);
        (void)ctl_print_error(&err);
        return CTL_EXIT_FAILED;
    }
    *ret = side;
    return 0;
}

int side_of_server(struct ctl *ctl, const char *namespace_, const char *name, int32_t revision,
                   bool *ret_absent, struct side *ret)
{
    Saga__V1__RegisteredDefinition *registered = NULL;
    struct err err;
    *ret = (struct side){ 0 };
    int rc = definition_fetch(ctl, namespace_, name, revision, true, ret_absent, &registered);
    if (rc != 0 || (ret_absent && *ret_absent))
        return rc;
    struct side side = { .sagas = mem_calloc(1, sizeof *side.sagas), .count = 1 };
    if (!side.sagas) {
        ctl_message_free_p(&registered);
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        return ctl_print_error(&err);
    }
    struct side_saga *saga = side.sagas;
    saga->registered = registered;
    saga->definition = registered->definition;
    saga->revision = registered->revision;
    if (registered->descriptors.len &&
        schema_new(registered->descriptors.data, registered->descriptors.len, &saga->own_schema,
                   &err) != 0) {
        side_done(&side);
        (void)err_wrap(&err, "the descriptors of %s on the server", name);
        (void)ctl_print_error(&err);
        return CTL_EXIT_FAILED;
    }
    saga->schema = saga->own_schema;
    *ret = side;
    return 0;
}

void side_done(struct side *side)
{
    for (size_t i = 0; side->sagas && i < side->count; i++) {
        source_saga_done(&side->sagas[i].checked);
        ctl_message_free_p(&side->sagas[i].registered);
        side->sagas[i].own_schema = schema_free(side->sagas[i].own_schema);
    }
    mem_free(side->sagas);
    source_done(&side->source);
    *side = (struct side){ 0 };
}

void side_print_faults(const struct side *side)
{
    for (size_t i = 0; i < side->count; i++)
        (void)fputs(buf_cstr(&side->sagas[i].checked.faults), stderr);
}

const struct side_saga *side_find(const struct side *side, const struct side *other,
                                  const struct side_saga *saga)
{
    if (side->count == 1 && other->count == 1)
        return side->sagas;
    for (size_t i = 0; i < side->count; i++)
        if (side->sagas[i].definition &&
            strcmp(side->sagas[i].definition->name, saga->definition->name) == 0)
            return &side->sagas[i];
    return NULL;
}

void side_write_gone(const struct side *was, const struct side *is, struct buf *out)
{
    for (size_t i = 0; i < was->count; i++) {
        if (!was->sagas[i].definition || side_find(is, was, &was->sagas[i]))
            continue;
        buf_text(out, "NOTE      ");
        screen_text(out, was->sagas[i].definition->name);
        buf_text(out, " is not there any more; what a server has of it stays as it is\n");
    }
}

int side_compare(struct ctl *ctl, const struct side_saga *was, const struct side_saga *is,
                 struct changes *changes, struct buf *live)
{
    const struct diff_revision old = { was->definition, was->schema };
    const struct diff_revision now = { is->definition, is->schema };
    struct diff_counts counts; /* the changes count themselves */
    struct err err;
    if (schema_diff(&old, &now, changes_add, changes, &counts, &err) != 0) {
        (void)ctl_print_error(&err);
        return CTL_EXIT_FAILED;
    }
    return ctl ? definition_write_live(ctl, was->definition, is->definition, live) : 0;
}
