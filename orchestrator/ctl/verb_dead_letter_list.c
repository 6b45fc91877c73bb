/* sagactl dead-letter list: records that no saga could be started from. */
#include "ctl/letter_server.h"
#include "ctl/letter_text.h"
#include "ctl/names.h"
#include "ctl/verbs.h"

#include <stdio.h>
#include <strings.h>

enum { DEFAULT_LIMIT = 50, LIMIT_MAX = 1000000 };

static const struct ctl_option options[] = {
    LETTER_FILTER_OPTIONS,
    { "state", "STATE", true,
      "only these: OPEN (default), REPLAY, REPLAYED, DISCARDED; all: every one" },
    { "limit", "N", false, "at most so many (default 50)" },
    { "all", NULL, false, "all of them" },
    { NULL, NULL, false, NULL },
};

struct listing {
    struct ctl *ctl;
    Saga__V1__DeadLetter__State states[CTL_REPEATS_MAX];
    struct table table;
    json_t *all; /* an array; with -o json */
    int64_t now_ms;
};

static int add_page(void *ctx, const Saga__V1__ListDeadLettersResponse *page)
{
    struct listing *listing = ctx;
    struct err err;
    if (listing->ctl->json)
        return ctl_add_page(listing->all, &page->base, "deadLetters", &err) == 0
                   ? 0
                   : ctl_print_error(&err);
    for (size_t i = 0; i < page->n_dead_letters; i++)
        letter_add_row(&listing->table, page->dead_letters[i], listing->now_ms);
    return 0;
}

static int read_states(const struct ctl_arguments *arguments, struct listing *listing,
                       Saga__V1__DeadLetterFilter *filter, struct err *err)
{
    const char *const *words;
    size_t count = ctl_option_all(arguments, "state", &words);
    filter->states = listing->states;
    if (count == 1 && strcasecmp(words[0], "all") == 0) {
        for (int i = 0; i < 4; i++)
            listing->states[i] = (Saga__V1__DeadLetter__State)(i + 1);
        filter->n_states = 4;
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        if (!name_letter_state_read(words[i], &listing->states[i]))
            return err_set(
                err, ERR_INVALID,
                "--state must be OPEN, REPLAY, REPLAYED or DISCARDED, or all alone, not \"%s\"",
                words[i]);
    filter->n_states = count;
    return 0;
}

static int read_options(const struct ctl_arguments *arguments, struct listing *listing,
                        Saga__V1__DeadLetterFilter *filter, int64_t *ret_limit, struct err *err)
{
    bool any;
    if (letter_filter(arguments, filter, &any, err) != 0 ||
        read_states(arguments, listing, filter, err) != 0 ||
        ctl_option_number(arguments, "limit", 1, LIMIT_MAX, DEFAULT_LIMIT, ret_limit, err) != 0)
        return (int)err->code;
    if (!ctl_option(arguments, "all"))
        return 0;
    if (ctl_option(arguments, "limit"))
        return err_set(err, ERR_INVALID, "only one of --all and --limit");
    *ret_limit = INT64_MAX;
    return 0;
}

static int print(struct listing *listing, bool more)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (listing->ctl->json)
        return ctl_print_json(
            json_pack("{s:O, s:b}", "deadLetters", listing->all, "more", (int)more));
    if (listing->table.count)
        table_write(&listing->table, "", listing->ctl->color, &text);
    else
        (void)fputs("sagactl: no dead letter matches\n", stderr);
    if (more)
        (void)fputs("sagactl: there are more: --all, or a larger --limit\n", stderr);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__DeadLetterFilter filter = SAGA__V1__DEAD_LETTER_FILTER__INIT;
    struct listing listing = { .ctl = ctl, .now_ms = ctl_now_ms() };
    struct err err;
    int64_t limit = DEFAULT_LIMIT;
    bool more = false;
    listing.table = (struct table){ .headers = letter_headers, .columns = LETTER_COLUMNS };
    if (read_options(arguments, &listing, &filter, &limit, &err) != 0)
        return ctl_print_error(&err);
    listing.all = json_array();
    int rc = letter_pages(ctl, &filter, limit, add_page, &listing, &more);
    if (rc == 0)
        rc = print(&listing, more);
    json_decref(listing.all);
    table_done(&listing.table);
    return rc;
}

const struct ctl_verb verb_dead_letter_list = {
    "dead-letter list",
    "",
    0,
    0,
    options,
    "records of Kafka that no saga could be started from, newest first\n"
    "\n"
    "OPEN: nobody has decided yet. REPLAY: waits for the node that serves the rule. REPLAYED: a "
    "saga\n"
    "has come of it, or its key was known. DISCARDED: nothing is to come of it.",
    run,
};
