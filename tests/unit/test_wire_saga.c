/* Goal: what the API shows of a saga is what its journal says. Method: sagas driven through the
 * core's test world into each kind of place (leased, backing off, compensating, parked, done),
 * shown as a message and compared field by field; labels there and back; each allocation failed in
 * turn. */
#include "core_world.h"

#include "base/mem.h"
#include "dispatch/key.h"
#include "wire/labels.h"
#include "wire/saga_codec.h"

static struct world world;
static struct arena arena;

static int setup(void **state)
{
    (void)state;
    world_open(&world, 3);
    arena = (struct arena){ 0 };
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&world);
    arena_done(&arena);
    return 0;
}

static Saga__V1__Saga *show(bool full)
{
    Saga__V1__Saga *message = NULL;
    struct err err;
    ASSERT_OK(saga_to_message(&arena, world.saga, full, world.now_ms, &message, &err), &err);
    assert_true(protobuf_c_message_check(&message->base));
    return message;
}

static int64_t ms_of(const Google__Protobuf__Timestamp *time)
{
    assert_non_null(time);
    return time->seconds * 1000 + time->nanos / 1000000;
}

static void test_a_new_saga_waits_for_a_worker(void **state)
{
    (void)state;
    world_start(&world);
    const struct saga_row *row = saga_row(world.saga);
    Saga__V1__Saga *saga = show(true);
    char uid[UUID_TEXT_SIZE];
    uuid_format(&row->uid, uid);
    assert_string_equal(saga->uid, uid);
    assert_string_equal(saga->namespace_, row->namespace_);
    assert_string_equal(saga->saga_id, row->saga_id);
    assert_int_equal(saga->run, row->run);
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
    assert_int_equal(saga->phase, saga->state);
    assert_int_equal(ms_of(saga->start_time), row->started_at_ms);
    assert_null(saga->end_time);
    assert_null(saga->park);
    assert_null(saga->cause);
    assert_int_equal(saga->n_steps, 3);
    assert_string_equal(saga->steps[0]->name, "a");
    assert_int_equal(saga->steps[0]->state, SAGA__V1__STEP_STATE__STEP_STATE_READY);
    assert_int_equal(saga->steps[1]->state, SAGA__V1__STEP_STATE__STEP_STATE_PENDING);
    char key[IDEMPOTENCY_KEY_SIZE];
    assert_int_equal(idempotency_key(row->namespace_, row->definition, row->saga_id, row->run, "a",
                                     OPERATION_ACTION, 0, key),
                     0);
    assert_string_equal(saga->steps[0]->idempotency_key, key);
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_WORKER);
    assert_string_equal(saga->waiting->step, "a");
    assert_string_equal(saga->waiting->handler, saga->steps[0]->handler);
}

static void test_the_basic_view_has_no_steps_and_no_input(void **state)
{
    (void)state;
    world_start(&world);
    Saga__V1__Saga *saga = show(false);
    assert_int_equal(saga->n_steps, 0);
    assert_int_equal(saga->input.len, 0);
    assert_null(saga->waiting);
}

static void test_a_lease_shows_its_holder(void **state)
{
    (void)state;
    world_start(&world);
    int64_t seq = world_grant(&world);
    const struct journal_entry *lease = saga_entry(world.saga, seq);
    Saga__V1__Saga *saga = show(true);
    const Saga__V1__StepStatus *step = saga->steps[0];
    assert_int_equal(step->state, SAGA__V1__STEP_STATE__STEP_STATE_LEASED);
    assert_int_equal(step->tries, 1);
    assert_int_equal(step->fence, lease->fence);
    assert_string_equal(step->worker, lease->worker);
    assert_int_equal(step->last_outcome, SAGA__V1__OUTCOME__OUTCOME_UNSPECIFIED);
    assert_int_equal(ms_of(step->lease_until_time), lease->lease_until_ms);
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_REPORT);
    assert_string_equal(saga->waiting->worker, lease->worker);
}

