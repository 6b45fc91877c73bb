#include "ctl/letter_text.h"

#include "base/utf8.h"
#include "ctl/names.h"
#include "wire/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEX_BYTES_A_LINE = 16 };

const char *const letter_headers[LETTER_COLUMNS] = { "ID",     "RECEIVED", "RULE",         "RECORD",
                                                     "REASON", "STATE",    "WHAT IS WRONG" };

static enum screen_style style_of(const Saga__V1__DeadLetter *letter)
{
    return letter->state == SAGA__V1__DEAD_LETTER__STATE__STATE_OPEN     ? STYLE_BAD
           : letter->state == SAGA__V1__DEAD_LETTER__STATE__STATE_REPLAY ? STYLE_BUSY
                                                                         : STYLE_PLAIN;
}

/* What the last replay found is newer than what was found first. */
static const char *newest_fault(const Saga__V1__DeadLetter *letter)
{
    return *letter->replay_error ? letter->replay_error : letter->message;
}

void letter_add_row(struct table *table, const Saga__V1__DeadLetter *letter, int64_t now_ms)
{
    CLEANUP(buf_done) struct buf when = { 0 };
    CLEANUP(buf_done) struct buf record = { 0 };
    screen_time(&when, letter->receive_time, now_ms);
    buf_printf(&record, "%s/%d at %" PRId64, letter->topic, letter->partition, letter->offset);
    table_cell(table, letter->dead_letter_id, STYLE_PLAIN);
    table_cell(table, buf_cstr(&when), STYLE_PLAIN);
    table_cell(table, letter->rule, STYLE_PLAIN);
    table_cell(table, buf_cstr(&record), STYLE_PLAIN);
    table_cell(table, letter->reason, STYLE_BOLD);
    table_cell(table, name_letter_state(letter->state), style_of(letter));
    table_cell(table, newest_fault(letter), STYLE_PLAIN);
}

/* --- bytes ---------------------------------------------------------------------------------------
 */

/* Text with line ends and tabs, and nothing that steers a terminal? */
static bool is_text(const uint8_t *data, size_t size)
{
    size_t from = 0;
    for (size_t i = 0; i <= size; i++) {
        bool is_blank = i < size && (data[i] == '\n' || data[i] == '\t' || data[i] == '\r');
        if (i < size && !is_blank)
            continue;
        if (!utf8_is_text((const char *)data + from, i - from))
            return false;
        from = i + 1;
    }
    return true;
}

static void write_hex_line(const uint8_t *data, size_t size, size_t at, struct buf *out)
{
    buf_printf(out, "  %08zx ", at);
    for (size_t i = 0; i < HEX_BYTES_A_LINE; i++) {
        if (i < size)
            buf_printf(out, "%s%02x", i == HEX_BYTES_A_LINE / 2 ? "  " : " ", data[i]);
        else
            buf_text(out, i == HEX_BYTES_A_LINE / 2 ? "    " : "   ");
    }
    buf_text(out, "  |");
    for (size_t i = 0; i < size; i++)
        buf_printf(out, "%c", data[i] >= 0x20 && data[i] < 0x7f ? data[i] : '.');
    buf_text(out, "|\n");
}

static void write_text(const uint8_t *data, size_t size, struct buf *out)
{
    buf_text(out, "  ");
    for (size_t i = 0; i < size; i++) {
        if (data[i] == '\r')
            continue;
        buf_append(out, &data[i], 1);
        if (data[i] == '\n' && i + 1 < size)
            buf_text(out, "  ");
    }
    if (data[size - 1] != '\n')
        buf_text(out, "\n");
}

/* true_size -1: null. Returns whether something was cut. */
static bool write_bytes(const char *name, const ProtobufCBinaryData *bytes, int64_t true_size,
                        size_t most, struct buf *out)
{
    if (true_size < 0) {
        buf_printf(out, "%s: null\n", name);
        return false;
    }
    buf_printf(out, "%s, %" PRId64 " bytes", name, true_size);
    if (!bytes->len) {
        buf_text(out, true_size ? "\n" : ": empty\n");
        return false;
    }
    bool text = is_text(bytes->data, bytes->len);
    size_t shown = bytes->len;
    if (most && shown > most)
        shown = text ? utf8_cut((const char *)bytes->data, bytes->len, most) : most;
    buf_printf(out, "%s:\n", text ? "" : " (no text)");
    if (text)
        write_text(bytes->data, shown, out);
    for (size_t at = 0; !text && at < shown; at += HEX_BYTES_A_LINE)
        write_hex_line(bytes->data + at,
                       shown - at < HEX_BYTES_A_LINE ? shown - at : HEX_BYTES_A_LINE, at, out);
    return shown < bytes->len || (int64_t)bytes->len < true_size;
}

/* On one line; what is no text in hex. */
static void write_inline(const ProtobufCBinaryData *bytes, struct buf *out)
{
    if (utf8_is_text((const char *)bytes->data, bytes->len)) {
        buf_append(out, bytes->data, bytes->len);
        return;
    }
    buf_text(out, "0x");
    for (size_t i = 0; i < bytes->len; i++)
        buf_printf(out, "%02x", bytes->data[i]);
}

