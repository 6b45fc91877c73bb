/* sagactl parked: what waits for a person, in groups. */
#include "ctl/ctl.h"
#include "ctl/people_text.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <stdio.h>

static const struct ctl_option options[] = {
    { "definition", "NAME", false, "only sagas of this definition" },
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__ListParkedRequest request = SAGA__V1__LIST_PARKED_REQUEST__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__ListParkedResponse *parked = NULL;
    (void)ctl_take_text(arguments, "definition", &request.definition); /* or every one */
    if (ctl->namespace_)
        request.namespace_ = (char *)ctl->namespace_;
    int rc = ctl_call(ctl, "/saga.v1.OperatorService/ListParked", &request.base,
                      &saga__v1__list_parked_response__descriptor, &parked);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&parked->base);
    const struct where_view view = ctl_where_view(ctl);
    CLEANUP(buf_done) struct buf text = { 0 };
    parked_write(parked, &view, &text);
    if (!parked->n_groups)
        (void)fputs("sagactl: nothing is parked\n", stderr);
    rc = ctl_print_text(&text);
    if (rc == 0 && parked->more)
        (void)fprintf(stderr,
                      "sagactl: %" PRId64 " sagas are parked, in more groups than these, which wait"
                      " longest: --definition shows those of one\n",
                      parked->parked);
    return rc;
}

const struct ctl_verb verb_parked = {
    "parked",
    "",
    0,
    0,
    options,
    "what waits for a person: parked sagas that wait for the same, longest first\n"
    "\n"
    "Grouped by definition, step, reason and error code, each with the saga that waits longest "
    "and\n"
    "the command that settles it. --namespace - shows every namespace.",
    run,
};
