#include "ctl/definition_server.h"

#include "ctl/screen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* gRPC's NOT_FOUND */
enum { CODE_NOT_FOUND = 5 };

static void write_advice(const struct client_failure *failure, const char *name, struct buf *out)
{
    CLEANUP(buf_done) struct buf word = { 0 };
    screen_shell_word(&word, name);
    if (strcmp(failure->reason, "REVISION_IN_USE") == 0)
        buf_printf(
            out,
            "  Sagas stay on their revision for life: delete it when they have ended and are "
            "purged\n  (sagactl definition list %s counts those that run)\n",
            buf_cstr(&word));
    else if (strcmp(failure->reason, "REVISION_CURRENT") == 0)
        buf_printf(out, "  New sagas take it: first sagactl definition promote %s REVISION\n",
                   buf_cstr(&word));
    else if (failure->code == CODE_NOT_FOUND)
        buf_printf(out,
                   "  sagactl definition list tells what there is, and sagactl definition list %s "
                   "its revisions\n",
                   buf_cstr(&word));
}

static int print_failure(const struct ctl *ctl, struct client_failure *failure, const char *name)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    ctl_write_failure(ctl, failure, &text);
    write_advice(failure, name, &text);
    (void)fputs(buf_cstr(&text), stderr);
    client_failure_done(failure);
    return CTL_EXIT_FAILED;
}

int definition_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *reply_type, const char *name, void *ret)
{
    struct client_failure failure;
    struct err err;
    if (ctl_call_quietly(ctl, method, request, reply_type, ctl->timeout_ms, ret, &failure, &err) ==
        0)
        return 0;
    return print_failure(ctl, &failure, name);
}

int definition_revision_read(const char *text, int32_t *ret)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < 1 || number > INT32_MAX) {
        CLEANUP(buf_done) struct buf line = { 0 };
        buf_text(&line, "a revision is a number from 1 on, not \"");
        screen_text(&line, text);
        buf_text(&line, "\"");
        return ctl_print_misuse(buf_cstr(&line));
    }
    *ret = (int32_t)number;
    return 0;
}

int definition_name_read(const char *text, char ret_name[DEFINITION_NAME_SIZE],
                         int32_t *ret_revision)
{
    size_t size = strcspn(text, "@");
    *ret_revision = 0;
    if (size == 0 || size >= DEFINITION_NAME_SIZE)
        return ctl_print_misuse("a definition is named as NAME or NAME@REVISION");
    (void)snprintf(ret_name, DEFINITION_NAME_SIZE, "%.*s", (int)size, text);
    return text[size] ? definition_revision_read(text + size + 1, ret_revision) : 0;
}

int definition_fetch(struct ctl *ctl, const char *namespace_, const char *name, int32_t revision,
                     bool with_descriptors, bool *ret_absent, Saga__V1__RegisteredDefinition **ret)
{
    Saga__V1__GetDefinitionRequest request = SAGA__V1__GET_DEFINITION_REQUEST__INIT;
    Saga__V1__RegisteredDefinition *registered = NULL;
    struct client_failure failure;
    struct err err;
    if (namespace_)
        request.namespace_ = (char *)namespace_;
    request.name = (char *)name;
    request.revision = revision;
    request.with_descriptors = with_descriptors;
    if (ret_absent)
        *ret_absent = false;
    if (ctl_call_quietly(ctl, "/saga.v1.DefinitionService/GetDefinition", &request.base,
                         &saga__v1__registered_definition__descriptor, ctl->timeout_ms, &registered,
                         &failure, &err) != 0) {
        if (!ret_absent || failure.code != CODE_NOT_FOUND)
            return print_failure(ctl, &failure, name);
        *ret_absent = true;
        client_failure_done(&failure);
        return 0;
    }
    if (!registered->definition) {
        ctl_message_free_p(&registered);
        (void)err_set(&err, ERR_INTERNAL, "the server's answer says nothing");
        return ctl_print_error(&err);
    }
    *ret = registered;
    return 0;
}

