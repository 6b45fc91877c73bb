/* Gates: held handlers, rates and caps. A rate is a bucket that time fills; a cap counts the leases
 * and what is on the way to become one. */
#include "dispatch/dispatch_internal.h"

#include <utlist.h>

enum {
    TOKEN = 1000000, /* a task; a rate of n thousandths a second brings n millionths a ms */
    BURST_MS = 100,  /* so much of a rate is kept for later, and a task */
};

bool gate_is_open(const struct dispatch_handler *handler)
{
    const struct dispatch_gate *gate = &handler->gate;
    if (gate->held)
        return handler->trials > 0;
    if (gate->rate_milli && handler->tokens < TOKEN)
        return false;
    return !gate->cap || handler->leased + handler->under_way < gate->cap;
}

void gate_take(struct dispatch_handler *handler)
{
    if (!handler->gated)
        return;
    handler->under_way++;
    if (handler->gate.rate_milli)
        handler->tokens -= TOKEN;
    if (handler->gate.held) {
        handler->trials--;
        handler->trials_out++;
    }
}

void gate_give_back(struct dispatch_handler *handler)
{
    if (!handler->gated)
        return;
    if (handler->under_way)
        handler->under_way--;
    if (handler->gate.rate_milli)
        handler->tokens += TOKEN;
    if (handler->trials_out) {
        handler->trials_out--;
        handler->trials++;
    }
}

void gate_forget(struct dispatch_handler *handler)
{
    if (handler->gated)
        CDL_DELETE2(handler->dispatch->gated, handler, prev_gated, next_gated);
    handler->gated = false;
}

static int64_t tokens_max(const struct dispatch_gate *gate)
{
    return TOKEN + gate->rate_milli * BURST_MS;
}

static void fill(struct dispatch_handler *handler, int64_t mono_ms)
{
    int64_t passed_ms = mono_ms - handler->filled_at, most = tokens_max(&handler->gate);
    if (passed_ms <= 0)
        return;
    handler->filled_at = mono_ms;
    if (passed_ms >= (most - handler->tokens) / handler->gate.rate_milli)
        handler->tokens = most;
    else
        handler->tokens += passed_ms * handler->gate.rate_milli;
}

void dispatch_gate_set(struct dispatch_handler *handler, const struct dispatch_gate *gate,
                       int64_t mono_ms)
{
    bool was_held = handler->gate.held && handler->gate.on_trial;
    bool had_rate = handler->gate.rate_milli != 0;
    bool gated = gate->held || gate->in_order || gate->rate_milli || gate->cap;
    if (had_rate)
        fill(handler, mono_ms); /* by what the rate was until now */
    handler->gate = *gate;
    if (!was_held || !gate->held || !gate->on_trial)
        handler->trials = handler->trials_out = 0;
    if (!had_rate) {
        handler->filled_at = mono_ms;
        handler->tokens = TOKEN;
    }
    if (handler->tokens > tokens_max(gate))
        handler->tokens = tokens_max(gate);
    if (gated && !handler->gated) {
        CDL_APPEND2(handler->dispatch->gated, handler, prev_gated, next_gated);
        handler->gated = true;
        handler->under_way = 0; /* those of before are few, and soon leases */
    } else if (!gated) {
        gate_forget(handler);
    }
    handler_activate(handler);
}

const struct dispatch_gate *dispatch_gate(const struct dispatch_handler *handler)
{
    return &handler->gate;
}

void dispatch_gate_try(struct dispatch_handler *handler)
{
    handler->trials = 1;
    handler->trials_out = 0;
    handler_activate(handler);
}

void dispatch_gates_turn(struct dispatch *dispatch, int64_t mono_ms)
{
    struct dispatch_handler *handler = dispatch->gated;
    if (!handler)
        return;
    do {
        handler->under_way = 0;
        if (handler->gate.rate_milli)
            fill(handler, mono_ms);
        handler_activate(handler);
        handler = handler->next_gated;
    } while (handler != dispatch->gated);
}

int64_t dispatch_gates_due_at(const struct dispatch *dispatch)
{
    int64_t at = INT64_MAX;
    const struct dispatch_handler *handler = dispatch->gated;
    if (!handler)
        return at;
    do {
        int64_t rate = handler->gate.rate_milli, lacks = TOKEN - handler->tokens;
        if (rate && lacks > 0 && !handler->gate.held && handler->ready &&
            dispatch_handler_could(handler)) {
            int64_t due = handler->filled_at + (lacks + rate - 1) / rate;
            at = due < at ? due : at;
        }
        handler = handler->next_gated;
    } while (handler != dispatch->gated);
    return at;
}
