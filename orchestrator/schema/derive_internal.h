/* What the files of the derivation share:
 *
 *   derive_options.c  which rpc is what: options as messages, and what they say alike
 *   derive.c          names, links between rpcs, order; the whole
 *   derive_flow.c     requests: made of the input and of outputs, checked by type and order
 *   derive_build.c    the definition, once there are no faults
 *   derive_check.c    the same checks for a definition that came as a message
 *   derive_place.c    where in the service something was written
 *   derive_text.c     times, snake case, near misses, faults as text */
#ifndef SCHEMA_DERIVE_INTERNAL_H
#define SCHEMA_DERIVE_INTERNAL_H

#include "core/limits.h"
#include "schema/derive.h"
#include "wire/arena.h"

#include <saga/v1/options.pb-c.h>

enum {
    WHERE_BYTES = 1536,
    FAULT_BYTES = 2560,
    HINT_BYTES = 192,
    HINTS_MAX = 100, /* looking for near misses costs; nobody reads so many faults */
    /* for each step its action, its compensation, and a probe of either */
    RPCS_MAX = 4 * LIMIT_STEPS,
};

/* Where faults go, and how many there were. */
struct faults {
    schema_fault_fn *on_fault;
    void *ctx;
    size_t count;
};

FMT(3, 4) void derive_fault(struct faults *faults, const char *where, const char *fmt, ...);

/* The name that somebody who wrote `wanted` may have meant. */
struct closest {
    const char *wanted; /* NULL: is not looked for */
    const char *best;   /* NULL: nothing is close; one of those that were offered */
    size_t distance;
};

struct closest derive_closest(const struct faults *faults, const char *wanted);
void derive_closest_offer(struct closest *closest, const char *candidate);
/* ", did you mean \"RefundAccount\"?", or, where nothing is close, `otherwise`. Returns `text`. */
const char *derive_hint(const struct closest *closest, const char *otherwise,
                        char text[HINT_BYTES]);

/* "1.5s" to 1500. NULL, or what is wrong, to be told after the text itself. */
const char *derive_time_read(const char *text, int64_t *ret_ms);
/* "DebitAccount" to "debit_account", in the arena; NULL: it is full. */
char *derive_snake(struct arena *arena, const char *name);
/* An initialised message in the arena; NULL: it is full. */
void *derive_message_new(struct arena *arena, const ProtobufCMessageDescriptor *type);

/* ---- What options say ------------------------------------------------------------------------ */

enum role { ROLE_NONE, ROLE_STEP, ROLE_COMPENSATION, ROLE_PROBE, ROLE_COUNT };

/* Fields that are a time, by their names in the options. */
enum time_field {
    TIME_RETRY_FOR,
    TIME_RETRY_INITIAL,
    TIME_RETRY_CAP,
    TIME_LEASE,
    TIME_ATTEMPT_TIMEOUT,
    TIME_START_TIMEOUT,
    TIME_IDEMPOTENCY_WINDOW,
    TIME_SETTLE,
    TIME_DELAY,
    TIME_SIGNAL_TIMEOUT,
    TIME_COUNT
};

/* What steps, compensations, probes and the saga's defaults say alike. Text: NULL or "" where
 * nothing is said. */
struct says {
    const char *times[TIME_COUNT];
    const char *probed_by, *idempotency_key, *handler;
    Saga__V1__Effect effect;
    Saga__V1__OnUnknown on_unknown;
    Saga__V1__OnExhausted on_exhausted;
    bool fresh_key_after_not_done;
    bool has_max_attempts, has_lost_leases_max;
    uint32_t max_attempts, lost_leases_max;
};

