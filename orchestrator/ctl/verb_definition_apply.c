/* sagactl definition apply: registers what a source says. */
#include "ctl/ctl.h"
#include "ctl/definition_changes.h"
#include "ctl/definition_source.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"
#include "wire/json.h"

#include <stdio.h>

/* A server tells no more (definition.proto): whether one that it does not tell breaks is not known.
 */
enum { CHANGES_TOLD_MAX = 1000 };

static const struct ctl_option options[] = {
    { "validate-only", NULL, false, "check, and store nothing" },
    { "keep-current", NULL, false, "new sagas stay on the revision that they take now" },
    { "breaking-ok", NULL, false, "also where a change is BREAKING" },
    { "reason", "TEXT", false, "why; kept in the audit" },
    SOURCE_OPTIONS,
    { NULL, NULL, false, NULL },
};

struct apply {
    struct ctl *ctl;
    struct source source;
    const char *namespace_; /* NULL: as the source says */
    const char *reason;     /* NULL: not said */
    char actor[CTL_ACTOR_SIZE];
    bool validate_only, keep_current, breaking_ok;
    json_t *answers; /* with -o json */
    struct buf text; /* else */
};

static int call(struct apply *apply, Saga__V1__RegisterDefinitionRequest *request,
                Saga__V1__RegisterDefinitionResponse **ret)
{
    const struct buf *set = &apply->source.descriptors;
    struct err err;
    request->descriptors = (ProtobufCBinaryData){ set->size, set->data };
    request->keep_current = apply->keep_current;
    request->actor = apply->actor;
    if (apply->reason)
        request->reason = (char *)apply->reason;
    int rc = ctl_call(apply->ctl, "/saga.v1.DefinitionService/RegisterDefinition", &request->base,
                      &saga__v1__register_definition_response__descriptor, ret);
    if (rc != 0 || ((*ret)->registered && (*ret)->registered->definition))
        return rc;
    (void)err_set(&err, ERR_INTERNAL, "the server's answer says nothing");
    return ctl_print_error(&err);
}

/* A service that goes into another namespace than it says is derived here. */
static int call_derived(struct apply *apply, size_t index,
                        Saga__V1__RegisterDefinitionRequest *request,
                        Saga__V1__RegisterDefinitionResponse **ret)
{
    struct source_saga saga;
    struct err err;
    if (source_check(&apply->source, index, apply->namespace_, true, &saga, &err) != 0) {
        (void)ctl_print_error(&err);
        return CTL_EXIT_FAILED;
    }
    request->definition = saga.definition;
    if (saga.fault_count)
        (void)fputs(buf_cstr(&saga.faults), stderr);
    int rc = saga.fault_count ? CTL_EXIT_FAILED : call(apply, request, ret);
    source_saga_done(&saga);
    return rc;
}

static int register_saga(struct apply *apply, size_t index, bool validate_only,
                         Saga__V1__RegisterDefinitionResponse **ret)
{
    Saga__V1__RegisterDefinitionRequest request = SAGA__V1__REGISTER_DEFINITION_REQUEST__INIT;
    Saga__V1__SagaDefinition *message = apply->source.message;
    request.validate_only = validate_only;
    if (!message && apply->namespace_)
        return call_derived(apply, index, &request, ret);
    if (!message) {
        request.service = (char *)apply->source.services[index]->full_name;
        return call(apply, &request, ret);
    }
    char *own_namespace = message->namespace_;
    if (apply->namespace_)
        message->namespace_ = (char *)apply->namespace_;
    request.definition = message;
    int rc = call(apply, &request, ret);
    message->namespace_ = own_namespace;
    return rc;
}

/* --- what came of it -------------------------------------------------------------------------- */

/* Is it taken in place of another revision? */
static bool is_changed(const Saga__V1__RegisterDefinitionResponse *answer)
{
    return answer->changed_from && answer->changed_from != answer->registered->revision;
}

static void write_answer(struct apply *apply, const Saga__V1__RegisterDefinitionResponse *answer,
                         const struct changes *changes)
{
    const Saga__V1__RegisteredDefinition *registered = answer->registered;
    bool taken = registered->current && (answer->created || is_changed(answer));
    struct buf *out = &apply->text;
    changes_write(changes, out);
    screen_text(out, registered->definition->name);
    if (apply->validate_only)
        buf_printf(out, ": valid; it would be revision %d", registered->revision);
    else
        buf_printf(out, ": %srevision %d%s", answer->created ? "" : "nothing new, it is ",
                   registered->revision,
                   taken                 ? ", new sagas take it"
                   : registered->current ? ""
                                         : ", new sagas do not take it yet");
    if (is_changed(answer)) {
        buf_printf(out, "; from revision %d: ", answer->changed_from);
        changes_write_counts(&changes->counts, out);
    }
    buf_text(out, "\n");
    if (!apply->validate_only && !registered->current)
        buf_printf(out, "  sagactl definition promote %s %d\n", registered->definition->name,
                   registered->revision);
}

