/* sagactl dead-letter replay, discard: what becomes of dead letters. */
#include "ctl/letter_server.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <stdio.h>

static const struct ctl_option options[] = {
    LETTER_FILTER_OPTIONS,
    { "all", NULL, false, "every letter that is open" },
    { "limit", "N", false, "at most so many, the newest ones" },
    { "dry-run", NULL, false, "only count them" },
    { "reason", "TEXT", false, "why; kept with the decision (required, unless --dry-run)" },
    { NULL, NULL, false, NULL },
};

struct decision {
    struct ctl *ctl;
    bool replay, dry_run;
    char *reason;
    char actor[CTL_ACTOR_SIZE];
    int64_t count;
};

/* One call about these letters. */
static int decide_ids(struct decision *decision, char **ids, size_t count)
{
    Saga__V1__ReplayDeadLettersRequest replay = SAGA__V1__REPLAY_DEAD_LETTERS_REQUEST__INIT;
    Saga__V1__DiscardDeadLettersRequest discard = SAGA__V1__DISCARD_DEAD_LETTERS_REQUEST__INIT;
    replay.dead_letter_ids = discard.dead_letter_ids = ids;
    replay.n_dead_letter_ids = discard.n_dead_letter_ids = count;
    replay.dry_run = discard.dry_run = decision->dry_run;
    replay.reason = discard.reason = decision->reason;
    replay.actor = discard.actor = decision->actor;
    CLEANUP(ctl_message_free_p) ProtobufCMessage *reply = NULL;
    int rc = decision->replay
                 ? kafka_call(decision->ctl, KAFKA_SERVICE "ReplayDeadLetters", &replay.base,
                              &saga__v1__replay_dead_letters_response__descriptor, "", &reply)
                 : kafka_call(decision->ctl, KAFKA_SERVICE "DiscardDeadLetters", &discard.base,
                              &saga__v1__discard_dead_letters_response__descriptor, "", &reply);
    if (rc != 0)
        return rc;
    decision->count += decision->replay
                           ? ((const Saga__V1__ReplayDeadLettersResponse *)(void *)reply)->count
                           : ((const Saga__V1__DiscardDeadLettersResponse *)(void *)reply)->count;
    return 0;
}

/* Letters are decided on page by page, each once: one whose replay fails at once is open again,
 * but behind us. */
static int decide_page(void *ctx, const Saga__V1__ListDeadLettersResponse *page)
{
    struct decision *decision = ctx;
    char *ids[CTL_PAGE_SIZE];
    size_t count = page->n_dead_letters;
    if (decision->dry_run) {
        decision->count += (int64_t)count;
        return 0;
    }
    if (!count || count > ARRAY_LEN(ids))
        return count ? ctl_print_misuse("the server's page is larger than was asked for") : 0;
    for (size_t i = 0; i < count; i++)
        ids[i] = page->dead_letters[i]->dead_letter_id;
    return decide_ids(decision, ids, count);
}

static int print(const struct decision *decision, bool more)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    const char *what = decision->replay ? "replayed" : "discarded";
    if (decision->ctl->json)
        return ctl_print_json(json_pack("{s:I, s:b, s:b}", "count", (json_int_t)decision->count,
                                        "more", (int)more, "dryRun", (int)decision->dry_run));
    buf_printf(&text, "%" PRId64 " dead letter%s", decision->count,
               decision->count == 1 ? "" : "s");
    if (decision->dry_run)
        buf_printf(&text, " would be %s\n", what);
    else if (decision->replay)
        buf_text(&text, " will be replayed by the nodes that serve their rules: sagactl "
                        "dead-letter list --state all tells what came of it\n");
    else
        buf_printf(&text, " %s\n", what);
    if (more)
        buf_text(&text, "there are more beyond --limit\n");
    return ctl_print_text(&text);
}

static int run_filter(struct decision *decision, const struct ctl_arguments *arguments,
                      Saga__V1__DeadLetterFilter *filter)
{
    struct err err;
    int64_t limit;
    bool more = false;
    if (ctl_option_number(arguments, "limit", 1, INT64_MAX, INT64_MAX, &limit, &err) != 0)
        return ctl_print_error(&err);
    int rc = letter_pages(decision->ctl, filter, limit, decide_page, decision, &more);
    if (rc != 0 && decision->count > 0)
        (void)fprintf(stderr,
                      "sagactl: %" PRId64 " were decided on before that; the same command goes on "
                      "with the others\n",
                      decision->count);
    return rc != 0 ? rc : print(decision, more);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments, bool replay)
{
    Saga__V1__DeadLetterFilter filter = SAGA__V1__DEAD_LETTER_FILTER__INIT;
    struct decision decision = { .ctl = ctl, .replay = replay, .reason = filter.rule };
    struct err err;
    bool any;
    decision.dry_run = ctl_option(arguments, "dry-run") != NULL;
    if (letter_filter(arguments, &filter, &any, &err) != 0)
        return ctl_print_error(&err);
    any = any || ctl_option(arguments, "all") != NULL;
    if (any == (arguments->count > 0))
        return ctl_print_misuse("say which letters: their ids, or a filter, or --all");
    if (arguments->count && ctl_option(arguments, "limit"))
        return ctl_print_misuse("--limit is for a filter, not for ids");
    if (decision.dry_run)
        ctl_actor(decision.actor);
    else if (!kafka_words(arguments, &decision.reason, decision.actor))
        return CTL_EXIT_USAGE;
    if (any)
        return run_filter(&decision, arguments, &filter);
    char *ids[CTL_POSITIONAL_MAX];
    for (size_t i = 0; i < arguments->count; i++)
        ids[i] = (char *)arguments->positional[i];
    int rc = decide_ids(&decision, ids, arguments->count);
    return rc != 0 ? rc : print(&decision, false);
}

static int run_replay(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    return run(ctl, arguments, true);
}

static int run_discard(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    return run(ctl, arguments, false);
}

const struct ctl_verb verb_dead_letter_replay = {
    "dead-letter replay",
    "[ID...]",
    0,
    CTL_POSITIONAL_MAX,
    options,
    "try dead letters again, as their rule and definition are now\n"
    "\n"
    "By ids (up to 4), or by filter. Only what is OPEN is replayed: it becomes REPLAYED, or OPEN\n"
    "again with what is wrong now. --dry-run counts first.",
    run_replay,
};

const struct ctl_verb verb_dead_letter_discard = {
    "dead-letter discard",
    "[ID...]",
    0,
    CTL_POSITIONAL_MAX,
    options,
    "decide that nothing is to come of dead letters; they stay, with who decided it and why\n"
    "\n"
    "By ids (up to 4), or by filter. Only what is OPEN is discarded. --dry-run counts first.",
    run_discard,
};
