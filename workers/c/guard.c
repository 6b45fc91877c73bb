#include "guard.h"

#include <string.h>

static const char *const answer_names[] = {
    [REFUSED] = "REFUSED", [DUPLICATE] = "DUPLICATE", [STALE] = "STALE",         [EMPTY] = "EMPTY",
    [PROCEED] = "PROCEED", [RECORDED] = "RECORDED",   [LEFT_OPEN] = "LEFT_OPEN",
};

enum guard_answer guard_answer_of(struct saga_task *task, const char *word)
{
    for (size_t i = REFUSED; i < ARRAY_LEN(answer_names); i++)
        if (strcmp(word, answer_names[i]) == 0)
            return (enum guard_answer)i;
    guard_set_retry(task, "GUARD_VERSION",
                    "the guard gave an answer that this worker does not know");
    return ANSWER_NONE;
}

void guard_set_retry(struct saga_task *task, const char *code, const char *message)
{
    if (saga_task_retry(task, code, message, 0) != 0)
        task_outcome_clear(&task->outcome);
}

void guard_set_unknown(struct saga_task *task, const char *code, const char *message)
{
    if (saga_task_unknown(task, code, message) != 0)
        task_outcome_clear(&task->outcome);
}

void guard_set_done(struct saga_task *task)
{
    if (saga_task_done(task, NULL, 0) != 0)
        guard_set_unknown(task, "GUARD_OUTPUT", "memory is out");
}

void guard_set_stored(struct saga_task *task, const void *output, size_t size)
{
    if (saga_task_already_done(task, output, size, true) != 0)
        guard_set_unknown(task, "GUARD_OUTPUT", "the stored output cannot be reported");
}

void guard_set_refusal(struct saga_task *task, enum guard_answer answer)
{
    if (answer == STALE)
        guard_set_retry(task, "GUARD_STALE",
                        "a newer holder was here, or the saga is below the floor");
    else if (answer == LEFT_OPEN)
        guard_set_unknown(task, "GUARD_LEFT_OPEN",
                          "a worker entered the guard and committed without done");
    else if (saga_task_rejected(task, "GUARD_REFUSED", "the action came after its compensation") !=
             0)
        task_outcome_clear(&task->outcome);
}
