/* Queries and the registration of definitions, on their own connection: a slow list never delays a
 * step. Blocking calls; one thread at a time. Reconnects by itself; a call during an outage answers
 * ERR_UNAVAILABLE. Results are owned by the caller. */
#ifndef STORE_READER_H
#define STORE_READER_H

#include "core/saga_filter.h"
#include "store/store.h"

struct store_reader;

MUST_USE int store_reader_new(const char *conninfo, struct store_reader **ret, struct err *err);
struct store_reader *store_reader_free(struct store_reader *reader);

struct store_ref { /* by uid, or by key; run 0: the latest */
    bool by_uid;
    struct uuid uid;
    const char *namespace_, *definition, *saga_id;
    int32_t run;
};

/* Row, whole journal, and the bytes of the revision that it runs. ERR_NOT_FOUND. */
MUST_USE int store_reader_get(struct store_reader *reader, const struct store_ref *ref,
                              struct store_saga *ret_saga, struct bytes *ret_definition,
                              struct err *err);
/* Row alone (entries empty). */
MUST_USE int store_reader_get_row(struct store_reader *reader, const struct store_ref *ref,
                                  struct store_saga *ret_saga, struct err *err);
/* Entries with seq > after_seq, at most limit; steps by index need the definition, so it comes too.
 */
MUST_USE int store_reader_journal(struct store_reader *reader, const struct store_ref *ref,
                                  int64_t after_seq, size_t limit, struct store_saga *ret_saga,
                                  struct bytes *ret_definition, struct err *err);

/* What tells one state of a saga from another, by its journal: entries are only added, and an
 * outcome is set once. A lease that was extended makes no difference. */
struct store_version {
    bool present; /* false: there is no such saga (any more) */
    enum saga_state state;
    int64_t entries, ended; /* ended: that have an outcome */
};
/* Of `count` sagas, in their order, into ret. */
MUST_USE int store_reader_versions(struct store_reader *reader, const struct uuid *uids,
                                   size_t count, struct store_version *ret, struct err *err);

struct store_list {
    struct saga_filter filter; /* what is said of effects says nothing here */
    bool oldest_first;
    bool has_after; /* keyset: rows strictly after this (started_at in Unix microseconds, uid) */
    int64_t after_started_us;
    struct uuid after_uid;
    size_t limit;
    size_t scan_rows;    /* looked at for one page at most; 0: the default */
    bool is_looked_into; /* more is asked of each saga than the filter says: pages may be short */
};
/* Where a page ends before it is full, because so much was looked at for it: the list goes on
 * behind this. */
struct store_list_end {
    bool is_cut;
    int64_t started_us;
    struct uuid uid;
};
/* Rows without input; ret_started_us (limit entries, caller's) gives the keyset of each. A page may
 * be short or empty although the list goes on: then *ret_end says from where. */
MUST_USE int store_reader_list(struct store_reader *reader, const struct store_list *list,
                               struct store_saga *ret_sagas, int64_t *ret_started_us,
                               size_t *ret_count, struct store_list_end *ret_end, struct err *err);

/* How often an operation of a saga's step may have taken effect. Strings owned. */
struct store_effect {
    int64_t started_us; /* of the saga */
    struct uuid uid;
    char *namespace_, *definition, *saga_id;
    int32_t run;
    enum saga_state state;
    bool doubt;
    char *step;
    int16_t step_index;
    enum operation operation;
    int64_t dispatched, sure, possible;
    int64_t first_ms, last_ms; /* dispatch; 0: none */
};
void store_effect_done(struct store_effect *effect);
/* Behind which effect a page of them goes on; step_index INT16_MAX: behind all of that saga's. */
struct store_effect_place {
    int64_t started_us;
    struct uuid uid;
    int16_t step_index;
    enum operation operation;
};
/* Sagas newest first, whatever the list says, each with its effects that fit by step. after: NULL
 * or where to go on; ret has room for list->limit, and *ret_end is as in store_reader_list, with
 * the difference that a page that is full was not cut there. */
