#include "judge.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_SIZE = 24 };

const char *const violation_names[VIOLATION_COUNT] = {
    [VIOLATION_OTHER_SAGA] = "OTHER_SAGA",         [VIOLATION_TWO_CREATED] = "TWO_CREATED",
    [VIOLATION_OUT_OF_NOTHING] = "OUT_OF_NOTHING", [VIOLATION_OTHER_INPUT] = "OTHER_INPUT",
    [VIOLATION_FALSE_MISMATCH] = "FALSE_MISMATCH", [VIOLATION_LOST_START] = "LOST_START",
    [VIOLATION_LOST_REPORT] = "LOST_REPORT",       [VIOLATION_LOST_FOLLOW_UP] = "LOST_FOLLOW_UP",
    [VIOLATION_LOST_CANCEL] = "LOST_CANCEL",       [VIOLATION_LOST_LEASE] = "LOST_LEASE",
    [VIOLATION_TWICE_GRANTED] = "TWICE_GRANTED",   [VIOLATION_STALE_COUNTED] = "STALE_COUNTED",
    [VIOLATION_WENT_BACK] = "WENT_BACK",           [VIOLATION_BAD_ANSWER] = "BAD_ANSWER",
};

struct entry {
    int64_t seq, about;
    char kind[WORD_SIZE], outcome[WORD_SIZE];
};

/* A journal as somebody saw it. */
struct sight {
    const struct history_call *call; /* NULL: the final database */
    int64_t from_us, to_us;
    struct entry *entries;
    size_t count;
};

/* All calls about one key. */
struct group {
    const struct history_call *const *calls;
    size_t count;
    struct sight *sights; /* journals, the final one last */
    size_t sight_count;
    struct judge_verdict *verdict;
};

static void cite(struct group *group, enum violation violation, const struct history_call *a,
                 const struct history_call *b)
{
    struct judge_verdict *verdict = group->verdict;
    verdict->found[violation]++;
    verdict->total++;
    if (verdict->cited_count < JUDGE_CITED_MAX)
        verdict->cited[verdict->cited_count++] = (struct judge_cited){ violation, a, b };
}

/* --- what calls say --------------------------------------------------------------------------- */

static bool is(const char *text, const char *word)
{
    return strcmp(text, word) == 0;
}

static bool is_ok(const struct history_call *call, enum history_what what)
{
    return call->what == what && call->end == HISTORY_OK;
}

static bool failed_with(const struct history_call *call, const char *reason)
{
    return call->end == HISTORY_FAIL && is(call->answer, reason);
}

/* Does it say that the key is known? */
static bool says_known(const struct history_call *call)
{
    return is_ok(call, HISTORY_START) || is_ok(call, HISTORY_GET) || is_ok(call, HISTORY_CANCEL) ||
           is_ok(call, HISTORY_JOURNAL) || failed_with(call, "INPUT_MISMATCH") ||
           failed_with(call, "CANCEL_NOT_ALLOWED");
}

static bool report_counts(const struct history_call *call)
{
    return is_ok(call, HISTORY_REPORT) && !is(call->answer, "STALE");
}

/* 0: going forward, 1: turned back, 2: ended. */
static int64_t rank_of(const struct history_call *seen)
{
    bool parked = is(seen->state, "PARKED");
    if (is(parked ? seen->phase : seen->state, "RUNNING"))
        return 0;
    return is(parked ? seen->phase : seen->state, "COMPENSATING") ? 1 : 2;
}

/* Something that shows the saga's state: a GET, or its row at the end. */
static bool shows_state(const struct history_call *call)
{
    return is_ok(call, HISTORY_GET) || call->what == HISTORY_SAGA;
}

static bool precedes(const struct history_call *a, const struct history_call *b)
{
    if (b->what == HISTORY_SAGA)
        return a->what != HISTORY_SAGA;
    return a->what != HISTORY_SAGA && a->ended_us < b->invoked_us;
}

/* --- journals --------------------------------------------------------------------------------- */

