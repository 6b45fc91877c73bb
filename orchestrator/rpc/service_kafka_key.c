/* KafkaService: what is known of a business key. */
#include "rpc/service_kafka.h"

#include "core/limits.h"
#include "wire/saga_codec.h"

#include <string.h>

struct key_query {
    struct query query;
    const char *namespace_, *definition; /* NULL: every one */
    const char *key;
};

/* A saga's uid is made when it starts: its first 48 bits are the time. */
static int64_t start_ms_of(const struct uuid *uid)
{
    int64_t ms = 0;
    for (int i = 0; i < 6; i++)
        ms = ms << 8 | uid->bytes[i];
    return ms;
}

static Saga__V1__LookUpKeyResponse__Known *make_known(struct arena *arena,
                                                      const struct store_kafka_key *from)
{
    Saga__V1__LookUpKeyResponse__Known *to =
        reply_new(arena, &saga__v1__look_up_key_response__known__descriptor);
    char *uid = arena_alloc(arena, UUID_TEXT_SIZE);
    if (!to || !uid)
        return NULL;
    uuid_format(&from->uid, uid);
    to->namespace_ = from->namespace_;
    to->definition = from->definition;
    to->saga_uid = uid;
    to->run = from->run;
    if (from->ended)
        to->state = saga_state_to_message(from->final_state);
    to->start_time = kafka_time(arena, start_ms_of(&from->uid));
    to->purged = !from->has_row;
    to->forget_time = kafka_time(arena, from->remembered_until_ms);
    to->archive = kafka_text(from->archive);
    return to;
}

static int fill(struct arena *arena, const struct store_kafka_where *found,
                Saga__V1__LookUpKeyResponse *reply)
{
    reply->known = arena_array(arena, found->key_count + 1, sizeof(ProtobufCMessage *));
    if (!reply->known ||
        kafka_fill_letters(arena, found->letters, found->letter_count, &reply->dead_letters) ||
        kafka_fill_rules(arena, &found->rules, true, &reply->rules, &reply->n_rules))
        return -1;
    for (size_t i = 0; i < found->key_count; i++)
        reply->known[i] = make_known(arena, &found->keys[i]);
    reply->n_known = found->key_count;
    reply->n_dead_letters = found->letter_count;
    reply->now = kafka_time(arena, found->rules.now_ms);
    return arena->oom ? -1 : 0;
}

static void run_look_up(struct query *base, struct store_reader *reader)
{
    struct key_query *query = CONTAINER(base, struct key_query, query);
    struct store_kafka_where found = { 0 };
    Saga__V1__LookUpKeyResponse reply = SAGA__V1__LOOK_UP_KEY_RESPONSE__INIT;
    struct err err;
    if (store_reader_kafka_where(reader, query->namespace_, query->definition, query->key, &found,
                                 &err))
        call_fail(base->call, &err);
    else if (fill(&base->call->arena, &found, &reply))
        call_fail_memory(base->call);
    else
        call_reply(base->call, &reply.base);
    store_kafka_where_done(&found);
}

void kafka_look_up_key(struct call *call)
{
    const Saga__V1__LookUpKeyRequest *request = (void *)call->request;
    struct key_query *query = query_new(call, sizeof *query, run_look_up);
    struct err err;
    if (!query)
        return;
    if (check_text("namespace", request->namespace_, 0, LIMIT_NAMESPACE_BYTES, &err) ||
        check_text("definition", request->definition, 0, LIMIT_DEFINITION_NAME_BYTES, &err) ||
        check_text("key", request->key, 1, LIMIT_SAGA_ID_BYTES, &err)) {
        call_fail(call, &err);
        return;
    }
    const char *namespace_ = namespace_or_default(request->namespace_);
    query->namespace_ = strcmp(namespace_, "-") == 0 ? NULL : namespace_;
    query->definition = or_null(request->definition);
    query->key = request->key;
    queries_post(&query->query);
}
