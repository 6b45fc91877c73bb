/* Which dead letters a command is about, and the pages that list them. thread: the main thread. */
#ifndef CTL_LETTER_SERVER_H
#define CTL_LETTER_SERVER_H

#include "ctl/kafka_server.h"

/* The options that letter_filter reads. */
#define LETTER_FILTER_OPTIONS                                                                      \
    { "rule", "RULE", false, "only of this rule" },                                                \
        { "topic", "TOPIC", false, "only of this topic" },                                         \
        { "partition", "N", false, "only of this partition" },                                     \
    {                                                                                              \
        "why", "WORD", false, "only those that are dead for this reason, e.g. KEY_MISSING"         \
    }

/* Borrows from the arguments; *ret_any: one of the options was given. */
MUST_USE int letter_filter(const struct ctl_arguments *arguments, Saga__V1__DeadLetterFilter *ret,
                           bool *ret_any, struct err *err);

/* Pages of ListDeadLetters, newest first, `limit` letters at most; `page` returns 0 to go on, else
 * an exit code. *ret_more: there are further ones. Prints what is wrong. */
typedef int letter_page_fn(void *ctx, const Saga__V1__ListDeadLettersResponse *page);
MUST_USE int letter_pages(struct ctl *ctl, Saga__V1__DeadLetterFilter *filter, int64_t limit,
                          letter_page_fn *page, void *ctx, bool *ret_more);

#endif
