/* What is compared with what: the sagas of a source, or a revision of the server; and the
 * comparison. thread: the main thread. */
#ifndef CTL_DEFINITION_SIDE_H
#define CTL_DEFINITION_SIDE_H

#include "ctl/definition_changes.h"
#include "ctl/definition_server.h"
#include "ctl/definition_source.h"

struct side_saga {
    const Saga__V1__SagaDefinition *definition; /* NULL: it has faults */
    const struct schema *schema;                /* NULL: none */
    int32_t revision;                           /* 0: of a file */
    struct source_saga checked;                 /* of a file */
    Saga__V1__RegisteredDefinition *registered; /* of the server; owned */
    struct schema *own_schema;                  /* of the server; owned */
};

struct side {
    struct source source; /* sources only */
    struct side_saga *sagas;
    size_t count;
    size_t faults; /* in all of them */
};

/* Reads and checks a source (typed: see source_check). Faults are no failure: they stand in the
 * sagas. Prints what else is wrong; the exit code. */
MUST_USE int side_of_source(const char *path, const struct source_options *options, bool typed,
                            struct side *ret);
/* A revision of the server (0: the current one). ret_absent as definition_fetch has it: then `ret`
 * is empty. */
MUST_USE int side_of_server(struct ctl *ctl, const char *namespace_, const char *name,
                            int32_t revision, bool *ret_absent, struct side *ret);
void side_done(struct side *side);
/* Every fault to stderr, as a line. */
void side_print_faults(const struct side *side);

/* The one that `saga` is held against: of the same name, or the only one where both sides have one.
 * NULL: none. */
const struct side_saga *side_find(const struct side *side, const struct side *other,
                                  const struct side_saga *saga);

/* A line for each saga of `was` that `is` has none for. */
void side_write_gone(const struct side *was, const struct side *is, struct buf *out);

/* Every change from `was` to `is`. ctl: which live revisions need handlers that went is asked, too,
 * and appended to `live`; NULL: there is no server. Prints what is wrong. */
MUST_USE int side_compare(struct ctl *ctl, const struct side_saga *was, const struct side_saga *is,
                          struct changes *changes, struct buf *live);

/* Of several exit codes the gravest: 1, then 2, then 0. */
static inline int side_worse(int code, int other)
{
    return other == 1 || code == 0 ? other : code;
}

#endif
