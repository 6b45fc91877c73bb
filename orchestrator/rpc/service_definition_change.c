/* DefinitionService: promote, pause, resume, delete. On the reader's thread; the engine hears of
 * each.
 */
#include "rpc/service_definition.h"

#include "core/limits.h"

struct definition_event {
    struct engine_definition_event event;
    char *namespace_, *name; /* owned */
};

static void definition_event_free(struct definition_event *event)
{
    mem_free(event->namespace_);
    mem_free(event->name);
    mem_free(event);
}

static void on_changed(struct engine_event *base)
{
    struct engine_definition_event *event = CONTAINER(base, struct engine_definition_event, event);
    definition_event_free(CONTAINER(event, struct definition_event, event));
}

int definition_tell_engine(struct call *call, const char *namespace_, const char *name,
                           struct err *err)
{
    struct definition_event *event = mem_calloc(1, sizeof *event);
    if (!event)
        return err_set(err, ERR_NOMEM, "definition");
    event->namespace_ = mem_strdup(namespace_);
    event->name = mem_strdup(name);
    if (!event->namespace_ || !event->name) {
        definition_event_free(event);
        return err_set(err, ERR_NOMEM, "definition");
    }
    event->event.event.kind = ENGINE_DEFINITION_CHANGED;
    event->event.event.done = on_changed;
    event->event.namespace_ = event->namespace_;
    event->event.name = event->name;
    if (!engine_post_always(call->server->engine, &event->event.event)) {
        definition_event_free(event);
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    }
    return 0;
}

enum change_kind { CHANGE_PROMOTE, CHANGE_PAUSE, CHANGE_RESUME, CHANGE_DELETE };

/* All four requests in one; strings borrowed from the message. */
struct change_query {
    struct query query;
    enum change_kind kind;
    const char *namespace_, *name, *actor, *reason;
    int32_t revision;
};

static int run_one(const struct change_query *query, struct store_reader *reader,
                   struct store_definition *ret, struct err *err)
{
    const struct store_words words = { or_null(query->actor), or_null(query->reason) };
    switch (query->kind) {
    case CHANGE_PROMOTE:
        return store_reader_promote(reader, query->namespace_, query->name, query->revision, &words,
                                    ret, err);
    case CHANGE_PAUSE:
        return store_reader_pause(reader, query->namespace_, query->name, &words, ret, err);
    case CHANGE_RESUME:
        return store_reader_resume(reader, query->namespace_, query->name, &words, ret, err);
    case CHANGE_DELETE:
        break;
    }
    return store_reader_delete_revision(reader, query->namespace_, query->name, query->revision,
                                        &words, err);
}

static void run_change(struct query *base, struct store_reader *reader)
{
    struct change_query *query = CONTAINER(base, struct change_query, query);
    struct call *call = base->call;
    Saga__V1__DeleteRevisionResponse deleted = SAGA__V1__DELETE_REVISION_RESPONSE__INIT;
    Saga__V1__RegisteredDefinition *changed = NULL;
    struct store_definition stored = { 0 };
    struct err err;
    int rc = run_one(query, reader, &stored, &err);
    if (!rc)
        rc = definition_tell_engine(call, query->namespace_, query->name, &err);
    if (!rc && query->kind != CHANGE_DELETE)
        rc = definition_fill(&call->arena, &stored, &changed, &err);
    store_definition_done(&stored);
    if (rc)
        call_fail(call, &err);
    else
        call_reply(call, changed ? &changed->base : &deleted.base);
}

static void change(struct call *call, const struct change_query *what)
{
    bool of_revision = what->kind == CHANGE_PROMOTE || what->kind == CHANGE_DELETE;
    struct err err;
    int rc = definition_check_name(what->namespace_, what->name, &err);
    if (!rc && of_revision && what->revision < 1)
        rc = err_field(&err, "revision", "revision: is required, and counts from 1: %d",
                       what->revision);
    if (!rc)
        rc = check_prose("reason", what->reason, LIMIT_REASON_BYTES, &err);
    if (!rc)
        rc = check_text("actor", what->actor, 0, LIMIT_ACTOR_BYTES, &err);
    if (rc) {
        call_fail(call, &err);
        return;
    }
    struct change_query *query = query_new(call, sizeof *query, run_change);
    if (!query)
        return;
    struct query base = query->query;
    *query = *what;
    query->query = base;
    query->namespace_ = namespace_or_default(what->namespace_);
    queries_post(&query->query);
}

void definition_promote(struct call *call)
{
    const Saga__V1__PromoteDefinitionRequest *request = (void *)call->request;
    struct change_query what = { .kind = CHANGE_PROMOTE,
                                 .namespace_ = request->namespace_,
                                 .name = request->name,
                                 .actor = request->actor,
                                 .reason = request->reason,
                                 .revision = request->revision };
    change(call, &what);
}

void definition_pause(struct call *call)
{
    const Saga__V1__PauseDefinitionRequest *request = (void *)call->request;
    struct change_query what = { .kind = CHANGE_PAUSE,
                                 .namespace_ = request->namespace_,
                                 .name = request->name,
                                 .actor = request->actor,
                                 .reason = request->reason };
    change(call, &what);
}

void definition_resume(struct call *call)
{
    const Saga__V1__ResumeDefinitionRequest *request = (void *)call->request;
    struct change_query what = { .kind = CHANGE_RESUME,
                                 .namespace_ = request->namespace_,
                                 .name = request->name,
                                 .actor = request->actor,
                                 .reason = request->reason };
    change(call, &what);
}

void definition_delete_revision(struct call *call)
{
    const Saga__V1__DeleteRevisionRequest *request = (void *)call->request;
    struct change_query what = { .kind = CHANGE_DELETE,
                                 .namespace_ = request->namespace_,
                                 .name = request->name,
                                 .actor = request->actor,
                                 .reason = request->reason,
                                 .revision = request->revision };
    change(call, &what);
}
