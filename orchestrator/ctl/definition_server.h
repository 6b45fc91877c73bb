/* Calls about definitions, and what to do where they are refused. thread: the main thread. */
#ifndef CTL_DEFINITION_SERVER_H
#define CTL_DEFINITION_SERVER_H

#include "ctl/ctl.h"

#include <saga/v1/definition.pb-c.h>

/* ctl_call about the definition `name`; where it is refused, what to do is printed as well. */
MUST_USE int definition_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *reply_type, const char *name,
                             void *ret);

/* "settlement" or "settlement@3": a name and a revision (0: the current one). The name is cut out
 * of the text into `ret_name`. Prints what is wrong with it. */
enum { DEFINITION_NAME_SIZE = 160 };
MUST_USE int definition_name_read(const char *text, char ret_name[DEFINITION_NAME_SIZE],
                                  int32_t *ret_revision);
/* A revision on the command line, from 1 on. Prints what is wrong with it. */
MUST_USE int definition_revision_read(const char *text, int32_t *ret);

/* GetDefinition; revision 0: the current one. ret_absent (NULL: not wanted): NOT_FOUND is no
 * failure, and sets it. The answer has its definition. */
MUST_USE int definition_fetch(struct ctl *ctl, const char *namespace_, const char *name,
                              int32_t revision, bool with_descriptors, bool *ret_absent,
                              Saga__V1__RegisteredDefinition **ret);

/* ListRevisions, newest first, whatever number of pages it takes. fn returns 0 to go on. */
typedef int definition_revision_fn(void *ctx, const Saga__V1__RegisteredDefinition *revision);
MUST_USE int definition_revisions(struct ctl *ctl, const char *namespace_, const char *name,
                                  definition_revision_fn *fn, void *ctx);

/* A line for each revision that sagas still run and that needs a handler of `was` which `is` no
 * longer has. Nothing where no handler went. */
MUST_USE int definition_write_live(struct ctl *ctl, const Saga__V1__SagaDefinition *was,
                                   const Saga__V1__SagaDefinition *is, struct buf *out);

#endif
