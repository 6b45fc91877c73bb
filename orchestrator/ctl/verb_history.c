/* sagactl history: the journal of one saga. */
#include "ctl/ctl.h"
#include "ctl/ctl_payload.h"
#include "ctl/names.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct ctl_option options[] = {
    CTL_RUN_OPTION,
    CTL_FULL_OPTION,
    { NULL, NULL, false, NULL },
};

struct history {
    const struct revision_types *types;
    struct revision_journal journal;
    int64_t now_ms;
    size_t payload_max;
    bool cut; /* some payload */
    struct table table;
    json_t *entries;
};

#define KIND(name) SAGA__V1__JOURNAL_ENTRY__KIND__KIND_##name

/* What a decision without a reason and without an outcome of its own means; NULL: its kind says it.
 */
static const char *decision_words(Saga__V1__JournalEntry__Kind kind)
{
    switch (kind) {
    case KIND(PROBE):
        return "not repeated any more: from here the probe decides";
    case KIND(MAYBE):
        return "the probe found nothing in its time: compensated as maybe";
    case KIND(ACCEPT):
        return "went on, the step unconfirmed";
    case KIND(CONTINUE):
        return "went on without the step";
    case KIND(SUSPECT):
        return "each step may have run before";
    case KIND(PENDING):
        return "waits for what becomes of the pivot";
    default:
        return NULL;
    }
}

static void add_words(struct buf *out, const char *words)
{
    buf_printf(out, "%s%s", out->size ? " " : "", words);
}

/* Which entry it is about, and what that one said. */
static void write_about(const Saga__V1__JournalEntry *entry, const char *outcome, struct buf *out)
{
    if (entry->kind == KIND(RESOLVE))
        buf_printf(out, "the probe at #%" PRId64 " said %s", entry->about, outcome);
    else if (entry->kind == KIND(RESUME))
        buf_printf(out, "ended the PARK at #%" PRId64, entry->about);
    else if (entry->kind == KIND(RECEIVE))
        buf_printf(out, "took the signal at #%" PRId64, entry->about);
    else
        buf_printf(out, "%sof entry %" PRId64 ": %s", out->size ? " " : "", entry->about, outcome);
}

/* With the payload behind it, "" if there is none. "DONE", "REFUSED", "of entry 4: DONE", "the
 * probe at #7 said DONE", "open, lease until ...". */
static void write_result(const Saga__V1__JournalEntry *entry, const char *payload, int64_t now_ms,
                         struct buf *out)
{
    const char *outcome = name_outcome(entry->outcome);
    const char *words = decision_words(entry->kind);
    bool lease = entry->kind == KIND(LEASE);
    bool probe = entry->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE;
    if (*entry->reason)
        buf_text(out, entry->reason);
    if (words)
        add_words(out, words);
    if (*entry->signal_id)
        buf_printf(out, " id %s", entry->signal_id);
    if (entry->about) {
        write_about(entry, outcome, out);
    } else if (*outcome) {
        bool answered = lease && probe && entry->outcome != SAGA__V1__OUTCOME__OUTCOME_EXPIRED &&
                        entry->outcome != SAGA__V1__OUTCOME__OUTCOME_STREAM_LOST &&
                        entry->outcome != SAGA__V1__OUTCOME__OUTCOME_RELEASED;
        add_words(out, answered ? "answered " : "");
        buf_text(out, outcome);
    } else if (lease) {
        buf_text(out, "open, lease until ");
        screen_time(out, entry->lease_until_time, now_ms);
    }
    if (*entry->actor && !lease) {
        add_words(out, "by ");
        buf_printf(out, "%s" ACTOR_UNPROVEN, entry->actor);
    }
    const Saga__V1__ErrorInfo *error = entry->error;
    if (error && (*error->code || *error->message)) {
        const char *code = strcmp(error->code, entry->reason) == 0 ? "" : error->code;
        buf_printf(out, " %s%s%s", code, *code && *error->message ? ": " : "", error->message);
    }
    if (*payload)
        add_words(out, payload);
    if (*entry->actor && lease) /* a node, not a person */
        buf_printf(out, ", granted by %s", entry->actor);
}

