/* SagaService beside its starts and what finds sagas: get, wait, the journal. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "base/sha256.h"
#include "core/limits.h"
#include "wire/definition_codec.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

#include <inttypes.h>
#include <string.h>

enum { WAIT_MS_DEFAULT = 30 * 1000, WAIT_MS_MAX = 5 * 60 * 1000 };

void saga_get(struct call *call)
{
    Saga__V1__GetSagaRequest *request = (void *)call->request;
    struct store_ref ref;
    struct err err;
    if (read_ref(request->saga, &ref, &err)) {
        call_fail(call, &err);
        return;
    }
    reply_with_saga(call, &ref, request->view == SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL, false);
}

static int read_wait(const Saga__V1__WaitSagaRequest *request, struct verb_request *ret,
                     struct err *err)
{
    struct verb_request verb = {
        .kind = ENGINE_VERB_WAIT,
        .timeout_ms = WAIT_MS_DEFAULT,
        .or_parked = request->or_parked,
        .full = request->view == SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL,
    };
    int rc = read_ref(request->saga, &verb.ref, err);
    if (rc)
        return rc;
    if (request->timeout) {
        verb.timeout_ms = duration_to_ms(request->timeout);
        if (verb.timeout_ms < 0 || verb.timeout_ms > WAIT_MS_MAX)
            return err_field(err, "timeout", "timeout: must be 0 to %d ms: %" PRId64 " ms",
                             WAIT_MS_MAX, verb.timeout_ms);
    }
    *ret = verb;
    return 0;
}

void saga_wait(struct call *call)
{
    struct verb_request verb;
    struct err err;
    int rc = read_wait((void *)call->request, &verb, &err);
    answer_verb(call, rc, &verb, &err);
}

/* --- ListJournal ------------------------------------------------------------------------------ */

struct journal_query {
    struct query query;
    struct store_ref ref;
    int64_t after_seq;
    size_t limit;
    struct page_filter filter;
};

/* Where a journal goes on. The saga is pinned: "the latest run" may be another one by then. */
struct journal_place {
    struct uuid uid;
    uint8_t seq[8];
};

/* As many entries as a client can receive in one message. */
static int fill_journal(struct journal_query *query, const struct definition *definition,
                        const struct store_saga *loaded, Saga__V1__ListJournalResponse *reply,
                        struct err *err)
{
    struct arena *arena = &query->query.call->arena;
    reply->entries = arena_array(arena, loaded->entry_count + 1, sizeof(ProtobufCMessage *));
    if (!reply->entries)
        return err_set(err, ERR_NOMEM, "journal");
    size_t bytes = 0, count = 0;
    for (; count < loaded->entry_count && count < query->limit; count++) {
        Saga__V1__JournalEntry **entry = &reply->entries[count];
        int rc = journal_entry_to_message(arena, definition, &loaded->entries[count], entry, err);
        if (rc)
            return rc;
        bytes += saga__v1__journal_entry__get_packed_size(*entry) + 8;
        if (count && bytes > RPC_REPLY_BYTES_MAX)
            break;
    }
    reply->n_entries = count;
    if (count == loaded->entry_count)
        return 0;
    struct journal_place place = { .uid = loaded->row.uid };
    page_number_write(loaded->entries[count - 1].seq, place.seq);
    reply->next_page_token =
        page_token_make(arena, PAGE_JOURNAL, &query->filter, &place, sizeof place);
    return reply->next_page_token ? 0 : err_set(err, ERR_NOMEM, "journal");
}

static void run_journal(struct query *base, struct store_reader *reader)
{
    struct journal_query *query = CONTAINER(base, struct journal_query, query);
    CLEANUP(definition_free_p) struct definition *definition = NULL;
    struct store_saga loaded = { 0 };
    struct bytes content = { 0 };
    struct err err;
    int rc = store_reader_journal(reader, &query->ref, query->after_seq, query->limit + 1, &loaded,
                                  &content, &err);
    if (!rc)
        rc = definition_decode(&content, &definition, &err);
    Saga__V1__ListJournalResponse reply = SAGA__V1__LIST_JOURNAL_RESPONSE__INIT;
    if (!rc)
        rc = fill_journal(query, definition, &loaded, &reply, &err);
    if (rc)
        call_fail(base->call, &err);
    else
        call_reply(base->call, &reply.base);
    mem_free(content.data);
    store_saga_done(&loaded);
}

static int read_journal(const Saga__V1__ListJournalRequest *request, struct journal_query *query,
                        struct err *err)
{
    int rc = read_ref(request->saga, &query->ref, err);
    if (!rc)
        rc = read_page_size(request->page_size, &query->limit, err);
    if (rc)
        return rc;
    const struct store_ref *ref = &query->ref;
    const char *texts[] = { ref->by_uid ? "" : ref->namespace_, ref->by_uid ? "" : ref->definition,
                            ref->by_uid ? "" : ref->saga_id };
    struct sha256_part parts[] = {
        { texts[0], strlen(texts[0]) + 1 },        { texts[1], strlen(texts[1]) + 1 },
        { texts[2], strlen(texts[2]) + 1 },        { &ref->run, sizeof ref->run },
        { ref->uid.bytes, sizeof ref->uid.bytes },
    };
    rc = page_filter_make(parts, ARRAY_LEN(parts), &query->filter, err);
    uint8_t raw[PAGE_PLACE_MAX];
    size_t size = 0;
    if (!rc)
        rc = page_token_read(request->page_token, PAGE_JOURNAL, &query->filter, raw, &size, err);
    if (rc || !size)
        return rc;
    struct journal_place place;
    if (size != sizeof place)
        return err_field(err, "page_token", "page_token: is not a token of this method");
    memcpy(&place, raw, sizeof place);
    query->ref = (struct store_ref){ .by_uid = true, .uid = place.uid };
    query->after_seq = page_number_read(place.seq);
    return 0;
}

void saga_list_journal(struct call *call)
{
    struct journal_query *query = query_new(call, sizeof *query, run_journal);
    struct err err;
    if (!query)
        return;
    if (read_journal((void *)call->request, query, &err))
        call_fail(call, &err);
    else
        queries_post(&query->query);
}
