/* What a definition says of the payloads that come in: of a start, a report, a person's word. */
#include "engine/engine_internal.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

int payload_check_start(struct start_item *item, const struct definition *definition,
                        const char *pause, struct err *err)
{
    buf_done(&item->start.made); /* of an earlier try, by another revision */
    item->start = (struct payload_start){ .saga_id = item->saga_id, .labels = item->labels };
    int rc = definition->types
                 ? definition->types->ops->start(definition, &item->input, &item->start, err)
                 : 0;
    if (!rc && !*item->start.saga_id)
        rc = err_field(err, "saga_id", "saga_id: is required");
    if (!rc && pause) {
        rc = err_reason(err, ERR_UNAVAILABLE, "DEFINITION_PAUSED", "%s starts no new sagas now%s%s",
                        item->definition, *pause ? ": " : "", pause);
        err->retryable = true;
    }
    return rc;
}

static const char invalid_output[] = "INVALID_OUTPUT";

/* Sent again after it was recorded so: it is still the same report. */
static bool is_recorded(const struct journal_entry *lease, const struct report *report)
{
    return outcome_is_success(report->outcome) && lease->outcome == OUTCOME_UNKNOWN &&
           lease->error_code && strcmp(lease->error_code, invalid_output) == 0;
}

void payload_check_report(const struct saga *saga, struct worker_report *work)
{
    struct report *report = &work->report;
    const struct definition *definition = saga_definition(saga);
    const struct journal_entry *lease = saga_entry(saga, fence_seq(report->fence));
    if (!definition->types || !lease || lease->kind != ENTRY_LEASE ||
        !(saga_report_answers(saga, report) || is_recorded(lease, report)))
        return;
    struct task_view view;
    struct err err;
    saga_task_view(saga, lease->seq, &view);
    if (!definition->types->ops->output(definition, (size_t)lease->step, view.about,
                                        &report->output, &err))
        return;
    (void)snprintf(work->problem, sizeof work->problem, "%s", err.msg);
    work->problem[utf8_cut(work->problem, strlen(work->problem), sizeof work->problem - 1)] = '\0';
    *report = (struct report){ .fence = report->fence,
                               .outcome = OUTCOME_UNKNOWN,
                               .error_code = invalid_output,
                               .error_message = work->problem };
}

int payload_check_signal(const struct saga *saga, const struct engine_verb *verb, struct err *err)
{
    const struct definition *definition = saga_definition(saga);
    int step = definition_wait_find(definition, verb->signal);
    if (!definition->types || step < 0) /* such a signal is refused by the core */
        return 0;
    return definition->types->ops->output(definition, (size_t)step, OPERATION_ACTION, &verb->output,
                                          err);
}

int payload_check_resolve(const struct saga *saga, const struct engine_verb *verb, struct err *err)
{
    const struct definition *definition = saga_definition(saga);
    int step = verb->step ? definition_step_find(definition, verb->step) : -1;
    enum operation operation = verb->operation;
    if (operation == OPERATION_COUNT)
        operation =
            saga_row(saga)->phase == SAGA_COMPENSATING ? OPERATION_COMPENSATION : OPERATION_ACTION;
    if (!definition->types || step < 0) /* such a step is refused by the core */
        return 0;
    return definition->types->ops->output(definition, (size_t)step, operation, &verb->output, err);
}
