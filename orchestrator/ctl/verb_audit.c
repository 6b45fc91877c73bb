/* sagactl audit: who did what, when and why. */
#include "base/uuid.h"
#include "ctl/ctl.h"
#include "ctl/names.h"
#include "ctl/verbs.h"
#include "ctl/zone.h"
#include "wire/times.h"

#include <inttypes.h>
#include <saga/v1/operator.pb-c.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_LIMIT = 50, LIMIT_MAX = 1000000 };

static const struct ctl_option options[] = {
    { "since", "TIME", false,
      "not before: -2h, 22:00, \"2026-03-02 14:05\", 2026-03-02T14:05:00Z" },
    { "until", "TIME", false, "before" },
    { "who", "NAME", false, "only what this person did" },
    { "verb", "VERB", true, "only this, e.g. resolve, set-options, kafka-stop" },
    { "definition", "NAME", false, "only about this definition and its sagas" },
    { "saga", "KEY", false,
      "only about this saga (with --definition), or its uid; also one that was purged" },
    { "run", "N", false, "which run of the key (default: the latest)" },
    { "limit", "N", false, "at most so many (default 50)" },
    { "all", NULL, false, "all of them" },
    { NULL, NULL, false, NULL },
};

struct audit {
    Saga__V1__ListAuditRequest request;
    Saga__V1__SagaRef saga;
    Google__Protobuf__Timestamp since, until;
    char *verbs[CTL_REPEATS_MAX];
    int64_t limit, shown, now_ms;
    struct table table; /* text */
    json_t *entries;    /* JSON */
    bool more;
};

static int read_time(const struct ctl_arguments *arguments, const char *option, int64_t now_ms,
                     Google__Protobuf__Timestamp *time, Google__Protobuf__Timestamp **ret,
                     struct err *err)
{
    const char *text = ctl_option(arguments, option);
    int64_t ms;
    if (!text)
        return 0;
    if (ctl_zone_time(option, text, now_ms, &ms, err) != 0)
        return (int)err->code;
    google__protobuf__timestamp__init(time);
    timestamp_from_ms(ms, time);
    *ret = time;
    return 0;
}

/* A key needs its definition; a uid does not. */
static int read_saga(const struct ctl *ctl, const struct ctl_arguments *arguments,
                     struct audit *audit, struct err *err)
{
    const char *key = ctl_option(arguments, "saga");
    const char *definition = ctl_option(arguments, "definition");
    struct uuid uid;
    int64_t run;
    if (ctl_option_number(arguments, "run", 1, INT32_MAX, 0, &run, err) != 0)
        return (int)err->code;
    if (!key)
        return run ? err_set(err, ERR_INVALID, "--run goes with --saga") : 0;
    saga__v1__saga_ref__init(&audit->saga);
    audit->request.saga = &audit->saga;
    if (!definition && uuid_parse(key, &uid)) {
        audit->saga.uid = (char *)key;
        return 0;
    }
    if (!definition)
        return err_set(err, ERR_INVALID, "--saga KEY needs --definition, or give the saga's uid");
    if (ctl->namespace_)
        audit->saga.namespace_ = (char *)ctl->namespace_;
    audit->saga.definition = (char *)definition;
    audit->saga.saga_id = (char *)key;
    audit->saga.run = (int32_t)run;
    return 0;
}

static int read_filter(const struct ctl *ctl, const struct ctl_arguments *arguments,
                       struct audit *audit, struct err *err)
{
    Saga__V1__ListAuditRequest *request = &audit->request;
    const char *const *verbs;
    (void)ctl_take_text(arguments, "who", &request->actor); /* each may be absent */
    (void)ctl_take_text(arguments, "definition", &request->definition);
    request->n_verbs = ctl_option_all(arguments, "verb", &verbs);
    request->verbs = audit->verbs;
    for (size_t i = 0; i < request->n_verbs; i++)
        audit->verbs[i] = (char *)verbs[i];
    if (ctl->namespace_)
        request->namespace_ = (char *)ctl->namespace_;
    int rc = read_time(arguments, "since", audit->now_ms, &audit->since, &request->since, err);
    if (!rc)
        rc = read_time(arguments, "until", audit->now_ms, &audit->until, &request->until, err);
    if (!rc)
        rc = read_saga(ctl, arguments, audit, err);
    if (!rc)
        rc = ctl_option_number(arguments, "limit", 1, LIMIT_MAX, DEFAULT_LIMIT, &audit->limit, err);
    if (!rc && ctl_option(arguments, "all")) {
        if (ctl_option(arguments, "limit"))
            return err_set(err, ERR_INVALID, "only one of --all and --limit");
        audit->limit = INT64_MAX;
    }
    return rc;
}

