/* sagactl definition list: the current revision of each, or all revisions of one. */
#include "ctl/definition_server.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"
#include "wire/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct listing {
    struct ctl *ctl;
    struct table table;
    json_t *all; /* an array; with -o json */
    int64_t now_ms;
};

static void add_time(struct listing *listing, const Google__Protobuf__Timestamp *time)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    screen_time(&text, time, listing->now_ms);
    table_cell(&listing->table, buf_cstr(&text), STYLE_PLAIN);
}

static void add_definition(struct listing *listing,
                           const Saga__V1__RegisteredDefinition *registered)
{
    const Saga__V1__SagaDefinition *definition = registered->definition;
    struct table *table = &listing->table;
    table_cell(table, definition ? definition->namespace_ : "", STYLE_PLAIN);
    table_cell(table, definition ? definition->name : "", STYLE_BOLD);
    table_cellf(table, "%d", registered->revision);
    table_cellf(table, "%zu", definition ? definition->n_steps : 0);
    add_time(listing, registered->create_time);
    table_cell(table, registered->pause ? "paused" : "", STYLE_BUSY);
    table_cell(table, definition ? definition->description : "", STYLE_PLAIN);
}

static int read_definitions(struct listing *listing)
{
    char token[512] = "";
    struct ctl *ctl = listing->ctl;
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ListDefinitionsResponse *page = NULL;
        Saga__V1__ListDefinitionsRequest request = SAGA__V1__LIST_DEFINITIONS_REQUEST__INIT;
        struct err err;
        if (ctl->namespace_)
            request.namespace_ = (char *)ctl->namespace_;
        request.page_size = CTL_PAGE_SIZE;
        request.page_token = token;
        int rc = ctl_call(ctl, "/saga.v1.DefinitionService/ListDefinitions", &request.base,
                          &saga__v1__list_definitions_response__descriptor, &page);
        if (rc != 0)
            return rc;
        if (ctl->json && ctl_add_page(listing->all, &page->base, "definitions", &err) != 0)
            return ctl_print_error(&err);
        for (size_t i = 0; !ctl->json && i < page->n_definitions; i++)
            add_definition(listing, page->definitions[i]);
        if (strlen(page->next_page_token) >= sizeof token) {
            (void)fputs("sagactl: the server's page token is too long\n", stderr);
            return CTL_EXIT_FAILED;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
    } while (*token);
    return 0;
}

static int add_revision(void *ctx, const Saga__V1__RegisteredDefinition *registered)
{
    struct listing *listing = ctx;
    struct table *table = &listing->table;
    json_t *value;
    struct err err;
    if (listing->ctl->json) {
        if (wire_json_from_message(&registered->base, &value, &err) != 0)
            return ctl_print_error(&err);
        return json_array_append_new(listing->all, value) == 0 ? 0 : CTL_EXIT_FAILED;
    }
    table_cellf(table, "%d", registered->revision);
    table_cell(table, registered->current ? "current" : "", STYLE_GOOD);
    table_cellf(table, "%zu", registered->definition ? registered->definition->n_steps : 0);
    add_time(listing, registered->create_time);
    table_cellf(table, "%" PRId64, registered->open_sagas);
    table_cell(table, registered->current && registered->pause ? "paused" : "", STYLE_BUSY);
    return 0;
}

static int print(struct listing *listing, const char *name)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (listing->ctl->json)
        return ctl_print_json(
            json_pack("{s:O}", *name ? "revisions" : "definitions", listing->all));
    if (listing->table.count == 0) {
        (void)fputs("sagactl: no definition is registered (sagactl definition apply FILE)\n",
                    stderr);
        return 0;
    }
    table_write(&listing->table, "", listing->ctl->color, &text);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    static const char *const definitions[] = { "NAMESPACE",  "NAME",  "REVISION",   "STEPS",
                                               "REGISTERED", "STATE", "DESCRIPTION" };
    static const char *const revisions[] = { "REVISION",   "NEW SAGAS",  "STEPS",
                                             "REGISTERED", "OPEN SAGAS", "STATE" };
    const char *name = arguments->count ? arguments->positional[0] : "";
    struct listing listing = { .ctl = ctl, .all = json_array(), .now_ms = ctl_now_ms() };
    listing.table =
        (struct table){ .headers = *name ? revisions : definitions,
                        .columns = *name ? ARRAY_LEN(revisions) : ARRAY_LEN(definitions) };
    int rc = *name ? definition_revisions(ctl, ctl->namespace_, name, add_revision, &listing)
                   : read_definitions(&listing);
    if (rc == 0)
        rc = print(&listing, name);
    json_decref(listing.all);
    table_done(&listing.table);
    return rc;
}

const struct ctl_verb verb_definition_list = {
    "definition list",
    "[NAME]",
    0,
    1,
    NULL,
    "the registered definitions, the current revision of each, in every namespace\n"
    "\n"
    "With NAME its revisions, newest first, and how many sagas still run each.",
    run,
};
