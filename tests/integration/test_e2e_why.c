/* Q4: why did it turn back, why does it stand still, how often was it tried, what is next? Goal:
 * GetSaga answers all of it for each route of failure, and shows no state that is not documented.
 * Method: a table of routes and of what must be shown; random runs with every move of every row
 * recorded by a trigger, and everything that GetSaga says meanwhile looked at. */
#include "base/clock.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "core/fsm.h"
#include "support/proof.h"
#include "support/raw_worker.h"
#include "support/rig.h"
#include "support/wait.h"

#include <stdio.h>

enum { SOON = 15000 };
#define ACCEPTED SAGA__V1__ACK__RESULT__RESULT_ACCEPTED
#define DONE     SAGA__V1__OUTCOME__OUTCOME_DONE

static struct rig rig = { .server_args = { "--resend-grace", "0.3s", "--stream-lost", "0.5s" } };

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker_threads(&rig, "w", "act:64 undo:32", 64); /* the rig owns it */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    return rig_check(&rig);
}

static void free_saga_p(Saga__V1__Saga **saga)
{
    saga__v1__saga__free_unpacked(*saga, NULL);
}
#define SAGA CLEANUP(free_saga_p) Saga__V1__Saga *

static const Saga__V1__StepStatus *step_of(const Saga__V1__Saga *saga, const char *name)
{
    for (size_t i = 0; i < saga->n_steps; i++)
        if (strcmp(saga->steps[i]->name, name) == 0)
            return saga->steps[i];
    fail_msg("no step %s", name);
    return NULL;
}

/* --- each route ------------------------------------------------------------------------------- */

/* Sagas of two steps; b fails as the route says. */
struct route {
    const char *name, *settings, *a, *b, *script; /* a, b: action and compensation */
    const char *state;                            /* where it comes to rest */
    struct {
        const char *reason, *step, *code; /* of what turned it back; NULL: nothing did */
        int try_;
    } cause;
    const char *park_step, *park_code; /* NULL: not parked */
    int tries;                         /* of the step that failed: park_step, or b */
    Saga__V1__StepState step;          /* where that one stands */
};
#define STEP(name) SAGA__V1__STEP_STATE__STEP_STATE_##name
#define SAFE       "IDEMPOTENT | IDEMPOTENT"

