/* Records are gathered, read by the rule, and written in one transaction; then who drives the new
 * sagas is told. A batch that could not be written stays and is written later; where it is not
 * known what became of it, or a cursor turned out to be elsewhere, everything begins anew there. */
#include "kafka/ingest_internal.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "kafka/headers.h"

#include <inttypes.h>
#include <string.h>

enum { LINES_MAX = 10 }; /* of single records of one batch in the log */

/* --- room ------------------------------------------------------------------------------------- */

int records_init(struct batch *batch, size_t limit, struct err *err)
{
    *batch = (struct batch){ .limit = limit,
                             .messages = mem_calloc(limit, sizeof(void *)),
                             .verdicts = mem_calloc(limit, sizeof *batch->verdicts),
                             .records = mem_calloc(limit, sizeof *batch->records),
                             .sagas = mem_calloc(limit, sizeof *batch->sagas),
                             .uids = mem_calloc(limit, sizeof *batch->uids) };
    if (batch->messages && batch->verdicts && batch->records && batch->sagas && batch->uids)
        return 0;
    records_done(batch);
    return err_set(err, ERR_NOMEM, "a batch of %zu records: out of memory", limit);
}

static void read_undo(struct batch *batch)
{
    for (size_t i = 0; i < batch->read_count; i++)
        kafka_verdict_done(&batch->verdicts[i]);
    batch->read_count = 0;
}

void records_drop(struct batch *batch)
{
    read_undo(batch);
    for (size_t i = 0; i < batch->count; i++)
        rd_kafka_message_destroy(batch->messages[i]);
    batch->count = 0;
    batch->bytes = 0;
}

void records_done(struct batch *batch)
{
    if (batch->messages && batch->verdicts)
        records_drop(batch);
    mem_free(batch->messages);
    mem_free(batch->verdicts);
    mem_free(batch->records);
    mem_free(batch->parts);
    mem_free(batch->headers);
    mem_free(batch->sagas);
    mem_free(batch->uids);
    *batch = (struct batch){ 0 };
}

bool records_is_full(const struct batch *batch)
{
    return batch->count >= batch->limit || batch->bytes >= BATCH_BYTES_MAX;
}

/* --- gathering ----------------------------------------------------------------------------------
 */

static struct kafka_bytes bytes_of(const void *data, size_t size)
{
    return (struct kafka_bytes){ .data = data, .size = size, .is_there = data != NULL };
}

static int64_t time_of(const rd_kafka_message_t *message)
{
    rd_kafka_timestamp_type_t type;
    return rd_kafka_message_timestamp(message, &type);
}

static uint32_t crc_of(const rd_kafka_message_t *message)
{
    struct kafka_bytes key = bytes_of(message->key, message->key_len);
    struct kafka_bytes value = bytes_of(message->payload, message->len);
    return kafka_record_crc(&key, &value);
}

void records_gather(struct run *run, rd_kafka_message_t *message)
{
    struct batch *batch = &run->batch;
    struct part *part = run_find_part(run, message->partition);
    if (!part || part->stopped || run->must_position) { /* it comes again, here or elsewhere */
        rd_kafka_message_destroy(message);
        return;
    }
    if (batch->count >= batch->limit) { /* past a pause; what is let go here must be read again */
        rd_kafka_message_destroy(message);
        position_again(run, 0);
        return;
    }
    uint32_t crc = part->reader.verify ? crc_of(message) : 0;
    switch (partition_take(&part->reader, message->offset, time_of(message), crc)) {
    case PARTITION_HANDLE:
        batch->messages[batch->count++] = message;
        batch->bytes += message->len + message->key_len;
        return;
    case PARTITION_PASS:
        break;
    case PARTITION_ANOTHER:
        (void)position_stop(run, part, PARTITION_TOPIC_RECREATED, part->reader.before.offset,
                            message->offset); /* it tells */
        break;
    }
    rd_kafka_message_destroy(message);
}

/* --- reading ------------------------------------------------------------------------------------
 */

