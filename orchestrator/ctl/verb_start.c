/* sagactl start: a saga for a business key. */
#include "base/mem.h"
#include "ctl/ctl.h"
#include "ctl/ctl_payload.h"
#include "ctl/names.h"
#include "ctl/verbs.h"
#include "wire/json_scalars.h"

#include <stdio.h>
#include <string.h>

static const struct ctl_option options[] = {
    { "input", "INPUT", false, "the same as the argument" },
    { "file", "FILE", false, "input from a file; - reads stdin" },
    { "input-base64", "BASE64", false, "input as base64, never as JSON" },
    { "label", "KEY=VALUE", true, "a label" },
    { "related", "UID", false, "the saga that this one corrects or repeats" },
    { "at", "TIME", false,
      "the first step does not begin before: 2026-03-02T14:05:00Z, or from now on: 10m" },
    { "suspect", NULL, false,
      "each step may have run before: take over what somebody else may have begun" },
    { "suspect-since", "TIME", false, "since when they may have; or so long ago: 2h" },
    { NULL, NULL, false, NULL },
};

/* What the command line says. "DEFINITION KEY INPUT"; of two the second is the input if it looks
 * like one, and none is given otherwise. */
struct line {
    const char *definition;
    const char *key; /* "": the definition makes it of the input */
    struct ctl_payload input;
};

static int read_line(const struct ctl_arguments *arguments, struct line *ret, struct err *err)
{
    const char *const *words = arguments->positional;
    const char *option = ctl_option(arguments, "input");
    struct line line = { words[0],
                         "",
                         { option, ctl_option(arguments, "file"),
                           ctl_option(arguments, "input-base64") } };
    bool given = line.input.text || line.input.file || line.input.base64;
    const char *second = arguments->count > 1 ? words[1] : "";
    bool looks_like_input = *second == '{' || strcmp(second, "-") == 0;
    const char *input = arguments->count == 3        ? words[2]
                        : !given && looks_like_input ? second
                                                     : NULL;
    if (input && given)
        return err_set(err, ERR_INVALID, "give the input as an argument or by an option, not both");
    if (input)
        line.input.text = input;
    if (input != second)
        line.key = second;
    *ret = line;
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

/* sign: +1, a span is from now on; -1: it is so long ago. */
static int read_time(const char *option, const char *text, int sign,
                     Google__Protobuf__Timestamp *ret, struct err *err)
{
    int64_t delay_ms;
    if (json_timestamp_read(text, &ret->seconds, &ret->nanos))
        return 0;
    if (!ctl_duration(text, &delay_ms))
        return err_set(err, ERR_INVALID,
                       "--%s must be a time such as 2026-03-02T14:05:00Z or, %s, 90s, 10m "
                       "or 2h, not \"%s\"",
                       option, sign > 0 ? "from now on" : "so long ago", text);
    int64_t at_ms = ctl_now_ms() + sign * delay_ms;
    ret->seconds = at_ms / 1000;
    ret->nanos = (int32_t)(at_ms % 1000) * 1000000;
    return 0;
}

/* The input as it goes out; prints what is wrong. Bytes without a type need no question. */
static int make_input(struct ctl *ctl, const struct line *line, struct bytes *input)
{
    struct err err;
    CLEANUP(revision_types_free_p) struct revision_types *types = NULL;
    if (ctl_payload_read(&line->input, input, &err) != 0)
        return ctl_print_error(&err);
    if (!input->size || line->input.base64)
        return 0;
    int rc = ctl_types_get(ctl, ctl->namespace_, line->definition, 0, &types);
    return rc != 0 ? rc
                   : ctl_payload_make(types, revision_types_input(types), "the input", &line->input,
                                      input);
}

static void write_started(const Saga__V1__StartSagaResponse *started, const struct line *line,
                          struct buf *out)
{
    buf_text(out, started->existed ? "is there already: " : "started: ");
    screen_text(out, line->definition);
    buf_text(out, " ");
    screen_text(out, *started->saga_id ? started->saga_id : line->key);
    buf_printf(out, " (run %d, revision %d, %s)", started->run, started->revision, started->uid);
    if (started->existed)
        buf_printf(out, ", %s", name_saga_state(started->state));
    buf_text(out, "\n");
}

/* The request is filled but for its input and labels. */
static int start(struct ctl *ctl, const struct line *line, Saga__V1__StartSagaRequest *request)
{
    CLEANUP(ctl_bytes_done) struct bytes input = { NULL, 0 };
    int rc = make_input(ctl, line, &input);
    if (rc != 0)
        return rc;
    request->input = (ProtobufCBinaryData){ .len = input.size, .data = input.data };
    CLEANUP(ctl_message_free_p) Saga__V1__StartSagaResponse *started = NULL;
    rc = ctl_call(ctl, "/saga.v1.SagaService/StartSaga", &request->base,
                  &saga__v1__start_saga_response__descriptor, &started);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&started->base);
    CLEANUP(buf_done) struct buf text = { 0 };
    write_started(started, line, &text);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    struct err err;
    struct line line;
    CLEANUP(labels_done) struct labels labels = { .count = 0 };
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    Google__Protobuf__Timestamp at = GOOGLE__PROTOBUF__TIMESTAMP__INIT, since = at;
    const char *time = ctl_option(arguments, "at");
    const char *since_time = ctl_option(arguments, "suspect-since");
    char actor[CTL_ACTOR_SIZE];
    if (read_line(arguments, &line, &err) != 0 || read_labels(arguments, &labels, &err) != 0 ||
        (time && read_time("at", time, 1, &at, &err) != 0) ||
        (since_time && read_time("suspect-since", since_time, -1, &since, &err) != 0))
        return ctl_print_error(&err);
    request.suspect = since_time || ctl_option(arguments, "suspect");
    ctl_actor(actor);
    if (request.suspect)
        request.actor = actor;
    request.suspect_since = since_time ? &since : NULL;
    if (ctl->namespace_)
        request.namespace_ = (char *)ctl->namespace_;
    request.definition = (char *)line.definition;
    request.saga_id = (char *)line.key;
    request.labels = labels.list;
    request.n_labels = labels.count;
    request.start_at = time ? &at : NULL;
    (void)ctl_take_text(arguments, "related", &request.related_saga); /* it may be absent */
    return start(ctl, &line, &request);
}

const struct ctl_verb verb_start = {
    "start",
    "DEFINITION [KEY] [INPUT|-]",
    1,
    3,
    options,
    "start a saga for a business key\n"
    "\n"
    "  sagactl start settlement '{\"paymentId\": \"p-17\", \"amountCents\": \"1250\"}'\n"
    "\n"
    "The input is JSON of the definition's input type; - reads it from stdin. Of a definition "
    "without\n"
    "one it is taken as it is. KEY may be left out where the definition makes it of the input: an\n"
    "argument that begins with { is the input. The same key with the same input again is answered\n"
    "with the saga that is there: repeating the command is safe. The same key with other input is\n"
    "refused.\n"
    "\n"
    "--suspect (or --suspect-since) takes over a half-done operation: what is IDEMPOTENT is run "
    "with\n"
    "its key, what is PROBED is asked first, and what may happen once alone waits for a person.",
    run,
};
