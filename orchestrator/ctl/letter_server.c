#include "ctl/letter_server.h"

#include "core/limits.h"

#include <stdio.h>
#include <string.h>

int letter_filter(const struct ctl_arguments *arguments, Saga__V1__DeadLetterFilter *ret,
                  bool *ret_any, struct err *err)
{
    int64_t partition;
    bool rule = ctl_take_text(arguments, "rule", &ret->rule);
    bool topic = ctl_take_text(arguments, "topic", &ret->topic);
    bool why = ctl_take_text(arguments, "why", &ret->reason);
    if (ctl_option_number(arguments, "partition", 0, INT32_MAX, -1, &partition, err) != 0)
        return (int)err->code;
    if (partition >= 0) {
        ret->_partition_case = SAGA__V1__DEAD_LETTER_FILTER___PARTITION_PARTITION;
        ret->partition = (int32_t)partition;
    }
    *ret_any = rule || topic || why || partition >= 0;
    return 0;
}

int letter_pages(struct ctl *ctl, Saga__V1__DeadLetterFilter *filter, int64_t limit,
                 letter_page_fn *page, void *ctx, bool *ret_more)
{
    char token[512] = "";
    int64_t seen = 0;
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ListDeadLettersResponse *letters = NULL;
        Saga__V1__ListDeadLettersRequest request = SAGA__V1__LIST_DEAD_LETTERS_REQUEST__INIT;
        request.filter = filter;
        request.page_size = limit - seen < CTL_PAGE_SIZE ? (int32_t)(limit - seen) : CTL_PAGE_SIZE;
        request.page_token = token;
        int rc =
            kafka_call(ctl, KAFKA_SERVICE "ListDeadLetters", &request.base,
                       &saga__v1__list_dead_letters_response__descriptor, filter->rule, &letters);
        if (rc == 0)
            rc = page(ctx, letters);
        if (rc != 0)
            return rc;
        seen += (int64_t)letters->n_dead_letters;
        if (strlen(letters->next_page_token) >= sizeof token) {
            (void)fputs("sagactl: the server's page token is too long\n", stderr);
            return CTL_EXIT_FAILED;
        }
        (void)snprintf(token, sizeof token, "%s", letters->next_page_token);
    } while (*token && seen < limit);
    *ret_more = *token != '\0';
    return 0;
}
