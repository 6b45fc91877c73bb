/* The n-th call of a kind fails, in short scenarios that leave nothing behind: a counting run finds
 * how many there are, then one fails at a time: all of them in full, a seeded sample everyday.
 * Whatever failed must be answered as an error that can be repeated, or done again inside; sagad
 * must not crash, nor leak (it is ended in order, under the sanitizers), nor leave a saga behind.
 *
 * thread: the test thread only. What fails, fails the running test. */
#ifndef FAULT_EACH_CALL_H
#define FAULT_EACH_CALL_H

#include "page.h"
#include "support/check.h"

int each_call_setup(void **state);
int each_call_teardown(void **state);
int each_call_check(void **state);

/* While it serves: each call of the place. `fault`: its name in the proof. */
void each_call_fail(enum page_place place, const char *fault);
/* The same while it starts: it serves, or says what is wrong and exits with 1 or 2. */
void each_call_fail_start(enum page_place place, const char *fault);

/* Some calls of each function of libpq; then, at the start, of those that were not called. */
void each_call_fail_by_name(void);
void each_call_fail_start_by_name(void);
/* For the proof. */
void each_call_count_by_name(void);

#endif
