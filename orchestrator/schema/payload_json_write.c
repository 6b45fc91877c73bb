/* Bytes to text. Of each message the fields are collected first, since the last of several wins and
 * the pieces of a sub-message count as one; what is collected holds pointers into the bytes, and is
 * gone when the message is written. payload_check has been there, so the bytes are well formed. */
#include "base/utf8.h"
#include "schema/payload.h"
#include "schema/payload_json.h"
#include "schema/place.h"
#include "schema/record.h"
#include "wire/json_scalars.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOLD_BYTES = 128 }; /* of others' text, in that of an error */

struct writer {
    const struct schema *schema;
    struct buf *out;
    size_t unknown;
    struct err *err;
};

/* A field that is there, once. */
struct piece {
    const struct schema_field *field;
    size_t order; /* in the bytes */
    struct record record;
};

struct pieces {
    struct piece *items; /* by number, then order */
    size_t count, capacity;
};

/* What a message is made of: one piece, or several that are merged. */
struct source {
    const struct piece *pieces;
    size_t count;
};

static int write_message(struct writer *writer, const struct place *place,
                         const struct schema_message *type, struct source source, unsigned depth);

static void pieces_done(struct pieces *pieces)
{
    mem_free(pieces->items);
}

static int out_of_memory(const struct writer *writer)
{
    return err_set(writer->err, ERR_NOMEM, "JSON: out of memory");
}

static int too_deep(const struct writer *writer, const struct place *place)
{
    return place_refuse(place, writer->err, ERR_LIMIT, "messages nested deeper than %d",
                        PAYLOAD_DEPTH_MAX);
}

/* ---- collecting ---- */

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->field != y->field)
        return x->field->number < y->field->number ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* A member of a oneof ends what was there of the others. */
static int settle_oneofs(const struct writer *writer, const struct schema_message *type,
                         struct pieces *pieces)
{
    struct last {
        const struct schema_field *field;
        size_t since;
    };
    CLEANUP(mem_free_p) struct last *last = mem_calloc(type->oneof_count, sizeof *last);
    if (!last)
        return out_of_memory(writer);
    for (size_t i = 0; i < pieces->count; i++) {
        const struct schema_field *field = pieces->items[i].field;
        if (field->oneof >= 0 && last[field->oneof].field != field)
            last[field->oneof] = (struct last){ field, i };
    }
    size_t kept = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct schema_field *field = pieces->items[i].field;
        if (field->oneof < 0 ||
            (last[field->oneof].field == field && last[field->oneof].since <= i))
            pieces->items[kept++] = pieces->items[i];
    }
    pieces->count = kept;
    return 0;
}

static int collect(struct writer *writer, const struct schema_message *type, struct source source,
                   struct pieces *ret)
{
    for (size_t i = 0; i < source.count; i++) {
        struct records records = { source.pieces[i].record.data, source.pieces[i].record.size, 0 };
        struct piece piece = { 0 };
        while (records_left(&records) && !record_next(&records, &piece.record)) {
            piece.field = schema_field_by_number(type, piece.record.number);
            if (!piece.field || !record_is_known(piece.field, &piece.record)) {
                writer->unknown++;
                continue;
            }
            if (mem_grow((void **)&ret->items, &ret->capacity, ret->count, sizeof piece) != 0)
                return out_of_memory(writer);
            piece.order = ret->count;
            ret->items[ret->count++] = piece;
        }
    }
    int rc = type->oneof_count && ret->count ? settle_oneofs(writer, type, ret) : 0;
    if (!rc && ret->count)
        qsort(ret->items, ret->count, sizeof *ret->items, compare_pieces);
    return rc;
}

/* The pieces of the field that comes at `at`; none at the end. */
static struct source same_field(const struct pieces *pieces, size_t at)
{
    if (at == pieces->count)
        return (struct source){ 0 };
    size_t end = at;
    while (end < pieces->count && pieces->items[end].field == pieces->items[at].field)
        end++;
    return (struct source){ pieces->items + at, end - at };
}

