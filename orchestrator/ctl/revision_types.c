#include "ctl/revision_types.h"

#include "base/utf8.h"
#include "ctl/screen.h"
#include "schema/payload.h"
#include "wire/json_scalars.h"

#include <stdio.h>
#include <string.h>

struct revision_types {
    Saga__V1__RegisteredDefinition *registered;
    struct schema *schema; /* NULL: no descriptors */
};

int revision_types_new(Saga__V1__RegisteredDefinition *registered, struct revision_types **ret,
                       struct err *err)
{
    CLEANUP(revision_types_free_p) struct revision_types *types = mem_calloc(1, sizeof *types);
    if (!types)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (registered->descriptors.len &&
        schema_new(registered->descriptors.data, registered->descriptors.len, &types->schema,
                   err) != 0)
        return err->code;
    types->registered = registered;
    *ret = TAKE(types);
    return 0;
}

struct revision_types *revision_types_free(struct revision_types *types)
{
    if (types) {
        types->schema = schema_free(types->schema);
        if (types->registered) /* not yet, when its descriptors were refused */
            saga__v1__registered_definition__free_unpacked(types->registered, NULL);
        mem_free(types);
    }
    return NULL;
}

/* --- which type ----------------------------------------------------------------------------------
 */

static struct revision_type named(const struct revision_types *types, const char *name)
{
    const struct schema_message *message =
        types && types->schema && *name ? schema_message_find(types->schema, name) : NULL;
    return (struct revision_type){ name, message };
}

static const Saga__V1__SagaDefinition *definition_of(const struct revision_types *types)
{
    static const Saga__V1__SagaDefinition nothing = SAGA__V1__SAGA_DEFINITION__INIT;
    return types && types->registered->definition ? types->registered->definition : &nothing;
}

struct revision_type revision_types_input(const struct revision_types *types)
{
    return named(types, definition_of(types)->input_type);
}

/* -1: there is none. */
static int step_index(const struct revision_types *types, const char *name)
{
    const Saga__V1__SagaDefinition *definition = definition_of(types);
    for (size_t i = 0; i < definition->n_steps && i < LIMIT_STEPS; i++)
        if (strcmp(definition->steps[i]->name, name) == 0)
            return (int)i;
    return -1;
}

static struct revision_type output_type(const struct revision_types *types, int index,
                                        bool compensation)
{
    const Saga__V1__SagaDefinition *definition = definition_of(types);
    if (index < 0 || !definition->steps)
        return named(types, "");
    const Saga__V1__Step *step = definition->steps[index];
    const Saga__V1__Operation *operation = !compensation ? step->action
                                           : step->undo_case == SAGA__V1__STEP__UNDO_COMPENSATION
                                               ? step->compensation
                                               : NULL;
    if (!compensation && step->wait_for_signal)
        return named(types, step->wait_for_signal->payload_type);
    return named(types, operation ? operation->output_type : "");
}

struct revision_type revision_types_step(const struct revision_types *types, const char *step,
                                         Saga__V1__OperationKind operation)
{
    return output_type(types, step_index(types, step),
                       operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION);
}

struct revision_type revision_types_signal(const struct revision_types *types, const char *signal)
{
    const Saga__V1__SagaDefinition *definition = definition_of(types);
    for (size_t i = 0; i < definition->n_steps; i++) {
        const Saga__V1__SignalWait *wait = definition->steps[i]->wait_for_signal;
        if (wait && strcmp(wait->signal, signal) == 0)
            return named(types, wait->payload_type);
    }
    return named(types, "");
}

struct revision_type revision_types_entry(const struct revision_types *types,
                                          struct revision_journal *journal,
                                          const Saga__V1__JournalEntry *entry)
{
    if (entry->kind == SAGA__V1__JOURNAL_ENTRY__KIND__KIND_SIGNAL)
        return revision_types_signal(types, entry->reason);
    int index = step_index(types, entry->step);
    bool lease = entry->kind == SAGA__V1__JOURNAL_ENTRY__KIND__KIND_LEASE;
    bool compensation = entry->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION;
    int64_t *undo_seq = index < 0 ? NULL : &journal->undo_seq[index];
    if (undo_seq && compensation && lease && !*undo_seq)
        *undo_seq = entry->seq;
    if (undo_seq && entry->operation == SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE) {
        int64_t granted = lease || !entry->about ? entry->seq : entry->about;
        compensation = *undo_seq && granted > *undo_seq;
    }
    return output_type(types, index, compensation);
}

/* --- for people ----------------------------------------------------------------------------------
 */

/* Text that means the same when its line ends become blanks? */
static bool is_printable(const ProtobufCBinaryData *payload)
{
    const char *text = (const char *)payload->data;
    for (size_t i = 0; i < payload->len; i++) {
        unsigned char c = payload->data[i];
        bool c1 = c == 0xc2 && i + 1 < payload->len && payload->data[i + 1] < 0xa0;
        if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f || c1)
            return false;
    }
    return utf8_is_valid(text, payload->len);
}

