/* The C worker program of the conformance suite (../README.md): a handler's call as a small state
 * machine that never waits, so that a thread of its own can play it to the end, or one thread many.
 */
#ifndef CONFORMANCE_WORKER_H
#define CONFORMANCE_WORKER_H

#include "sagaworker.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct job;

/* stdout: one event a line. `format` is jansson's, of the members beside "event". Any thread. */
void event_write(const char *name, const char *format, ...);

/* The beginning of a handler's call. `typed`: the request is a StringValue, and so is the output.
 */
struct job *job_new(struct saga_task *task, bool typed);
/* Goes on as far as it can now. True: the task has its outcome, and the job is gone. */
bool job_step(struct job *job);

/* Commands, for any thread. */
void job_let_go(const char *fence);
void job_tell_still_mine(const char *fence);

/* Calls nobody, by the client that the script names, and says what it came to. */
void client_refused(struct saga_task *task, const char *client, int port);

/* Output = all that the task says of itself. */
int describe(struct saga_task *task, const json_t *script);

#endif
