/* Goal: what follows when an attempt ends is what the design says, for every outcome, class, phase,
 * window, settle time, budget and policy; and core/README.md says the same. Method: each situation
 * is played through the core, in a saga that goes on and in one that is suspended meanwhile; the
 * oracle below was written from the design; the rows of the table take in each situation exactly
 * once. `test_core_decisions --markdown` prints the table for the README. */
#include "core_situation.h"

#include <stdio.h>

/* The table: rows that take in each situation exactly once. */

enum tri { ANY, NO, YES };
enum { TOO_EARLY = TOLD_COUNT }; /* NOT_DONE of a probe that does not count */
#define M(value)      (1U << (value))
#define UNKNOWNS      (M(UNKNOWN) | M(EXPIRED) | M(STREAM_LOST))
#define SILENT        (M(ALREADY_DONE) | M(REJECTED) | M(RETRY) | UNKNOWNS | M(STILL_UNKNOWN))
#define BOTH          (M(ACTION) | M(COMPENSATION))
#define PROBES        (M(PROBE_OF_ACTION) | M(PROBE_OF_COMPENSATION))
#define CLASS_PROBES  (M(WITH_PROBE) | M(WINDOW_WITH_PROBE) | M(PROBED))
#define CLASS_PLAIN   (M(IDEMPOTENT) | M(WINDOW))
#define CLASS_REPEATS (M(IDEMPOTENT) | M(WINDOW) | M(WITH_PROBE) | M(WINDOW_WITH_PROBE))

struct row {
    unsigned ended, told, classes; /* classes 0: any */
    enum tri back, unsettled, again, over, left, killed;
    unsigned on_unknown, on_exhausted; /* 0: any; else 1 + the policy */
    bool stays;
};