struct rpc {
    const struct schema_method *method;
    enum role role;
    bool is_named;                     /* a compensation, a probe: by whoever needs it */
    const Saga__V1__StepOptions *step; /* of a step; NULL: they could not be read */
    struct says says;                  /* by itself, without the defaults */
    Google__Protobuf__Duration *times[TIME_COUNT]; /* with the defaults; NULL: none */
    const char *name;                              /* of a step */
    const struct rpc *undo;                        /* of a step; NULL: none */
    const struct rpc *undoes;                      /* of a compensation */
    const struct rpc *probe;                       /* of a step or a compensation; NULL: none */
    const char **after;                            /* names of steps */
    size_t after_count;                            /* 0: it is at the start */
    Saga__V1__RequestShape *shape;                 /* NULL: a wait, or it could not be made */
};

/* ---- The data flow --------------------------------------------------------------------------- */

struct flow_type {
    const struct schema_message *message; /* NULL: not known */
    bool untyped;                         /* since nobody says it; else that was a fault already */
};

struct flow_step {
    const char *name;
    struct flow_type output;
    uint64_t before[LIMIT_STEPS / 64]; /* the steps that it certainly comes after */
};

/* What requests may be made of. */
struct flow {
    struct faults *faults;
    struct flow_type input;
    struct flow_step *steps;
    size_t count;
};

enum { FLOW_INPUT = -1, FLOW_NOTHING = -2 };
enum { FLOW_TYPE_BYTES = SCHEMA_NAME_BYTES + 16 };

/* "int64", "repeated bank.v1.Payment", "a map". */
void flow_type_describe(const struct schema_field *field, char ret[FLOW_TYPE_BYTES]);
bool flow_is_empty(const struct schema_message *message); /* google.protobuf.Empty */
/* An index of a step, or FLOW_INPUT or FLOW_NOTHING. */
int flow_source_find(const struct flow *flow, const char *name);
void flow_comes_after(struct flow *flow, size_t step, size_t earlier);
/* For a step whose order is at fault, so that nothing else follows from it. */
void flow_comes_after_all(struct flow *flow, size_t step);
/* Can this field be filled with that? `source`: a step or FLOW_INPUT. */
bool flow_field_check(const struct flow *flow, const struct schema_message *request,
                      const struct schema_field *field, int source, const char *where);
/* Is it there when the step asks for it, or when the step's compensation does (`undoing`)? */
void flow_order_check(const struct flow *flow, const struct schema_message *request,
                      const struct schema_field *field, int source, size_t step, bool undoing,
                      const char *where);
/* How a request of this type is put together. NULL: a fault was told, or the arena is full. */
Saga__V1__RequestShape *flow_shape_new(const struct flow *flow,
                                       const struct schema_message *request, struct arena *arena,
                                       const char *where);
/* Text with fields of the input in braces; "": none. */
void flow_template_check(const struct flow *flow, const char *text, const char *where);

/* ---- The whole ------------------------------------------------------------------------------- */

/* In the arena, as all that it points to. */
struct derive {
    const struct schema *schema;
    const struct schema_service *service;
    struct arena *arena;
    struct faults faults; /* ends with schema_derive */
    const Saga__V1__SagaOptions *saga;
    struct says defaults;
    struct rpc *rpcs; /* as in the file */
    size_t rpc_count;
    struct rpc **steps;
    size_t step_count;
    Google__Protobuf__Duration *deadline;
    struct flow flow;
};

/* A fault of an option of an rpc (NULL: of the service; field "": of the rpc as such). */
FMT(4, 5)
void derive_rpc_fault(struct derive *derive, const struct rpc *rpc, const char *field,
                      const char *fmt, ...);
void derive_place(const struct derive *derive, const struct rpc *rpc, const char *field, char *ret,
                  size_t size);
const char *derive_time_name(enum time_field field);
static inline bool derive_is_said(const char *text)
{
    return text && *text;
}

/* Is anything said there? */
bool derive_field_is_set(const ProtobufCMessage *options, const char *field);
/* Reads all options of the service; false: without its own nothing else can be told. */
bool derive_options_read(struct derive *derive);
/* NULL: the arena is full. */
Saga__V1__SagaDefinition *derive_build(const struct derive *derive);

#endif
