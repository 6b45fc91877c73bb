#include "base/utf8.h"
#include "schema/payload.h"
#include "schema/place.h"
#include "schema/record.h"

/* One message on the way down; PAYLOAD_DEPTH_MAX of them at most. */
struct frame {
    struct frame *parent;
    const struct schema_message *type;
    struct records records;
    const struct schema_field *field; /* the one looked at; NULL: unknown or none */
    size_t field_start;               /* where its tag begins */
    uint64_t required;                /* seen, by required_index */
    struct place place;
    unsigned depth;
};

static int check_message(struct frame *frame, struct err *err);

/* How many of the current field come before it. Only to name a fault: the records up to here are
 * known to be well formed. */
static size_t index_of(const struct frame *frame)
{
    struct records again = { frame->records.data, frame->field_start, 0 };
    struct record record;
    size_t index = 0;
    while (records_left(&again) && !record_next(&again, &record))
        index += record.number == frame->field->number;
    return index;
}

static int refuse(struct frame *frame, struct err *err, enum err_code code, const char *text)
{
    for (struct frame *each = frame; each; each = each->parent) {
        const struct place *parent = each->parent ? &each->parent->place : NULL;
        each->place = place_field(parent, each->field ? each->field->name : NULL);
        if (each->field && each->field->repeated)
            each->place.index = index_of(each);
    }
    return place_refuse(&frame->place, err, code, "%s", text);
}

static int check_packed(struct frame *frame, const struct record *record, struct err *err)
{
    enum record_type type = record_type_of(frame->field->kind);
    struct records packed = { record->data, record->size, 0 };
    uint64_t ignored;
    while (records_left(&packed))
        if (!record_next_packed(&packed, type, &ignored))
            return refuse(frame, err, ERR_INVALID, "malformed packed numbers");
    return 0;
}

static int check_submessage(struct frame *frame, const struct record *record, struct err *err)
{
    struct frame child = {
        .parent = frame,
        .type = frame->field->message,
        .records = { record->data, record->size, 0 },
        .depth = frame->depth + 1,
    };
    _Static_assert(PAYLOAD_DEPTH_MAX == 100, "the text says so");
    if (child.depth > PAYLOAD_DEPTH_MAX)
        return refuse(frame, err, ERR_LIMIT, "messages nested deeper than 100");
    return check_message(&child, err);
}

/* A whole record of a field that the type knows. */
static int check_field(struct frame *frame, const struct record *record, struct err *err)
{
    const struct schema_field *field = frame->field;
    if (field->kind == KIND_GROUP)
        return refuse(frame, err, ERR_INVALID, "groups are refused");
    if (record->type == RECORD_BYTES && field->repeated && record_is_packable(field->kind))
        return check_packed(frame, record, err);
    if (record->type != record_type_of(field->kind))
        return refuse(frame, err, ERR_INVALID, "wrong wire type");
    if (field->required)
        frame->required |= UINT64_C(1) << field->required_index;
    if (field->kind == KIND_MESSAGE)
        return check_submessage(frame, record, err);
    if (field->kind == KIND_STRING && !utf8_is_valid((const char *)record->data, record->size))
        return refuse(frame, err, ERR_INVALID, "is not valid UTF-8");
    return 0;
}

static int check_required(struct frame *frame, struct err *err)
{
    const struct schema_message *type = frame->type;
    if ((unsigned)__builtin_popcountll(frame->required) == type->required_count)
        return 0;
    for (size_t i = 0; i < type->field_count; i++) {
        const struct schema_field *field = &type->fields[i];
        if (field->required && !(frame->required & UINT64_C(1) << field->required_index)) {
            frame->field = field;
            return refuse(frame, err, ERR_INVALID, "is required");
        }
    }
    return 0;
}

static int check_message(struct frame *frame, struct err *err)
{
    while (records_left(&frame->records)) {
        struct record record;
        frame->field_start = frame->records.at;
        const char *problem = record_next(&frame->records, &record);
        frame->field = schema_field_by_number(frame->type, record.number);
        if (problem)
            return refuse(frame, err, ERR_INVALID, problem);
        int rc = frame->field ? check_field(frame, &record, err) : 0;
        if (rc)
            return rc;
    }
    return check_required(frame, err);
}

int payload_check(const struct schema_message *type, const uint8_t *data, size_t size,
                  struct err *err)
{
    struct frame top = { .type = type, .records = { data, size, 0 }, .depth = 1 };
    return check_message(&top, err);
}