/* clang-format off */
static const struct row rows[] = {
    { .ended = M(ACTION), .told = M(DONE) | M(ALREADY_DONE), .back = NO },
    { .ended = BOTH, .told = M(FOREIGN) },
    { .ended = M(ACTION), .told = M(REJECTED), .back = NO, .unsettled = NO },
    { .ended = M(ACTION), .told = M(REJECTED), .back = NO, .unsettled = YES },
    { .ended = BOTH, .told = M(RELEASED), .back = NO, .again = YES },
    { .ended = BOTH, .told = M(RETRY), .back = NO, .unsettled = NO, .again = YES },
    { .ended = M(ACTION), .told = M(RETRY), .back = NO, .unsettled = NO, .again = NO, .on_exhausted = 1 + ON_EXHAUSTED_PARK },
    { .ended = M(ACTION), .told = M(RETRY), .back = NO, .unsettled = NO, .again = NO, .on_exhausted = 1 + ON_EXHAUSTED_COMPENSATE },
    { .ended = M(ACTION), .told = M(RETRY), .back = NO, .unsettled = NO, .again = NO, .on_exhausted = 1 + ON_EXHAUSTED_CONTINUE },
    { .ended = BOTH, .told = M(RETRY) | UNKNOWNS, .classes = CLASS_REPEATS, .back = NO, .unsettled = YES, .again = YES, .killed = NO },
    { .ended = BOTH, .told = M(RETRY) | UNKNOWNS | M(RELEASED), .classes = CLASS_PROBES, .back = NO, .unsettled = YES, .again = NO, .killed = NO },
    { .ended = M(ACTION), .told = M(RETRY) | UNKNOWNS | M(RELEASED), .classes = M(WINDOW), .back = NO, .unsettled = YES, .again = NO,
      .over = YES, .killed = NO, .on_unknown = 1 + ON_UNKNOWN_PARK },
    { .ended = M(ACTION), .told = M(RETRY) | UNKNOWNS, .classes = CLASS_PLAIN | M(AT_MOST_ONCE), .back = NO, .unsettled = YES, .again = NO,
      .over = NO, .killed = NO, .on_unknown = 1 + ON_UNKNOWN_PARK },
    { .ended = M(ACTION), .told = M(RETRY) | UNKNOWNS | M(RELEASED), .classes = CLASS_PLAIN | M(AT_MOST_ONCE), .back = NO, .unsettled = YES,
      .again = NO, .killed = NO, .on_unknown = 1 + ON_UNKNOWN_COMPENSATE },
    { .ended = M(ACTION), .told = M(RETRY) | UNKNOWNS | M(RELEASED), .classes = CLASS_PLAIN | M(AT_MOST_ONCE), .back = NO, .unsettled = YES,
      .again = NO, .killed = NO, .on_unknown = 1 + ON_UNKNOWN_ACCEPT },
    { .ended = BOTH, .told = M(EXPIRED) | M(STREAM_LOST), .classes = CLASS_REPEATS | M(PROBED), .back = NO, .killed = YES },
    { .ended = BOTH, .told = M(STREAM_LOST), .classes = M(PROBED) | M(AT_MOST_ONCE), .stays = true },
    { .ended = M(ACTION), .told = M(DONE) | M(ALREADY_DONE), .back = YES },
    { .ended = M(ACTION), .told = M(REJECTED) | M(RETRY) | M(RELEASED), .back = YES, .unsettled = NO },
    { .ended = M(ACTION), .told = M(REJECTED) | M(RETRY) | M(RELEASED) | UNKNOWNS, .classes = CLASS_REPEATS | M(AT_MOST_ONCE),
      .back = YES, .unsettled = YES },
    { .ended = M(ACTION), .told = M(UNKNOWN) | M(EXPIRED), .classes = M(PROBED), .back = YES },
    { .ended = M(COMPENSATION), .told = M(DONE) | M(ALREADY_DONE) },
    { .ended = M(COMPENSATION), .told = M(REJECTED) },
    { .ended = M(COMPENSATION), .told = M(RETRY), .unsettled = NO, .again = NO },
    { .ended = M(COMPENSATION), .told = M(RETRY) | UNKNOWNS | M(RELEASED), .classes = M(WINDOW), .unsettled = YES, .again = NO, .over = YES, .killed = NO },
    { .ended = M(COMPENSATION), .told = M(RETRY) | UNKNOWNS, .classes = CLASS_PLAIN, .unsettled = YES, .again = NO, .over = NO, .killed = NO },
    { .ended = M(COMPENSATION), .told = M(UNKNOWN) | M(EXPIRED), .classes = M(AT_MOST_ONCE) },
    { .ended = M(PROBE_OF_ACTION), .told = M(DONE), .back = NO },
    { .ended = M(PROBE_OF_ACTION), .told = M(DONE), .back = YES },
    { .ended = M(PROBE_OF_COMPENSATION), .told = M(DONE) },
    { .ended = PROBES, .told = M(NOT_DONE), .back = NO, .again = YES },
    { .ended = M(PROBE_OF_ACTION), .told = M(NOT_DONE), .back = NO, .again = NO, .on_exhausted = 1 + ON_EXHAUSTED_PARK },
    { .ended = M(PROBE_OF_ACTION), .told = M(NOT_DONE), .back = NO, .again = NO, .on_exhausted = 1 + ON_EXHAUSTED_COMPENSATE },
    { .ended = M(PROBE_OF_ACTION), .told = M(NOT_DONE), .back = NO, .again = NO, .on_exhausted = 1 + ON_EXHAUSTED_CONTINUE },
    { .ended = M(PROBE_OF_COMPENSATION), .told = M(NOT_DONE), .again = NO },
    { .ended = M(PROBE_OF_ACTION), .told = M(NOT_DONE), .back = YES },
    { .ended = PROBES, .told = M(TOO_EARLY), .left = YES },
    { .ended = PROBES, .told = M(RELEASED) },
    { .ended = PROBES, .told = SILENT, .left = YES, .killed = NO },
    { .ended = PROBES, .told = M(EXPIRED) | M(STREAM_LOST), .killed = YES },
    { .ended = M(PROBE_OF_ACTION), .told = SILENT | M(TOO_EARLY), .back = NO, .left = NO, .killed = NO, .on_unknown = 1 + ON_UNKNOWN_PARK },
    { .ended = M(PROBE_OF_ACTION), .told = SILENT | M(TOO_EARLY), .back = NO, .left = NO, .killed = NO, .on_unknown = 1 + ON_UNKNOWN_COMPENSATE },
    { .ended = M(PROBE_OF_ACTION), .told = SILENT | M(TOO_EARLY), .back = NO, .left = NO, .killed = NO, .on_unknown = 1 + ON_UNKNOWN_ACCEPT },
    { .ended = M(PROBE_OF_ACTION), .told = SILENT | M(TOO_EARLY), .back = YES, .left = NO, .killed = NO },
    { .ended = M(PROBE_OF_COMPENSATION), .told = SILENT | M(TOO_EARLY), .left = NO, .killed = NO },
};
/* clang-format on */

