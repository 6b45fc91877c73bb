/* sagactl list: sagas by start time. */
#include "core/limits.h"
#include "ctl/ctl.h"
#include "ctl/names.h"
#include "ctl/verbs.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_LIMIT = 50, LIMIT_MAX = 1000000 };

static const struct ctl_option options[] = {
    { "definition", "NAME", false, "only this definition" },
    { "state", "STATE", true, "only this state, e.g. PARKED" },
    { "prefix", "TEXT", false, "only keys that begin so" },
    { "key", "KEY", false, "only this key" },
    { "filter", "FILTER", false, "only what this is true of, see below" },
    { "doubt", NULL, false, "only what is in doubt: waits for sagactl resolve, its end or not" },
    { "oldest-first", NULL, false, "by start time; default: newest first" },
    { "limit", "N", false, "at most so many (default 50)" },
    { "all", NULL, false, "all of them" },
    { NULL, NULL, false, NULL },
};

struct listing {
    Saga__V1__ListSagasRequest request;
    Saga__V1__SagaState states[CTL_REPEATS_MAX];
    int64_t limit, shown;
    struct table table; /* text */
    json_t *sagas;      /* JSON */
    bool more;
};

static int read_filter(const struct ctl *ctl, const struct ctl_arguments *arguments,
                       struct listing *listing, struct err *err)
{
    Saga__V1__ListSagasRequest *request = &listing->request;
    const struct {
        const char *name;
        char **field;
    } texts[] = { { "definition", &request->definition },
                  { "prefix", &request->saga_id_prefix },
                  { "key", &request->saga_id },
                  { "filter", &request->filter } };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *value = ctl_option(arguments, texts[i].name);
        if (value)
            *texts[i].field = (char *)value;
    }
    if (ctl->namespace_)
        request->namespace_ = (char *)ctl->namespace_;
    const char *const *states;
    request->n_states = ctl_option_all(arguments, "state", &states);
    request->states = listing->states;
    for (size_t i = 0; i < request->n_states; i++)
        if (!name_saga_state_read(states[i], &listing->states[i]))
            return err_set(
                err, ERR_INVALID,
                "--state must be RUNNING, COMPENSATING, PARKED, SUCCEEDED, COMPENSATED or"
                " ABANDONED, not \"%s\"",
                states[i]);
    if (ctl_option(arguments, "doubt")) {
        request->_doubt_case = SAGA__V1__LIST_SAGAS_REQUEST___DOUBT_DOUBT;
        request->doubt = 1;
    }
    request->oldest_first = ctl_option(arguments, "oldest-first") != NULL;
    if (ctl_option_number(arguments, "limit", 1, LIMIT_MAX, DEFAULT_LIMIT, &listing->limit, err) !=
        0)
        return err->code;
    if (ctl_option(arguments, "all")) {
        if (ctl_option(arguments, "limit"))
            return err_set(err, ERR_INVALID, "only one of --all and --limit");
        listing->limit = INT64_MAX;
    }
    return 0;
}

static void add_row(struct table *table, const Saga__V1__Saga *saga, int64_t now_ms)
{
    CLEANUP(buf_done) struct buf since = { 0 };
    CLEANUP(buf_done) struct buf started = { 0 };
    CLEANUP(buf_done) struct buf why = { 0 };
    screen_time(&since, saga->state_time, now_ms);
    screen_time(&started, saga->start_time, now_ms);
    if (saga->park)
        buf_printf(&why, "%s%s%s", name_park_reason(saga->park->reason),
                   *saga->park->step ? " at " : "", saga->park->step);
    else if (saga->cause)
        buf_printf(&why, "%s%s%s", saga->cause->reason, *saga->cause->step ? " at " : "",
                   saga->cause->step);
    if (saga->doubt)
        buf_printf(&why, "%sin doubt", why.size ? ", " : "");
    table_cell(table, saga->definition, STYLE_PLAIN);
    table_cell(table, saga->saga_id, STYLE_BOLD);
    table_cellf(table, "%d", saga->run);
    table_cell(table, name_saga_state(saga->state), style_saga_state(saga->state));
    table_cell(table, buf_cstr(&since), STYLE_PLAIN);
    table_cell(table, buf_cstr(&started), STYLE_PLAIN);
    table_cell(table, buf_cstr(&why), STYLE_PLAIN);
}

static int add_page(struct ctl *ctl, struct listing *listing,
                    const Saga__V1__ListSagasResponse *page)
{
    struct err err;
    if (ctl->json && ctl_add_page(listing->sagas, &page->base, "sagas", &err) != 0)
        return ctl_print_error(&err);
    int64_t now_ms = ctl_now_ms();
    for (size_t i = 0; !ctl->json && i < page->n_sagas; i++)
        add_row(&listing->table, page->sagas[i], now_ms);
    listing->shown += (int64_t)page->n_sagas;
    return 0;
}

static int read_pages(struct ctl *ctl, struct listing *listing)
{
    char token[512] = "";
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ListSagasResponse *page = NULL;
        int64_t left = listing->limit - listing->shown;
        listing->request.page_size = left < CTL_PAGE_SIZE ? (int32_t)left : CTL_PAGE_SIZE;
        listing->request.page_token = token;
        int rc = ctl_call(ctl, "/saga.v1.SagaService/ListSagas", &listing->request.base,
                          &saga__v1__list_sagas_response__descriptor, &page);
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
            json_pack("{s:O, s:b}", "sagas", listing->sagas, "more", (int)listing->more));
    CLEANUP(buf_done) struct buf text = { 0 };
    if (listing->shown)
        table_write(&listing->table, "", ctl->color, &text);
    else
        (void)fputs("sagactl: no saga matches\n", stderr);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    static const char *const headers[] = { "DEFINITION", "KEY",     "RUN", "STATE",
                                           "SINCE",      "STARTED", "WHY" };
    struct listing listing = { .request = SAGA__V1__LIST_SAGAS_REQUEST__INIT };
    struct err err;
    listing.table = (struct table){ .headers = headers, .columns = ARRAY_LEN(headers) };
    if (read_filter(ctl, arguments, &listing, &err) != 0)
        return ctl_print_error(&err);
    listing.sagas = json_array();
    int rc = read_pages(ctl, &listing);
    if (rc == 0)
        rc = print_listing(ctl, &listing);
    if (rc == 0 && listing.more && !ctl->json)
        (void)fputs("sagactl: there are more: --all, or a larger --limit\n", stderr);
    json_decref(listing.sagas);
    table_done(&listing.table);
    return rc;
}

const struct ctl_verb verb_list = {
    "list",
    "",
    0,
    0,
    options,
    "sagas by start time\n"
    "\n"
    "--namespace - lists every namespace.\n"
    "\n"
    "FILTER is comparisons joined by AND:\n"
    "  sagactl list --filter 'state = PARKED AND labels.account = \"A-77\"'\n"
    "  namespace, definition, saga_id (\"S-1*\": those that begin so), labels.KEY,\n"
    "  park.step, park.error.code, doubt: =\n"
    "  state, park.reason: = and !=\n"
    "  revision, start_time, update_time, end_time (\"2026-11-30T22:00:00Z\"): = < <= > >=",
    run,
};
