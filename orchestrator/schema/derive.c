#include "schema/derive_internal.h"

#include "wire/times.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const time_names[TIME_COUNT] = {
    [TIME_RETRY_FOR] = "retry.for",
    [TIME_RETRY_INITIAL] = "retry.initial",
    [TIME_RETRY_CAP] = "retry.cap",
    [TIME_LEASE] = "lease",
    [TIME_ATTEMPT_TIMEOUT] = "attempt_timeout",
    [TIME_START_TIMEOUT] = "start_timeout",
    [TIME_IDEMPOTENCY_WINDOW] = "idempotency_window",
    [TIME_SETTLE] = "settle_time",
    [TIME_DELAY] = "delay",
    [TIME_SIGNAL_TIMEOUT] = "wait_for_signal.timeout",
};

const char *derive_time_name(enum time_field field)
{
    return time_names[field];
}

void derive_rpc_fault(struct derive *derive, const struct rpc *rpc, const char *field,
                      const char *fmt, ...)
{
    char where[WHERE_BYTES], text[FAULT_BYTES];
    derive_place(derive, rpc, field, where, sizeof where);
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    derive_fault(&derive->faults, where, "%s", text);
}

/* ---- Times ----------------------------------------------------------------------------------- */

/* NULL: nothing is said, or a fault was told. */
static Google__Protobuf__Duration *read_time(struct derive *derive, const struct rpc *rpc,
                                             const char *field, const char *text)
{
    if (!derive_is_said(text))
        return NULL;
    int64_t ms = 0;
    const char *wrong = derive_time_read(text, &ms);
    if (wrong) {
        derive_rpc_fault(derive, rpc, field, "\"%s\" %s", text, wrong);
        return NULL;
    }
    Google__Protobuf__Duration *duration =
        derive_message_new(derive->arena, &google__protobuf__duration__descriptor);
    if (duration)
        duration_from_ms(ms, duration);
    return duration;
}

static void read_times(struct derive *derive)
{
    Google__Protobuf__Duration *defaults[TIME_COUNT];
    for (enum time_field i = 0; i < TIME_COUNT; i++) {
        char field[64];
        (void)snprintf(field, sizeof field, "defaults.%s", time_names[i]);
        defaults[i] = read_time(derive, NULL, field, derive->defaults.times[i]);
    }
    derive->deadline = read_time(derive, NULL, "deadline", derive->saga->deadline);
    for (size_t i = 0; i < derive->rpc_count; i++) {
        struct rpc *rpc = &derive->rpcs[i];
        for (enum time_field t = 0; t < TIME_COUNT; t++) {
            rpc->times[t] = read_time(derive, rpc, time_names[t], rpc->says.times[t]);
            bool is_for_it = t != TIME_START_TIMEOUT || rpc->role == ROLE_STEP;
            if (!rpc->times[t] && is_for_it)
                rpc->times[t] = defaults[t];
        }
    }
}

/* ---- Which rpc belongs to which -------------------------------------------------------------- */

/* NULL: a fault was told. */
static struct rpc *find_named(struct derive *derive, const struct rpc *by, const char *field,
                              const char *name, enum role role)
{
    const char *option = role == ROLE_PROBE ? "probe" : "compensation";
    struct closest closest = derive_closest(&derive->faults, name);
    for (size_t i = 0; i < derive->rpc_count; i++) {
        struct rpc *rpc = &derive->rpcs[i];
        bool is_it = strcmp(rpc->method->name, name) == 0;
        if (is_it && rpc->role == role)
            return rpc;
        if (is_it) {
            derive_rpc_fault(derive, by, field, "%s is no %s: name an rpc that has the option %s",
                             name, option, option);
            return NULL;
        }
        if (rpc->role == role)
            derive_closest_offer(&closest, rpc->method->name);
    }
    char text[HINT_BYTES], otherwise[64];
    (void)snprintf(otherwise, sizeof otherwise, ": name one that has the option %s", option);
    derive_rpc_fault(derive, by, field, "there is no rpc \"%s\" in %s%s", name,
                     derive->service->full_name, derive_hint(&closest, otherwise, text));
    for (size_t i = 0; i < derive->rpc_count && closest.best; i++)
        if (derive->rpcs[i].method->name == closest.best)
            derive->rpcs[i].is_named = true; /* that nobody does would only follow from the typo */
    return NULL;
}

