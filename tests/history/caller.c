#include "caller.h"

#include "base/buf.h"
#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <saga/v1/saga.pb-c.h>
#include <string.h>

enum { CALL_MS = 3000, BATCH_MAX = 16, ENTRIES_MAX = 1000 };

void caller_init(struct caller *caller, struct world *world, int64_t id, uint64_t seed)
{
    *caller = (struct caller){ .world = world, .id = id };
    rng_seed(&caller->rng, seed);
}

void caller_done(struct caller *caller)
{
    for (size_t i = 0; i < WORLD_NODES_MAX; i++)
        caller->clients[i] = client_free(caller->clients[i]);
}

size_t caller_some_node(struct caller *caller)
{
    return (size_t)rng_below(&caller->rng, caller->world->nodes);
}

static char *borrow(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c's fields are not const; packing only reads */
}

static void set_text(char field[HISTORY_TEXT_SIZE], const char *text)
{
    (void)snprintf(field, HISTORY_TEXT_SIZE, "%s", text); /* words and uids fit */
}

/* "SAGA_STATE_RUNNING" -> "RUNNING" */
static const char *word_of(const ProtobufCEnumDescriptor *type, int value, const char *prefix)
{
    const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(type, value);
    return found && strncmp(found->name, prefix, strlen(prefix)) == 0 ? found->name + strlen(prefix)
                                                                      : "UNSPECIFIED";
}

static void begin(struct caller *caller, struct history_call *call, enum history_what what,
                  size_t node, const char *key)
{
    history_call_init(call, what);
    call->client = caller->id;
    call->node = (int64_t)node;
    set_text(call->key, key);
}

/* NULL: not answered with success; `answer` says how it ended. */
static ProtobufCMessage *ask(struct caller *caller, size_t node, const char *method,
                             const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *type, int64_t timeout_ms,
                             struct history_call *answer)
{
    char path[96];
    ProtobufCMessage *reply = NULL;
    struct err err;
    (void)snprintf(path, sizeof path, "/saga.v1.SagaService/%s", method);
    int rc = caller->clients[node]
                 ? 0
                 : client_new(caller->world->addresses[node], &caller->clients[node], &err);
    if (rc == 0)
        rc = client_call(caller->clients[node], path, request, type, timeout_ms, &reply, &err);
    answer->end = HISTORY_OK;
    if (rc == 0)
        return reply;
    bool open = err.code == ERR_UNAVAILABLE || err.code == ERR_NOMEM || err.code == ERR_LIMIT ||
                err.code == ERR_CONFLICT;
    answer->end = open ? HISTORY_UNKNOWN : HISTORY_FAIL;
    set_text(answer->answer,
             *err.reason && err.code != ERR_NOT_FOUND ? err.reason : err_code_name(err.code));
    if (open) /* a channel that has seen the server go waits before it tries again */
        caller->clients[node] = client_free(caller->clients[node]);
    return NULL;
}

/* --- starts ----------------------------------------------------------------------------------- */

static const char *const inputs[WORLD_INPUTS] = { "even", "odd" };

static void fill_start(Saga__V1__StartSagaRequest *request, const char *key, int input)
{
    saga__v1__start_saga_request__init(request);
    request->definition = borrow(WORLD_DEFINITION);
    request->saga_id = borrow(key);
    request->input.data = (uint8_t *)borrow(inputs[input]);
    request->input.len = strlen(inputs[input]);
}

static void fill_started(struct history_call *answer, const Saga__V1__StartSagaResponse *started)
{
    set_text(answer->uid, started->uid);
    answer->run = started->run;
    answer->existed = started->existed;
}

void caller_start(struct caller *caller, size_t node, const char *key, int input)
{
    struct history_call call, answer;
    Saga__V1__StartSagaRequest request;
    begin(caller, &call, HISTORY_START, node, key);
    set_text(call.input, inputs[input]);
    history_call_init(&answer, HISTORY_START);
    fill_start(&request, key, input);
    int64_t id = history_invoke(caller->world->log, &call);
    Saga__V1__StartSagaResponse *reply = (Saga__V1__StartSagaResponse *)ask(
        caller, node, "StartSaga", &request.base, &saga__v1__start_saga_response__descriptor,
        CALL_MS, &answer);
    if (reply)
        fill_started(&answer, reply);
    history_end(caller->world->log, id, &answer);
    saga__v1__start_saga_response__free_unpacked(reply, NULL);
}

static void fill_item(struct history_call *answer,
                      const Saga__V1__BatchStartSagasResponse__Item *item)
{
    enum { RESOURCE_EXHAUSTED = 8, ABORTED = 10, UNAVAILABLE = 14 };
    if (item->result_case == SAGA__V1__BATCH_START_SAGAS_RESPONSE__ITEM__RESULT_SAGA) {
        answer->end = HISTORY_OK;
        fill_started(answer, item->saga);
        return;
    }
    int code = item->error->code;
    answer->end = code == UNAVAILABLE || code == ABORTED || code == RESOURCE_EXHAUSTED
                      ? HISTORY_UNKNOWN
                      : HISTORY_FAIL;
    set_text(answer->answer, *item->error->reason ? item->error->reason : client_code_name(code));
}