/* clang-format off */
static const struct route routes[] = {
    { "refused", NULL, SAFE, SAFE,
      "b A * code=LIMIT rejected", "COMPENSATED",
      { "REFUSED", "b", "LIMIT", 1 }, NULL, NULL, 1, STEP(REJECTED) },
    { "refused2", NULL, SAFE, SAFE,
      "b A 1 code=BUSY retry\nb A 2 code=LIMIT rejected", "COMPENSATED",
      { "REFUSED", "b", "LIMIT", 2 }, NULL, NULL, 2, STEP(REJECTED) },
    { "spent_back", NULL, SAFE, "IDEMPOTENT max_attempts=2 on_exhausted=COMPENSATE | IDEMPOTENT",
      "b A * code=BUSY retry", "COMPENSATED",
      { "EXHAUSTED", "b", "BUSY", 2 }, NULL, NULL, 2, STEP(NOT_RUN) },
    { "unknown_back", NULL, SAFE, "ONCE on_unknown=COMPENSATE | none",
      "b A 1 code=LOST unknown", "COMPENSATED",
      { "UNKNOWN", "b", "LOST", 1 }, NULL, NULL, 1, STEP(UNKNOWN) },
    { "timeout_back", NULL, SAFE, "ONCE attempt_timeout=0.4s on_unknown=COMPENSATE | none",
      "b A 1 sleep=1500", "COMPENSATED",
      { "UNKNOWN", "b", "LEASE_EXPIRED", 1 }, NULL, NULL, 1, STEP(UNKNOWN) },
    { "nobody_back", NULL, SAFE,
      "IDEMPOTENT handler=nobody start_timeout=1s on_exhausted=COMPENSATE | IDEMPOTENT",
      "", "COMPENSATED",
      { "START_TIMEOUT", "b", "NO_WORKER", 0 }, NULL, NULL, 0, STEP(NOT_RUN) },
    { "deadline_back", "deadline=1s", SAFE, SAFE,
      "b A 1 code=BUSY after=600000 retry", "COMPENSATED",
      { "DEADLINE", "b", "DEADLINE_EXCEEDED", 0 }, NULL, NULL, 1, STEP(NOT_RUN) },
    { "cancel", NULL, SAFE, SAFE,
      "b A 1 code=BUSY after=600000 retry", "COMPENSATED",
      { "CANCELLED", "", "", 0 }, NULL, NULL, 1, STEP(NOT_RUN) },
    { "spent", NULL, SAFE, "IDEMPOTENT max_attempts=2 | IDEMPOTENT",
      "b A * code=BUSY retry", "PARKED RETRIES_EXHAUSTED",
      { NULL, NULL, NULL, 0 }, "b", "BUSY", 2, STEP(EXHAUSTED) },
    { "unknown", NULL, SAFE, "ONCE | IDEMPOTENT",
      "b A 1 code=LOST unknown", "PARKED OUTCOME_UNKNOWN",
      { NULL, NULL, NULL, 0 }, "b", "LOST", 1, STEP(UNKNOWN) },
    { "nobody", NULL, SAFE, "IDEMPOTENT handler=nobody start_timeout=1s | IDEMPOTENT",
      "", "PARKED RETRIES_EXHAUSTED",
      { NULL, NULL, NULL, 0 }, "b", "NO_WORKER", 0, STEP(EXHAUSTED) },
    { "foreign", NULL, SAFE, SAFE,
      "b A 1 foreign", "PARKED FOREIGN_EFFECT",
      { NULL, NULL, NULL, 0 }, "b", "FOREIGN_EFFECT", 1, STEP(UNKNOWN) },
    { "deadline", "deadline=1s on_deadline=PARK", SAFE, SAFE,
      "b A 1 after=600000 retry", "PARKED DEADLINE_EXCEEDED",
      { NULL, NULL, NULL, 0 }, "b", "DEADLINE_EXCEEDED", 1, STEP(BACKOFF) },
    { "undo_refused", NULL, SAFE, SAFE,
      "b A 1 code=LIMIT rejected\na C 1 code=GONE rejected", "PARKED COMPENSATION_FAILED",
      { "REFUSED", "b", "LIMIT", 1 }, "a", "GONE", 1, STEP(COMPENSATION_REJECTED) },
    { "undo_spent", NULL, "IDEMPOTENT | IDEMPOTENT max_attempts=2", SAFE,
      "b A 1 code=LIMIT rejected\na C * code=BUSY retry", "PARKED COMPENSATION_FAILED",
      { "REFUSED", "b", "LIMIT", 1 }, "a", "BUSY", 2, STEP(COMPENSATION_EXHAUSTED) },
    { "undo_unknown", NULL, "IDEMPOTENT | ONCE", SAFE,
      "b A 1 code=LIMIT rejected\na C 1 code=LOST unknown", "PARKED OUTCOME_UNKNOWN",
      { "REFUSED", "b", "LIMIT", 1 }, "a", "LOST", 1, STEP(COMPENSATION_UNKNOWN) },
};
/* clang-format on */

static void check_cause(const struct route *route, const Saga__V1__Saga *saga)
{
    if (!route->cause.reason) {
        assert_null(saga->cause);
        return;
    }
    const Saga__V1__FirstCause *cause = saga->cause;
    assert_non_null(cause);
    assert_string_equal(cause->reason, route->cause.reason);
    assert_string_equal(cause->step, route->cause.step);
    assert_int_equal(cause->try_, route->cause.try_);
    assert_string_equal(cause->error ? cause->error->code : "", route->cause.code);
    assert_non_null(cause->time);
    assert_string_equal(cause->actor,
                        strcmp(route->cause.reason, "CANCELLED") == 0 ? "tester" : "");
}

