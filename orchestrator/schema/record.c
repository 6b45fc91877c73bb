#include "schema/record.h"

#include <string.h>

enum { VARINT_BYTES_MAX = 10, TAG_BYTES_MAX = 5 };

static bool varint_next(struct records *records, size_t bytes_max, uint64_t *ret)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes_max && records_left(records); i++) {
        uint8_t byte = records->data[records->at++];
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool fixed_next(struct records *records, size_t width, uint64_t *ret)
{
    if (records->size - records->at < width)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)records->data[records->at + i] << (8 * i);
    records->at += width;
    *ret = value;
    return true;
}

static const char *bytes_next(struct records *records, struct record *ret)
{
    uint64_t size;
    if (!varint_next(records, VARINT_BYTES_MAX, &size))
        return "malformed length";
    if (size > records->size - records->at)
        return "length beyond the end";
    ret->data = records->data + records->at;
    ret->size = size;
    records->at += size;
    return NULL;
}

const char *record_next(struct records *records, struct record *ret)
{
    *ret = (struct record){ 0 };
    uint64_t tag;
    if (!varint_next(records, TAG_BYTES_MAX, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return "malformed field number";
    ret->number = (uint32_t)(tag >> 3);
    ret->type = (enum record_type)(tag & 7);
    switch (ret->type) {
    case RECORD_VARINT:
        return varint_next(records, VARINT_BYTES_MAX, &ret->raw) ? NULL : "malformed varint";
    case RECORD_64:
        return fixed_next(records, 8, &ret->raw) ? NULL : "cut short";
    case RECORD_32:
        return fixed_next(records, 4, &ret->raw) ? NULL : "cut short";
    case RECORD_BYTES:
        return bytes_next(records, ret);
    default:
        return "groups and unknown wire types are refused";
    }
}

bool record_next_packed(struct records *records, enum record_type type, uint64_t *ret)
{
    if (type == RECORD_VARINT)
        return varint_next(records, VARINT_BYTES_MAX, ret);
    return fixed_next(records, type == RECORD_64 ? 8 : 4, ret);
}

enum record_type record_type_of(enum schema_kind kind)
{
    switch (kind) {
    case KIND_DOUBLE:
    case KIND_FIXED64:
    case KIND_SFIXED64:
        return RECORD_64;
    case KIND_FLOAT:
    case KIND_FIXED32:
    case KIND_SFIXED32:
        return RECORD_32;
    case KIND_STRING:
    case KIND_BYTES:
    case KIND_MESSAGE:
        return RECORD_BYTES;
    case KIND_GROUP:
        return RECORD_GROUP;
    default:
        return RECORD_VARINT;
    }
}

bool record_is_known(const struct schema_field *field, const struct record *record)
{
    return record->type != RECORD_VARINT || !field->enumeration || !field->enumeration->closed ||
           schema_value_by_number(field->enumeration,
                                  (int32_t)record_integer(KIND_ENUM, record->raw)) != NULL;
}

int64_t record_integer(enum schema_kind kind, uint64_t raw)
{
    switch (kind) {
    case KIND_SINT32:
        raw &= UINT32_MAX;
        return (int32_t)((raw >> 1) ^ -(raw & 1));
    case KIND_SINT64:
        return (int64_t)((raw >> 1) ^ -(raw & 1));
    case KIND_INT32:
    case KIND_SFIXED32:
    case KIND_ENUM:
        return (int32_t)raw;
    case KIND_UINT32:
    case KIND_FIXED32:
        return (uint32_t)raw;
    case KIND_BOOL:
        return raw != 0;
    default:
        return (int64_t)raw;
    }
}

double record_real(enum schema_kind kind, uint64_t raw)
{
    if (kind == KIND_FLOAT) {
        uint32_t bits = (uint32_t)raw;
        float single;
        memcpy(&single, &bits, sizeof single);
        return (double)single;
    }
    double value;
    memcpy(&value, &raw, sizeof value);
    return value;
}

uint64_t record_raw_of_integer(enum schema_kind kind, int64_t value)
{
    switch (kind) {
    case KIND_SINT32:
    case KIND_SINT64:
        return (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0);
    case KIND_SFIXED32:
        return (uint32_t)value;
    default:
        return (uint64_t)value;
    }
}

uint64_t record_raw_of_real(enum schema_kind kind, double value)
{
    uint64_t raw;
    if (kind == KIND_FLOAT) {
        float single = (float)value;
        uint32_t bits;
        memcpy(&bits, &single, sizeof bits);
        return bits;
    }
    memcpy(&raw, &value, sizeof raw);
    return raw;
}

static size_t varint_write(uint8_t room[VARINT_BYTES_MAX], uint64_t value)
{
    size_t size = 0;
    for (; value > 0x7f; value >>= 7)
        room[size++] = (uint8_t)(value | 0x80);
    room[size++] = (uint8_t)value;
    return size;
}

void record_put_varint(struct buf *out, uint64_t value)
{
    uint8_t room[VARINT_BYTES_MAX];
    buf_append(out, room, varint_write(room, value));
}

void record_put_tag(struct buf *out, uint32_t number, enum record_type type)
{
    record_put_varint(out, (uint64_t)number << 3 | type);
}

void record_put_raw(struct buf *out, enum record_type type, uint64_t raw)
{
    if (type == RECORD_VARINT) {
        record_put_varint(out, raw);
        return;
    }
    uint8_t room[8];
    size_t width = type == RECORD_64 ? 8 : 4;
    for (size_t i = 0; i < width; i++)
        room[i] = (uint8_t)(raw >> (8 * i));
    buf_append(out, room, width);
}

void record_put_bytes(struct buf *out, uint32_t number, const void *data, size_t size)
{
    record_put_tag(out, number, RECORD_BYTES);
    record_put_varint(out, size);
    buf_append(out, data, size);
}

size_t record_begin(struct buf *out, uint32_t number)
{
    record_put_tag(out, number, RECORD_BYTES);
    return out->size;
}

/* The length is known only now: what follows it moves up. */
void record_end(struct buf *out, size_t begin)
{
    if (out->failed)
        return;
    uint8_t length[VARINT_BYTES_MAX];
    size_t size = out->size - begin, width = varint_write(length, size);
    if (!buf_room(out, width))
        return;
    memmove(out->data + begin + width, out->data + begin, size);
    memcpy(out->data + begin, length, width);
    buf_added(out, width);
}

void record_cut(struct buf *out, size_t size)
{
    out->size = size;
    if (out->data)
        out->data[size] = 0;
}
