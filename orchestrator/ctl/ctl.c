#include "ctl/ctl.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/uuid.h"
#include "core/limits.h"
#include "ctl/names.h"
#include "ctl/screen.h"
#include "wire/json.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_TIMEOUT_MS = 30 * 1000 };
static const char default_address[] = "127.0.0.1:7233";

int ctl_init(struct ctl *ctl, const struct ctl_arguments *arguments, struct err *err)
{
    const char *address = arguments->address ? arguments->address : getenv("SAGACTL_ADDRESS");
    const char *output = arguments->output ? arguments->output : "text";
    const char *no_color = getenv("NO_COLOR");
    *ctl = (struct ctl){
        .address = address && *address ? address : default_address,
        .namespace_ = arguments->namespace_,
        .json = strcmp(output, "json") == 0,
        .color = isatty(STDOUT_FILENO) && !(no_color && *no_color),
        .timeout_ms = DEFAULT_TIMEOUT_MS,
        .timeout_given = arguments->timeout != NULL,
    };
    if (!ctl->json && strcmp(output, "text") != 0)
        return err_set(err, ERR_INVALID, "--output must be text or json, not \"%s\"", output);
    if (arguments->timeout &&
        (!ctl_duration(arguments->timeout, &ctl->timeout_ms) || ctl->timeout_ms < 1))
        return err_set(err, ERR_INVALID,
                       "--timeout must be a time such as 30, 500ms or 2m, not \"%s\"",
                       arguments->timeout);
    return 0;
}

void ctl_done(struct ctl *ctl)
{
    ctl->client = client_free(ctl->client);
}

int ctl_connect(struct ctl *ctl, struct err *err)
{
    return ctl->client ? 0 : client_new(ctl->address, &ctl->client, err);
}

int ctl_call_quietly(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                     const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ms, void *ret,
                     struct client_failure *ret_failure, struct err *err)
{
    ProtobufCMessage *reply;
    if (ctl_connect(ctl, err) != 0) {
        *ret_failure = (struct client_failure){ .code = -1, .retry_delay_ms = -1 };
        ret_failure->message = mem_strdup(err->msg); /* NULL: out of memory, as its header says */
        return err->code;
    }
    if (client_call_explained(ctl->client, method, request, reply_type, timeout_ms, &reply,
                              ret_failure, err) != 0)
        return err->code;
    *(ProtobufCMessage **)ret = reply;
    return 0;
}

int ctl_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *reply_type, void *ret)
{
    struct client_failure failure;
    struct err err;
    if (ctl_call_quietly(ctl, method, request, reply_type, ctl->timeout_ms, ret, &failure, &err) ==
        0)
        return 0;
    int code = ctl_print_failure(ctl, &failure);
    client_failure_done(&failure);
    return code;
}

void ctl_message_free_p(void *message)
{
    ProtobufCMessage *owned = *(ProtobufCMessage **)message;
    if (owned)
        protobuf_c_message_free_unpacked(owned, NULL);
}

/* --- printing ------------------------------------------------------------------------------------
 */

void ctl_write_failure(const struct ctl *ctl, const struct client_failure *failure, struct buf *out)
{
    buf_text(out, "sagactl: ");
    if (failure->code >= 0)
        buf_printf(out, "%s: ", client_code_name(failure->code));
    screen_text(out, failure->message ? failure->message : "out of memory");
    if (failure->reason[0])
        buf_printf(out, " [%s]", failure->reason);
    buf_text(out, "\n");
    for (size_t i = 0; i < failure->violation_count; i++) {
        const struct client_violation *violation = &failure->violations[i];
        buf_text(out, "  ");
        screen_text(out, violation->field ? violation->field : "?");
        buf_text(out, ": ");
        screen_text(out, violation->description ? violation->description : "?");
        buf_text(out, "\n");
    }
    if (failure->retry_delay_ms >= 0)
        buf_printf(out, "  try again in %" PRId64 " ms\n", failure->retry_delay_ms);
    if (strcmp(client_code_name(failure->code), "UNAVAILABLE") == 0 && !failure->reason[0])
        buf_printf(out, "  Does a sagad serve on %s? (--address, $SAGACTL_ADDRESS)\n",
                   ctl->address);
}