static void check_route(const struct route *route, const Saga__V1__Saga *saga)
{
    bool parked = route->park_step != NULL;
    const Saga__V1__StepStatus *step = step_of(saga, parked ? route->park_step : "b");
    check_cause(route, saga);
    assert_int_equal(step->state, route->step);
    assert_int_equal(step->tries, route->tries);
    assert_true((saga->park != NULL) == parked);
    assert_int_equal(saga->waiting ? saga->waiting->kind : 0,
                     parked ? SAGA__V1__WAIT_KIND__WAIT_KIND_OPERATOR : 0);
    if (!parked)
        return;
    assert_string_equal(saga->park->step, route->park_step);
    assert_string_equal(saga->park->error->code, route->park_code);
    assert_true(strlen(saga->park->error->message) > 0);
    assert_int_equal(saga->phase, route->cause.reason
                                      ? SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING
                                      : SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING);
}

static void test_q4_each_route_shows_its_first_cause_step_try_code_and_tries(void **state)
{
    (void)state;
    PROVES("P5 P6 P8");
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        char steps[256];
        (void)snprintf(steps, sizeof steps, "a: %s\nb: %s", routes[i].a, routes[i].b);
        rig_define(&rig, routes[i].name, routes[i].settings, steps);
        rig_start(&rig, routes[i].name, routes[i].name, routes[i].script);
    }
    rig_await(&rig, RIG_STORE, "1", SOON,
              "SELECT count(*) FROM journal JOIN saga s USING (shard, saga_uid)"
              " WHERE s.saga_id = 'cancel' AND outcome = 'RETRY'");
    SAGA backoff = rig_get(&rig, "cancel", "cancel");
    const Saga__V1__StepStatus *b = step_of(backoff, "b");
    assert_int_equal(b->state, STEP(BACKOFF));
    assert_int_equal(b->tries, 1);
    assert_string_equal(b->last_error->code, "BUSY");
    assert_int_equal(backoff->waiting->kind, SAGA__V1__WAIT_KIND__WAIT_KIND_RETRY);
    int64_t in_s = b->next_time->seconds - clock_wall_ms(&clock_system) / 1000;
    assert_true(in_s > 580 && in_s <= 601);
    assert_int_equal(b->next_time->seconds, backoff->waiting->until_time->seconds);
    assert_int_equal(rig_cancel(&rig, "cancel", "cancel", NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        rig_await_state(&rig, routes[i].name, routes[i].name, routes[i].state, SOON);
        SAGA saga = rig_get(&rig, routes[i].name, routes[i].name);
        print_message("%s\n", routes[i].name); /* which one, should it fail */
        check_route(&routes[i], saga);
    }
}

/* A worker that is lost three times with it, and one that did what it had given back. */
static void test_q4_what_workers_did_to_it_is_shown(void **state)
{
    (void)state;
    enum { LOSSES = 3 };
    PROVES("P5 P8");
    rig_define(&rig, "killer", NULL, "a: IDEMPOTENT handler=killer lease=60s | IDEMPOTENT");
    rig_define(&rig, "gave", NULL, "a: ONCE handler=gave lease=60s | IDEMPOTENT");
    rig_start(&rig, "killer", "killer", "");
    rig_start(&rig, "gave", "gave", "");
    for (int i = 0; i < LOSSES; i++) {
        struct raw_worker *worker = raw_worker_hello(rig.address, "dies", NULL, "killer", NULL, 0);
        raw_worker_credit(worker, "killer", 1);
        assert_non_null(raw_worker_task(worker, SOON));
        worker = raw_worker_cut(worker);
    }
    struct raw_worker *worker = raw_worker_hello(rig.address, "gives", NULL, "gave", NULL, 0);
    raw_worker_credit(worker, "gave", 1);
    const Saga__V1__Task *task = raw_worker_task(worker, SOON);
    assert_non_null(task);
    struct raw_lease lease = raw_lease_of(task);
    raw_worker_release(worker, &lease);
    (void)raw_worker_settle(worker, &lease, DONE, "after all"); /* evidence, whatever the ack */
    worker = raw_worker_cut(worker);
    rig_await_state(&rig, "gave", "gave", "PARKED LATE_EFFECT", SOON);
    rig_await_state(&rig, "killer", "killer", "PARKED WORKER_KILLER", SOON);
    SAGA killer = rig_get(&rig, "killer", "killer");
    assert_string_equal(killer->park->step, "a");
    assert_string_equal(killer->park->error->code, "WORKER_KILLER");
    assert_non_null(strstr(killer->park->error->message, "killer"));
    assert_int_equal(step_of(killer, "a")->tries, LOSSES);
    assert_int_equal(step_of(killer, "a")->last_outcome, SAGA__V1__OUTCOME__OUTCOME_STREAM_LOST);
    assert_true(step_of(killer, "a")->maybe);
    SAGA gave = rig_get(&rig, "gave", "gave");
    assert_string_equal(gave->park->step, "a");
    assert_string_equal(gave->park->error->code, "LATE_EFFECT");
    assert_non_null(strstr(gave->park->error->message, "gives"));
}