static void write_headers(const Saga__V1__KafkaHeaders *headers, struct buf *out)
{
    for (size_t i = 0; headers && i < headers->n_headers; i++) {
        const Saga__V1__KafkaHeaders__Header *header = headers->headers[i];
        bool is_null = header->_value_case == SAGA__V1__KAFKA_HEADERS__HEADER___VALUE__NOT_SET;
        buf_text(out, "header ");
        write_inline(&header->name, out);
        buf_text(out, is_null ? ": null" : ": ");
        if (!is_null)
            write_inline(&header->value, out);
        buf_text(out, "\n");
    }
}

/* --- one letter ----------------------------------------------------------------------------------
 */

static void write_decision(const Saga__V1__DeadLetter *letter, const struct where_view *view,
                           struct buf *out)
{
    if (letter->decide_time) {
        buf_text(out, "  decided by ");
        screen_text(out, letter->actor);
        buf_text(out, ACTOR_UNPROVEN ", ");
        screen_time(out, letter->decide_time, view->now_ms);
        buf_text(out, ": ");
        screen_text(out, letter->decision_reason);
        buf_text(out, "\n");
    }
    if (*letter->saga_uid)
        buf_printf(out, "  its saga: sagactl where %s\n", letter->saga_uid);
    if (*letter->replay_error) {
        buf_text(out, "  the last replay started nothing: ");
        screen_text(out, letter->replay_error);
        buf_text(out, "\n");
    }
}

bool letter_write(const Saga__V1__DeadLetter *letter, size_t most, const struct where_view *view,
                  struct buf *out)
{
    buf_printf(out, "dead letter %s: ", letter->dead_letter_id);
    screen_styled(out, name_letter_state(letter->state), style_of(letter), view->color);
    buf_text(out, "\n  ");
    screen_styled(out, letter->reason, STYLE_BOLD, view->color);
    buf_text(out, ": ");
    screen_text(out, letter->message);
    buf_text(out, "\n  from ");
    screen_text(out, letter->topic);
    buf_printf(out, "/%d, offset %" PRId64 ", by rule ", letter->partition, letter->offset);
    screen_text(out, letter->rule);
    buf_text(out, "\n  written ");
    screen_time(out, letter->record_time, view->now_ms);
    buf_text(out, ", received ");
    screen_time(out, letter->receive_time, view->now_ms);
    buf_text(out, "\n");
    if (*letter->saga_id) {
        buf_text(out, "  business key ");
        screen_text(out, letter->saga_id);
        buf_text(out, "\n");
    }
    write_decision(letter, view, out);
    bool cut = write_bytes("key", &letter->key, letter->key_size, most, out);
    write_headers(letter->headers, out);
    return write_bytes("value", &letter->value, letter->value_size, most, out) || cut;
}

void letter_write_short(const Saga__V1__DeadLetter *letter, const struct where_view *view,
                        struct buf *out)
{
    buf_text(out, "dead letter, ");
    screen_styled(out, name_letter_state(letter->state), style_of(letter), view->color);
    buf_text(out, ": ");
    screen_text(out, letter->topic);
    buf_printf(out, "/%d at %" PRId64 ", ", letter->partition, letter->offset);
    screen_time(out, letter->receive_time, view->now_ms);
    buf_text(out, ": ");
    screen_text(out, letter->reason);
    buf_text(out, ": ");
    screen_text(out, newest_fault(letter));
    buf_text(out, "\n  sagactl");
    if (view->address) {
        buf_text(out, " --address ");
        screen_shell_word(out, view->address);
    }
    buf_printf(out, " dead-letter show %s\n", letter->dead_letter_id);
}

/* --- JSON ----------------------------------------------------------------------------------------
 */

static int add_text(json_t *object, const char *name, const ProtobufCBinaryData *bytes)
{
    const char *text = bytes->data ? (const char *)bytes->data : "";
    if (!is_text((const uint8_t *)text, bytes->len))
        return 0;
    return json_object_set_new(object, name, json_stringn(text, bytes->len));
}

int letter_json(const Saga__V1__DeadLetter *letter, json_t **ret, struct err *err)
{
    json_t *object = NULL;
    if (wire_json_from_message(&letter->base, &object, err) != 0)
        return (int)err->code;
    int failed = letter->key_size >= 0 ? add_text(object, "keyText", &letter->key) : 0;
    if (!failed && letter->value_size >= 0)
        failed = add_text(object, "valueText", &letter->value);
    const Saga__V1__KafkaHeaders *headers = letter->headers;
    json_t *list = json_object_get(json_object_get(object, "headers"), "headers");
    for (size_t i = 0; !failed && headers && i < headers->n_headers; i++) {
        const Saga__V1__KafkaHeaders__Header *header = headers->headers[i];
        json_t *one = json_array_get(list, i);
        failed = add_text(one, "nameText", &header->name);
        if (!failed && header->_value_case == SAGA__V1__KAFKA_HEADERS__HEADER___VALUE_VALUE)
            failed = add_text(one, "valueText", &header->value);
    }
    if (failed) {
        json_decref(object);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *ret = object;
    return 0;
}
