#include "ctl/export_rows.h"

#include "base/utf8.h"
#include "ctl/csv.h"
#include "ctl/names.h"
#include "wire/json_scalars.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int export_fields_read(const char *const *texts, size_t count, struct export_fields *ret,
                       struct err *err)
{
    struct export_fields fields = { .count = count };
    for (size_t i = 0; i < count; i++) {
        const char *dot = strchr(texts[i], '.');
        size_t size = dot ? (size_t)(dot - texts[i]) : strlen(texts[i]);
        bool of_input = size == 5 && strncmp(texts[i], "input", size) == 0;
        bool of_output = size == 6 && strncmp(texts[i], "output", size) == 0;
        if ((!of_input && !of_output) || (dot && !dot[1]))
            return err_set(err, ERR_INVALID,
                           "--field must be input, output, or a field of one of them such as"
                           " input.order_id, not \"%s\"",
                           texts[i]);
        fields.list[i] = (struct export_field){ texts[i], of_output, dot ? dot + 1 : NULL };
    }
    *ret = fields;
    return 0;
}

/* --- fields of payloads ----------------------------------------------------------------------- */

/* A member by its name in JSON, or as the proto spells it. */
static json_t *member(json_t *object, const char *name, size_t size)
{
    char proto_name[JSON_NAME_SIZE], json_name[JSON_NAME_SIZE];
    if (size >= sizeof proto_name)
        return NULL;
    memcpy(proto_name, name, size);
    proto_name[size] = '\0';
    json_t *value = json_object_get(object, proto_name);
    if (!value && json_field_name(proto_name, json_name))
        value = json_object_get(object, json_name);
    return value;
}

/* NULL: it is not set. */
static json_t *walk(json_t *value, const char *path)
{
    while (value && path && *path) {
        const char *dot = strchr(path, '.');
        value = member(value, path, dot ? (size_t)(dot - path) : strlen(path));
        path = dot ? dot + 1 : NULL;
    }
    return value;
}

/* A payload as a value: JSON where its type is known, else text or base64. New reference; NULL:
 * there is none. */
static int payload_value(const struct export_row *row, bool of_output, json_t **ret,
                         struct err *err)
{
    const ProtobufCBinaryData *payload =
        of_output ? &row->operation->output : &row->operation->input;
    struct revision_type type = of_output ? revision_types_step(row->types, row->step, row->kind)
                                          : revision_types_input(row->types);
    *ret = NULL;
    if (!payload->len)
        return 0;
    if (type.message) {
        json_t *object = json_object();
        int rc = object ? revision_types_add_json(row->types, type, payload, "payload", object, err)
                        : err_set(err, ERR_NOMEM, "out of memory");
        const char *problem = json_string_value(json_object_get(object, "payloadProblem"));
        if (!rc && problem)
            rc = err_set(err, ERR_INVALID, "saga %s: its %s is no %s: %s", row->operation->saga_id,
                         of_output ? "output" : "input", type.name, problem);
        if (!rc)
            *ret = json_incref(json_object_get(object, "payloadJson"));
        json_decref(object);
        return rc;
    }
    CLEANUP(buf_done) struct buf text = { 0 };
    bool is_text = utf8_is_valid((const char *)payload->data, payload->len) &&
                   !memchr(payload->data, '\0', payload->len);
    if (is_text)
        buf_append(&text, payload->data, payload->len);
    else
        json_base64_write(&text, payload->data, payload->len);
    *ret = json_stringn(buf_cstr(&text), text.size);
    return *ret && !text.failed ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

/* New reference; NULL: not set. */
static int field_value(const struct export_row *row, const struct export_field *field,
                       json_t *const payloads[2], json_t **ret, struct err *err)
{
    json_t *payload = payloads[field->of_output];
    if (field->path && payload && !json_is_object(payload))
        return err_set(err, ERR_INVALID,
                       "--field %s: revision %d of the definition does not say what the %s is",
                       field->text, row->operation->revision,
                       field->of_output ? "output" : "input");
    *ret = json_incref(walk(payload, field->path));
    return 0;
}

/* --- the rest of a line ----------------------------------------------------------------------- */

static const char *outcome_name_of(Saga__V1__ExportedOperation__Outcome outcome)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(
        &saga__v1__exported_operation__outcome__descriptor, (int)outcome);
    return value ? value->name + strlen("OUTCOME_") : "?";
}

