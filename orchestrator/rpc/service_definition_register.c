/* RegisterDefinition, in both forms: a definition, or the service that is one. On the reader's
 * thread: a large set of descriptors takes its time. The sets of strangers are bounded in
 * schema_new, what is made of them by the call's arena. */
#include "rpc/service_definition.h"

#include "base/buf.h"
#include "core/limits.h"
#include "schema/derive.h"
#include "schema/diff.h"
#include "wire/definition_codec.h"

#include <stdio.h>
#include <string.h>

enum {
    CHANGES_MAX = 1000,
    FAULTS_SEEN_MAX = 512, /* further ones are told even if they were told before */
    NAMES_BYTES_MAX = 160, /* of services that are named in an error */
};

struct registering {
    struct query query;
    const Saga__V1__RegisterDefinitionRequest *request;
    struct schema *schema;  /* of the request's descriptors; NULL: it has none. Owned */
    bool is_derived;        /* the definition is made of a service */
    struct derived derived; /* if so */
    const Saga__V1__SagaDefinition *message;
    struct definition *definition; /* owned */
    struct bytes descriptors;      /* pruned; owned */
    struct faults faults;
    uint64_t seen[FAULTS_SEEN_MAX]; /* hashes of the faults that were told */
    size_t seen_count;
    Saga__V1__RegisterDefinitionResponse reply;
    bool no_memory; /* for a change */
};

static void registering_done(struct registering *it)
{
    it->schema = schema_free(it->schema);
    it->definition = definition_free(it->definition);
    mem_free(TAKE(it->descriptors.data));
}

/* --- faults ----------------------------------------------------------------------------------- */

/* What is wrong in the saga's defaults is found once for every operation: it is told once. */
static void add_fault(void *ctx, const char *where, const char *text)
{
    struct registering *it = ctx;
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *c = where; *c; c++)
        hash = (hash ^ (uint8_t)*c) * UINT64_C(1099511628211);
    hash *= UINT64_C(1099511628211); /* the 0x00 between the two */
    for (const char *c = text; *c; c++)
        hash = (hash ^ (uint8_t)*c) * UINT64_C(1099511628211);
    for (size_t i = 0; i < it->seen_count; i++)
        if (it->seen[i] == hash)
            return;
    if (it->seen_count < FAULTS_SEEN_MAX)
        it->seen[it->seen_count++] = hash;
    faults_add(&it->faults, where, text);
}

/* Of a field of the definition: told where it was written. */
static void add_definition_fault(void *ctx, const char *field, const char *text)
{
    struct registering *it = ctx;
    char where[FAULT_FIELD_BYTES];
    if (it->is_derived)
        schema_fault_place(&it->derived, field, where, sizeof where);
    add_fault(ctx, it->is_derived ? where : field, text);
}

static int refuse_descriptors(struct err *err)
{
    if (err->code != ERR_INVALID && err->code != ERR_LIMIT)
        return (int)err->code;
    (void)snprintf(err->reason, sizeof err->reason, "INVALID_DESCRIPTORS");
    (void)snprintf(err->field, sizeof err->field, "descriptors");
    bool says_so = strncmp(err->msg, "descriptors: ", strlen("descriptors: ")) == 0;
    return says_so ? (int)err->code : err_wrap(err, "descriptors");
}

/* --- which service ---------------------------------------------------------------------------- */

/* "a.A, b.B and 7 more" */
static void name_services(const struct schema *schema, bool sagas_alone, char *ret, size_t size)
{
    size_t used = 0, left_out = 0;
    *ret = '\0';
    for (size_t i = 0; i < schema_service_count(schema); i++) {
        const struct schema_service *service = schema_service_at(schema, i);
        bool is_ours = strcmp(service->package, "saga.v1") == 0; /* that the options import */
        if (is_ours || (sagas_alone && !schema_service_is_saga(service)))
            continue;
        size_t more = strlen(service->full_name) + 2;
        if (used + more >= size - 32) {
            left_out++;
            continue;
        }
        (void)snprintf(ret + used, size - used, "%s%s", used ? ", " : "", service->full_name);
        used = strlen(ret);
    }
    if (left_out)
        (void)snprintf(ret + used, size - used, "%s%zu more", used ? " and " : "", left_out);
}

static int find_named(const struct schema *schema, const char *name,
                      const struct schema_service **ret, struct err *err)
{
    char names[NAMES_BYTES_MAX];
    for (size_t i = 0; i < schema_service_count(schema); i++) {
        const struct schema_service *service = schema_service_at(schema, i);
        if (strcmp(service->full_name, name) != 0)
            continue;
        if (!schema_service_is_saga(service))
            return err_field(err, "service",
                             "service: %.128s (%.128s) has no option (saga.v1.saga)", name,
                             service->file);
        *ret = service;
        return 0;
    }
    name_services(schema, false, names, sizeof names);
    return err_field(err, "service",
                     "service: the descriptors have no service %.128s; they have %s", name,
                     *names ? names : "none");
}

