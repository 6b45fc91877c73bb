#include "ctl/ctl_payload.h"

#include "base/mem.h"
#include "core/limits.h"
#include "ctl/screen.h"
#include "wire/json.h"
#include "wire/json_scalars.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static int read_base64(const char *text, struct bytes *ret, struct err *err)
{
    int rc = json_base64_read(text, strlen(text), ret);
    return rc == 0    ? 0
           : rc == -2 ? err_set(err, ERR_NOMEM, "out of memory")
                      : err_set(err, ERR_INVALID, "\"%s\" is no base64", text);
}

int ctl_payload_read(const struct ctl_payload *given, struct bytes *ret, struct err *err)
{
    const char *text = given->text ? given->text : "";
    const char *file = strcmp(text, "-") == 0 ? text : given->file;
    CLEANUP(buf_done) struct buf content = { 0 };
    if ((given->text != NULL) + (given->file != NULL) + (given->base64 != NULL) > 1)
        return err_set(err, ERR_INVALID,
                       "give the payload in only one way: as text, as a file or as base64");
    if (given->base64)
        return read_base64(given->base64, ret, err);
    if (!file)
        buf_text(&content, text);
    else if (ctl_read_file(file, LIMIT_MESSAGE_BYTES, &content, err) != 0)
        return (int)err->code;
    if (content.failed || mem_bytes_copy(content.data, content.size, ret) != 0)
        return err_set(err, ERR_NOMEM, "out of memory");
    return 0;
}

int ctl_payload_make(const struct revision_types *types, struct revision_type type,
                     const char *what, const struct ctl_payload *given, struct bytes *payload)
{
    struct err err;
    bool typed = given->text && strcmp(given->text, "-") != 0;
    if (given->base64 || revision_types_read(types, type, what, typed, payload, &err) == 0)
        return 0;
    (void)ctl_print_error(&err);
    return CTL_EXIT_FAILED; /* the payload is wrong, not the usage; the server would say the same */
}

/* --- types ---------------------------------------------------------------------------------------
 */

static int ask(struct ctl *ctl, const char *namespace_, const char *definition, int32_t revision,
               Saga__V1__RegisteredDefinition **ret, struct client_failure *failure,
               struct err *err)
{
    Saga__V1__GetDefinitionRequest request = SAGA__V1__GET_DEFINITION_REQUEST__INIT;
    if (namespace_)
        request.namespace_ = (char *)namespace_;
    request.name = (char *)definition;
    request.revision = revision;
    request.with_descriptors = true;
    return ctl_call_quietly(ctl, "/saga.v1.DefinitionService/GetDefinition", &request.base,
                            &saga__v1__registered_definition__descriptor, ctl->timeout_ms, ret,
                            failure, err);
}

/* `registered` is consumed in any case. */
static int make_types(Saga__V1__RegisteredDefinition *registered, struct revision_types **ret,
                      struct err *err)
{
    if (revision_types_new(registered, ret, err) == 0)
        return 0;
    (void)err_wrap(err, "types of revision %d", registered->revision);
    saga__v1__registered_definition__free_unpacked(registered, NULL);
    return (int)err->code;
}

int ctl_types_get(struct ctl *ctl, const char *namespace_, const char *definition, int32_t revision,
                  struct revision_types **ret)
{
    Saga__V1__RegisteredDefinition *registered = NULL;
    struct client_failure failure;
    struct err err;
    if (ask(ctl, namespace_, definition, revision, &registered, &failure, &err) != 0) {
        int code = ctl_print_failure(ctl, &failure);
        client_failure_done(&failure);
        return code;
    }
    assert(registered);
    if (make_types(registered, ret, &err) == 0)
        return 0;
    (void)ctl_print_error(&err);
    return CTL_EXIT_FAILED;
}

struct revision_types *ctl_types_of_saga(struct ctl *ctl, const Saga__V1__Saga *saga)
{
    Saga__V1__RegisteredDefinition *registered = NULL;
    struct revision_types *types = NULL;
    struct client_failure failure;
    struct err err;
    bool expected = false;
    if (ask(ctl, saga->namespace_, saga->definition, saga->revision, &registered, &failure, &err) !=
        0) {
        const char *code = client_code_name(failure.code);
        expected = strcmp(code, "NOT_FOUND") == 0 || strcmp(code, "UNIMPLEMENTED") == 0;
        client_failure_done(&failure);
    } else if (make_types(registered, &types, &err) == 0) {
        return types;
    }
    if (!expected) {
        CLEANUP(buf_done) struct buf text = { 0 };
        screen_text(&text, err.msg);
        (void)fprintf(stderr, "sagactl: payloads are shown as bytes: %s\n", buf_cstr(&text));
    }
    return NULL;
}

/* --- JSON ----------------------------------------------------------------------------------------
 */

int ctl_saga_json(const Saga__V1__Saga *saga, const struct revision_types *types, json_t **ret,
                  struct err *err)
{
    json_t *value;
    if (wire_json_from_message(&saga->base, &value, err) != 0)
        return (int)err->code;
    int rc = revision_types_add_json(types, revision_types_input(types), &saga->input, "input",
                                     value, err);
    json_t *steps = json_object_get(value, "steps");
    for (size_t i = 0; rc == 0 && i < saga->n_steps; i++) {
        const Saga__V1__StepStatus *step = saga->steps[i];
        struct revision_type type =
            revision_types_step(types, step->name, SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION);
        rc = revision_types_add_json(types, type, &step->output, "output", json_array_get(steps, i),
                                     err);
    }
    if (rc != 0) {
        json_decref(value);
        return rc;
    }
    *ret = value;
    return 0;
}
