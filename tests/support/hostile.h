/* What tests with hostile peers share: an ordinary worker that is connected all the time, an
 * ordinary saga that must succeed at once whatever goes on, and the memory of sagad.
 * thread: the test thread only. */
#ifndef SUPPORT_HOSTILE_H
#define SUPPORT_HOSTILE_H

#include "support/rig.h"

struct hostile {
    struct rig *rig;
    pid_t pid; /* of the sagad that must live on */
    int sagas; /* ordinary ones so far */
};

/* Before rig_up: a sanitizer is told to keep little of what was freed, so that what sagad itself
 * keeps can be seen. */
void hostile_environment(void);
/* For setup, after rig_up. */
MUST_USE int hostile_begin(struct hostile *hostile, struct rig *rig);
/* Starts one and waits for its success. */
void hostile_ordinary_saga(struct hostile *hostile);
/* For the teardown of each test: the same process lives, serves an ordinary saga at once, and the
 * invariants hold. */
MUST_USE int hostile_check(struct hostile *hostile);
int64_t hostile_rss_kb(const struct hostile *hostile);
/* By how much a bound of it may be larger here: ThreadSanitizer keeps several times of what it
 * watches. */
#ifdef __SANITIZE_THREAD__
enum { HOSTILE_MEMORY_FACTOR = 5 };
#else
enum { HOSTILE_MEMORY_FACTOR = 1 };
#endif
/* FULL view, owned; NULL: the server refused, and ret_failure says why (client_failure_done). */
Saga__V1__Saga *hostile_get(struct hostile *hostile, const char *definition, const char *saga_id,
                            struct client_failure *ret_failure);

#endif
