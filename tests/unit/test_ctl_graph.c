/* Goal: the drawing of a definition says what runs after what, what runs beside it, and what is
 * true of each step; for a terminal with and without UTF-8, and for Graphviz. Method: drawings
 * compared as text; random orders drawn, the lines followed with a finger, and held against the
 * order. */
#include "support/check.h"

#include "base/rng.h"
#include "ctl/definition_changes.h"
#include "ctl/definition_graph.h"
#include "wire/json.h"

#include <stdio.h>
#include <string.h>

static void buf_done_p(struct buf *buf)
{
    buf_done(buf);
}

static Saga__V1__SagaDefinition *definition_of(const char *json)
{
    struct err err;
    ProtobufCMessage *message;
    ASSERT_OK(wire_json_decode(json, strlen(json), &saga__v1__saga_definition__descriptor, &message,
                               &err),
              &err);
    return (Saga__V1__SagaDefinition *)message;
}

static void assert_drawn(const char *json, bool utf8, const char *expected)
{
    const struct graph_view view = { .utf8 = utf8 };
    CLEANUP(buf_done_p) struct buf text = { 0 };
    Saga__V1__SagaDefinition *definition = definition_of(json);
    graph_write(definition, &view, &text);
    saga__v1__saga_definition__free_unpacked(definition, NULL);
    if (strcmp(buf_cstr(&text), expected) != 0)
        fail_msg("\n%s--- instead of\n%s", buf_cstr(&text), expected);
}

#define ACT(handler) "\"action\":{\"handler\":\"" handler "\",\"effect\":\"EFFECT_IDEMPOTENT\"}"
#define NO_UNDO      "\"noCompensation\":true"
/* A step of a name, and what it says of its order. */
#define STEP(name, order) "{\"name\":\"" name "\"," ACT("h") "," NO_UNDO order "}"

static void test_what_is_true_of_a_step(void **state)
{
    (void)state;
    assert_drawn(
        "{\"name\":\"x\",\"steps\":["
        "{\"name\":\"debit\",\"guarded\":true," ACT(
            "bank.debit") ",\"compensation\":{\"handler\":"
                          "\"bank.refund\",\"effect\":\"EFFECT_PROBED\",\"probe\":{\"handler\":"
                          "\"bank.ask\"}}},"
                          "{\"name\":\"approved\",\"waitForSignal\":{\"signal\":\"approval\","
                          "\"timeout\":\"86400s\","
                          "\"onExhausted\":\"ON_EXHAUSTED_COMPENSATE\"}," NO_UNDO "},"
                          "{\"name\":\"charge\",\"pivot\":true,\"delay\":\"90s\",\"action\":{"
                          "\"handler\":\"pay\","
                          "\"effect\":\"EFFECT_AT_MOST_ONCE\",\"onUnknown\":\"ON_UNKNOWN_"
                          "COMPENSATE\"}," NO_UNDO "},"
                          "{\"name\":\"tell\",\"action\":{\"handler\":\"mail\",\"effect\":\"EFFECT_"
                          "IDEMPOTENT\","
                          "\"idempotencyWindow\":\"1.5s\",\"onUnknown\":\"ON_UNKNOWN_ACCEPT\","
                          "\"onExhausted\":\"ON_EXHAUSTED_CONTINUE\"}," NO_UNDO "}]}",
        true,
        "  ● debit     IDEMPOTENT via bank.debit, guarded\n"
        "  │           taken back: PROBED via bank.refund, probe bank.ask\n"
        "  ○ approved  waits for signal approval, at most 1d, then turns back\n"
        "  │           nothing to take back\n"
        "  ◆ charge    PIVOT, delayed by 90s, AT_MOST_ONCE via pay\n"
        "  │           nothing to take back; if unknown: turns back\n"
        "  ● tell      IDEMPOTENT via mail, key remembered 1500ms\n"
        "              nothing to take back; if unknown: goes on; optional\n");
}

#define FORK                                                                                       \
    "{\"name\":\"x\",\"steps\":[" STEP("a", "") "," STEP("b", ",\"after\":[\"a\"]") "," STEP(      \
        "c", ",\"after\":[\"a\"]") "," STEP("d",                                                   \
                                            ",\"after\":[\"a\"]") "," STEP("e",                    \
                                                                           ",\"after\":["          \
                                                                           "\"b\",\"c\",\"d\","    \
                                                                           "\"a\"]") "]}"