int definition_revisions(struct ctl *ctl, const char *namespace_, const char *name,
                         definition_revision_fn *fn, void *ctx)
{
    char token[512] = "";
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ListRevisionsResponse *page = NULL;
        Saga__V1__ListRevisionsRequest request = SAGA__V1__LIST_REVISIONS_REQUEST__INIT;
        if (namespace_)
            request.namespace_ = (char *)namespace_;
        request.name = (char *)name;
        request.page_size = CTL_PAGE_SIZE;
        request.page_token = token;
        int rc = definition_call(ctl, "/saga.v1.DefinitionService/ListRevisions", &request.base,
                                 &saga__v1__list_revisions_response__descriptor, name, &page);
        for (size_t i = 0; rc == 0 && i < page->n_revisions; i++)
            rc = fn(ctx, page->revisions[i]);
        if (rc != 0)
            return rc;
        if (strlen(page->next_page_token) >= sizeof token) {
            (void)fputs("sagactl: the server's page token is too long\n", stderr);
            return CTL_EXIT_FAILED;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
    } while (*token);
    return 0;
}

/* --- handlers that went ----------------------------------------------------------------------- */

enum { HANDLERS_OF_STEP = 4 };

/* An action's, its probe's, a compensation's, its probe's; NULL: there is none. */
static const char *handler_at(const Saga__V1__Step *step, size_t which)
{
    const Saga__V1__Operation *operation = which < 2 ? step->action
                                           : step->undo_case == SAGA__V1__STEP__UNDO_COMPENSATION
                                               ? step->compensation
                                               : NULL;
    if (!operation)
        return NULL;
    if (which % 2 == 0)
        return operation->handler;
    return operation->probe ? operation->probe->handler : NULL;
}

/* Among the first `count` steps, and before the operation `which` of the next. */
static bool is_before(const Saga__V1__SagaDefinition *definition, size_t count, size_t which,
                      const char *handler)
{
    for (size_t i = 0; i < count * HANDLERS_OF_STEP + which; i++) {
        const char *own = handler_at(definition->steps[i / HANDLERS_OF_STEP], i % HANDLERS_OF_STEP);
        if (own && strcmp(own, handler) == 0)
            return true;
    }
    return false;
}

static bool has_handler(const Saga__V1__SagaDefinition *definition, const char *handler)
{
    return is_before(definition, definition->n_steps, 0, handler);
}

struct live {
    const Saga__V1__SagaDefinition *was, *is;
    struct buf *out;
};

/* Handlers that went and that `needs` has, each once; how many. */
static size_t write_removed(const struct live *live, const Saga__V1__SagaDefinition *needs,
                            struct buf *out)
{
    const Saga__V1__SagaDefinition *was = live->was;
    size_t count = 0;
    for (size_t i = 0; i < was->n_steps * HANDLERS_OF_STEP; i++) {
        size_t step = i / HANDLERS_OF_STEP, which = i % HANDLERS_OF_STEP;
        const char *handler = handler_at(was->steps[step], which);
        if (!handler || is_before(was, step, which, handler) || has_handler(live->is, handler) ||
            !has_handler(needs, handler))
            continue;
        buf_text(out, count++ ? ", " : "");
        screen_text(out, handler);
    }
    return count;
}

static int write_live(void *ctx, const Saga__V1__RegisteredDefinition *revision)
{
    const struct live *live = ctx;
    CLEANUP(buf_done) struct buf handlers = { 0 };
    if (revision->open_sagas > 0 && revision->definition &&
        write_removed(live, revision->definition, &handlers))
        buf_printf(live->out,
                   "LIVE      revision %d, which %" PRId64 " saga%s still run%s, needs %s: keep"
                   " workers for it until they have ended\n",
                   revision->revision, revision->open_sagas, revision->open_sagas == 1 ? "" : "s",
                   revision->open_sagas == 1 ? "s" : "", buf_cstr(&handlers));
    return 0;
}

int definition_write_live(struct ctl *ctl, const Saga__V1__SagaDefinition *was,
                          const Saga__V1__SagaDefinition *is, struct buf *out)
{
    struct live live = { was, is, out };
    CLEANUP(buf_done) struct buf any = { 0 };
    if (!write_removed(&live, was, &any))
        return 0;
    return definition_revisions(ctl, was->namespace_, was->name, write_live, &live);
}
