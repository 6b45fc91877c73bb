#include "sagas.h"

#include "base/mem.h"
#include "message.h"

#include <stdio.h>
#include <string.h>

enum {
    CALL_MS = 5000,
    PAGE = 1000,
    PAGES_MAX = 20,        /* of a definition: more than any story has */
    CODE_UNAVAILABLE = 14, /* google.rpc.Code */
};

int sagas_create(const struct story *story, int count, struct sagas *ret, struct err *err)
{
    struct saga_seen *seen = mem_calloc((size_t)count + 1, sizeof *seen);
    if (!seen)
        return err_set(err, ERR_NOMEM, "sagas");
    *ret = (struct sagas){ .story = story, .count = count, .seen = seen };
    return 0;
}

void sagas_done(struct sagas *sagas)
{
    mem_free(sagas->seen);
    sagas->seen = NULL;
}

/* --- start ------------------------------------------------------------------------------------ */

struct start {
    Saga__V1__StartSagaRequest request;
    char id[STORY_ID_SIZE];
    struct buf input;
};

struct batch {
    struct start starts[SAGAS_BATCH_MAX];
    Saga__V1__StartSagaRequest *requests[SAGAS_BATCH_MAX];
    size_t amount;
};

static void batch_done(struct batch *batch)
{
    for (size_t i = 0; i < batch->amount; i++)
        buf_done(&batch->starts[i].input);
}

static int batch_fill(struct batch *batch, const struct sagas *sagas, const int *numbers,
                      size_t amount, struct err *err)
{
    const struct story *story = sagas->story;
    for (size_t i = 0; i < amount; i++) {
        struct start *start = &batch->starts[i];
        batch->amount = i + 1;
        saga__v1__start_saga_request__init(&start->request);
        story_id_format(story, numbers[i], start->id);
        story->encode(numbers[i], sagas->count, &start->input);
        if (start->input.failed)
            return err_set(err, ERR_NOMEM, "start");
        start->request.definition = message_borrow(story->definition_of(numbers[i], sagas->count));
        start->request.input.data = start->input.data;
        start->request.input.len = start->input.size;
        batch->requests[i] = &start->request;
    }
    return 0;
}

static int take_items(const Saga__V1__BatchStartSagasResponse *response, const struct batch *batch,
                      bool *started, struct err *err)
{
    if (response->n_items != batch->amount)
        return err_set(err, ERR_INTERNAL, "start: %zu answers to %zu items", response->n_items,
                       batch->amount);
    for (size_t i = 0; i < batch->amount; i++) {
        const Saga__V1__BatchStartSagasResponse__Item *item = response->items[i];
        const char *id = batch->starts[i].id;
        bool is_error =
            item->result_case == SAGA__V1__BATCH_START_SAGAS_RESPONSE__ITEM__RESULT_ERROR;
        if (is_error && item->error->code != CODE_UNAVAILABLE)
            return err_set(err, ERR_INVALID, "start of %s: %s", id, item->error->message);
        if (!is_error && strcmp(item->saga->saga_id, id) != 0)
            return err_set(err, ERR_INTERNAL, "start of %s: sagad calls it \"%s\"", id,
                           item->saga->saga_id);
        started[i] = !is_error;
    }
    return 0;
}

int sagas_start(struct client *client, const struct sagas *sagas, const int *numbers, size_t amount,
                bool *started, struct err *err)
{
    CLEANUP(batch_done) struct batch batch = { .amount = 0 };
    int rc = batch_fill(&batch, sagas, numbers, amount, err);
    if (rc)
        return rc;
    Saga__V1__BatchStartSagasRequest request = SAGA__V1__BATCH_START_SAGAS_REQUEST__INIT;
    request.n_requests = amount;
    request.requests = batch.requests;
    CLEANUP(message_p) ProtobufCMessage *reply = NULL;
    rc = client_call(client, "/saga.v1.SagaService/BatchStartSagas", &request.base,
                     &saga__v1__batch_start_sagas_response__descriptor, CALL_MS, &reply, err);
    if (rc)
        return err_wrap(err, "start");
    return take_items((const Saga__V1__BatchStartSagasResponse *)reply, &batch, started, err);
}

/* --- look ------------------------------------------------------------------------------------- */

static void take_saga(struct sagas *sagas, const Saga__V1__Saga *saga)
{
    int number = story_number_of(sagas->story, sagas->count, saga->saga_id);
    if (!number ||
        strcmp(sagas->story->definition_of(number, sagas->count), saga->definition) != 0) {
        sagas->strangers++;
        return;
    }
    struct saga_seen *seen = &sagas->seen[number];
    seen->sagas++;
    seen->state = saga->state;
    seen->phase = saga->phase;
    if (saga->park)
        seen->park_reason = saga->park->reason;
}

