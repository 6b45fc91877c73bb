/* Letters that are replayed: read again, as rule and definition are now, and written like a batch,
 * without a cursor. */
#include "kafka/headers.h"
#include "kafka/ingest_internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

struct replay {
    struct store_ingest_letter *letters;
    size_t count;
    struct kafka_verdict *verdicts;
    struct store_ingest_record *records;
    struct uuid *uids;
};

static void replay_done(struct replay *replay)
{
    for (size_t i = 0; replay->verdicts && i < replay->count; i++)
        kafka_verdict_done(&replay->verdicts[i]);
    mem_free(replay->verdicts);
    mem_free(replay->records);
    mem_free(replay->uids);
    store_ingest_letters_done(replay->letters, replay->count);
}

static struct kafka_bytes bytes_of(bool is_there, const struct bytes *bytes)
{
    static const uint8_t nothing[1];
    return is_there ? (struct kafka_bytes){ bytes->size ? bytes->data : nothing, bytes->size, true }
                    : (struct kafka_bytes){ 0 };
}

static struct store_ingest_bytes stored(const struct kafka_bytes *bytes)
{
    return (struct store_ingest_bytes){ bytes->data, bytes->size, bytes->is_there };
}

static int letter_read(const struct work *work, const struct store_ingest_letter *letter,
                       struct kafka_verdict *verdict, struct err *err)
{
    struct headers headers;
    if (headers_unpack(&letter->headers, &headers, err))
        return (int)err->code;
    const struct kafka_record record = { .topic = work->rule->topic,
                                         .partition = letter->partition,
                                         .offset = letter->offset,
                                         .timestamp_ms = letter->time_ms,
                                         .key = bytes_of(letter->has_key, &letter->key),
                                         .value = bytes_of(letter->has_value, &letter->value),
                                         .headers = headers.items,
                                         .header_count = headers.count };
    int rc = kafka_record_read(work->rule, work->definition,
                               work->ingest->options.payload_bytes_max, &record, verdict, err);
    headers_done(&headers);
    return rc;
}

static void record_fill(const struct store_ingest_letter *letter,
                        const struct kafka_verdict *verdict, struct store_ingest_record *ret)
{
    struct kafka_bytes key = bytes_of(letter->has_key, &letter->key);
    struct kafka_bytes value = bytes_of(letter->has_value, &letter->value);
    *ret = (struct store_ingest_record){ .action = INGEST_DEAD_LETTER,
                                         .partition = letter->partition,
                                         .offset = letter->offset,
                                         .time_ms = letter->time_ms,
                                         .crc = letter->crc,
                                         .key = stored(&key),
                                         .value = stored(&value),
                                         .headers = letter->headers };
    switch (verdict->outcome) {
    case KAFKA_RECORD_START:
        ret->action = INGEST_START;
        ret->saga_id = verdict->saga_id;
        ret->input = verdict->input;
        ret->labels = verdict->labels;
        return;
    case KAFKA_RECORD_DEAD:
        ret->reason = kafka_reason_name(verdict->reason);
        ret->message = verdict->message;
        return;
    case KAFKA_RECORD_FILTERED:
    case KAFKA_RECORD_NOT_CANARY:
    case KAFKA_RECORD_TOMBSTONE_IGNORED:
    case KAFKA_OUTCOME_COUNT:
        break;
    }
    ret->reason = "PASSED_OVER";
    ret->message = "by filter, canary or tombstone of the rule as it is now";
}

static int replay_read(const struct work *work, struct replay *ret, struct err *err)
{
    size_t count = ret->count;
    ret->verdicts = mem_calloc(count, sizeof *ret->verdicts);
    ret->records = mem_calloc(count, sizeof *ret->records);
    ret->uids = mem_calloc(count, sizeof *ret->uids);
    if (!ret->verdicts || !ret->records || !ret->uids)
        return err_set(err, ERR_NOMEM, "replay: out of memory");
    for (size_t i = 0; i < count; i++) {
        if (letter_read(work, &ret->letters[i], &ret->verdicts[i], err))
            return (int)err->code;
        record_fill(&ret->letters[i], &ret->verdicts[i], &ret->records[i]);
    }
    return 0;
}

/* Until it is taken, or the end: then the node's next start finds them. */
static void tell(const struct work *work, const struct uuid *uids, size_t count)
{
    enum { AGAIN_MS = 50 };
    const struct kafka_ingest_options *options = &work->ingest->options;
    struct pollfd wait = { .fd = work->ingest->wake_fd, .events = POLLIN };
    const struct kafka_started started = { .uids = uids, .count = count };
    while (!options->started(options->ctx, &started) && !work_ends(work))
        (void)poll(&wait, 1, AGAIN_MS); /* EINTR: asked again a little sooner */
}

static int replay_write(struct work *work, struct replay *replay, struct err *err)
{
    struct store_ingest_batch batch = {
        .namespace_ = work->rule->namespace_,
        .definition = work->rule->definition,
        .revision = work->definition->revision,
        .deadline_ms = work->definition->deadline_ms,
        .publish_start = work->definition->publish == PUBLISH_TRANSITIONS,
        .mismatch_is_dead_letter = work->rule->on_mismatch == KAFKA_MISMATCH_DEAD_LETTER,
        .records = replay->records,
        .record_count = replay->count,
    };
    if (store_ingest_replay(work->store, replay->letters, &batch, err)) {
        if (strcmp(err->reason, "COMMIT_IN_DOUBT") == 0)
            tell(work, NULL, 0);
        return (int)err->code;
    }
    size_t started = 0;
    for (size_t i = 0; i < replay->count; i++)
        if (replay->records[i].result == INGEST_STARTED)
            replay->uids[started++] = replay->records[i].uid;
    if (started)
        tell(work, replay->uids, started);
    log_line(LOG_INFO, "dead letters were replayed", "rule", work->rule->name, "letters",
             log_fmt("%zu", replay->count), "started", log_fmt("%zu", started), NULL);
    return 0;
}

int work_replay(struct work *work, struct err *err)
{
    while (!work_ends(work)) {
        CLEANUP(replay_done) struct replay replay = { 0 };
        if (store_ingest_letters(work->store, REPLAY_LETTERS_MAX, &replay.letters, &replay.count,
                                 err))
            return (int)err->code;
        if (!replay.count)
            return 0;
        if (replay_read(work, &replay, err) || replay_write(work, &replay, err))
            return (int)err->code;
    }
    return 0;
}
