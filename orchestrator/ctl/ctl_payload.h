/* Payloads as the verbs of sagactl take and show them: where one is given, the types of its
 * revision, the JSON of a saga with its payloads readable. thread: the main thread. */
#ifndef CTL_CTL_PAYLOAD_H
#define CTL_CTL_PAYLOAD_H

#include "ctl/ctl.h"
#include "ctl/revision_types.h"

enum { CTL_PAYLOAD_SHOWN = 160 }; /* bytes of a payload on a screen */

#define CTL_FULL_OPTION                                                                            \
    {                                                                                              \
        "full", NULL, false, "payloads in full length, however long they are"                      \
    }

/* On the command line, at most one of them; NULL: not given. */
struct ctl_payload {
    const char *text; /* "-" is stdin */
    const char *file; /* "-" as well */
    const char *base64;
};
/* ERR_INVALID: more than one, or no base64. Owned by the caller (ctl_bytes_done); empty when
 * nothing is given. */
MUST_USE int ctl_payload_read(const struct ctl_payload *given, struct bytes *ret, struct err *err);
static inline void ctl_bytes_done(struct bytes *bytes)
{
    mem_free(bytes->data);
}
/* Prints why revision_types_read refuses it: 0, or the exit code. */
MUST_USE int ctl_payload_make(const struct revision_types *types, struct revision_type type,
                              const char *what, const struct ctl_payload *given,
                              struct bytes *payload);

/* Of a revision (0: the current one), for a payload that is to be made. Prints what is wrong. */
MUST_USE int ctl_types_get(struct ctl *ctl, const char *namespace_, const char *definition,
                           int32_t revision, struct revision_types **ret);
/* Of a saga's revision, to show payloads by: NULL where the server does not know them. What else is
 * wrong is told on stderr, and NULL, too: a saga is shown without its types rather than not at all.
 */
struct revision_types *ctl_types_of_saga(struct ctl *ctl, const Saga__V1__Saga *saga);

/* The saga as JSON with "inputJson" and, in its steps, "outputJson" (revision_types_add_json). The
 * caller owns *ret. */
MUST_USE int ctl_saga_json(const Saga__V1__Saga *saga, const struct revision_types *types,
                           json_t **ret, struct err *err);

#endif