static int look_at(struct client *client, struct sagas *sagas, const char *definition,
                   struct err *err)
{
    CLEANUP(message_p) ProtobufCMessage *page = NULL;
    const char *token = "";
    for (int pages = 0; pages < PAGES_MAX; pages++) {
        Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
        request.definition = message_borrow(definition);
        request.oldest_first = true;
        request.page_size = PAGE;
        request.page_token = message_borrow(token);
        ProtobufCMessage *reply = NULL;
        int rc = client_call(client, "/saga.v1.SagaService/ListSagas", &request.base,
                             &saga__v1__list_sagas_response__descriptor, CALL_MS, &reply, err);
        if (rc)
            return err_wrap(err, "list");
        message_p(&page); /* held the token of this call */
        page = reply;
        const Saga__V1__ListSagasResponse *list = (const Saga__V1__ListSagasResponse *)page;
        for (size_t i = 0; i < list->n_sagas; i++)
            take_saga(sagas, list->sagas[i]);
        if (!*list->next_page_token)
            return 0;
        token = list->next_page_token;
    }
    return err_set(err, ERR_LIMIT, "list: more than %d pages", PAGES_MAX);
}

int sagas_look(struct client *client, struct sagas *sagas, struct err *err)
{
    for (int number = 1; number <= sagas->count; number++)
        sagas->seen[number] = (struct saga_seen){ 0 };
    sagas->strangers = 0;
    for (const char *const *definition = sagas->story->definitions; *definition; definition++) {
        int rc = look_at(client, sagas, *definition, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* --- one in full ------------------------------------------------------------------------------ */

static Saga__V1__SagaRef ref_of(const struct sagas *sagas, int number, char id[STORY_ID_SIZE])
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    story_id_format(sagas->story, number, id);
    ref.definition = message_borrow(sagas->story->definition_of(number, sagas->count));
    ref.saga_id = id;
    return ref;
}

static int get_full(struct client *client, const struct sagas *sagas, int number,
                    ProtobufCMessage **ret, struct err *err)
{
    char id[STORY_ID_SIZE];
    Saga__V1__SagaRef ref = ref_of(sagas, number, id);
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    int rc = client_call(client, "/saga.v1.SagaService/GetSaga", &request.base,
                         &saga__v1__saga__descriptor, CALL_MS, ret, err);
    return rc ? err_wrap(err, "get %s", id) : 0;
}

int sagas_look_at_parked(struct client *client, struct sagas *sagas, struct err *err)
{
    for (int number = 1; number <= sagas->count; number++) {
        struct saga_seen *seen = &sagas->seen[number];
        if (seen->state != SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED)
            continue;
        CLEANUP(message_p) ProtobufCMessage *reply = NULL;
        int rc = get_full(client, sagas, number, &reply, err);
        if (rc)
            return rc;
        const Saga__V1__Saga *saga = (const Saga__V1__Saga *)reply;
        (void)snprintf(seen->park_step, sizeof seen->park_step, "%s", /* names are shorter */
                       saga->park ? saga->park->step : "");
    }
    return 0;
}

int sagas_step(struct client *client, const struct sagas *sagas, int number, const char *step,
               struct saga_step *ret, struct err *err)
{
    CLEANUP(message_p) ProtobufCMessage *reply = NULL;
    int rc = get_full(client, sagas, number, &reply, err);
    if (rc)
        return rc;
    const Saga__V1__Saga *saga = (const Saga__V1__Saga *)reply;
    for (size_t i = 0; i < saga->n_steps; i++) {
        if (strcmp(saga->steps[i]->name, step) == 0) {
            *ret = (struct saga_step){ saga->steps[i]->state, saga->steps[i]->tries };
            return 0;
        }
    }
    return err_set(err, ERR_INTERNAL, "get: %s has no step %s", saga->saga_id, step);
}

int sagas_journal(struct client *client, const struct sagas *sagas, int number,
                  Saga__V1__ListJournalResponse **ret, struct err *err)
{
    char id[STORY_ID_SIZE];
    Saga__V1__SagaRef ref = ref_of(sagas, number, id);
    Saga__V1__ListJournalRequest request = SAGA__V1__LIST_JOURNAL_REQUEST__INIT;
    request.saga = &ref;
    request.page_size = PAGE;
    ProtobufCMessage *reply = NULL;
    int rc = client_call(client, "/saga.v1.SagaService/ListJournal", &request.base,
                         &saga__v1__list_journal_response__descriptor, CALL_MS, &reply, err);
    if (rc)
        return err_wrap(err, "journal of %s", id);
    Saga__V1__ListJournalResponse *journal = (Saga__V1__ListJournalResponse *)reply;
    if (!*journal->next_page_token) {
        *ret = journal;
        return 0;
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return err_set(err, ERR_LIMIT, "journal of %s: more than %d entries", id, PAGE);
}
