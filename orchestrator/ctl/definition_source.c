#include "ctl/definition_source.h"

#include "ctl/ctl.h"
#include "schema/record.h"
#include "wire/arena.h"
#include "wire/definition_codec.h"

#include <string.h>
#include <unistd.h>

struct source_options source_options_of(const char *namespace_,
                                        const struct ctl_arguments *arguments)
{
    struct source_options options = {
        .namespace_ = namespace_,
        .service = ctl_option(arguments, "service"),
        .descriptors = ctl_option(arguments, "descriptors"),
    };
    options.includes.count = ctl_option_all(arguments, "proto-path", &options.includes.folders);
    return options;
}

bool source_is_file(const char *text)
{
    bool known;
    (void)definition_file_kind(text, &known); /* only whether it is one */
    return known || strcmp(text, "-") == 0 || strchr(text, '/') || access(text, F_OK) == 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The name of the last file of a set, which is the one that protoc was asked for. The set was
 * checked. */
static struct bytes last_file_name(const struct buf *set)
{
    struct records files = { set->data, set->size, 0 }, fields = { NULL, 0, 0 };
    struct bytes name = { NULL, 0 };
    struct record record;
    while (records_left(&files) && !record_next(&files, &record))
        if (record.number == 1 && record.type == RECORD_BYTES)
            fields = (struct records){ record.data, record.size, 0 };
    while (records_left(&fields) && !record_next(&fields, &record))
        if (record.number == 1 && record.type == RECORD_BYTES)
            name = (struct bytes){ (uint8_t *)record.data, record.size };
    return name;
}

static bool is_named(const struct schema_service *service, const char *name)
{
    return strcmp(service->full_name, name) == 0 || strcmp(service->name, name) == 0;
}

/* Those that are meant, and the names of all that there are. */
static void collect(struct source *source, const char *name, const struct bytes *file,
                    struct buf *all)
{
    for (size_t i = 0; i < schema_service_count(source->schema); i++) {
        const struct schema_service *service = schema_service_at(source->schema, i);
        bool elsewhere = file && (!file->data || strlen(service->file) != file->size ||
                                  memcmp(service->file, file->data, file->size) != 0);
        if (elsewhere || !schema_service_is_saga(service))
            continue;
        buf_printf(all, "%s%s", all->size ? ", " : "", service->full_name);
        if (!name || is_named(service, name))
            source->services[source->count++] = service;
    }
}

/* file: only services of this one; NULL: of every file. */
static int find_services(struct source *source, const char *name, const struct bytes *file,
                         struct err *err)
{
    CLEANUP(buf_done) struct buf all = { 0 };
    source->services =
        mem_calloc(schema_service_count(source->schema) + 1, sizeof(const struct schema_service *));
    if (!source->services)
        return err_set(err, ERR_NOMEM, "out of memory");
    collect(source, name, file, &all);
    if (source->count)
        return 0;
    if (all.size)
        return err_set(err, ERR_NOT_FOUND, "%s: no saga in it is the service %s; its sagas are %s",
                       source->path, name, buf_cstr(&all));
    return err_set(err, ERR_NOT_FOUND,
                   "%s: no service in it is a saga: it has no option (saga.v1.saga)", source->path);
}

static int read_set(struct source *source, const char *path, struct err *err)
{
    if (ctl_read_file(path, SCHEMA_BYTES_MAX, &source->descriptors, err) != 0)
        return err->code;
    return schema_new(source->descriptors.data, source->descriptors.size, &source->schema, err) == 0
               ? 0
               : err_wrap(err, "%s: is not a usable descriptor set", path);
}

static int read_services(struct source *source, const struct source_options *options,
                         struct err *err)
{
    if (definition_file_kind(source->path, NULL) == DEFINITION_SET)
        return read_set(source, source->path, err) == 0
                   ? find_services(source, options->service, NULL, err)
                   : (int)err->code;
    if (protoc_compile(source->path, &options->includes, &source->descriptors, err) != 0)
        return err->code;
    if (schema_new(source->descriptors.data, source->descriptors.size, &source->schema, err) != 0)
        return err_wrap(err, "%s", source->path);
    struct bytes file = last_file_name(&source->descriptors);
    return find_services(source, options->service, &file, err);
}

static int read_message(struct source *source, const struct source_options *options,
                        struct err *err)
{
    if (options->service)
        return err_set(err, ERR_INVALID, "%s is a definition, not services: it needs no --service",
                       source->path);
    if (definition_file_read(source->path, &options->includes, &source->message, err) != 0)
        return err->code;
    source->count = 1;
    return options->descriptors ? read_set(source, options->descriptors, err) : 0;
}

int source_read(const char *path, const struct source_options *options, struct source *ret,
                struct err *err)
{
    struct source source = { .path = path };
    enum definition_file_kind kind = definition_file_kind(path, NULL);
    bool services = kind == DEFINITION_PROTO || kind == DEFINITION_SET;
    int rc = services ? read_services(&source, options, err) : read_message(&source, options, err);
    if (rc != 0) {
        source_done(&source);
        return rc;
    }
    *ret = source;
    return 0;
}

void source_done(struct source *source)
{
    ctl_message_free_p(&source->message);
    source->schema = schema_free(source->schema);
    mem_free(source->services);
    buf_done(&source->descriptors);
    *source = (struct source){ 0 };
}

const char *source_saga_name(const struct source *source, size_t index)
{
    return source->message ? source->message->name : source->services[index]->full_name;
}

/* --- checking --------------------------------------------------------------------------------- */

struct checking {
    const struct source *source;
    const struct derived *derived; /* NULL: a message is checked */
    struct source_saga *saga;
};

/* A fault of the saga's defaults is found at every operation that takes them. */
static bool is_told(const struct buf *faults, const char *line)
{
    const char *at = buf_cstr(faults);
    size_t size = strlen(line);
    for (; *at; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, size) == 0 && at[size] == '\n')
            return true;
    return false;
}