int ctl_print_failure(const struct ctl *ctl, const struct client_failure *failure)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    ctl_write_failure(ctl, failure, &text);
    (void)fputs(buf_cstr(&text), stderr);
    return CTL_EXIT_FAILED;
}

int ctl_print_error(const struct err *err)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    screen_text(&text, err->msg);
    (void)fprintf(stderr, "sagactl: %s\n", buf_cstr(&text));
    return err->code == ERR_INVALID ? CTL_EXIT_USAGE : CTL_EXIT_FAILED;
}

int ctl_print_misuse(const char *what)
{
    (void)fprintf(stderr, "sagactl: %s\n", what);
    return CTL_EXIT_USAGE;
}

int ctl_print_text(const struct buf *text)
{
    if (text->failed) {
        (void)fputs("sagactl: out of memory\n", stderr);
        return CTL_EXIT_FAILED;
    }
    if (fwrite(text->data ? text->data : (const uint8_t *)"", 1, text->size, stdout) !=
            text->size ||
        fflush(stdout) != 0) {
        (void)fprintf(stderr, "sagactl: stdout: %s\n", strerror(errno));
        return CTL_EXIT_FAILED;
    }
    return 0;
}

int ctl_print_saga(const struct ctl *ctl, const char *done, const Saga__V1__Saga *saga)
{
    if (ctl->json)
        return ctl_print_message(&saga->base);
    CLEANUP(buf_done) struct buf text = { 0 };
    /* It is not done yet: what becomes of the pivot decides. */
    buf_printf(&text, "%s%s: ", saga->pending ? "pending, not yet " : "", done);
    screen_text(&text, saga->definition);
    buf_text(&text, " ");
    screen_text(&text, saga->saga_id);
    buf_printf(&text, " (run %d) is %s", saga->run, name_saga_state(saga->state));
    if (saga->pending) {
        buf_text(&text, " and turns back if step ");
        screen_text(&text, saga->pending->step);
        buf_text(&text, " had no effect");
    }
    buf_text(&text, "\n");
    return ctl_print_text(&text);
}

int ctl_print_message(const ProtobufCMessage *message)
{
    json_t *value;
    struct err err;
    if (wire_json_from_message(message, &value, &err) != 0)
        return ctl_print_error(&err);
    return ctl_print_json(value);
}

/* How many digits it takes, 15 to 17, that each number which is not whole reads back as itself. */
static int digits_of(json_t *value)
{
    int most = 15;
    size_t index;
    const char *key;
    json_t *part;
    if (json_is_real(value)) {
        char text[32];
        double real = json_real_value(value);
        do
            (void)snprintf(text, sizeof text, "%.*g", most, real);
        while (strtod(text, NULL) != real && ++most < 17);
    }
    json_array_foreach(value, index, part)
    {
        int digits = digits_of(part);
        most = digits > most ? digits : most;
    }
    json_object_foreach(value, key, part)
    {
        int digits = digits_of(part);
        most = digits > most ? digits : most;
    }
    return most;
}

static int print_json(json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags | JSON_REAL_PRECISION((size_t)digits_of(value)));
    json_decref(value);
    CLEANUP(buf_done) struct buf out = { 0 };
    if (text)
        buf_printf(&out, "%s\n", text);
    else
        out.failed = true;
    mem_free(text);
    return ctl_print_text(&out);
}

int ctl_print_json(json_t *value)
{
    return print_json(value, JSON_INDENT(2));
}

int ctl_print_json_line(json_t *value)
{
    return print_json(value, JSON_COMPACT);
}