static void add_row(struct history *history, const Saga__V1__JournalEntry *entry)
{
    CLEANUP(buf_done) struct buf time = { 0 };
    CLEANUP(buf_done) struct buf result = { 0 };
    CLEANUP(buf_done) struct buf took = { 0 };
    CLEANUP(buf_done) struct buf payload = { 0 };
    struct table *table = &history->table;
    struct revision_type type = revision_types_entry(history->types, &history->journal, entry);
    screen_time(&time, entry->lease_time ? entry->lease_time : entry->finish_time, history->now_ms);
    if (entry->lease_time && entry->finish_time)
        buf_printf(&took, "%" PRId64 " ms",
                   screen_time_ms(entry->finish_time) - screen_time_ms(entry->lease_time));
    if (entry->output.len)
        history->cut |= revision_types_write(history->types, type, &entry->output,
                                             history->payload_max, &payload);
    write_result(entry, buf_cstr(&payload), history->now_ms, &result);
    table_cellf(table, "%" PRId64, entry->seq);
    table_cell(table, buf_cstr(&time), STYLE_PLAIN);
    table_cell(table, name_entry_kind(entry->kind), STYLE_PLAIN);
    table_cell(table, entry->step, STYLE_BOLD);
    table_cell(table, name_operation(entry->operation), STYLE_PLAIN);
    if (entry->try_)
        table_cellf(table, "%d", entry->try_);
    else
        table_cell(table, NULL, STYLE_PLAIN);
    table_cell(table, entry->worker, STYLE_PLAIN);
    table_cell(table, buf_cstr(&took), STYLE_PLAIN);
    table_cell(table, buf_cstr(&result), STYLE_PLAIN);
    table->failed |= result.failed || payload.failed;
}

/* A page behind those that are there. */
static int add_entries(struct history *history, const Saga__V1__ListJournalResponse *page,
                       struct err *err)
{
    size_t before = json_array_size(history->entries);
    if (ctl_add_page(history->entries, &page->base, "entries", err) != 0)
        return (int)err->code;
    for (size_t i = 0; i < page->n_entries; i++) {
        const Saga__V1__JournalEntry *entry = page->entries[i];
        struct revision_type type = revision_types_entry(history->types, &history->journal, entry);
        if (revision_types_add_json(history->types, type, &entry->output, "output",
                                    json_array_get(history->entries, before + i), err) != 0)
            return (int)err->code;
    }
    return 0;
}

static int read_pages(struct ctl *ctl, Saga__V1__SagaRef *ref, struct history *history)
{
    char token[512] = "";
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ListJournalResponse *page = NULL;
        Saga__V1__ListJournalRequest request = SAGA__V1__LIST_JOURNAL_REQUEST__INIT;
        struct err err;
        request.saga = ref;
        request.page_size = CTL_PAGE_SIZE;
        request.page_token = token;
        int rc = ctl_call(ctl, "/saga.v1.SagaService/ListJournal", &request.base,
                          &saga__v1__list_journal_response__descriptor, &page);
        if (rc != 0)
            return rc;
        if (ctl->json && add_entries(history, page, &err) != 0)
            return ctl_print_error(&err);
        for (size_t i = 0; !ctl->json && i < page->n_entries; i++)
            add_row(history, page->entries[i]);
        if (strlen(page->next_page_token) >= sizeof token) {
            (void)fputs("sagactl: the server's page token is too long\n", stderr);
            return CTL_EXIT_FAILED;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
    } while (*token);
    return 0;
}

static int print(struct ctl *ctl, const Saga__V1__Saga *saga, const struct history *history)
{
    if (ctl->json)
        return ctl_print_json(json_pack("{s:O}", "entries", history->entries));
    CLEANUP(buf_done) struct buf text = { 0 };
    table_write(&history->table, "", ctl->color, &text);
    if (history->cut) {
        const struct where_view view = ctl_where_view(ctl);
        where_write_command(saga, &view, "history", &text);
        buf_text(&text, " --full   (payloads in full length; so does -o json)\n");
    }
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    static const char *const headers[] = { "SEQ", "TIME",   "KIND", "STEP",  "OPERATION",
                                           "TRY", "WORKER", "TOOK", "RESULT" };
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc == 0)
        rc = ctl_saga_get(ctl, &named.ref, SAGA__V1__SAGA_VIEW__SAGA_VIEW_BASIC, &saga);
    if (rc != 0)
        return rc;
    CLEANUP(revision_types_free_p) struct revision_types *types = ctl_types_of_saga(ctl, saga);
    struct history history = {
        .types = types,
        .now_ms = ctl_now_ms(),
        .payload_max = ctl_option(arguments, "full") ? 0 : CTL_PAYLOAD_SHOWN,
        .table = { .headers = headers, .columns = ARRAY_LEN(headers) },
        .entries = json_array(),
    };
    rc = read_pages(ctl, &named.ref, &history);
    if (rc == 0)
        rc = print(ctl, saga, &history);
    json_decref(history.entries);
    table_done(&history.table);
    return rc;
}

const struct ctl_verb verb_history = {
    "history",
    "[DEFINITION] KEY",
    1,
    2,
    options,
    "the journal of one saga: every lease and every decision, oldest first\n"
    "\n"
    "What was answered is shown as JSON where the definition says what it is; -o json has it as\n"
    "base64, too.",
    run,
};
