/* What the guard must answer, whatever database: a plain model of a step, and all short histories
 * of it. */
#ifndef TEST_GUARD_MODEL_H
#define TEST_GUARD_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* One operation of a history. */
struct guard_move {
    bool compensates;
    int64_t fence;
    bool says_no;   /* the effect's own no, after PROCEED */
    bool short_way; /* where there is one */
};

enum guard_past { PAST_NEVER, PAST_DONE, PAST_UNDONE, PAST_BLOCKED, PAST_SEEN };
/* Begins as zeroes. */
struct guard_model {
    enum guard_past action, compensation;
    int64_t action_fence, compensation_fence; /* the highest; 0: none */
    int balance; /* of all effects: an action adds one, its compensation takes one away */
};

/* The answer of enter: REFUSED, DUPLICATE, STALE, EMPTY, PROCEED. */
const char *guard_model_move(struct guard_model *model, const struct guard_move *move,
                             bool even_without_action);

enum { GUARD_HISTORY_MAX = 4 };
/* The history with that number of so many moves, from 0; false: there is none. With short ways
 * among them, or without. */
bool guard_history(int number, int length, bool short_ways,
                   struct guard_move ret_moves[GUARD_HISTORY_MAX]);

#endif
