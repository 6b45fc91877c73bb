#include "ctl/definition_graph.h"

#include "ctl/names.h"
#include "wire/times.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

struct graph_view graph_view_of(bool color)
{
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    struct graph_view view = { .color = color };
    if (!locale)
        return view;
    view.utf8 = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
    return view;
}

/* --- lanes ---------------------------------------------------------------------------------------
 * A lane is a line from a step down to one that comes after it. */

enum { LANES_MAX = 12, NO_STEP = -1 };

struct lanes {
    const struct graph_order *order;
    int to[LANES_MAX]; /* the step that it leads to; NO_STEP: free */
    size_t width;      /* the highest lane that was ever used, plus 1 */
    bool too_many;
};

/* The first free lane from `from` on; LANES_MAX: there is none. */
static size_t lane_take(struct lanes *lanes, size_t from, int to)
{
    size_t lane = from;
    while (lane < LANES_MAX && lanes->to[lane] != NO_STEP)
        lane++;
    if (lane == LANES_MAX) {
        lanes->too_many = true;
        return lane;
    }
    lanes->to[lane] = to;
    if (lane >= lanes->width)
        lanes->width = lane + 1;
    return lane;
}

/* The lanes that lead to the step: the first of them, and the others as bits. */
static size_t lanes_arriving(const struct lanes *lanes, size_t step, unsigned *ret_others)
{
    size_t first = LANES_MAX;
    *ret_others = 0;
    for (size_t lane = 0; lane < LANES_MAX; lane++) {
        if (lanes->to[lane] != (int)step)
            continue;
        if (first == LANES_MAX)
            first = lane;
        else
            *ret_others |= 1U << lane;
    }
    return first;
}

/* Lines to all that come after the step: the first goes on in its lane; *ret_new: the lanes of the
 * others. */
static void lanes_leave(struct lanes *lanes, size_t step, size_t lane, unsigned *ret_new)
{
    *ret_new = 0;
    lanes->to[lane] = NO_STEP;
    for (size_t i = step + 1; i < lanes->order->count; i++) {
        if (!step_set_has(&lanes->order->after[i], step))
            continue;
        if (lanes->to[lane] == NO_STEP) {
            lanes->to[lane] = (int)i;
            continue;
        }
        size_t taken = lane_take(lanes, lane + 1, (int)i);
        if (taken < LANES_MAX)
            *ret_new |= 1U << taken;
    }
}

/* --- rows ------------------------------------------------------------------------------------- */

enum glyph {
    GLYPH_LINE,
    GLYPH_SIDE,
    GLYPH_TEE,
    GLYPH_FORK,
    GLYPH_FORK_LAST,
    GLYPH_JOIN,
    GLYPH_JOIN_LAST,
    GLYPH_STEP,
    GLYPH_WAIT,
    GLYPH_PIVOT,
};

static const char *glyph(const struct graph_view *view, enum glyph glyph)
{
    static const char *const utf8[] = { "│", "─", "├", "┬", "╮", "┴", "╯", "●", "○", "◆" };
    static const char *const ascii[] = { "|", "-", "+", "+", ".", "+", "'", "*", "o", "#" };
    return view->utf8 ? utf8[glyph] : ascii[glyph];
}

struct drawing {
    const struct graph_view *view;
    struct lanes lanes;
    size_t columns; /* of lanes, in every row; 0: none is drawn */
    int name_width;
    struct buf *out;
};

/* The lanes of a row in which none begins or ends; in `lane` there is `node` instead (NULL: no). */
static void write_lanes(const struct drawing *drawing, size_t lane, const char *node,
                        unsigned hidden)
{
    buf_text(drawing->out, "  ");
    if (!drawing->columns)
        buf_printf(drawing->out, "%s ", node ? node : " ");
    for (size_t i = 0; i < drawing->columns; i++) {
        bool open = drawing->lanes.to[i] != NO_STEP && !(hidden >> i & 1);
        const char *line = open ? glyph(drawing->view, GLYPH_LINE) : " ";
        buf_printf(drawing->out, "%s ", i == lane && node ? node : line);
    }
}

