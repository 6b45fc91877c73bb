#include "schema/diff_internal.h"

#include "base/buf.h"

#include <string.h>

enum { NAMES_TOLD = 4 };

static void read_step(struct diff_side *side, size_t index)
{
    const Saga__V1__SagaDefinition *definition = side->definition;
    const Saga__V1__Step *step = definition->steps[index];
    struct step_set *after = &side->after[index], *all = &side->after_all[index];
    if (step->n_after == 0 && !step->at_start && index > 0)
        step_set_add(after, index - 1);
    for (size_t i = 0; i < step->n_after; i++)
        for (size_t j = 0; j < index; j++)
            if (strcmp(definition->steps[j]->name, step->after[i]) == 0)
                step_set_add(after, j);
    *all = *after;
    for (size_t i = 0; i < index; i++)
        if (step_set_has(after, i))
            step_set_add_all(all, &side->after_all[i]);
}

static void read_order(struct diff_side *side)
{
    for (size_t i = 0; i < side->definition->n_steps; i++)
        read_step(side, i);
}

/* Of `set`, those that are in the other side's set under their other index no more. */
static struct step_set find_lost(const struct diff_side *side, const struct step_set *set,
                                 const struct step_set *other)
{
    struct step_set lost = { 0 };
    for (size_t i = 0; i < side->definition->n_steps; i++)
        if (step_set_has(set, i) && side->twin[i] >= 0 &&
            !step_set_has(other, (size_t)side->twin[i]))
            step_set_add(&lost, i);
    return lost;
}

/* Is one of them on this side alone? */
static bool has_stranger(const struct diff_side *side, const struct step_set *set)
{
    for (size_t i = 0; i < side->definition->n_steps; i++)
        if (step_set_has(set, i) && side->twin[i] < 0)
            return true;
    return false;
}

/* false: there are none. */
static bool tell_names(struct diff *diff, enum diff_severity severity, const char *path,
                       const struct diff_side *side, const struct step_set *set, const char *what,
                       const char *why)
{
    struct buf names = { 0 };
    size_t count = 0;
    for (size_t i = 0; i < side->definition->n_steps; i++)
        if (step_set_has(set, i) && ++count <= NAMES_TOLD)
            buf_printf(&names, "%s\"%s\"", count > 1 ? ", " : "", side->definition->steps[i]->name);
    if (count > NAMES_TOLD)
        buf_printf(&names, " and %zu more", count - NAMES_TOLD);
    diff->oom |= names.failed;
    if (count)
        diff_tell(diff, severity, path, "%s %s: %s", what, buf_cstr(&names), why);
    buf_done(&names);
    return count > 0;
}

/* false: its order is the same. `before`, `now`: the step's index in the two revisions. */
static bool diff_step_order(struct diff *diff, size_t before, size_t now)
{
    const struct diff_side *was = &diff->was, *is = &diff->is;
    char step[DIFF_PATH_BYTES], path[DIFF_PATH_BYTES];
    (void)diff_path("steps", was->definition->steps[before]->name, step);
    (void)diff_path(step, "after", path);
    struct step_set lost = find_lost(was, &was->after_all[before], &is->after_all[now]);
    struct step_set gained = find_lost(is, &is->after_all[now], &was->after_all[before]);
    bool is_told = tell_names(diff, DIFF_BREAKING, path, was, &lost, "no longer comes after",
                              "it may run before that is done, or although that fails, and is no "
                              "longer taken back before it");
    is_told |= tell_names(diff, DIFF_NOTE, path, is, &gained, "now comes after",
                          "it waits for that, and is taken back before it");
    if (is_told)
        return true;
    if (has_stranger(was, &was->after[before]) || has_stranger(is, &is->after[now]))
        return false; /* a step that was added or removed is told by itself */
    lost = find_lost(was, &was->after[before], &is->after[now]);
    gained = find_lost(is, &is->after[now], &was->after[before]);
    static const struct step_set none;
    if (step_set_holds(&none, &lost) && step_set_holds(&none, &gained))
        return false;
    diff_tell(diff, DIFF_NOTE, path,
              "names other steps: with all that those come after, the order is the same");
    return true;
}

void diff_order(struct diff *diff)
{
    read_order(&diff->was);
    read_order(&diff->is);
    bool is_told = false, is_listed_alike = true;
    int last = -1;
    for (size_t i = 0; i < diff->was.definition->n_steps; i++) {
        int twin = diff->was.twin[i];
        if (twin < 0)
            continue;
        is_told |= diff_step_order(diff, i, (size_t)twin);
        is_listed_alike &= twin > last;
        last = twin;
    }
    if (!is_told && !is_listed_alike)
        diff_tell(diff, DIFF_NOTE, "steps", "are listed in another order: they run in the same");
}

/* "": none. */
static const char *find_pivot(const Saga__V1__SagaDefinition *definition)
{
    for (size_t i = 0; i < definition->n_steps; i++)
        if (definition->steps[i]->pivot)
            return definition->steps[i]->name;
    return "";
}

void diff_pivot(struct diff *diff)
{
    const char *was = find_pivot(diff->was.definition), *is = find_pivot(diff->is.definition);
    if (strcmp(was, is) == 0)
        return;
    char step[DIFF_PATH_BYTES], path[DIFF_PATH_BYTES];
    (void)diff_path(diff_path("steps", *is ? is : was, step), "pivot", path);
    if (!*was)
        diff_tell(diff, DIFF_BREAKING, path,
                  "is the pivot, there was none: it and what comes after it is never taken back "
                  "any more, and sagas park where they turned back");
    else if (!*is)
        diff_tell(diff, DIFF_BREAKING, path,
                  "was the pivot, there is none: sagas turn back, by failure, cancel or deadline, "
                  "where they went on to their end");
    else
        diff_tell(diff, DIFF_BREAKING, path,
                  "is the pivot, it was \"%s\": which steps are taken back, and until when a saga "
                  "can be cancelled, is another thing",
                  was);
}