static void test_steps_beside_each_other(void **state)
{
    (void)state;
    assert_drawn(FORK, true,
                 "  ●     a  IDEMPOTENT via h\n"
                 "  │        nothing to take back\n"
                 "  ├─┬─╮\n"
                 "  ● │ │ b  IDEMPOTENT via h\n"
                 "  │ │ │    nothing to take back\n"
                 "  │ ● │ c  IDEMPOTENT via h\n"
                 "  │ │ │    nothing to take back\n"
                 "  │ │ ● d  IDEMPOTENT via h\n"
                 "  │ │ │    nothing to take back\n"
                 "  ├─┴─╯\n"
                 "  ●     e  IDEMPOTENT via h\n"
                 "           nothing to take back\n");
    assert_drawn(FORK, false,
                 "  *     a  IDEMPOTENT via h\n"
                 "  |        nothing to take back\n"
                 "  +-+-.\n"
                 "  * | | b  IDEMPOTENT via h\n"
                 "  | | |    nothing to take back\n"
                 "  | * | c  IDEMPOTENT via h\n"
                 "  | | |    nothing to take back\n"
                 "  | | * d  IDEMPOTENT via h\n"
                 "  | | |    nothing to take back\n"
                 "  +-+-'\n"
                 "  *     e  IDEMPOTENT via h\n"
                 "           nothing to take back\n");
}

static void test_lines_that_cross_and_steps_at_the_start(void **state)
{
    (void)state;
    assert_drawn(
        "{\"name\":\"x\",\"steps\":[" STEP("a", "") "," STEP("b", ",\"atStart\":true") "," STEP(
            "c", ",\"atStart\":true") "," STEP("d",
                                               ",\"after\":[\"a\",\"c\"]") "," STEP("e",
                                                                                    ",\"after\":["
                                                                                    "\"b\"]") "]}",
        true,
        "  ●     a  IDEMPOTENT via h\n"
        "  │        nothing to take back\n"
        "  │ ●   b  IDEMPOTENT via h\n"
        "  │ │      nothing to take back\n"
        "  │ │ ● c  IDEMPOTENT via h\n"
        "  │ │ │    nothing to take back\n"
        "  ├─│─╯\n"
        "  ● │   d  IDEMPOTENT via h\n"
        "    │      nothing to take back\n"
        "    ●   e  IDEMPOTENT via h\n"
        "           nothing to take back\n");
}

/* Step "s0" and others, of which `after` says what they come after. */
static void write_order(size_t count, const struct step_set *after, struct buf *out)
{
    buf_text(out, "{\"name\":\"x\",\"steps\":[");
    for (size_t i = 0; i < count; i++) {
        const char *comma = "";
        buf_printf(out, "%s{\"name\":\"s%zu\"," ACT("h") "," NO_UNDO ",\"after\":[", i ? "," : "",
                   i);
        for (size_t j = 0; j < i; j++) {
            if (!step_set_has(&after[i], j))
                continue;
            buf_printf(out, "%s\"s%zu\"", comma, j);
            comma = ",";
        }
        buf_printf(out, "]%s}", *comma ? "" : ",\"atStart\":true");
    }
    buf_text(out, "]}");
}

static void test_too_many_lines_are_told_as_text(void **state)
{
    (void)state;
    struct step_set after[16] = { { { 0 } } };
    CLEANUP(buf_done_p) struct buf json = { 0 };
    CLEANUP(buf_done_p) struct buf text = { 0 };
    const struct graph_view view = { .utf8 = true };
    for (size_t i = 1; i < 14; i++)
        step_set_add(&after[i], 0);
    step_set_add(&after[14], 3);
    step_set_add(&after[14], 4);
    write_order(16, after, &json);
    Saga__V1__SagaDefinition *definition = definition_of(buf_cstr(&json));
    graph_write(definition, &view, &text);
    saga__v1__saga_definition__free_unpacked(definition, NULL);
    assert_non_null(strstr(buf_cstr(&text), "  ● s2   IDEMPOTENT via h\n"
                                            "         nothing to take back\n"
                                            "    after s0\n"
                                            "  ● s3   IDEMPOTENT"));
    assert_non_null(strstr(buf_cstr(&text), "    after s3, s4\n  ● s15  "));
    assert_non_null(strstr(buf_cstr(&text), "    at the start\n"));
    assert_null(strstr(buf_cstr(&text), "│"));
}

/* --- following the lines ---------------------------------------------------------------------- */

enum { ROWS_MAX = 64, COLUMNS_MAX = 40, STEPS_MAX = 12 };

struct grid {
    char cells[ROWS_MAX][COLUMNS_MAX]; /* | - + ( fork: v last ), ( join: ^ last j ), * */
    int step[ROWS_MAX];                /* whose row it is; -1: nobody's */
    size_t rows;
};