/* The last one of that number counts; none: zero. */
static struct record last_of(const struct pieces *pieces, uint32_t number)
{
    struct record record = { 0 };
    for (size_t i = 0; i < pieces->count; i++)
        if (pieces->items[i].field->number == number)
            record = pieces->items[i].record;
    return record;
}

/* ---- scalars ---- */

static void write_real(struct buf *out, enum schema_kind kind, uint64_t raw)
{
    double value = record_real(kind, raw);
    if (isnan(value))
        buf_text(out, "\"NaN\"");
    else if (isinf(value))
        buf_text(out, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    else if (kind == KIND_FLOAT)
        json_float_write(out, (float)value);
    else
        json_double_write(out, value);
}

static void write_enum(struct buf *out, const struct schema_field *field, uint64_t raw)
{
    int32_t number = (int32_t)record_integer(KIND_ENUM, raw);
    const struct schema_value *value = schema_value_by_number(field->enumeration, number);
    if (json_is_null_value(field))
        buf_text(out, "null");
    else if (value)
        buf_printf(out, "\"%s\"", value->name);
    else
        buf_printf(out, "%" PRId32, number);
}

static void write_integer(struct buf *out, enum schema_kind kind, uint64_t raw)
{
    if (record_is_unsigned(kind))
        buf_printf(out, "%" PRIu64, (uint64_t)record_integer(kind, raw));
    else
        buf_printf(out, "%" PRId64, record_integer(kind, raw));
}

static bool is_64_bits(enum schema_kind kind)
{
    return kind == KIND_INT64 || kind == KIND_UINT64 || kind == KIND_SINT64 ||
           kind == KIND_FIXED64 || kind == KIND_SFIXED64;
}

static void write_scalar(struct buf *out, const struct schema_field *field,
                         const struct record *record)
{
    const char *quote = is_64_bits(field->kind) ? "\"" : "";
    switch (field->kind) {
    case KIND_DOUBLE:
    case KIND_FLOAT:
        write_real(out, field->kind, record->raw);
        return;
    case KIND_BOOL:
        buf_text(out, record->raw ? "true" : "false");
        return;
    case KIND_ENUM:
        write_enum(out, field, record->raw);
        return;
    case KIND_STRING:
        json_text_write(out, (const char *)record->data, record->size);
        return;
    case KIND_BYTES:
        buf_text(out, "\"");
        json_base64_write(out, record->data, record->size);
        buf_text(out, "\"");
        return;
    default:
        buf_text(out, quote);
        write_integer(out, field->kind, record->raw);
        buf_text(out, quote);
    }
}

/* One value: a message of all pieces, a scalar of the last. */
static int write_value(struct writer *writer, const struct place *place,
                       const struct schema_field *field, struct source source, unsigned depth)
{
    if (field->kind == KIND_MESSAGE)
        return write_message(writer, place, field->message, source, depth + 1);
    struct record absent = { .raw = field->enumeration
                                        ? (uint64_t)(int64_t)field->enumeration->values[0].number
                                        : 0 };
    write_scalar(writer->out, field,
                 source.count ? &source.pieces[source.count - 1].record : &absent);
    return 0;
}

/* ---- lists and maps ---- */

static void write_packed(struct writer *writer, const struct piece *piece, bool *first)
{
    struct records records = { piece->record.data, piece->record.size, 0 };
    struct record element = { 0 };
    while (records_left(&records) &&
           record_next_packed(&records, record_type_of(piece->field->kind), &element.raw)) {
        if (!record_is_known(piece->field, &element)) {
            writer->unknown++;
            continue;
        }
        buf_text(writer->out, *first ? "" : ",");
        *first = false;
        write_scalar(writer->out, piece->field, &element);
    }
}

static int write_list(struct writer *writer, const struct place *place, struct source source,
                      unsigned depth)
{
    bool first = true;
    buf_text(writer->out, "[");
    for (size_t i = 0; i < source.count; i++) {
        const struct piece *piece = &source.pieces[i];
        if (piece->record.type == RECORD_BYTES && record_is_packable(piece->field->kind)) {
            write_packed(writer, piece, &first);
            continue;
        }
        buf_text(writer->out, first ? "" : ",");
        first = false;
        struct place element = place_index(place, i);
        int rc = write_value(writer, &element, piece->field, (struct source){ piece, 1 }, depth);
        if (rc)
            return rc;
    }
    buf_text(writer->out, "]");
    return 0;
}

struct entry {
    const struct piece *piece;
    struct record key;
    uint64_t rank; /* numbers in their order, as unsigned */
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    size_t size = x->key.size < y->key.size ? x->key.size : y->key.size;
    int order = size ? memcmp(x->key.data, y->key.data, size) : 0;
    if (!order)
        order = (x->key.size > y->key.size) - (x->key.size < y->key.size);
    return order ? order : compare_pieces(x->piece, y->piece);
}

static bool is_same_key(const struct entry *x, const struct entry *y)
{
    return x->rank == y->rank && x->key.size == y->key.size &&
           (!x->key.size || memcmp(x->key.data, y->key.data, x->key.size) == 0);
}

/* The key of an entry; false: its value is unknown (a closed enum's), and so the entry is. */
static bool read_key(const struct piece *piece, struct entry *ret)
{
    const struct schema_field *fields = piece->field->message->fields;
    struct records records = { piece->record.data, piece->record.size, 0 };
    struct record record;
    *ret = (struct entry){ .piece = piece };
    bool known = true;
    while (records_left(&records) && !record_next(&records, &record)) {
        if (record.number == 1)
            ret->key = record;
        else if (record.number == 2)
            known = record_is_known(&fields[1], &record);
    }
    enum schema_kind kind = fields[0].kind;
    ret->rank = kind == KIND_STRING ? 0 : (uint64_t)record_integer(kind, ret->key.raw);
    if (kind != KIND_STRING && !record_is_unsigned(kind))
        ret->rank ^= UINT64_C(1) << 63;
    return known;
}

static int write_entry(struct writer *writer, const struct place *place, const struct entry *entry,
                       unsigned depth)
{
    const struct schema_message *type = entry->piece->field->message;
    CLEANUP(pieces_done) struct pieces pieces = { 0 };
    int rc = collect(writer, type, (struct source){ entry->piece, 1 }, &pieces);
    if (rc)
        return rc;
    struct buf *out = writer->out;
    size_t key = out->size;
    if (type->fields[0].kind == KIND_STRING) {
        write_scalar(out, &type->fields[0], &entry->key);
    } else {
        buf_text(out, "\"");
        if (type->fields[0].kind == KIND_BOOL)
            buf_text(out, entry->key.raw ? "true" : "false");
        else
            write_integer(out, type->fields[0].kind, entry->key.raw);
        buf_text(out, "\"");
    }
    char text[sizeof writer->err->field] = ""; /* the key without its quotes, for the place */
    if (out->size - key > 1 && out->size - key - 2 < sizeof text)
        memcpy(text, out->data + key + 1, out->size - key - 2);
    buf_text(out, ":");
    size_t at = 0;
    while (at < pieces.count && pieces.items[at].field->number != 2)
        at++;
    struct place element = place_key(place, text);
    return write_value(writer, &element, &type->fields[1], same_field(&pieces, at), depth + 1);
}

/* By key; of two with the same key the last one. */
static int write_map(struct writer *writer, const struct place *place, struct source source,
                     unsigned depth)
{
    if (source.count && depth + 1 > PAYLOAD_DEPTH_MAX)
        return too_deep(writer, place);
    CLEANUP(mem_free_p) struct entry *entries = mem_calloc(source.count + 1, sizeof *entries);
    if (!entries)
        return out_of_memory(writer);
    size_t count = 0;
    for (size_t i = 0; i < source.count; i++) {
        if (read_key(&source.pieces[i], &entries[count]))
            count++;
        else
            writer->unknown++;
    }
    qsort(entries, count, sizeof *entries, compare_entries);
    bool first = true;
    buf_text(writer->out, "{");
    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count && is_same_key(&entries[i], &entries[i + 1]))
            continue;
        buf_text(writer->out, first ? "" : ",");
        first = false;
        int rc = write_entry(writer, place, &entries[i], depth);
        if (rc)
            return rc;
    }
    buf_text(writer->out, "}");
    return 0;
}

