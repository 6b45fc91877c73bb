/* CHECK: what the rule would make of the last records of its topic. Nothing is started or
 * committed; the records are read by a consumer that is no member of the group. */
#include "kafka/admin.h"
#include "kafka/ingest_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "wire/json.h"

#include <inttypes.h>
#include <saga/v1/kafka.pb-c.h>
#include <stdlib.h>
#include <string.h>

enum {
    CLOSE_MS = 2000,
    SILENCE_MAX_MS = 30000, /* without a record or an end: the cluster is not there any more */
    PROGRESS_MS = 1000,
    KNOWN_CHUNK = 500,
    LAST_MAX = 10 * 1000 * 1000,
};

struct fault { /* of one reason: how often, and the first one */
    int64_t count;
    int32_t partition;
    int64_t offset;
    char message[sizeof((struct kafka_verdict *)NULL)->message];
};

struct span { /* what is read of one partition */
    int64_t next, end;
};

struct check {
    struct work *work;
    const struct store_ingest_request *request;
    struct consumer *consumer;
    struct span *spans; /* by partition */
    size_t span_count;
    size_t open; /* spans that are not at their end */
    int64_t total;
    struct batch batch;                /* for its room for headers alone */
    Saga__V1__KafkaCheckResult result; /* the figures */
    struct fault faults[KAFKA_REASON_COUNT];
    uint64_t
        *keys; /* hashes of the keys so far; 0: free. Open addressing, never more than half full */
    size_t key_room;
    char *chunk[KNOWN_CHUNK]; /* keys that are to be looked up */
    size_t chunk_count;
};

static void check_done(struct check *check)
{
    check->consumer = consumer_close(check->consumer, CLOSE_MS);
    for (size_t i = 0; i < check->chunk_count; i++)
        mem_free(check->chunk[i]);
    records_done(&check->batch);
    mem_free(check->spans);
    mem_free(check->keys);
}

/* --- which records
 * --------------------------------------------------------------------------------- */

/* The last ones of all partitions together: of each in proportion to what it has. */
static void spans_choose(struct check *check, const struct consumer_position *lows,
                         const struct consumer_position *ends, int64_t last)
{
    int64_t there = 0;
    for (size_t i = 0; i < check->span_count; i++)
        there += ends[i].offset - lows[i].offset;
    for (size_t i = 0; i < check->span_count; i++) {
        int64_t has = ends[i].offset - lows[i].offset;
        int64_t take =
            there <= last ? has : (int64_t)((double)has * (double)last / (double)there + 0.999);
        if (take > has)
            take = has;
        check->spans[i] = (struct span){ .next = ends[i].offset - take, .end = ends[i].offset };
        check->total += take;
        check->open += take > 0;
    }
}

static int spans_find(struct check *check, struct err *err)
{
    CLEANUP(mem_free_p) struct consumer_position *lows = NULL, *ends = NULL;
    size_t count, end_count;
    int64_t last = check->request->last;
    if (last <= 0 || last > LAST_MAX)
        return err_set(err, ERR_INVALID, "last: 1 to %d records, not %" PRId64, LAST_MAX, last);
    if (work_positions(check->work, check->consumer, ADMIN_LOW, &lows, &count, err) ||
        work_positions(check->work, check->consumer, ADMIN_END, &ends, &end_count, err))
        return (int)err->code;
    if (count != end_count)
        return err_set(err, ERR_UNAVAILABLE, "the topic's partitions change just now");
    check->span_count = count;
    check->spans = mem_calloc(count, sizeof *check->spans);
    if (!check->spans)
        return err_set(err, ERR_NOMEM, "check: out of memory");
    spans_choose(check, lows, ends, last);
    for (check->key_room = 16; check->key_room < 2 * (size_t)check->total;)
        check->key_room *= 2;
    check->keys = mem_calloc(check->key_room, sizeof *check->keys);
    return check->keys ? 0 : err_set(err, ERR_NOMEM, "check: out of memory");
}

static int reading_begin(struct check *check, struct err *err)
{
    size_t count = 0;
    CLEANUP(mem_free_p)
    struct consumer_position *begin = mem_calloc(check->span_count, sizeof *begin);
    if (!begin)
        return err_set(err, ERR_NOMEM, "check: out of memory");
    for (size_t i = 0; i < check->span_count; i++)
        if (check->spans[i].next < check->spans[i].end)
            begin[count++] = (struct consumer_position){ .partition = (int32_t)i,
                                                         .offset = check->spans[i].next };
    return consumer_assign(check->consumer, begin, count, err);
}

