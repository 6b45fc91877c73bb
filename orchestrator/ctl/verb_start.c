/* sagactl start: a saga for a business key. */
#include "base/mem.h"
#include "core/limits.h"
#include "ctl/ctl.h"
#include "ctl/names.h"
#include "ctl/verbs.h"
#include "wire/json_scalars.h"

#include <stdio.h>
#include <string.h>

static const struct ctl_option options[] = {
    { "input", "TEXT", false, "input of the saga, as text" },
    { "input-file", "FILE", false, "input from a file; - reads stdin" },
    { "input-base64", "BASE64", false, "input as base64" },
    { "label", "KEY=VALUE", true, "a label" },
    { "related", "UID", false, "the saga that this one corrects or repeats" },
    { NULL, NULL, false, NULL },
};

/* At most one of the three; *ret is owned. */
static int read_input(const struct ctl_arguments *arguments, struct bytes *ret, struct err *err)
{
    const char *text = ctl_option(arguments, "input");
    const char *file = ctl_option(arguments, "input-file");
    const char *base64 = ctl_option(arguments, "input-base64");
    if ((text != NULL) + (file != NULL) + (base64 != NULL) > 1)
        return err_set(err, ERR_INVALID, "only one of --input, --input-file and --input-base64");
    if (file) {
        CLEANUP(buf_done) struct buf content = { 0 };
        if (ctl_read_file(file, LIMIT_MESSAGE_BYTES, &content, err) != 0)
            return err->code;
        if (mem_bytes_copy(content.data, content.size, ret) != 0)
            return err_set(err, ERR_NOMEM, "out of memory");
        return 0;
    }
    if (base64) {
        int rc = json_base64_read(base64, strlen(base64), ret);
        return rc == 0    ? 0
               : rc == -2 ? err_set(err, ERR_NOMEM, "out of memory")
                          : err_set(err, ERR_INVALID, "--input-base64 is no base64");
    }
    if (mem_bytes_copy(text ? text : "", text ? strlen(text) : 0, ret) != 0)
        return err_set(err, ERR_NOMEM, "out of memory");
    return 0;
}

struct labels {
    Saga__V1__StartSagaRequest__LabelsEntry entries[CTL_REPEATS_MAX];
    Saga__V1__StartSagaRequest__LabelsEntry *list[CTL_REPEATS_MAX];
    char *texts[CTL_REPEATS_MAX]; /* owned: "key\0value" */
    size_t count;
};

static void labels_done(struct labels *labels)
{
    for (size_t i = 0; i < labels->count; i++)
        mem_free(labels->texts[i]);
}

static int read_labels(const struct ctl_arguments *arguments, struct labels *labels,
                       struct err *err)
{
    const char *const *values;
    size_t count = ctl_option_all(arguments, "label", &values);
    for (size_t i = 0; i < count; i++) {
        const char *equals = strchr(values[i], '=');
        if (!equals || equals == values[i])
            return err_set(err, ERR_INVALID, "--label must be KEY=VALUE, not \"%s\"", values[i]);
        char *text = mem_strdup(values[i]);
        if (!text)
            return err_set(err, ERR_NOMEM, "out of memory");
        text[equals - values[i]] = '\0';
        labels->texts[labels->count] = text;
        saga__v1__start_saga_request__labels_entry__init(&labels->entries[i]);
        labels->entries[i].key = text;
        labels->entries[i].value = text + (equals - values[i]) + 1;
        labels->list[i] = &labels->entries[i];
        labels->count++;
    }
    return 0;
}

static void write_started(const Saga__V1__StartSagaResponse *started,
                          const struct ctl_arguments *arguments, struct buf *out)
{
    buf_text(out, started->existed ? "is there already: " : "started: ");
    screen_text(out, arguments->positional[0]);
    buf_text(out, " ");
    screen_text(out, arguments->positional[1]);
    buf_printf(out, " (run %d, revision %d, %s)", started->run, started->revision, started->uid);
    if (started->existed)
        buf_printf(out, ", %s", name_saga_state(started->state));
    buf_text(out, "\n");
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    struct err err;
    struct bytes input = { NULL, 0 };
    CLEANUP(labels_done) struct labels labels = { .count = 0 };
    if (read_labels(arguments, &labels, &err) != 0 || read_input(arguments, &input, &err) != 0)
        return ctl_print_error(&err);
    const char *related = ctl_option(arguments, "related");
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    if (ctl->namespace_)
        request.namespace_ = (char *)ctl->namespace_;
    request.definition = (char *)arguments->positional[0];
    request.saga_id = (char *)arguments->positional[1];
    request.input = (ProtobufCBinaryData){ .len = input.size, .data = input.data };
    request.labels = labels.list;
    request.n_labels = labels.count;
    if (related)
        request.related_saga = (char *)related;
    CLEANUP(ctl_message_free_p) Saga__V1__StartSagaResponse *started = NULL;
    int rc = ctl_call(ctl, "/saga.v1.SagaService/StartSaga", &request.base,
                      &saga__v1__start_saga_response__descriptor, &started);
    mem_free(input.data);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&started->base);
    CLEANUP(buf_done) struct buf text = { 0 };
    write_started(started, arguments, &text);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_start = {
    "start",
    "DEFINITION KEY",
    2,
    2,
    options,
    "start a saga for a business key\n"
    "\n"
    "The same key with the same input again is answered with the saga that is there: repeating "
    "the\n"
    "command is safe. The same key with other input is refused.",
    run,
};
