#include "guard_model.h"

#include "base/cleanup.h"

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static const char *move_action(struct guard_model *model, const struct guard_move *move)
{
    if (model->action == PAST_UNDONE || model->action == PAST_BLOCKED)
        return "REFUSED";
    if (model->action == PAST_DONE) {
        model->action_fence = max_of(model->action_fence, move->fence);
        return "DUPLICATE";
    }
    if (model->action_fence > move->fence)
        return "STALE";
    model->action_fence = move->fence;
    model->action = move->says_no ? PAST_SEEN : PAST_DONE;
    model->balance += !move->says_no;
    return "PROCEED";
}

static const char *move_compensation(struct guard_model *model, const struct guard_move *move,
                                     bool even_without_action)
{
    if (model->compensation == PAST_DONE) {
        model->compensation_fence = max_of(model->compensation_fence, move->fence);
        return "DUPLICATE";
    }
    if (max_of(model->action_fence, model->compensation_fence) > move->fence)
        return "STALE";
    bool proceeds = even_without_action || model->action == PAST_DONE;
    if (model->action != PAST_DONE) {
        model->action_fence = model->action == PAST_NEVER ? move->fence : model->action_fence;
        model->action = PAST_BLOCKED;
    } else if (!move->says_no) {
        model->action = PAST_UNDONE;
    }
    model->compensation_fence = move->fence;
    model->compensation = proceeds && move->says_no ? PAST_SEEN : PAST_DONE;
    model->balance -= proceeds && !move->says_no;
    return proceeds ? "PROCEED" : "EMPTY";
}

const char *guard_model_move(struct guard_model *model, const struct guard_move *move,
                             bool even_without_action)
{
    return move->compensates ? move_compensation(model, move, even_without_action)
                             : move_action(model, move);
}

bool guard_history(int number, int length, bool short_ways,
                   struct guard_move ret_moves[GUARD_HISTORY_MAX])
{
    static const struct guard_move moves[] = {
        { .fence = 1 },
        { .fence = 5 },
        { .fence = 5, .says_no = true },
        { .compensates = true, .fence = 1 },
        { .compensates = true, .fence = 5 },
        { .compensates = true, .fence = 5, .says_no = true },
        { .fence = 1, .short_way = true },
        { .fence = 5, .short_way = true },
    };
    const int count = (int)ARRAY_LEN(moves) - (short_ways ? 0 : 2);
    for (int i = 0; i < length; i++, number /= count)
        ret_moves[i] = moves[number % count];
    return number == 0;
}
