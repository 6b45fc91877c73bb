/* sagactl get: one saga in full. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = { CTL_RUN_OPTION, { NULL, NULL, false, NULL } };

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc != 0)
        return rc;
    request.saga = &named.ref;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    rc = ctl_call(ctl, "/saga.v1.SagaService/GetSaga", &request.base, &saga__v1__saga__descriptor,
                  &saga);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&saga->base);
    const struct where_view view = ctl_where_view(ctl);
    CLEANUP(buf_done) struct buf text = { 0 };
    where_write(saga, &view, &text);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_get = {
    "get",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "one saga; -o json tells everything that is known of it\n"
    "\n"
    "KEY alone does when only one definition knows it; a saga's uid does as well.",
    run,
};