static bool matches(enum tri tri, bool value)
{
    return tri == ANY || (tri == YES) == value;
}

static bool row_takes_in(const struct row *row, const struct situation *s)
{
    bool unsettled = s->earlier || is_unknown(s->told);
    bool over = unsettled && s->over;
    unsigned told = s->told;
    if (s->told == FOREIGN && s->earlier)
        told = ALREADY_DONE; /* then it is ours */
    if (s->told == NOT_DONE && !s->counts)
        told = TOO_EARLY;
    bool again = !(s->spent && s->told != RELEASED) && !over;
    if (unsettled && !is_idempotent(s->class))
        again = false;
    if (is_probe(s))
        again = s->class != WITH_PROBE; /* of what it asks about */
    bool killed = s->killed && (is_probe(s) || is_idempotent(s->class) || has_probe(s->class));
    bool stays = !is_probe(s) && s->told == STREAM_LOST && !is_idempotent(s->class);
    return (row->ended & M(s->ended)) && (row->told & M(told)) &&
           (!row->classes || (row->classes & M(s->class))) && row->stays == stays &&
           matches(row->back, s->back && !of_undo(s)) && matches(row->unsettled, unsettled) &&
           matches(row->again, again) && matches(row->over, over) &&
           matches(row->left, !s->spent) && matches(row->killed, killed) &&
           (!row->on_unknown || row->on_unknown == 1 + s->on_unknown) &&
           (!row->on_exhausted || row->on_exhausted == 1 + s->on_exhausted);
}

static bool can_be(const struct situation *s)
{
    bool probe_s = s->told == NOT_DONE || s->told == STILL_UNKNOWN;
    bool lost = s->told == EXPIRED || s->told == STREAM_LOST;
    if (is_probe(s) ? s->told == FOREIGN || s->earlier || s->over || !has_probe(s->class)
                    : probe_s || s->counts)
        return false;
    if (of_undo(s) && (!s->back || s->on_unknown || s->on_exhausted))
        return false;
    return (!s->earlier || is_idempotent(s->class)) && (!s->over || has_window(s->class)) &&
           (!s->killed || (lost && !s->parked));
}

/* What each row's situations came to; false: not two different things. */
static struct follows seen[ARRAY_LEN(rows)];
static size_t situations[ARRAY_LEN(rows)], played;

static void sweep_one(const struct situation *s)
{
    struct follows wanted = situation_expected(s), follows = situation_play(s, wanted.not_before);
    size_t row = ARRAY_LEN(rows);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!row_takes_in(&rows[i], s))
            continue;
        if (row < ARRAY_LEN(rows))
            fail_msg("rows %zu and %zu both take it in", row, i);
        row = i;
    }
    played++;
    if (row == ARRAY_LEN(rows) || follows.what != wanted.what || follows.reason != wanted.reason)
        fail_msg(
            "ended %d class %d told %d back %d parked %d earlier %d over %d spent %d counts %d "
            "killed %d policies %d %d: row %zu, wanted %d %d, got %d %d",
            (int)s->ended, (int)s->class, (int)s->told, s->back, s->parked, s->earlier, s->over,
            s->spent, s->counts, s->killed, (int)s->on_unknown, (int)s->on_exhausted, row,
            (int)wanted.what, (int)wanted.reason, (int)follows.what, (int)follows.reason);
    if (situations[row]++ == 0)
        seen[row] = follows;
    if (seen[row].what != follows.what || seen[row].reason != follows.reason ||
        seen[row].not_before != follows.not_before)
        fail_msg("row %zu stands for two different things", row);
}

