/* sagactl definition diff: what is different between two definitions. */
#include "ctl/ctl.h"
#include "ctl/definition_side.h"
#include "ctl/verbs.h"

#include <stdio.h>

static const struct ctl_option options[] = {
    SOURCE_OPTIONS,
    { NULL, NULL, false, NULL },
};

static int read_side(struct ctl *ctl, const char *text, const struct source_options *source,
                     struct side *ret)
{
    char name[DEFINITION_NAME_SIZE];
    int32_t revision = 0;
    if (source_is_file(text)) {
        int rc = side_of_source(text, source, false, ret);
        if (rc == 0)
            side_print_faults(ret);
        return rc;
    }
    int rc = definition_name_read(text, name, &revision);
    return rc != 0 ? rc : side_of_server(ctl, ctl->namespace_, name, revision, NULL, ret);
}

/* Appends to `all` (NULL: to `out`) what is different. */
static int write_difference(struct ctl *ctl, bool ask, const struct side_saga *was,
                            const struct side_saga *is, json_t *all, struct buf *out)
{
    CLEANUP(changes_done) struct changes changes = { .color = ctl->color };
    CLEANUP(buf_done) struct buf live = { 0 };
    int rc = side_compare(ask ? ctl : NULL, was, is, &changes, &live);
    if (rc != 0)
        return rc;
    if (all) {
        rc = json_array_append_new(
            all, json_pack("{s:s, s:o}", "name", is->definition->name, "changes",
                           changes.json ? json_incref(changes.json) : json_array()));
    } else {
        changes_write(&changes, out);
        buf_text(out, buf_cstr(&live));
        buf_printf(out, "%s: ", is->definition->name);
        changes_write_counts(&changes.counts, out);
        buf_text(out, "\n");
    }
    return rc != 0 ? CTL_EXIT_FAILED : schema_diff_worst(&changes.counts);
}

/* was: NULL where each saga is held against its current revision on the server. */
static int compare_saga(struct ctl *ctl, const struct side *was, const struct side *is,
                        const struct side_saga *saga, json_t *all, struct buf *out)
{
    struct side fetched = { 0 };
    const struct side_saga *other = was ? side_find(was, is, saga) : NULL;
    bool absent = false;
    int rc = 0;
    if (!was) {
        rc = side_of_server(ctl, saga->definition->namespace_, saga->definition->name, 0, &absent,
                            &fetched);
        if (rc == 0 && !absent)
            other = fetched.sagas;
    }
    if (rc == 0 && other)
        rc = write_difference(ctl, other->revision != 0, other, saga, all, out);
    else if (rc == 0 && !all)
        buf_printf(out, "%s: new, there is nothing to compare with\n", saga->definition->name);
    side_done(&fetched);
    return rc;
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    const struct source_options source = source_options_of(ctl->namespace_, arguments);
    struct side was = { 0 }, is = { 0 };
    CLEANUP(buf_done) struct buf text = { 0 };
    json_t *all = ctl->json ? json_array() : NULL;
    bool two = arguments->count == 2;
    int rc = two ? read_side(ctl, arguments->positional[0], &source, &was) : 0;
    if (rc == 0)
        rc = read_side(ctl, arguments->positional[two], &source, &is);
    if (rc == 0 && was.faults + is.faults)
        rc = CTL_EXIT_FAILED;
    bool complete = rc == 0;
    for (size_t i = 0; complete && i < is.count; i++)
        rc = side_worse(rc, compare_saga(ctl, two ? &was : NULL, &is, &is.sagas[i], all, &text));
    if (two && complete && !source.service)
        side_write_gone(&was, &is, &text);
    if (complete)
        rc = side_worse(
            all ? ctl_print_json(json_pack("{s:O}", "sagas", all)) : ctl_print_text(&text), rc);
    json_decref(all);
    side_done(&was);
    side_done(&is);
    return rc;
}

const struct ctl_verb verb_definition_diff = {
    "definition diff",
    "[WAS] IS",
    1,
    2,
    options,
    "what is different between two definitions; WAS alone left out: the server's current revision\n"
    "\n"
    "WAS and IS are sources (definition check --help), or what the server has: NAME, its current\n"
    "revision, or NAME@REVISION. Exit codes: 1 a change is BREAKING, 2 a change is a WARNING, "
    "else\n"
    "0.",
    run,
};