static void link_undo(struct derive *derive, struct rpc *rpc)
{
    const Saga__V1__StepOptions *options = rpc->step;
    if (options->undo_case == SAGA__V1__STEP_OPTIONS__UNDO_COMPENSATED_BY) {
        struct rpc *undo =
            find_named(derive, rpc, "compensated_by", options->compensated_by, ROLE_COMPENSATION);
        if (!undo)
            return;
        if (undo->undoes) {
            derive_rpc_fault(derive, rpc, "compensated_by",
                             "%s takes back %s already, and belongs to that one step: write "
                             "another compensation for this one",
                             undo->method->name, undo->undoes->method->name);
            return;
        }
        undo->is_named = true;
        undo->undoes = rpc;
        rpc->undo = undo;
    } else if (options->undo_case == SAGA__V1__STEP_OPTIONS__UNDO_NO_COMPENSATION) {
        if (!options->no_compensation)
            derive_rpc_fault(derive, rpc, "no_compensation",
                             "must be true: where the step is taken back say compensated_by "
                             "instead");
    } else if (!options->wait_for_signal) {
        derive_rpc_fault(derive, rpc, "compensated_by",
                         "is required: name the rpc that takes this step back, or say "
                         "no_compensation: true");
    }
}

static void link_probe(struct derive *derive, struct rpc *rpc)
{
    if (!derive_is_said(rpc->says.probed_by))
        return;
    struct rpc *probe = find_named(derive, rpc, "probed_by", rpc->says.probed_by, ROLE_PROBE);
    if (!probe)
        return;
    probe->is_named = true;
    rpc->probe = probe;
    const struct schema_message *output = rpc->method->output;
    if (probe->method->output != output)
        derive_rpc_fault(derive, probe, "response",
                         "is %s: must be %s, which %s returns, since a probe answers in its place",
                         probe->method->output->full_name, output->full_name, rpc->method->name);
}

static void link_rpcs(struct derive *derive)
{
    bool all_read = true;
    for (size_t i = 0; i < derive->rpc_count; i++) {
        struct rpc *rpc = &derive->rpcs[i];
        if (rpc->step)
            link_undo(derive, rpc);
        all_read &= rpc->role != ROLE_STEP || rpc->step;
        link_probe(derive, rpc);
    }
    for (size_t i = 0; i < derive->rpc_count && all_read; i++) {
        const struct rpc *rpc = &derive->rpcs[i];
        if (rpc->is_named)
            continue;
        if (rpc->role == ROLE_COMPENSATION)
            derive_rpc_fault(derive, rpc, "",
                             "takes nothing back: name it as compensated_by of its step, or remove "
                             "it");
        else if (rpc->role == ROLE_PROBE)
            derive_rpc_fault(derive, rpc, "",
                             "is asked by nobody: name it as probed_by of an operation, or remove "
                             "it");
    }
}

/* ---- Steps: names and order ------------------------------------------------------------------ */

/* What only an operation has. */
static void check_wait(struct derive *derive, const struct rpc *rpc)
{
    static const char *const absent[] = {
        "compensated_by",     "effect",          "guarded",         "probed_by",
        "settle_time",        "idempotency_key", "on_unknown",      "fresh_key_after_not_done",
        "idempotency_window", "retry",           "lease",           "attempt_timeout",
        "start_timeout",      "handler",         "lost_leases_max",
    };
    for (size_t i = 0; i < ARRAY_LEN(absent); i++)
        if (derive_field_is_set(&rpc->step->base, absent[i]))
            derive_rpc_fault(derive, rpc, absent[i],
                             "must be absent: a step that waits for a signal runs nothing, and has "
                             "nothing to take back");
    if (!flow_is_empty(rpc->method->input))
        derive_rpc_fault(derive, rpc, "request",
                         "is %s: must be google.protobuf.Empty, a step that waits for a signal "
                         "asks nobody",
                         rpc->method->input->full_name);
}

static void read_names(struct derive *derive)
{
    for (size_t i = 0; i < derive->step_count; i++) {
        struct rpc *rpc = derive->steps[i];
        bool is_given = rpc->step && *rpc->step->name;
        rpc->name = is_given ? rpc->step->name : derive_snake(derive->arena, rpc->method->name);
        if (!rpc->name)
            return;
        if (strcmp(rpc->name, "input") == 0)
            derive_rpc_fault(derive, rpc, "name",
                             "must not be \"input\", which is the saga's input in requests: say "
                             "another name");
        for (size_t j = 0; j < i; j++)
            if (strcmp(derive->steps[j]->name, rpc->name) == 0) {
                derive_rpc_fault(derive, rpc, "name",
                                 "\"%s\" is the name of %s, too: say another name", rpc->name,
                                 derive->steps[j]->method->name);
                break;
            }
        derive->flow.steps[i].name = rpc->name;
        derive->flow.steps[i].output.message = rpc->method->output;
    }
}