static void test_a_back_off_shows_the_error_and_the_next_try(void **state)
{
    (void)state;
    world_start(&world);
    int64_t seq = world_grant(&world);
    const struct report report = {
        .fence = saga_entry(world.saga, seq)->fence,
        .outcome = OUTCOME_RETRY,
        .error_code = "BUSY",
        .error_message = "try later",
        .retry_after_ms = 5000,
    };
    assert_int_equal(world_report_full(&world, &report), VERDICT_ACCEPTED);
    Saga__V1__Saga *saga = show(true);
    const Saga__V1__StepStatus *step = saga->steps[0];
    assert_int_equal(step->state, SAGA__V1__STEP_STATE__STEP_STATE_BACKOFF);
    assert_int_equal(step->last_outcome, SAGA__V1__OUTCOME__OUTCOME_RETRY);
    assert_string_equal(step->last_error->code, "BUSY");
    assert_string_equal(step->last_error->message, "try later");
    assert_true(ms_of(step->next_time) >= world.now_ms + 4000);
    assert_null(step->lease_until_time);
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_RETRY);
}

static void test_a_refusal_is_the_cause_and_names_its_step(void **state)
{
    (void)state;
    world_start(&world);
    const struct report done = {
        .fence = saga_entry(world.saga, world_grant(&world))->fence,
        .outcome = OUTCOME_DONE,
        .output = { (uint8_t *)(uintptr_t) "receipt", 7 },
    };
    assert_int_equal(world_report_full(&world, &done), VERDICT_ACCEPTED);
    world_pass(&world, 1000);
    const struct report refused = {
        .fence = saga_entry(world.saga, world_grant(&world))->fence,
        .outcome = OUTCOME_REJECTED,
        .error_code = "NO_FUNDS",
    };
    assert_int_equal(world_report_full(&world, &refused), VERDICT_ACCEPTED);
    int64_t turned_ms = world.now_ms;
    world_pass(&world, 7000);
    Saga__V1__Saga *saga = show(true);
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING);
    assert_int_equal(ms_of(saga->state_time), turned_ms);
    assert_string_equal(saga->cause->reason, "REFUSED");
    assert_string_equal(saga->cause->step, "b");
    assert_int_equal(saga->cause->try_, 1);
    assert_string_equal(saga->cause->error->code, "NO_FUNDS");
    assert_int_equal(saga->steps[0]->output.len, 7);
    assert_memory_equal(saga->steps[0]->output.data, "receipt", 7);
    assert_int_equal(saga->steps[0]->operation,
                     SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION);
    assert_int_equal(saga->steps[0]->state, SAGA__V1__STEP_STATE__STEP_STATE_COMPENSATION_READY);
    assert_int_equal(saga->steps[1]->state, SAGA__V1__STEP_STATE__STEP_STATE_REJECTED);
    assert_int_equal(saga->steps[2]->state, SAGA__V1__STEP_STATE__STEP_STATE_NOT_RUN);
}

static void test_a_parked_saga_says_why_in_which_phase_and_since_when(void **state)
{
    (void)state;
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    world_start(&world);
    world_pass(&world, 500);
    world_run(&world, OUTCOME_UNKNOWN);
    int64_t parked_ms = world.now_ms;
    world_pass(&world, 60000);
    Saga__V1__Saga *saga = show(true);
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED);
    assert_int_equal(saga->phase, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
    assert_int_equal(ms_of(saga->state_time), parked_ms);
    assert_int_equal(saga->park->reason, SAGA__V1__PARK_REASON__PARK_REASON_OUTCOME_UNKNOWN);
    assert_string_equal(saga->park->step, "a");
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_OPERATOR);
    assert_true(saga->steps[0]->maybe);
    /* the row alone: as in lists */
    Saga__V1__Saga *listed = NULL;
    struct err err;
    char step[] = "a";
    ASSERT_OK(saga_row_to_message(&arena, saga_row(world.saga), step, &listed, &err), &err);
    assert_string_equal(listed->park->step, "a");
    assert_int_equal(listed->state, saga->state);
    assert_int_equal(listed->park->reason, saga->park->reason);
    assert_string_equal(listed->uid, saga->uid);
    assert_null(listed->cause);
}

