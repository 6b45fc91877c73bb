/* sagactl definition apply: registers what a file says. */
#include "ctl/ctl.h"
#include "ctl/definition_file.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = {
    { "validate-only", NULL, false, "check, and store nothing" },
    { "proto-path", "DIR", false, "where saga/v1/definition.proto is, for the text format" },
    { NULL, NULL, false, NULL },
};

static void write_registered(const Saga__V1__RegisterDefinitionResponse *response,
                             bool validate_only, struct buf *out)
{
    const Saga__V1__RegisteredDefinition *registered = response->registered;
    screen_text(out, registered->definition ? registered->definition->name : "");
    if (validate_only)
        buf_printf(out, ": valid; it would be revision %d\n", registered->revision);
    else if (response->created)
        buf_printf(out, ": revision %d, new sagas take it\n", registered->revision);
    else
        buf_printf(out, ": nothing new, it is revision %d\n", registered->revision);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    struct err err;
    CLEANUP(ctl_message_free_p) Saga__V1__SagaDefinition *definition = NULL;
    if (definition_file_read(arguments->positional[0], ctl_option(arguments, "proto-path"),
                             &definition, &err) != 0) {
        (void)ctl_print_error(&err);
        return CTL_EXIT_FAILED; /* the file is wrong, not the usage */
    }
    Saga__V1__RegisterDefinitionRequest request = SAGA__V1__REGISTER_DEFINITION_REQUEST__INIT;
    char *own_namespace = definition->namespace_;
    if (ctl->namespace_)
        definition->namespace_ = (char *)ctl->namespace_;
    request.definition = definition;
    request.validate_only = ctl_option(arguments, "validate-only") != NULL;
    CLEANUP(ctl_message_free_p) Saga__V1__RegisterDefinitionResponse *response = NULL;
    int rc = ctl_call(ctl, "/saga.v1.DefinitionService/RegisterDefinition", &request.base,
                      &saga__v1__register_definition_response__descriptor, &response);
    definition->namespace_ = own_namespace;
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&response->base);
    if (!response->registered) {
        (void)err_set(&err, ERR_INTERNAL, "the server's answer says nothing");
        return ctl_print_error(&err);
    }
    CLEANUP(buf_done) struct buf text = { 0 };
    write_registered(response, request.validate_only, &text);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_definition_apply = {
    "definition apply",
    "FILE",
    1,
    1,
    options,
    "register a definition from a file; - reads JSON from stdin\n"
    "\n"
    "JSON (proto3 JSON of saga.v1.SagaDefinition), or its text format in a file named .textproto "
    "or\n"
    ".txtpb, for which protoc must be installed. The same content again changes nothing; other\n"
    "content under the same name is the next revision, which new sagas take. --namespace wins "
    "over\n"
    "the file.",
    run,
};