MUST_USE int store_reader_effects(struct store_reader *reader, const struct store_list *list,
                                  const struct store_effect_place *after, struct store_effect *ret,
                                  size_t *ret_count, struct store_list_end *ret_end,
                                  struct err *err);

/* What there is, for people who look at the whole. A count goes up to STORE_COUNT_MAX; `estimate`
 * is what PostgreSQL's statistics say, 0: they do not know. */
enum { STORE_COUNT_MAX = 10000, STORE_TABLES_MAX = 64 };
struct store_count {
    int64_t count, estimate;
};
struct store_table {
    char *name;   /* owned */
    int64_t rows; /* as of its last vacuum or analyse */
    int64_t bytes;
};
struct store_overview {
    struct store_count states[SAGA_STATE_COUNT];
    struct store_count reasons[PARK_REASON_COUNT];
    struct store_table tables[STORE_TABLES_MAX]; /* largest first */
    size_t table_count;
    char *database, *server_version, *synchronous_standbys; /* owned; "" of the last: none */
    int64_t database_bytes;
    bool is_standby;
    int64_t epoch; /* of fences */
};
void store_overview_done(struct store_overview *overview);
MUST_USE int store_reader_overview(struct store_reader *reader, struct store_overview *ret,
                                   struct err *err);

/* Parked sagas that wait for the same: strings owned. */
struct store_parked {
    char *namespace_, *definition;
    char *step, *code; /* NULL: none */
    enum saga_state phase;
    enum park_reason reason;
    int64_t count;
    int64_t oldest_ms; /* since when the one that waits longest is parked */
    char *oldest_saga_id;
};
void store_parked_done(struct store_parked *parked);
/* The groups that wait longest first; ret has room for `limit`. namespace_ and definition NULL:
 * every one. *ret_sagas: in all groups, also those beyond the limit. */
MUST_USE int store_reader_parked(struct store_reader *reader, const char *namespace_,
                                 const char *definition, size_t limit, struct store_parked *ret,
                                 size_t *ret_count, int64_t *ret_sagas, struct err *err);

/* No saga that may still run an operation started before floor_ms. Strings owned. */
struct store_guard_floor {
    int64_t floor_ms;
    bool has_oldest; /* the saga that holds it down; false: none is open */
    struct uuid uid;
    char *namespace_, *definition, *saga_id;
    int32_t run;
    int64_t started_at_ms;
};
void store_guard_floor_done(struct store_guard_floor *floor);
/* margin_ms below the start of the oldest saga that has not ended, or below now. */
MUST_USE int store_reader_guard_floor(struct store_reader *reader, int64_t margin_ms,
                                      struct store_guard_floor *ret, struct err *err);

/* Handlers that sagas wait for which no node has. */
struct store_let_go {
    char *handler; /* owned */
    int64_t sagas; /* at most STORE_LET_GO_COUNT_MAX */
    int64_t oldest_ms;
    int64_t share; /* of all sagas, in thousand millionths, at the last analysis; 0: too few then */
};
enum { STORE_LET_GO_COUNT_MAX = 10000 };
/* By name, at most `limit`; and the other nodes that live, by name, at most node_limit; strings
 * owned. */
MUST_USE int store_reader_let_go(struct store_reader *reader, size_t limit,
                                 struct store_let_go *ret, size_t *ret_count, struct err *err);
MUST_USE int store_reader_nodes(struct store_reader *reader, const char *but, size_t limit,
                                char **ret, size_t *ret_count, struct err *err);

/* Which of the other nodes that live serve one of these handlers, as of their last heartbeat; by
 * handler and node, at most `limit`. */
