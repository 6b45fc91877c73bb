/* What people do beside the engine's verbs: a saga that has ended is run again; who has to do with
 * whom. As reader.h. */
#ifndef STORE_READER_MEND_H
#define STORE_READER_MEND_H

#include "store/reader.h"

struct store_rerun { /* borrowed */
    struct uuid old; /* the latest run of its key, COMPENSATED or ABANDONED */
    const char *namespace_, *definition, *saga_id;
    struct uuid uid; /* of the new run: new, of the same shard */
    int32_t revision;
    int64_t deadline_ms; /* from now; 0: none */
    const char *node;    /* whose it is */
    bool publish_start;
    const char *actor, *reason; /* actor may be NULL */
};
/* The new run, with the input and the labels of the old one, and a line of the audit.
 * ERR_PRECONDITION with reason RERUN_NOT_ALLOWED: another run came after it, or its rows or the
 * revision are gone. */
MUST_USE int store_reader_rerun(struct store_reader *reader, const struct store_rerun *what,
                                struct err *err);

struct store_related { /* strings owned */
    bool is_named;     /* by the saga that was asked about; else it names that */
    struct uuid uid;
    char *namespace_, *definition, *saga_id;
    int32_t run;
    enum saga_state state;
    int64_t started_at_ms;
};
void store_related_done(struct store_related *related);
/* The saga that this one names first, then those that name it, oldest first; at most `limit`. */
MUST_USE int store_reader_related(struct store_reader *reader, const struct saga_row *row,
                                  size_t limit, struct store_related *ret, size_t *ret_count,
                                  struct err *err);

#endif
