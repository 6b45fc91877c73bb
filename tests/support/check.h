/* cmocka with the headers that it needs, and the check of a fallible call of ours. */
#ifndef SUPPORT_CHECK_H
#define SUPPORT_CHECK_H

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The call returns 0, else the test fails with what `err` (a struct err *) says. */
#define ASSERT_OK(call, err)                                                                       \
    do {                                                                                           \
        if ((call) != 0) {                                                                         \
            fail_msg("%s: %s: %s", #call, err_code_name((err)->code), (err)->msg);                 \
        }                                                                                          \
    } while (0)
/* The same in a setup or teardown function, which answers -1 instead. */
#define SETUP_OK(call, err)                                                                        \
    do {                                                                                           \
        if ((call) != 0) {                                                                         \
            print_error("%s: %s: %s\n", #call, err_code_name((err)->code), (err)->msg);            \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

/* At full size (tests/run.sh --full) a test may run longer and over more cases. */
static inline bool test_is_full_size(void)
{
    const char *size = getenv("SAGAD_TEST_SIZE");
    return size != NULL && strcmp(size, "full") == 0;
}

#endif
