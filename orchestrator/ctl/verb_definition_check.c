/* sagactl definition check: is a source right, and what does it change? */
#include "ctl/ctl.h"
#include "ctl/definition_graph.h"
#include "ctl/definition_side.h"
#include "ctl/verbs.h"
#include "wire/json.h"

#include <assert.h>
#include <stdio.h>

static const struct ctl_option options[] = {
    { "against", "SOURCE", false, "tell what is different from this source" },
    { "server", NULL, false, "tell what is different from what the server has" },
    { "revision", "N", false, "with --server: from this revision (default: the current one)" },
    { "dot", NULL, false, "print the graph for Graphviz, and nothing else" },
    SOURCE_OPTIONS,
    { NULL, NULL, false, NULL },
};

struct check {
    struct ctl *ctl;
    struct side is, against;         /* of --against */
    bool compares, server, dot, one; /* one: --service */
    int32_t revision;
    json_t *all;     /* with -o json */
    struct buf text; /* else */
};

/* What one saga is held against; *ret NULL: nothing is there. `fetched` is its owner, if it came
 * from the server. */
static int find_other(struct check *check, const struct side_saga *saga, struct side *fetched,
                      const struct side_saga **ret)
{
    bool absent = false;
    *ret = NULL;
    if (!check->server) {
        *ret = side_find(&check->against, &check->is, saga);
        return 0;
    }
    int rc = side_of_server(check->ctl, saga->definition->namespace_, saga->definition->name,
                            check->revision, check->revision ? NULL : &absent, fetched);
    if (rc == 0 && !absent)
        *ret = fetched->sagas;
    return rc;
}

static int add_json(struct check *check, const struct side_saga *saga, struct changes *changes)
{
    json_t *definition;
    struct err err;
    if (wire_json_from_message(&saga->definition->base, &definition, &err) != 0)
        return ctl_print_error(&err);
    json_t *value =
        json_pack("{s:s, s:o}", "name", saga->definition->name, "definition", definition);
    if (check->compares && value)
        (void)json_object_set_new(value, "changes", /* out of memory shows below */
                                  changes->json ? json_incref(changes->json) : json_array());
    return json_array_append_new(check->all, value) == 0 ? 0 : CTL_EXIT_FAILED;
}

static void write_ok(struct check *check, const struct side_saga *saga,
                     const struct side_saga *other, const struct changes *changes)
{
    struct buf *out = &check->text;
    size_t steps = saga->definition->n_steps;
    buf_printf(out, "ok: %s, %zu step%s", saga->definition->name, steps, steps == 1 ? "" : "s");
    if (other && other->revision)
        buf_printf(out, "; against revision %d: ", other->revision);
    else if (other)
        buf_printf(out, "; against %s: ", check->against.source.path);
    if (other)
        changes_write_counts(&changes->counts, out);
    else if (check->compares)
        buf_text(out, "; new, there is nothing to compare with");
    buf_text(out, "\n");
}

static int check_saga(struct check *check, const struct side_saga *saga)
{
    struct side fetched = { 0 };
    const struct side_saga *other = NULL;
    CLEANUP(changes_done) struct changes changes = { .color = check->ctl->color };
    CLEANUP(buf_done) struct buf live = { 0 };
    int rc = check->compares ? find_other(check, saga, &fetched, &other) : 0;
    if (rc == 0 && other)
        rc = side_compare(check->server ? check->ctl : NULL, other, saga, &changes, &live);
    if (rc == 0 && check->ctl->json) {
        rc = add_json(check, saga, &changes);
    } else if (rc == 0 && check->dot) {
        graph_write_dot(saga->definition, &check->text);
    } else if (rc == 0) {
        const struct graph_view view = graph_view_of(check->ctl->color);
        if (!check->compares)
            graph_write(saga->definition, &view, &check->text);
        changes_write(&changes, &check->text);
        buf_text(&check->text, buf_cstr(&live));
        write_ok(check, saga, other, &changes);
    }
    side_done(&fetched);
    return rc != 0 ? rc : schema_diff_worst(&changes.counts);
}

static int check_all(struct check *check)
{
    int code = check->is.faults ? CTL_EXIT_FAILED : 0;
    for (size_t i = 0; i < check->is.count; i++)
        if (check->is.sagas[i].definition)
            code = side_worse(code, check_saga(check, &check->is.sagas[i]));
    if (!check->one)
        side_write_gone(&check->against, &check->is, &check->text);
    side_print_faults(&check->is);
    int rc = check->all ? ctl_print_json(json_pack("{s:O}", "sagas", check->all))
                        : ctl_print_text(&check->text);
    return side_worse(rc, code);
}

static int read_sides(struct check *check, const struct ctl_arguments *arguments)
{
    const struct source_options source = source_options_of(check->ctl->namespace_, arguments);
    struct source_options other = source;
    const char *against = ctl_option(arguments, "against");
    int rc = side_of_source(arguments->positional[0], &source, true, &check->is);
    if (rc != 0 || !against)
        return rc;
    other.service = NULL; /* found by its name */
    if ((rc = side_of_source(against, &other, false, &check->against)) != 0)
        return rc;
    side_print_faults(&check->against);
    return check->against.faults ? CTL_EXIT_FAILED : 0;
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    struct err err;
    int64_t revision;
    struct check check = { .ctl = ctl };
    check.server = ctl_option(arguments, "server") != NULL;
    check.dot = ctl_option(arguments, "dot") != NULL;
    check.one = ctl_option(arguments, "service") != NULL;
    check.compares = check.server || ctl_option(arguments, "against") != NULL;
    if (ctl_option_number(arguments, "revision", 1, INT32_MAX, 0, &revision, &err) != 0)
        return ctl_print_error(&err);
    if (check.server && ctl_option(arguments, "against"))
        return ctl_print_misuse("--against and --server are two ways to say the same");
    if (revision && !check.server)
        return ctl_print_misuse("--revision needs --server");
    check.revision = (int32_t)revision;
    check.all = ctl->json ? json_array() : NULL;
    int rc = read_sides(&check, arguments);
    if (rc == 0)
        rc = check_all(&check);
    json_decref(check.all);
    buf_done(&check.text);
    side_done(&check.is);
    side_done(&check.against);
    return rc;
}

const struct ctl_verb verb_definition_check = {
    "definition check",
    "SOURCE",
    1,
    1,
    options,
    "is a definition right? Draws it, and tells what it changes; needs no server\n"
    "\n"
    "SOURCE is a .proto file with services that are sagas (protoc must be installed), a "
    "descriptor\n"
    "set (.binpb, .pb, .desc: protoc --include_imports --descriptor_set_out, or buf build), or a\n"
    "definition as JSON or text format. Every saga in it is checked.\n"
    "With --against or --server what is different is told. Exit codes: 1 a fault, or a change "
    "that\n"
    "is BREAKING; 2 a change that is a WARNING; else 0.",
    run,
};
