#include "store/lanes.h"

#include "base/log.h"

#include <assert.h>
#include <poll.h>

static struct store_lanes *lanes_of(struct store *store)
{
    return CONTAINER(store, struct store_lanes, store);
}

static uint64_t lane_generation(const struct store_lanes *lanes, size_t i)
{
    return lanes->lanes[i]->ops->generation(lanes->lanes[i]);
}

static bool lane_idle(const struct store_lanes *lanes, size_t i)
{
    return lanes->lanes[i]->ops->idle(lanes->lanes[i]);
}

static bool all_as_seen(const struct store_lanes *lanes)
{
    for (size_t i = 0; i < STORE_LANES; i++)
        if (!lanes->seen[i] || lane_generation(lanes, i) != lanes->seen[i])
            return false;
    return true;
}

/* A connection of before the loss, whose batch has ended: it ends, too. */
static bool is_to_renew(const struct store_lanes *lanes, size_t i)
{
    return lanes->seen[i] && lane_generation(lanes, i) == lanes->seen[i] && lane_idle(lanes, i);
}

static bool all_new(const struct store_lanes *lanes)
{
    for (size_t i = 0; i < STORE_LANES; i++) {
        uint64_t generation = lane_generation(lanes, i);
        if (!generation || generation == lanes->seen[i] || !lane_idle(lanes, i))
            return false;
    }
    return true;
}

/* After a failover one of them may still be to the server of before. */
static bool on_one_timeline(const struct store_lanes *lanes)
{
    int64_t first = lanes->lanes[0]->ops->epoch(lanes->lanes[0]);
    for (size_t i = 1; i < STORE_LANES; i++)
        if (lanes->lanes[i]->ops->epoch(lanes->lanes[i]) != first)
            return false;
    return true;
}

static void look(struct store_lanes *lanes)
{
    if (lanes->usable && all_as_seen(lanes))
        return;
    lanes->usable = false;
    for (size_t i = 0; i < STORE_LANES; i++)
        if (is_to_renew(lanes, i))
            lanes->lanes[i]->ops->renew(lanes->lanes[i]);
    if (!all_new(lanes))
        return;
    for (size_t i = 0; i < STORE_LANES; i++)
        lanes->seen[i] = lane_generation(lanes, i);
    if (!on_one_timeline(lanes)) {
        log_line(LOG_WARN, "two connections to the database are to servers of two timelines: again",
                 NULL);
        return; /* both are of before now */
    }
    lanes->usable = true;
    lanes->generation++;
}

static void lanes_process(struct store *store, int64_t mono_ms)
{
    struct store_lanes *lanes = lanes_of(store);
    for (size_t i = 0; i < STORE_LANES; i++)
        lanes->lanes[i]->ops->process(lanes->lanes[i], mono_ms);
    look(lanes);
}

static uint64_t lanes_generation(struct store *store)
{
    const struct store_lanes *lanes = lanes_of(store);
    return lanes->usable && all_as_seen(lanes) ? lanes->generation : 0;
}

static int64_t lanes_epoch(struct store *store)
{
    const struct store_lanes *lanes = lanes_of(store);
    return lanes->lanes[0]->ops->epoch(lanes->lanes[0]);
}

static bool lanes_busy(struct store *store)
{
    const struct store_lanes *lanes = lanes_of(store);
    for (size_t i = 0; i < STORE_LANES; i++)
        if (!lanes->lanes[i]->ops->busy(lanes->lanes[i]))
            return false;
    return true;
}

static bool lanes_idle(struct store *store)
{
    const struct store_lanes *lanes = lanes_of(store);
    for (size_t i = 0; i < STORE_LANES; i++)
        if (!lane_idle(lanes, i))
            return false;
    return true;
}

static void lanes_submit(struct store *store, struct store_op *batch)
{
    struct store_lanes *lanes = lanes_of(store);
    size_t i = 0;
    while (i + 1 < STORE_LANES && lanes->lanes[i]->ops->busy(lanes->lanes[i]))
        i++;
    lanes->lanes[i]->ops->submit(lanes->lanes[i], batch);
}

static struct store_op *lanes_completed(struct store *store)
{
    struct store_lanes *lanes = lanes_of(store);
    struct store_op *completed = NULL;
    for (size_t i = 0; i < STORE_LANES && !completed; i++)
        completed = lanes->lanes[i]->ops->completed(lanes->lanes[i]);
    return completed;
}

static void lanes_renew(struct store *store)
{
    struct store_lanes *lanes = lanes_of(store);
    for (size_t i = 0; i < STORE_LANES; i++)
        lanes->lanes[i]->ops->renew(lanes->lanes[i]);
}

static size_t lanes_poll_fds(struct store *store, struct pollfd *ret)
{
    struct store_lanes *lanes = lanes_of(store);
    size_t count = 0;
    for (size_t i = 0; i < STORE_LANES; i++)
        count += lanes->lanes[i]->ops->poll_fds(lanes->lanes[i], &ret[count]);
    return count;
}

static int64_t lanes_wake_at(struct store *store)
{
    struct store_lanes *lanes = lanes_of(store);
    int64_t first = INT64_MAX;
    bool down = !lanes->usable || !all_as_seen(lanes);
    if (down && all_new(lanes))
        return 0;
    for (size_t i = 0; i < STORE_LANES; i++) {
        if (down && is_to_renew(lanes, i)) /* what it brought has been fetched since */
            return 0;
        int64_t at = lanes->lanes[i]->ops->wake_at(lanes->lanes[i]);
        first = at < first ? at : first;
    }
    return first;
}

static const struct store_ops lanes_ops = {
    .generation = lanes_generation,
    .epoch = lanes_epoch,
    .busy = lanes_busy,
    .idle = lanes_idle,
    .submit = lanes_submit,
    .completed = lanes_completed,
    .renew = lanes_renew,
    .process = lanes_process,
    .poll_fds = lanes_poll_fds,
    .wake_at = lanes_wake_at,
};

void store_lanes_open(struct store_lanes *lanes, struct store *const stores[STORE_LANES])
{
    *lanes = (struct store_lanes){ .store = { .ops = &lanes_ops } };
    for (size_t i = 0; i < STORE_LANES; i++)
        lanes->lanes[i] = stores[i];
}