/* "seq:kind:outcome:about,..." */
static int read_entries(const struct history_call *call, struct sight *sight, struct err *err)
{
    size_t capacity = 0;
    for (const char *at = call->entries ? call->entries : ""; *at;) {
        struct entry entry = { .about = -1 };
        int used = -1;
        if (mem_grow((void **)&sight->entries, &capacity, sight->count, sizeof *sight->entries))
            return err_set(err, ERR_NOMEM, "judge");
        char *end;
        entry.seq = strtoll(at, &end, 10);
        size_t kind = *end == ':' ? strcspn(end + 1, ":") : 0;
        const char *outcome = *end == ':' && end[1 + kind] == ':' ? end + 2 + kind : NULL;
        size_t outcome_size = outcome ? strcspn(outcome, ":") : 0;
        if (!outcome || outcome[outcome_size] != ':' || kind >= WORD_SIZE ||
            outcome_size >= WORD_SIZE)
            return err_set(err, ERR_INVALID, "call %" PRId64 ": entries at %s", call->id, at);
        memcpy(entry.kind, end + 1, kind);
        memcpy(entry.outcome, outcome, outcome_size);
        at = outcome + outcome_size + 1;
        if (sscanf(at, "%" SCNd64 "%n", &entry.about, &used) == 1)
            at += used;
        at += *at == ',';
        sight->entries[sight->count++] = entry;
    }
    return 0;
}

static int final_sight(const struct group *group, struct sight *sight, struct err *err)
{
    size_t capacity = 0;
    sight->from_us = sight->to_us = INT64_MAX;
    for (size_t i = 0; i < group->count; i++) {
        const struct history_call *call = group->calls[i];
        if (call->what != HISTORY_ENTRY)
            continue;
        if (mem_grow((void **)&sight->entries, &capacity, sight->count, sizeof *sight->entries))
            return err_set(err, ERR_NOMEM, "judge");
        struct entry *entry = &sight->entries[sight->count++];
        entry->seq = call->seq;
        entry->about = call->about;
        (void)snprintf(entry->kind, WORD_SIZE, "%s", call->kind);
        (void)snprintf(entry->outcome, WORD_SIZE, "%s", call->outcome);
    }
    return 0;
}

static int read_sights(struct group *group, struct err *err)
{
    size_t journals = 0;
    for (size_t i = 0; i < group->count; i++)
        journals += is_ok(group->calls[i], HISTORY_JOURNAL);
    group->sights = mem_calloc(journals + 1, sizeof *group->sights);
    if (!group->sights)
        return err_set(err, ERR_NOMEM, "judge");
    for (size_t i = 0; i < group->count; i++) {
        const struct history_call *call = group->calls[i];
        if (!is_ok(call, HISTORY_JOURNAL))
            continue;
        struct sight *sight = &group->sights[group->sight_count++];
        *sight =
            (struct sight){ .call = call, .from_us = call->invoked_us, .to_us = call->ended_us };
        if (read_entries(call, sight, err) != 0)
            return (int)err->code;
    }
    return final_sight(group, &group->sights[group->sight_count++], err);
}

static const struct entry *entry_at(const struct sight *sight, int64_t seq)
{
    for (size_t i = 0; i < sight->count; i++)
        if (sight->entries[i].seq == seq)
            return &sight->entries[i];
    return NULL;
}

/* By itself, or as a late report. */
static bool has_report(const struct sight *sight, const struct history_call *report)
{
    for (size_t i = 0; i < sight->count; i++) {
        const struct entry *entry = &sight->entries[i];
        if ((entry->seq == report->seq || entry->about == report->seq) &&
            is(entry->outcome, report->outcome))
            return true;
    }
    return false;
}

/* --- the rules -------------------------------------------------------------------------------- */

static void check_one_saga(struct group *group)
{
    const struct history_call *first = NULL, *created = NULL;
    for (size_t i = 0; i < group->count; i++) {
        const struct history_call *call = group->calls[i];
        if (!*call->uid)
            continue;
        if (!first)
            first = call;
        bool runs = first->run >= 0 && call->run >= 0;
        if (!is(call->uid, first->uid) || (runs && call->run != first->run))
            cite(group, VIOLATION_OTHER_SAGA, first, call);
        else if (call->run >= 0)
            first = call; /* now with the run, if it was without */
        if (!is_ok(call, HISTORY_START) || call->existed != 0)
            continue;
        if (created)
            cite(group, VIOLATION_TWO_CREATED, created, call);
        created = call;
    }
}

static void check_cause(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        const struct history_call *call = group->calls[i];
        if (!says_known(call) || (call->what == HISTORY_START && call->existed == 0))
            continue;
        bool caused = false;
        for (size_t j = 0; j < group->count && !caused; j++)
            caused = j != i && group->calls[j]->what == HISTORY_START &&
                     group->calls[j]->invoked_us <= call->ended_us;
        if (!caused)
            cite(group, VIOLATION_OUT_OF_NOTHING, call, NULL);
    }
}