static void tell(struct source_saga *saga, const char *where, const char *text)
{
    CLEANUP(buf_done) struct buf line = { 0 };
    buf_printf(&line, "%s: %s", where, text);
    for (size_t i = 0; i < line.size; i++)
        if (line.data[i] == '\n')
            line.data[i] = ' ';
    if (is_told(&saga->faults, buf_cstr(&line)))
        return;
    buf_printf(&saga->faults, "%s\n", buf_cstr(&line));
    saga->fault_count++;
}

static void on_service_fault(void *ctx, const char *where, const char *text)
{
    const struct checking *checking = ctx;
    tell(checking->saga, where, text);
}

/* A fault by the path of a field in the definition. */
static void on_fault(void *ctx, const char *path, const char *text)
{
    const struct checking *checking = ctx;
    CLEANUP(buf_done) struct buf where = { 0 };
    char place[2048];
    if (checking->derived) {
        schema_fault_place(checking->derived, path, place, sizeof place);
        tell(checking->saga, place, text);
        return;
    }
    buf_printf(&where, "%s: %s", checking->source->path, path);
    tell(checking->saga, buf_cstr(&where), text);
}

/* What the definition names as types must be there. */
static int check_types(struct checking *checking, const Saga__V1__SagaDefinition *definition,
                       struct arena *arena, struct err *err)
{
    size_t count = 0;
    if (checking->source->schema)
        return schema_check_definition(checking->source->schema, definition, on_fault, checking,
                                       &count, err);
    const char *const *names;
    if (schema_definition_types(definition, arena, &names, &count, err) != 0)
        return err->code;
    if (!count)
        return 0;
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_printf(&text, "names %s, and there are no descriptors: --descriptors FILE", names[0]);
    on_fault(checking, "types", buf_cstr(&text));
    return 0;
}

/* By the rules of definitions; the canonical message if there are no faults at all. */
static int check_rules(struct checking *checking, const Saga__V1__SagaDefinition *definition,
                       struct err *err)
{
    CLEANUP(definition_free_p) struct definition *core = NULL;
    struct source_saga *saga = checking->saga;
    struct bytes packed = { NULL, 0 };
    size_t count = 0;
    if (definition_from_message(definition, on_fault, checking, &core, &count, err) != 0)
        return err->code;
    if (saga->fault_count || !core)
        return 0;
    if (definition_encode(core, &packed, err) != 0)
        return err->code;
    saga->definition = saga__v1__saga_definition__unpack(NULL, packed.size, packed.data);
    mem_free(packed.data);
    return saga->definition ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static int check_service(struct checking *checking, size_t index, const char *namespace_,
                         struct arena *arena, struct err *err)
{
    const struct source *source = checking->source;
    struct derived derived = { 0 };
    size_t count = 0;
    if (schema_derive(source->schema, source->services[index], arena, on_service_fault, checking,
                      &derived, &count, err) != 0)
        return err->code;
    if (count)
        return 0;
    if (namespace_)
        derived.definition->namespace_ = (char *)namespace_;
    checking->derived = &derived;
    int rc = check_rules(checking, derived.definition, err);
    checking->derived = NULL;
    return rc;
}

static int check_message(struct checking *checking, const char *namespace_, bool typed,
                         struct arena *arena, struct err *err)
{
    Saga__V1__SagaDefinition *message = checking->source->message;
    char *own_namespace = message->namespace_;
    if (namespace_)
        message->namespace_ = (char *)namespace_;
    int rc = check_rules(checking, message, err);
    message->namespace_ = own_namespace;
    if (rc == 0 && (typed || checking->source->schema))
        rc = check_types(checking, message, arena, err);
    return rc;
}

int source_check(const struct source *source, size_t index, const char *namespace_, bool typed,
                 struct source_saga *ret, struct err *err)
{
    struct arena arena = { 0 };
    *ret = (struct source_saga){ 0 };
    struct checking checking = { source, NULL, ret };
    int rc = source->message ? check_message(&checking, namespace_, typed, &arena, err)
                             : check_service(&checking, index, namespace_, &arena, err);
    arena_done(&arena);
    if (rc == 0 && ret->faults.failed)
        rc = err_set(err, ERR_NOMEM, "out of memory");
    if (rc != 0) {
        source_saga_done(ret);
        return err_wrap(err, "%s: %s", source->path, source_saga_name(source, index));
    }
    if (ret->fault_count) {
        ctl_message_free_p(&ret->definition);
        ret->definition = NULL;
    }
    return 0;
}

void source_saga_done(struct source_saga *saga)
{
    ctl_message_free_p(&saga->definition);
    buf_done(&saga->faults);
    *saga = (struct source_saga){ 0 };
}
