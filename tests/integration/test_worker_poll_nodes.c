/* Goal: what pollers were given stays theirs, and is done once, over the death of the server that
 * they asked. Method: two sagads on one database, pollers by hand that go to the other one. */
#include "support/nodes.h"
#include "support/poller.h"

enum { SOON = 15000, SAGAS = 40 };
#define ACCEPTED  SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define DUPLICATE SAGA__V1__ACK__RESULT__RESULT_DUPLICATE
#define DONE      SAGA__V1__OUTCOME__OUTCOME_DONE

static struct nodes nodes;
static struct rig *const one = &nodes.at[0], *const two = &nodes.at[1];

static int setup(void **state)
{
    (void)state;
    return nodes_up(&nodes, 2, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return nodes_down(&nodes);
}

static int check(void **state)
{
    (void)state;
    return nodes_check(&nodes);
}

static void test_p2_p3_what_a_poller_says_counts_at_any_node(void **state)
{
    (void)state;
    rig_define(one, "any", NULL, "a: ONCE handler=any lease=60s | none");
    struct poller *here = poller_new(one->address, "any", "any-instance", "any");
    struct poller *there = poller_new(two->address, "any", "any-instance", "any");
    rig_start(one, "any", "any", "");
    struct raw_lease lease = raw_lease_of(poller_task(here, SOON));
    assert_true(poller_extend(there, &lease, NULL) > 50000);
    assert_int_equal(poller_report(there, &lease, DONE, "x"), ACCEPTED);
    assert_int_equal(poller_report(here, &lease, DONE, "x"), DUPLICATE);
    rig_await_state(two, "any", "any", "SUCCEEDED", SOON);
    rig_assert_journal(two, "any", "any", "a.1 DONE");
    here = poller_free(here);
    there = poller_free(there);
}

static void test_p2_p8_pollers_go_on_at_another_node_when_theirs_is_killed(void **state)
{
    (void)state;
    rig_define(one, "go", NULL, "a: ONCE handler=go lease=60s | none");
    struct poller *first = poller_new(one->address, "go", "go-instance", "go");
    rig_start_many(one, "go", "go-", SAGAS, "");
    size_t held = 0;
    while (held < SAGAS / 2)
        held += poller_lease(first, SAGAS / 2, SOON)->n_tasks;
    rig_server_kill(one);
    struct poller *second = poller_move(first, two->address);
    size_t got = 0;
    while (held + got < SAGAS) /* those of the dead node are adopted, what is held is left alone */
        got += poller_lease(second, SAGAS, NODES_TAKEN_MS + SOON)->n_tasks;
    poller_report_all(second);
    rig_await_states(two, "go", "go-", "SUCCEEDED", SAGAS, SOON);
    assert_int_equal(rig_count(two, RIG_STORE,
                               "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
                               " WHERE s.definition = 'go'"),
                     SAGAS); /* one attempt each */
    second = poller_free(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_p2_p3_what_a_poller_says_counts_at_any_node, check),
        cmocka_unit_test_teardown(test_p2_p8_pollers_go_on_at_another_node_when_theirs_is_killed,
                                  check),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
