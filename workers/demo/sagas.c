#include "sagas.h"

#include "settlement.h"

#include <stdio.h>
#include <string.h>

enum {
    CALL_MS = 5000,
    PAGE = 1000,
    PAGES_MAX = 2 * SETTLEMENT_COUNT_MAX / PAGE + 1,
    CODE_UNAVAILABLE = 14, /* google.rpc.Code */
};

#define RISK_STEP "notify_risk"

static char *borrow(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c's fields are not const; packing only reads */
}

static void message_p(void *message)
{
    ProtobufCMessage *it = *(ProtobufCMessage **)message;
    if (it)
        protobuf_c_message_free_unpacked(it, NULL);
}

/* --- start ------------------------------------------------------------------------------------ */

struct start {
    Saga__V1__StartSagaRequest request;
    char id[SETTLEMENT_ID_SIZE];
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

static int batch_fill(struct batch *batch, int count, const int *numbers, size_t amount,
                      struct err *err)
{
    for (size_t i = 0; i < amount; i++) {
        struct start *start = &batch->starts[i];
        struct settlement settlement = settlement_plan(numbers[i], count);
        batch->amount = i + 1;
        saga__v1__start_saga_request__init(&start->request);
        settlement_id_format(numbers[i], start->id);
        settlement_encode(&settlement, &start->input);
        if (start->input.failed)
            return err_set(err, ERR_NOMEM, "start");
        start->request.definition = borrow("settlement");
        start->request.saga_id = start->id;
        start->request.input.data = start->input.data;
        start->request.input.len = start->input.size;
        batch->requests[i] = &start->request;
    }
    return 0;
}

static int take_items(const Saga__V1__BatchStartSagasResponse *response, const int *numbers,
                      size_t amount, bool *started, struct err *err)
{
    if (response->n_items != amount)
        return err_set(err, ERR_INTERNAL, "start: %zu answers to %zu items", response->n_items,
                       amount);
    for (size_t i = 0; i < amount; i++) {
        const Saga__V1__BatchStartSagasResponse__Item *item = response->items[i];
        bool is_error =
            item->result_case == SAGA__V1__BATCH_START_SAGAS_RESPONSE__ITEM__RESULT_ERROR;
        if (!is_error)
            started[i] = true;
        else if (item->error->code != CODE_UNAVAILABLE)
            return err_set(err, ERR_INVALID, "start of settlement %d: %s", numbers[i],
                           item->error->message);
    }
    return 0;
}

int sagas_start(struct client *client, int count, const int *numbers, size_t amount, bool *started,
                struct err *err)
{
    CLEANUP(batch_done) struct batch batch = { .amount = 0 };
    int rc = batch_fill(&batch, count, numbers, amount, err);
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
    return take_items((const Saga__V1__BatchStartSagasResponse *)reply, numbers, amount, started,
                      err);
}

/* --- look ------------------------------------------------------------------------------------- */

static void take_saga(struct books *books, const Saga__V1__Saga *saga)
{
    struct record *record = books_find(books, saga->saga_id);
    if (!record) {
        books->strangers++;
        return;
    }
    record->saga.sagas++;
    record->saga.state = saga->state;
    record->saga.phase = saga->phase;
    if (saga->park)
        record->saga.park_reason = saga->park->reason;
}

int sagas_look(struct client *client, struct books *books, struct err *err)
{
    for (int number = 1; number <= books->count; number++)
        books->records[number].saga = (struct saga_seen){ 0 };
    CLEANUP(message_p) ProtobufCMessage *page = NULL;
    const char *token = "";
    for (int pages = 0; pages < PAGES_MAX; pages++) {
        Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
        request.definition = borrow("settlement");
        request.oldest_first = true;
        request.page_size = PAGE;
        request.page_token = borrow(token);
        ProtobufCMessage *reply = NULL;
        int rc = client_call(client, "/saga.v1.SagaService/ListSagas", &request.base,
                             &saga__v1__list_sagas_response__descriptor, CALL_MS, &reply, err);
        if (rc)
            return err_wrap(err, "list");
        message_p(&page); /* held the token of this call */
        page = reply;
        const Saga__V1__ListSagasResponse *list = (const Saga__V1__ListSagasResponse *)page;
        for (size_t i = 0; i < list->n_sagas; i++)
            take_saga(books, list->sagas[i]);
        if (!*list->next_page_token)
            return 0;
        token = list->next_page_token;
    }
    return err_set(err, ERR_LIMIT, "list: more than %d pages", PAGES_MAX);
}

/* --- one in full ------------------------------------------------------------------------------ */

static int get_full(struct client *client, int number, ProtobufCMessage **ret, struct err *err)
{
    char id[SETTLEMENT_ID_SIZE];
    settlement_id_format(number, id);
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    ref.definition = borrow("settlement");
    ref.saga_id = id;
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    request.saga = &ref;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    int rc = client_call(client, "/saga.v1.SagaService/GetSaga", &request.base,
                         &saga__v1__saga__descriptor, CALL_MS, ret, err);
    return rc ? err_wrap(err, "get %s", id) : 0;
}

int sagas_look_at_parked(struct client *client, struct books *books, struct err *err)
{
    for (int number = 1; number <= books->count; number++) {
        struct saga_seen *seen = &books->records[number].saga;
        if (seen->state != SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED)
            continue;
        CLEANUP(message_p) ProtobufCMessage *reply = NULL;
        int rc = get_full(client, number, &reply, err);
        if (rc)
            return rc;
        const Saga__V1__Saga *saga = (const Saga__V1__Saga *)reply;
        seen->parked_at_risk = saga->park && strcmp(saga->park->step, RISK_STEP) == 0;
    }
    return 0;
}

int sagas_risk_tries(struct client *client, int number, int *ret_tries, struct err *err)
{
    CLEANUP(message_p) ProtobufCMessage *reply = NULL;
    int rc = get_full(client, number, &reply, err);
    if (rc)
        return rc;
    const Saga__V1__Saga *saga = (const Saga__V1__Saga *)reply;
    for (size_t i = 0; i < saga->n_steps; i++) {
        if (strcmp(saga->steps[i]->name, RISK_STEP) == 0) {
            *ret_tries = saga->steps[i]->tries;
            return 0;
        }
    }
    return err_set(err, ERR_INTERNAL, "get: settlement %d has no step " RISK_STEP, number);
}