/* A step by its name, else by that of its rpc; the number of steps: there is none. */
static size_t find_step(const struct derive *derive, const char *name)
{
    for (size_t i = 0; i < derive->step_count; i++)
        if (strcmp(derive->steps[i]->name, name) == 0)
            return i;
    for (size_t i = 0; i < derive->step_count; i++)
        if (strcmp(derive->steps[i]->method->name, name) == 0)
            return i;
    return derive->step_count;
}

static void tell_no_step(struct derive *derive, const struct rpc *rpc, const char *field,
                         const char *name)
{
    struct closest closest = derive_closest(&derive->faults, name);
    for (size_t i = 0; i < derive->step_count; i++) {
        derive_closest_offer(&closest, derive->steps[i]->name);
        derive_closest_offer(&closest, derive->steps[i]->method->name);
    }
    char text[HINT_BYTES];
    derive_rpc_fault(derive, rpc, field, "there is no step \"%s\" in %s%s", name,
                     derive->service->full_name,
                     derive_hint(&closest, ": name a step that stands before this one", text));
}

static bool read_after(struct derive *derive, size_t index, size_t at)
{
    struct rpc *rpc = derive->steps[index];
    const char *name = rpc->step->after[at];
    char field[32];
    (void)snprintf(field, sizeof field, "after[%zu]", at);
    size_t step = find_step(derive, name);
    if (step == derive->step_count) {
        tell_no_step(derive, rpc, field, name);
        return false;
    }
    if (step >= index) {
        derive_rpc_fault(derive, rpc, field,
                         "\"%s\" %s: a step comes after steps that stand before it in the file",
                         name, step == index ? "is this step itself" : "stands below this step");
        return false;
    }
    for (size_t i = 0; i < rpc->after_count; i++)
        if (rpc->after[i] == derive->steps[step]->name) {
            derive_rpc_fault(derive, rpc, field, "\"%s\" is named twice: once is enough", name);
            return false;
        }
    rpc->after[rpc->after_count++] = derive->steps[step]->name;
    flow_comes_after(&derive->flow, index, step);
    return true;
}

static void read_order(struct derive *derive, size_t index)
{
    struct rpc *rpc = derive->steps[index];
    if (!rpc->step) {
        flow_comes_after_all(&derive->flow, index);
        return;
    }
    size_t count = rpc->step->n_after;
    rpc->after = arena_array(derive->arena, count ? count : 1, sizeof *rpc->after);
    if (!rpc->after)
        return;
    bool is_good = !rpc->step->at_start || count == 0;
    if (!is_good)
        derive_rpc_fault(derive, rpc, "at_start",
                         "must be absent: `after` says what the step comes after; leave out one of "
                         "the two");
    for (size_t i = 0; i < count; i++)
        is_good &= read_after(derive, index, i);
    if (!is_good)
        flow_comes_after_all(&derive->flow, index);
    if (count == 0 && !rpc->step->at_start && index > 0) {
        rpc->after[rpc->after_count++] = derive->steps[index - 1]->name;
        flow_comes_after(&derive->flow, index, index - 1);
    }
}

static bool read_steps(struct derive *derive)
{
    size_t count = derive->step_count;
    if (count == 0)
        derive_rpc_fault(derive, NULL, "", "has no step: give an rpc the option step");
    if (count > LIMIT_STEPS)
        derive_rpc_fault(derive, NULL, "", "has %zu steps: at most %d", count, LIMIT_STEPS);
    derive->flow.count = count;
    derive->flow.steps = arena_array(derive->arena, count, sizeof *derive->flow.steps);
    if (!derive->flow.steps || count > LIMIT_STEPS)
        return false;
    read_names(derive);
    for (size_t i = 0; i < count && !derive->arena->oom; i++) {
        const struct rpc *rpc = derive->steps[i];
        if (rpc->step && rpc->step->wait_for_signal)
            check_wait(derive, rpc);
        read_order(derive, i);
    }
    return !derive->arena->oom;
}

/* ---- Input and requests ---------------------------------------------------------------------- */

static void read_input(struct derive *derive)
{
    const char *name = derive->saga->input;
    if (!*name) {
        derive_rpc_fault(derive, NULL, "input",
                         "is required: name the message that starts the saga");
        return;
    }
    const char *package = derive->service->package;
    derive->flow.input.message = schema_message_resolve(derive->schema, package, name);
    if (derive->flow.input.message)
        return;
    struct closest closest = derive_closest(&derive->faults, name);
    size_t scope = strlen(package);
    for (size_t i = 0; i < derive->rpc_count; i++) {
        const char *full = derive->rpcs[i].method->input->full_name;
        bool is_near = scope && strncmp(full, package, scope) == 0 && full[scope] == '.';
        derive_closest_offer(&closest, is_near ? full + scope + 1 : full);
    }
    char text[HINT_BYTES];
    derive_rpc_fault(
        derive, NULL, "input", "there is no message \"%s\"%s", name,
        derive_hint(&closest, " in this file or in what it imports: declare it", text));
}

