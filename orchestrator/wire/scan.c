#include "wire/scan.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum wire_type { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_GROUP, WIRE_GROUP_END, WIRE_32 };

enum { VARINT_BYTES_MAX = 10, TAG_BYTES_MAX = 5, FIELDS_SEEN_MAX = 64 };

/* One message on the way down. */
struct frame {
    const struct frame *parent;
    const ProtobufCMessageDescriptor *type;
    const uint8_t *data;
    size_t size, at;
    const ProtobufCFieldDescriptor *field; /* the one just looked at; NULL: unknown or none */
    size_t field_start;                    /* where its tag begins */
    uint64_t seen;                         /* single sub-messages that were there already */
    unsigned depth;
};

struct scan {
    size_t elements;
    struct err *err;
};

const ProtobufCFieldDescriptor *wire_field_find(const ProtobufCMessageDescriptor *type,
                                                uint32_t number)
{
    size_t low = 0, high = type->n_fields;
    while (low < high) { /* descriptors are sorted by number */
        size_t middle = (low + high) / 2;
        if (type->fields[middle].id < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < type->n_fields && type->fields[low].id == number ? &type->fields[low] : NULL;
}

static bool read_varint(struct frame *frame, size_t bytes_max, uint64_t *ret)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes_max && frame->at < frame->size; i++) {
        uint8_t byte = frame->data[frame->at++];
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

/* Reads a tag that is known to be well formed up to here; false at the end. */
static bool skip_element(struct frame *frame, uint64_t *ret_tag)
{
    uint64_t size = 0;
    if (!read_varint(frame, TAG_BYTES_MAX, ret_tag))
        return false;
    switch ((enum wire_type)(*ret_tag & 7)) {
    case WIRE_VARINT:
        return read_varint(frame, VARINT_BYTES_MAX, &size);
    case WIRE_64:
        size = 8;
        break;
    case WIRE_32:
        size = 4;
        break;
    case WIRE_BYTES:
        if (!read_varint(frame, VARINT_BYTES_MAX, &size))
            return false;
        break;
    default:
        return false;
    }
    if (size > frame->size - frame->at)
        return false;
    frame->at += size;
    return true;
}

/* How many elements of the current field come before it: its index. Only to name a fault. */
static size_t index_of(const struct frame *frame)
{
    struct frame again = { .data = frame->data, .size = frame->field_start };
    size_t index = 0;
    uint64_t tag;
    while (again.at < again.size && skip_element(&again, &tag))
        index += tag >> 3 == frame->field->id;
    return index;
}

static void append_path(const struct frame *frame, char *path, size_t size)
{
    if (frame->parent)
        append_path(frame->parent, path, size);
    if (!frame->field)
        return;
    size_t used = strlen(path);
    const char *dot = used ? "." : "";
    if (frame->field->label == PROTOBUF_C_LABEL_REPEATED)
        (void)snprintf(path + used, size - used, "%s%s[%zu]", dot, frame->field->name,
                       index_of(frame));
    else
        (void)snprintf(path + used, size - used, "%s%s", dot, frame->field->name);
}

FMT(4, 5)
static int refuse(struct scan *scan, const struct frame *frame, enum err_code code, const char *fmt,
                  ...)
{
    char path[sizeof scan->err->field] = "", text[160];
    if (frame->depth < 16) /* deeper ones are nobody's honest message, and the path would be cut */
        append_path(frame, path, sizeof path);
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    int rc = *path ? err_set(scan->err, code, "%s: %s", path, text)
                   : err_set(scan->err, code, "malformed message: %s", text);
    (void)snprintf(scan->err->field, sizeof scan->err->field, "%s", path);
    return rc;
}

static enum wire_type wire_type_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return WIRE_32;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return WIRE_64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    default:
        return WIRE_VARINT;
    }
}

static int count(struct scan *scan, const struct frame *frame, size_t elements)
{
    scan->elements += elements;
    if (scan->elements > SCAN_ELEMENTS_MAX)
        return refuse(scan, frame, ERR_LIMIT, "more than %d fields in one message",
                      SCAN_ELEMENTS_MAX);
    return 0;
}

/* Numbers packed into one field. */
static int scan_packed(struct scan *scan, const struct frame *frame, const uint8_t *data,
                       size_t size)
{
    enum wire_type wire = wire_type_of(frame->field->type);
    if (wire == WIRE_BYTES)
        return refuse(scan, frame, ERR_INVALID, "wrong wire type");
    if (wire != WIRE_VARINT) {
        size_t width = wire == WIRE_64 ? 8 : 4;
        if (size % width)
            return refuse(scan, frame, ERR_INVALID, "%zu bytes are not whole elements", size);
        return count(scan, frame, size / width);
    }
    struct frame packed = { .data = data, .size = size };
    while (packed.at < packed.size) {
        uint64_t value;
        if (!read_varint(&packed, VARINT_BYTES_MAX, &value))
            return refuse(scan, frame, ERR_INVALID, "malformed varint");
        int rc = count(scan, frame, 1);
        if (rc)
            return rc;
    }
    return 0;
}

