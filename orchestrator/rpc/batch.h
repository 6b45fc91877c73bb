/* OperatorService.RunBatch: one verb on many sagas. Each batch has a thread with a connection of
 * its own, so that neither the reader nor the engine waits for it: it reads a page, posts the
 * page's verbs as the calls on single sagas do, with a rate and few at a time, waits for all of
 * them, tells what they came to, and reads the next page.
 *
 *   service_batch.c  the request and the stream: pumps
 *   batch.c          the thread
 *
 * A run is as old as its call; in the server's list until that is closed. The thread and each verb
 * that is with the engine hold the call. What the engine tells is under the run's lock; what the
 * request said does not change once the thread runs. */
#ifndef RPC_BATCH_H
#define RPC_BATCH_H

#include "rpc/request.h"
#include "rpc/sender.h"

enum {
    BATCH_PAGE = 100,
    BATCH_RECENT_MAX = 200, /* sagas that say whether the batch goes wrong */
    BATCH_REASON_SIZE = LIMIT_REASON_BYTES + 1,
};

struct batch_item {
    struct engine_verb verb;
    struct batch_run *run;
    struct store_saga saga;
    bool done; /* under the lock */
};

struct batch_run {
    struct sender sender;
    struct call *call;
    struct batch_run *prev, *next;
    bool is_listed; /* its pump's thread sets it */
    bool has_asked;
    int64_t begun_ms;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over;     /* under the lock: its client has gone, or the server stops */
    size_t in_flight; /* under the lock */
    /* since the request */
    bool validate_only;
    double rate;
    int32_t stop_percent;
    struct verb_request verb;
    char reason[BATCH_REASON_SIZE];
    char id[UUID_TEXT_SIZE];
    struct store_list list;
    /* the thread's */
    struct store_reader *reader;
    struct batch_item items[BATCH_PAGE];
    size_t item_count, posted, told;
    int64_t next_ms, told_ms; /* monotonic: the next verb; the last message */
    double pace_rest;         /* milliseconds below one that are still to be added */
    int64_t matched, accepted, refused;
    struct {
        struct uuid uid;
        bool refused;
    } recent[BATCH_RECENT_MAX];
    size_t recent_count; /* all so far; around in a ring */
};

void *batch_thread(void *run);
void batch_items_drop(struct batch_run *run);

#endif