static void write_time(const Google__Protobuf__Timestamp *time, char ret[JSON_TIME_SIZE])
{
    if (!time || !json_timestamp_write(time->seconds, time->nanos, ret))
        ret[0] = '\0';
}

/* What there is of every operation: the columns, and the members. */
enum { COLUMNS = 15 };
static const char *const columns[COLUMNS] = {
    "saga_id",         "run",           "uid",      "revision", "saga_state", "outcome",
    "idempotency_key", "earlier_keys",  "fence",    "fences",   "attempts",   "unknown_attempts",
    "first_dispatch",  "last_dispatch", "last_end",
};

void export_write_header(const struct export_fields *fields, struct buf *out)
{
    for (size_t i = 0; i < COLUMNS; i++)
        csv_field(out, i == 0, columns[i], strlen(columns[i]));
    buf_text(out, ",error_code");
    for (size_t i = 0; i < fields->count; i++)
        csv_field(out, false, fields->list[i].text, strlen(fields->list[i].text));
    buf_text(out, "\n");
}

static void text_column(struct buf *out, const char *text)
{
    csv_field(out, false, text, strlen(text));
}

FMT(2, 3) static void number_column(struct buf *out, const char *fmt, ...);
static void number_column(struct buf *out, const char *fmt, ...)
{
    char text[64];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    text_column(out, text);
}

static void keys_columns(struct buf *out, const Saga__V1__ExportedOperation *from)
{
    CLEANUP(buf_done) struct buf earlier = { 0 };
    size_t count = from->n_idempotency_keys;
    text_column(out, count ? from->idempotency_keys[count - 1] : "");
    for (size_t i = 0; i + 1 < count; i++)
        buf_printf(&earlier, "%s%s", i ? " " : "", from->idempotency_keys[i]);
    csv_field(out, false, buf_cstr(&earlier), earlier.size);
    out->failed |= earlier.failed;
}

static void fence_columns(struct buf *out, const Saga__V1__ExportedOperation *from)
{
    CLEANUP(buf_done) struct buf all = { 0 };
    if (from->n_fences)
        number_column(out, "%" PRId64, from->fences[from->n_fences - 1]);
    else
        text_column(out, "");
    for (size_t i = 0; i < from->n_fences; i++)
        buf_printf(&all, "%s%" PRId64, i ? " " : "", from->fences[i]);
    csv_field(out, false, buf_cstr(&all), all.size);
    out->failed |= all.failed;
}

static int value_column(struct buf *out, const json_t *value, struct err *err)
{
    if (!value || json_is_null(value)) {
        text_column(out, "");
        return 0;
    }
    if (json_is_string(value)) {
        csv_field(out, false, json_string_value(value), json_string_length(value));
        return 0;
    }
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return err_set(err, ERR_NOMEM, "out of memory");
    text_column(out, text);
    free(text); /* jansson's own malloc */
    return 0;
}

struct payloads {
    json_t *of[2]; /* input, output */
};

static void payloads_done(struct payloads *payloads)
{
    json_decref(payloads->of[0]);
    json_decref(payloads->of[1]);
}

/* Those that some field is of. */
static int payloads_read(const struct export_row *row, const struct export_fields *fields,
                         struct payloads *ret, struct err *err)
{
    for (size_t i = 0; i < fields->count; i++) {
        bool of_output = fields->list[i].of_output;
        if (!ret->of[of_output] && payload_value(row, of_output, &ret->of[of_output], err) != 0)
            return (int)err->code;
    }
    return 0;
}

