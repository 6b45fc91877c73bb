/* The filter that lists, effects and batches have in common. Any thread. */
#ifndef RPC_FIND_H
#define RPC_FIND_H

#include "rpc/request.h"
#include "wire/filter.h"

/* The fields `filter`, `namespace` and `definition` of a request as one filter; texts are the
 * request's, or in the arena. Namespace: absent: "default", unless the filter has one; "-": every
 * one. */
MUST_USE int find_read_filter(const char *text, const char *namespace_, const char *definition,
                              enum filter_scope scope, struct arena *arena, struct saga_filter *ret,
                              struct err *err);

#endif