/* ---- messages ---- */

/* Does it hold its default, and is that the same as nothing? The only value of NullValue is its
 * default. */
static bool is_left_out(const struct schema_field *field, const struct record *last)
{
    return !field->repeated && !field->presence && !last->size &&
           (!record_integer(field->kind, last->raw) || json_is_null_value(field));
}

/* One field with its name; nothing if it holds only what is left out. */
static int write_field(struct writer *writer, const struct place *parent, struct source source,
                       unsigned depth, bool *first)
{
    const struct schema_field *field = source.pieces[0].field;
    const struct record *last = &source.pieces[source.count - 1].record;
    if (is_left_out(field, last))
        return 0;
    struct buf *out = writer->out;
    struct place place = place_field(parent, field->name);
    size_t begin = out->size;
    buf_text(out, *first ? "" : ",");
    json_text_write(out, field->json_name, strlen(field->json_name));
    buf_text(out, ":");
    size_t value = out->size;
    int rc = !field->repeated ? write_value(writer, &place, field, source, depth)
             : field->message && field->message->map_entry
                 ? write_map(writer, &place, source, depth)
                 : write_list(writer, &place, source, depth);
    if (rc || out->failed)
        return rc;
    if (field->repeated && out->size == value + 2) { /* [] or {}: every element was unknown */
        record_cut(out, begin);
        return 0;
    }
    *first = false;
    return 0;
}