static void check_input(struct group *group)
{
    const struct history_call *saga = NULL;
    for (size_t i = 0; i < group->count; i++)
        if (group->calls[i]->what == HISTORY_SAGA)
            saga = group->calls[i];
    for (size_t i = 0; saga && i < group->count; i++) {
        const struct history_call *call = group->calls[i];
        if (call->what != HISTORY_START)
            continue;
        bool same = is(call->input, saga->input);
        if (call->end == HISTORY_OK && !same)
            cite(group, VIOLATION_OTHER_INPUT, call, saga);
        if (failed_with(call, "INPUT_MISMATCH") && same)
            cite(group, VIOLATION_FALSE_MISMATCH, call, saga);
    }
}

static void check_answers(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        const struct history_call *call = group->calls[i];
        if (call->end != HISTORY_FAIL)
            continue;
        bool start = call->what == HISTORY_START;
        bool good = (start && is(call->answer, "INPUT_MISMATCH")) ||
                    (call->what == HISTORY_CANCEL && is(call->answer, "CANCEL_NOT_ALLOWED")) ||
                    (!start && is(call->answer, "NOT_FOUND"));
        if (!good)
            cite(group, VIOLATION_BAD_ANSWER, call, NULL);
    }
}

/* What is known once stays known. */
static void check_found(struct group *group)
{
    const struct history_call *first = NULL, *saga = NULL;
    for (size_t i = 0; i < group->count; i++) {
        const struct history_call *call = group->calls[i];
        if (says_known(call) && (!first || call->ended_us < first->ended_us))
            first = call;
        if (call->what == HISTORY_SAGA)
            saga = call;
    }
    for (size_t i = 0; first && i < group->count; i++)
        if (failed_with(group->calls[i], "NOT_FOUND") && precedes(first, group->calls[i]))
            cite(group, VIOLATION_LOST_START, first, group->calls[i]);
    if (first && !saga)
        cite(group, VIOLATION_LOST_START, first, NULL);
}

/* What `call` promised, against one later look at the state. */
static void check_state_after(struct group *group, const struct history_call *call,
                              const struct history_call *seen)
{
    if (report_counts(call) && rank_of(seen) < call->rank)
        cite(group, VIOLATION_LOST_FOLLOW_UP, call, seen);
    if (is_ok(call, HISTORY_CANCEL) && (rank_of(seen) == 0 || is(seen->state, "SUCCEEDED")))
        cite(group, VIOLATION_LOST_CANCEL, call, seen);
    if (shows_state(call) &&
        (rank_of(seen) < rank_of(call) || (rank_of(call) == 2 && !is(seen->state, call->state))))
        cite(group, VIOLATION_WENT_BACK, call, seen);
}

static void check_states(struct group *group)
{
    for (size_t i = 0; i < group->count; i++)
        for (size_t j = 0; j < group->count; j++)
            if (shows_state(group->calls[j]) && precedes(group->calls[i], group->calls[j]))
                check_state_after(group, group->calls[i], group->calls[j]);
}

static void check_journal_after(struct group *group, const struct history_call *call,
                                const struct sight *sight)
{
    const struct entry *entry = call->seq >= 0 ? entry_at(sight, call->seq) : NULL;
    if (report_counts(call) && !has_report(sight, call))
        cite(group, VIOLATION_LOST_REPORT, call, sight->call);
    if (call->what == HISTORY_TASK && (!entry || !is(entry->kind, "LEASE")))
        cite(group, VIOLATION_LOST_LEASE, call, sight->call);
}

static void check_journals(struct group *group)
{
    for (size_t i = 0; i < group->count; i++)
        for (size_t j = 0; j < group->sight_count; j++)
            if (group->calls[i]->ended_us < group->sights[j].from_us)
                check_journal_after(group, group->calls[i], &group->sights[j]);
}

/* Entries stay, and so does an outcome. */
static void check_growth(struct group *group)
{
    for (size_t i = 0; i < group->sight_count; i++) {
        for (size_t j = 0; j < group->sight_count; j++) {
            const struct sight *earlier = &group->sights[i], *later = &group->sights[j];
            bool kept = true;
            for (size_t k = 0; k < earlier->count && earlier->to_us < later->from_us; k++) {
                const struct entry *was = &earlier->entries[k], *now = entry_at(later, was->seq);
                kept = kept && now && is(was->kind, now->kind) &&
                       (!*was->outcome || is(was->outcome, now->outcome));
            }
            if (!kept)
                cite(group, VIOLATION_WENT_BACK, earlier->call, later->call);
        }
    }
}