/* --- one record
 * ------------------------------------------------------------------------------------ */

static uint64_t key_hash(const char *key)
{
    uint64_t hash = 14695981039346656037ULL; /* FNV-1a */
    for (; *key; key++)
        hash = (hash ^ (uint8_t)*key) * 1099511628211ULL;
    return hash ? hash : 1;
}

/* False: it came before. */
static bool key_is_new(struct check *check, const char *key)
{
    uint64_t hash = key_hash(key);
    size_t at = (size_t)hash & (check->key_room - 1);
    for (; check->keys[at]; at = (at + 1) & (check->key_room - 1))
        if (check->keys[at] == hash)
            return false;
    check->keys[at] = hash;
    return true;
}

static int chunk_look_up(struct check *check, struct err *err)
{
    bool known[KNOWN_CHUNK];
    const struct kafka_rule *rule = check->work->rule;
    if (check->chunk_count &&
        store_ingest_known(check->work->store, rule->namespace_, rule->definition,
                           (const char *const *)check->chunk, check->chunk_count, known, err))
        return (int)err->code;
    for (size_t i = 0; i < check->chunk_count; i++) {
        check->result.known += known[i];
        mem_free(check->chunk[i]);
    }
    check->chunk_count = 0;
    return 0;
}

static int record_is_good(struct check *check, struct kafka_verdict *verdict, struct err *err)
{
    check->result.good++;
    if (!key_is_new(check, verdict->saga_id)) {
        check->result.duplicates++;
        return 0;
    }
    check->chunk[check->chunk_count++] = TAKE(verdict->saga_id);
    return check->chunk_count == KNOWN_CHUNK ? chunk_look_up(check, err) : 0;
}

static void record_is_bad(struct check *check, const struct kafka_record *record,
                          const struct kafka_verdict *verdict)
{
    struct fault *fault = &check->faults[verdict->reason];
    if (verdict->reason == KAFKA_REASON_KEY_MISSING ||
        verdict->reason == KAFKA_REASON_HEADER_MISSING)
        check->result.missing_keys++;
    if (fault->count++)
        return;
    fault->partition = record->partition;
    fault->offset = record->offset;
    memcpy(fault->message, verdict->message, sizeof fault->message);
}

static int record_count(struct check *check, const struct kafka_record *record,
                        struct kafka_verdict *verdict, struct err *err)
{
    check->result.records++;
    switch (verdict->outcome) {
    case KAFKA_RECORD_START:
        return record_is_good(check, verdict, err);
    case KAFKA_RECORD_FILTERED:
        check->result.filtered++;
        return 0;
    case KAFKA_RECORD_NOT_CANARY:
        check->result.not_canary++;
        return 0;
    case KAFKA_RECORD_TOMBSTONE_IGNORED:
        check->result.tombstones++;
        return 0;
    case KAFKA_RECORD_DEAD:
        record_is_bad(check, record, verdict);
        return 0;
    case KAFKA_OUTCOME_COUNT:
        break;
    }
    return err_set(err, ERR_INTERNAL, "a record without an outcome");
}

static int message_check(struct check *check, const rd_kafka_message_t *message, struct err *err)
{
    struct kafka_record record;
    struct kafka_verdict verdict = { 0 };
    if (records_record(&check->batch, message, &record, err) ||
        kafka_record_read(check->work->rule, check->work->definition,
                          check->work->ingest->options.payload_bytes_max, &record, &verdict, err))
        return (int)err->code;
    int rc = record_count(check, &record, &verdict, err);
    kafka_verdict_done(&verdict);
    return rc;
}

/* --- all of them
 * ------------------------------------------------------------------------------------ */

/* The partition is read up to there. */
static void span_moves(struct check *check, int32_t partition, int64_t next)
{
    struct span *span = &check->spans[partition];
    if (span->next >= span->end || next <= span->next)
        return;
    span->next = next;
    check->open -= next >= span->end;
}

