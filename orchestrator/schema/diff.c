#include "schema/diff_internal.h"

#include "base/utf8.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Text ------------------------------------------------------------------------------------ */

const char *diff_severity_name(enum diff_severity severity)
{
    static const char *const names[] = {
        [DIFF_NOTE] = "NOTE",
        [DIFF_WARNING] = "WARNING",
        [DIFF_BREAKING] = "BREAKING",
    };
    static_assert(ARRAY_LEN(names) == DIFF_SEVERITY_COUNT, "one for each");
    return names[severity];
}

int schema_diff_worst(const struct diff_counts *counts)
{
    if (counts->of[DIFF_BREAKING])
        return 1;
    return counts->of[DIFF_WARNING] ? 2 : 0;
}

void diff_tell(struct diff *diff, enum diff_severity severity, const char *path, const char *fmt,
               ...)
{
    if (diff->renamed_from) {
        diff->renamed_changes++;
        return;
    }
    char text[DIFF_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    text[utf8_cut(text, strlen(text), sizeof text - 1)] = '\0';
    diff->counts.of[severity]++;
    diff->on_change(diff->ctx, severity, path, text);
}

const char *diff_path(const char *base, const char *field, char ret[DIFF_PATH_BYTES])
{
    (void)snprintf(ret, DIFF_PATH_BYTES, "%s%s%s", base, *base ? "." : "", field);
    return ret;
}

const char *diff_quote(const char *text, char ret[DIFF_VALUE_BYTES])
{
    enum { AROUND = sizeof "\"...\"" };
    size_t size = strlen(text);
    size_t shown = utf8_cut(text, size, DIFF_VALUE_BYTES - AROUND);
    (void)snprintf(ret, DIFF_VALUE_BYTES, "\"%.*s%s\"", (int)shown, text,
                   shown < size ? "..." : "");
    return ret;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static int find_step(const Saga__V1__SagaDefinition *definition, const char *name)
{
    for (size_t i = 0; i < definition->n_steps; i++)
        if (strcmp(definition->steps[i]->name, name) == 0)
            return (int)i;
    return -1;
}

static void find_twins(struct diff_side *side, const struct diff_side *other)
{
    for (size_t i = 0; i < side->definition->n_steps; i++)
        side->twin[i] = find_step(other->definition, side->definition->steps[i]->name);
}

/* A new step that is the old one but for its name; NULL: there is none. */
static const char *find_renamed(struct diff *diff, const Saga__V1__Step *was)
{
    const Saga__V1__SagaDefinition *definition = diff->is.definition;
    const char *found = NULL;
    for (size_t i = 0; i < definition->n_steps && !found; i++) {
        if (diff->is.twin[i] >= 0)
            continue;
        diff->renamed_from = was->name;
        diff->renamed_to = definition->steps[i]->name;
        diff->renamed_changes = 0;
        diff_step_fields(diff, "", was, definition->steps[i]);
        if (!diff->renamed_changes)
            found = definition->steps[i]->name;
    }
    diff->renamed_from = diff->renamed_to = NULL;
    diff->renamed_changes = 0;
    return found;
}

static void tell_removed(struct diff *diff, const char *path, const Saga__V1__Step *was)
{
    const char *renamed = find_renamed(diff, was);
    if (renamed)
        diff_tell(
            diff, DIFF_BREAKING, path,
            "the step was removed, and \"%s\" is like it but for the name: keys and guard rows "
            "are made of names, so what was done under the one is not known under the other",
            renamed);
    else
        diff_tell(diff, DIFF_BREAKING, path,
                  "the step was removed: new sagas do not do it, and its workers are asked by old "
                  "ones alone");
}

static void diff_steps(struct diff *diff)
{
    const Saga__V1__SagaDefinition *was = diff->was.definition, *is = diff->is.definition;
    char path[DIFF_PATH_BYTES];
    for (size_t i = 0; i < was->n_steps; i++) {
        int twin = diff->was.twin[i];
        (void)diff_path("steps", was->steps[i]->name, path);
        if (twin < 0)
            tell_removed(diff, path, was->steps[i]);
        else
            diff_step_fields(diff, path, was->steps[i], is->steps[twin]);
    }
    for (size_t i = 0; i < is->n_steps; i++)
        if (diff->is.twin[i] < 0)
            diff_tell(diff, DIFF_WARNING, diff_path("steps", is->steps[i]->name, path),
                      "the step was added: new sagas wait at it until somebody serves it");
}

/* ---- Labels ---------------------------------------------------------------------------------- */

static const Saga__V1__LabelTemplate *find_label(const Saga__V1__SagaDefinition *definition,
                                                 const char *name)
{
    for (size_t i = 0; i < definition->n_labels; i++)
        if (strcmp(definition->labels[i]->name, name) == 0)
            return definition->labels[i];
    return NULL;
}

static void diff_labels(struct diff *diff)
{
    const Saga__V1__SagaDefinition *was = diff->was.definition, *is = diff->is.definition;
    char path[DIFF_PATH_BYTES];
    for (size_t i = 0; i < was->n_labels; i++) {
        const Saga__V1__LabelTemplate *twin = find_label(is, was->labels[i]->name);
        (void)diff_path("labels", was->labels[i]->name, path);
        if (twin)
            diff_label_fields(diff, path, was->labels[i], twin);
        else
            diff_tell(diff, DIFF_NOTE, path,
                      "the label was removed: new sagas are not found by it");
    }
    for (size_t i = 0; i < is->n_labels; i++)
        if (!find_label(was, is->labels[i]->name))
            diff_tell(diff, DIFF_NOTE, diff_path("labels", is->labels[i]->name, path),
                      "the label was added: sagas from before are not found by it");
}

/* ---- The whole ------------------------------------------------------------------------------- */

int schema_diff(const struct diff_revision *was, const struct diff_revision *is,
                schema_diff_fn *on_change, void *ctx, struct diff_counts *ret, struct err *err)
{
    if (was->definition->n_steps > LIMIT_STEPS || is->definition->n_steps > LIMIT_STEPS)
        return err_set(err, ERR_LIMIT, "a definition has more than %d steps", LIMIT_STEPS);
    CLEANUP(mem_free_p) struct diff *diff = mem_calloc(1, sizeof *diff);
    if (!diff)
        return err_set(err, ERR_NOMEM, "comparison of two definitions");
    diff->on_change = on_change;
    diff->ctx = ctx;
    diff->was.definition = was->definition;
    diff->was.schema = was->schema;
    diff->is.definition = is->definition;
    diff->is.schema = is->schema;
    find_twins(&diff->was, &diff->is);
    find_twins(&diff->is, &diff->was);
    diff_definition_fields(diff);
    diff_labels(diff);
    diff_pivot(diff);
    diff_order(diff);
    diff_steps(diff);
    diff_types_done(diff);
    if (diff->oom)
        return err_set(err, ERR_NOMEM, "comparison of two definitions");
    *ret = diff->counts;
    return 0;
}
