/* Shared by the files of the ingest.
 *
 *   ingest.c           the threads, and what a rule's thread does over and over
 *   ingest_position.c  where the partitions begin: cursors, the log's ends, the group's offsets
 *   ingest_batch.c     records gathered, read, written; what became of them
 *   work.c             CHECK, TAKEOVER and letters that are replayed, in a thread of their own
 */
#ifndef KAFKA_INGEST_INTERNAL_H
#define KAFKA_INGEST_INTERNAL_H

#include "kafka/consumer.h"
#include "kafka/ingest.h"
#include "kafka/partition.h"
#include "kafka/record.h"
#include "store/ingest.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    CLUSTER_CALL_MS = 2000, /* a question to the cluster */
    POLL_MS = 100,          /* how long a rule's thread waits for a record */
    BATCH_BYTES_MAX = 8 * 1024 * 1024,
    BACK_OFF_MIN_MS = 100,
    BACK_OFF_MAX_MS = 5000,
    NOTE_BYTES = 320,
    REPLAY_LETTERS_MAX = 500,
};

struct ingest {
    struct ingest_options options;
    int wake_fd; /* readable once the end was asked for */
    atomic_bool ends;
    size_t run_count;
    struct run **runs; /* each allocated by itself: a thread that does not end keeps its own */
};

struct part { /* a partition that the group gave to this node */
    int32_t partition;
    bool stopped;
    struct partition_reader reader;
    int64_t low, end; /* PARTITION_UNKNOWN: not known */
    int64_t log_end;  /* an END event's offset: nothing lies between the cursor and it; or unknown */
    int64_t handled;  /* records since `seen_at` of the run */
};

/* The records that go into one transaction, or wait to do so. */
struct batch {
    size_t limit, count; /* of the arrays; gathered */
    size_t bytes;
    rd_kafka_message_t **messages;
    struct kafka_verdict *verdicts;       /* of the first `read_count` messages */
    struct store_ingest_record *records;  /* of those that are written */
    size_t *record_of;                    /* message -> record; SIZE_MAX: it is passed over */
    struct store_ingest_part *parts;
    size_t part_limit;
    struct uuid *uids; /* of sagas that were started and that nobody has been told of */
    size_t uid_count;
    bool uids_unknown; /* some were, and it is not known which */
};

/* Who waits for what, since when; text in run->note. One of them at a time. */
enum trouble { TROUBLE_NONE, TROUBLE_DATABASE, TROUBLE_BROKER, TROUBLE_PROBLEM, TROUBLE_FENCED };

struct run { /* one rule on this node */
    struct ingest *ingest;
    const struct kafka_rule *rule;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_over; /* the thread does nothing more */
    atomic_bool stuck;   /* for readiness */
    struct store_ingest *store;
    struct consumer *consumer; /* NULL: none is needed now */
    bool is_member;

    /* what the database and the cluster say */
    bool known, wanted; /* the rule's row is there; it is to run */
    bool topic_known, topic_checked;
    int64_t topic_retention_ms;
    bool topic_compacted;
    char topic_problem[NOTE_BYTES], definition_problem[NOTE_BYTES], start_problem[NOTE_BYTES];
    bool fenced;
    struct definition *definition; /* the revision for new sagas; NULL: not known, or none */
    struct bytes content, descriptors;
    bool definition_stale;
    int64_t allowed; /* how many more max_running lets start; counted at counted_at */
    int64_t counted_at;

    struct part *parts; /* sorted */
    size_t part_count;
    bool must_position;
    int64_t position_at;
    struct batch batch;

    /* monotonic times */
    int64_t look_at, row_at, definition_at, topic_at, probe_at, tell_at, hold_until;
    int64_t held_since; /* 0: it is not held */
    int64_t database_since, heard_at; /* down since (0: it is up); last sign of a broker */
    int64_t seen_at, logged_at;
    int back_off_ms;
    char hold_why[NOTE_BYTES]; /* "" unless it is held */
    struct work *work;         /* NULL: none was ever needed */
};

static inline int64_t run_now(const struct run *run)
{
    return clock_mono_ms(run->ingest->options.clock);
}
static inline bool run_ends(const struct run *run)
{
    return atomic_load(&run->ingest->ends);
}
/* Nothing more is gathered or written for a while, which doubles each time. */
void run_back_off(struct run *run, const char *why);
/* A call to the database failed: what follows from it. */
void run_database_failed(struct run *run, const char *what, const struct err *err);
void run_database_is_there(struct run *run);
struct part *run_part(struct run *run, int32_t partition); /* NULL: not this node's */

/* ingest_position.c */
/* The group's word has changed, or a cursor may be elsewhere: all partitions begin anew. */
void position_again(struct run *run, int64_t delay_ms);
void position_try(struct run *run);
/* Writes the stop, and tells. */
void position_stop(struct run *run, struct part *part, enum partition_stop stop, int64_t from,
                   int64_t to);

/* ingest_batch.c */
MUST_USE int batch_init(struct batch *batch, size_t limit, struct err *err);
void batch_done(struct batch *batch);
void batch_drop(struct batch *batch); /* what was gathered; the uids stay */
bool batch_is_full(const struct batch *batch);
/* Takes the record in, or drops it (it was handled before, or is nobody's). Consumes `message`. */
void batch_gather(struct run *run, rd_kafka_message_t *message);
void batch_write(struct run *run);
bool batch_tell(struct run *run); /* false: sagas are there that the engine does not take yet */
/* A record as the rule sees it; headers: room for `limit`. Borrowed from the message. */
void record_of_message(const rd_kafka_message_t *message, struct kafka_header *headers,
                       size_t limit, struct kafka_record *ret);

/* work.c */
/* Somebody asked for something: done in a thread of its own. */
void work_begin(struct run *run);
void work_end(struct run *run, int64_t timeout_ms);

#endif