/* A row in which lanes leave `lane` or arrive there, all of them right of it. */
static void write_junction(const struct drawing *drawing, size_t lane, unsigned others, bool fork)
{
    const struct graph_view *view = drawing->view;
    size_t last = lane, end = lane;
    for (size_t i = 0; i < drawing->columns; i++) {
        if (others >> i & 1)
            last = i;
        if (others >> i & 1 || (i > lane && drawing->lanes.to[i] != NO_STEP))
            end = i;
    }
    buf_text(drawing->out, "  ");
    for (size_t i = 0; i <= end; i++) {
        bool between = i > lane && i < last;
        const char *line = between ? glyph(view, GLYPH_SIDE) : " ";
        if (drawing->lanes.to[i] != NO_STEP)
            line = glyph(view, GLYPH_LINE); /* it crosses, or is beside all this */
        if (i == lane)
            line = glyph(view, GLYPH_TEE);
        else if (others >> i & 1)
            line = glyph(view, i == last ? (fork ? GLYPH_FORK_LAST : GLYPH_JOIN_LAST)
                                         : (fork ? GLYPH_FORK : GLYPH_JOIN));
        buf_text(drawing->out, line);
        if (i < end)
            buf_text(drawing->out, i >= lane && i < last ? glyph(view, GLYPH_SIDE) : " ");
    }
    buf_text(drawing->out, "\n");
}

/* --- what is said of a step ------------------------------------------------------------------- */

void graph_write_span(const Google__Protobuf__Duration *duration, struct buf *out)
{
    static const struct unit {
        int64_t ms;
        const char *name;
    } units[] = { { 24 * 3600 * 1000, "d" },
                  { 3600 * 1000, "h" },
                  { 60 * 1000, "m" },
                  { 1000, "s" },
                  { 1, "ms" } };
    if (!duration || !duration_is_valid(duration)) {
        buf_text(out, "-");
        return;
    }
    int64_t ms = duration_to_ms(duration);
    const struct unit *unit = units;
    while (ms ? ms % unit->ms : unit->ms != 1000)
        unit++;
    buf_printf(out, "%" PRId64 "%s", ms / unit->ms, unit->name);
}

static void write_operation(const Saga__V1__Operation *operation, struct buf *out)
{
    buf_printf(out, "%s via ", name_effect(operation->effect));
    screen_text(out, operation->handler);
    if (operation->probe) {
        buf_text(out, ", probe ");
        screen_text(out, operation->probe->handler);
    }
    if (operation->idempotency_window) {
        buf_text(out, ", key remembered ");
        graph_write_span(operation->idempotency_window, out);
    }
}

static const char *name_exhausted(Saga__V1__OnExhausted policy)
{
    switch (policy) {
    case SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_COMPENSATE:
        return "turns back";
    case SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_CONTINUE:
        return "left out";
    default:
        return "parked";
    }
}

static void write_wait(const Saga__V1__SignalWait *wait, struct buf *out)
{
    buf_text(out, "waits for signal ");
    screen_text(out, wait->signal);
    if (wait->timeout) {
        buf_text(out, ", at most ");
        graph_write_span(wait->timeout, out);
        buf_printf(out, ", then %s", name_exhausted(wait->on_exhausted));
    }
}

/* "PIVOT, after 5m, AT_MOST_ONCE via bank.charge, guarded" */
static void write_action(const Saga__V1__Step *step, struct buf *out)
{
    if (step->pivot)
        buf_text(out, "PIVOT, ");
    if (step->delay && (step->delay->seconds || step->delay->nanos)) {
        buf_text(out, "delayed by ");
        graph_write_span(step->delay, out);
        buf_text(out, ", ");
    }
    if (step->wait_for_signal)
        write_wait(step->wait_for_signal, out);
    else if (step->action)
        write_operation(step->action, out);
    if (step->guarded)
        buf_text(out, ", guarded");
}

/* "taken back: IDEMPOTENT via bank.refund; if unknown turns back; without success left out" */
static void write_undo(const Saga__V1__Step *step, struct buf *out)
{
    const Saga__V1__Operation *action = step->action;
    if (step->undo_case == SAGA__V1__STEP__UNDO_COMPENSATION && step->compensation) {
        buf_text(out, "taken back: ");
        write_operation(step->compensation, out);
    } else {
        buf_text(out, "nothing to take back");
    }
    if (action && action->on_unknown == SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_COMPENSATE)
        buf_text(out, "; if unknown: turns back");
    if (action && action->on_unknown == SAGA__V1__ON_UNKNOWN__ON_UNKNOWN_ACCEPT)
        buf_text(out, "; if unknown: goes on");
    if (action && action->on_exhausted == SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_COMPENSATE)
        buf_text(out, "; if tries are spent: turns back");
    if (action && action->on_exhausted == SAGA__V1__ON_EXHAUSTED__ON_EXHAUSTED_CONTINUE)
        buf_text(out, "; optional");
}

/* --- the whole -------------------------------------------------------------------------------- */

