/* Shared by the files of the ingest.
 *
 *   ingest.c           the threads, and what a rule's thread does over and over
 *   ingest_look.c      what is wanted of the rule, and whether it may run
 *   ingest_position.c  where the partitions begin: cursors, the log's ends, the group's offsets
 *   ingest_batch.c     records gathered, read, written; what became of them
 *   work.c             what people asked for, in a thread of its own: TAKEOVER here,
 *   work_check.c       CHECK,
 *   work_replay.c      and letters that are replayed
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

struct kafka_ingest {
    struct kafka_ingest_options options;
    int wake_fd; /* readable once the end was asked for */
    atomic_bool ends;
    size_t run_count;
    struct run **runs; /* each allocated by itself: a thread that does not end keeps its own */
};

struct part { /* a partition that the group gave to this node */
    int32_t partition;
    bool stopped;
    int64_t suspect_until; /* as in the cursor */
    struct partition_reader reader;
    int64_t low, end; /* PARTITION_UNKNOWN: not known */
    int64_t log_end; /* an END event's offset: nothing lies between the cursor and it; or unknown */
    int64_t handled; /* since the last `seen` */
    int64_t followed; /* what the group was told last */
};

/* The records that go into one transaction, or wait to do so. */
struct batch {
    size_t limit, count; /* of the arrays; gathered */
    size_t bytes;
    rd_kafka_message_t **messages;
    struct kafka_verdict *verdicts;      /* of the first `read_count` messages */
    struct store_ingest_record *records; /* of those that are written */
    struct store_ingest_part *parts;     /* grows with the partitions */
    size_t part_limit;
    struct kafka_header *headers; /* of the record that is looked at; grows */
    size_t header_limit;
    size_t read_count;
    int32_t read_revision;            /* what the verdicts rest on */
    struct kafka_started_saga *sagas; /* what there is of them, just after the commit */
    struct uuid *uids; /* of sagas that were started and that nobody has been told of */
    size_t uid_count;
    bool uids_unknown; /* some were, and it is not known which */
};

struct run { /* one rule on this node */
    struct kafka_ingest *ingest;
    const struct kafka_rule *rule;
    pthread_t thread;
    bool has_thread;
    bool left_behind;  /* read after the join: its work goes on */
    atomic_bool stuck; /* for readiness */
    struct store_ingest *store;
    struct consumer *consumer; /* NULL: none is needed now */
    bool is_member;

    /* what the database says */
    bool known, wanted;            /* the rule's row is there; it is to run */
    struct definition *definition; /* the revision for new sagas; NULL: not known, or none */
    struct bytes content, descriptors;
    bool definition_stale, is_paused;
    char
        held_why[LIMIT_HANDLER_BYTES + 32]; /* while a handler that it feeds is held; "": none is */
    int64_t allowed; /* so many more max_running lets start; counted at counted_at */
    int64_t counted_at;

    /* what the cluster says */
    bool topic_checked, topic_known; /* the rule may run; how long records are kept is known */
    int64_t topic_retention_ms;
    bool topic_compacted;
    bool fenced;

    /* why the rule cannot run at all; "": it can */
    char topic_problem[NOTE_BYTES], definition_problem[NOTE_BYTES], start_problem[NOTE_BYTES];

    struct part *parts; /* sorted */
    size_t part_count;
    bool assigned; /* the group has given this node its part, which may be none */
    bool must_position, ends_seen;
    bool in_doubt; /* a batch may still be committed, late */
    int64_t position_at;
    struct batch batch;

    /* when something is due, monotonic */
    int64_t look_at, row_at, definition_at, topic_at, probe_at, second_at, hold_until;
    /* since when, monotonic; 0: it is not so */
    int64_t held_since, database_since, stuck_since;
    int64_t heard_at;   /* the last sign of a broker */
    int64_t settled_at; /* the partitions were being read then */
    int64_t told_at;    /* the last failure in the log */
    int back_off_ms;
    char hold_why[NOTE_BYTES];
    bool hold_told;
    struct work *work; /* NULL: nobody asked for anything yet */
    uint64_t work_seed;
};

static inline int64_t run_now(const struct run *run)
{
    return clock_mono_ms(run->ingest->options.clock);
}
static inline bool run_ends(const struct run *run)
{
    return atomic_load(&run->ingest->ends);
}
/* Something failed: it is told (not too often), and nothing more is gathered or written for a
 * while, which doubles each time. */
void run_failed(struct run *run, const char *what, const struct err *err);
struct part *run_find_part(struct run *run, int32_t partition); /* NULL: not this node's */

/* ingest_look.c: each when it is due, with what follows kept in the run */
void look_database(struct run *run, int64_t now);
void look_topic(struct run *run, int64_t now);
/* A sign of the brokers, and where the logs begin by now. */
void look_probe(struct run *run, int64_t now);
const char *look_problem(const struct run *run); /* why it cannot run; NULL: it can */
void look_drop_definition(struct run *run);

/* ingest_position.c */
/* The group's word has changed, or a cursor may be elsewhere: all partitions begin anew. */
void position_again(struct run *run, int64_t delay_ms);
void position_try(struct run *run);
/* Writes the stop, and tells. False: it is not durable, or was not ours to write. */
bool position_stop(struct run *run, struct part *part, enum partition_stop stop, int64_t from,
                   int64_t to);

/* ingest_batch.c */
MUST_USE int records_init(struct batch *batch, size_t limit, struct err *err);
void records_done(struct batch *batch);
void records_drop(struct batch *batch); /* what was gathered; the uids stay */
bool records_is_full(const struct batch *batch);
/* Takes the record in, or drops it (it was handled before, or is nobody's). Consumes `message`. */
void records_gather(struct run *run, rd_kafka_message_t *message);
void records_write(struct run *run);
bool records_tell(struct run *run); /* false: sagas are there that the engine does not take yet */
/* A record as the rule sees it, borrowed from the message and from the room for headers. */
MUST_USE int records_record(struct batch *batch, const rd_kafka_message_t *message,
                            struct kafka_record *ret, struct err *err);

/* work.c */
enum { WORK_LEASE_MS = 30000 };
struct work {
    const struct kafka_ingest *ingest;
    const struct kafka_rule *rule;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_busy;
    struct store_ingest *store;
    struct definition *definition; /* NULL: there is none */
};
/* Somebody asked for something: done in a thread of its own, if none is at it. thread: the rule's
 */
void work_begin(struct run *run);
/* Waits, at most so long. False: it did not end; what it touches stays. thread: the rule's */
bool work_end(struct run *run, int64_t timeout_ms);

static inline bool work_ends(const struct work *work)
{
    return atomic_load(&work->ingest->ends);
}
/* A consumer that is no member of any group. */
MUST_USE int work_consumer(const struct work *work, struct consumer **ret, struct err *err);
/* All partitions of the topic, with an offset each (admin_offsets). Owned. */
MUST_USE int work_positions(const struct work *work, struct consumer *consumer, int64_t time_ms,
                            struct consumer_position **ret, size_t *ret_count, struct err *err);

/* work_check.c: *ret is the result (JSON, owned) */
MUST_USE int work_check(struct work *work, const struct store_ingest_request *request, char **ret,
                        struct err *err);
/* work_replay.c: all that are to be replayed */
MUST_USE int work_replay(struct work *work, struct err *err);

#endif
