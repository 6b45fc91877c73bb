#include "mutate_message.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "fuzz.h"
#include "wire/scan.h"

#include <string.h>

enum { FIELDS_MAX = 512, DEPTH_MAX = 8, NEW_FIELDS_MAX = 4 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* One field as it lies in the bytes: the tag, the length of BYTES, the contents. */
struct span {
    uint32_t number;
    unsigned wire;
    const uint8_t *start, *contents, *end;
};

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *ret)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static void write_varint(struct buf *out, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)(value & 0x7f);
        value >>= 7;
        if (value)
            byte |= 0x80;
        buf_append(out, &byte, 1);
    } while (value);
}

static bool read_span(const uint8_t **at, const uint8_t *end, struct span *ret)
{
    uint64_t tag, size;
    ret->start = *at;
    if (!read_varint(at, end, &tag))
        return false;
    ret->number = (uint32_t)(tag >> 3);
    ret->wire = tag & 7;
    if (ret->wire == BYTES && !read_varint(at, end, &size))
        return false;
    ret->contents = *at;
    if (ret->wire == VARINT && !read_varint(at, end, &size))
        return false;
    if (ret->wire == VARINT)
        size = 0; /* it is behind us */
    else if (ret->wire == FIXED64 || ret->wire == FIXED32)
        size = ret->wire == FIXED64 ? 8 : 4;
    else if (ret->wire != BYTES)
        return false;
    if (size > (uint64_t)(end - *at))
        return false;
    *at += size;
    ret->end = *at;
    return true;
}

/* False: it is no message, or one with too many fields. */
static bool split(const uint8_t *data, size_t size, struct span *spans, size_t *ret_count)
{
    const uint8_t *at = data, *end = data + size;
    size_t count = 0;
    while (at < end) {
        if (count == FIELDS_MAX || !read_span(&at, end, &spans[count++]))
            return false;
    }
    *ret_count = count;
    return true;
}

static uint64_t random_number(struct rng *rng)
{
    static const uint64_t edges[] = {
        0,   1,    2,     3,     4,         5,         100,        128,       1000,
        256, 1001, 10000, 10001, 999999999, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX,
    };
    if (rng_below(rng, 2))
        return edges[rng_below(rng, ARRAY_LEN(edges))];
    uint64_t value = rng_next(rng) >> rng_below(rng, 64);
    return rng_below(rng, 4) ? value : ~value + 1;
}

static void random_text(struct buf *out, struct rng *rng)
{
    static const char *const words[] = {
        "",
        "a",
        "default",
        "order",
        "debit",
        "order.debit",
        "x\ny",
        "\xc2\x85",
        "\xc3\xa4",
        "-",
        "O-17/eu",
        "\xff",
        "worker-1",
        "019f0000-0000-7000-8000-000000000001",
        "0123456789abcdef0123456789abcdef",
    };
    static const size_t limits[] = { 64, 65, 128, 129, 256, 257, 1024, 1025 };
    if (rng_below(rng, 4)) {
        buf_text(out, words[rng_below(rng, ARRAY_LEN(words))]);
        return;
    }
    for (size_t left = limits[rng_below(rng, ARRAY_LEN(limits))]; left; left--)
        buf_text(out, "z");
}

static void write_fields(const ProtobufCMessageDescriptor *type, struct buf *out, unsigned depth,
                         struct rng *rng);

static void write_number(const ProtobufCFieldDescriptor *field, struct buf *out, struct rng *rng)
{
    if (field->type == PROTOBUF_C_TYPE_ENUM && rng_below(rng, 8)) {
        const ProtobufCEnumDescriptor *values = field->descriptor;
        write_varint(out, (uint64_t)values->values[rng_below(rng, values->n_values)].value);
    } else if (field->type == PROTOBUF_C_TYPE_BOOL) {
        write_varint(out, rng_below(rng, 2));
    } else {
        write_varint(out, random_number(rng));
    }
}

static unsigned wire_of(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return FIXED32;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return BYTES;
    default:
        return VARINT;
    }
}

