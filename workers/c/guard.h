/* What the guarded transactions of both databases have in common: what an answer of the guard means
 * for the task. Whatever cannot be set because memory is out leaves the outcome unset, which is
 * UNKNOWN. thread: the handler's own. */
#ifndef WORKER_GUARD_H
#define WORKER_GUARD_H

#include "sagaworker.h"
#include "task.h"

enum guard_answer {
    ANSWER_NONE, /* the guard could not be asked; the outcome says why */
    REFUSED,
    DUPLICATE,
    STALE,
    EMPTY,
    PROCEED,
    RECORDED, /* it stands that there is no effect (after a business no) */
    LEFT_OPEN /* somebody committed without done (MySQL; PostgreSQL refuses that commit) */
};

/* ANSWER_NONE: a word that this worker does not know; the outcome says so. */
enum guard_answer guard_answer_of(struct saga_task *task, const char *word);

void guard_set_retry(struct saga_task *task, const char *code, const char *message);
void guard_set_unknown(struct saga_task *task, const char *code, const char *message);
/* DONE without an output. */
void guard_set_done(struct saga_task *task);
/* ALREADY_DONE, ours, with the output that the guard kept. */
void guard_set_stored(struct saga_task *task, const void *output, size_t size);
/* Of REFUSED, STALE or LEFT_OPEN. */
void guard_set_refusal(struct saga_task *task, enum guard_answer answer);

#endif