static void write_about(const Saga__V1__AuditEntry *entry, struct buf *out)
{
    screen_text(out, entry->definition);
    if (entry->saga) {
        buf_text(out, " ");
        screen_text(out, entry->saga->saga_id);
        if (entry->saga->run > 1)
            buf_printf(out, " (run %d)", entry->saga->run);
    }
    if (*entry->step)
        buf_text(out, " step ");
    screen_text(out, entry->step);
    if (*entry->step && entry->operation != SAGA__V1__OPERATION_KIND__OPERATION_KIND_UNSPECIFIED &&
        entry->operation != SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION)
        buf_printf(out, " (%s)", name_operation(entry->operation));
    if (*entry->subject && out->size)
        buf_text(out, " ");
    screen_text(out, entry->subject);
}

static void add_row(struct audit *audit, const Saga__V1__AuditEntry *entry)
{
    CLEANUP(buf_done) struct buf when = { 0 };
    CLEANUP(buf_done) struct buf about = { 0 };
    struct table *table = &audit->table;
    screen_time(&when, entry->time, audit->now_ms);
    write_about(entry, &about);
    table_cell(table, buf_cstr(&when), STYLE_PLAIN);
    table_cell(table, *entry->actor ? entry->actor : "-", STYLE_PLAIN);
    table_cell(table, entry->verb, STYLE_BOLD);
    table_cell(table, buf_cstr(&about), STYLE_PLAIN);
    table_cell(table, entry->reason, STYLE_PLAIN);
    table_cell(table, entry->detail, STYLE_PLAIN);
    table->failed |= when.failed || about.failed;
}

static int read_pages(struct ctl *ctl, struct audit *audit)
{
    char token[512] = "";
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ListAuditResponse *page = NULL;
        struct err err;
        int64_t left = audit->limit - audit->shown;
        audit->request.page_size = left < CTL_PAGE_SIZE ? (int32_t)left : CTL_PAGE_SIZE;
        audit->request.page_token = token;
        int rc = ctl_call(ctl, "/saga.v1.OperatorService/ListAudit", &audit->request.base,
                          &saga__v1__list_audit_response__descriptor, &page);
        if (rc != 0)
            return rc;
        if (ctl->json && ctl_add_page(audit->entries, &page->base, "entries", &err) != 0)
            return ctl_print_error(&err);
        for (size_t i = 0; !ctl->json && i < page->n_entries; i++)
            add_row(audit, page->entries[i]);
        audit->shown += (int64_t)page->n_entries;
        if (strlen(page->next_page_token) >= sizeof token) {
            (void)fputs("sagactl: the server's page token is too long\n", stderr);
            return CTL_EXIT_FAILED;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
    } while (*token && audit->shown < audit->limit);
    audit->more = *token != '\0';
    return 0;
}

static int print(const struct ctl *ctl, const struct audit *audit)
{
    if (ctl->json)
        return ctl_print_json(
            json_pack("{s:O, s:b}", "entries", audit->entries, "more", (int)audit->more));
    CLEANUP(buf_done) struct buf text = { 0 };
    if (audit->shown)
        table_write(&audit->table, "", ctl->color, &text);
    else
        (void)fputs("sagactl: nobody did any such thing\n", stderr);
    if (audit->more)
        (void)fputs("sagactl: there are more: --all, or a larger --limit\n", stderr);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    static const char *const headers[] = { "WHEN", "WHO (unproven)", "WHAT", "ABOUT",
                                           "WHY",  "DETAIL" };
    struct audit audit = { .request = SAGA__V1__LIST_AUDIT_REQUEST__INIT, .now_ms = ctl_now_ms() };
    struct err err;
    audit.table = (struct table){ .headers = headers, .columns = ARRAY_LEN(headers) };
    if (read_filter(ctl, arguments, &audit, &err) != 0)
        return ctl_print_error(&err);
    audit.entries = json_array();
    int rc = read_pages(ctl, &audit);
    if (rc == 0)
        rc = print(ctl, &audit);
    json_decref(audit.entries);
    table_done(&audit.table);
    return rc;
}

const struct ctl_verb verb_audit = {
    "audit",
    "",
    0,
    0,
    options,
    "who did what, when and why: every call of a person that changed something; newest first\n"
    "\n"
    "Without --namespace it is about every namespace.",
    run,
};