/* A text is cut between characters, wherever these lie. */
static void test_q4_a_long_text_is_cut_at_a_character(void **state)
{
    (void)state;
    enum { TEXT_MAX = 1024, CHARACTERS = 600 };
    PROVES("P2");
    static const struct {
        const char *character;
        size_t size;
    } kinds[] = { { "\xc3\xa4", 2 }, { "\xe2\x82\xac", 3 }, { "\xf0\x9f\x98\x80", 4 } };
    rig_define(&rig, "text", NULL, "a: ONCE handler=text | none");
    struct raw_worker *worker = raw_worker_hello(rig.address, "text", NULL, "text", NULL, 0);
    raw_worker_credit(worker, "text", 100);
    for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++) {
        for (size_t shift = 0; shift < 4; shift++) {
            char id[24], text[4 * CHARACTERS + 8] = "";
            memset(text, 'x', shift);
            for (int i = 0; i < CHARACTERS; i++)
                memcpy(text + shift + (size_t)i * kinds[kind].size, kinds[kind].character,
                       kinds[kind].size + 1);
            (void)snprintf(id, sizeof id, "text%zu-%zu", kind, shift);
            rig_start(&rig, "text", id, "");
            const Saga__V1__Task *task = raw_worker_task(worker, SOON);
            assert_non_null(task);
            struct raw_lease lease = raw_lease_of(task);
            Saga__V1__TaskReport report = SAGA__V1__TASK_REPORT__INIT;
            report.saga_uid.data = lease.uid;
            report.saga_uid.len = sizeof lease.uid;
            report.fence = lease.fence;
            report.outcome = SAGA__V1__OUTCOME__OUTCOME_REJECTED;
            report.error_code = rig_borrow("TEXT");
            report.error_message = text;
            raw_worker_report_task(worker, &report);
            assert_int_equal(raw_worker_ack(worker, &lease), ACCEPTED);
            SAGA saga = rig_get(&rig, "text", id);
            const char *message = saga->cause->error->message;
            size_t size = strlen(message);
            assert_true(size <= TEXT_MAX && size > TEXT_MAX - kinds[kind].size);
            assert_true(utf8_is_valid(message, size));
            assert_memory_equal(message, text, size);
        }
    }
    worker = raw_worker_cut(worker);
}

/* --- random runs ------------------------------------------------------------------------------ */

/* Every move of every row, once. */
static void record_moves(void)
{
    rig_exec(&rig, RIG_STORE,
             "CREATE TABLE moves (old_state text, old_phase text, new_state text, new_phase text,"
             " UNIQUE (old_state, old_phase, new_state, new_phase))");
    rig_exec(&rig, RIG_STORE,
             "CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
             " INSERT INTO sagad.moves VALUES (OLD.state, OLD.phase, NEW.state, NEW.phase)"
             " ON CONFLICT DO NOTHING; RETURN NULL; END $$");
    rig_exec(&rig, RIG_STORE,
             "CREATE TRIGGER move AFTER UPDATE ON saga FOR EACH ROW WHEN"
             " ((OLD.state, OLD.phase) IS DISTINCT FROM (NEW.state, NEW.phase))"
             " EXECUTE FUNCTION move()");
}

