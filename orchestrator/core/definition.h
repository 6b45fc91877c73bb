/* A definition as the core runs it: plain data with every default filled in, immutable once made.
 * Decides whether a definition is allowed. Never: I/O, clock. Any thread. */
#ifndef CORE_DEFINITION_H
#define CORE_DEFINITION_H

#include "base/err.h"
#include "core/limits.h"
#include "core/payload_types.h"
#include "core/step_set.h"
#include "core/words.h"

#include <stddef.h>
#include <stdint.h>

enum {
    DEFAULT_RETRY_FOR_MS = 24 * 3600 * 1000,
    DEFAULT_RETRY_INITIAL_MS = 1000,
    DEFAULT_RETRY_CAP_MS = 60 * 1000,
    DEFAULT_LEASE_MS = 30 * 1000,
    DEFAULT_ATTEMPT_TIMEOUT_MS = 5 * 60 * 1000,
    DEFAULT_LOST_LEASES_MAX = 3,
};

struct held_times; /* core/handler.h */

struct retry {
    int64_t for_ms, initial_ms, cap_ms;
    uint32_t max_attempts; /* 0: the time budget alone decides */
};

/* What a task carries as its request: fields that are filled with what is stored, each with its tag
 * and length. No fields: the saga's input as it is, or nothing (is_empty). */
enum { FROM_INPUT = -1 };
struct request_field {
    uint32_t number; /* ascending */
    int from;        /* a step, whose output it is; FROM_INPUT */
};
struct request_shape {
    char *type; /* full name of the message; NULL: the definition says nothing of the request */
    bool is_empty;
    struct request_field *fields;
    size_t field_count;
};

/* An action, a compensation, or the probe of one. A probe has no effect (IDEMPOTENT), no probe of
 * its own, and follows the policies of what it probes. */
struct operation_rule {
    char *handler;      /* owned by the definition, as all strings here */
    enum effect effect; /* EFFECT_COUNT: not given, which definition_check refuses */
    struct retry retry;
    int64_t lease_ms, attempt_timeout_ms;
    int64_t start_timeout_ms; /* 0: none */
    enum on_unknown on_unknown;
    enum on_exhausted on_exhausted;
    int64_t window_ms;            /* how long the other side remembers the key; 0: for ever */
    int32_t lost_leases_max;      /* WORKER_KILLER */
    bool fresh_key;               /* a settled NOT_DONE makes the next generation of the key */
    struct operation_rule *probe; /* owned; NULL: none */
    struct request_shape request;
    char *output_type;  /* full name of the message; NULL: bytes that nobody looks into */
    char *key_template; /* idempotency key, made of the saga's input; NULL: of its identity */
    /* When its handler was braked, as whoever runs the definition knows it; borrowed, and not of
     * the definition's content. NULL: never. */
    const struct held_times *held;
};

struct step_rule {
    char *name;
    /* The signal that it waits for; NULL: none, it has work. Of `action` such a step has only the
     * output's type (the payload's), on_exhausted, and the time-out as start_timeout_ms; its
     * handler is "". */
    char *signal;
    struct operation_rule action;
    bool has_compensation; /* false: the definition says that there is nothing to take back */
    struct operation_rule compensation;
    bool guarded;
    int64_t settle_ms; /* -1: not given, where nothing asks for it */
    /* Steps that stand before it and must be over first: those that it names, and with all that
     * those come after. definition_new makes a sequence, definition_order the second of the first.
     */
    struct step_set after, after_all;
    bool pivot;       /* the point of no return */
    int64_t delay_ms; /* from when it could run; 0: none */
};

struct label_template {
    char *name, *value; /* the value made of the saga's input */
};

struct definition {
    char *namespace_, *name, *description;
    int32_t revision; /* 0 until stored */
    struct step_rule *steps;
    size_t step_count;
    int pivot;           /* its step; -1: none */
    int64_t deadline_ms; /* 0: none */
    enum on_deadline on_deadline;
    int64_t max_running; /* sagas at a time that ingest starts up to; 0: no limit */
    enum publish publish;
    char *input_type;   /* full name of the message; NULL: bytes that nobody looks into */
    char *key_template; /* the business key, made of the input; NULL: given at the start */
    struct label_template labels[LIMIT_LABELS];
    size_t label_count;
    struct payload_types *types; /* owned; NULL: there is none who looks into payloads */
};

/* One fault found by definition_check. */
typedef void definition_fault_fn(void *ctx, const char *field, const char *description);

/* Checks every rule of the design and calls on_fault for each one broken (field path, rule and
 * value). Returns the number of faults: 0, it may be registered. */
size_t definition_check(const struct definition *definition, definition_fault_fn *on_fault,
                        void *ctx);

/* -1 when there is no such step. */
int definition_step_find(const struct definition *definition, const char *name);
/* The step that waits for the signal; -1: none does. */
int definition_wait_find(const struct definition *definition, const char *signal);
/* operation: ACTION or COMPENSATION; its probe hangs on it. */
static inline const struct operation_rule *definition_rule(const struct definition *definition,
                                                           size_t step, enum operation operation)
{
    const struct step_rule *rule = &definition->steps[step];
    return operation == OPERATION_COMPENSATION ? &rule->compensation : &rule->action;
}
/* An owned definition with room for `steps`, in sequence, and else all-zero; NULL when memory is
 * out. Strings are mem_strdup'ed in by whoever fills it (wire/definition_codec.h, tests). */
MUST_USE struct definition *definition_new(size_t steps);
/* Makes `after_all` of the steps' `after`, which names steps before each alone, and finds the
 * pivot. */
void definition_order(struct definition *definition);
/* Fills in the rule of a probe, but for its handler, retry and times; NULL when memory is out. */
MUST_USE struct operation_rule *definition_probe_new(void);
struct definition *definition_free(struct definition *definition);
static inline void definition_free_p(struct definition **definition)
{
    *definition = definition_free(*definition);
}

#endif
