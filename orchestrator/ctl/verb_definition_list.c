/* sagactl definition list: the current revision of each. */
#include "ctl/ctl.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"

#include <saga/v1/definition.pb-c.h>
#include <stdio.h>
#include <string.h>

static void add_row(struct table *table, const Saga__V1__RegisteredDefinition *registered,
                    int64_t now_ms)
{
    const Saga__V1__SagaDefinition *definition = registered->definition;
    CLEANUP(buf_done) struct buf created = { 0 };
    screen_time(&created, registered->create_time, now_ms);
    table_cell(table, definition ? definition->namespace_ : "", STYLE_PLAIN);
    table_cell(table, definition ? definition->name : "", STYLE_BOLD);
    table_cellf(table, "%d", registered->revision);
    table_cellf(table, "%zu", definition ? definition->n_steps : 0);
    table_cell(table, buf_cstr(&created), STYLE_PLAIN);
    table_cell(table, definition ? definition->description : "", STYLE_PLAIN);
}

static int read_pages(struct ctl *ctl, struct table *table, json_t *all)
{
    char token[512] = "";
    int64_t now_ms = ctl_now_ms();
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
        if (ctl->json && ctl_add_page(all, &page->base, "definitions", &err) != 0)
            return ctl_print_error(&err);
        for (size_t i = 0; !ctl->json && i < page->n_definitions; i++)
            add_row(table, page->definitions[i], now_ms);
        if (strlen(page->next_page_token) >= sizeof token) {
            (void)fputs("sagactl: the server's page token is too long\n", stderr);
            return CTL_EXIT_FAILED;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
    } while (*token);
    return 0;
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    (void)arguments;
    static const char *const headers[] = { "NAMESPACE", "NAME",       "REVISION",
                                           "STEPS",     "REGISTERED", "DESCRIPTION" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    json_t *all = json_array();
    int rc = read_pages(ctl, &table, all);
    if (rc == 0 && ctl->json) {
        rc = ctl_print_json(json_pack("{s:O}", "definitions", all));
    } else if (rc == 0 && table.count == 0) {
        (void)fputs("sagactl: no definition is registered (sagactl definition apply FILE)\n",
                    stderr);
    } else if (rc == 0) {
        CLEANUP(buf_done) struct buf text = { 0 };
        table_write(&table, "", ctl->color, &text);
        rc = ctl_print_text(&text);
    }
    json_decref(all);
    table_done(&table);
    return rc;
}

const struct ctl_verb verb_definition_list = {
    "definition list",
    "",
    0,
    0,
    NULL,
    "the registered definitions, the current revision of each, in every namespace",
    run,
};