static void write_cut(const char *text, size_t size, size_t bytes_max, struct buf *out,
                      bool *ret_cut)
{
    CLEANUP(buf_done) struct buf shown = { 0 };
    *ret_cut = bytes_max && size > bytes_max;
    buf_append(&shown, text, *ret_cut ? utf8_cut(text, size, bytes_max) : size);
    screen_text(out, buf_cstr(&shown));
    if (shown.failed)
        out->failed = true;
    if (*ret_cut)
        buf_printf(out, "... (%zu bytes)", size);
}

static bool write_raw(const ProtobufCBinaryData *payload, size_t bytes_max, struct buf *out)
{
    bool cut = false;
    if (is_printable(payload)) {
        write_cut((const char *)payload->data, payload->len, bytes_max, out, &cut);
        return cut;
    }
    CLEANUP(buf_done) struct buf base64 = { 0 };
    json_base64_write(&base64, payload->data, payload->len);
    buf_text(out, "base64 ");
    write_cut(buf_cstr(&base64), base64.size, bytes_max, out, &cut);
    if (base64.failed)
        out->failed = true;
    return cut;
}

bool revision_types_write(const struct revision_types *types, struct revision_type type,
                          const ProtobufCBinaryData *payload, size_t bytes_max, struct buf *out)
{
    CLEANUP(buf_done) struct buf json = { 0 };
    size_t unknown = 0;
    bool cut;
    struct err err;
    if (!type.message)
        return write_raw(payload, bytes_max, out);
    if (payload_json_write(types->schema, type.message, payload->data, payload->len, &json,
                           &unknown, &err) != 0) {
        cut = write_raw(payload, bytes_max, out);
        buf_printf(out, " (no %s: ", type.name);
        screen_text(out, err.msg);
        buf_text(out, ")");
        return cut;
    }
    write_cut(buf_cstr(&json), json.size, bytes_max, out, &cut);
    if (unknown)
        buf_printf(out, " (+%zu unknown field%s)", unknown, unknown == 1 ? "" : "s");
    return cut;
}

/* --- for scripts ---------------------------------------------------------------------------------
 */

static int add(json_t *object, const char *field, const char *ending, json_t *value,
               struct err *err)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s", field, ending);
    if (!value || json_object_set_new(object, name, value) != 0)
        return err_set(err, ERR_NOMEM, "out of memory");
    return 0;
}

int revision_types_add_json(const struct revision_types *types, struct revision_type type,
                            const ProtobufCBinaryData *payload, const char *field, json_t *object,
                            struct err *err)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    size_t unknown = 0;
    json_error_t where;
    struct err why;
    if (!type.message || !payload->len)
        return 0;
    if (payload_json_write(types->schema, type.message, payload->data, payload->len, &text,
                           &unknown, &why) != 0)
        return why.code == ERR_NOMEM ? err_set(err, ERR_NOMEM, "out of memory")
                                     : add(object, field, "Problem", json_string(why.msg), err);
    json_t *value =
        json_loadb(buf_cstr(&text), text.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    if (!value) /* a NUL in the key of a map */
        return json_error_code(&where) == json_error_out_of_memory
                   ? err_set(err, ERR_NOMEM, "out of memory")
                   : add(object, field, "Problem", json_string(where.text), err);
    if (add(object, field, "Json", value, err) != 0)
        return err->code;
    return unknown ? add(object, field, "UnknownFields", json_integer((json_int_t)unknown), err)
                   : 0;
}

/* --- from people ---------------------------------------------------------------------------------
 */

static bool is_json(struct revision_type type, const struct bytes *payload)
{
    size_t i = 0;
    while (i < payload->size && strchr(" \t\r\n", payload->data[i]) && payload->data[i])
        i++;
    if (i == payload->size)
        return false;
    return payload->data[i] == '{' || (type.message && type.message->well_known);
}

int revision_types_read(const struct revision_types *types, struct revision_type type,
                        const char *what, bool text_only, struct bytes *payload, struct err *err)
{
    struct bytes made = { NULL, 0 };
    if (!*type.name || !payload->size)
        return 0;
    if (!is_json(type, payload))
        return !text_only ? 0
                          : err_set(err, ERR_INVALID, "%s is no JSON: write the %s as '{...}'",
                                    what, type.name);
    if (!type.message)
        return err_set(err, ERR_UNIMPLEMENTED,
                       "%s: the server does not tell what a %s looks like, so it cannot be made of "
                       "JSON here",
                       what, type.name);
    if (payload_json_read(types->schema, type.message, (const char *)payload->data, payload->size,
                          &made, err) != 0)
        return err_wrap(err, "%s is no %s", what, type.name);
    mem_free(payload->data);
    *payload = made;
    return 0;
}