static enum glyph glyph_of(const Saga__V1__Step *step)
{
    return step->pivot ? GLYPH_PIVOT : step->wait_for_signal ? GLYPH_WAIT : GLYPH_STEP;
}

/* Where there are no lanes: what the step comes after, if it is not just the one above. */
static void write_after(const struct drawing *drawing, const Saga__V1__SagaDefinition *definition,
                        size_t step)
{
    struct step_set only = { { 0 } };
    const struct step_set *after = &drawing->lanes.order->after[step];
    const char *comma = "after ";
    if (step > 0)
        step_set_add(&only, step - 1);
    if (step_set_holds(after, &only) && step_set_holds(&only, after))
        return;
    buf_text(drawing->out, "    ");
    for (size_t i = 0; i < step; i++) {
        if (!step_set_has(after, i))
            continue;
        buf_text(drawing->out, comma);
        screen_text(drawing->out, definition->steps[i]->name);
        comma = ", ";
    }
    buf_text(drawing->out, *comma == 'a' ? "at the start\n" : "\n");
}

static void write_step(const struct drawing *drawing, const Saga__V1__Step *step, size_t lane)
{
    struct buf *out = drawing->out;
    size_t padding = (size_t)drawing->name_width - strlen(step->name) + 2;
    write_lanes(drawing, lane, glyph(drawing->view, glyph_of(step)), 0);
    screen_styled(out, step->name, step->pivot ? STYLE_BUSY : STYLE_BOLD, drawing->view->color);
    buf_printf(out, "%*s", (int)padding, "");
    write_action(step, out);
    buf_text(out, "\n");
}

/* The line below a step; lanes that begin with it are yet to be seen. */
static void write_below(const struct drawing *drawing, const Saga__V1__Step *step, unsigned fresh)
{
    CLEANUP(buf_done) struct buf undo = { 0 };
    write_undo(step, &undo);
    write_lanes(drawing, 0, NULL, fresh);
    buf_printf(drawing->out, "%*s", drawing->name_width + 2, "");
    screen_styled(drawing->out, buf_cstr(&undo), STYLE_FAINT, drawing->view->color);
    buf_text(drawing->out, "\n");
}

static void draw(struct drawing *drawing, const Saga__V1__SagaDefinition *definition)
{
    struct lanes *lanes = &drawing->lanes;
    for (size_t i = 0; i < LANES_MAX; i++)
        lanes->to[i] = NO_STEP;
    for (size_t i = 0; i < lanes->order->count && !lanes->too_many; i++) {
        unsigned others = 0, fresh = 0;
        size_t lane = lanes_arriving(lanes, i, &others);
        if (lane == LANES_MAX && (lane = lane_take(lanes, 0, (int)i)) == LANES_MAX)
            break;
        for (size_t j = 0; j < LANES_MAX; j++)
            if (others >> j & 1)
                lanes->to[j] = NO_STEP;
        if (others)
            write_junction(drawing, lane, others, false);
        write_step(drawing, definition->steps[i], lane);
        lanes_leave(lanes, i, lane, &fresh);
        write_below(drawing, definition->steps[i], fresh);
        if (fresh)
            write_junction(drawing, lane, fresh, true);
    }
}

static void list(const struct drawing *drawing, const Saga__V1__SagaDefinition *definition)
{
    for (size_t i = 0; i < drawing->lanes.order->count; i++) {
        write_step(drawing, definition->steps[i], 0);
        write_below(drawing, definition->steps[i], 0);
        write_after(drawing, definition, i);
    }
}

void graph_write(const Saga__V1__SagaDefinition *definition, const struct graph_view *view,
                 struct buf *out)
{
    CLEANUP(buf_done) struct buf nowhere = { 0 };
    struct graph_order order;
    graph_order_read(definition, &order);
    struct drawing drawing = { .view = view, .lanes.order = &order, .columns = LANES_MAX };
    for (size_t i = 0; i < order.count; i++)
        if ((int)strlen(definition->steps[i]->name) > drawing.name_width)
            drawing.name_width = (int)strlen(definition->steps[i]->name);
    drawing.out = &nowhere; /* once, to see how wide it is */
    draw(&drawing, definition);
    drawing.out = out;
    drawing.columns = drawing.lanes.too_many ? 0 : drawing.lanes.width;
    if (drawing.columns)
        draw(&drawing, definition);
    else
        list(&drawing, definition);
    if (order.count < definition->n_steps)
        buf_printf(out, "  and %zu more steps\n", definition->n_steps - order.count);
}
