/* A worker with a stream to each of several nodes, at random. Goal: whatever happens to the
 * streams, a task that a server may take for never started is never started, each Hello lists all
 * that was, no handler runs more often than it may, and in the end everything was acknowledged or
 * given back and every slot is on offer again. Method: a long walk against a model of what the
 * servers know. */
#include "support/check.h"

#include "session_world.h"
#include "support/proof.h"

#include <inttypes.h>
#include <string.h>

enum { FENCES_MAX = 4096, STEPS = 20000, STEPS_FULL = 400000, RUNNING_MAX = 16 };

struct fence { /* what became of a task, as the servers and the handlers see it */
    int node;  /* that sent it */
    bool started, reported, acked;
    bool given_up; /* released, or missing in a Hello to its node: never to be started */
};

struct node {
    struct session *session;
    uint64_t total[2], sent[2];
};

static struct walk {
    struct rng rng;
    struct pool *pool;
    struct node nodes[STREAMS];
    struct fence fences[FENCES_MAX]; /* by fence, from 1; a walk ends when they are used up */
    int64_t fence_count, acked, released, restarts, beyond;
    struct saga_task *running[RUNNING_MAX];
    size_t running_count;
} walk;

static int64_t fence_of(int64_t fence)
{
    assert_in_range(fence, 1, walk.fence_count);
    return fence;
}

static void heard_hello(int node, const Saga__V1__Hello *hello)
{
    static bool listed[FENCES_MAX];
    memset(listed, 0, sizeof listed);
    for (size_t i = 0; i < hello->n_held; i++)
        listed[fence_of(hello->held[i]->fence)] = true;
    for (int64_t i = 1; i <= walk.fence_count; i++) {
        struct fence *fence = &walk.fences[i];
        if (listed[i])
            assert_false(fence->given_up || fence->acked);
        else if (fence->started)
            assert_true(fence->acked);
        else if (fence->node == node)
            fence->given_up = true;
    }
}

static void heard_release(const Saga__V1__Release *release)
{
    for (size_t i = 0; i < release->n_leases; i++) {
        struct fence *fence = &walk.fences[fence_of(release->leases[i]->fence)];
        assert_false(fence->started);
        fence->given_up = true;
        walk.released++;
    }
}

static void heard_report(const Saga__V1__Report *report)
{
    for (size_t i = 0; i < report->n_reports; i++) {
        struct fence *fence = &walk.fences[fence_of(report->reports[i]->fence)];
        assert_true(fence->started && !fence->acked);
        fence->reported = true;
    }
}

static void heard_credit(struct node *node, const Saga__V1__Credit *credit)
{
    for (size_t i = 0; i < credit->n_handlers; i++) {
        int handler = strcmp(credit->handlers[i]->handler, ledger_name) == 0;
        assert_true(credit->handlers[i]->total >= node->total[handler]);
        node->total[handler] = credit->handlers[i]->total;
    }
}

static void pump(int at)
{
    struct node *node = &walk.nodes[at];
    Saga__V1__WorkerMessage *message;
    while ((message = next(node->session)) != NULL) {
        switch (message->command_case) {
        case SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO:
            heard_hello(at, message->hello);
            break;
        case SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE:
            heard_release(message->release);
            break;
        case SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT:
            heard_report(message->report);
            break;
        case SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT:
            heard_credit(node, message->credit);
            break;
        default:
            break;
        }
        drop(message);
    }
}

static void send_task(int at)
{
    struct node *node = &walk.nodes[at];
    bool ledger = rng_below(&walk.rng, 3) == 0;
    if (node->sent[ledger] == node->total[ledger] || walk.fence_count + 1 == FENCES_MAX)
        return;
    node->sent[ledger]++;
    walk.fences[++walk.fence_count] = (struct fence){ .node = at };
    deliver(node->session, ledger ? ledger_name : debit_name, walk.fence_count);
}

static void start_task(void)
{
    struct saga_task *task = walk.running_count < RUNNING_MAX ? pool_take(walk.pool, now) : NULL;
    if (!task)
        return;
    struct fence *fence = &walk.fences[fence_of(saga_task_fence(task))];
    assert_false(fence->given_up || fence->started);
    fence->started = true;
    walk.running[walk.running_count++] = task;
    int of[2] = { 0, 0 };
    for (size_t i = 0; i < walk.running_count; i++)
        of[strcmp(saga_task_handler(walk.running[i]), ledger_name) == 0]++;
    assert_true(of[0] <= 3 && of[1] <= 2);
}

