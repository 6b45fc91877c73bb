/* sagactl definition promote, pause, resume: what new sagas do. */
#include "ctl/definition_server.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"

#include <stdio.h>

/* One of the three calls, all answered alike. what: "new sagas take revision"; its number follows.
 */
static int tell(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                const char *name, const char *what)
{
    CLEANUP(ctl_message_free_p) Saga__V1__RegisteredDefinition *registered = NULL;
    CLEANUP(buf_done) struct buf text = { 0 };
    int rc = definition_call(ctl, method, request, &saga__v1__registered_definition__descriptor,
                             name, &registered);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&registered->base);
    screen_text(&text, name);
    buf_printf(&text, ": %s %d%s\n", what, registered->revision,
               registered->pause ? "; paused: none starts, those that run go on" : "");
    return ctl_print_text(&text);
}

static int run_promote(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__PromoteDefinitionRequest request = SAGA__V1__PROMOTE_DEFINITION_REQUEST__INIT;
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
    return tell(ctl, "/saga.v1.DefinitionService/PromoteDefinition", &request.base, request.name,
                "new sagas take revision");
}

static int run_pause(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__PauseDefinitionRequest request = SAGA__V1__PAUSE_DEFINITION_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    ctl_actor(actor);
    if (ctl->namespace_)
        request.namespace_ = (char *)ctl->namespace_;
    request.name = (char *)arguments->positional[0];
    request.actor = actor;
    (void)ctl_take_text(arguments, "reason", &request.reason); /* it need not be given */
    return tell(ctl, "/saga.v1.DefinitionService/PauseDefinition", &request.base, request.name,
                "current revision");
}

static int run_resume(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__ResumeDefinitionRequest request = SAGA__V1__RESUME_DEFINITION_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    ctl_actor(actor);
    request.actor = actor;
    (void)ctl_take_text(arguments, "reason", &request.reason); /* it need not be given */
    if (ctl->namespace_)
        request.namespace_ = (char *)ctl->namespace_;
    request.name = (char *)arguments->positional[0];
    return tell(ctl, "/saga.v1.DefinitionService/ResumeDefinition", &request.base, request.name,
                "new sagas start again, with revision");
}

static const struct ctl_option pause_options[] = {
    { "reason", "TEXT", false, "why, for whoever is refused" },
    { NULL, NULL, false, NULL },
};

static const struct ctl_option options[] = {
    { "reason", "TEXT", false, "why; kept in the audit" },
    { NULL, NULL, false, NULL },
};

const struct ctl_verb verb_definition_promote = {
    "definition promote",
    "NAME REVISION",
    2,
    2,
    options,
    "new sagas take this revision; an older one is the rollback\n"
    "\n"
    "Sagas that run stay on the revision that they started with.",
    run_promote,
};

const struct ctl_verb verb_definition_pause = {
    "definition pause",
    "NAME",
    1,
    1,
    pause_options,
    "refuse new sagas of a definition, until definition resume; those that run go on\n"
    "\n"
    "Whoever starts one is told UNAVAILABLE, DEFINITION_PAUSED, and when to try again.",
    run_pause,
};

const struct ctl_verb verb_definition_resume = {
    "definition resume", "NAME", 1, 1, options, "new sagas of a paused definition start again",
    run_resume,
};
