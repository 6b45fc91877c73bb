#include "kafka/headers.h"

#include <saga/v1/kafka.pb-c.h>
#include <string.h>

typedef Saga__V1__KafkaHeaders__Header packed_header;

int headers_pack(const struct kafka_record *record, struct bytes *ret, struct err *err)
{
    *ret = (struct bytes){ 0 };
    size_t count = record->header_count;
    if (!count)
        return 0;
    CLEANUP(mem_free_p) packed_header *items = mem_calloc(count, sizeof *items);
    CLEANUP(mem_free_p) packed_header **pointers = mem_calloc(count, sizeof(void *));
    if (!items || !pointers)
        return err_set(err, ERR_NOMEM, "headers: out of memory");
    for (size_t i = 0; i < count; i++) {
        const struct kafka_header *header = &record->headers[i];
        saga__v1__kafka_headers__header__init(&items[i]);
        pointers[i] = &items[i];
        items[i].name.data = (uint8_t *)header->name;
        items[i].name.len = strlen(header->name);
        if (!header->value.is_there)
            continue;
        items[i]._value_case = SAGA__V1__KAFKA_HEADERS__HEADER___VALUE_VALUE;
        items[i].value.data = (uint8_t *)header->value.data;
        items[i].value.len = header->value.size;
    }
    Saga__V1__KafkaHeaders message = SAGA__V1__KAFKA_HEADERS__INIT;
    message.n_headers = count;
    message.headers = pointers;
    ret->size = saga__v1__kafka_headers__get_packed_size(&message);
    ret->data = mem_calloc(1, ret->size);
    if (!ret->data)
        return err_set(err, ERR_NOMEM, "headers: out of memory");
    (void)saga__v1__kafka_headers__pack(&message, ret->data); /* writes what it was asked for */
    return 0;
}

static int item_read(const packed_header *packed, struct kafka_header *ret, struct err *err)
{
    char *name = mem_strndup((const char *)packed->name.data, packed->name.len);
    if (!name)
        return err_set(err, ERR_NOMEM, "headers: out of memory");
    *ret = (struct kafka_header){
        .name = name,
        .value = { .data = packed->value.data,
                   .size = packed->value.len,
                   .is_there =
                       packed->_value_case == SAGA__V1__KAFKA_HEADERS__HEADER___VALUE_VALUE },
    };
    if (!ret->value.is_there)
        ret->value = (struct kafka_bytes){ 0 };
    return 0;
}

int headers_unpack(const struct bytes *packed, struct headers *ret, struct err *err)
{
    struct headers headers = { 0 };
    *ret = headers;
    if (!packed->size)
        return 0;
    Saga__V1__KafkaHeaders *message =
        saga__v1__kafka_headers__unpack(NULL, packed->size, packed->data);
    if (!message)
        return err_set(err, ERR_INTERNAL, "headers: stored bytes are no saga.v1.KafkaHeaders");
    headers.message = message;
    headers.items = mem_calloc(message->n_headers + 1, sizeof *headers.items);
    int rc = headers.items ? 0 : err_set(err, ERR_NOMEM, "headers: out of memory");
    for (size_t i = 0; rc == 0 && i < message->n_headers; i++) {
        rc = item_read(message->headers[i], &headers.items[i], err);
        headers.count += rc == 0;
    }
    if (rc) {
        headers_done(&headers);
        return rc;
    }
    *ret = headers;
    return 0;
}

void headers_done(struct headers *headers)
{
    for (size_t i = 0; i < headers->count; i++)
        mem_free((char *)headers->items[i].name); /* ours: item_read made it */
    mem_free(headers->items);
    if (headers->message)
        saga__v1__kafka_headers__free_unpacked(headers->message, NULL);
    *headers = (struct headers){ 0 };
}
