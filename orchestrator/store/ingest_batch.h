/* A batch of records, or dead letters that are replayed, as one transaction:
 *
 *   1  the revision is held; cursors move by equality, or the letters are locked (ingest_guard.c)
 *   2  keys and sagas of what moved; where a key was known: of whom (ingest_sagas.c)
 *   3  dead letters (ingest_letters.c)
 *   4  counters, or what became of the letters; COMMIT
 *
 * Each of them is one exchange or two. Not for others. */
#ifndef STORE_INGEST_BATCH_H
#define STORE_INGEST_BATCH_H

#include "store/ingest_internal.h"

struct part {
    struct store_ingest_part *given;
    int64_t suspect_until;
    int64_t records, started, duplicates, mismatches, dead_letters;
};

struct item {
    struct store_ingest_record *record;
    struct part *part; /* NULL: a replay */
    bool allowed;      /* its partition has moved; its letter is ours */
    bool suspect;
    bool known; /* START: its key was there */
    bool is_letter, inserted;
    const char *reason, *message; /* of the letter; borrowed */
    char *refused;                /* what the database said; owned */
    struct uuid letter_id;
    uint8_t shard;
    uint8_t digest[32];
};

struct run {
    struct store_ingest *ingest;
    struct store_ingest_batch *batch;
    const struct store_ingest_letter *letters; /* NULL: a batch */
    struct part *parts;                        /* by partition */
    struct item *items;                        /* as the records */
    struct item **starts;                      /* by key */
    struct item **picked;                      /* those of one statement */
    size_t start_count;
    bool careful;   /* looks for the row that the database refuses */
    bool row_fault; /* there is one */
};

/* The part of this partition; NULL: none. */
struct part *run_part(const struct run *run, int32_t partition);
int run_compare_parts(const void *a, const void *b);

/* 1. What may be done is `allowed`; *ret_any: anything. */
MUST_USE int run_guard(struct run *run, bool *ret_any, struct err *err);
/* 2. STARTED, or `known`. */
MUST_USE int run_sagas(struct run *run, struct err *err);
/* DUPLICATE or MISMATCH of what is known. */
MUST_USE int run_known(struct run *run, struct err *err);
/* 3. Those that are letters. */
MUST_USE int run_letters(struct run *run, struct err *err);
/* 4 of a replay; sent, not answered. */
MUST_USE int run_send_replayed(struct run *run, struct err *err);

#endif
