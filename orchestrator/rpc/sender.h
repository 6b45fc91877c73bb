/* The sending half of one stream: a queue with a count of its bytes, one send pending at a time.
 * Whoever finds none pending starts one. The status of the stream goes out behind the last message.
 * Bounding the queue is the owner's: he asks sender_bytes before he makes more. Any thread. */
#ifndef RPC_SENDER_H
#define RPC_SENDER_H

#include "rpc/call.h"

#include <pthread.h>

struct send_item {
    struct send_item *next;
    grpc_slice slice;
    size_t size;
};

struct sender {
    struct call *call;
    atomic_llong *total; /* bytes of all senders of the server */
    pthread_mutex_t lock;
    struct send_item *first, **last;
    size_t bytes; /* in the queue and on the way */
    size_t sending_bytes;
    grpc_byte_buffer *sending;
    bool busy, greeted, ending, status_sent, closed;
    int64_t put_ms, busy_since_ms; /* monotonic */
    struct rpc_tag tag;
    void (*on_sent)(struct sender *sender); /* room may be there again; the pump's thread */
};

void sender_init(struct sender *sender, struct call *call, void (*on_sent)(struct sender *sender));
void sender_done(struct sender *sender);

/* Messages on their way into the queue: all of them, or none. */
struct send_list {
    struct send_item *first, **last;
    bool failed; /* memory is out */
};
void send_list_init(struct send_list *list);
void send_list_done(struct send_list *list);
/* Packs it. */
void send_list_add(struct send_list *list, const ProtobufCMessage *message);
/* Answers a unary call with what was packed, each a part of the one reply: fields that repeat are
 * put together. Empties the list; takes over the call's reference. False: see call_reply_slices. */
bool send_list_reply(struct send_list *list, struct call *call);
/* Takes over the list in any case. False: the stream has ended, or the list had failed; nothing of
 * it was or will be sent. */
bool sender_put(struct sender *sender, struct send_list *list);
/* Ends the stream behind what is queued; err NULL: OK. Only the first one counts. */
void sender_end(struct sender *sender, const struct err *err);
/* Drops what is queued; nothing is started on the call from now on. */
void sender_close(struct sender *sender);

size_t sender_bytes(struct sender *sender);
bool sender_is_open(struct sender *sender);
/* Since when nothing was put, and how long the pending send takes (0: none is pending). */
void sender_times(struct sender *sender, int64_t now_ms, int64_t *ret_idle_ms,
                  int64_t *ret_busy_ms);

#endif
