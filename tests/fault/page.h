/* The page that a test and a running sagad_fault share (a mapped file): the test arms a fault there
 * at any time, sagad_fault counts how often its place was passed and how often it hit.
 *
 * A fault hits once: at the n-th passing after it was armed. What then happens is the program's
 * business (crash_points.c): at a crash point it kills itself with -9, an allocation answers NULL,
 * a call of libpq fails.
 *
 * thread: any, on both sides. */
#ifndef FAULT_PAGE_H
#define FAULT_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULT_PAGE_ENV "SAGAD_FAULT_PAGE" /* path of the file */

enum page_place {
    PAGE_BEFORE_COMMIT, /* the crash points of base/fault.h, in its order */
    PAGE_AFTER_COMMIT,
    PAGE_AFTER_REPLY,
    PAGE_AFTER_TASK_SENT,
    PAGE_INSIDE_ADOPTION,
    PAGE_INSIDE_MIGRATION,
    PAGE_BEFORE_INGEST, /* from here on: of other programs */
    PAGE_INGEST_BEFORE_COMMIT,
    PAGE_INGEST_AFTER_COMMIT,
    PAGE_AFTER_INGEST,
    PAGE_AFTER_ARCHIVE,
    PAGE_BEFORE_OUTBOX_DELETE,
    PAGE_POINT_COUNT,
    PAGE_ALLOCATION = PAGE_POINT_COUNT, /* of our own code */
    PAGE_LIBPQ,                         /* a call that can fail */
    PAGE_PLACE_COUNT
};
extern const char *const page_place_names[PAGE_PLACE_COUNT];

/* The calls of libpq that can fail. */
#define PAGE_LIBPQ_CALLS(X)                                                                        \
    X(PQconninfoParse)                                                                             \
    X(PQconnectStartParams)                                                                        \
    X(PQconnectPoll)                                                                               \
    X(PQconnectdbParams)                                                                           \
    X(PQsetnonblocking)                                                                            \
    X(PQenterPipelineMode)                                                                         \
    X(PQsendQueryParams)                                                                           \
    X(PQsendPrepare)                                                                               \
    X(PQsendQueryPrepared)                                                                         \
    X(PQpipelineSync)                                                                              \
    X(PQflush)                                                                                     \
    X(PQconsumeInput)                                                                              \
    X(PQgetResult)                                                                                 \
    X(PQexec)                                                                                      \
    X(PQexecParams)                                                                                \
    X(PQexecPrepared)                                                                              \
    X(PQprepare)
#define PAGE_ENUM(name) PAGE_##name,
enum page_libpq { PAGE_LIBPQ_CALLS(PAGE_ENUM) PAGE_LIBPQ_COUNT };
#undef PAGE_ENUM
extern const char *const page_libpq_names[PAGE_LIBPQ_COUNT];

struct page_cell {
    _Atomic uint64_t passed, hit;
    _Atomic uint64_t left; /* passings until it hits; 0: not armed */
};

struct page {
    struct page_cell places[PAGE_PLACE_COUNT];
    _Atomic int
        libpq_only; /* only calls of this one are counted and fail: 1 + its number; 0: all */
    _Atomic uint64_t libpq_hits[PAGE_LIBPQ_COUNT];
};

static inline void page_arm(struct page *page, enum page_place place, uint64_t n)
{
    atomic_store(&page->places[place].left, n);
}

static inline uint64_t page_passed(const struct page *page, enum page_place place)
{
    return atomic_load(&page->places[place].passed);
}

static inline uint64_t page_hits(const struct page *page, enum page_place place)
{
    return atomic_load(&page->places[place].hit);
}

/* Counts a passing; true: the fault hits now. */
static inline bool page_pass(struct page_cell *cell)
{
    atomic_fetch_add(&cell->passed, 1);
    uint64_t left = atomic_load(&cell->left);
    while (left != 0)
        if (atomic_compare_exchange_weak(&cell->left, &left, left - 1)) {
            if (left != 1)
                return false;
            atomic_fetch_add(&cell->hit, 1);
            return true;
        }
    return false;
}

/* Maps the file, NULL if that fails. `create`: made anew, all zero. It stays mapped until exit. */
struct page *page_map(const char *path, bool create);

#endif
