/* Goal: a saga is watched at any node, whoever drives it, and over the death of either. Method: two
 * nodes; the worker is at the one, the watcher at the other. */
#include "support/nodes.h"
#include "support/raw_stream.h"

#include <stdio.h>

enum { SOON = 15000, TOKEN_SIZE = 257 };

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

static struct raw_stream *watch(const struct rig *rig, const char *saga_id, const char *token)
{
    struct raw_stream *stream = NULL;
    struct err err;
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__WatchSagaRequest request = SAGA__V1__WATCH_SAGA_REQUEST__INIT;
    uint8_t packed[512];
    ref.definition = rig_borrow("watched");
    ref.saga_id = rig_borrow(saga_id);
    request.saga = &ref;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    request.resume_token = rig_borrow(token);
    size_t size = saga__v1__watch_saga_request__pack(&request, packed);
    ASSERT_OK(raw_stream_open(rig->address, "/saga.v1.SagaService/WatchSaga", 60000, &stream, &err),
              &err);
    ASSERT_OK(raw_stream_send(stream, packed, size, SOON, &err), &err);
    ASSERT_OK(raw_stream_half_close(stream, SOON, &err), &err);
    return stream;
}

/* Reads on until the step is in this state. */
static void await_step(struct raw_stream *stream, size_t step, Saga__V1__StepState state,
                       char token[TOKEN_SIZE])
{
    for (;;) {
        struct bytes bytes = { 0 };
        if (raw_stream_receive(stream, SOON, &bytes) != 1)
            fail_msg("step %zu did not come to state %d", step, (int)state);
        Saga__V1__WatchSagaResponse *response =
            saga__v1__watch_saga_response__unpack(NULL, bytes.size, bytes.data);
        mem_free(bytes.data);
        assert_non_null(response);
        bool is_there = response->saga->steps[step]->state == state;
        (void)snprintf(token, TOKEN_SIZE, "%s", response->resume_token);
        saga__v1__watch_saga_response__free_unpacked(response, NULL);
        if (is_there)
            return;
    }
}

static void test_a_saga_is_watched_at_any_node_and_over_the_death_of_either(void **state)
{
    (void)state;
    char token[TOKEN_SIZE];
    rig_define(one, "watched", NULL,
               "a: IDEMPOTENT handler=here | none\nb: IDEMPOTENT handler=there | none");
    (void)rig_worker(one, "here", "here:4"); /* the rigs own them */
    rig_start(one, "watched", "s1", "a A 1 sleep=1500");
    struct raw_stream *stream = watch(two, "s1", "");
    await_step(stream, 0, SAGA__V1__STEP_STATE__STEP_STATE_LEASED, token);
    await_step(stream, 1, SAGA__V1__STEP_STATE__STEP_STATE_READY, token);
    /* Its driver dies, and the watcher's node takes over. */
    rig_server_kill(one);
    (void)rig_worker(two, "there", "there:4");
    await_step(stream, 1, SAGA__V1__STEP_STATE__STEP_STATE_DONE, token);
    assert_int_equal(raw_stream_status(stream, SOON, NULL), 0);
    (void)raw_stream_free(stream); /* always NULL */
    rig_server_start(one);
    /* The watcher's node dies: he goes on at the other. */
    rig_start(one, "watched", "s2", "");
    stream = watch(two, "s2", "");
    await_step(stream, 1, SAGA__V1__STEP_STATE__STEP_STATE_READY, token);
    rig_server_kill(two);
    (void)raw_stream_free(stream); /* always NULL */
    (void)rig_worker(one, "there", "there:4");
    stream = watch(one, "s2", token);
    await_step(stream, 1, SAGA__V1__STEP_STATE__STEP_STATE_DONE, token);
    assert_int_equal(raw_stream_status(stream, SOON, NULL), 0);
    (void)raw_stream_free(stream); /* always NULL */
    rig_server_start(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_saga_is_watched_at_any_node_and_over_the_death_of_either,
                                  check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