static int add_json(struct apply *apply, const Saga__V1__RegisterDefinitionResponse *answer)
{
    json_t *value;
    struct err err;
    if (wire_json_from_message(&answer->base, &value, &err) != 0)
        return ctl_print_error(&err);
    return json_array_append_new(apply->answers, value) == 0 ? 0 : CTL_EXIT_FAILED;
}

static int take_answer(struct apply *apply, const Saga__V1__RegisterDefinitionResponse *answer)
{
    CLEANUP(changes_done) struct changes changes = { .color = apply->ctl->color };
    if (apply->answers)
        return add_json(apply, answer);
    changes_add_told(&changes, answer->changes, answer->n_changes);
    write_answer(apply, answer, &changes);
    return 0;
}

/* Nothing is stored yet: what would break is told, and that is that. */
static int refuse_breaking(const struct apply *apply,
                           const Saga__V1__RegisterDefinitionResponse *answer)
{
    CLEANUP(changes_done) struct changes changes = { .color = apply->ctl->color };
    CLEANUP(buf_done) struct buf text = { 0 };
    changes_add_told(&changes, answer->changes, answer->n_changes);
    size_t breaking = changes.counts.of[DIFF_BREAKING];
    bool cut = answer->n_changes >= CHANGES_TOLD_MAX;
    if (apply->breaking_ok || (!breaking && !cut))
        return 0;
    changes_write(&changes, &text);
    buf_text(&text, "sagactl: ");
    screen_text(&text, answer->registered->definition->name);
    if (breaking)
        buf_printf(&text, ": %zu change%s from revision %d %s BREAKING", breaking,
                   breaking == 1 ? "" : "s", answer->changed_from, breaking == 1 ? "is" : "are");
    else
        buf_printf(&text,
                   ": of the changes from revision %d the server tells %zu: one of the"
                   " others may be BREAKING",
                   answer->changed_from, answer->n_changes);
    buf_text(&text, ": nothing was stored (--breaking-ok stores it all the same)\n");
    (void)fputs(buf_cstr(&text), stderr);
    return CTL_EXIT_FAILED;
}

/* Every saga of the source; in the first round nothing is stored. */
static int round_of(struct apply *apply, bool validate_only)
{
    int code = 0;
    for (size_t i = 0; i < apply->source.count; i++) {
        CLEANUP(ctl_message_free_p) Saga__V1__RegisterDefinitionResponse *answer = NULL;
        int rc = register_saga(apply, i, validate_only, &answer);
        if (rc == 0 && validate_only)
            rc = refuse_breaking(apply, answer);
        if (rc == 0 && validate_only == apply->validate_only)
            rc = take_answer(apply, answer);
        code = rc != 0 ? rc : code;
        if (rc != 0 && !validate_only)
            break;
    }
    return code;
}

static int print(struct apply *apply)
{
    if (!apply->answers)
        return ctl_print_text(&apply->text);
    return json_array_size(apply->answers) == 1
               ? ctl_print_json(json_incref(json_array_get(apply->answers, 0)))
               : ctl_print_json(json_pack("{s:O}", "answers", apply->answers));
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    const struct source_options source = source_options_of(ctl->namespace_, arguments);
    struct apply apply = { .ctl = ctl, .namespace_ = ctl->namespace_ };
    struct err err;
    if (source_read(arguments->positional[0], &source, &apply.source, &err) != 0) {
        (void)ctl_print_error(&err);
        return CTL_EXIT_FAILED; /* the file is wrong, not the usage */
    }
    ctl_actor(apply.actor);
    apply.reason = ctl_option(arguments, "reason");
    apply.validate_only = ctl_option(arguments, "validate-only") != NULL;
    apply.keep_current = ctl_option(arguments, "keep-current") != NULL;
    apply.breaking_ok = ctl_option(arguments, "breaking-ok") != NULL;
    apply.answers = ctl->json ? json_array() : NULL;
    int rc = round_of(&apply, true);
    if (rc == 0 && !apply.validate_only)
        rc = round_of(&apply, false);
    if (apply.text.size || (apply.answers && json_array_size(apply.answers))) {
        int printed = print(&apply); /* also what was stored before something failed */
        rc = rc != 0 ? rc : printed;
    }
    json_decref(apply.answers);
    buf_done(&apply.text);
    source_done(&apply.source);
    return rc;
}

const struct ctl_verb verb_definition_apply = {
    "definition apply",
    "SOURCE",
    1,
    1,
    options,
    "register a definition; - reads JSON from stdin\n"
    "\n"
    "SOURCE is a .proto file, a descriptor set, JSON or text format: see definition check. Every\n"
    "saga in it is registered, or none where one is refused. The same content again changes\n"
    "nothing; other content under the same name is the next revision, which new sagas take, and\n"
    "what is different is told. A change that is BREAKING is refused without --breaking-ok.\n"
    "--namespace wins over the source.",
    run,
};
