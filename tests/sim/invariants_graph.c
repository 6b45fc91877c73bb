/* The order of the steps, by rules of its own: what the definition's steps name, and what was
 * judged of each. The core's closure of that (after_all) is not asked. */
#include "sim/invariants_internal.h"

#include <inttypes.h>

enum { EIGHT = 8, SIX = 6 };

/* For each step a bit for every step that must be over before it: a step names none but those that
 * stand before it. */
static void find_before(const struct look *look, unsigned ret[STEPS_MAX])
{
    for (size_t i = 0; i < look->definition->step_count; i++) {
        ret[i] = 0;
        for (size_t j = 0; j < i; j++)
            if (step_set_has(&look->definition->steps[i].after, j))
                ret[i] |= 1U << j | ret[j];
    }
}

bool graph_comes_after(const struct look *look, int step, int other)
{
    unsigned before[STEPS_MAX];
    find_before(look, before);
    return before[step] >> other & 1;
}

bool graph_joins(const struct look *look, int step)
{
    unsigned before[STEPS_MAX];
    find_before(look, before);
    for (int a = 0; a < step; a++)
        for (int b = a + 1; b < step; b++)
            if ((before[step] >> a & 1) && (before[step] >> b & 1) && !(before[b] >> a & 1))
                return true;
    return false;
}

bool graph_is_next(const struct look *look, int step)
{
    const struct judged *judged = look->judged;
    unsigned before[STEPS_MAX];
    find_before(look, before);
    bool is_next = !judged->of[step][0].done && !judged->passed[step];
    for (int i = 0; i < step; i++)
        if (before[step] >> i & 1)
            is_next = is_next && (judged->of[i][0].done || judged->passed[i]);
    return is_next;
}

static bool is_to_be_taken_back(const struct look *look, int step)
{
    const struct judged_operation *of = look->judged->of[step];
    return look->definition->steps[step].has_compensation && (of[0].done || of[0].unsettled > 0) &&
           !of[1].done;
}

bool graph_is_next_back(const struct look *look, int step)
{
    unsigned before[STEPS_MAX];
    find_before(look, before);
    bool is_next = is_to_be_taken_back(look, step);
    for (int i = step + 1; i < (int)look->definition->step_count; i++)
        if (before[i] >> step & 1)
            is_next = is_next && !is_to_be_taken_back(look, i);
    return is_next;
}

/* --- what has its turn ------------------------------------------------------------------------ */

static bool was_leased(const struct look *look, int step, enum operation operation)
{
    for (size_t i = 0; i < look->saga->count; i++)
        if (look->saga->entries[i].kind == ENTRY_LEASE && look->saga->entries[i].step == step &&
            look->saga->entries[i].operation == operation)
            return true;
    return false;
}

/* Of any step. */
static int open_leases(const struct look *look, enum operation operation)
{
    int count = 0;
    for (size_t i = 0; i < look->saga->count; i++)
        count += look->saga->entries[i].kind == ENTRY_LEASE &&
                 look->saga->entries[i].outcome == OUTCOME_NONE &&
                 look->saga->entries[i].operation == operation;
    return count;
}

/* Its turn has come, for the first time, and it has nothing to wait for but a worker. */
static bool may_begin(const struct look *look, int step, int64_t now_ms)
{
    if (!look->judged->turned_back)
        return graph_is_next(look, step) && !look->definition->steps[step].delay_ms &&
               !look->judged->of[step][0].not_done && /* which may be on its way still */
               !was_leased(look, step, OPERATION_ACTION) &&
               !was_leased(look, step, OPERATION_PROBE);
    return graph_is_next_back(look, step) && look->judged->of[step][0].done &&
           now_ms > look->judged->lost_until_ms + CLOCK_SLACK_MS &&
           !open_leases(look, OPERATION_ACTION) &&
           !was_leased(look, step, OPERATION_COMPENSATION) &&
           !was_leased(look, step, OPERATION_PROBE);
}

void graph_check_turns(const struct look *look, const struct saga *copy, int64_t now_ms)
{
    enum saga_state state = look->saga->row.state;
    if ((state != SAGA_RUNNING && state != SAGA_COMPENSATING) || saga_due_at(copy) <= now_ms)
        return; /* something is to be decided first */
    struct grantable all[STEPS_MAX];
    size_t count = saga_grantable(copy, now_ms, all, STEPS_MAX);
    for (int step = 0; step < (int)look->definition->step_count; step++) {
        bool found = !may_begin(look, step, now_ms);
        for (size_t i = 0; i < count && !found; i++)
            found = all[i].step == step;
        if (!found)
            world_violate(look->world, INV_TURN, "%s: it is the turn of step %s, and %zu others go",
                          look->saga->row.saga_id, look->definition->steps[step].name, count);
    }
}

/* --- what large graphs came to ---------------------------------------------------------------- */

void graph_hit_lease(const struct look *look, const struct journal_entry *lease)
{
    int open = open_leases(look, lease->operation);
    if (lease->operation == OPERATION_ACTION && open >= EIGHT)
        world_hit(look->world, HIT_EIGHT_AT_ONCE);
    if (lease->operation == OPERATION_COMPENSATION && open >= SIX)
        world_hit(look->world, HIT_SIX_BACK_AT_ONCE);
}

static int taken_back(const struct look *look)
{
    int count = 0;
    for (size_t i = 0; i < look->definition->step_count; i++)
        count += look->judged->of[i][1].done;
    return count;
}

void graph_hit_end(const struct look *look)
{
    static const enum hit hits[SHAPE_COUNT][2] = {
        [SHAPE_CHAIN] = { HIT_CHAIN_DONE, HIT_CHAIN_BACK },
        [SHAPE_WIDE] = { HIT_WIDE_DONE, HIT_WIDE_BACK },
        [SHAPE_DIAMONDS] = { HIT_DIAMONDS_DONE, HIT_DIAMONDS_BACK },
        [SHAPE_ANY] = { HIT_ANY_DONE, HIT_ANY_BACK },
    };
    enum shape shape = definitions_shape(&look->world->definitions, look->definition);
    if (shape == SHAPE_SMALL)
        return;
    enum saga_state state = look->saga->row.state;
    if (state == SAGA_SUCCEEDED)
        world_hit(look->world, hits[shape][0]);
    if (state == SAGA_SUCCEEDED && look->definition->pivot >= 0)
        world_hit(look->world, HIT_LARGE_PIVOT);
    if (state == SAGA_COMPENSATED && taken_back(look) >= SIX)
        world_hit(look->world, hits[shape][1]);
}
