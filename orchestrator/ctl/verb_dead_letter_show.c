/* sagactl dead-letter show: one record, with its bytes. */
#include "ctl/letter_server.h"
#include "ctl/letter_text.h"
#include "ctl/verbs.h"

#include <stdio.h>
#include <string.h>

enum { BYTES_SHOWN = 4096 };

static const struct ctl_option options[] = {
    { "full", NULL, false, "key and value in full length, however long they are" },
    { "raw", "PART", false, "nothing but the bytes of the record's key or value, as they are" },
    { NULL, NULL, false, NULL },
};

static int print_raw(const Saga__V1__DeadLetter *letter, const char *part)
{
    bool key = strcmp(part, "key") == 0;
    const ProtobufCBinaryData *bytes = key ? &letter->key : &letter->value;
    int64_t size = key ? letter->key_size : letter->value_size;
    CLEANUP(buf_done) struct buf raw = { 0 };
    if (size != (int64_t)bytes->len) { /* bytes that are not the record's would do harm */
        (void)fprintf(stderr,
                      size < 0 ? "sagactl: the record's %s is null\n"
                               : "sagactl: the record's %s is too long for a message\n",
                      part);
        return CTL_EXIT_FAILED;
    }
    buf_append(&raw, bytes->data, bytes->len);
    return ctl_print_text(&raw);
}

static int print(const struct ctl *ctl, const Saga__V1__DeadLetter *letter, bool full)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    struct where_view view = ctl_where_view(ctl);
    json_t *value;
    struct err err;
    if (ctl->json)
        return letter_json(letter, &value, &err) == 0 ? ctl_print_json(value)
                                                      : ctl_print_error(&err);
    if (letter_write(letter, full ? 0 : BYTES_SHOWN, &view, &text))
        buf_text(&text, full ? "(cut: it is too long for a message)\n"
                             : "(cut: --full shows all of it)\n");
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(ctl_message_free_p) Saga__V1__DeadLetter *letter = NULL;
    Saga__V1__GetDeadLetterRequest request = SAGA__V1__GET_DEAD_LETTER_REQUEST__INIT;
    const char *raw = ctl_option(arguments, "raw");
    if (raw && strcmp(raw, "key") != 0 && strcmp(raw, "value") != 0)
        return ctl_print_misuse("--raw must be key or value");
    request.dead_letter_id = (char *)arguments->positional[0];
    int rc = kafka_call(ctl, KAFKA_SERVICE "GetDeadLetter", &request.base,
                        &saga__v1__dead_letter__descriptor, "", &letter);
    if (rc != 0)
        return rc;
    return raw ? print_raw(letter, raw) : print(ctl, letter, ctl_option(arguments, "full") != NULL);
}

const struct ctl_verb verb_dead_letter_show = {
    "dead-letter show",
    "ID",
    1,
    1,
    options,
    "one dead letter: where it came from, what is wrong with it, its key, headers and value\n"
    "\n"
    "Bytes that are no text are shown in hex. With -o json they are base64, and beside them text\n"
    "where they are text.",
    run,
};