/* The key of step a as the message shows it. */
static void assert_key(const Saga__V1__Saga *saga, enum operation operation, int32_t generation)
{
    const struct saga_row *row = saga_row(world.saga);
    char key[IDEMPOTENCY_KEY_SIZE];
    assert_int_equal(idempotency_key(row->namespace_, row->definition, row->saga_id, row->run, "a",
                                     operation, generation, key),
                     0);
    assert_string_equal(saga->steps[0]->idempotency_key, key);
}

static void test_an_unknown_outcome_tells_what_is_known_and_what_its_probes_said(void **state)
{
    (void)state;
    struct step_rule *rule = &world.definition->steps[0];
    rule->action.effect = EFFECT_PROBED;
    rule->action.fresh_key = true;
    rule->settle_ms = 5000;
    (void)world_add_probe(&world, 0, OPERATION_ACTION); /* as it is */
    world_start(&world);
    const struct journal_entry *lease = saga_entry(world.saga, world_grant(&world));
    world_pass(&world, 1000);
    const struct report lost = { .fence = lease->fence,
                                 .outcome = OUTCOME_UNKNOWN,
                                 .error_code = "TIMEOUT" };
    assert_int_equal(world_report_full(&world, &lost), VERDICT_ACCEPTED);
    int64_t ended_ms = world.now_ms;
    Saga__V1__Saga *saga = show(true);
    const Saga__V1__UnknownOutcome *unknown = saga->steps[0]->unknown;
    assert_int_equal(saga->steps[0]->state, SAGA__V1__STEP_STATE__STEP_STATE_UNKNOWN);
    assert_int_equal(unknown->operation, SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION);
    assert_int_equal(unknown->effect, SAGA__V1__EFFECT__EFFECT_PROBED);
    assert_int_equal(unknown->attempts, 1);
    assert_string_equal(unknown->worker, lease->worker);
    assert_int_equal(unknown->fence, lease->fence);
    assert_int_equal(ms_of(unknown->lease_time), lease->leased_at_ms);
    assert_int_equal(ms_of(unknown->end_time), ended_ms);
    assert_int_equal(unknown->outcome, SAGA__V1__OUTCOME__OUTCOME_UNKNOWN);
    assert_string_equal(unknown->error->code, "TIMEOUT");
    assert_int_equal(ms_of(unknown->settle_time), ended_ms + 5000);
    assert_null(unknown->send_before);
    assert_int_equal(unknown->probes, 0);
    assert_null(unknown->last_probe_time);
    assert_null(saga->steps[1]->unknown);
    assert_int_equal(saga->waiting->operation, SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE);
    assert_string_equal(saga->waiting->handler, rule->action.probe->handler);
    assert_key(saga, OPERATION_ACTION, 0);

    const struct report nothing = { .fence = saga_entry(world.saga, world_grant(&world))->fence,
                                    .outcome = OUTCOME_STILL_UNKNOWN,
                                    .error_code = "BUSY" };
    assert_int_equal(world_report_full(&world, &nothing), VERDICT_ACCEPTED);
    saga = show(true);
    unknown = saga->steps[0]->unknown;
    assert_int_equal(unknown->probes, 1);
    assert_int_equal(unknown->last_probe, SAGA__V1__OUTCOME__OUTCOME_STILL_UNKNOWN);
    assert_string_equal(unknown->last_probe_error->code, "BUSY");
    assert_int_equal(ms_of(unknown->last_probe_time), world.now_ms);
    assert_true(ms_of(saga->steps[0]->next_time) >= world.now_ms);

    world_pass(&world, 100000);
    int64_t seq = world_run(&world, OUTCOME_NOT_DONE);
    saga = show(true);
    assert_null(saga->steps[0]->unknown);
    assert_int_equal(saga->steps[0]->state, SAGA__V1__STEP_STATE__STEP_STATE_READY);
    assert_key(saga, OPERATION_ACTION, 1);
    Saga__V1__JournalEntry *entry = NULL;
    struct err err;
    ASSERT_OK(journal_entry_to_message(&arena, world.definition, saga_entry(world.saga, seq + 1),
                                       &entry, &err),
              &err);
    assert_int_equal(entry->kind, SAGA__V1__JOURNAL_ENTRY__KIND__KIND_RESOLVE);
    assert_int_equal(entry->about, seq);
    assert_int_equal(entry->outcome, SAGA__V1__OUTCOME__OUTCOME_NOT_DONE);
}

