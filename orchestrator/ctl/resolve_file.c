#include "ctl/resolve_file.h"

#include "base/utf8.h"
#include "core/limits.h"
#include "ctl/ctl_payload.h"
#include "ctl/verdict_file.h"

#include <inttypes.h>
#include <saga/v1/operator.pb-c.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    BAD_TOLD_MAX = 20,
    PROGRESS_EVERY_MS = 2000,
    TRIES_MAX = 10, /* while the server is away */
    CODE_UNAVAILABLE = 14,
    CODE_DEADLINE = 4,
};

/* What became of a row. */
enum result {
    RESULT_SETTLED,
    RESULT_BEFORE,      /* by this very line, in an earlier run */
    RESULT_SAME,        /* it is recorded so already */
    RESULT_CONTRADICTS, /* it is recorded otherwise: for a person */
    RESULT_OPEN,        /* the other side does not know either */
    RESULT_REFUSED,
    RESULT_BAD,
    RESULT_COUNT
};
static const char *const result_names[RESULT_COUNT] = {
    [RESULT_SETTLED] = "settled",  [RESULT_BEFORE] = "settled_before",
    [RESULT_SAME] = "recorded_so", [RESULT_CONTRADICTS] = "contradict",
    [RESULT_OPEN] = "left_open",   [RESULT_REFUSED] = "refused",
    [RESULT_BAD] = "bad",
};
static const char *const result_words[RESULT_COUNT] = {
    [RESULT_SETTLED] = "settled",
    [RESULT_BEFORE] = "settled by this line before",
    [RESULT_SAME] = "recorded so already",
    [RESULT_CONTRADICTS] = "contradict what is recorded",
    [RESULT_OPEN] = "left open: UNKNOWN to the other side, too",
    [RESULT_REFUSED] = "refused",
    [RESULT_BAD] = "bad, passed over",
};

struct resolving {
    struct ctl *ctl;
    const struct resolve_file_options *options;
    struct verdict_file *file;
    int64_t rows, done, counts[RESULT_COUNT];
    int64_t told_ms;
    char actor[CTL_ACTOR_SIZE];
};

/* --- the file as a whole ---------------------------------------------------------------------- */

static void tell_line(const struct resolving *resolving, int64_t line, const char *what)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    screen_text(&text, what);
    (void)fprintf(stderr, "%s:%" PRId64 ": %s\n", resolving->options->path, line, buf_cstr(&text));
}

/* Every row is looked at before the first is settled. 0, or the exit code. */
static int check_rows(struct resolving *resolving)
{
    struct verdict verdict;
    struct err err;
    int64_t bad = 0;
    for (bool more = true; more;) {
        int rc = verdict_file_next(resolving->file, &verdict, &more, &err);
        if (rc && err.code != ERR_INVALID)
            return ctl_print_error(&err);
        resolving->rows += more || rc;
        if (rc && bad++ < BAD_TOLD_MAX)
            tell_line(resolving, verdict.line, err.msg);
        more = more || rc;
    }
    if (bad > BAD_TOLD_MAX)
        (void)fprintf(stderr, "sagactl: and %" PRId64 " more bad rows\n", bad - BAD_TOLD_MAX);
    if (!bad || resolving->options->skip_bad)
        return 0;
    (void)fprintf(stderr,
                  "sagactl: %" PRId64 " of %" PRId64 " rows are bad: nothing was done (--skip-bad "
                  "goes on without them)\n",
                  bad, resolving->rows);
    return CTL_EXIT_FAILED;
}

static void tell_progress(struct resolving *resolving)
{
    int64_t now_ms = ctl_now_ms();
    if (!resolving->told_ms)
        resolving->told_ms = now_ms;
    if (now_ms - resolving->told_ms < PROGRESS_EVERY_MS)
        return;
    resolving->told_ms = now_ms;
    (void)fprintf(stderr, "sagactl: %" PRId64 " of %" PRId64 " rows\n", resolving->done,
                  resolving->rows);
}

/* --- what is recorded ------------------------------------------------------------------------- */

#define KIND(name)    SAGA__V1__JOURNAL_ENTRY__KIND__KIND_##name
#define OUTCOME(name) SAGA__V1__OUTCOME__OUTCOME_##name

/* By the journal of one saga. */
struct recorded {
    bool by_this_line;
    bool known, happened;
};

static void ref_make(const struct ctl *ctl, const struct verdict *verdict, Saga__V1__SagaRef *ret)
{
    saga__v1__saga_ref__init(ret);
    if (*verdict->uid) {
        ret->uid = (char *)verdict->uid;
        return;
    }
    if (ctl->namespace_)
        ret->namespace_ = (char *)ctl->namespace_;
    ret->definition = (char *)verdict->definition;
    ret->saga_id = (char *)verdict->saga_id;
    ret->run = verdict->run;
}

