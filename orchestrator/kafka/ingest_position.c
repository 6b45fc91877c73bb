/* Where the partitions begin. The cursors in PostgreSQL say so; the log's ends and the group's
 * offsets may contradict (kafka/partition.h), and then that partition stops. */
#include "kafka/admin.h"
#include "kafka/ingest_internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { POSITION_AGAIN_MS = 500, GROUPS_MS = 20000 };

/* What is asked of the cluster about the partitions of this node. */
struct ends {
    struct consumer_position *low, *end, *group; /* one block each, in the order of run->parts */
};

static void ends_done(struct ends *ends)
{
    mem_free(ends->low);
    mem_free(ends->end);
    mem_free(ends->group);
}

void position_again(struct run *run, int64_t delay_ms)
{
    int64_t at = run_now(run) + delay_ms;
    records_drop(&run->batch);
    if (!run->must_position || run->position_at < at)
        run->position_at = at;
    run->must_position = true;
}

/* --- stopping -----------------------------------------------------------------------------------
 */

bool position_stop(struct run *run, struct part *part, enum partition_stop stop, int64_t from,
                   int64_t to)
{
    struct err err;
    char text[NOTE_BYTES];
    partition_stop_text(stop, from, to, text, sizeof text);
    const struct store_ingest_stop what = { .partition = part->partition,
                                            .next_offset = part->reader.next_offset,
                                            .reason = partition_stop_word(stop),
                                            .message = text,
                                            .from = from,
                                            .to = to };
    bool stopped = false;
    part->stopped = true; /* nothing is handled, whatever the database says */
    if (store_ingest_stop(run->store, &what, &stopped, &err)) {
        run_failed(run, "stopping a partition", &err);
    } else {
        log_line(LOG_ERROR,
                 stopped ? "a partition is stopped; sagactl kafka resume lets it go on"
                         : "a partition is to be stopped, but its cursor is elsewhere by now",
                 "rule", run->rule->name, "topic", run->rule->topic, "partition",
                 log_fmt("%" PRId32, part->partition), "cursor",
                 log_fmt("%" PRId64, part->reader.next_offset), "reason", what.reason, "message",
                 text, NULL);
    }
    position_again(run, POSITION_AGAIN_MS); /* the others begin without it */
    return stopped;
}

/* --- first cursors ------------------------------------------------------------------------------
 */

static int positions_new(const struct run *run, struct consumer_position **ret, struct err *err)
{
    *ret = mem_calloc(run->part_count + 1, sizeof **ret);
    if (!*ret)
        return err_set(err, ERR_NOMEM, "%zu partitions: out of memory", run->part_count);
    for (size_t i = 0; i < run->part_count; i++)
        (*ret)[i].partition = run->parts[i].partition;
    return 0;
}

static int create(struct run *run, const struct consumer_position *positions, size_t count,
                  const char *why, struct err *err)
{
    CLEANUP(mem_free_p) struct store_ingest_begin *begins = mem_calloc(count, sizeof *begins);
    if (!begins)
        return err_set(err, ERR_NOMEM, "cursors: out of memory");
    for (size_t i = 0; i < count; i++)
        begins[i] = (struct store_ingest_begin){ positions[i].partition, positions[i].offset };
    if (store_ingest_create(run->store, begins, count, err))
        return (int)err->code;
    for (size_t i = 0; i < count; i++)
        log_line(LOG_INFO, "a partition without a cursor begins", "rule", run->rule->name, "topic",
                 run->rule->topic, "partition", log_fmt("%" PRId32, positions[i].partition),
                 "offset", log_fmt("%" PRId64, positions[i].offset), "start", why, NULL);
    return 0;
}

