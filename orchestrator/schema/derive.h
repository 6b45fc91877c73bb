/* A saga that is written as a service (proto/saga/v1/options.proto) becomes the SagaDefinition that
 * runs. Any thread; nothing is kept.
 *
 * Only what belongs to the form of a service is decided here: which rpc is what, names, times as
 * text, and the types of the data flow. The rules of a definition are definition_check's (core), to
 * which the result goes as one that was sent as a message does; schema_fault_place tells where in
 * the service a field of the definition was written. */
#ifndef SCHEMA_DERIVE_H
#define SCHEMA_DERIVE_H

#include "schema/schema.h"

#include <saga/v1/definition.pb-c.h>

struct arena;
struct derive;

/* where: "settlement.proto: bank.v1.Settlement.DebitAccount: compensated_by"; text: what is wrong
 * with the value and what to do. */
typedef void schema_fault_fn(void *ctx, const char *where, const char *text);

/* Has it the option (saga.v1.saga)? */
bool schema_service_is_saga(const struct schema_service *service);

/* What was derived of one service. In the arena. */
struct derived {
    Saga__V1__SagaDefinition *definition;
    const struct schema_service *service;
    const struct schema_method *const *action_of; /* by step */
    const struct schema_method *const *undo_of;   /* by step; NULL: none */
    const struct derive *origin;                  /* opaque, for schema_fault_place */
};

/* Of a service that is a saga. Every fault is reported, none hides another that does not follow
 * from it. *ret_faults 0: *ret is complete, borrowed from the arena and the schema. ERR_LIMIT: the
 * arena's. */
MUST_USE int schema_derive(const struct schema *schema, const struct schema_service *service,
                           struct arena *arena, schema_fault_fn *on_fault, void *ctx,
                           struct derived *ret, size_t *ret_faults, struct err *err);

/* The same check for a definition that came as a message, with descriptors: do the types that it
 * names exist, and do requests fit? Nothing else: names, order and limits are definition_check's.
 * on_fault's `where` is the path of the field in the definition. */
MUST_USE int schema_check_definition(const struct schema *schema,
                                     const Saga__V1__SagaDefinition *definition,
                                     schema_fault_fn *on_fault, void *ctx, size_t *ret_faults,
                                     struct err *err);

/* Where in the service a field of the derived definition was written:
 * "steps[2].compensation.retry.cap" -> "settlement.proto: bank.v1.Settlement.WithdrawNotice:
 * retry.cap". */
void schema_fault_place(const struct derived *derived, const char *path, char *ret, size_t size);

/* The full names of every message that a definition names (input, requests, outputs, payloads), for
 * schema_prune; one may be there more than once. Borrowed from the definition, array in the arena.
 */
MUST_USE int schema_definition_types(const Saga__V1__SagaDefinition *definition,
                                     struct arena *arena, const char *const **ret,
                                     size_t *ret_count, struct err *err);

#endif
