/* A bounded queue from many threads to one, with an eventfd that is readable while it may hold
 * something. Nodes live in the caller's messages. thread: put from any, the rest by the owner. */
#ifndef BASE_MAILBOX_H
#define BASE_MAILBOX_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct mailbox_node {
    struct mailbox_node *next;
};

struct mailbox {
    pthread_mutex_t lock;
    struct mailbox_node *first, **last;
    size_t count, limit;
    int fd; /* eventfd */
    bool closed;
};

MUST_USE int mailbox_init(struct mailbox *mailbox, size_t limit, struct err *err);
void mailbox_done(struct mailbox *mailbox);
/* False when it is full or closed: the caller keeps the message and answers RESOURCE_EXHAUSTED or
 * UNAVAILABLE. */
MUST_USE bool mailbox_put(struct mailbox *mailbox, struct mailbox_node *node);
/* As mailbox_put, but past the limit: for messages that must not be lost (a stream ended, a
 * report). Their number is bounded by what was admitted before. False only when closed. */
MUST_USE bool mailbox_put_always(struct mailbox *mailbox, struct mailbox_node *node);
/* Takes everything, oldest first, and clears the eventfd. NULL when empty. */
struct mailbox_node *mailbox_take_all(struct mailbox *mailbox);
/* From now on puts are refused. */
void mailbox_close(struct mailbox *mailbox);

#endif