static void end_task(void)
{
    if (walk.running_count == 0)
        return;
    size_t at = rng_below(&walk.rng, walk.running_count);
    finish(walk.nodes[0].session, walk.running[at]);
    walk.running[at] = walk.running[--walk.running_count];
}

static void ack_some(int at)
{
    if (walk.nodes[at].session->phase != SESSION_ONLINE)
        return;
    for (int64_t i = 1; i <= walk.fence_count; i++) {
        struct fence *fence = &walk.fences[i];
        if (!fence->reported || fence->acked || rng_below(&walk.rng, 2))
            continue;
        fence->acked = true;
        walk.acked++;
        ack(walk.nodes[at].session, i, ACCEPTED);
    }
}

static void turn_stream(int at)
{
    struct node *node = &walk.nodes[at];
    if (node->session->phase == SESSION_OFFLINE) {
        session_opened(node->session, now);
        memset(node->total, 0, sizeof node->total);
        memset(node->sent, 0, sizeof node->sent);
        pump(at);
    } else if (node->session->phase == SESSION_OPENING) {
        welcome(node->session);
    } else if (rng_below(&walk.rng, 4) == 0) {
        session_lost(node->session, now);
        walk.restarts++;
    }
}

static void walk_step(void)
{
    int at = (int)rng_below(&walk.rng, STREAMS);
    switch (rng_below(&walk.rng, 8)) {
    case 0:
        turn_stream(at);
        break;
    case 1:
        now += (int64_t)rng_below(&walk.rng, 300);
        break;
    case 2:
        ack_some(at);
        break;
    case 3:
    case 4:
        if (walk.nodes[at].session->phase == SESSION_ONLINE)
            send_task(at);
        break;
    case 5:
        start_task();
        break;
    case 6:
        end_task();
        break;
    default:
        pump(at);
        break;
    }
    for (size_t i = 0; i < walk.pool->handler_count; i++)
        walk.beyond += walk.pool->handlers[i].in_use > 3;
}

/* All nodes are there and answer: everything comes to its end. */
static void walk_settle(void)
{
    for (int round = 0; round < 20; round++) {
        for (int at = 0; at < STREAMS; at++) {
            while (walk.nodes[at].session->phase != SESSION_ONLINE)
                turn_stream(at);
            pump(at);
            ack_some(at);
        }
        start_task();
        while (walk.running_count > 0)
            end_task();
        now += POOL_SURPLUS_MS;
    }
    for (int64_t i = 1; i <= walk.fence_count; i++)
        assert_true(walk.fences[i].started ? walk.fences[i].acked : walk.fences[i].given_up);
    assert_int_equal(walk.pool->started, 0);
    for (size_t i = 0; i < walk.pool->handler_count; i++)
        assert_int_equal(walk.pool->handlers[i].in_use + walk.pool->handlers[i].running, 0);
    for (int at = 0; at < STREAMS; at++) { /* and every slot is on offer everywhere */
        pump(at);
        now += POOL_SPARE_MS;
        pump(at);
        assert_true(walk.nodes[at].total[0] - walk.nodes[at].sent[0] >= 3);
        assert_true(walk.nodes[at].total[1] - walk.nodes[at].sent[1] >= 2);
    }
}

static void test_a_random_walk(void **state)
{
    struct session *s[STREAMS];
    open_world(*state, s, STREAMS);
    rng_seed(&walk.rng, proof_seed());
    walk.pool = s[0]->pool;
    for (int i = 0; i < STREAMS; i++)
        walk.nodes[i].session = s[i];
    int64_t acked = 0, released = 0;
    for (int i = 0; i < (test_is_full_size() ? STEPS_FULL : STEPS); i++) {
        walk_step();
        if (walk.fence_count + 1 < FENCES_MAX)
            continue;
        walk_settle();
        acked += walk.acked;
        released += walk.released;
        walk.fence_count = walk.acked = walk.released = 0;
    }
    walk_settle();
    print_message("%" PRId64 " acked, %" PRId64 " given back, %" PRId64 " streams lost, %" PRId64
                  " times beyond the slots\n",
                  acked + walk.acked, released + walk.released, walk.restarts, walk.beyond);
    assert_true(acked + walk.acked > 100 && released + walk.released > 20);
    assert_true(walk.restarts > 100 && walk.beyond > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_random_walk, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
