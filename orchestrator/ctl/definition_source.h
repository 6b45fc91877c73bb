/* Where definitions come from: a .proto file (through protoc), a descriptor set, JSON or text
 * format; and whether they are right, as far as that can be told without a server. Prints nothing.
 * thread: the main thread. */
#ifndef CTL_DEFINITION_SOURCE_H
#define CTL_DEFINITION_SOURCE_H

#include "base/buf.h"
#include "ctl/definition_file.h"
#include "schema/derive.h"

struct ctl_arguments;

/* How a source is read; all borrowed. */
struct source_options {
    const char *namespace_;  /* wins over what the source says; NULL: does not */
    const char *service;     /* full name or last part of the only one that counts; NULL: all */
    const char *descriptors; /* file of the set that JSON or text format needs for its types */
    struct protoc_includes includes;
};
/* The options of verbs that take a SOURCE, as rows of their table. */
#define SOURCE_OPTIONS                                                                             \
    { "service", "NAME", false, "the saga that counts, where the source has several" },            \
        { "proto-path", "DIR", true, "where protoc looks for imports; also -I DIR" },              \
    {                                                                                              \
        "descriptors", "FILE", false, "descriptor set of the types that a JSON definition names"   \
    }
struct source_options source_options_of(const char *namespace_,
                                        const struct ctl_arguments *arguments);

struct source {
    const char *path;                       /* borrowed */
    struct buf descriptors;                 /* a packed FileDescriptorSet; size 0: none */
    struct schema *schema;                  /* of the set; NULL: none */
    Saga__V1__SagaDefinition *message;      /* what came as a definition; NULL: services did */
    const struct schema_service **services; /* the sagas; NULL where a definition came */
    size_t count;                           /* of sagas: at least one */
};

/* True: it is a file by its name, or there is one of this name. Else it may name a definition. */
bool source_is_file(const char *text);
/* On failure err says what is wrong with the file; *ret is not to be freed. */
MUST_USE int source_read(const char *path, const struct source_options *options, struct source *ret,
                         struct err *err);
void source_done(struct source *source);

/* One saga of a source, checked by the rules that the server has. */
struct source_saga {
    /* canonical, every default filled in; owned. NULL: there are faults */
    Saga__V1__SagaDefinition *definition;
    struct buf faults; /* a line each, none twice: "settlement.proto: bank.v1.Settlement.Debit:
                        * effect: is required" */
    size_t fault_count;
};

/* namespace_: NULL, or it wins over what the source says. typed: types that the definition names
 * must be in its descriptors; without it a definition that came as a message may lack them. */
MUST_USE int source_check(const struct source *source, size_t index, const char *namespace_,
                          bool typed, struct source_saga *ret, struct err *err);
void source_saga_done(struct source_saga *saga);
/* What the saga is called before it is checked: the service's full name, the definition's name. */
const char *source_saga_name(const struct source *source, size_t index);

#endif