int records_record(struct batch *batch, const rd_kafka_message_t *message, struct kafka_record *ret,
                   struct err *err)
{
    rd_kafka_headers_t *list = NULL;
    size_t count = 0;
    if (rd_kafka_message_headers(message, &list) == RD_KAFKA_RESP_ERR_NO_ERROR)
        count = rd_kafka_header_cnt(list);
    if (count > batch->header_limit) {
        struct kafka_header *more = mem_realloc(batch->headers, count * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "headers: out of memory");
        batch->headers = more;
        batch->header_limit = count;
    }
    for (size_t i = 0; i < count; i++) {
        const void *value = NULL;
        size_t size = 0;
        if (rd_kafka_header_get_all(list, i, &batch->headers[i].name, &value, &size))
            return err_set(err, ERR_INTERNAL, "header %zu of %zu cannot be read", i, count);
        batch->headers[i].value = bytes_of(value, size);
    }
    *ret = (struct kafka_record){
        .topic = rd_kafka_topic_name(message->rkt),
        .partition = message->partition,
        .offset = message->offset,
        .timestamp_ms = time_of(message),
        .key = bytes_of(message->key, message->key_len),
        .value = bytes_of(message->payload, message->len),
        .headers = batch->headers,
        .header_count = count,
    };
    return 0;
}

static struct store_ingest_bytes stored(const struct kafka_bytes *bytes)
{
    return (struct store_ingest_bytes){ bytes->data, bytes->size, bytes->is_there };
}

/* The share of the record's partition in the batch; it is made with the partition's first one. */
static struct store_ingest_part *share_of(struct batch *batch, size_t *count,
                                          const struct part *part)
{
    for (size_t i = 0; i < *count; i++)
        if (batch->parts[i].partition == part->partition)
            return &batch->parts[i];
    batch->parts[*count] = (struct store_ingest_part){
        .partition = part->partition,
        .expected = part->reader.next_offset,
        .before = { part->reader.before.known ? part->reader.before.offset : PARTITION_UNKNOWN,
                    part->reader.before.time_ms, part->reader.before.crc }
    };
    return &batch->parts[(*count)++];
}

/* What becomes of one record: it adds to the share, and most add a record that is written. */
static int record_add(struct batch *batch, size_t i, const struct kafka_record *record,
                      struct store_ingest_batch *ret, struct store_ingest_part *share,
                      struct err *err)
{
    const struct kafka_verdict *verdict = &batch->verdicts[i];
    struct store_ingest_record *written = &batch->records[ret->record_count];
    uint32_t crc = kafka_record_crc(&record->key, &record->value);
    share->next_offset = record->offset + 1;
    share->before = (struct store_ingest_before){ record->offset, record->timestamp_ms, crc };
    *written = (struct store_ingest_record){ .partition = record->partition,
                                             .offset = record->offset,
                                             .time_ms = record->timestamp_ms,
                                             .crc = crc,
                                             .key = stored(&record->key),
                                             .value = stored(&record->value) };
    switch (verdict->outcome) {
    case KAFKA_RECORD_FILTERED:
    case KAFKA_RECORD_NOT_CANARY:
        share->filtered++;
        return 0;
    case KAFKA_RECORD_TOMBSTONE_IGNORED:
        share->tombstones++;
        return 0;
    case KAFKA_RECORD_START:
        written->action = INGEST_START;
        written->saga_id = verdict->saga_id;
        written->input = verdict->input;
        written->labels = verdict->labels;
        break;
    case KAFKA_RECORD_DEAD:
        written->action = INGEST_DEAD_LETTER;
        written->saga_id = verdict->saga_id; /* NULL where it could not be read */
        written->reason = kafka_reason_name(verdict->reason);
        written->message = verdict->message;
        break;
    case KAFKA_OUTCOME_COUNT:
        return err_set(err, ERR_INTERNAL, "a record without an outcome");
    }
    if (headers_pack(record, &written->headers, err))
        return (int)err->code;
    ret->record_count++;
    return 0;
}

static void batch_written_done(struct store_ingest_batch *written)
{
    for (size_t i = 0; i < written->record_count; i++)
        mem_free(written->records[i].headers.data);
    written->record_count = 0;
}

static int room_for_parts(struct run *run, struct err *err)
{
    struct batch *batch = &run->batch;
    if (run->part_count <= batch->part_limit)
        return 0;
    struct store_ingest_part *parts = mem_realloc(batch->parts, run->part_count * sizeof *parts);
    if (!parts)
        return err_set(err, ERR_NOMEM, "%zu partitions: out of memory", run->part_count);
    batch->parts = parts;
    batch->part_limit = run->part_count;
    return 0;
}