static int find_only(const struct schema *schema, const struct schema_service **ret,
                     struct err *err)
{
    char names[NAMES_BYTES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < schema_service_count(schema); i++) {
        const struct schema_service *service = schema_service_at(schema, i);
        if (schema_service_is_saga(service) && count++ == 0)
            *ret = service;
    }
    if (count == 1)
        return 0;
    name_services(schema, count > 0, names, sizeof names);
    if (count)
        return err_field(err, "service", "service: is required, for %zu services are sagas: %s",
                         count, names);
    return err_field(err, "service",
                     "service: no service of the descriptors has the option (saga.v1.saga); they "
                     "have %s",
                     *names ? names : "none at all");
}

/* --- from the request to a definition --------------------------------------------------------- */

static int derive_message(struct registering *it, struct err *err)
{
    const char *name = it->request->service;
    const struct schema_service *service = NULL;
    int rc =
        *name ? find_named(it->schema, name, &service, err) : find_only(it->schema, &service, err);
    size_t faults = 0;
    if (!rc)
        rc = schema_derive(it->schema, service, &it->query.call->arena, add_fault, it, &it->derived,
                           &faults, err);
    if (rc || faults)
        return rc;
    it->is_derived = true;
    it->message = it->derived.definition;
    return 0;
}

/* The types that the definition names: are they there? */
static int check_types(struct registering *it, const char *const **ret_names, size_t *ret_count,
                       struct err *err)
{
    size_t faults = 0;
    int rc =
        schema_definition_types(it->message, &it->query.call->arena, ret_names, ret_count, err);
    if (!rc && !it->schema && *ret_count) {
        char text[FAULT_TEXT_BYTES];
        (void)snprintf(text, sizeof text, "are required, for the definition names types: %.100s",
                       (*ret_names)[0]);
        add_fault(it, "descriptors", text);
    } else if (!rc && it->schema && !it->is_derived) {
        rc = schema_check_definition(it->schema, it->message, add_fault, it, &faults, err);
    }
    return rc;
}

static int prune(struct registering *it, const char *const *names, size_t count, struct err *err)
{
    if (!count) /* it names no types: the descriptors say nothing of it */
        return 0;
    const ProtobufCBinaryData *set = &it->request->descriptors;
    if (schema_prune(set->data, set->len, names, count, &it->descriptors, err))
        return refuse_descriptors(err);
    if (it->descriptors.size <= LIMIT_DESCRIPTORS_BYTES)
        return 0;
    (void)err_set(err, ERR_LIMIT, "the types that the definition names take %zu bytes, at most %d",
                  it->descriptors.size, LIMIT_DESCRIPTORS_BYTES);
    return refuse_descriptors(err);
}

/* Faults are no error: then there is no definition. */
static int read_definition(struct registering *it, struct err *err)
{
    const Saga__V1__RegisterDefinitionRequest *request = it->request;
    const char *const *names = NULL;
    size_t count = 0, faults = 0;
    if (request->descriptors.len &&
        schema_new(request->descriptors.data, request->descriptors.len, &it->schema, err))
        return refuse_descriptors(err);
    it->message = request->definition;
    int rc = it->message ? 0 : derive_message(it, err);
    if (rc || !it->message)
        return rc;
    rc = check_types(it, &names, &count, err);
    if (!rc)
        rc = definition_from_message(it->message, add_definition_fault, it, &it->definition,
                                     &faults, err);
    return rc || it->faults.count ? rc : prune(it, names, count, err);
}

/* --- what is different ------------------------------------------------------------------------ */

/* Where a change of that severity goes: behind the others, or, when there is room for no more, in
 * the place of one that matters less; CHANGES_MAX: nowhere. So the gravest are told in any case. */
static size_t change_place(const Saga__V1__RegisterDefinitionResponse *reply,
                           Saga__V1__ChangeSeverity severity)
{
    if (reply->n_changes < CHANGES_MAX)
        return reply->n_changes;
    for (size_t i = reply->n_changes; i-- > 0;)
        if (reply->changes[i]->severity < severity)
            return i;
    return CHANGES_MAX;
}

static void add_change(void *ctx, enum diff_severity severity, const char *path, const char *text)
{
    static const Saga__V1__ChangeSeverity severities[] = {
        [DIFF_NOTE] = SAGA__V1__CHANGE_SEVERITY__CHANGE_SEVERITY_NOTE,
        [DIFF_WARNING] = SAGA__V1__CHANGE_SEVERITY__CHANGE_SEVERITY_WARNING,
        [DIFF_BREAKING] = SAGA__V1__CHANGE_SEVERITY__CHANGE_SEVERITY_BREAKING,
    };
    struct registering *it = ctx;
    struct arena *arena = &it->query.call->arena;
    Saga__V1__RegisterDefinitionResponse *reply = &it->reply;
    size_t place = change_place(reply, severities[severity]);
    if (place == CHANGES_MAX)
        return;
    if (!reply->changes)
        reply->changes = arena_array(arena, CHANGES_MAX, sizeof(ProtobufCMessage *));
    Saga__V1__DefinitionChange *change = reply_new(arena, &saga__v1__definition_change__descriptor);
    char *path_copy = arena_strdup(arena, path), *text_copy = arena_strdup(arena, text);
    if (!reply->changes || !change || !path_copy || !text_copy) {
        it->no_memory = true;
        return;
    }
    change->severity = severities[severity];
    change->path = path_copy;
    change->text = text_copy;
    reply->changes[place] = change;
    if (place == reply->n_changes)
        reply->n_changes++;
}

