/* What makes sagad_fault of the sources of sagad: faults that a test arms on a shared page.
 *
 * - crash points: the hook of base/fault.h kills this process with -9;
 * - allocations of our own code (base/mem.h) answer that memory is out;
 * - calls of libpq fail in the ways that its manual allows. A call that returns a result runs, and
 *   its answer is lost, which is the harder case; a call that sends something sends nothing.
 *
 * The last two stand before the real functions by the linker's --wrap. Without a page this is
 * sagad. */
#include "base/fault.h"
#include "base/mem.h"
#include "page.h"

#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct page *page; /* set before main */

static void on_point(const char *name)
{
    for (int i = 0; i < PAGE_POINT_COUNT; i++) {
        if (strcmp(name, page_place_names[i]) != 0)
            continue;
        while (page_pass(&page->places[i]))
            (void)kill(getpid(), SIGKILL); /* does not return */
        return;
    }
    (void)fprintf(stderr, "sagad_fault: no test knows the crash point \"%s\"\n", name);
    abort();
}

__attribute__((constructor)) static void crash_points_set(void)
{
    const char *path = getenv(FAULT_PAGE_ENV);
    if (!path)
        return;
    page = page_map(path, false);
    if (!page) {
        (void)fprintf(stderr, "sagad_fault: cannot map %s\n", path);
        abort();
    }
    fault_hook = on_point;
}

/* --- base/mem.h ------------------------------------------------------------------------------- */

/* The names are the sanitizer's and the linker's. */
void __sanitizer_print_stack_trace(void) __attribute__((weak));

/* $SAGAD_FAULT_TRACE: where, for whoever looks into it. */
static void trace(void)
{
    const char *wanted = getenv("SAGAD_FAULT_TRACE");
    if (wanted && *wanted && __sanitizer_print_stack_trace)
        __sanitizer_print_stack_trace();
}

static bool allocation_fails(void)
{
    bool fails = page && page_pass(&page->places[PAGE_ALLOCATION]);
    if (fails)
        trace();
    return fails;
}

void *__real_mem_calloc(size_t count, size_t size);
void *__wrap_mem_calloc(size_t count, size_t size);
void *__wrap_mem_calloc(size_t count, size_t size)
{
    return allocation_fails() ? NULL : __real_mem_calloc(count, size);
}

void *__real_mem_realloc(void *p, size_t size);
void *__wrap_mem_realloc(void *p, size_t size);
void *__wrap_mem_realloc(void *p, size_t size)
{
    return allocation_fails() ? NULL : __real_mem_realloc(p, size);
}

char *__real_mem_strdup(const char *text);
char *__wrap_mem_strdup(const char *text);
char *__wrap_mem_strdup(const char *text)
{
    return allocation_fails() ? NULL : __real_mem_strdup(text);
}

char *__real_mem_strndup(const char *text, size_t size);
char *__wrap_mem_strndup(const char *text, size_t size);
char *__wrap_mem_strndup(const char *text, size_t size)
{
    return allocation_fails() ? NULL : __real_mem_strndup(text, size);
}

int __real_mem_bytes_copy(const void *data, size_t size, struct bytes *ret);
int __wrap_mem_bytes_copy(const void *data, size_t size, struct bytes *ret);
int __wrap_mem_bytes_copy(const void *data, size_t size, struct bytes *ret)
{
    return size != 0 && allocation_fails() ? -1 : __real_mem_bytes_copy(data, size, ret);
}

int __real_mem_grow(void **array, size_t *capacity, size_t count, size_t size);
int __wrap_mem_grow(void **array, size_t *capacity, size_t count, size_t size);
int __wrap_mem_grow(void **array, size_t *capacity, size_t count, size_t size)
{
    bool grows = count >= *capacity;
    return grows && allocation_fails() ? -1 : __real_mem_grow(array, capacity, count, size);
}

/* --- libpq ------------------------------------------------------------------------------------ */

static bool libpq_fails(enum page_libpq call)
{
    if (!page)
        return false;
    int only = atomic_load(&page->libpq_only);
    if ((only != 0 && only != 1 + (int)call) || !page_pass(&page->places[PAGE_LIBPQ]))
        return false;
    atomic_fetch_add(&page->libpq_hits[call], 1);
    trace();
    return true;
}

/* Nothing happens, and it says so. */
#define WRAP(type, name, failure, parameters, arguments)                                           \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return libpq_fails(PAGE_##name) ? (failure) : __real_##name arguments;                     \
    }
/* It happens, but its answer is lost. */
#define WRAP_RESULT(name, parameters, arguments)                                                   \
    PGresult *__real_##name parameters;                                                            \
    PGresult *__wrap_##name parameters;                                                            \
    PGresult *__wrap_##name parameters                                                             \
    {                                                                                              \
        bool fails = libpq_fails(PAGE_##name);                                                     \
        PGresult *result = __real_##name arguments;                                                \
        if (!fails)                                                                                \
            return result;                                                                         \
        PQclear(result);                                                                           \
        return NULL;                                                                               \
    }

#define TYPES const Oid *types
#define VALUES                                                                                     \
    int count, const char *const *values, const int *lengths, const int *formats, int result_format

WRAP(PQconninfoOption *, PQconninfoParse, NULL, (const char *conninfo, char **errmsg),
     (conninfo, errmsg))
WRAP(PGconn *, PQconnectStartParams, NULL,
     (const char *const *keywords, const char *const *values, int expand_dbname),
     (keywords, values, expand_dbname))
WRAP(PostgresPollingStatusType, PQconnectPoll, PGRES_POLLING_FAILED, (PGconn * conn), (conn))
WRAP(PGconn *, PQconnectdbParams, NULL,
     (const char *const *keywords, const char *const *values, int expand_dbname),
     (keywords, values, expand_dbname))
WRAP(int, PQsetnonblocking, -1, (PGconn * conn, int value), (conn, value))
WRAP(int, PQenterPipelineMode, 0, (PGconn * conn), (conn))
WRAP(int, PQsendQueryParams, 0,
     (PGconn * conn, const char *command, int count, TYPES, const char *const *values,
      const int *lengths, const int *formats, int result_format),
     (conn, command, count, types, values, lengths, formats, result_format))
WRAP(int, PQsendPrepare, 0, (PGconn * conn, const char *name, const char *query, int count, TYPES),
     (conn, name, query, count, types))
WRAP(int, PQsendQueryPrepared, 0, (PGconn * conn, const char *name, VALUES),
     (conn, name, count, values, lengths, formats, result_format))
WRAP(int, PQpipelineSync, 0, (PGconn * conn), (conn))
WRAP(int, PQflush, -1, (PGconn * conn), (conn))
WRAP(int, PQconsumeInput, 0, (PGconn * conn), (conn))
WRAP_RESULT(PQgetResult, (PGconn * conn), (conn))
WRAP_RESULT(PQexec, (PGconn * conn, const char *query), (conn, query))
WRAP_RESULT(PQexecParams,
            (PGconn * conn, const char *command, int count, TYPES, const char *const *values,
             const int *lengths, const int *formats, int result_format),
            (conn, command, count, types, values, lengths, formats, result_format))
WRAP_RESULT(PQexecPrepared, (PGconn * conn, const char *name, VALUES),
            (conn, name, count, values, lengths, formats, result_format))
WRAP_RESULT(PQprepare, (PGconn * conn, const char *name, const char *query, int count, TYPES),
            (conn, name, query, count, types))