int ctl_exit_code_of(Saga__V1__SagaState state, bool or_parked)
{
    switch (state) {
    case SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED:
        return 0;
    case SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATED:
        return CTL_EXIT_COMPENSATED;
    case SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED:
        return or_parked ? CTL_EXIT_PARKED : -1;
    case SAGA__V1__SAGA_STATE__SAGA_STATE_ABANDONED:
        return CTL_EXIT_ABANDONED;
    default:
        return -1;
    }
}

int ctl_add_page(json_t *all, const ProtobufCMessage *page, const char *name, struct err *err)
{
    json_t *value;
    if (wire_json_from_message(page, &value, err) != 0)
        return err->code;
    int failed = json_array_extend(all, json_object_get(value, name));
    json_decref(value);
    return failed ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

/* --- the surroundings ----------------------------------------------------------------------------
 */

void ctl_actor(char ret[CTL_ACTOR_SIZE])
{
    const char *actor = getenv("SAGACTL_ACTOR");
    const struct passwd *user = getpwuid(getuid());
    if (actor && *actor)
        (void)snprintf(ret, CTL_ACTOR_SIZE, "%s", actor);
    else if (user)
        (void)snprintf(ret, CTL_ACTOR_SIZE, "%s", user->pw_name);
    else
        (void)snprintf(ret, CTL_ACTOR_SIZE, "uid %u", (unsigned)getuid());
}

int64_t ctl_now_ms(void)
{
    return clock_wall_ms(&clock_system);
}

struct where_view ctl_where_view(const struct ctl *ctl)
{
    bool usual = strcmp(ctl->address, default_address) == 0;
    return (struct where_view){ .now_ms = ctl_now_ms(),
                                .color = ctl->color,
                                .address = usual ? NULL : ctl->address };
}

int ctl_read_file(const char *path, size_t limit, struct buf *ret, struct err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "re");
    if (!file)
        return err_set(err, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    uint8_t block[16384];
    size_t count;
    while (ret->size <= limit && (count = fread(block, 1, sizeof block, file)) > 0)
        buf_append(ret, block, count);
    bool unreadable = ferror(file) != 0;
    if (!is_stdin)
        (void)fclose(file); /* it was only read */
    if (unreadable)
        return err_set(err, ERR_UNAVAILABLE, "%s: cannot be read", path);
    if (ret->failed)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    if (ret->size > limit)
        return err_set(err, ERR_LIMIT, "%s has more than %zu bytes", path, limit);
    return 0;
}

/* --- which saga ----------------------------------------------------------------------------------
 */

int ctl_sagas_of_key(struct ctl *ctl, const char *namespace_, const char *definition,
                     const char *key, Saga__V1__ListSagasResponse **ret)
{
    Saga__V1__ListSagasRequest request = SAGA__V1__LIST_SAGAS_REQUEST__INIT;
    request.namespace_ = (char *)namespace_;
    request.definition = (char *)definition;
    request.saga_id = (char *)key;
    request.page_size = LIMIT_PAGE_ITEMS;
    return ctl_call(ctl, "/saga.v1.SagaService/ListSagas", &request.base,
                    &saga__v1__list_sagas_response__descriptor, ret);
}

static bool is_uid(const char *text)
{
    struct uuid uid;
    return uuid_parse(text, &uid);
}

static bool named_before(const Saga__V1__ListSagasResponse *found, size_t i)
{
    for (size_t before = 0; before < i; before++)
        if (strcmp(found->sagas[before]->definition, found->sagas[i]->definition) == 0)
            return true;
    return false;
}

static int print_choice(const char *key, const Saga__V1__ListSagasResponse *found)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_text(&text, "sagactl: more than one definition knows the key ");
    screen_text(&text, key);
    buf_text(&text, "; say which:");
    for (size_t i = 0; i < found->n_sagas; i++)
        if (!named_before(found, i))
            buf_printf(&text, " %s", found->sagas[i]->definition);
    (void)fprintf(stderr, "%s\n", buf_cstr(&text));
    return CTL_EXIT_FAILED;
}

