/* Who did what, when and why: the journal's entries that people asked for, what was decided about
 * Kafka, and the table audit, as one list. As reader.h. */
#ifndef STORE_READER_AUDIT_H
#define STORE_READER_AUDIT_H

#include "store/reader.h"

/* A place in the list: behind it are the older ones. */
struct store_audit_place {
    int64_t at_us; /* Unix epoch */
    struct uuid id;
    int64_t seq;
};

struct store_audit_line { /* strings owned; NULL: none */
    struct store_audit_place place;
    char *verb, *namespace_, *definition, *saga_id;
    int32_t run; /* 0: it is about no saga */
    bool has_saga;
    struct uuid saga_uid;
    char *step, *operation, *subject, *actor, *reason, *detail;
};
void store_audit_line_done(struct store_audit_line *line);

struct store_audit_note { /* NULL: none */
    const char *verb, *namespace_, *definition, *subject, *actor, *reason, *detail;
};
/* A line about what is in no other table; it is durable on return. */
MUST_USE int store_reader_audit_add(struct store_reader *reader,
                                    const struct store_audit_note *note, struct err *err);

struct store_audit_filter { /* NULL: any */
    const char *actor, *namespace_, *definition;
    const char *const *verbs;
    size_t verb_count; /* 0: any */
    const struct store_ref *saga;
    bool has_before;
    struct store_audit_place before;
    int64_t since_ms; /* 0: no limit */
    int64_t until_ms; /* 0: no limit */
    size_t limit;
};
/* Newest first, into ret (limit entries, the caller's). A page looks at a bounded number of lines:
 * it may be short, or empty, and go on all the same: *ret_more, behind *ret_next. ERR_NOT_FOUND: no
 * such saga. */
MUST_USE int store_reader_audit(struct store_reader *reader,
                                const struct store_audit_filter *filter,
                                struct store_audit_line *ret, size_t *ret_count, bool *ret_more,
                                struct store_audit_place *ret_next, struct err *err);

#endif
