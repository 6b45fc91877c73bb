/* What is known of one partition, and what follows: where reading begins, whether it must stop, and
 * which of the records that come are to be handled. Decides, and does nothing: the cursor in
 * PostgreSQL alone says what has been handled; the group's offset only follows it.
 * Any thread: plain data. */
#ifndef KAFKA_PARTITION_H
#define KAFKA_PARTITION_H

#include "base/err.h"

#include <stdint.h>

enum partition_stop {
    PARTITION_RUNS,
    PARTITION_GAP,             /* records behind the cursor were deleted unread */
    PARTITION_BEYOND_END,      /* the cursor lies behind the end of the log */
    PARTITION_FOREIGN_OFFSET,  /* the group has an offset there that another program wrote */
    PARTITION_TOPIC_RECREATED, /* the record before the cursor is another one than was handled */
    PARTITION_STOP_COUNT
};
/* "GAP", "BEYOND_END", "GROUP_OFFSET_FOREIGN", "TOPIC_RECREATED": as they are stored. */
const char *partition_stop_word(enum partition_stop stop);

enum { PARTITION_UNKNOWN = -1 }; /* of an offset */

/* The last record that was handled: a recreated topic has another one there, or none. */
struct partition_mark {
    bool known;
    int64_t offset, time_ms;
    uint32_t crc; /* of key and value */
};

struct partition_facts {
    int64_t next_offset; /* the cursor: the next record to handle */
    struct partition_mark before;
    int64_t low, end;     /* of the log: its first offset, and the one behind its last */
    int64_t group_offset; /* PARTITION_UNKNOWN: the group has none */
    bool group_is_ours;   /* it carries our mark */
};

struct partition_verdict {
    enum partition_stop stop;
    int64_t from, to; /* GAP: the missing records, both included; else both figures */
    int64_t begin;    /* RUNS: the first offset to read */
    bool verify;      /* RUNS: begin is the record before the cursor, to be compared */
    bool follow;      /* RUNS: the group's offset is to be written before anything is handled */
};
/* Where to begin, or why not. */
void partition_judge(const struct partition_facts *facts, struct partition_verdict *ret);

/* A partition that is being read. */
struct partition_reader {
    int64_t next_offset; /* as in the cursor */
    int64_t taken;       /* behind the last record that was taken; >= next_offset */
    struct partition_mark before;
    bool verify;      /* the record before the cursor has not come yet */
    bool may_compact; /* the topic may lose records in between: a missing one proves nothing */
};

enum partition_take {
    PARTITION_HANDLE,  /* the record is the next one */
    PARTITION_PASS,    /* it was handled before */
    PARTITION_ANOTHER, /* it is not the one that was handled: stop, TOPIC_RECREATED */
};
enum partition_take partition_take(struct partition_reader *reader, int64_t offset, int64_t time_ms,
                                   uint32_t crc);
/* The log ends at `offset`, for now. HANDLE: nothing lies between what was taken and the end but
 * what is no record (marks of transactions): the cursor may be moved there. */
enum partition_take partition_end(struct partition_reader *reader, int64_t offset);

/* One line for people: "records 10..19 were deleted before they were handled". `size` > 0. */
void partition_stop_text(enum partition_stop stop, int64_t from, int64_t to, char *ret,
                         size_t size);

#endif
