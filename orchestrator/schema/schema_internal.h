/* What schema.h hides: files and symbols, and the steps of a load. Borrowed from the schema's arena
 * unless said otherwise. */
#ifndef SCHEMA_SCHEMA_INTERNAL_H
#define SCHEMA_SCHEMA_INTERNAL_H

#include "schema/schema.h"
#include "wire/arena.h"

#include <google/protobuf/descriptor.pb-c.h>

struct schema_file {
    const char *name, *package; /* "": none */
    bool proto3;
    /* for the walk along the imports */
    enum { FILE_NEW, FILE_OPEN, FILE_DONE } visit;
    size_t order; /* files come after those that they import */
    const Google__Protobuf__FileDescriptorProto *source; /* until the load is over */
    bool used;                                           /* schema_prune's */
    const char *first_type; /* schema_prune's: what is left of it; NULL: nothing */
};

enum symbol_kind { SYMBOL_MESSAGE, SYMBOL_ENUM, SYMBOL_SERVICE };

struct symbol {
    const char *full_name;
    enum symbol_kind kind;
    union {
        struct schema_message *message;
        struct schema_enum *enumeration;
        struct schema_service *service;
    };
    struct schema_file *file;
    const void *source;     /* its descriptor, until the load is over */
    bool declared, defined; /* schema_prune's: it is named; with what is in it */
};

struct schema {
    struct arena arena;
    struct schema_file **files; /* in the order of the set */
    struct schema_file **files_by_name;
    size_t file_count;
    struct symbol *symbols; /* by full name */
    size_t symbol_count;
    struct schema_service *services; /* in the order of the set and of each file */
    size_t service_count;
};

/* NULL if there is none. */
struct symbol *symbol_find(const struct schema *schema, const char *full_name);
struct symbol *symbol_resolve(const struct schema *schema, const char *scope, const char *name);

/* A load on its way. */
struct load {
    struct schema *schema;
    struct arena unpacked; /* the descriptors, and what is needed for the load alone */
    size_t files_done;     /* by the walk along the imports */
    struct err *err;
};

/* "file: name: text", ERR_INVALID; `name` NULL: the file itself. */
FMT(4, 5)
int load_refuse(struct load *load, const struct schema_file *file, const char *name,
                const char *fmt, ...);
/* The same with ERR_LIMIT: "more than <limit> <what>"; `file` NULL: the set itself. */
int load_limit(struct load *load, const struct schema_file *file, const char *name, int limit,
               const char *what);
/* A name by protobuf's rules? */
bool load_is_identifier(const char *name);
int load_out_of_memory(struct load *load);

/* Every symbol is declared: fills what stands in it, and resolves every name (schema_types.c). */
MUST_USE int load_types(struct load *load);
/* Every type is filled: map entries and the types of google.protobuf are what they must be
 * (schema_rules.c). */
MUST_USE int load_rules(struct load *load);

#endif
