/* The signals that end the program, taken one by one by the main thread. They are blocked before
 * the first thread exists, so that no thread is interrupted and none is lost, also as process 1.
 * thread: the main thread. */
#ifndef APP_SIGNALS_H
#define APP_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

/* SIGTERM, SIGINT, SIGHUP and SIGCHLD wait from now on; SIGPIPE and SIGXFSZ are ignored. Before any
 * thread. */
void signals_take(void);
/* The next signal, or 0 when the time is over. */
int signals_wait(int64_t timeout_ms);
/* One of those that ask us to end? */
bool signals_is_end(int signal_number);
/* From now on a signal that asks us to end does so at once (exit code 130). */
void signals_end_at_once(void);
/* In a child between fork and exec: as if nothing had been changed. Async-signal-safe. */
void signals_restore(void);

#endif
