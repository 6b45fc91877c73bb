/* What the files of DefinitionService share. thread: the reader's */
#ifndef RPC_SERVICE_DEFINITION_H
#define RPC_SERVICE_DEFINITION_H

#include "rpc/queries.h"
#include "rpc/request.h"

#include <saga/v1/definition.pb-c.h>

/* A stored revision as its message, in the arena; nothing of `stored` is borrowed. */
MUST_USE int definition_fill(struct arena *arena, const struct store_definition *stored,
                             Saga__V1__RegisteredDefinition **ret, struct err *err);
/* The packed canonical definition of a stored revision, unpacked into the arena. */
MUST_USE int definition_fill_content(struct arena *arena, const struct store_definition *stored,
                                     Saga__V1__SagaDefinition **ret, struct err *err);
/* The engine looks up anew which revision is current, and whether it is paused. Before the caller
 * hears of the change, so that his next start goes by it. */
MUST_USE int definition_tell_engine(struct call *call, const char *namespace_, const char *name,
                                    struct err *err);
/* Namespace and name of a request. */
MUST_USE int definition_check_name(const char *namespace_, const char *name, struct err *err);

#endif