/* Bit by bit: the yes and no of a situation. */
static void sweep_bits(struct situation s)
{
    enum { BITS = 7 };
    for (unsigned bits = 0; bits < M(BITS); bits++) {
        s.back = bits & 1;
        s.parked = bits & 2;
        s.earlier = bits & 4;
        s.over = bits & 8;
        s.spent = bits & 16;
        s.counts = bits & 32;
        s.killed = bits & 64;
        for (int policies = 0; policies < ON_UNKNOWN_COUNT * ON_EXHAUSTED_COUNT; policies++) {
            s.on_unknown = (enum on_unknown)(policies % ON_UNKNOWN_COUNT);
            s.on_exhausted = (enum on_exhausted)(policies / ON_UNKNOWN_COUNT);
            if (can_be(&s))
                sweep_one(&s);
        }
    }
}

static void sweep(void)
{
    for (int ended = 0; ended < ENDED_COUNT; ended++)
        for (int class = 0; class < CLASS_COUNT; class ++)
            for (int told = 0; told < TOLD_COUNT; told++)
                sweep_bits((struct situation){ .ended = (enum ended)ended,
                                               .class = (enum class) class,
                                               .told = (enum told)told });
}

static void write_item(struct buf *out, bool *first, const char *text)
{
    buf_printf(out, "%s%s", *first ? "" : ", ", text);
    *first = false;
}

static void write_list(struct buf *out, unsigned mask, const char *const *names, size_t count)
{
    bool first = true;
    for (size_t i = 0; i < count; i++)
        if (mask & M(i))
            write_item(out, &first, names[i]);
}

/* The words that the text above the table explains stand for several. */
static void write_told(struct buf *out, unsigned told)
{
    static const char *const names[] = {
        "DONE",
        "ALREADY_DONE ours",
        "ALREADY_DONE not ours",
        "REJECTED",
        "RETRY",
        "UNKNOWN",
        "EXPIRED",
        "STREAM_LOST",
        "RELEASED",
        "NOT_DONE",
        "STILL_UNKNOWN",
        "NOT_DONE too early",
    };
    bool silent = (told & SILENT) == SILENT, unknown = (told & UNKNOWNS) == UNKNOWNS;
    bool first = true;
    if (silent)
        write_item(out, &first, "*nothing that settles*");
    else if (unknown)
        write_item(out, &first, "*unknown*");
    if (silent && (told & ~SILENT) == M(TOO_EARLY))
        return;
    told &= ~(silent ? SILENT : unknown ? UNKNOWNS : 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (told & M(i))
            write_item(out, &first, names[i]);
}

static void write_classes(struct buf *out, unsigned classes)
{
    static const struct {
        unsigned classes;
        const char *name;
    } names[] = {
        { 0, "any" },
        { CLASS_REPEATS, "IDEMPOTENT" },
        { CLASS_REPEATS | M(AT_MOST_ONCE), "any but PROBED" },
        { CLASS_REPEATS | M(PROBED), "any but AT_MOST_ONCE" },
        { CLASS_PROBES, "any with a probe" },
        { CLASS_PLAIN, "IDEMPOTENT without a probe" },
        { CLASS_PLAIN | M(AT_MOST_ONCE), "any without a probe" },
        { M(WINDOW), "IDEMPOTENT without a probe" },
        { M(PROBED), "PROBED" },
        { M(AT_MOST_ONCE), "AT_MOST_ONCE" },
        { M(PROBED) | M(AT_MOST_ONCE), "PROBED, AT_MOST_ONCE" },
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].classes == classes) {
            buf_text(out, names[i].name);
            return;
        }
    fail_msg("no name for classes %u", classes);
}

static void write_ended(struct buf *out, const struct row *row)
{
    static const char *const ended[] = { "action", "compensation", "probe of an action",
                                         "probe of a compensation" };
    if (row->ended == PROBES)
        buf_text(out, "probe");
    else
        write_list(out, row->ended, ended, ARRAY_LEN(ended));
    if (row->back != ANY && (row->ended & (M(ACTION) | M(PROBE_OF_ACTION))))
        buf_text(out, row->back == YES ? ", turned back" : "");
}

static void write_condition(struct buf *out, bool *first, const char *text)
{
    buf_printf(out, "%s%s", *first ? "" : "; ", text);
    *first = false;
}

