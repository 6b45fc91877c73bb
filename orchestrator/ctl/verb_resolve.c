/* sagactl resolve: settles with evidence what became of a step. */
#include "ctl/ctl.h"
#include "ctl/ctl_payload.h"
#include "ctl/resolve_file.h"
#include "ctl/verbs.h"

#include <assert.h>
#include <saga/v1/operator.pb-c.h>
#include <string.h>

static const struct ctl_option options[] = {
    { "step", "NAME", false, "which step (required)" },
    { "happened", NULL, false, "it took effect" },
    { "did-not-happen", NULL, false,
      "it had no effect: it is granted again, or needs no compensation" },
    { "compensation", NULL, false, "of its compensation (default: of that if it was granted)" },
    { "action", NULL, false, "of its action" },
    { "fence", "N", false,
      "of the last attempt that was looked into, as where tells: refused if another came after "
      "it" },
    { "evidence", "TEXT", false, "how it was found out; kept in the journal (required)" },
    { "result", "OUTPUT", false,
      "what the action would have answered, as JSON if the definition says its type; - reads "
      "stdin" },
    { "result-file", "FILE", false, "the same from a file" },
    { "file", "FILE", false,
      "verdicts of many sagas, as CSV: instead of all of the above but --step" },
    { "definition", "NAME", false, "with --file: of rows that do not say" },
    { "dry-run", NULL, false, "with --file: say what would become of it, and change nothing" },
    { "skip-bad", NULL, false, "with --file: go on without rows that cannot be used" },
    CTL_RUN_OPTION,
    { NULL, NULL, false, NULL },
};

static int read_options(const struct ctl_arguments *arguments,
                        Saga__V1__ResolveStepRequest *request, struct err *err)
{
    const char *step = ctl_option(arguments, "step"), *evidence = ctl_option(arguments, "evidence");
    bool happened = ctl_option(arguments, "happened") != NULL;
    bool action = ctl_option(arguments, "action") != NULL;
    bool compensation = ctl_option(arguments, "compensation") != NULL;
    if (!step)
        return err_set(err, ERR_INVALID, "resolve needs --step: which one was looked into");
    if (!evidence)
        return err_set(err, ERR_INVALID, "resolve needs --evidence: how it was found out");
    if (happened == (ctl_option(arguments, "did-not-happen") != NULL))
        return err_set(err, ERR_INVALID, "resolve needs --happened or --did-not-happen");
    if (action && compensation)
        return err_set(err, ERR_INVALID, "--action or --compensation, not both");
    if (ctl_option_number(arguments, "fence", 0, INT64_MAX, 0, &request->fence, err))
        return (int)err->code;
    request->step = (char *)step;
    request->evidence = (char *)evidence;
    request->result = happened ? SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN
                               : SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_NOT_HAPPEN;
    if (action)
        request->operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    if (compensation)
        request->operation = SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION;
    return 0;
}

/* What the action would have answered; prints what is wrong. */
static int make_output(struct ctl *ctl, const struct ctl_arguments *arguments,
                       const Saga__V1__ResolveStepRequest *request, struct bytes *output)
{
    const struct ctl_payload given = { .text = ctl_option(arguments, "result"),
                                       .file = ctl_option(arguments, "result-file") };
    struct err err;
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    CLEANUP(revision_types_free_p) struct revision_types *types = NULL;
    if (ctl_payload_read(&given, output, &err) != 0)
        return ctl_print_error(&err);
    if (!output->size)
        return 0;
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc == 0)
        rc = ctl_saga_get(ctl, &named.ref, SAGA__V1__SAGA_VIEW__SAGA_VIEW_BASIC, &saga);
    if (rc != 0)
        return rc;
    assert(saga);
    rc = ctl_types_get(ctl, saga->namespace_, saga->definition, saga->revision, &types);
    return rc != 0 ? rc
                   : ctl_payload_make(types,
                                      revision_types_step(types, request->step, request->operation),
                                      "the result", &given, output);
}

/* What goes with the other way to say it alone. */
static const char *misplaced(const struct ctl_arguments *arguments, const char *const *names)
{
    for (; *names; names++)
        if (ctl_option(arguments, *names))
            return *names;
    return NULL;
}

static int run_file(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    static const char *const of_one[] = { "happened", "did-not-happen", "compensation",
                                          "action",   "fence",          "evidence",
                                          "result",   "result-file",    "run",
                                          NULL };
    const struct resolve_file_options file = {
        .path = ctl_option(arguments, "file"),
        .definition = ctl_option(arguments, "definition"),
        .step = ctl_option(arguments, "step"),
        .dry_run = ctl_option(arguments, "dry-run") != NULL,
        .skip_bad = ctl_option(arguments, "skip-bad") != NULL,
    };
    if (arguments->count || misplaced(arguments, of_one))
        return ctl_print_misuse("--file says of which sagas and what: only --definition, --step, "
                                "--dry-run and --skip-bad go with it");
    return resolve_file_run(ctl, &file);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    static const char *const of_file[] = { "definition", "dry-run", "skip-bad", NULL };
    if (ctl_option(arguments, "file"))
        return run_file(ctl, arguments);
    if (!arguments->count || misplaced(arguments, of_file))
        return ctl_print_misuse(arguments->count ? "that goes with --file alone"
                                                 : "resolve needs the saga's KEY, or --file");
    CLEANUP(ctl_bytes_done) struct bytes output = { NULL, 0 };
    Saga__V1__ResolveStepRequest request = SAGA__V1__RESOLVE_STEP_REQUEST__INIT;
    struct err err;
    if (read_options(arguments, &request, &err))
        return ctl_print_error(&err);
    int rc = make_output(ctl, arguments, &request, &output);
    if (rc != 0)
        return rc;
    request.output = (ProtobufCBinaryData){ .len = output.size, .data = output.data };
    return ctl_tell(ctl, arguments,
                    &(struct ctl_request){ "/saga.v1.OperatorService/ResolveStep", "resolved",
                                           &request.base, &request.saga, &request.actor, NULL });
}

const struct ctl_verb verb_resolve = {
    "resolve",
    "[DEFINITION] KEY | --file FILE",
    0,
    2,
    options,
    "settle what became of a step whose outcome is unknown\n"
    "\n"
    "Look it up at the other side first, by its idempotency key (sagactl key). A saga that is "
    "parked\n"
    "for it goes on: past the step if it happened, with another attempt if it did not. Also for "
    "an\n"
    "effect that is not ours (FOREIGN_EFFECT) and a late report that speaks against the record\n"
    "(LATE_EFFECT), and for what a saga is in doubt of: an unconfirmed step, a compensation that "
    "was\n"
    "skipped. Who says so is $SAGACTL_ACTOR or the user of this machine.\n"
    "\n"
    "--file: the first line names the columns: verdict (DID_HAPPEN, DID_NOT_HAPPEN, UNKNOWN), "
    "saga_id or\n"
    "uid; optional definition, run, step, operation, fence, result, evidence; others are passed "
    "over, so a\n"
    "file that sagactl export wrote does, with a verdict in each line. Give the fence: what came "
    "after that\n"
    "attempt is then not settled by it. The journal keeps file, line and SHA-256. Every row is "
    "looked at\n"
    "before the first is settled; the same command again goes on where it was interrupted.",
    run,
};
