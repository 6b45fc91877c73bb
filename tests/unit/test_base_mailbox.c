/* Goal: many threads put, one takes; nothing is lost, doubled or reordered within a sender; the
 * bound holds; the descriptor is readable while something waits. Method: small scenes, then four
 * threads against one taker (also run under the thread sanitizer). */
#include "base/mailbox.h"

#include "support/check.h"

#include <poll.h>

enum { SENDERS = 4, MESSAGES = 5000 };

struct message {
    struct mailbox_node node;
    int sender, number;
};

static bool is_readable(const struct mailbox *mailbox)
{
    struct pollfd poll_fd = { .fd = mailbox->fd, .events = POLLIN };
    return poll(&poll_fd, 1, 0) == 1;
}

static void test_bound_order_and_descriptor(void **state)
{
    (void)state;
    struct mailbox mailbox;
    struct err err;
    struct message messages[5] = { 0 };
    ASSERT_OK(mailbox_init(&mailbox, 2, &err), &err);
    assert_false(is_readable(&mailbox));
    assert_null(mailbox_take_all(&mailbox));
    assert_true(mailbox_put(&mailbox, &messages[0].node));
    assert_true(is_readable(&mailbox));
    assert_true(mailbox_put(&mailbox, &messages[1].node));
    assert_false(mailbox_put(&mailbox, &messages[2].node)); /* full: the caller keeps it */
    assert_true(mailbox_put_always(&mailbox, &messages[3].node));
    struct mailbox_node *first = mailbox_take_all(&mailbox);
    assert_ptr_equal(first, &messages[0].node);
    assert_ptr_equal(first->next, &messages[1].node);
    assert_ptr_equal(first->next->next, &messages[3].node);
    assert_null(first->next->next->next);
    assert_false(is_readable(&mailbox));
    assert_true(mailbox_put(&mailbox, &messages[2].node)); /* room again */
    mailbox_close(&mailbox);
    assert_false(mailbox_put(&mailbox, &messages[4].node));
    assert_false(mailbox_put_always(&mailbox, &messages[4].node));
    assert_ptr_equal(mailbox_take_all(&mailbox), &messages[2].node); /* what was in comes out */
    mailbox_done(&mailbox);
}

struct sender {
    struct mailbox *mailbox;
    struct message *messages;
};

static void *send_all(void *arg)
{
    struct sender *sender = arg;
    for (int i = 0; i < MESSAGES; i++)
        while (!mailbox_put(sender->mailbox, &sender->messages[i].node))
            (void)poll(NULL, 0, 1); /* full: wait a little */
    return NULL;
}

static void test_many_senders(void **state)
{
    (void)state;
    static struct message messages[SENDERS][MESSAGES];
    struct mailbox mailbox;
    struct err err;
    ASSERT_OK(mailbox_init(&mailbox, 64, &err), &err);
    pthread_t threads[SENDERS];
    struct sender senders[SENDERS];
    for (int i = 0; i < SENDERS; i++) {
        for (int number = 0; number < MESSAGES; number++)
            messages[i][number] = (struct message){ .sender = i, .number = number };
        senders[i] = (struct sender){ &mailbox, messages[i] };
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
    }
    int next[SENDERS] = { 0 };
    for (int taken = 0; taken < SENDERS * MESSAGES;) {
        struct pollfd poll_fd = { .fd = mailbox.fd, .events = POLLIN };
        assert_int_equal(poll(&poll_fd, 1, 10000), 1); /* a lost wake-up would stop here */
        for (struct mailbox_node *node = mailbox_take_all(&mailbox), *after; node; node = after) {
            after = node->next;
            struct message *message = CONTAINER(node, struct message, node);
            assert_int_equal(message->number, next[message->sender]++);
            taken++;
        }
    }
    for (int i = 0; i < SENDERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_null(mailbox_take_all(&mailbox));
    mailbox_done(&mailbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound_order_and_descriptor),
        cmocka_unit_test(test_many_senders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