static int64_t done_so_far(const struct check *check)
{
    int64_t left = 0;
    for (size_t i = 0; i < check->span_count; i++)
        if (check->spans[i].next < check->spans[i].end)
            left += check->spans[i].end - check->spans[i].next;
    return check->total - left;
}

static int event_check(struct check *check, struct consumer_event *event, struct err *err)
{
    int rc = 0;
    switch (event->kind) {
    case CONSUMER_RECORD:
        if (event->offset < check->spans[event->partition].end)
            rc = message_check(check, event->message, err);
        rd_kafka_message_destroy(event->message);
        span_moves(check, event->partition, event->offset + 1);
        return rc;
    case CONSUMER_END:
        span_moves(check, event->partition, event->offset);
        return 0;
    case CONSUMER_OUT_OF_RANGE: /* trimmed meanwhile: those records are not there to be looked at */
        return err_set(err, ERR_UNAVAILABLE,
                       "partition %" PRId32 " was trimmed during the check: ask again",
                       event->partition);
    case CONSUMER_FATAL:
        *err = event->err;
        return (int)err->code;
    case CONSUMER_NOTHING:
    case CONSUMER_ASSIGNED:
    case CONSUMER_REVOKED:
    case CONSUMER_ERROR:
        break;
    }
    return 0;
}

static int read_all(struct check *check, struct err *err)
{
    const struct clock *clock = check->work->ingest->options.clock;
    int64_t heard_at = clock_mono_ms(clock), progress_at = heard_at;
    while (check->open) {
        struct consumer_event event;
        consumer_poll(check->consumer, POLL_MS, &event);
        int64_t now = clock_mono_ms(clock);
        if (work_ends(check->work))
            return err_reason(err, ERR_UNAVAILABLE, "STOPPED", "the server stops");
        if (event.kind == CONSUMER_RECORD || event.kind == CONSUMER_END)
            heard_at = now;
        if (now - heard_at > SILENCE_MAX_MS)
            return err_set(err, ERR_UNAVAILABLE, "no record came for %d s", SILENCE_MAX_MS / 1000);
        if (event_check(check, &event, err))
            return (int)err->code;
        if (now < progress_at)
            continue;
        progress_at = now + PROGRESS_MS;
        if (store_ingest_progress(check->work->store, &check->request->id, done_so_far(check),
                                  check->total, WORK_LEASE_MS, err))
            return (int)err->code;
    }
    return chunk_look_up(check, err);
}

typedef Saga__V1__KafkaCheckResult__Bad bad_text;

static int by_count(const void *a, const void *b)
{
    const bad_text *const *left = a, *const *right = b;
    return ((*left)->count < (*right)->count) - ((*left)->count > (*right)->count);
}

static int check_text(struct check *check, char **ret, struct err *err)
{
    bad_text bads[KAFKA_REASON_COUNT], *pointers[KAFKA_REASON_COUNT];
    size_t count = 0;
    for (int i = 0; i < KAFKA_REASON_COUNT; i++) {
        struct fault *fault = &check->faults[i];
        if (!fault->count)
            continue;
        bad_text *bad = &bads[count];
        saga__v1__kafka_check_result__bad__init(bad);
        bad->reason = (char *)kafka_reason_name((enum kafka_reason)i);
        bad->count = fault->count;
        bad->partition = fault->partition;
        bad->offset = fault->offset;
        bad->message = fault->message;
        pointers[count++] = bad;
    }
    qsort(pointers, count, sizeof(void *), by_count);
    check->result.n_bad = count;
    check->result.bad = pointers;
    return wire_json_encode(&check->result.base, ret, err);
}

int work_check(struct work *work, const struct store_ingest_request *request, char **ret,
               struct err *err)
{
    CLEANUP(mem_free_p) struct check *check = mem_calloc(1, sizeof *check);
    if (!check)
        return err_set(err, ERR_NOMEM, "check: out of memory");
    check->work = work;
    check->request = request;
    saga__v1__kafka_check_result__init(&check->result);
    int rc = work_consumer(work, &check->consumer, err);
    if (rc == 0)
        rc = spans_find(check, err);
    if (rc == 0)
        rc = reading_begin(check, err);
    if (rc == 0)
        rc = read_all(check, err);
    if (rc == 0)
        rc = check_text(check, ret, err);
    check_done(check);
    return rc;
}