static const struct {
    const char *drawn;
    char cell;
} cells[] = { { "│", '|' }, { "─", '-' }, { "├", '+' }, { "┬", 'v' }, { "╮", ')' },
              { "┴", '^' }, { "╯", 'j' }, { "●", '*' }, { " ", ' ' } };

static void grid_read(const char *text, struct grid *grid)
{
    *grid = (struct grid){ .rows = 0 };
    while (*text) {
        assert_true(grid->rows < ROWS_MAX);
        grid->step[grid->rows] = -1;
        for (size_t column = 0; *text != '\n'; column++) {
            size_t i = 0;
            while (i < ARRAY_LEN(cells) &&
                   strncmp(text, cells[i].drawn, strlen(cells[i].drawn)) != 0)
                i++;
            if (i == ARRAY_LEN(cells)) { /* words: only a node's row has a name */
                (void)sscanf(text, "s%d", &grid->step[grid->rows]);
                text = strchr(text, '\n');
                break;
            }
            assert_true(column < COLUMNS_MAX);
            grid->cells[grid->rows][column] = cells[i].cell;
            text += strlen(cells[i].drawn);
        }
        text++;
        grid->rows++;
    }
}

/* Everything that the lines below a cell lead to. */
static void follow(const struct grid *grid, size_t row, size_t column, struct step_set *ret)
{
    for (; row < grid->rows; row++) {
        char cell = grid->cells[row][column];
        if (cell == '*') {
            assert_true(grid->step[row] >= 0);
            step_set_add(ret, (size_t)grid->step[row]);
            return;
        }
        if (cell == '+') { /* a fork goes on to the right, too */
            for (size_t i = column + 1; i < COLUMNS_MAX && grid->cells[row][i]; i++) {
                char right = grid->cells[row][i];
                if (right == 'v' || right == ')')
                    follow(grid, row + 1, i, ret);
                if (right == '^' || right == 'j' || right == ')')
                    break;
            }
        } else if (cell == '^' || cell == 'j') { /* to the left, until it arrives */
            while (grid->cells[row][column] != '+')
                column--;
        } else {
            assert_int_equal(cell, '|');
        }
    }
    fail_msg("a line leads nowhere");
}

/* What comes next after a step: nothing, where no line goes on below it. */
static void followers(const struct grid *grid, int step, struct step_set *ret)
{
    size_t row = 0, column = 0;
    *ret = (struct step_set){ { 0 } };
    while (grid->step[row] != step)
        row++;
    while (grid->cells[row][column] != '*')
        column++;
    if (grid->cells[row + 1][column] == '|')
        follow(grid, row + 1, column, ret);
}

static void assert_lines_tell(const Saga__V1__SagaDefinition *definition, const char *drawing)
{
    struct grid grid;
    struct graph_order order;
    struct step_set next, found;
    graph_order_read(definition, &order);
    grid_read(drawing, &grid);
    for (size_t i = 0; i < order.count; i++) {
        next = (struct step_set){ { 0 } };
        for (size_t j = i + 1; j < order.count; j++)
            if (step_set_has(&order.after[j], i))
                step_set_add(&next, j);
        followers(&grid, (int)i, &found);
        if (!step_set_holds(&next, &found) || !step_set_holds(&found, &next))
            fail_msg("what comes after s%zu is drawn wrong:\n%s", i, drawing);
    }
}

static void test_lines_of_random_orders_lead_where_the_order_says(void **state)
{
    (void)state;
    struct rng rng;
    size_t drawn = 0, widest = 0;
    rng_seed(&rng, 51724);
    for (unsigned round = 0; round < 3000; round++) {
        struct step_set after[STEPS_MAX] = { { { 0 } } };
        size_t count = 2 + rng_below(&rng, STEPS_MAX - 1);
        CLEANUP(buf_done_p) struct buf json = { 0 };
        CLEANUP(buf_done_p) struct buf text = { 0 };
        const struct graph_view view = { .utf8 = true };
        for (size_t i = 1; i < count; i++)
            for (uint64_t j = rng_below(&rng, 4); j > 0; j--)
                step_set_add(&after[i], rng_below(&rng, i));
        write_order(count, after, &json);
        Saga__V1__SagaDefinition *definition = definition_of(buf_cstr(&json));
        graph_write(definition, &view, &text);
        if (!strstr(buf_cstr(&text), "after s")) { /* else there were too many lines */
            assert_lines_tell(definition, buf_cstr(&text));
            size_t width = strcspn(buf_cstr(&text), "s");
            widest = width > widest ? width : widest;
            drawn++;
        }
        saga__v1__saga_definition__free_unpacked(definition, NULL);
    }
    assert_true(drawn > 2500 && widest > 12);
}

