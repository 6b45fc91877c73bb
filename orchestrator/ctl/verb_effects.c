/* sagactl effects: what may have happened, and how often. */
#include "core/limits.h"
#include "ctl/ctl.h"
#include "ctl/filter_text.h"
#include "ctl/names.h"
#include "ctl/verbs.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_LIMIT = 100, LIMIT_MAX = 1000000 };

static const struct ctl_option options[] = {
    { "step", "NAME", false, "only this step" },
    { "definition", "NAME", false, "only sagas of this definition" },
    { "since", "TIME", false, "only what was dispatched then or later: " CTL_MOMENT_HELP },
    { "until", "TIME", false, "only what was dispatched first before then" },
    { "limit", "N", false, "at most so many (default 100)" },
    { "all", NULL, false, "all of them" },
    { NULL, NULL, false, NULL },
};

struct listing {
    Saga__V1__ListEffectsRequest request;
    struct buf filter;
    int64_t limit, shown;
    struct table table; /* text */
    json_t *effects;    /* JSON */
    bool more;
};

static int read_filter(const struct ctl *ctl, const struct ctl_arguments *arguments,
                       struct listing *listing, struct err *err)
{
    const char *step = ctl_option(arguments, "step");
    if (arguments->count)
        filter_text_add(&listing->filter, arguments->positional[0]);
    if (step)
        filter_text_equal(&listing->filter, "step", step);
    int rc = filter_text_time(&listing->filter, arguments, "since", "last_time >=", err);
    if (rc == 0)
        rc = filter_text_time(&listing->filter, arguments, "until", "first_time <", err);
    if (rc == 0 && listing->filter.failed)
        rc = err_set(err, ERR_NOMEM, "out of memory");
    if (rc == 0)
        rc = ctl_option_number(arguments, "limit", 1, LIMIT_MAX, DEFAULT_LIMIT, &listing->limit,
                               err);
    if (rc != 0)
        return rc;
    if (ctl_option(arguments, "all")) {
        if (ctl_option(arguments, "limit"))
            return err_set(err, ERR_INVALID, "only one of --all and --limit");
        listing->limit = INT64_MAX;
    }
    (void)ctl_take_text(arguments, "definition", &listing->request.definition); /* or every one */
    if (ctl->namespace_)
        listing->request.namespace_ = (char *)ctl->namespace_;
    if (listing->filter.size)
        listing->request.filter = (char *)listing->filter.data;
    return 0;
}

static void add_row(struct table *table, const Saga__V1__StepEffect *effect, int64_t now_ms)
{
    CLEANUP(buf_done) struct buf key = { 0 };
    CLEANUP(buf_done) struct buf first = { 0 };
    CLEANUP(buf_done) struct buf last = { 0 };
    buf_text(&key, effect->saga_id);
    if (effect->run > 1)
        buf_printf(&key, " (run %d)", effect->run);
    screen_time(&first, effect->first_time, now_ms);
    screen_time(&last, effect->last_time, now_ms);
    table_cell(table, effect->definition, STYLE_PLAIN);
    table_cell(table, buf_cstr(&key), STYLE_BOLD);
    table_cell(table, name_saga_state(effect->state), style_saga_state(effect->state));
    table_cell(table, effect->step, STYLE_PLAIN);
    table_cell(table, name_operation(effect->operation), STYLE_PLAIN);
    table_cellf(table, "%d", effect->dispatched);
    table_cellf(table, "%d", effect->sure);
    table_cellf(table, "%d", effect->possible);
    table_cell(table, buf_cstr(&first), STYLE_PLAIN);
    table_cell(table, buf_cstr(&last), STYLE_PLAIN);
}

static int add_page(struct ctl *ctl, struct listing *listing,
                    const Saga__V1__ListEffectsResponse *page)
{
    struct err err;
    if (ctl->json && ctl_add_page(listing->effects, &page->base, "effects", &err) != 0)
        return ctl_print_error(&err);
    int64_t now_ms = ctl_now_ms();
    for (size_t i = 0; !ctl->json && i < page->n_effects; i++)
        add_row(&listing->table, page->effects[i], now_ms);
    listing->shown += (int64_t)page->n_effects;
    return 0;
}

static int read_pages(struct ctl *ctl, struct listing *listing)
{
    char token[512] = "";
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ListEffectsResponse *page = NULL;
        int64_t left = listing->limit - listing->shown;
        listing->request.page_size = left < CTL_PAGE_SIZE ? (int32_t)left : CTL_PAGE_SIZE;
        listing->request.page_token = token;
        int rc = ctl_call(ctl, "/saga.v1.SagaService/ListEffects", &listing->request.base,
                          &saga__v1__list_effects_response__descriptor, &page);
        if (rc == 0)
            rc = add_page(ctl, listing, page);
        if (rc != 0)
            return rc;
        if (strlen(page->next_page_token) >= sizeof token) {
            (void)fputs("sagactl: the server's page token is too long\n", stderr);
            return CTL_EXIT_FAILED;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
    } while (*token && listing->shown < listing->limit);
    listing->more = *token != '\0';
    return 0;
}

static int print_listing(const struct ctl *ctl, struct listing *listing)
{
    if (ctl->json)
        return ctl_print_json(
            json_pack("{s:O, s:b}", "effects", listing->effects, "more", (int)listing->more));
    CLEANUP(buf_done) struct buf text = { 0 };
    if (listing->shown)
        table_write(&listing->table, "", ctl->color, &text);
    else
        (void)fputs("sagactl: no effect matches\n", stderr);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    static const char *const headers[] = { "DEFINITION", "KEY",  "STATE",    "STEP",  "OPERATION",
                                           "DISPATCHED", "SURE", "POSSIBLE", "FIRST", "LAST" };
    struct listing listing = { .request = SAGA__V1__LIST_EFFECTS_REQUEST__INIT };
    struct err err;
    listing.table = (struct table){ .headers = headers, .columns = ARRAY_LEN(headers) };
    listing.effects = json_array();
    int rc = read_filter(ctl, arguments, &listing, &err);
    rc = rc == 0 ? read_pages(ctl, &listing) : ctl_print_error(&err);
    if (rc == 0)
        rc = print_listing(ctl, &listing);
    if (rc == 0 && listing.more && !ctl->json)
        (void)fputs("sagactl: there are more: --all, or a larger --limit\n", stderr);
    json_decref(listing.effects);
    table_done(&listing.table);
    buf_done(&listing.filter);
    return rc;
}

const struct ctl_verb verb_effects = {
    "effects",
    "[FILTER]",
    0,
    1,
    options,
    "how often steps may have taken effect\n"
    "\n"
    "What may have been done twice since 10 in the evening:\n"
    "  sagactl effects --step notify_risk --since 22:00 'possible > 1'\n"
    "\n"
    "DISPATCHED counts leases that a handler may have begun, SURE effects that are known to be "
    "there,\n"
    "POSSIBLE those that there may be. Another side that knows its idempotency keys makes one of "
    "all\n"
    "that came with one key.\n"
    "\n"
    "FILTER is as that of sagactl list, and knows of effects, too: step, operation (ACTION,\n"
    "COMPENSATION): =; dispatched, sure, possible, first_time, last_time: = < <= > >=",
    run,
};