/* The verdicts of an attempt before stand, unless another revision takes the new sagas by now. */
static int message_read(struct run *run, size_t i, struct kafka_record *record, struct err *err)
{
    struct batch *batch = &run->batch;
    if (records_record(batch, batch->messages[i], record, err))
        return (int)err->code;
    if (i < batch->read_count)
        return 0;
    if (kafka_record_read(run->rule, run->definition, run->ingest->options.payload_bytes_max,
                          record, &batch->verdicts[i], err))
        return (int)err->code;
    batch->read_count = i + 1;
    return 0;
}

/* Partitions of which nothing but markers lies between cursor and end: they move, too. */
static void ends_add(struct run *run, struct store_ingest_batch *ret)
{
    for (size_t i = 0; i < run->part_count; i++) {
        const struct part *part = &run->parts[i];
        if (part->stopped || part->log_end <= part->reader.next_offset ||
            part->log_end < part->reader.taken)
            continue;
        share_of(&run->batch, &ret->part_count, part)->next_offset = part->log_end;
    }
}

static int batch_make(struct run *run, struct store_ingest_batch *ret, struct err *err)
{
    struct batch *batch = &run->batch;
    if (room_for_parts(run, err))
        return (int)err->code;
    if (batch->read_revision != run->definition->revision)
        read_undo(batch);
    batch->read_revision = run->definition->revision;
    *ret = (struct store_ingest_batch){
        .namespace_ = run->rule->namespace_,
        .definition = run->rule->definition,
        .revision = run->definition->revision,
        .deadline_ms = run->definition->deadline_ms,
        .publish_start = run->definition->publish == PUBLISH_TRANSITIONS,
        .mismatch_is_dead_letter = run->rule->on_mismatch == KAFKA_MISMATCH_DEAD_LETTER,
        .parts = batch->parts,
        .records = batch->records,
    };
    for (size_t i = 0; i < batch->count; i++) {
        const struct part *part = run_find_part(run, batch->messages[i]->partition);
        struct kafka_record record;
        if (message_read(run, i, &record, err) ||
            record_add(batch, i, &record, ret, share_of(batch, &ret->part_count, part), err)) {
            batch_written_done(ret);
            return (int)err->code;
        }
    }
    ends_add(run, ret);
    return 0;
}

/* --- what became of it --------------------------------------------------------------------------
 */

static void tell_record(const struct run *run, const struct store_ingest_record *record)
{
    const char *what = NULL;
    if (record->result == INGEST_DEAD)
        what = "a record is a dead letter";
    else if (record->result == INGEST_MISMATCH)
        what = "a record has a known key and another input";
    if (what)
        log_line(LOG_WARN, what, "rule", run->rule->name, "topic", run->rule->topic, "partition",
                 log_fmt("%" PRId32, record->partition), "offset",
                 log_fmt("%" PRId64, record->offset), "saga", record->saga_id, "reason",
                 record->reason, "message", record->message, NULL);
}

/* What began SUSPECT has an entry in its journal, which only a load brings. */
static void started_add(struct run *run, const struct store_ingest_record *record)
{
    struct batch *batch = &run->batch;
    const struct part *part = run_find_part(run, record->partition);
    struct kafka_started_saga *saga = &batch->sagas[batch->uid_count];
    *saga = (struct kafka_started_saga){ 0 };
    if (record->offset >= part->suspect_until)
        *saga = (struct kafka_started_saga){ .saga_id = record->saga_id,
                                             .input = record->input,
                                             .labels = record->labels };
    batch->uids[batch->uid_count++] = record->uid;
}

static void records_written(struct run *run, const struct store_ingest_batch *written)
{
    struct batch *batch = &run->batch;
    size_t told = 0, odd = 0;
    for (size_t i = 0; i < written->record_count; i++) {
        const struct store_ingest_record *record = &written->records[i];
        if (record->result == INGEST_STARTED)
            started_add(run, record);
        else if (record->result == INGEST_DEAD || record->result == INGEST_MISMATCH) {
            odd++;
            if (told < LINES_MAX) {
                told++;
                tell_record(run, record);
            }
        }
    }
    if (odd > told)
        log_line(LOG_WARN, "more records of the same batch are dead letters or mismatches", "rule",
                 run->rule->name, "more", log_fmt("%zu", odd - told), NULL);
    run->allowed -= (int64_t)batch->uid_count;
}

