/* sagactl kafka requests: what was asked for and decided about Kafka, and by whom. */
#include "ctl/kafka_server.h"
#include "ctl/kafka_text.h"
#include "ctl/names.h"
#include "ctl/verbs.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_LIMIT = 50, LIMIT_MAX = 1000000 };

static const struct ctl_option options[] = {
    { "rule", "RULE", false, "only about this rule" },
    { "limit", "N", false, "at most so many (default 50)" },
    { NULL, NULL, false, NULL },
};

static void add_row(struct table *table, const Saga__V1__KafkaRequest *request, int64_t now_ms)
{
    CLEANUP(buf_done) struct buf when = { 0 };
    CLEANUP(buf_done) struct buf what = { 0 };
    screen_time(&when, request->request_time, now_ms);
    kafka_write_request(request, &what);
    bool failed = request->state == SAGA__V1__KAFKA_REQUEST__STATE__STATE_FAILED;
    table_cell(table, buf_cstr(&when), STYLE_PLAIN);
    table_cell(table, name_kafka_kind(request->kind), STYLE_BOLD);
    table_cell(table, request->rule, STYLE_PLAIN);
    table_cell(table, name_kafka_request_state(request->state), failed ? STYLE_BAD : STYLE_PLAIN);
    table_cell(table, request->actor, STYLE_PLAIN);
    table_cell(table, request->reason, STYLE_PLAIN);
    table_cell(table, buf_cstr(&what), STYLE_PLAIN);
}

/* `all` is an array, or NULL for text. */
static int read_pages(struct ctl *ctl, Saga__V1__ListKafkaRequestsRequest *request, int64_t limit,
                      struct table *table, json_t *all, bool *ret_more)
{
    char token[512] = "";
    int64_t shown = 0, now_ms = ctl_now_ms();
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ListKafkaRequestsResponse *page = NULL;
        struct err err;
        request->page_size =
            limit - shown < CTL_PAGE_SIZE ? (int32_t)(limit - shown) : CTL_PAGE_SIZE;
        request->page_token = token;
        int rc =
            kafka_call(ctl, KAFKA_SERVICE "ListKafkaRequests", &request->base,
                       &saga__v1__list_kafka_requests_response__descriptor, request->rule, &page);
        if (rc != 0)
            return rc;
        if (all && ctl_add_page(all, &page->base, "requests", &err) != 0)
            return ctl_print_error(&err);
        for (size_t i = 0; !all && i < page->n_requests; i++)
            add_row(table, page->requests[i], now_ms);
        shown += (int64_t)page->n_requests;
        if (strlen(page->next_page_token) >= sizeof token) {
            (void)fputs("sagactl: the server's page token is too long\n", stderr);
            return CTL_EXIT_FAILED;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
    } while (*token && shown < limit);
    *ret_more = *token != '\0';
    return 0;
}

static int print_text(const struct ctl *ctl, const struct table *table, bool more)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (table->count)
        table_write(table, "", ctl->color, &text);
    else
        (void)fputs("sagactl: nothing was asked for yet\n", stderr);
    if (more)
        (void)fputs("sagactl: there are more: a larger --limit\n", stderr);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    static const char *const headers[] = {
        "WHEN", "WHAT", "RULE", "STATE", "WHO", "REASON", "ABOUT"
    };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    Saga__V1__ListKafkaRequestsRequest request = SAGA__V1__LIST_KAFKA_REQUESTS_REQUEST__INIT;
    struct err err;
    int64_t limit;
    bool more = false;
    if (ctl_option_number(arguments, "limit", 1, LIMIT_MAX, DEFAULT_LIMIT, &limit, &err) != 0)
        return ctl_print_error(&err);
    (void)ctl_take_text(arguments, "rule", &request.rule); /* or every one */
    json_t *all = ctl->json ? json_array() : NULL;
    int rc = read_pages(ctl, &request, limit, &table, all, &more);
    if (rc == 0 && ctl->json)
        rc = ctl_print_json(json_pack("{s:O, s:b}", "requests", all, "more", (int)more));
    else if (rc == 0)
        rc = print_text(ctl, &table, more);
    json_decref(all);
    table_done(&table);
    return rc;
}

const struct ctl_verb verb_kafka_requests = {
    "kafka requests",
    "",
    0,
    0,
    options,
    "what was asked for and decided about Kafka, by whom, why, and what came of it; newest first",
    run,
};