/* "earliest" where another group has worked is asked for twice: half of it may be done already. */
static int check_earliest(struct run *run, int32_t count, struct err *err)
{
    char group[KAFKA_GROUP_BYTES + 1];
    if (run->rule->confirm_earliest)
        return 0;
    const struct admin_limits limits = { .call_ms = CLUSTER_CALL_MS,
                                         .total_ms = GROUPS_MS,
                                         .ends = &run->ingest->ends };
    if (admin_group_of_topic(consumer_handle(run->consumer), run->rule->topic, run->rule->group,
                             count, &limits, group, sizeof group, err)) {
        const struct err why = *err;
        if (strcmp(why.reason, "GROUPS_UNKNOWN") == 0)
            (void)err_reason(err, ERR_UNAVAILABLE, "START_GROUPS_UNKNOWN", /* returned below */
                             "start = earliest: %s (%d s). Say confirm-earliest = yes if none has",
                             why.msg, GROUPS_MS / 1000);
        return (int)err->code;
    }
    if (!*group)
        return 0;
    return err_reason(err, ERR_PRECONDITION, "START_UNCONFIRMED",
                      "start = earliest, and the group %s has consumed %s: half of it may be done"
                      " already. Say start = group or take over, or confirm-earliest = yes",
                      group, run->rule->topic);
}

static int start_of_group(struct run *run, struct consumer_position *positions, size_t count,
                          struct err *err)
{
    if (consumer_committed(run->consumer, positions, count, CLUSTER_CALL_MS, err))
        return (int)err->code;
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (positions[i].failed)
            return err_set(err, ERR_UNAVAILABLE,
                           "the group's offset of partition %" PRId32 " is not to be had",
                           positions[i].partition);
        any = any || positions[i].offset >= 0;
    }
    if (!any)
        return err_reason(err, ERR_PRECONDITION, "START_UNKNOWN",
                          "start = group, and the group %s has no offsets on %s. Say start ="
                          " earliest, latest or a time",
                          run->rule->group, run->rule->topic);
    /* A partition that the group never got to begins at its first record. */
    for (size_t i = 0; i < count; i++) {
        if (positions[i].offset < 0 &&
            admin_offsets(consumer_handle(run->consumer), run->rule->topic, ADMIN_LOW,
                          CLUSTER_CALL_MS, &positions[i], 1, err))
            return (int)err->code;
    }
    return 0;
}

/* The rule's first word about the topic: every partition gets its cursor at once, for one that is
 * without later is a new one, and begins at its first record. */
static int create_all(struct run *run, struct err *err)
{
    static const char *const words[] = { "group", "earliest", "latest", "time" };
    rd_kafka_t *handle = consumer_handle(run->consumer);
    const struct kafka_rule *rule = run->rule;
    int32_t partitions = 0;
    if (admin_partition_count(handle, rule->topic, CLUSTER_CALL_MS, &partitions, err))
        return (int)err->code;
    size_t count = (size_t)partitions;
    CLEANUP(mem_free_p) struct consumer_position *positions = mem_calloc(count, sizeof *positions);
    if (!positions)
        return err_set(err, ERR_NOMEM, "cursors: out of memory");
    for (size_t i = 0; i < count; i++)
        positions[i].partition = (int32_t)i;
    int rc = 0;
    switch (rule->start) {
    case KAFKA_START_GROUP:
        rc = start_of_group(run, positions, count, err);
        break;
    case KAFKA_START_EARLIEST:
        rc = check_earliest(run, partitions, err);
        if (rc == 0)
            rc = admin_offsets(handle, rule->topic, ADMIN_LOW, CLUSTER_CALL_MS, positions, count,
                               err);
        break;
    case KAFKA_START_LATEST:
        rc = admin_offsets(handle, rule->topic, ADMIN_END, CLUSTER_CALL_MS, positions, count, err);
        break;
    case KAFKA_START_TIME:
        rc = admin_offsets(handle, rule->topic, rule->start_ms, CLUSTER_CALL_MS, positions, count,
                           err);
        break;
    }
    return rc ? rc : create(run, positions, count, words[rule->start], err);
}

static const struct store_ingest_cursor *cursor_of(const struct store_ingest_cursor *cursors,
                                                   size_t count, int32_t partition)
{
    for (size_t i = 0; i < count; i++)
        if (cursors[i].partition == partition)
            return &cursors[i];
    return NULL;
}

