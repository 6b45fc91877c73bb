/* What a test program tells about itself on stdout, for the table in tests/README.md:
 *
 *   proves: P1 P8 | test_name      a test and the promises that it proves
 *   fault: NAME | COUNT            a fault that it injects, and how often that hit in this run
 *   seed: N                        of its random choices
 *
 * A fault that never hit has proved nothing: the program fails. thread: the test thread only. */
#ifndef SUPPORT_PROOF_H
#define SUPPORT_PROOF_H

#include <stdint.h>

enum { PROOF_FAULTS_MAX = 64, PROOF_NAME_SIZE = 96 };

/* The first line of a test: PROVES("P1 P8"); */
#define PROVES(promises) proof_test(promises, __func__)
void proof_test(const char *promises, const char *test);
/* The fault hit so often more; 0: it is one of this program's. */
void proof_fault(const char *name, int64_t count);
/* For the end of main: prints the faults. Returns `failed`, or 1 when one of them never hit. */
int proof_end(int failed);

/* $SAGAD_TEST_SEED, or a random one; printed at the first call, the same at each. */
uint64_t proof_seed(void);

#endif