int export_write_csv(const struct export_row *row, const struct export_fields *fields,
                     struct buf *out, struct err *err)
{
    const Saga__V1__ExportedOperation *from = row->operation;
    CLEANUP(payloads_done) struct payloads payloads = { { NULL, NULL } };
    char time[JSON_TIME_SIZE];
    if (payloads_read(row, fields, &payloads, err) != 0)
        return (int)err->code;
    csv_field(out, true, from->saga_id, strlen(from->saga_id));
    number_column(out, "%d", from->run);
    text_column(out, from->uid);
    number_column(out, "%d", from->revision);
    text_column(out, name_saga_state(from->saga_state));
    text_column(out, outcome_name_of(from->outcome));
    keys_columns(out, from);
    fence_columns(out, from);
    number_column(out, "%d", from->attempts);
    number_column(out, "%d", from->unknown_attempts);
    write_time(from->first_dispatch_time, time);
    text_column(out, time);
    write_time(from->last_dispatch_time, time);
    text_column(out, time);
    write_time(from->last_end_time, time);
    text_column(out, time);
    text_column(out, from->last_error ? from->last_error->code : "");
    for (size_t i = 0; i < fields->count; i++) {
        json_t *value = NULL;
        int rc = field_value(row, &fields->list[i], payloads.of, &value, err);
        if (!rc)
            rc = value_column(out, value, err);
        json_decref(value);
        if (rc)
            return rc;
    }
    buf_text(out, "\n");
    return out->failed ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static json_t *keys_json(const Saga__V1__ExportedOperation *from)
{
    json_t *keys = json_array();
    for (size_t i = 0; i < from->n_idempotency_keys; i++)
        if (json_array_append_new(keys, json_string(from->idempotency_keys[i])) != 0)
            break; /* told by the count below */
    if (json_array_size(keys) != from->n_idempotency_keys) {
        json_decref(keys);
        return NULL;
    }
    return keys;
}

static json_t *fences_json(const Saga__V1__ExportedOperation *from)
{
    json_t *fences = json_array();
    for (size_t i = 0; i < from->n_fences; i++)
        if (json_array_append_new(fences, json_integer(from->fences[i])) != 0)
            break; /* told by the count below */
    if (json_array_size(fences) != from->n_fences) {
        json_decref(fences);
        return NULL;
    }
    return fences;
}

static json_t *time_json(const Google__Protobuf__Timestamp *time)
{
    char text[JSON_TIME_SIZE];
    write_time(time, text);
    return *text ? json_string(text) : json_null();
}

/* The same names as the columns have. */
static json_t *row_json(const Saga__V1__ExportedOperation *from)
{
    return json_pack("{s:s, s:i, s:s, s:i, s:s, s:s, s:o, s:o, s:i, s:i, s:o, s:o, s:o, s:s*}",
                     "saga_id", from->saga_id, "run", from->run, "uid", from->uid, "revision",
                     from->revision, "saga_state", name_saga_state(from->saga_state), "outcome",
                     outcome_name_of(from->outcome), "idempotency_keys", keys_json(from), "fences",
                     fences_json(from), "attempts", from->attempts, "unknown_attempts",
                     from->unknown_attempts, "first_dispatch", time_json(from->first_dispatch_time),
                     "last_dispatch", time_json(from->last_dispatch_time), "last_end",
                     time_json(from->last_end_time), "error_code",
                     from->last_error && *from->last_error->code ? from->last_error->code : NULL);
}

int export_write_json(const struct export_row *row, const struct export_fields *fields,
                      struct buf *out, struct err *err)
{
    CLEANUP(payloads_done) struct payloads payloads = { { NULL, NULL } };
    if (payloads_read(row, fields, &payloads, err) != 0)
        return (int)err->code;
    json_t *object = row_json(row->operation);
    int rc = object ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; !rc && i < fields->count; i++) {
        json_t *value = NULL;
        rc = field_value(row, &fields->list[i], payloads.of, &value, err);
        if (!rc &&
            json_object_set_new(object, fields->list[i].text, value ? value : json_null()) != 0)
            rc = err_set(err, ERR_NOMEM, "out of memory");
    }
    char *text = rc ? NULL : json_dumps(object, JSON_COMPACT);
    if (!rc && !text)
        rc = err_set(err, ERR_NOMEM, "out of memory");
    if (text) {
        buf_text(out, text);
        buf_text(out, "\n");
        free(text); /* jansson's own malloc */
    }
    json_decref(object);
    return !rc && out->failed ? err_set(err, ERR_NOMEM, "out of memory") : rc;
}