/* --- Graphviz --------------------------------------------------------------------------------- */

static void test_a_digraph_is_quoted(void **state)
{
    (void)state;
    CLEANUP(buf_done_p) struct buf text = { 0 };
    Saga__V1__SagaDefinition *definition = definition_of(
        "{\"name\":\"a \\\"b\\\"\\\\\",\"steps\":["
        "{\"name\":\"x\\\";\\n\",\"guarded\":true," ACT(
            "h") ",\"compensation\":{\"handler\":\"u\","
                 "\"effect\":\"EFFECT_AT_MOST_ONCE\"}},"
                 "{\"name\":\"y\\\\n\",\"pivot\":true,\"delay\":\"3600s\"," ACT(
                     "h") "," NO_UNDO "},"
                          "{\"name\":\"z\",\"waitForSignal\":{\"signal\":\"go\"}," NO_UNDO "}]}");
    graph_write_dot(definition, &text);
    saga__v1__saga_definition__free_unpacked(definition, NULL);
    assert_string_equal(
        buf_cstr(&text),
        "digraph \"a \\\"b\\\"\\\\\" {\n"
        "  node [shape=box, style=rounded];\n"
        "  \"x\\\"; \" [label=\"x\\\"; \\nIDEMPOTENT, guarded\\ntaken back: AT_MOST_ONCE\"];\n"
        "  \"y\\\\n\" [label=\"y\\\\n\\nIDEMPOTENT, delayed by 1h\", peripheries=2];\n"
        "  \"z\" [label=\"z\\nwaits for signal go\", style=dashed];\n"
        "  \"x\\\"; \" -> \"y\\\\n\";\n"
        "  \"y\\\\n\" -> \"z\";\n"
        "}\n");
}

static void test_the_locale_says_whether_lines_can_be_drawn(void **state)
{
    (void)state;
    assert_int_equal(setenv("LC_ALL", "C.UTF-8", 1), 0);
    assert_true(graph_view_of(false).utf8);
    assert_int_equal(setenv("LC_ALL", "C", 1), 0);
    assert_false(graph_view_of(false).utf8);
    assert_int_equal(setenv("LC_ALL", "xx_XX.UTF-8", 1), 0);
    assert_false(graph_view_of(false).utf8); /* there is no such locale */
}

/* --- what changed ----------------------------------------------------------------------------- */

static void test_the_gravest_change_comes_first_in_its_colour(void **state)
{
    (void)state;
    for (int color = 0; color < 2; color++) {
        struct changes changes = { .color = color };
        CLEANUP(buf_done_p) struct buf text = { 0 };
        changes_add(&changes, DIFF_NOTE, "description", "was \"a\", is \"\033b\"");
        changes_add(&changes, DIFF_WARNING, "deadline", "later");
        changes_add(&changes, DIFF_BREAKING, "key", "other");
        changes_add(&changes, DIFF_WARNING, "steps.a.delay", "longer");
        changes_write(&changes, &text);
        assert_string_equal(buf_cstr(&text),
                            color ? "\033[31mBREAKING\033[0m  key: other\n"
                                    "\033[33mWARNING\033[0m   deadline: later\n"
                                    "\033[33mWARNING\033[0m   steps.a.delay: longer\n"
                                    "\033[2mNOTE\033[0m      description: was \"a\", is \"?b\"\n"
                                  : "BREAKING  key: other\n"
                                    "WARNING   deadline: later\n"
                                    "WARNING   steps.a.delay: longer\n"
                                    "NOTE      description: was \"a\", is \"?b\"\n");
        buf_clear(&text);
        changes_write_counts(&changes.counts, &text);
        assert_string_equal(buf_cstr(&text), "1 breaking change, 2 warnings, 1 note");
        changes_done(&changes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_true_of_a_step),
        cmocka_unit_test(test_steps_beside_each_other),
        cmocka_unit_test(test_lines_that_cross_and_steps_at_the_start),
        cmocka_unit_test(test_too_many_lines_are_told_as_text),
        cmocka_unit_test(test_lines_of_random_orders_lead_where_the_order_says),
        cmocka_unit_test(test_a_digraph_is_quoted),
        cmocka_unit_test(test_the_gravest_change_comes_first_in_its_colour),
        cmocka_unit_test(test_the_locale_says_whether_lines_can_be_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