static void check_grants(struct group *group)
{
    for (size_t i = 0; i < group->count; i++)
        for (size_t j = i + 1; j < group->count; j++)
            if (group->calls[i]->what == HISTORY_TASK && group->calls[j]->what == HISTORY_TASK &&
                group->calls[i]->seq == group->calls[j]->seq)
                cite(group, VIOLATION_TWICE_GRANTED, group->calls[i], group->calls[j]);
}

static bool is_reported(const char *outcome)
{
    static const char *const words[] = { "DONE", "ALREADY_DONE", "REJECTED", "RETRY", "UNKNOWN" };
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (is(outcome, words[i]))
            return true;
    return false;
}

static void check_stale(struct group *group)
{
    const struct sight *last = &group->sights[group->sight_count - 1];
    for (size_t i = 0; i < group->count; i++) {
        const struct history_call *call = group->calls[i];
        if (call->what != HISTORY_REPORT)
            continue;
        bool all_stale = true;
        for (size_t j = 0; j < group->count; j++)
            if (group->calls[j]->what == HISTORY_REPORT && group->calls[j]->seq == call->seq)
                all_stale = all_stale && is_ok(group->calls[j], HISTORY_REPORT) &&
                            is(group->calls[j]->answer, "STALE");
        const struct entry *entry = entry_at(last, call->seq);
        if (all_stale && entry && is_reported(entry->outcome))
            cite(group, VIOLATION_STALE_COUNTED, call, NULL);
    }
}

/* --- all keys --------------------------------------------------------------------------------- */

static int judge_key(struct group *group, struct err *err)
{
    int rc = read_sights(group, err);
    if (rc == 0) {
        check_one_saga(group);
        check_cause(group);
        check_input(group);
        check_answers(group);
        check_found(group);
        check_states(group);
        check_journals(group);
        check_growth(group);
        check_grants(group);
        check_stale(group);
    }
    for (size_t i = 0; i < group->sight_count; i++)
        mem_free(group->sights[i].entries);
    mem_free(group->sights);
    return rc;
}

static int compare_keys(const void *a, const void *b)
{
    const struct history_call *left = *(const struct history_call *const *)a,
                              *right = *(const struct history_call *const *)b;
    int order = strcmp(left->key, right->key);
    return order ? order : (left->id > right->id) - (left->id < right->id);
}

int judge(const struct history *history, struct judge_verdict *ret, struct err *err)
{
    *ret = (struct judge_verdict){ 0 };
    CLEANUP(mem_free_p)
    const struct history_call **calls = mem_calloc(history->count + 1, sizeof(void *));
    if (!calls)
        return err_set(err, ERR_NOMEM, "judge");
    for (size_t i = 0; i < history->count; i++) {
        calls[i] = &history->calls[i];
        ret->oks += calls[i]->end == HISTORY_OK && calls[i]->what < HISTORY_SAGA &&
                    calls[i]->what != HISTORY_TASK;
    }
    qsort(calls, history->count, sizeof(void *), compare_keys);
    for (size_t from = 0, to = 0; from < history->count; from = to) {
        while (to < history->count && is(calls[to]->key, calls[from]->key))
            to++;
        struct group group = { .calls = calls + from, .count = to - from, .verdict = ret };
        if (judge_key(&group, err) != 0)
            return (int)err->code;
        ret->keys++;
    }
    return 0;
}

static void print_call(const struct history_call *call, FILE *out)
{
    if (!call) {
        (void)fprintf(out, " (nothing)"); /* as good as it gets: a report of a failure */
        return;
    }
    (void)fprintf(out, " [%s %" PRId64 " at node %" PRId64 " %" PRId64 "..%" PRId64 " %s",
                  history_what_names[call->what], call->id, call->node, call->invoked_us,
                  call->ended_us, history_end_names[call->end]);
    const char *const words[] = { call->uid,   call->input, call->step, call->outcome,
                                  call->state, call->phase, call->kind, call->answer };
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (*words[i])
            (void)fprintf(out, " %s", words[i]);
    if (call->seq >= 0)
        (void)fprintf(out, " seq=%" PRId64, call->seq);
    (void)fprintf(out, " %s]", call->entries ? call->entries : "");
}

void judge_print(const struct judge_verdict *verdict, FILE *out)
{
    for (size_t i = 0; i < verdict->cited_count; i++) {
        const struct judge_cited *cited = &verdict->cited[i];
        const struct history_call *any = cited->a ? cited->a : cited->b;
        (void)fprintf(out, "%s: key %s:", violation_names[cited->violation], any ? any->key : "?");
        print_call(cited->a, out);
        print_call(cited->b, out);
        (void)fprintf(out, "\n");
    }
}