/* How the line is named in the journal: the same file has the same name for it. */
static void mark_make(const struct resolving *resolving, const struct verdict *verdict,
                      char ret[LIMIT_REASON_BYTES + 1])
{
    (void)snprintf(ret, LIMIT_REASON_BYTES + 1, "%.255s:%" PRId64 " sha256:%s",
                   verdict_file_name(resolving->file), verdict->line,
                   verdict_file_digest(resolving->file));
}

static void note_entry(const Saga__V1__JournalEntry *entry, const struct verdict *verdict,
                       const char *mark, struct recorded *recorded)
{
    if (entry->kind == KIND(RESOLVE) && entry->error &&
        strncmp(entry->error->message, mark, strlen(mark)) == 0)
        recorded->by_this_line = true;
    bool compensation = verdict->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION;
    bool is_it = strcmp(entry->step, verdict->step) == 0 &&
                 (entry->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION) ==
                     compensation &&
                 entry->operation != SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE;
    bool tells = entry->kind == KIND(LEASE) || entry->kind == KIND(RESOLVE) ||
                 entry->kind == KIND(LATE_REPORT);
    if (!is_it || !tells)
        return;
    recorded->happened = entry->outcome == OUTCOME(DONE) || entry->outcome == OUTCOME(ALREADY_DONE);
    recorded->known = recorded->happened || entry->outcome == OUTCOME(NOT_DONE) ||
                      entry->outcome == OUTCOME(REJECTED) || entry->outcome == OUTCOME(RETRY);
}

/* 0, or an error that was not told. */
static int look_up(const struct resolving *resolving, const struct verdict *verdict,
                   struct recorded *ret, struct client_failure *failure, struct err *err)
{
    char token[512] = "", mark[LIMIT_REASON_BYTES + 1];
    Saga__V1__SagaRef ref;
    Saga__V1__ListJournalRequest request = SAGA__V1__LIST_JOURNAL_REQUEST__INIT;
    ref_make(resolving->ctl, verdict, &ref);
    mark_make(resolving, verdict, mark);
    *ret = (struct recorded){ false, false, false };
    request.saga = &ref;
    request.page_size = CTL_PAGE_SIZE;
    request.page_token = token;
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ListJournalResponse *page = NULL;
        if (ctl_call_quietly(resolving->ctl, "/saga.v1.SagaService/ListJournal", &request.base,
                             &saga__v1__list_journal_response__descriptor,
                             resolving->ctl->timeout_ms, &page, failure, err) != 0)
            return (int)err->code;
        for (size_t i = 0; i < page->n_entries; i++)
            note_entry(page->entries[i], verdict, mark, ret);
        if (strlen(page->next_page_token) >= sizeof token)
            return err_set(err, ERR_INTERNAL, "the server's page token is too long");
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
    } while (*token);
    return 0;
}

/* --- one row ---------------------------------------------------------------------------------- */

static bool is_away(const struct client_failure *failure)
{
    return failure->code == CODE_UNAVAILABLE || failure->code == CODE_DEADLINE ||
           failure->code == -1;
}

static bool has_reason(const struct err *err, const char *reason)
{
    return strcmp(err->reason, reason) == 0;
}

/* What the action would have answered, as bytes. Prints what is wrong. */
static int make_output(struct resolving *resolving, const struct verdict *verdict,
                       Saga__V1__SagaRef *ref, struct bytes *output)
{
    const struct ctl_payload given = { .text = verdict->result };
    struct err err;
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    CLEANUP(revision_types_free_p) struct revision_types *types = NULL;
    if (ctl_payload_read(&given, output, &err) != 0)
        return ctl_print_error(&err);
    int rc = ctl_saga_get(resolving->ctl, ref, SAGA__V1__SAGA_VIEW__SAGA_VIEW_BASIC, &saga);
    if (rc == 0)
        rc = ctl_types_get(resolving->ctl, saga->namespace_, saga->definition, saga->revision,
                           &types);
    return rc != 0 ? rc
                   : ctl_payload_make(types,
                                      revision_types_step(types, verdict->step, verdict->operation),
                                      "the result", &given, output);
}