static int diff(struct registering *it, const struct store_definition *before,
                const Saga__V1__SagaDefinition *was_definition, struct err *err)
{
    CLEANUP(schema_free_p) struct schema *was_schema = NULL;
    if (before->descriptors.size &&
        schema_new(before->descriptors.data, before->descriptors.size, &was_schema, err)) {
        if (err->code != ERR_NOMEM)
            err->code = ERR_INTERNAL; /* these bytes are ours */
        return err_wrap(err, "stored descriptors");
    }
    struct diff_revision was = { was_definition, was_schema };
    struct diff_revision is = { it->reply.registered->definition, it->schema };
    struct diff_counts counts;
    int rc = schema_diff(&was, &is, add_change, it, &counts, err);
    if (!rc && it->no_memory)
        rc = err_set(err, ERR_NOMEM, "changes");
    return rc;
}

/* From what was current to what is registered. */
static int fill_changes(struct registering *it, const struct store_registered *registered,
                        struct err *err)
{
    const struct store_definition *before = &registered->before;
    it->reply.changed_from = before->revision;
    if (!before->revision || before->revision == registered->revision.revision)
        return 0;
    struct arena arena = { 0 };
    Saga__V1__SagaDefinition *was = NULL;
    int rc = definition_fill_content(&arena, before, &was, err);
    if (!rc)
        rc = diff(it, before, was, err);
    arena_done(&arena);
    return rc;
}

/* --- */

static int store(struct registering *it, struct store_reader *reader, struct store_registered *ret,
                 struct err *err)
{
    struct bytes content = { 0 };
    int rc = definition_encode(it->definition, &content, err);
    if (rc)
        return rc;
    struct store_register what = { .namespace_ = it->definition->namespace_,
                                   .name = it->definition->name,
                                   .words = { or_null(it->request->actor),
                                              or_null(it->request->reason) },
                                   .content = content,
                                   .descriptors = it->descriptors,
                                   .validate_only = it->request->validate_only,
                                   .keep_current = it->request->keep_current };
    rc = store_reader_register(reader, &what, ret, err);
    mem_free(content.data);
    return rc;
}

static int register_checked(struct registering *it, struct store_reader *reader, struct err *err)
{
    struct call *call = it->query.call;
    struct store_registered registered = { 0 };
    int rc = store(it, reader, &registered, err);
    if (rc)
        return rc;
    const struct store_definition *revision = &registered.revision;
    if (!it->request->validate_only) /* also of what was there: it may be current again */
        rc = definition_tell_engine(call, revision->namespace_, revision->name, err);
    if (!rc)
        rc = definition_fill(&call->arena, revision, &it->reply.registered, err);
    if (!rc)
        rc = fill_changes(it, &registered, err);
    it->reply.created = registered.created && !it->request->validate_only;
    store_registered_done(&registered);
    return rc;
}

static void fail_faults(struct registering *it)
{
    const struct faults *faults = &it->faults;
    struct err err;
    (void)err_reason(&err, ERR_INVALID, "INVALID_DEFINITION",
                     "the definition has %zu fault%s; the first: %s%s %s", faults->count,
                     faults->count == 1 ? "" : "s", faults->items[0].field,
                     it->request->definition ? "" : ":", faults->items[0].text);
    call_fail_faults(it->query.call, &err, faults);
}

static void run_register(struct query *query, struct store_reader *reader)
{
    struct registering *it = CONTAINER(query, struct registering, query);
    struct call *call = query->call;
    struct err err;
    int rc = read_definition(it, &err);
    bool faulty = !rc && it->faults.count;
    if (!rc && !faulty)
        rc = register_checked(it, reader, &err);
    registering_done(it); /* the call's arena, in which it lies, goes with the answer */
    if (rc)
        call_fail(call, &err);
    else if (faulty)
        fail_faults(it);
    else
        call_reply(call, &it->reply.base);
}

void definition_register(struct call *call)
{
    const Saga__V1__RegisterDefinitionRequest *request = (void *)call->request;
    struct err err;
    int rc = 0;
    if (!request->definition && !request->descriptors.len)
        rc = err_field(&err, "definition",
                       "definition: is required, or descriptors in which a service is the saga");
    else if (request->definition && *request->service)
        rc = err_field(&err, "service", "service: is for descriptors without a definition");
    if (!rc)
        rc = check_prose("reason", request->reason, LIMIT_REASON_BYTES, &err);
    if (!rc)
        rc = check_text("actor", request->actor, 0, LIMIT_ACTOR_BYTES, &err);
    if (rc) {
        call_fail(call, &err);
        return;
    }
    struct registering *it = query_new(call, sizeof *it, run_register);
    if (!it)
        return;
    it->request = request;
    saga__v1__register_definition_response__init(&it->reply);
    queries_post(&it->query);
}
