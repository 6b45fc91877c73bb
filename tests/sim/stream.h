/* A worker's stream to one node. What is said stays in order; it may be late; when the stream is
 * cut what was on its way is lost, and each end hears of it in its own time.
 *
 * Of a worker that polls it is what it asks and is answered one after the other: with the first
 * tasks, or after a while, the answer is closed (PAUSE), and the next question is ROOM; of a task
 * that the worker does not name in time the node says that it is UNCONFIRMED, whatever has become
 * of it. */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include "engine/engine.h"
#include "sim/timer.h"

struct world;
struct node;
struct worker;
struct said;
struct report_note;
struct unheard;

enum word_kind { WORD_WELCOME, WORD_TASK, WORD_ACK, WORD_EXTENDED, WORD_HINT, WORD_END };

struct word { /* from the node to the worker */
    struct word *next;
    int64_t at_ms;
    enum word_kind kind;
    struct uuid uid;
    int64_t fence;
    enum engine_ack ack;
    int64_t lease_ms, attempt_ms; /* TASK, EXTENDED */
    const char *definition, *saga_id, *handler, *key;
    size_t step;
    enum operation operation, about; /* about: of a probe what it asks, else the same */
    int try_;
    int64_t sent_at_ms;
};

struct stream {
    struct worker_link link; /* the engine's view */
    struct world *world;
    struct node *node;
    struct worker *worker;
    const char *worker_name;    /* of the process that opened it */
    struct stream *prev, *next; /* of the node */
    bool node_open;             /* the engine may be told things, and its words are sent */
    bool greeted, gone_posted;
    bool worker_open; /* the worker uses it */
    bool cut;         /* nothing gets through any more */
    bool blocked;
    bool polls;
    enum { ANSWER_OPEN, ANSWER_CLOSES, ANSWER_GIVEN } answer; /* of a worker that polls */
    int64_t closes_at_ms;
    struct unheard *unheard; /* tasks that it has not named yet, the oldest first */
    struct word *words, **words_last;
    struct said *said, **said_last;
    struct report_note *notes; /* reports that the engine has and has not answered */
    struct timer to_worker, to_node, worker_hears, node_hears, room, ask, confirm;
    int64_t said_at_ms;                 /* the worker's last word */
    uint64_t received[16], granted[16]; /* of tasks, by the worker's handler */
};

/* What a worker says: memory from mem_*, sent consumes it. */
struct said {
    struct said *next;
    int64_t at_ms;
    bool end; /* the stream's end instead of a message */
    struct stream_event *event;
};

struct stream *stream_open(struct worker *worker, struct node *node);
/* One message of the worker; arrays and strings are copied. */
void stream_say(struct stream *stream, const struct engine_worker_event *event);
/* The worker has closed it: what was said before still arrives. */
void stream_end(struct stream *stream);
/* The connection is cut in the middle. */
void stream_cut(struct stream *stream);
/* The same; the ends hear of it after so long. */
void stream_cut_unheard(struct stream *stream, int64_t worker_ms, int64_t node_ms);
/* An end has been silent for too long: the other one closes it at that time. */
void stream_node_ends_at(struct stream *stream, int64_t at_ms);
void stream_worker_ends_at(struct stream *stream, int64_t at_ms);
/* The node of all these streams is dead. */
void streams_lose_node(struct node *node);

#endif
