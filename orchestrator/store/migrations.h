/* The files of sql/migrations, embedded by the build in the order of their numbers. */
#ifndef STORE_MIGRATIONS_H
#define STORE_MIGRATIONS_H

#include <stddef.h>

struct migration {
    int version;
    const char *name; /* "0001_base" */
    const char *sql;
    size_t size;
};
extern const struct migration migrations[];
extern const size_t migration_count;

#endif