/* A field of the type with contents made up. */
static void write_field(const ProtobufCFieldDescriptor *field, struct buf *out, unsigned depth,
                        struct rng *rng)
{
    unsigned wire = wire_of(field);
    bool is_packed =
        wire != BYTES && field->label == PROTOBUF_C_LABEL_REPEATED && rng_below(rng, 2);
    write_varint(out, (uint64_t)field->id << 3 | (is_packed ? BYTES : wire));
    if (wire == VARINT && !is_packed) {
        write_number(field, out, rng);
        return;
    }
    if (wire != BYTES && !is_packed) {
        uint64_t number = random_number(rng);
        buf_append(out, &number, wire == FIXED64 ? 8 : 4);
        return;
    }
    CLEANUP(buf_done) struct buf contents = { 0 };
    if (is_packed)
        buf_append(&contents, "\1\2\3\0\0\0\0\1\2\3\0\0\0\0\0\0", (size_t)rng_below(rng, 17));
    else if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        write_fields(field->descriptor, &contents, depth + 1, rng);
    else if (field->type == PROTOBUF_C_TYPE_BYTES && rng_below(rng, 2))
        buf_append(&contents, "0123456789abcdef", 16); /* a saga's uid has this size */
    else
        random_text(&contents, rng);
    write_varint(out, contents.size);
    buf_append(out, buf_cstr(&contents), contents.size);
}

static void write_fields(const ProtobufCMessageDescriptor *type, struct buf *out, unsigned depth,
                         struct rng *rng)
{
    if (depth >= DEPTH_MAX || !type->n_fields)
        return;
    for (uint64_t left = rng_below(rng, NEW_FIELDS_MAX + 1); left; left--)
        write_field(&type->fields[rng_below(rng, type->n_fields)], out, depth, rng);
}

static void mutate_into(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                        struct buf *out, unsigned depth, struct rng *rng);

/* libFuzzer's own mutations, of a piece. */
static void mutate_blindly(const uint8_t *data, size_t size, struct buf *out)
{
    enum { GROWTH = 64 };
    uint8_t *room = buf_room(out, size + GROWTH);
    if (!room)
        return;
    if (size)
        memcpy(room, data, size);
    buf_added(out, LLVMFuzzerMutate(room, size, size + GROWTH));
}

static void mutate_field(const ProtobufCMessageDescriptor *type, const struct span *span,
                         struct buf *out, unsigned depth, struct rng *rng)
{
    const ProtobufCFieldDescriptor *field = wire_field_find(type, span->number);
    if (!field || span->wire == FIXED32 || span->wire == FIXED64) {
        mutate_blindly(span->start, (size_t)(span->end - span->start), out);
        return;
    }
    if (span->wire == VARINT || (field->type != PROTOBUF_C_TYPE_MESSAGE && rng_below(rng, 2))) {
        write_field(field, out, depth, rng);
        return;
    }
    CLEANUP(buf_done) struct buf contents = { 0 };
    size_t size = (size_t)(span->end - span->contents);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        mutate_into(field->descriptor, span->contents, size, &contents, depth + 1, rng);
    else
        mutate_blindly(span->contents, size, &contents);
    write_varint(out, (uint64_t)span->number << 3 | BYTES);
    write_varint(out, contents.size);
    buf_append(out, buf_cstr(&contents), contents.size);
}

static void mutate_into(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                        struct buf *out, unsigned depth, struct rng *rng)
{
    struct span spans[FIELDS_MAX];
    size_t count = 0;
    if (depth >= DEPTH_MAX || !split(data, size, spans, &count) || !rng_below(rng, 20)) {
        mutate_blindly(data, size, out);
        return;
    }
    size_t chosen = count ? (size_t)rng_below(rng, count) : 0;
    unsigned what = count ? (unsigned)rng_below(rng, 6) : 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = (size_t)(spans[i].end - spans[i].start);
        if (i != chosen || what == 0) {
            buf_append(out, spans[i].start, length);
        } else if (what == 1) { /* twice */
            buf_append(out, spans[i].start, length);
            buf_append(out, spans[i].start, length);
        } else if (what > 2) { /* 2: gone */
            mutate_field(type, &spans[i], out, depth, rng);
        }
    }
    if (what == 0)
        write_fields(type, out, depth, rng);
}

size_t mutate_message(const ProtobufCMessageDescriptor *type, uint8_t *data, size_t size,
                      size_t size_max, struct rng *rng)
{
    CLEANUP(buf_done) struct buf out = { 0 };
    mutate_into(type, data, size, &out, 0, rng);
    if (out.failed || out.size > size_max)
        return LLVMFuzzerMutate(data, size, size_max);
    if (out.size)
        memcpy(data, out.data, out.size);
    return out.size;
}
