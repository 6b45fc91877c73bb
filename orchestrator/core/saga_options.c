/* Other numbers for a saga that runs. */
#include "core/options.h"
#include "core/saga_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct faults {
    char field[64], description[200]; /* of the first */
};

static void on_fault(void *ctx, const char *field, const char *description)
{
    struct faults *faults = ctx;
    if (faults->field[0])
        return;
    (void)snprintf(faults->field, sizeof faults->field, "%s", field);
    (void)snprintf(faults->description, sizeof faults->description, "%s", description);
}

static void on_old_fault(void *ctx, const char *field, const char *description)
{
    (void)ctx;
    (void)field;
    (void)description;
}

/* What registration would not take is not taken here either. What it would not take any more, but
 * once did, is no fault of who asks. */
static int check_rules(const struct saga *saga, const struct definition *changed, struct err *err)
{
    struct faults faults = { .field = "" };
    if (definition_check(changed, on_fault, &faults) <=
        definition_check(saga->base, on_old_fault, NULL))
        return 0;
    /* "steps[1].action.retry.cap" is the request's field retry_cap. */
    const char *retry = strstr(faults.field, "retry."), *last = strrchr(faults.field, '.');
    char field[80];
    (void)snprintf(field, sizeof field, "%s%s", retry ? "retry_" : "",
                   last ? last + 1 : faults.field);
    return err_field(err, field, "%s: %s", faults.field, faults.description);
}

static int check_deadline(const struct saga *saga, int64_t deadline_ms, int64_t now_ms,
                          struct err *err)
{
    if (saga->at.phase != SAGA_RUNNING)
        return err_reason(err, ERR_PRECONDITION, "OPTIONS_NOT_ALLOWED",
                          "it has turned back: its deadline counts no more");
    if (deadline_ms == 0)
        return 0;
    if (deadline_ms <= now_ms)
        return err_field(err, "deadline_time",
                         "deadline_time: must be in the future: to turn it back now, cancel it");
    if (deadline_ms - now_ms > LIMIT_START_AT_MS)
        return err_field(err, "deadline_time", "deadline_time: must be at most 366 days ahead");
    return 0;
}

static bool is_same(const struct saga *saga, const struct definition *changed,
                    const struct saga_options *options)
{
    return options_equal(changed, saga->definition) &&
           (options->deadline_ms == OPTIONS_SAME ||
            options->deadline_ms == saga->row.deadline_at_ms);
}

static int check_options(const struct saga *saga, int step, const struct saga_options *options,
                         int64_t now_ms, bool *ret_same, struct err *err)
{
    bool any = options_of_operations(options);
    if (!any && options->deadline_ms == OPTIONS_SAME)
        return err_field(err, "options", "options: nothing is to be changed");
    if (options->max_attempts > INT32_MAX)
        return err_field(err, "max_attempts", "max_attempts: must be at most %d", INT32_MAX);
    CLEANUP(mem_free_p) struct definition *changed = options_copy(saga->definition);
    if (!changed)
        return err_set(err, ERR_NOMEM, "options: memory is out");
    if (any && !options_apply(changed, step, options))
        return err_field(err, "operation", "operation: there is no such one %s %s",
                         step < 0 ? "in" : "of step",
                         step < 0 ? "the definition" : saga->definition->steps[step].name);
    int rc = check_rules(saga, changed, err);
    *ret_same = !rc && is_same(saga, changed, options);
    if (!rc && !*ret_same && options->deadline_ms != OPTIONS_SAME)
        rc = check_deadline(saga, options->deadline_ms, now_ms, err);
    if (!rc && !*ret_same && plan_limit_reached(saga))
        rc = err_reason(err, ERR_PRECONDITION, "OPTIONS_NOT_ALLOWED", "its journal is full");
    return rc;
}

int saga_on_options(struct saga *saga, const char *step, const struct saga_options *options,
                    const char *actor, const char *reason, int64_t now_ms, struct transition *ret,
                    enum verdict *ret_verdict, struct err *err)
{
    int asked = step ? saga_find_step(saga, step, err) : -1;
    int rc = step && asked < 0 ? (int)err->code : saga_ask_table(saga, VERB_OPTIONS, err);
    bool same = false;
    if (!rc)
        rc = check_options(saga, asked, options, now_ms, &same, err);
    if (rc)
        return rc;
    struct transition transition;
    struct change change = change_begin(saga, now_ms, NULL, &transition, err);
    if (!same) {
        char text[OPTIONS_TEXT_MAX];
        size_t size = options_write(options, text);
        struct journal_entry entry = {
            .kind = ENTRY_OPTIONS,
            .step = (int16_t)asked,
            .output = { (uint8_t *)text,
                        size }, /* borrowed, as what follows: change_append copies */
            .actor = (char *)actor,
            .error_message = (char *)reason,
        };
        transition.sets_deadline = options->deadline_ms != OPTIONS_SAME;
        if (transition.sets_deadline) {
            saga->row.deadline_at_ms = options->deadline_ms;
            change.row_changed = true;
        }
        rc = change_append(&change, &entry);
        if (!rc)
            rc = change_close(&change);
        if (rc)
            return rc;
    }
    *ret = transition;
    *ret_verdict = same ? VERDICT_NOTHING : VERDICT_ACCEPTED;
    return 0;
}