static bool is_at(enum saga_state state, enum saga_state phase, enum saga_state row_state,
                  enum saga_state row_phase)
{
    return state == row_state && (state != SAGA_PARKED || phase == row_phase);
}

/* One row of the table, or two in one commit: it turns back, and nothing is there to take back. */
static bool is_documented(enum saga_state from, enum saga_state from_phase, enum saga_state to,
                          enum saga_state to_phase, int most)
{
    size_t count;
    const struct saga_transition *rows = saga_transitions(&count);
    for (size_t i = 0; i < count; i++) {
        if (!is_at(from, from_phase, rows[i].from, rows[i].phase_from))
            continue;
        if (is_at(to, to_phase, rows[i].to, rows[i].phase_to) ||
            (most > 1 && is_documented(rows[i].to, rows[i].phase_to, to, to_phase, most - 1)))
            return true;
    }
    return false;
}

static int check_moves(void)
{
    PGconn *conn = rig_connect(&rig, RIG_STORE);
    PGresult *rows = PQexec(conn, "SELECT * FROM moves");
    assert_int_equal(PQresultStatus(rows), PGRES_TUPLES_OK);
    int count = PQntuples(rows);
    for (int i = 0; i < count; i++) {
        enum saga_state words[4];
        for (int j = 0; j < 4; j++)
            assert_true(saga_state_parse(PQgetvalue(rows, i, j), &words[j]));
        if (!is_documented(words[0], words[1], words[2], words[3], 2))
            fail_msg("a saga moved from %s in %s to %s in %s", PQgetvalue(rows, i, 0),
                     PQgetvalue(rows, i, 1), PQgetvalue(rows, i, 2), PQgetvalue(rows, i, 3));
    }
    PQclear(rows);
    PQfinish(conn);
    return count;
}

/* A saga's input by chance: an outcome for each step, operation and try. */
static void random_script(struct rng *rng, char *text, size_t size)
{
    static const char *const actions[] = { "done",    "done",     "done",  "done",    "done",
                                           "already", "rejected", "retry", "unknown", "foreign" };
    static const char *const undos[] = { "done", "done", "done", "retry", "rejected", "unknown" };
    size_t at = 0;
    for (int step = 'a'; step <= 'c'; step++)
        for (int try_ = 1; try_ <= 3; try_++) {
            const char *action = actions[rng_below(rng, ARRAY_LEN(actions))];
            const char *undo = undos[rng_below(rng, ARRAY_LEN(undos))];
            at += (size_t)snprintf(text + at, size - at, "%c A %d sleep=%d %s\n%c C %d %s\n", step,
                                   try_, (int)rng_below(rng, 20), action, step, try_, undo);
            assert_true(at < size);
        }
}

/* What is shown fits together, at any moment. */
static const char *misfit(const Saga__V1__Saga *saga)
{
    bool parked = saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED;
    bool ended = saga->state > SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED;
    bool back = saga->phase == SAGA__V1__SAGA_STATE__SAGA_STATE_COMPENSATING;
    Saga__V1__WaitKind waits =
        saga->waiting ? saga->waiting->kind : SAGA__V1__WAIT_KIND__WAIT_KIND_UNSPECIFIED;
    if (saga->state == 0 || saga->state > SAGA__V1__SAGA_STATE__SAGA_STATE_ABANDONED)
        return "a state of no name";
    if (parked != (saga->park != NULL && saga->park->reason != 0))
        return "parked, and no reason; or a reason, and not parked";
    if (parked && !back && saga->phase != SAGA__V1__SAGA_STATE__SAGA_STATE_RUNNING)
        return "parked in no phase";
    if (!parked && saga->phase != saga->state)
        return "a phase beside the state";
    if (ended != (saga->end_time != NULL))
        return "an end without its time, or the time of no end";
    if (back != (saga->cause != NULL) && !ended)
        return "turned back without a cause, or a cause and not turned back";
    if (ended != (waits == SAGA__V1__WAIT_KIND__WAIT_KIND_UNSPECIFIED))
        return "it waits although it has ended, or for nothing although it has not";
    for (size_t i = 0; i < saga->n_steps; i++) {
        const Saga__V1__StepStatus *step = saga->steps[i];
        bool undone = step->state >= STEP(COMPENSATION_WAITING) && step->state != STEP(EXHAUSTED) &&
                      step->state != 0;
        if (step->state == 0 || step->state > STEP(COMPENSATION_EXHAUSTED))
            return "a step's state of no name";
        if (undone && !saga->cause)
            return "a compensation before it turned back";
        bool backs_off = step->state == STEP(BACKOFF) || step->state == STEP(COMPENSATION_BACKOFF);
        if (backs_off && !step->next_time)
            return "a back-off without an end";
    }
    return NULL;
}

