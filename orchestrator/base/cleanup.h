/* Scope-bound clean-up: CLEANUP(fn) frees when the scope ends, TAKE(p) hands the value out. */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdlib.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define TAKE(p)                                                                                    \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })
#define MUST_USE           __attribute__((warn_unused_result))
#define FMT(f, a)          __attribute__((format(printf, f, a)))
#define ARRAY_LEN(a)       (sizeof(a) / sizeof((a)[0]))
#define CONTAINER(p, t, m) ((t *)(void *)((char *)(p)-offsetof(t, m)))

#endif