/* The call; 0, or what the server said. */
static int resolve(struct resolving *resolving, const struct verdict *verdict,
                   const struct bytes *output, struct client_failure *failure, struct err *err)
{
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    char mark[LIMIT_REASON_BYTES + 1], evidence[LIMIT_REASON_BYTES + 1];
    Saga__V1__SagaRef ref;
    Saga__V1__ResolveStepRequest request = SAGA__V1__RESOLVE_STEP_REQUEST__INIT;
    ref_make(resolving->ctl, verdict, &ref);
    mark_make(resolving, verdict, mark);
    int size = snprintf(evidence, sizeof evidence, "%s%s%s", mark, *verdict->evidence ? " " : "",
                        verdict->evidence);
    if (size >= (int)sizeof evidence) /* what was cut is in the file, which the mark names */
        evidence[utf8_cut(evidence, strlen(evidence), LIMIT_REASON_BYTES)] = '\0';
    request.saga = &ref;
    request.step = (char *)verdict->step;
    request.operation = verdict->operation;
    request.result = verdict->kind == VERDICT_DID_HAPPEN
                         ? SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_HAPPEN
                         : SAGA__V1__RESOLVE_STEP_REQUEST__RESULT__RESULT_DID_NOT_HAPPEN;
    request.output = (ProtobufCBinaryData){ .len = output->size, .data = output->data };
    request.evidence = evidence;
    request.actor = resolving->actor;
    request.fence = verdict->fence;
    return ctl_call_quietly(resolving->ctl, "/saga.v1.OperatorService/ResolveStep", &request.base,
                            &saga__v1__saga__descriptor, resolving->ctl->timeout_ms, &saga, failure,
                            err);
}

static enum result compare(const struct recorded *recorded, const struct verdict *verdict)
{
    if (recorded->by_this_line)
        return RESULT_BEFORE;
    bool happened = verdict->kind == VERDICT_DID_HAPPEN;
    return recorded->known && recorded->happened == happened ? RESULT_SAME : RESULT_CONTRADICTS;
}

static void tell_refusal(const struct resolving *resolving, const struct verdict *verdict,
                         const struct err *err)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_printf(&text, "%s: %s%s%s", *verdict->saga_id ? verdict->saga_id : verdict->uid,
               err->reason, *err->reason ? ": " : "", err->msg);
    tell_line(resolving, verdict->line, buf_cstr(&text));
}

/* The server does not settle it: what is recorded tells whether this very line did before, or says
 * the same. 0, or why it could not be looked up. */
static int explain(const struct resolving *resolving, const struct verdict *verdict,
                   const struct err *refusal, enum result *ret, struct client_failure *failure,
                   struct err *err)
{
    struct recorded recorded;
    int rc = look_up(resolving, verdict, &recorded, failure, err);
    if (rc)
        return rc;
    *ret = compare(&recorded, verdict);
    if (has_reason(refusal, "NEWER_ATTEMPT") && !recorded.by_this_line)
        *ret = RESULT_REFUSED;
    if (*ret == RESULT_REFUSED || *ret == RESULT_CONTRADICTS)
        tell_refusal(resolving, verdict, refusal);
    return 0;
}

/* A fence says which attempts the verdict knew of; without one it must be looked up whether this
 * line was settled before, since what is unknown now may be a later attempt. */
static int settle(struct resolving *resolving, const struct verdict *verdict,
                  const struct bytes *output, bool again, enum result *ret,
                  struct client_failure *failure, struct err *err)
{
    struct recorded recorded = { false, false, false };
    bool dry_run = resolving->options->dry_run;
    int rc = !verdict->fence || again || dry_run
                 ? look_up(resolving, verdict, &recorded, failure, err)
                 : 0;
    *ret = RESULT_SETTLED;
    if (rc)
        return rc;
    if (recorded.by_this_line || (dry_run && recorded.known)) {
        *ret = compare(&recorded, verdict);
        return 0;
    }
    if (dry_run)
        return 0;
    struct err refusal;
    if (resolve(resolving, verdict, output, failure, &refusal) == 0)
        return 0;
    if (!has_reason(&refusal, "NOTHING_TO_RESOLVE") && !has_reason(&refusal, "NEWER_ATTEMPT")) {
        *err = refusal;
        return (int)err->code;
    }
    client_failure_done(failure);
    *failure = (struct client_failure){ .code = 0 };
    return explain(resolving, verdict, &refusal, ret, failure, err);
}

/* False: the server is away. */
static bool try_row(struct resolving *resolving, const struct verdict *verdict,
                    const struct bytes *output, bool again, enum result *ret)
{
    struct client_failure failure = { .code = 0 };
    struct err err;
    int rc = settle(resolving, verdict, output, again, ret, &failure, &err);
    bool away = rc && is_away(&failure);
    if (rc && !away) {
        *ret = RESULT_REFUSED;
        tell_refusal(resolving, verdict, &err);
    }
    client_failure_done(&failure);
    return !away;
}