static void test_an_accepted_step_is_unconfirmed_and_the_saga_in_doubt(void **state)
{
    (void)state;
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    world.definition->steps[0].action.on_unknown = ON_UNKNOWN_ACCEPT;
    world_start(&world);
    int64_t seq = world_run(&world, OUTCOME_UNKNOWN);
    Saga__V1__Saga *saga = show(true);
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
    assert_true(saga->doubt);
    assert_int_equal(saga->steps[0]->state, SAGA__V1__STEP_STATE__STEP_STATE_UNCONFIRMED);
    assert_non_null(saga->steps[0]->unknown);
    assert_null(saga->steps[0]->unknown->settle_time); /* the step says none */
    assert_int_equal(saga->steps[0]->unknown->effect, SAGA__V1__EFFECT__EFFECT_AT_MOST_ONCE);
    Saga__V1__JournalEntry *entry = NULL;
    struct err err;
    ASSERT_OK(journal_entry_to_message(&arena, world.definition, saga_entry(world.saga, seq + 1),
                                       &entry, &err),
              &err);
    assert_int_equal(entry->kind, SAGA__V1__JOURNAL_ENTRY__KIND__KIND_ACCEPT);
}

static void test_a_suspended_saga_is_parked_since_then_and_left_by_resume_and_cancel(void **state)
{
    (void)state;
    world_start(&world);
    world_pass(&world, 300);
    assert_int_equal(world_suspend(&world), 0);
    int64_t parked_ms = world.now_ms;
    world_pass(&world, 700);
    Saga__V1__Saga *saga = show(true);
    assert_int_equal(saga->park->reason, SAGA__V1__PARK_REASON__PARK_REASON_SUSPENDED);
    assert_string_equal(saga->park->error->message, "the bank asked");
    assert_int_equal(ms_of(saga->state_time), parked_ms);
    assert_int_equal(world_resume(&world), 0);
    saga = show(true);
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
    assert_int_equal(ms_of(saga->state_time), world.now_ms);
    world_run(&world, OUTCOME_DONE);
    assert_int_equal(world_suspend(&world), 0);
    world_pass(&world, 900);
    assert_int_equal(world_cancel(&world), 0);
    saga = show(true);
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING);
    assert_int_equal(ms_of(saga->state_time), world.now_ms);
}

static void test_an_end_is_shown_with_its_time(void **state)
{
    (void)state;
    world_start(&world);
    for (int i = 0; i < 3; i++)
        world_run(&world, OUTCOME_DONE);
    Saga__V1__Saga *saga = show(true);
    assert_int_equal(saga->state, SAGA__V1__SAGA_STATE__SAGA_STATE_SUCCEEDED);
    assert_int_equal(ms_of(saga->end_time), saga_row(world.saga)->ended_at_ms);
    assert_int_equal(ms_of(saga->state_time), saga_row(world.saga)->ended_at_ms);
    assert_int_equal(saga->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_UNSPECIFIED);
}

