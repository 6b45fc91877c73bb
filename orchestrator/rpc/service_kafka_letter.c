/* KafkaService: dead letters. */
#include "rpc/service_kafka.h"

#include "base/sha256.h"
#include "core/limits.h"
#include "wire/validate.h"

#include <stdio.h>
#include <string.h>

enum {
    REASON_WORD_BYTES_MAX = 64,
    /* of what a letter's key and value may be in a reply; the rest of it is far smaller */
    RECORD_BYTES_MAX = 3 * 1024 * 1024,
};

/* --- letters as messages ---------------------------------------------------------------------- */

static const Saga__V1__DeadLetter__State letter_states[] = {
    [LETTER_OPEN] = SAGA__V1__DEAD_LETTER__STATE__STATE_OPEN,
    [LETTER_REPLAY] = SAGA__V1__DEAD_LETTER__STATE__STATE_REPLAY,
    [LETTER_REPLAYED] = SAGA__V1__DEAD_LETTER__STATE__STATE_REPLAYED,
    [LETTER_DISCARDED] = SAGA__V1__DEAD_LETTER__STATE__STATE_DISCARDED,
};
static_assert(ARRAY_LEN(letter_states) == LETTER_STATE_COUNT, "one for each state");

static Saga__V1__DeadLetter *make_letter(struct arena *arena, const struct store_letter *from)
{
    Saga__V1__DeadLetter *to = reply_new(arena, &saga__v1__dead_letter__descriptor);
    char *id = arena_alloc(arena, UUID_TEXT_SIZE);
    char *saga_uid = arena_alloc(arena, UUID_TEXT_SIZE);
    if (!to || !id || !saga_uid)
        return NULL;
    uuid_format(&from->id, id);
    if (from->has_saga)
        uuid_format(&from->saga_uid, saga_uid);
    to->dead_letter_id = id;
    to->rule = from->rule;
    to->topic = from->topic;
    to->partition = from->partition;
    to->offset = from->offset;
    to->record_time = from->time_ms < 0 ? NULL : kafka_time(arena, from->time_ms);
    to->receive_time = kafka_time(arena, from->received_at_ms);
    to->reason = from->reason;
    to->message = kafka_text(from->message);
    to->saga_id = kafka_text(from->saga_id);
    to->state = letter_states[from->state];
    to->actor = kafka_text(from->decided_by);
    to->decision_reason = kafka_text(from->decision_reason);
    to->decide_time = kafka_time(arena, from->decided_at_ms);
    to->saga_uid = saga_uid;
    to->replay_error = kafka_text(from->replay_error);
    to->key_size = from->has_key ? from->key_size : -1;
    to->value_size = from->has_value ? from->value_size : -1;
    return to;
}

int kafka_fill_letters(struct arena *arena, const struct store_letter *letters, size_t count,
                       Saga__V1__DeadLetter ***ret)
{
    *ret = arena_array(arena, count + 1, sizeof(ProtobufCMessage *));
    for (size_t i = 0; *ret && i < count; i++)
        (*ret)[i] = make_letter(arena, &letters[i]);
    return arena->oom ? -1 : 0;
}

/* --- ListDeadLetters -------------------------------------------------------------------------- */

static int read_states(const Saga__V1__DeadLetterFilter *message, struct store_letter_filter *ret,
                       struct err *err)
{
    for (size_t i = 0; i < message->n_states; i++) {
        enum store_letter_state state = 0;
        while (state < LETTER_STATE_COUNT && letter_states[state] != message->states[i])
            state++;
        if (state == LETTER_STATE_COUNT)
            return err_field(err, "filter.states",
                             "filter.states: OPEN, REPLAY, REPLAYED or DISCARDED, not %d",
                             (int)message->states[i]);
        ret->states[state] = true;
    }
    return 0;
}

/* message NULL: any letter that is open. Strings borrowed from it. */
static int read_filter(const Saga__V1__DeadLetterFilter *message, struct store_letter_filter *ret,
                       struct err *err)
{
    if (!message)
        return 0;
    int rc = check_text("filter.rule", message->rule, 0, KAFKA_NAME_BYTES_MAX, err);
    if (!rc)
        rc = check_text("filter.topic", message->topic, 0, KAFKA_NAME_BYTES_MAX, err);
    if (!rc)
        rc = check_text("filter.reason", message->reason, 0, REASON_WORD_BYTES_MAX, err);
    ret->has_partition =
        message->_partition_case == SAGA__V1__DEAD_LETTER_FILTER___PARTITION_PARTITION;
    if (!rc && ret->has_partition && message->partition < 0)
        rc = err_field(err, "filter.partition", "filter.partition: must not be negative: %d",
                       message->partition);
    ret->rule = or_null(message->rule);
    ret->topic = or_null(message->topic);
    ret->partition = ret->has_partition ? message->partition : 0;
    ret->reason = or_null(message->reason);
    return rc ? rc : read_states(message, ret, err);
}

struct list_query {
    struct query query;
    struct store_letter_filter letters;
    size_t limit;
    struct page_filter filter;
    bool has_before;
    struct uuid before;
};