void caller_start_batch(struct caller *caller, size_t node, int64_t first, int count)
{
    Saga__V1__StartSagaRequest starts[BATCH_MAX], *list[BATCH_MAX];
    Saga__V1__BatchStartSagasRequest request = SAGA__V1__BATCH_START_SAGAS_REQUEST__INIT;
    char keys[BATCH_MAX][24];
    int64_t ids[BATCH_MAX];
    struct history_call call, answer;
    assert(count <= BATCH_MAX);
    for (int i = 0; i < count; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "h%" PRId64, first + i);
        fill_start(&starts[i], keys[i], 0);
        list[i] = &starts[i];
        begin(caller, &call, HISTORY_START, node, keys[i]);
        set_text(call.input, inputs[0]);
        ids[i] = history_invoke(caller->world->log, &call);
    }
    request.requests = list;
    request.n_requests = (size_t)count;
    history_call_init(&answer, HISTORY_START);
    Saga__V1__BatchStartSagasResponse *reply = (Saga__V1__BatchStartSagasResponse *)ask(
        caller, node, "BatchStartSagas", &request.base,
        &saga__v1__batch_start_sagas_response__descriptor, CALL_MS, &answer);
    assert(!reply || reply->n_items == (size_t)count);
    for (int i = 0; i < count; i++) {
        if (reply)
            fill_item(&answer, reply->items[i]);
        history_end(caller->world->log, ids[i], &answer);
        if (reply)
            history_call_init(&answer, HISTORY_START);
    }
    saga__v1__batch_start_sagas_response__free_unpacked(reply, NULL);
}

/* --- calls about one saga --------------------------------------------------------------------- */

static void fill_ref(Saga__V1__SagaRef *ref, const char *key)
{
    saga__v1__saga_ref__init(ref);
    ref->definition = borrow(WORLD_DEFINITION);
    ref->saga_id = borrow(key);
}

/* One call that answers with the saga. */
static void ask_saga(struct caller *caller, size_t node, enum history_what what, const char *method,
                     const ProtobufCMessage *request, const char *key, int64_t timeout_ms)
{
    struct history_call call, answer;
    begin(caller, &call, what, node, key);
    history_call_init(&answer, what);
    int64_t id = history_invoke(caller->world->log, &call);
    Saga__V1__Saga *saga = (Saga__V1__Saga *)ask(caller, node, method, request,
                                                 &saga__v1__saga__descriptor, timeout_ms, &answer);
    if (saga) {
        const ProtobufCEnumDescriptor *states = &saga__v1__saga_state__descriptor;
        set_text(answer.uid, saga->uid);
        answer.run = saga->run;
        set_text(answer.state, word_of(states, (int)saga->state, "SAGA_STATE_"));
        set_text(answer.phase, word_of(states, (int)saga->phase, "SAGA_STATE_"));
    }
    history_end(caller->world->log, id, &answer);
    saga__v1__saga__free_unpacked(saga, NULL);
}

void caller_cancel(struct caller *caller, size_t node, const char *key)
{
    Saga__V1__SagaRef ref;
    Saga__V1__CancelSagaRequest request = SAGA__V1__CANCEL_SAGA_REQUEST__INIT;
    fill_ref(&ref, key);
    request.saga = &ref;
    request.actor = borrow("caller");
    ask_saga(caller, node, HISTORY_CANCEL, "CancelSaga", &request.base, key, CALL_MS);
}

void caller_get(struct caller *caller, size_t node, const char *key)
{
    Saga__V1__SagaRef ref;
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    fill_ref(&ref, key);
    request.saga = &ref;
    ask_saga(caller, node, HISTORY_GET, "GetSaga", &request.base, key, CALL_MS);
}

void caller_wait(struct caller *caller, size_t node, const char *key, int64_t timeout_ms)
{
    Saga__V1__SagaRef ref;
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    Saga__V1__WaitSagaRequest request = SAGA__V1__WAIT_SAGA_REQUEST__INIT;
    fill_ref(&ref, key);
    timeout.seconds = timeout_ms / 1000;
    timeout.nanos = (int32_t)(timeout_ms % 1000 * 1000000);
    request.saga = &ref;
    request.timeout = &timeout;
    request.or_parked = true;
    ask_saga(caller, node, HISTORY_GET, "WaitSaga", &request.base, key, timeout_ms + CALL_MS);
}

/* As history.h has it. An open lease's outcome is UNSPECIFIED. */
static char *entries_text(const Saga__V1__ListJournalResponse *journal)
{
    struct buf text = { .limit = 32 * 1024 };
    for (size_t i = 0; i < journal->n_entries; i++) {
        const Saga__V1__JournalEntry *entry = journal->entries[i];
        const char *outcome = entry->outcome == 0 ? ""
                                                  : word_of(&saga__v1__outcome__descriptor,
                                                            (int)entry->outcome, "OUTCOME_");
        buf_printf(&text, "%s%" PRId64 ":%s:%s:", i ? "," : "", entry->seq,
                   word_of(&saga__v1__journal_entry__kind__descriptor, (int)entry->kind, "KIND_"),
                   outcome);
        if (entry->about != 0)
            buf_printf(&text, "%" PRId64, entry->about);
    }
    assert(!text.failed);
    return text.data ? (char *)text.data : mem_strdup("");
}

void caller_journal(struct caller *caller, size_t node, const char *key)
{
    struct history_call call, answer;
    Saga__V1__SagaRef ref;
    Saga__V1__ListJournalRequest request = SAGA__V1__LIST_JOURNAL_REQUEST__INIT;
    begin(caller, &call, HISTORY_JOURNAL, node, key);
    history_call_init(&answer, HISTORY_JOURNAL);
    fill_ref(&ref, key);
    request.saga = &ref;
    request.page_size = ENTRIES_MAX;
    int64_t id = history_invoke(caller->world->log, &call);
    Saga__V1__ListJournalResponse *reply = (Saga__V1__ListJournalResponse *)ask(
        caller, node, "ListJournal", &request.base, &saga__v1__list_journal_response__descriptor,
        CALL_MS, &answer);
    if (reply)
        answer.entries = entries_text(reply);
    history_end(caller->world->log, id, &answer);
    mem_free(answer.entries);
    saga__v1__list_journal_response__free_unpacked(reply, NULL);
}