struct store_serving {
    char *handler, *node; /* owned: store_serving_done */
};
void store_serving_done(struct store_serving *serving, size_t count);
MUST_USE int store_reader_serving(struct store_reader *reader, const char *but,
                                  const char *const *handlers, size_t handler_count, size_t limit,
                                  struct store_serving *ret, size_t *ret_count, struct err *err);

struct store_definition { /* a revision, and the state of its definition */
    char *namespace_, *name;
    int32_t revision;
    int64_t created_at_ms;
    bool current;
    struct bytes content;     /* packed saga.v1.SagaDefinition */
    struct bytes descriptors; /* packed google.protobuf.FileDescriptorSet; where it was asked for */
    int64_t open_sagas;       /* that have not ended; of store_reader_revisions alone */
    int64_t paused_at_ms;     /* 0: it is not paused */
    char *paused_by, *pause_reason; /* NULL: it is not paused */
};
void store_definition_done(struct store_definition *definition);

/* --- what is stored */

/* revision 0: the current one. ERR_NOT_FOUND. */
MUST_USE int store_reader_definition(struct store_reader *reader, const char *namespace_,
                                     const char *name, int32_t revision, bool with_descriptors,
                                     struct store_definition *ret, struct err *err);
/* Current revisions after (namespace, name), by (namespace, name). namespace_ NULL: every one. */
MUST_USE int store_reader_definitions(struct store_reader *reader, const char *namespace_,
                                      const char *after_namespace, const char *after_name,
                                      size_t limit, struct store_definition *ret, size_t *ret_count,
                                      struct err *err);
/* All revisions below `before`, newest first, with their open sagas. None: *ret_count is 0. */
MUST_USE int store_reader_revisions(struct store_reader *reader, const char *namespace_,
                                    const char *name, int32_t before, size_t limit,
                                    struct store_definition *ret, size_t *ret_count,
                                    struct err *err);

/* --- changes (reader_change.c). Safe when several change the same definition at once. The engines
 * are told by whoever calls. */

struct store_words { /* who changes it and why, for the audit; NULL: not said */
    const char *actor, *reason;
};
struct store_register {
    const char *namespace_, *name;
    struct store_words words;
    struct bytes content, descriptors; /* borrowed */
    bool validate_only;                /* nothing is stored */
    bool keep_current; /* the revision does not become the current one, unless there is none */
};
struct store_registered {
    struct store_definition revision; /* without descriptors; validate_only: as it would be */
    bool created;                     /* false: this content was there already */
    struct store_definition
        before; /* what was current, with descriptors; revision 0: there was none
                 */
};
void store_registered_done(struct store_registered *registered);
/* The same content and descriptors: that revision, which becomes the current one again. */
MUST_USE int store_reader_register(struct store_reader *reader, const struct store_register *what,
                                   struct store_registered *ret, struct err *err);
/* New sagas take this revision. ERR_NOT_FOUND. */
MUST_USE int store_reader_promote(struct store_reader *reader, const char *namespace_,
                                  const char *name, int32_t revision,
                                  const struct store_words *words, struct store_definition *ret,
                                  struct err *err);
/* No new sagas; what is paused keeps its time, actor and reason. ERR_NOT_FOUND. */
MUST_USE int store_reader_pause(struct store_reader *reader, const char *namespace_,
                                const char *name, const struct store_words *words,
                                struct store_definition *ret, struct err *err);
MUST_USE int store_reader_resume(struct store_reader *reader, const char *namespace_,
                                 const char *name, const struct store_words *words,
                                 struct store_definition *ret, struct err *err);
/* A revision that no saga has, not even one that ended, and that is not current; or the last one.
 * Its number is not given again. ERR_NOT_FOUND; ERR_PRECONDITION with reason REVISION_IN_USE or
 * REVISION_CURRENT; ERR_UNAVAILABLE while starts hold it. */
MUST_USE int store_reader_delete_revision(struct store_reader *reader, const char *namespace_,
                                          const char *name, int32_t revision,
                                          const struct store_words *words, struct err *err);

#endif