static void look(const char *id)
{
    SAGA saga = rig_get(&rig, "random", id);
    const char *why = misfit(saga);
    if (why)
        fail_msg("%s: state %d, phase %d, waits %d: %s", id, (int)saga->state, (int)saga->phase,
                 saga->waiting ? (int)saga->waiting->kind : 0, why);
}

/* Looks at sagas, over and over, until all are at rest. */
static int64_t look_until_rest(struct rng *rng, int count)
{
    int64_t looks = 0, until = clock_mono_ms(&clock_system) + SOON + count * 20;
    char id[24];
    while (rig_count(&rig, RIG_STORE,
                     "SELECT count(*) FROM saga WHERE definition = 'random'"
                     " AND state IN ('RUNNING', 'COMPENSATING')") > 0) {
        for (int i = 0; i < 20; i++, looks++) {
            (void)snprintf(id, sizeof id, "random%d", (int)rng_below(rng, (uint64_t)count));
            look(id);
        }
        if (clock_mono_ms(&clock_system) > until)
            fail_msg("not all sagas came to rest");
    }
    return looks;
}

static void test_q4_p6_random_runs_show_only_documented_states(void **state)
{
    (void)state;
    PROVES("P6");
    struct rng rng;
    int count = test_is_full_size() ? 3000 : 250;
    char id[24], script[2048];
    rng_seed(&rng, proof_seed());
    record_moves();
    rig_define(&rig, "random", "deadline=2s",
               "a: IDEMPOTENT max_attempts=2 on_exhausted=COMPENSATE | ONCE\n"
               "b: ONCE on_unknown=COMPENSATE | IDEMPOTENT max_attempts=2 | settle=0.1s\n"
               "c: IDEMPOTENT max_attempts=3 | IDEMPOTENT | guarded");
    for (int i = 0; i < count; i++) {
        random_script(&rng, script, sizeof script);
        (void)snprintf(id, sizeof id, "random%d", i);
        rig_start(&rig, "random", id, script);
        (void)snprintf(id, sizeof id, "random%d", (int)rng_below(&rng, (uint64_t)i + 1));
        look(id);
        if (rng_below(&rng, 6) == 0)
            (void)rig_cancel(&rig, "random", id, NULL); /* refused or not: by chance */
    }
    int64_t looks = count + look_until_rest(&rng, count);
    for (int i = 0; i < count; i++) { /* those that a person can take on, and then again */
        (void)snprintf(id, sizeof id, "random%d", i);
        (void)rig_retry(&rig, "random", id, NULL, NULL);
    }
    looks += look_until_rest(&rng, count);
    int moves = check_moves();
    print_message("%lld looks, %d kinds of moves\n", (long long)looks, moves);
    assert_true(moves >= 7);
    rig_exec(&rig, RIG_STORE, "DROP TRIGGER move ON saga");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_q4_each_route_shows_its_first_cause_step_try_code_and_tries),
        TEST(test_q4_what_workers_did_to_it_is_shown),
        TEST(test_q4_a_long_text_is_cut_at_a_character),
        TEST(test_q4_p6_random_runs_show_only_documented_states),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
