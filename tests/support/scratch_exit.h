/* Between scratch.c and process.c: children end before the directory that holds their files goes.
 * thread: the test thread only. */
#ifndef SUPPORT_SCRATCH_EXIT_H
#define SUPPORT_SCRATCH_EXIT_H

void scratch_on_exit_end_children(void (*end)(void));

#endif