static int write_fields(struct writer *writer, const struct place *place,
                        const struct pieces *pieces, unsigned depth, bool first)
{
    for (size_t at = 0; at < pieces->count;) {
        struct source source = same_field(pieces, at);
        int rc = write_field(writer, place, source, depth, &first);
        if (rc)
            return rc;
        at += source.count;
    }
    buf_text(writer->out, "}");
    return 0;
}

static int write_any(struct writer *writer, const struct place *place, const struct pieces *pieces,
                     unsigned depth)
{
    struct record url = last_of(pieces, 1), value = last_of(pieces, 2);
    struct buf *out = writer->out;
    if (!url.size && !value.size) {
        buf_text(out, "{}");
        return 0;
    }
    const char *text = url.size ? (const char *)url.data : "";
    const struct schema_message *type = json_any_type(writer->schema, text, url.size);
    if (!type)
        return place_refuse(place, writer->err, ERR_INVALID, "an Any of the unknown type \"%.*s\"",
                            (int)utf8_cut(text, url.size, TOLD_BYTES), text);
    struct err inner;
    if (payload_check(type, value.data, value.size, &inner) != 0)
        return place_refuse(place, writer->err, inner.code, "an Any that is no %s: %s",
                            type->full_name, inner.msg);
    buf_text(out, "{\"@type\":");
    json_text_write(out, text, url.size);
    struct piece whole = { .record = value };
    struct source source = { &whole, 1 };
    if (json_any_has_value(type)) {
        buf_text(out, ",\"value\":");
        int rc = write_message(writer, place, type, source, depth + 1);
        buf_text(out, "}");
        return rc;
    }
    if (depth + 1 > PAYLOAD_DEPTH_MAX)
        return too_deep(writer, place);
    CLEANUP(pieces_done) struct pieces inside = { 0 };
    int rc = collect(writer, type, source, &inside);
    return rc ? rc : write_fields(writer, place, &inside, depth + 1, false);
}

static int write_time(struct writer *writer, const struct place *place,
                      const struct schema_message *type, const struct pieces *pieces)
{
    char text[JSON_TIME_SIZE];
    int64_t seconds = (int64_t)last_of(pieces, 1).raw;
    int32_t nanos = (int32_t)last_of(pieces, 2).raw;
    if (type->well_known == WELL_KNOWN_TIMESTAMP ? !json_timestamp_write(seconds, nanos, text)
                                                 : !json_duration_write(seconds, nanos, text))
        return place_refuse(place, writer->err, ERR_INVALID, "is not a valid %s",
                            type->full_name + strlen("google.protobuf."));
    buf_printf(writer->out, "\"%s\"", text);
    return 0;
}

