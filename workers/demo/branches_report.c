#include "branches.h"
#include "driver_report.h"
#include "faults.h"
#include "fulfilment.h"
#include "message.h"

#include <stdio.h>

#define STATE(name) SAGA__V1__SAGA_STATE__SAGA_STATE_##name

struct seen {
    int fulfilled, together, cancelled;
    int first_together, first_undone; /* numbers of orders; 0: none */
    struct faults faults;
};

static void look_at(struct seen *seen, int number, Saga__V1__SagaState state,
                    const struct fulfilment_plan *plan, const struct branches *branches)
{
    if (branches->wrong)
        faults_add(&seen->faults, &fulfilment_story, number, "%s", branches->wrong);
    if (state == STATE(SUCCEEDED)) {
        seen->fulfilled++;
        seen->together += branches->together;
        if (!seen->first_together && branches->together &&
            plan->logistics == FULFILMENT_LOGISTICS(NORMAL))
            seen->first_together = number;
        return;
    }
    seen->cancelled++;
    if (plan->recalled && !branches->undone)
        faults_add(&seen->faults, &fulfilment_story, number,
                   "recalled, but not both of its branches were taken back");
    if (!seen->first_undone && branches->undone)
        seen->first_undone = number;
}

static int look(struct seen *seen, struct client *client, const struct sagas *sagas, int number,
                struct err *err)
{
    struct fulfilment_plan plan = fulfilment_plan(number, sagas->count);
    Saga__V1__SagaState state = sagas->seen[number].state;
    if (plan.express || (state != STATE(SUCCEEDED) && state != STATE(COMPENSATED)))
        return 0;
    CLEANUP(message_p) Saga__V1__ListJournalResponse *journal = NULL;
    int rc = sagas_journal(client, sagas, number, &journal, err);
    if (rc)
        return rc;
    struct branches branches;
    branches_read(journal->entries, journal->n_entries, &branches);
    look_at(seen, number, state, &plan, &branches);
    return 0;
}

static void print_first(const char *word, int number)
{
    char id[STORY_ID_SIZE];
    story_id_format(&fulfilment_story, number, id);
    if (number)
        (void)printf("%s %s\n", word, id);
}

int branches_report(struct client *client, const struct sagas *sagas, bool *ret_faultless,
                    struct err *err)
{
    struct seen seen = { 0 };
    int rc = 0;
    for (int number = 1; !rc && number <= sagas->count; number++)
        rc = look(&seen, client, sagas, number, err);
    /* Whatever dies meanwhile, most orders are not touched by it. */
    if (seen.together * 2 <= seen.fulfilled)
        faults_add(&seen.faults, &fulfilment_story, 0,
                   "of %d fulfilled orders only %d had both branches under way at the same time",
                   seen.fulfilled, seen.together);
    if (!seen.first_together || !seen.first_undone)
        faults_add(&seen.faults, &fulfilment_story, 0,
                   "no order shows its branches at the same time, or none both taken back");
    if (!rc) {
        (void)printf("demo: %d of %d fulfilled orders had both branches under way at the same time;"
                     " %d cancelled ones were taken back in reverse order\n",
                     seen.together, seen.fulfilled, seen.cancelled);
        print_first("together", seen.first_together);
        print_first("undone", seen.first_undone);
        faults_print(&seen.faults);
        *ret_faultless = seen.faults.count == 0;
    }
    faults_done(&seen.faults);
    return rc;
}