static bool parts_written(struct run *run, const struct store_ingest_batch *written)
{
    bool all = true;
    for (size_t i = 0; i < written->part_count; i++) {
        const struct store_ingest_part *share = &written->parts[i];
        struct part *part = run_find_part(run, share->partition);
        if (!share->moved) {
            log_line(LOG_INFO, "a partition's cursor is elsewhere: it is read anew", "rule",
                     run->rule->name, "partition", log_fmt("%" PRId32, share->partition),
                     "expected", log_fmt("%" PRId64, share->expected), NULL);
            all = false;
            continue;
        }
        part->handled += share->next_offset - share->expected;
        part->reader.next_offset = share->next_offset;
        if (part->reader.taken < share->next_offset)
            part->reader.taken = share->next_offset;
        part->reader.before =
            (struct partition_mark){ .known = share->before.offset != PARTITION_UNKNOWN,
                                     .offset = share->before.offset,
                                     .time_ms = share->before.time_ms,
                                     .crc = share->before.crc };
        part->log_end = PARTITION_UNKNOWN;
    }
    return all;
}

static void batch_failed(struct run *run, const struct err *err)
{
    if (strcmp(err->reason, "COMMIT_IN_DOUBT") == 0) {
        run->batch.uids_unknown = run->in_doubt = true;
        position_again(run, 0);
    } else if (strcmp(err->reason, "DEFINITION_PAUSED") == 0 ||
               strcmp(err->reason, "REVISION_GONE") == 0) {
        run->definition_stale = true;
    } else if (strcmp(err->reason, "RULE_STOPPED") == 0) {
        run->look_at = 0;
    }
    run_failed(run, "a batch of records", err);
}

static bool tell(struct run *run, const struct kafka_started *started)
{
    const struct kafka_ingest_options *options = &run->ingest->options;
    return options->started(options->ctx, started);
}

/* While all of it is at hand. Where they are not taken now, their uids are told later. */
static void tell_whole(struct run *run, const struct store_ingest_batch *written, long long mark)
{
    struct batch *batch = &run->batch;
    const struct kafka_started started = {
        .uids = batch->uids,
        .count = batch->uid_count,
        .sagas = batch->sagas,
        .namespace_ = written->namespace_,
        .definition = written->definition,
        .revision = written->revision,
        .started_at_ms = written->now_ms,
        .deadline_at_ms = written->deadline_ms ? written->now_ms + written->deadline_ms : 0,
        .mark = mark,
    };
    if (batch->uid_count && tell(run, &started))
        batch->uid_count = 0;
}

void records_write(struct run *run)
{
    struct err err;
    struct store_ingest_batch written = { 0 };
    if (batch_make(run, &written, &err)) {
        run_failed(run, "reading records", &err);
        return;
    }
    run->ends_seen = false;
    if (!written.part_count)
        return;
    const struct kafka_ingest_options *options = &run->ingest->options;
    long long mark = options->mark(options->ctx);
    fault_point("before_ingest");
    if (store_ingest_batch(run->store, &written, &err)) {
        batch_failed(run, &err);
    } else {
        fault_point("after_ingest");
        run->back_off_ms = 0;
        records_written(run, &written);
        tell_whole(run, &written, mark);
        bool all = parts_written(run, &written);
        records_drop(&run->batch);
        if (!all) {
            run->batch.uids_unknown |= run->in_doubt; /* it was ours that came late */
            position_again(run, 0);
        }
        run->in_doubt = false;
        (void)records_tell(run); /* or before the next batch */
    }
    batch_written_done(&written);
}

bool records_tell(struct run *run)
{
    struct batch *batch = &run->batch;
    if (batch->uid_count) {
        const struct kafka_started started = { .uids = batch->uids, .count = batch->uid_count };
        if (!tell(run, &started))
            return false;
        batch->uid_count = 0;
    }
    if (batch->uids_unknown) {
        const struct kafka_started started = { .count = 0 };
        if (!tell(run, &started))
            return false;
        batch->uids_unknown = false;
    }
    return true;
}