static void write_conditions(struct buf *out, const struct row *row)
{
    static const char *const unknown[] = { "PARK", "COMPENSATE", "ACCEPT" };
    static const char *const exhausted[] = { "PARK", "COMPENSATE", "CONTINUE" };
    bool first = true;
    char policy[64];
    if (row->unsettled && (row->told & ~UNKNOWNS))
        write_condition(out, &first,
                        row->unsettled == YES ? "something unsettled" : "nothing unsettled");
    if (row->killed == YES)
        write_condition(out, &first, "`lost_leases_max` in a row");
    if (row->over == YES)
        write_condition(out, &first, "window over");
    else if (row->over == NO)
        write_condition(out, &first,
                        row->classes & M(AT_MOST_ONCE) ? "budget spent, or AT_MOST_ONCE"
                                                       : "budget spent");
    else if (row->again)
        write_condition(out, &first, row->again == YES ? "may be repeated" : "may not be repeated");
    if (row->left)
        write_condition(out, &first,
                        row->left == YES ? "probe's budget left" : "probe's budget spent");
    if (row->on_unknown) {
        (void)snprintf(policy, sizeof policy, "on_unknown %s", unknown[row->on_unknown - 1]);
        write_condition(out, &first, policy);
    }
    if (row->on_exhausted) {
        (void)snprintf(policy, sizeof policy, "on_exhausted %s", exhausted[row->on_exhausted - 1]);
        write_condition(out, &first, policy);
    }
}

static void write_row(struct buf *out, const struct row *row, const struct follows *follows)
{
    static const char *const what[] = {
        "done: the next step is due",
        "granted again",
        "its probe is granted",
        "turned back; compensated, with its output",
        "turned back; compensated as `maybe`",
        "turned back; this step needs no compensation",
        "taken back: the step before it is next",
        "goes on, the step unconfirmed (`doubt`)",
        "goes on without the step",
        "parked: ",
        "nothing: the lease stays until it ends",
    };
    static const char *const not_before[] = { "at once", "back-off", "settle time" };
    buf_text(out, "| ");
    write_ended(out, row);
    buf_text(out, " | ");
    write_told(out, row->told);
    buf_text(out, " | ");
    write_classes(out, row->classes);
    buf_text(out, " | ");
    write_conditions(out, row);
    buf_printf(out, " | %s%s | %s |\n", what[follows->what],
               follows->what == PARK ? park_reason_name(follows->reason) : "",
               follows->what == PARK || follows->what == STAYS ? ""
                                                               : not_before[follows->not_before]);
}

static void write_markdown(struct buf *out)
{
    buf_text(out, "| what ended | how | class | where | what follows | not before |\n"
                  "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        write_row(out, &rows[i], &seen[i]);
}

static void test_p4_what_follows_in_every_situation(void **state)
{
    (void)state;
    sweep();
    print_message("%zu situations, %zu rows\n", played, ARRAY_LEN(rows));
    assert_true(played > 3000);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!situations[i])
            fail_msg("row %zu takes in nothing", i);
}

static void test_readme_shows_the_decisions(void **state)
{
    (void)state;
    static const char begin[] = "<!-- decisions: begin -->\n", end[] = "<!-- decisions: end -->";
    CLEANUP(buf_done) struct buf readme = { 0 };
    CLEANUP(buf_done) struct buf table = { 0 };
    FILE *file = fopen(SOURCE_DIR "/orchestrator/core/README.md", "r");
    assert_non_null(file);
    char chunk[4096];
    size_t size;
    while ((size = fread(chunk, 1, sizeof chunk, file)) > 0)
        buf_append(&readme, chunk, size);
    (void)fclose(file); /* it was only read */
    write_markdown(&table);
    assert_false(readme.failed || table.failed);
    const char *from = strstr(buf_cstr(&readme), begin);
    assert_non_null(from);
    from += strlen(begin);
    const char *to = strstr(from, end);
    assert_non_null(to);
    assert_int_equal(to - from, table.size);
    assert_memory_equal(from, buf_cstr(&table), table.size);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--markdown") == 0) {
        sweep();
        CLEANUP(buf_done) struct buf table = { 0 };
        write_markdown(&table);
        return fputs(buf_cstr(&table), stdout) < 0 || table.failed;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p4_what_follows_in_every_situation),
        cmocka_unit_test(test_readme_shows_the_decisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