/* Cursors of all partitions that this node has; made where there is none. */
static int create_missing(struct run *run, const struct store_ingest_cursor *cursors, size_t count,
                          bool *ret_made, struct err *err)
{
    if (!count) {
        *ret_made = true;
        return create_all(run, err);
    }
    size_t missing = 0;
    CLEANUP(mem_free_p) struct consumer_position *positions = NULL;
    if (positions_new(run, &positions, err))
        return (int)err->code;
    for (size_t i = 0; i < run->part_count; i++)
        if (!cursor_of(cursors, count, run->parts[i].partition))
            positions[missing++].partition = run->parts[i].partition;
    *ret_made = missing > 0;
    if (!missing)
        return 0;
    if (admin_offsets(consumer_handle(run->consumer), run->rule->topic, ADMIN_LOW, CLUSTER_CALL_MS,
                      positions, missing, err))
        return (int)err->code;
    return create(run, positions, missing, "a new partition", err);
}

static int cursors_load(struct run *run, struct store_ingest_cursor **ret, size_t *ret_count,
                        struct err *err)
{
    bool made = false;
    struct store_ingest_cursor *cursors = NULL;
    size_t count = 0;
    if (store_ingest_cursors(run->store, &cursors, &count, err))
        return (int)err->code;
    if (create_missing(run, cursors, count, &made, err)) {
        store_ingest_cursors_done(cursors, count);
        return (int)err->code;
    }
    if (made) { /* or somebody else has: those are there now */
        store_ingest_cursors_done(cursors, count);
        if (store_ingest_cursors(run->store, &cursors, &count, err))
            return (int)err->code;
    }
    *ret = cursors;
    *ret_count = count;
    return 0;
}

/* --- judging
 * -------------------------------------------------------------------------------------- */

static int parts_take(struct run *run, struct err *err)
{
    size_t count;
    const int32_t *partitions = consumer_partitions(run->consumer, &count);
    struct part *parts = mem_calloc(count + 1, sizeof *parts);
    if (!parts)
        return err_set(err, ERR_NOMEM, "%zu partitions: out of memory", count);
    for (size_t i = 0; i < count; i++)
        parts[i] = (struct part){ .partition = partitions[i],
                                  .low = PARTITION_UNKNOWN,
                                  .end = PARTITION_UNKNOWN,
                                  .log_end = PARTITION_UNKNOWN };
    mem_free(run->parts);
    run->parts = parts;
    run->part_count = count;
    return 0;
}

static int parts_fill(struct run *run, const struct store_ingest_cursor *cursors, size_t count,
                      struct err *err)
{
    for (size_t i = 0; i < run->part_count; i++) {
        struct part *part = &run->parts[i];
        const struct store_ingest_cursor *cursor = cursor_of(cursors, count, part->partition);
        if (!cursor)
            return err_set(err, ERR_CONFLICT, "partition %" PRId32 " has no cursor yet",
                           part->partition);
        part->stopped = cursor->stopped;
        part->suspect_until = cursor->suspect_until;
        part->reader = (struct partition_reader){
            .next_offset = cursor->next_offset,
            .taken = cursor->next_offset,
            .before = { .known = cursor->has_before,
                        .offset = cursor->before.offset,
                        .time_ms = cursor->before.time_ms,
                        .crc = cursor->before.crc },
            .may_compact = run->topic_compacted || !run->topic_known,
        };
    }
    return 0;
}

static int ends_ask(struct run *run, struct ends *ret, struct err *err)
{
    rd_kafka_t *handle = consumer_handle(run->consumer);
    const char *topic = run->rule->topic;
    if (positions_new(run, &ret->low, err) || positions_new(run, &ret->end, err) ||
        positions_new(run, &ret->group, err) ||
        admin_offsets(handle, topic, ADMIN_LOW, CLUSTER_CALL_MS, ret->low, run->part_count, err) ||
        admin_offsets(handle, topic, ADMIN_END, CLUSTER_CALL_MS, ret->end, run->part_count, err) ||
        consumer_committed(run->consumer, ret->group, run->part_count, CLUSTER_CALL_MS, err))
        return (int)err->code;
    for (size_t i = 0; i < run->part_count; i++)
        if (ret->group[i].failed)
            return err_set(err, ERR_UNAVAILABLE,
                           "the group's offset of partition %" PRId32 " is not to be had",
                           run->parts[i].partition);
    run->heard_at = run_now(run);
    return 0;
}

