#include "base/mailbox.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int mailbox_init(struct mailbox *mailbox, size_t limit, struct err *err)
{
    memset(mailbox, 0, sizeof *mailbox);
    mailbox->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (mailbox->fd < 0)
        return err_set(err, ERR_INTERNAL, "eventfd: %s", strerror(errno));
    pthread_mutex_init(&mailbox->lock, NULL);
    mailbox->last = &mailbox->first;
    mailbox->limit = limit;
    return 0;
}

void mailbox_done(struct mailbox *mailbox)
{
    pthread_mutex_destroy(&mailbox->lock);
    (void)close(mailbox->fd); /* nothing was buffered in it */
}

static bool put(struct mailbox *mailbox, struct mailbox_node *node, bool always)
{
    pthread_mutex_lock(&mailbox->lock);
    bool fits = !mailbox->closed && (always || mailbox->count < mailbox->limit);
    bool was_empty = mailbox->count == 0;
    if (fits) {
        node->next = NULL;
        *mailbox->last = node;
        mailbox->last = &node->next;
        mailbox->count++;
    }
    pthread_mutex_unlock(&mailbox->lock);
    if (fits && was_empty)
        (void)eventfd_write(mailbox->fd, 1); /* fails only on overflow, which is readable too */
    return fits;
}

bool mailbox_put(struct mailbox *mailbox, struct mailbox_node *node)
{
    return put(mailbox, node, false);
}

bool mailbox_put_always(struct mailbox *mailbox, struct mailbox_node *node)
{
    return put(mailbox, node, true);
}

struct mailbox_node *mailbox_take_all(struct mailbox *mailbox)
{
    eventfd_t ignored;
    (void)eventfd_read(mailbox->fd, &ignored); /* EAGAIN: nothing was signalled */
    pthread_mutex_lock(&mailbox->lock);
    struct mailbox_node *first = mailbox->first;
    mailbox->first = NULL;
    mailbox->last = &mailbox->first;
    mailbox->count = 0;
    pthread_mutex_unlock(&mailbox->lock);
    return first;
}

void mailbox_close(struct mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    mailbox->closed = true;
    pthread_mutex_unlock(&mailbox->lock);
}