static int fill_page(struct list_query *query, const struct store_letter *letters, size_t found,
                     Saga__V1__ListDeadLettersResponse *reply)
{
    struct arena *arena = &query->query.call->arena;
    size_t count = found < query->limit ? found : query->limit, bytes = 0;
    if (kafka_fill_letters(arena, letters, count, &reply->dead_letters))
        return -1;
    for (size_t i = 0; i < count; i++) {
        bytes += saga__v1__dead_letter__get_packed_size(reply->dead_letters[i]) + 8;
        if (i && bytes > RPC_REPLY_BYTES_MAX)
            count = i;
    }
    reply->n_dead_letters = count;
    if (count == found)
        return 0;
    const struct uuid *last = &letters[count - 1].id;
    reply->next_page_token =
        page_token_make(arena, PAGE_DEAD_LETTERS, &query->filter, last, sizeof *last);
    return reply->next_page_token ? 0 : -1;
}

static void run_list(struct query *base, struct store_reader *reader)
{
    struct list_query *query = CONTAINER(base, struct list_query, query);
    size_t room = query->limit + 1, found = 0;
    CLEANUP(mem_free_p) struct store_letter *letters = mem_calloc(room, sizeof *letters);
    Saga__V1__ListDeadLettersResponse reply = SAGA__V1__LIST_DEAD_LETTERS_RESPONSE__INIT;
    struct err err;
    if (!letters)
        call_fail_memory(base->call);
    else if (store_reader_letters(reader, &query->letters,
                                  query->has_before ? &query->before : NULL, room, letters, &found,
                                  &err))
        call_fail(base->call, &err);
    else if (fill_page(query, letters, found, &reply))
        call_fail_memory(base->call);
    else
        call_reply(base->call, &reply.base);
    for (size_t i = 0; i < found; i++)
        store_letter_done(&letters[i]);
}

static int read_list(const Saga__V1__ListDeadLettersRequest *request, struct list_query *query,
                     struct err *err)
{
    struct store_letter_filter *letters = &query->letters;
    int rc = read_filter(request->filter, letters, err);
    if (!rc)
        rc = read_page_size(request->page_size, &query->limit, err);
    if (rc)
        return rc;
    const char *texts[] = { letters->rule ? letters->rule : "",
                            letters->topic ? letters->topic : "",
                            letters->reason ? letters->reason : "" };
    struct sha256_part parts[] = {
        { texts[0], strlen(texts[0]) + 1 },
        { texts[1], strlen(texts[1]) + 1 },
        { texts[2], strlen(texts[2]) + 1 },
        { &letters->has_partition, sizeof letters->has_partition },
        { &letters->partition, sizeof letters->partition },
        { letters->states, sizeof letters->states },
    };
    rc = page_filter_make(parts, ARRAY_LEN(parts), &query->filter, err);
    return rc ? rc
              : kafka_page_read(request->page_token, PAGE_DEAD_LETTERS, &query->filter,
                                &query->has_before, &query->before, err);
}

void kafka_list_letters(struct call *call)
{
    struct list_query *query = query_new(call, sizeof *query, run_list);
    struct err err;
    if (!query)
        return;
    if (read_list((void *)call->request, query, &err))
        call_fail(call, &err);
    else
        queries_post(&query->query);
}

/* --- GetDeadLetter ---------------------------------------------------------------------------- */

struct get_query {
    struct query query;
    struct uuid id;
};

/* Borrowed; cut so that both fit into a reply. */
static void set_bytes(const struct store_letter *from, Saga__V1__DeadLetter *to)
{
    size_t most = RECORD_BYTES_MAX;
    to->key.data = from->key.data;
    to->key.len = from->key.size < most ? from->key.size : most;
    most -= to->key.len;
    to->value.data = from->value.data;
    to->value.len = from->value.size < most ? from->value.size : most;
}

static int fill_letter(struct arena *arena, const struct store_letter *from,
                       Saga__V1__DeadLetter **ret, struct err *err)
{
    ProtobufCMessage *headers = NULL;
    Saga__V1__DeadLetter *to = make_letter(arena, from);
    if (!to || arena->oom)
        return err_set(err, ERR_NOMEM, "dead letter");
    set_bytes(from, to);
    int rc = wire_unpack(&saga__v1__kafka_headers__descriptor, from->headers.data,
                         from->headers.size, arena, &headers, err);
    if (rc) {
        err->code = arena->oom ? err->code : ERR_INTERNAL; /* these bytes are ours */
        err->field[0] = '\0';
        return err_wrap(err, "headers of dead letter %s", to->dead_letter_id);
    }
    to->headers = (void *)headers;
    *ret = to;
    return 0;
}

static void run_get(struct query *base, struct store_reader *reader)
{
    struct get_query *query = CONTAINER(base, struct get_query, query);
    struct store_letter letter = { 0 };
    Saga__V1__DeadLetter *reply = NULL;
    struct err err;
    int rc = store_reader_letter(reader, &query->id, &letter, &err);
    if (!rc)
        rc = fill_letter(&base->call->arena, &letter, &reply, &err);
    if (rc)
        call_fail(base->call, &err);
    else
        call_reply(base->call, &reply->base);
    store_letter_done(&letter);
}