static void wait_a_second(void)
{
    const struct timespec second = { .tv_sec = 1 };
    (void)nanosleep(&second, NULL); /* shorter when a signal comes: no harm */
}

/* 0, or the exit code: the run cannot go on. */
static int settle_row(struct resolving *resolving, const struct verdict *verdict, enum result *ret)
{
    CLEANUP(ctl_bytes_done) struct bytes output = { NULL, 0 };
    Saga__V1__SagaRef ref;
    *ret = RESULT_OPEN;
    if (verdict->kind == VERDICT_NOT_KNOWN)
        return 0;
    ref_make(resolving->ctl, verdict, &ref);
    if (*verdict->result && make_output(resolving, verdict, &ref, &output) != 0) {
        *ret = RESULT_REFUSED;
        tell_line(resolving, verdict->line, "its result cannot be used");
        return 0;
    }
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        if (tries)
            wait_a_second();
        if (try_row(resolving, verdict, &output, tries > 0, ret))
            return 0;
    }
    (void)fprintf(stderr,
                  "sagactl: the server is away: stopped before line %" PRId64
                  "; the same command again goes on\n",
                  verdict->line);
    return CTL_EXIT_FAILED;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int settle_rows(struct resolving *resolving)
{
    struct verdict verdict;
    struct err err;
    for (;;) {
        bool more;
        enum result result = RESULT_BAD;
        int rc = verdict_file_next(resolving->file, &verdict, &more, &err);
        if (rc && err.code != ERR_INVALID)
            return ctl_print_error(&err);
        if (!rc && !more)
            return 0;
        if (!rc && (rc = settle_row(resolving, &verdict, &result)) != 0)
            return rc;
        resolving->counts[result]++;
        resolving->done++;
        tell_progress(resolving);
    }
}

static int print_json(const struct resolving *resolving, bool whole)
{
    json_t *summary = json_pack("{s:s, s:s, s:I, s:I, s:b, s:b}", "file", resolving->options->path,
                                "sha256", verdict_file_digest(resolving->file), "rows",
                                (json_int_t)resolving->rows, "done", (json_int_t)resolving->done,
                                "dry_run", (int)resolving->options->dry_run, "whole", (int)whole);
    for (int i = 0; i < RESULT_COUNT; i++)
        if (json_object_set_new(summary, result_names[i],
                                json_integer((json_int_t)resolving->counts[i])) != 0) {
            json_decref(summary);
            summary = NULL;
        }
    return ctl_print_json(summary); /* consumed */
}

static int print_summary(const struct resolving *resolving, bool whole)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (resolving->ctl->json)
        return print_json(resolving, whole);
    buf_printf(&text, "%s%" PRId64 " of %" PRId64 " rows of %s (sha256 %s)\n",
               resolving->options->dry_run ? "dry run, nothing was changed: " : "", resolving->done,
               resolving->rows, resolving->options->path, verdict_file_digest(resolving->file));
    for (int i = 0; i < RESULT_COUNT; i++)
        if (resolving->counts[i])
            buf_printf(&text, "  %8" PRId64 " %s%s\n", resolving->counts[i],
                       resolving->options->dry_run && i == RESULT_SETTLED ? "would be " : "",
                       result_words[i]);
    return ctl_print_text(&text);
}

int resolve_file_run(struct ctl *ctl, const struct resolve_file_options *options)
{
    struct resolving resolving = { .ctl = ctl, .options = options };
    struct err err;
    ctl_actor(resolving.actor);
    if (verdict_file_open(options->path, options->definition, options->step, &resolving.file,
                          &err) != 0) {
        (void)ctl_print_error(&err);
        return CTL_EXIT_FAILED; /* the file is wrong, not the usage */
    }
    int rc = check_rows(&resolving);
    if (rc == 0 && verdict_file_rewind(resolving.file, &err) != 0)
        rc = ctl_print_error(&err);
    bool checked = rc == 0;
    if (rc == 0)
        rc = settle_rows(&resolving);
    if (checked) {
        int printed = print_summary(&resolving, rc == 0);
        rc = rc ? rc : printed;
    }
    (void)verdict_file_close(resolving.file); /* always NULL */
    bool failed = resolving.counts[RESULT_REFUSED] || resolving.counts[RESULT_CONTRADICTS] ||
                  resolving.counts[RESULT_BAD];
    return rc ? rc : failed ? CTL_EXIT_FAILED : 0;
}