static void test_journal_entries_are_told_in_words(void **state)
{
    (void)state;
    world_start(&world);
    world_run(&world, OUTCOME_DONE);
    assert_int_equal(world_cancel(&world), 0);
    Saga__V1__JournalEntry *message = NULL;
    struct err err;
    const struct journal_entry *lease = saga_entry(world.saga, 1);
    ASSERT_OK(journal_entry_to_message(&arena, world.definition, lease, &message, &err), &err);
    assert_int_equal(message->seq, 1);
    assert_int_equal(message->kind, SAGA__V1__JOURNAL_ENTRY__KIND__KIND_LEASE);
    assert_string_equal(message->step, "a");
    assert_int_equal(message->operation, SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION);
    assert_int_equal(message->try_, 1);
    assert_int_equal(message->outcome, SAGA__V1__OUTCOME__OUTCOME_DONE);
    assert_int_equal(ms_of(message->finish_time), lease->finished_at_ms);
    assert_null(message->retry_time);
    const struct journal_entry *cancel = saga_entry(world.saga, saga_last_seq(world.saga));
    ASSERT_OK(journal_entry_to_message(&arena, world.definition, cancel, &message, &err), &err);
    assert_int_equal(message->kind, SAGA__V1__JOURNAL_ENTRY__KIND__KIND_COMPENSATE);
    assert_string_equal(message->reason, "CANCELLED");
    assert_string_equal(message->actor, cancel->actor);
}

static void test_labels_go_there_and_back(void **state)
{
    (void)state;
    const struct label labels[] = { { "z", "last" }, { "a\"b\\", "caf\xc3\xa9\n" }, { "m", "{}" } };
    char *json = NULL;
    struct label *read = NULL;
    size_t count = 0;
    struct err err;
    ASSERT_OK(labels_to_json(labels, 3, &json, &err), &err);
    assert_memory_equal(json, "{\"a", 3); /* sorted */
    ASSERT_OK(labels_from_json(&arena, json, &read, &count, &err), &err);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < ARRAY_LEN(labels); j++)
            if (strcmp(read[i].key, labels[j].key) == 0)
                assert_string_equal(read[i].value, labels[j].value);
    mem_free(json);
    ASSERT_OK(labels_to_json(labels, 0, &json, &err), &err);
    assert_null(json);
    ASSERT_OK(labels_from_json(&arena, NULL, &read, &count, &err), &err);
    assert_int_equal(count, 0);
    assert_int_equal(labels_from_json(&arena, "[1]", &read, &count, &err), ERR_INTERNAL);
    assert_int_equal(labels_from_json(&arena, "{\"a\": 1}", &read, &count, &err), ERR_INTERNAL);
    assert_int_equal(labels_from_json(&arena, "{\"a\"", &read, &count, &err), ERR_INTERNAL);
}

static void test_an_arena_that_is_full_is_an_error(void **state)
{
    (void)state;
    world.definition->steps[0].action.effect = EFFECT_AT_MOST_ONCE;
    world.definition->steps[0].action.on_unknown = ON_UNKNOWN_ACCEPT;
    world_start(&world);
    world_run(&world, OUTCOME_UNKNOWN);
    world_run(&world, OUTCOME_REJECTED);
    Saga__V1__Saga *message = NULL;
    struct err err;
    size_t limit = 16;
    for (;; limit += 16) {
        struct arena small = { .limit = limit };
        int rc = saga_to_message(&small, world.saga, true, world.now_ms, &message, &err);
        arena_done(&small);
        if (!rc)
            break;
        assert_int_equal(rc, ERR_NOMEM);
        assert_true(limit < 64 * 1024);
    }
    assert_true(limit > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_new_saga_waits_for_a_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_basic_view_has_no_steps_and_no_input, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_lease_shows_its_holder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_back_off_shows_the_error_and_the_next_try, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_refusal_is_the_cause_and_names_its_step, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_parked_saga_says_why_in_which_phase_and_since_when,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_an_unknown_outcome_tells_what_is_known_and_what_its_probes_said, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_accepted_step_is_unconfirmed_and_the_saga_in_doubt,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_suspended_saga_is_parked_since_then_and_left_by_resume_and_cancel, setup,
            teardown),
        cmocka_unit_test_setup_teardown(test_an_end_is_shown_with_its_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_journal_entries_are_told_in_words, setup, teardown),
        cmocka_unit_test_setup_teardown(test_labels_go_there_and_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_arena_that_is_full_is_an_error, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