void kafka_get_letter(struct call *call)
{
    const Saga__V1__GetDeadLetterRequest *request = (void *)call->request;
    struct get_query *query = query_new(call, sizeof *query, run_get);
    struct err err;
    if (!query)
        return;
    if (uuid_parse(request->dead_letter_id, &query->id)) {
        queries_post(&query->query);
        return;
    }
    (void)err_field(&err, "dead_letter_id", "dead_letter_id: is required, and a UUID");
    call_fail(call, &err);
}

/* --- ReplayDeadLetters, DiscardDeadLetters ---------------------------------------------------- */

/* Both requests in one; borrowed from the message. */
struct decide_request {
    bool replay;
    char **ids;
    size_t id_count;
    const Saga__V1__DeadLetterFilter *filter;
    int32_t limit;
    bool dry_run;
    const char *actor, *reason;
};

struct decide_query {
    struct query query;
    struct store_letter_decision what;
};

static void reply_decided(struct call *call, bool replay, int64_t count, bool more)
{
    Saga__V1__ReplayDeadLettersResponse replayed = SAGA__V1__REPLAY_DEAD_LETTERS_RESPONSE__INIT;
    Saga__V1__DiscardDeadLettersResponse discarded = SAGA__V1__DISCARD_DEAD_LETTERS_RESPONSE__INIT;
    replayed.count = discarded.count = count;
    replayed.more = discarded.more = more;
    call_reply(call, replay ? &replayed.base : &discarded.base);
}

static void run_decide(struct query *base, struct store_reader *reader)
{
    const struct store_letter_decision *what = &CONTAINER(base, struct decide_query, query)->what;
    struct err err;
    size_t count = 0;
    if (store_reader_letters_decide(reader, what, &count, &err)) {
        call_fail(base->call, &err);
        return;
    }
    bool more = !what->id_count && count > what->limit; /* of a dry run alone */
    reply_decided(base->call, what->replay, (int64_t)(more ? what->limit : count), more);
}

static int read_ids(struct arena *arena, const struct decide_request *request,
                    struct store_letter_decision *ret, struct err *err)
{
    if (request->id_count > LETTERS_PER_DECISION)
        return err_field(err, "dead_letter_ids", "dead_letter_ids: at most %d, not %zu",
                         LETTERS_PER_DECISION, request->id_count);
    struct uuid *ids = arena_array(arena, request->id_count + 1, sizeof *ids);
    if (!ids)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < request->id_count; i++) {
        if (uuid_parse(request->ids[i], &ids[i]))
            continue;
        char field[64];
        (void)snprintf(field, sizeof field, "dead_letter_ids[%zu]", i);
        return err_field(err, field, "%s: is not a UUID", field);
    }
    ret->ids = ids;
    ret->id_count = request->id_count;
    return 0;
}

static int read_which(struct arena *arena, const struct decide_request *request,
                      struct store_letter_decision *ret, struct err *err)
{
    if (!request->id_count == !request->filter)
        return err_field(err, "filter",
                         "filter: either dead_letter_ids or a filter (an empty one takes every "
                         "letter that is open)");
    if (request->limit < 0 || request->limit > LETTERS_PER_DECISION)
        return err_field(err, "limit", "limit: must be 0 to %d: %d", LETTERS_PER_DECISION,
                         request->limit);
    if (request->id_count && request->limit)
        return err_field(err, "limit", "limit: is for a filter, not for ids");
    if (request->filter && request->filter->n_states)
        return err_field(err, "filter.states",
                         "filter.states: only what is OPEN can be decided on");
    ret->limit = request->limit ? (size_t)request->limit : LETTERS_PER_DECISION;
    return request->id_count ? read_ids(arena, request, ret, err)
                             : read_filter(request->filter, &ret->filter, err);
}

static void decide(struct call *call, const struct decide_request *request)
{
    struct decide_query *query = query_new(call, sizeof *query, run_decide);
    struct err err;
    if (!query)
        return;
    int rc = read_which(&call->arena, request, &query->what, &err);
    if (!rc && !request->dry_run)
        rc = kafka_check_words(request->actor, request->reason, &err);
    if (rc) {
        call_fail(call, &err);
        return;
    }
    query->what.replay = request->replay;
    query->what.dry_run = request->dry_run;
    query->what.actor = request->actor;
    query->what.reason = request->reason;
    queries_post(&query->query);
}

void kafka_replay_letters(struct call *call)
{
    const Saga__V1__ReplayDeadLettersRequest *request = (void *)call->request;
    decide(call, &(struct decide_request){
                     true, request->dead_letter_ids, request->n_dead_letter_ids, request->filter,
                     request->limit, request->dry_run, request->actor, request->reason });
}

void kafka_discard_letters(struct call *call)
{
    const Saga__V1__DiscardDeadLettersRequest *request = (void *)call->request;
    decide(call, &(struct decide_request){
                     false, request->dead_letter_ids, request->n_dead_letter_ids, request->filter,
                     request->limit, request->dry_run, request->actor, request->reason });
}