static int find_definition(struct ctl *ctl, const char *key, struct ctl_saga *saga)
{
    int rc = ctl_sagas_of_key(ctl, ctl->namespace_ ? ctl->namespace_ : "", "", key, &saga->found);
    if (rc != 0)
        return rc;
    const Saga__V1__ListSagasResponse *found = saga->found;
    assert(found);
    if (!found->n_sagas && is_uid(key)) {
        saga->ref.uid = (char *)key;
        return 0;
    }
    if (!found->n_sagas) {
        (void)fprintf(stderr,
                      "sagactl: NOT_FOUND: no saga has this key in namespace %s"
                      " (sagactl where KEY looks in all of them)\n",
                      ctl->namespace_ ? ctl->namespace_ : "default");
        return CTL_EXIT_FAILED;
    }
    for (size_t i = 1; i < found->n_sagas; i++)
        if (strcmp(found->sagas[i]->definition, found->sagas[0]->definition) != 0)
            return print_choice(key, found);
    saga->ref.definition = found->sagas[0]->definition;
    saga->ref.saga_id = (char *)key;
    return 0;
}

int ctl_saga_find(struct ctl *ctl, const struct ctl_arguments *arguments, struct ctl_saga *ret)
{
    struct ctl_saga saga = { .ref = SAGA__V1__SAGA_REF__INIT };
    struct err err;
    int64_t run;
    if (ctl_option_number(arguments, "run", 1, INT32_MAX, 0, &run, &err) != 0)
        return ctl_print_error(&err);
    saga.ref.run = (int32_t)run;
    if (ctl->namespace_)
        saga.ref.namespace_ = (char *)ctl->namespace_;
    if (arguments->count == 2) {
        saga.ref.definition = (char *)arguments->positional[0];
        saga.ref.saga_id = (char *)arguments->positional[1];
    } else {
        int rc = find_definition(ctl, arguments->positional[0], &saga);
        if (rc != 0) {
            ctl_saga_done(&saga);
            return rc;
        }
    }
    *ret = saga;
    return 0;
}

int ctl_saga_get(struct ctl *ctl, Saga__V1__SagaRef *ref, Saga__V1__SagaView view,
                 Saga__V1__Saga **ret)
{
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    request.saga = ref;
    request.view = view;
    return ctl_call(ctl, "/saga.v1.SagaService/GetSaga", &request.base, &saga__v1__saga__descriptor,
                    ret);
}

void ctl_saga_done(struct ctl_saga *saga)
{
    ctl_message_free_p(&saga->found);
}

/* --- telling -------------------------------------------------------------------------------------
 */

bool ctl_take_text(const struct ctl_arguments *arguments, const char *option, char **ret)
{
    const char *value = ctl_option(arguments, option);
    if (value)
        *ret = (char *)value;
    return value != NULL;
}

int ctl_tell(struct ctl *ctl, const struct ctl_arguments *arguments,
             const struct ctl_request *request)
{
    CLEANUP(ctl_saga_done) struct ctl_saga named = { .found = NULL };
    CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
    char actor[CTL_ACTOR_SIZE];
    int rc = ctl_saga_find(ctl, arguments, &named);
    if (rc != 0)
        return rc;
    ctl_actor(actor);
    *request->saga = &named.ref;
    *request->actor = actor;
    rc = ctl_call(ctl, request->method, request->message, &saga__v1__saga__descriptor, &saga);
    if (rc != 0)
        return rc;
    assert(saga);
    rc = ctl_print_saga(ctl, request->done, saga);
    if (rc != 0 || ctl->json || !request->note)
        return rc;
    CLEANUP(buf_done) struct buf text = { 0 };
    request->note(saga, ctl_now_ms(), &text);
    return ctl_print_text(&text);
}