/* *ret_follow: the group's offset is to be ours before anything is handled. */
static void part_judge(struct run *run, struct part *part, const struct ends *ends, size_t i,
                       int64_t *ret_begin, bool *ret_follow)
{
    struct partition_verdict verdict;
    const struct partition_facts facts = {
        .next_offset = part->reader.next_offset,
        .before = part->reader.before,
        .low = ends->low[i].offset,
        .end = ends->end[i].offset,
        .group_offset = ends->group[i].offset,
        .group_is_ours = ends->group[i].is_ours,
    };
    part->low = facts.low;
    part->end = facts.end;
    partition_judge(&facts, &verdict);
    *ret_follow = verdict.follow;
    *ret_begin = verdict.begin;
    part->reader.verify = verdict.verify;
    if (verdict.stop == PARTITION_RUNS)
        return;
    bool stopped = position_stop(run, part, verdict.stop, verdict.from, verdict.to);
    /* It is in the cursor's row now: once a person has decided, the group has nothing to add. */
    *ret_follow = verdict.stop == PARTITION_FOREIGN_OFFSET && stopped;
}

static int parts_begin(struct run *run, const struct ends *ends, struct err *err)
{
    CLEANUP(mem_free_p) struct consumer_position *begin = NULL, *follow = NULL;
    size_t begin_count = 0, follow_count = 0;
    if (positions_new(run, &begin, err) || positions_new(run, &follow, err))
        return (int)err->code;
    for (size_t i = 0; i < run->part_count; i++) {
        struct part *part = &run->parts[i];
        bool follows = false;
        int64_t offset = PARTITION_UNKNOWN;
        if (!part->stopped)
            part_judge(run, part, ends, i, &offset, &follows);
        if (!part->stopped)
            begin[begin_count++] =
                (struct consumer_position){ .partition = part->partition, .offset = offset };
        if (follows)
            follow[follow_count++] =
                (struct consumer_position){ .partition = part->partition,
                                            .offset = part->reader.next_offset };
    }
    if (consumer_assign(run->consumer, begin, begin_count, err))
        return (int)err->code;
    struct err late;
    if (consumer_follow(run->consumer, follow, follow_count, CLUSTER_CALL_MS, &late))
        log_line(LOG_WARN, "the group's offsets are not ours yet", "rule", run->rule->name, "err",
                 late.msg, NULL);
    return 0;
}

static int position(struct run *run, struct err *err)
{
    CLEANUP(ends_done) struct ends ends = { 0 };
    struct store_ingest_cursor *cursors = NULL;
    size_t count = 0;
    if (parts_take(run, err))
        return (int)err->code;
    if (!run->part_count)
        return consumer_assign(run->consumer, NULL, 0, err);
    if (cursors_load(run, &cursors, &count, err))
        return (int)err->code;
    int rc = parts_fill(run, cursors, count, err);
    store_ingest_cursors_done(cursors, count);
    if (rc || ends_ask(run, &ends, err))
        return (int)err->code;
    run->must_position = false; /* a stop below says it again */
    return parts_begin(run, &ends, err);
}

void position_try(struct run *run)
{
    struct err err;
    run->start_problem[0] = '\0';
    if (position(run, &err) == 0) {
        run->held_since = 0; /* paused at once they might forget where they begin */
        log_line(LOG_INFO, "partitions are read", "rule", run->rule->name, "topic",
                 run->rule->topic, "partitions", log_fmt("%zu", run->part_count), NULL);
        return;
    }
    position_again(run, POSITION_AGAIN_MS);
    if (strncmp(err.reason, "START_", 6) == 0) {
        (void)snprintf(run->start_problem, sizeof run->start_problem, "%s", err.msg);
        run->row_at = 0;
        position_again(run, BACK_OFF_MAX_MS);
    }
    run_failed(run, "where the partitions begin", &err);
}