static int write_field_mask(struct writer *writer, const struct place *place,
                            const struct pieces *pieces)
{
    CLEANUP(buf_done) struct buf paths = { 0 };
    for (size_t i = 0; i < pieces->count; i++) {
        const char *path = (const char *)pieces->items[i].record.data;
        size_t size = pieces->items[i].record.size;
        buf_text(&paths, i ? "," : "");
        if (!json_path_write(&paths, path, size))
            return place_refuse(place, writer->err, ERR_INVALID,
                                "the path \"%.*s\" has no form in JSON",
                                (int)utf8_cut(path, size, TOLD_BYTES), path);
    }
    if (paths.failed)
        return out_of_memory(writer);
    json_text_write(writer->out, buf_cstr(&paths), paths.size);
    return 0;
}

/* google.protobuf.Value: one of null, a number, a string, a boolean, an object, a list. */
static int write_any_value(struct writer *writer, const struct place *place,
                           const struct pieces *pieces, unsigned depth)
{
    struct source source = same_field(pieces, 0);
    const struct schema_field *field = pieces->count ? pieces->items[0].field : NULL;
    if (!field || field->kind == KIND_ENUM) {
        buf_text(writer->out, "null");
        return 0;
    }
    if (field->kind == KIND_DOUBLE &&
        !isfinite(record_real(KIND_DOUBLE, source.pieces[source.count - 1].record.raw)))
        return place_refuse(place, writer->err, ERR_INVALID,
                            "a Value that is no finite number has no form in JSON");
    return write_value(writer, place, field, source, depth);
}

static int write_message(struct writer *writer, const struct place *place,
                         const struct schema_message *type, struct source source, unsigned depth)
{
    if (depth > PAYLOAD_DEPTH_MAX)
        return too_deep(writer, place);
    CLEANUP(pieces_done) struct pieces pieces = { 0 };
    int rc = collect(writer, type, source, &pieces);
    if (rc)
        return rc;
    struct source all = { pieces.items, pieces.count };
    switch (type->well_known) {
    case WELL_KNOWN_ANY:
        return write_any(writer, place, &pieces, depth);
    case WELL_KNOWN_DURATION:
    case WELL_KNOWN_TIMESTAMP:
        return write_time(writer, place, type, &pieces);
    case WELL_KNOWN_FIELD_MASK:
        return write_field_mask(writer, place, &pieces);
    case WELL_KNOWN_LIST_VALUE:
        return write_list(writer, place, all, depth);
    case WELL_KNOWN_STRUCT:
        return write_map(writer, place, all, depth);
    case WELL_KNOWN_VALUE:
        return write_any_value(writer, place, &pieces, depth);
    case WELL_KNOWN_WRAPPER:
        return write_value(writer, place, &type->fields[0], all, depth);
    default:
        buf_text(writer->out, "{");
        return write_fields(writer, place, &pieces, depth, true);
    }
}

int payload_json_write(const struct schema *schema, const struct schema_message *type,
                       const uint8_t *data, size_t size, struct buf *out, size_t *unknown,
                       struct err *err)
{
    int rc = payload_check(type, data, size, err);
    if (rc)
        return rc;
    struct writer writer = { .schema = schema, .out = out, .err = err };
    struct piece whole = { .record = { .data = data, .size = size } };
    size_t before = out->size;
    rc = write_message(&writer, NULL, type, (struct source){ &whole, 1 }, 1);
    if (!rc && out->failed)
        rc = out->limit ? err_set(err, ERR_LIMIT, "JSON: longer than %zu bytes", out->limit)
                        : out_of_memory(&writer);
    if (rc)
        record_cut(out, before);
    else if (unknown)
        *unknown = writer.unknown;
    return rc;
}
