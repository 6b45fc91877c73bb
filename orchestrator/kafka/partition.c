#include "kafka/partition.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

static const char *const stop_words[] = {
    [PARTITION_RUNS] = "",
    [PARTITION_GAP] = "GAP",
    [PARTITION_BEYOND_END] = "BEYOND_END",
    [PARTITION_FOREIGN_OFFSET] = "GROUP_OFFSET_FOREIGN",
    [PARTITION_TOPIC_RECREATED] = "TOPIC_RECREATED",
};
static_assert(ARRAY_LEN(stop_words) == PARTITION_STOP_COUNT, "one word for each");

const char *partition_stop_word(enum partition_stop stop)
{
    return stop_words[stop];
}

static void stops(struct partition_verdict *ret, enum partition_stop stop, int64_t from, int64_t to)
{
    *ret = (struct partition_verdict){ .stop = stop, .from = from, .to = to };
}

void partition_judge(const struct partition_facts *facts, struct partition_verdict *ret)
{
    if (facts->low > facts->next_offset) {
        stops(ret, PARTITION_GAP, facts->next_offset, facts->low - 1);
        return;
    }
    if (facts->next_offset > facts->end) {
        stops(ret, PARTITION_BEYOND_END, facts->end, facts->next_offset);
        return;
    }
    bool foreign = facts->group_offset != PARTITION_UNKNOWN && !facts->group_is_ours;
    if (foreign && facts->group_offset != facts->next_offset) {
        stops(ret, PARTITION_FOREIGN_OFFSET, facts->next_offset, facts->group_offset);
        return;
    }
    /* The record before may be gone by the topic's retention: then nothing is left to compare. */
    bool verify = facts->before.known && facts->before.offset >= facts->low &&
                  facts->before.offset < facts->next_offset;
    *ret = (struct partition_verdict){
        .stop = PARTITION_RUNS,
        .begin = verify ? facts->before.offset : facts->next_offset,
        .verify = verify,
        .follow = foreign || facts->group_offset == PARTITION_UNKNOWN,
    };
}

static bool is_same(const struct partition_mark *mark, int64_t time_ms, uint32_t crc)
{
    return mark->time_ms == time_ms && mark->crc == crc;
}

enum partition_take partition_take(struct partition_reader *reader, int64_t offset, int64_t time_ms,
                                   uint32_t crc)
{
    if (reader->verify && offset >= reader->before.offset) {
        reader->verify = false;
        bool there = offset == reader->before.offset;
        if (there ? !is_same(&reader->before, time_ms, crc) : !reader->may_compact)
            return PARTITION_ANOTHER;
    }
    if (offset < reader->taken)
        return PARTITION_PASS;
    reader->taken = offset + 1;
    return PARTITION_HANDLE;
}

enum partition_take partition_end(struct partition_reader *reader, int64_t offset)
{
    if (reader->verify && offset > reader->before.offset) {
        reader->verify = false;
        if (!reader->may_compact)
            return PARTITION_ANOTHER; /* the record before the cursor did not come */
    }
    return offset > reader->taken ? PARTITION_HANDLE : PARTITION_PASS;
}

void partition_stop_text(enum partition_stop stop, int64_t from, int64_t to, char *ret, size_t size)
{
    switch (stop) {
    case PARTITION_GAP:
        (void)snprintf(ret, size,
                       "records %" PRId64 "..%" PRId64 " were deleted before they were handled",
                       from, to);
        return;
    case PARTITION_BEYOND_END:
        (void)snprintf(ret, size,
                       "the log ends at %" PRId64 ", before the next record to handle, %" PRId64
                       ": it lost records, or the topic was made anew",
                       from, to);
        return;
    case PARTITION_FOREIGN_OFFSET:
        (void)snprintf(ret, size,
                       "the next record to handle is %" PRId64 ", and another program has written"
                       " %" PRId64 " as the group's offset",
                       from, to);
        return;
    case PARTITION_TOPIC_RECREATED:
        (void)snprintf(ret, size,
                       "record %" PRId64 " is not the one that was handled: the topic was made"
                       " anew",
                       from);
        return;
    case PARTITION_RUNS:
    case PARTITION_STOP_COUNT:
        break;
    }
    *ret = '\0';
}