static void check_templates(struct derive *derive)
{
    char where[WHERE_BYTES], field[32];
    derive_place(derive, NULL, "key", where, sizeof where);
    flow_template_check(&derive->flow, derive->saga->key, where);
    for (size_t i = 0; i < derive->saga->n_labels; i++) {
        (void)snprintf(field, sizeof field, "labels[%zu].value", i);
        derive_place(derive, NULL, field, where, sizeof where);
        flow_template_check(&derive->flow, derive->saga->labels[i]->value, where);
    }
    for (size_t i = 0; i < derive->rpc_count; i++) {
        const struct rpc *rpc = &derive->rpcs[i];
        if (!derive_is_said(rpc->says.idempotency_key))
            continue;
        derive_place(derive, rpc, "idempotency_key", where, sizeof where);
        flow_template_check(&derive->flow, rpc->says.idempotency_key, where);
    }
}

static void check_order(struct derive *derive, const struct rpc *rpc, size_t step, bool undoing)
{
    if (!rpc || !rpc->shape)
        return;
    char where[WHERE_BYTES];
    derive_place(derive, rpc, "request", where, sizeof where);
    for (size_t i = 0; i < rpc->shape->n_fields; i++) {
        const Saga__V1__RequestField *field = rpc->shape->fields[i];
        flow_order_check(&derive->flow, rpc->method->input,
                         schema_field_by_number(rpc->method->input, field->number),
                         flow_source_find(&derive->flow, field->from), step, undoing, where);
    }
}

static void read_requests(struct derive *derive)
{
    for (size_t i = 0; i < derive->rpc_count && !derive->arena->oom; i++) {
        struct rpc *rpc = &derive->rpcs[i];
        if (rpc->role == ROLE_NONE || (rpc->step && rpc->step->wait_for_signal))
            continue;
        char where[WHERE_BYTES];
        derive_place(derive, rpc, "request", where, sizeof where);
        rpc->shape = flow_shape_new(&derive->flow, rpc->method->input, derive->arena, where);
    }
    for (size_t i = 0; i < derive->step_count; i++) {
        const struct rpc *rpc = derive->steps[i];
        check_order(derive, rpc, i, false);
        check_order(derive, rpc->probe, i, false);
        check_order(derive, rpc->undo, i, true);
        check_order(derive, rpc->undo ? rpc->undo->probe : NULL, i, true);
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void read_service(struct derive *derive)
{
    if (!derive_options_read(derive))
        return;
    read_times(derive);
    link_rpcs(derive);
    read_input(derive);
    check_templates(derive);
    if (read_steps(derive))
        read_requests(derive);
}

static void list_methods(const struct derive *derive, struct derived *ret)
{
    size_t count = derive->step_count, size = sizeof(const struct schema_method *);
    const struct schema_method **action_of = arena_array(derive->arena, count, size);
    const struct schema_method **undo_of = arena_array(derive->arena, count, size);
    if (!action_of || !undo_of)
        return;
    for (size_t i = 0; i < count; i++) {
        const struct rpc *rpc = derive->steps[i];
        action_of[i] = rpc->method;
        undo_of[i] = rpc->undo ? rpc->undo->method : NULL;
    }
    ret->action_of = action_of;
    ret->undo_of = undo_of;
}

static int is_too_large(const struct schema_service *service, struct err *err)
{
    return err_set(err, ERR_LIMIT, "%s: its definition needs more memory than it may have",
                   service->full_name);
}

int schema_derive(const struct schema *schema, const struct schema_service *service,
                  struct arena *arena, schema_fault_fn *on_fault, void *ctx, struct derived *ret,
                  size_t *ret_faults, struct err *err)
{
    struct derive *derive = arena_alloc(arena, sizeof *derive);
    if (!derive)
        return is_too_large(service, err);
    *derive = (struct derive){ .schema = schema, .service = service, .arena = arena };
    derive->faults = (struct faults){ .on_fault = on_fault, .ctx = ctx };
    derive->flow.faults = &derive->faults;
    read_service(derive);
    struct derived derived = { .service = service, .origin = derive };
    if (!arena->oom && !derive->faults.count) {
        derived.definition = derive_build(derive);
        list_methods(derive, &derived);
    }
    if (arena->oom)
        return is_too_large(service, err);
    if (!derive->faults.count)
        *ret = derived;
    *ret_faults = derive->faults.count;
    return 0;
}
