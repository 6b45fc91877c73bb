/* Read by clang-tidy before every file: tells its analyzer what it cannot see from one translation
 * unit, that an error that was set or passed on is not ERR_OK. Never part of a build. */
#include "base/err.h"

static inline int tidy_is_failure(const struct err *err)
{
    if (err->code == ERR_OK)
        __builtin_unreachable();
    return (int)err->code;
}

#define err_set(err, code, ...) ((void)(err_set)(err, code, __VA_ARGS__), tidy_is_failure(err))
#define err_reason(err, code, reason, ...)                                                         \
    ((void)(err_reason)(err, code, reason, __VA_ARGS__), tidy_is_failure(err))
#define err_field(err, field, ...)                                                                 \
    ((void)(err_field)(err, field, __VA_ARGS__), tidy_is_failure(err))
#define err_wrap(err, ...) ((void)(err_wrap)(err, __VA_ARGS__), tidy_is_failure(err))
