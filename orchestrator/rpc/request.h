/* What several services check and fill in the same way: references, actors, pages. Any thread. */
#ifndef RPC_REQUEST_H
#define RPC_REQUEST_H

#include "rpc/internal.h"
#include "store/reader.h"

#include <saga/v1/saga.pb-c.h>

enum { PAGE_ITEMS_DEFAULT = 100 };

/* "default" for an absent namespace. */
static inline const char *namespace_or_default(const char *namespace_)
{
    return *namespace_ ? namespace_ : "default";
}

/* NULL for an absent text. */
static inline const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

/* Length in bytes, and no control characters. `least` 1: required. `field` is the path. */
MUST_USE int check_text(const char *field, const char *text, size_t least, size_t most,
                        struct err *err);
/* The same, but line ends and tabs are fine. */
MUST_USE int check_prose(const char *field, const char *text, size_t most, struct err *err);
/* The `saga` field of a request; strings borrowed from the message. */
MUST_USE int read_ref(const Saga__V1__SagaRef *message, struct store_ref *ret, struct err *err);
/* 0: the default; at most LIMIT_PAGE_ITEMS. */
MUST_USE int read_page_size(int32_t asked, size_t *ret, struct err *err);

/* Page tokens: opaque base64url of version, kind, a digest of what was asked, and where to go on.
 * Another filter, or garbage, is ERR_INVALID naming page_token. */
enum page_kind {
    PAGE_SAGAS = 1,
    PAGE_JOURNAL,
    PAGE_DEFINITIONS,
    PAGE_REVISIONS,
    PAGE_KAFKA_REQUESTS,
    PAGE_DEAD_LETTERS,
    PAGE_WATCH,
    PAGE_EFFECTS,
    PAGE_AUDIT,
    PAGE_ATTEMPTS
};
enum { PAGE_PLACE_MAX = 256, PAGE_DIGEST_BYTES = 8 };
struct page_filter {
    uint8_t digest[PAGE_DIGEST_BYTES];
};
struct sha256_part;
MUST_USE int page_filter_make(const struct sha256_part *parts, size_t count,
                              struct page_filter *ret, struct err *err);
MUST_USE char *page_token_make(struct arena *arena, enum page_kind kind,
                               const struct page_filter *filter, const void *place, size_t size);
/* *ret_size 0 for an absent token (""). */
MUST_USE int page_token_read(const char *token, enum page_kind kind,
                             const struct page_filter *filter, uint8_t ret_place[PAGE_PLACE_MAX],
                             size_t *ret_size, struct err *err);

/* A number as a place has it. */
void page_number_write(int64_t number, uint8_t ret[8]);
int64_t page_number_read(const uint8_t bytes[8]);

/* An initialised message in the arena; NULL when it is full. */
void *reply_new(struct arena *arena, const ProtobufCMessageDescriptor *type);
/* Messages never write to their text, but protobuf-c has it without const. */
static inline char *reply_text(const char *value)
{
    union {
        const char *in;
        char *out;
    } cast = { .in = value };
    return cast.out;
}
void call_fail_memory(struct call *call);

/* Reads the saga of `ref` again and answers with it: BASIC, or FULL with the count of connected
 * workers. The query thread does it; `admitted`: past its bound. */
void reply_with_saga(struct call *call, const struct store_ref *ref, bool full, bool admitted);
/* A verb for the engine on the saga of `ref`; on success the call is answered with the saga. */
struct verb_request {
    enum engine_verb_kind kind;
    struct store_ref ref;
    const char *step, *actor, *reason; /* NULL or text of the request */
    enum operation operation;          /* RESOLVE, as the next three */
    int64_t fence;
    bool happened;
    struct bytes output;         /* borrowed from the request */
    struct saga_options options; /* OPTIONS */
    int64_t timeout_ms;
    bool or_parked;
    bool full; /* view of the answer */
};
void run_verb(struct call *call, const struct verb_request *request);
/* The end of every method that is a verb: rc and err of reading its request, then the verb. */
void answer_verb(struct call *call, int rc, const struct verb_request *request,
                 const struct err *err);
/* Who asks and what they say about it (`field`: its name), into the request. Neither is required.
 */
MUST_USE int read_words(const char *field, const char *words, const char *actor,
                        struct verb_request *ret, struct err *err);

#endif
