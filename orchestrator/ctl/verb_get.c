/* sagactl get: one saga in full. */
#include "ctl/ctl.h"
#include "ctl/ctl_payload.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = {
    CTL_RUN_OPTION,
    CTL_FULL_OPTION,
    { NULL, NULL, false, NULL },
};

static int print(const struct ctl *ctl, const Saga__V1__Saga *saga,
                 const struct revision_types *types, bool full)
{
    if (ctl->json) {
        json_t *value;
        struct err err;
        return ctl_saga_json(saga, types, &value, &err) == 0 ? ctl_print_json(value)
                                                             : ctl_print_error(&err);
    }
    struct where_view view = ctl_where_view(ctl);
    CLEANUP(buf_done) struct buf text = { 0 };
    view.types = types;
    view.payload_max = full ? 0 : CTL_PAYLOAD_SHOWN;
    where_write(saga, &view, &text);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc == 0)
        rc = ctl_saga_get(ctl, &named.ref, SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL, &saga);
    if (rc != 0)
        return rc;
    CLEANUP(revision_types_free_p) struct revision_types *types = ctl_types_of_saga(ctl, saga);
    return print(ctl, saga, types, ctl_option(arguments, "full") != NULL);
}

const struct ctl_verb verb_get = {
    "get",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "one saga; -o json tells everything that is known of it\n"
    "\n"
    "KEY alone does when only one definition knows it; a saga's uid does as well. Input and "
    "outputs\n"
    "are shown as JSON where the definition says what they are; -o json has them as base64, too.",
    run,
};
