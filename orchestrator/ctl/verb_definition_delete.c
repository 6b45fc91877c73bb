/* sagactl definition delete: forgets a revision. */
#include "ctl/definition_server.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__DeleteRevisionRequest request = SAGA__V1__DELETE_REVISION_REQUEST__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__DeleteRevisionResponse *response = NULL;
    CLEANUP(buf_done) struct buf text = { 0 };
    char actor[CTL_ACTOR_SIZE];
    int rc = definition_revision_read(arguments->positional[1], &request.revision);
    if (rc != 0)
        return rc;
    ctl_actor(actor);
    request.actor = actor;
    (void)ctl_take_text(arguments, "reason", &request.reason); /* it need not be given */
    if (ctl->namespace_)
        request.namespace_ = (char *)ctl->namespace_;
    request.name = (char *)arguments->positional[0];
    rc = definition_call(ctl, "/saga.v1.DefinitionService/DeleteRevision", &request.base,
                         &saga__v1__delete_revision_response__descriptor, request.name, &response);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&response->base);
    screen_text(&text, request.name);
    buf_printf(&text, ": revision %d is deleted\n", request.revision);
    return ctl_print_text(&text);
}

static const struct ctl_option options[] = {
    { "reason", "TEXT", false, "why; kept in the audit" },
    { NULL, NULL, false, NULL },
};

const struct ctl_verb verb_definition_delete = {
    "definition delete",
    "NAME REVISION",
    2,
    2,
    options,
    "forget a revision that no saga has and that new sagas do not take\n"
    "\n"
    "The last one goes with the definition.",
    run,
};