static int scan_message(struct scan *scan, struct frame *frame);

static int scan_submessage(struct scan *scan, struct frame *frame, const uint8_t *data, size_t size)
{
    const ProtobufCFieldDescriptor *field = frame->field;
    size_t index = (size_t)(field - frame->type->fields);
    if (field->label != PROTOBUF_C_LABEL_REPEATED && index < FIELDS_SEEN_MAX) {
        /* protobuf-c loses numbers when it merges the halves of a message given twice */
        if (frame->seen & UINT64_C(1) << index)
            return refuse(scan, frame, ERR_INVALID, "given twice");
        frame->seen |= UINT64_C(1) << index;
    }
    if (frame->depth + 1 > SCAN_DEPTH_MAX)
        return refuse(scan, frame, ERR_LIMIT, "messages nested deeper than %d", SCAN_DEPTH_MAX);
    struct frame child = {
        .parent = frame,
        .type = field->descriptor,
        .data = data,
        .size = size,
        .depth = frame->depth + 1,
    };
    return scan_message(scan, &child);
}

static int scan_text(struct scan *scan, const struct frame *frame, const uint8_t *data, size_t size)
{
    if (memchr(data, '\0', size))
        return refuse(scan, frame, ERR_INVALID, "holds a NUL character");
    if (!utf8_is_valid((const char *)data, size))
        return refuse(scan, frame, ERR_INVALID, "is not valid UTF-8");
    return 0;
}

/* A length and what it spans. */
static int scan_bytes(struct scan *scan, struct frame *frame)
{
    uint64_t size;
    if (!read_varint(frame, VARINT_BYTES_MAX, &size))
        return refuse(scan, frame, ERR_INVALID, "malformed length");
    if (size > frame->size - frame->at)
        return refuse(scan, frame, ERR_INVALID, "length beyond the end");
    const uint8_t *data = frame->data + frame->at;
    frame->at += size;
    const ProtobufCFieldDescriptor *field = frame->field;
    if (!field)
        return 0;
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return scan_submessage(scan, frame, data, size);
    case PROTOBUF_C_TYPE_STRING:
        return size ? scan_text(scan, frame, data, size) : 0;
    case PROTOBUF_C_TYPE_BYTES:
        return 0;
    default:
        if (field->label != PROTOBUF_C_LABEL_REPEATED)
            return refuse(scan, frame, ERR_INVALID, "wrong wire type");
        return scan_packed(scan, frame, data, size);
    }
}

static int scan_field(struct scan *scan, struct frame *frame)
{
    uint64_t tag, ignored;
    frame->field = NULL;
    frame->field_start = frame->at;
    if (!read_varint(frame, TAG_BYTES_MAX, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return refuse(scan, frame, ERR_INVALID, "malformed field number");
    enum wire_type wire = (enum wire_type)(tag & 7);
    frame->field = wire_field_find(frame->type, (uint32_t)(tag >> 3));
    int rc = count(scan, frame, 1);
    if (rc)
        return rc;
    if (frame->field && wire != WIRE_BYTES && wire != wire_type_of(frame->field->type))
        return refuse(scan, frame, ERR_INVALID, "wrong wire type");
    switch (wire) {
    case WIRE_VARINT:
        if (!read_varint(frame, VARINT_BYTES_MAX, &ignored))
            return refuse(scan, frame, ERR_INVALID, "malformed varint");
        return 0;
    case WIRE_64:
    case WIRE_32:
        if (frame->size - frame->at < (wire == WIRE_64 ? 8 : 4))
            return refuse(scan, frame, ERR_INVALID, "cut short");
        frame->at += wire == WIRE_64 ? 8 : 4;
        return 0;
    case WIRE_BYTES:
        return scan_bytes(scan, frame);
    default:
        return refuse(scan, frame, ERR_INVALID, "groups and unknown wire types are refused");
    }
}

static int scan_message(struct scan *scan, struct frame *frame)
{
    while (frame->at < frame->size) {
        int rc = scan_field(scan, frame);
        if (rc)
            return rc;
    }
    return 0;
}

int wire_scan(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
              struct err *err)
{
    struct scan scan = { .err = err };
    struct frame top = { .type = type, .data = data, .size = size, .depth = 1 };
    return scan_message(&scan, &top);
}
