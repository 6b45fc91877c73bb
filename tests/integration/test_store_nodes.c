/* Goal: of several nodes on one database each saga has one owner at most, what nobody drives is
 * found, and a node learns when it was replaced or taken for dead. Method: two stores under two
 * names; where two of them meet, two sessions with the store's own statements, one of which keeps
 * its transaction open; the clock is moved by writing other times into the rows. */
#include "store_fixture.h"

#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>

enum { DEAD_MS = 10 * 1000, NEVER_DEAD_MS = 1000 * 1000 };
static const struct uuid instance_2 = { { 2, [10] = 1, 2, 3, 4, 5, 6 } };

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static struct store *one, *two;
static struct session sessions[2]; /* of node-1 and node-2 */
static PGconn *watch;

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(test_postgres_start(NULL, &postgres, &err), &err);
    fixture_database(postgres, "nodes", conninfo);
    one = fixture_store(conninfo);
    two = fixture_store_of(conninfo, "node-2", &instance_2);
    watch = fixture_connect(conninfo);
    session_open(&sessions[0], conninfo, "node-1");
    session_open(&sessions[1], conninfo, "node-2");
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        session_close(&sessions[i]);
    PQfinish(watch);
    one = store_pg_free(one);
    two = store_pg_free(two);
    postgres = test_postgres_free(postgres);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    fixture_exec(watch, "TRUNCATE saga, saga_key, journal, node");
    return 0;
}

/* --- what the tests are written in ----------------------------------------------------------- */

static struct uuid started(struct store *store, const char *saga_id)
{
    struct copy copy;
    copy_new(&copy, saga_id, NULL);
    copy_write(&copy, store, STORE_OK);
    struct uuid uid = saga_row(copy.saga)->uid;
    copy_done(&copy);
    return uid;
}

/* A saga that has ended, as owned by the store's node. */
static struct uuid ended(struct store *store, const char *saga_id)
{
    struct copy copy;
    copy_new(&copy, saga_id, NULL);
    copy_write(&copy, store, STORE_OK);
    copy_cancel(&copy);
    copy_write(&copy, store, STORE_OK);
    assert_true(saga_state_is_terminal(saga_row(copy.saga)->state));
    struct uuid uid = saga_row(copy.saga)->uid;
    copy_done(&copy);
    return uid;
}

/* Does the saga's row fulfil this? */
static bool saga_is(const struct uuid *uid, const char *condition)
{
    char text[UUID_TEXT_SIZE], sql[512];
    uuid_format(uid, text);
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM saga WHERE saga_uid = '%s' AND (%s)",
                   text, condition);
    return fixture_count(watch, sql) == 1;
}

static const char owned_by_1[] = "owner = 'node-1' AND wake_at IS NULL AND waiting_handler IS NULL";
static const char owned_by_2[] = "owner = 'node-2' AND wake_at IS NULL AND waiting_handler IS NULL";

static struct store_op adoption(int64_t dead_ms, size_t limit, const char *const *handlers,
                                size_t handler_count)
{
    return (struct store_op){ .kind = STORE_ADOPT,
                              .dead_ms = dead_ms,
                              .limit = limit,
                              .handlers = handlers,
                              .handler_count = handler_count };
}

/* Adopts all that there is, as node of `store`; how many. */
static size_t adopted(struct store *store, int64_t dead_ms, const char *handler)
{
    struct store_op op = adoption(dead_ms, 100, &handler, handler ? 1 : 0);
    fixture_run(store, &op);
    assert_int_equal(op.result, STORE_OK);
    size_t count = op.uid_count;
    store_op_done(&op);
    return count;
}

static struct store_op let_go(const struct uuid *uid, int64_t wake_at_ms, const char *handler)
{
    return (struct store_op){
        .kind = STORE_LET_GO, .uid = *uid, .wake_at_ms = wake_at_ms, .waiting_handler = handler
    };
}

static void lets_go(struct store *store, const struct uuid *uid, int64_t wake_at_ms,
                    const char *handler, enum store_result expected)
{
    struct store_op op = let_go(uid, wake_at_ms, handler);
    fixture_run(store, &op);
    assert_int_equal(op.result, expected);
}

static struct store_op beat(enum store_beat kind, const struct uuid *instance, int64_t dead_ms)
{
    return (struct store_op){
        .kind = STORE_HEARTBEAT, .beat = kind, .instance = *instance, .dead_ms = dead_ms
    };
}

static void beats(struct store *store, enum store_beat kind, const struct uuid *instance,
                  int32_t nodes_alive, bool was_dead)
{
    struct store_op op = beat(kind, instance, DEAD_MS);
    fixture_run(store, &op);
    assert_int_equal(op.result, STORE_OK);
    assert_int_equal(op.nodes_alive, nodes_alive);
    assert_int_equal(op.was_dead, was_dead);
    assert_true(op.now_ms > 0);
}

/* For people: what its workers serve, as of its last heartbeat. */
static void test_a_heartbeat_tells_what_is_served(void **state)
{
    (void)state;
    static const char *const handlers[] = { "pay.do", "pay, \"undo\"" };
    struct store_op op = beat(STORE_BEAT_JOIN, &fixture_instance, DEAD_MS);
    for (int count = 2; count >= 0; count--) {
        op.handlers = handlers;
        op.handler_count = (size_t)count;
        op.next = NULL;
        fixture_run(one, &op);
        assert_int_equal(op.result, STORE_OK);
        op.beat = STORE_BEAT;
        assert_int_equal(fixture_count(watch, "SELECT cardinality(handlers) FROM node"
                                              " WHERE name = 'node-1'"),
                         count);
        assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node WHERE name = 'node-1'"
                                              " AND 'pay, \"undo\"' = ANY (handlers)"),
                         count == 2);
    }
}

static void beat_is_lost(struct store *store, enum store_beat kind, const struct uuid *instance)
{
    struct store_op op = beat(kind, instance, DEAD_MS);
    fixture_run(store, &op);
    assert_int_equal(op.result, STORE_LOST);
}

static void beat_was(const char *node, const char *ago)
{
    char sql[256];
    (void)snprintf(sql, sizeof sql,
                   "UPDATE node SET heartbeat_at = now() - interval '%s' WHERE name = '%s'", ago,
                   node);
    fixture_exec(watch, sql);
}

/* node-1 and node-2 have joined and live. */
static void both_join(void)
{
    beats(one, STORE_BEAT_JOIN, &fixture_instance, 1, true);
    beats(two, STORE_BEAT_JOIN, &instance_2, 2, true);
}

static struct store_op load_of(const struct uuid *uid, bool take)
{
    return (struct store_op){ .kind = STORE_LOAD_UID, .uid = *uid, .take = take };
}

/* Loads it; is it this node's, and only now? */
static bool loads_mine_taken(struct store *store, const struct uuid *uid, bool take,
                             bool *ret_taken)
{
    struct store_op op = load_of(uid, take);
    fixture_run(store, &op);
    assert_int_equal(op.result, STORE_OK);
    assert_int_equal(op.saga_count, 1);
    bool mine = op.sagas[0].mine;
    *ret_taken = op.taken;
    store_op_done(&op);
    return mine;
}

static bool loads_mine(struct store *store, const struct uuid *uid, bool take)
{
    bool taken;
    return loads_mine_taken(store, uid, take, &taken);
}

/* --- owner and granter ------------------------------------------------------------------------ */

static void assert_granter(struct store *store, const struct uuid *uid, int64_t seq,
                           const char *expected)
{
    struct copy stored;
    copy_load(&stored, store, uid);
    assert_string_equal(saga_entry(stored.saga, seq)->actor, expected);
    copy_done(&stored);
}

/* A lease that ends and nothing else: only the owner's copy is sure to know what follows. */
static void test_a_finish_tells_whose_the_saga_is_where_that_is_asked(void **state)
{
    (void)state;
    struct copy copy;
    copy_new(&copy, "whose", "w/1");
    copy_write(&copy, one, STORE_OK);
    for (int round = 0; round < 3; round++) {
        copy_report(&copy, OUTCOME_RETRY, NULL);
        copy.op.asks_owner = round > 0;
        copy_write(&copy, round == 1 ? two : one, STORE_OK);
        assert_int_equal(copy.op.not_owner, round == 1);
        copy_grant(&copy, "w/1");
        copy_write(&copy, one, STORE_OK);
    }
    copy_done(&copy);
}

/* The four statements that grant: start, grant, finish_grant, phase. */
static void test_a_lease_names_the_process_that_granted_it(void **state)
{
    (void)state;
    static const char by_1[] = "node-1/aabbccddeeff", by_2[] = "node-2/010203040506";
    struct copy copy;
    copy_new(&copy, "granter", "w/1");
    const struct uuid uid = saga_row(copy.saga)->uid;
    copy_write(&copy, one, STORE_OK);
    assert_true(saga_is(&uid, owned_by_1));
    copy_report(&copy, OUTCOME_DONE, "out");
    copy_grant(&copy, "w/1");
    copy_write(&copy, two, STORE_OK);
    copy_report(&copy, OUTCOME_RETRY, NULL);
    copy_write(&copy, two, STORE_OK);
    copy_grant(&copy, "w/1");
    copy_write(&copy, one, STORE_OK);
    copy_report(&copy, OUTCOME_REJECTED, NULL);
    copy_grant(&copy, "w/1");
    assert_true(saga_is(&uid, owned_by_1)); /* to grant is not to own */
    copy_write(&copy, two, STORE_OK);
    assert_int_equal(saga_entry(copy.saga, 4)->kind, ENTRY_COMPENSATE);
    assert_int_equal(saga_entry(copy.saga, 5)->kind, ENTRY_LEASE);
    assert_granter(one, &uid, 1, by_1);
    assert_granter(one, &uid, 2, by_2);
    assert_granter(one, &uid, 3, by_1);
    assert_granter(one, &uid, 5, by_2);
    assert_true(saga_is(&uid, owned_by_2)); /* to turn it back is to own it */
    copy_done(&copy);
    copy_new(&copy, "decision", NULL);
    copy_write(&copy, one, STORE_OK);
    copy_cancel(&copy);
    copy_write(&copy, one, STORE_OK);
    assert_granter(one, &saga_row(copy.saga)->uid, 1, "someone"); /* not the node */
    copy_done(&copy);
}

static void test_own_lists_what_is_open_and_ours(void **state)
{
    (void)state;
    enum { MANY = 20, LIMIT = 7 };
    struct uuid uids[MANY], lost, last = { { 0 } };
    for (int i = 0; i < MANY; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "own-%d", i);
        uids[i] = started(one, id);
    }
    lost = started(one, "own-let-go");
    (void)ended(one, "own-ended");
    (void)started(two, "own-of-the-other");
    lets_go(one, &lost, INT64_MAX, NULL, STORE_OK);
    bool seen[MANY] = { false };
    size_t count = 0, chunks = 0;
    struct store_op op = { .kind = STORE_OWN, .from_start = true, .limit = LIMIT };
    do {
        fixture_run(one, &op);
        assert_int_equal(op.result, STORE_OK);
        for (size_t i = 0; i < op.uid_count; i++) {
            int order = (int)uuid_shard(&op.uids[i]) - (int)uuid_shard(&last);
            assert_true(count == 0 || order > 0 ||
                        (order == 0 && memcmp(&op.uids[i], &last, sizeof last) > 0));
            last = op.uids[i];
            for (int n = 0; n < MANY; n++)
                seen[n] = seen[n] || memcmp(&uids[n], &last, sizeof last) == 0;
            count++;
        }
        chunks++;
        bool more = op.uid_count == LIMIT;
        store_op_done(&op);
        op = (struct store_op){ .kind = STORE_OWN, .after = last, .limit = more ? LIMIT : 0 };
    } while (op.limit);
    assert_int_equal(count, MANY);
    assert_int_equal(chunks, 3);
    for (int n = 0; n < MANY; n++)
        assert_true(seen[n]);
}

/* --- adopting --------------------------------------------------------------------------------- */

static void test_only_the_sagas_of_a_dead_node_are_adopted(void **state)
{
    (void)state;
    both_join();
    struct uuid open = started(one, "dead-open"), own = started(two, "dead-own");
    struct uuid terminal = ended(one, "dead-ended");
    assert_int_equal(adopted(two, DEAD_MS, NULL), 0);
    beat_was("node-1", "9 s");
    assert_int_equal(adopted(two, DEAD_MS, NULL), 0);
    beat_was("node-1", "11 s");
    beat_was("node-2", "11 s"); /* its own are no business of this */
    assert_int_equal(adopted(two, DEAD_MS, NULL), 1);
    assert_true(saga_is(&open, owned_by_2));
    assert_true(saga_is(&own, owned_by_2));
    assert_true(saga_is(&terminal, owned_by_1));
    assert_int_equal(adopted(two, DEAD_MS, NULL), 0);
}

static void test_adoption_goes_in_chunks(void **state)
{
    (void)state;
    enum { MANY = 10 };
    both_join();
    for (int i = 0; i < MANY; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "chunk-%d", i);
        struct uuid uid = started(one, id);
        if (i < 4) /* due, and waits for longest */
            lets_go(one, &uid, 1, "pay.do", STORE_OK);
        else if (i < 7)
            lets_go(one, &uid, INT64_MAX, "pay.do", STORE_OK);
    }
    beat_was("node-1", "1 hour");
    static const char *const handlers[] = { "pay.undo", "pay.do" };
    /* From all three sources together no more than the limit, and no saga counts twice. */
    static const size_t expected[] = { 4, 4, 2, 0 };
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        struct store_op op = adoption(DEAD_MS, 4, handlers, 2);
        fixture_run(two, &op);
        assert_int_equal(op.result, STORE_OK);
        assert_int_equal(op.uid_count, expected[i]);
        for (size_t n = 0; n < op.uid_count; n++)
            assert_true(saga_is(&op.uids[n], owned_by_2));
        store_op_done(&op);
    }
}

static void test_what_was_let_go_is_found_by_its_hints(void **state)
{
    (void)state;
    both_join();
    const int64_t hour_ms = 60 * 60 * 1000;
    int64_t now_ms = clock_wall_ms(&clock_system);
    struct uuid later = started(one, "later"), due = started(one, "due");
    struct uuid waiting = started(one, "waiting"), both = started(one, "both");
    struct uuid parked = started(one, "parked");
    lets_go(one, &later, now_ms + hour_ms, NULL, STORE_OK);
    lets_go(one, &due, now_ms - hour_ms, NULL, STORE_OK);
    lets_go(one, &waiting, INT64_MAX, "pay.do", STORE_OK);
    lets_go(one, &both, now_ms + hour_ms, "pay.do", STORE_OK);
    lets_go(one, &parked, INT64_MAX, NULL, STORE_OK);
    char at[160];
    (void)snprintf(at, sizeof at,
                   "owner IS NULL AND waiting_handler = 'pay.do' AND wake_at = '1970-01-01Z'"
                   "::timestamptz + %" PRId64 " * interval '1 ms'",
                   now_ms + hour_ms);
    assert_true(saga_is(&both, at)); /* to the millisecond */
    assert_true(saga_is(&parked, "wake_at IS NULL AND waiting_handler IS NULL"));
    assert_int_equal(adopted(two, NEVER_DEAD_MS, "pay.undo"), 1);
    assert_true(saga_is(&due, owned_by_2));
    assert_int_equal(adopted(two, NEVER_DEAD_MS, "pay.do"), 2);
    assert_true(saga_is(&waiting, owned_by_2));
    assert_true(saga_is(&both, owned_by_2));
    assert_true(saga_is(&later, "owner IS NULL"));
    assert_true(saga_is(&parked, "owner IS NULL")); /* a call brings it back, nothing else */
    fixture_exec(watch, "UPDATE saga SET wake_at = now() - interval '1 ms'"
                        " WHERE saga_id = 'later'");
    assert_int_equal(adopted(one, NEVER_DEAD_MS, NULL), 1); /* whoever comes */
    assert_true(saga_is(&later, owned_by_1));
}

/* Of many that wait for a handler those that wait longest come first. */
static void test_who_waits_longest_is_adopted_first(void **state)
{
    (void)state;
    struct uuid old = started(one, "old"), young = started(one, "young");
    lets_go(one, &young, INT64_MAX, "pay.do", STORE_OK);
    lets_go(one, &old, INT64_MAX, "pay.do", STORE_OK);
    fixture_exec(watch, "UPDATE saga SET started_at = now() - interval '1 h'"
                        " WHERE saga_id = 'old'");
    static const char *const handlers[] = { "pay.do" };
    struct store_op op = adoption(DEAD_MS, 1, handlers, 1);
    fixture_run(two, &op);
    assert_int_equal(op.uid_count, 1);
    assert_memory_equal(&op.uids[0], &old, sizeof old);
    store_op_done(&op);
}

static void test_adoption_waits_for_no_lock(void **state)
{
    (void)state;
    both_join();
    struct uuid locked = started(one, "locked"), open = started(one, "open");
    struct uuid waits = started(one, "waits"), due = started(one, "due");
    lets_go(one, &waits, INT64_MAX, "pay.do", STORE_OK);
    lets_go(one, &due, 1, NULL, STORE_OK);
    beat_was("node-1", "1 hour");
    fixture_exec(sessions[0].conn, "BEGIN; SELECT FROM saga WHERE saga_id IN ('locked', 'waits',"
                                   " 'due') FOR UPDATE");
    assert_int_equal(adopted(two, DEAD_MS, "pay.do"), 1);
    assert_true(saga_is(&open, owned_by_2));
    fixture_exec(sessions[0].conn, "ROLLBACK");
    assert_int_equal(adopted(two, DEAD_MS, "pay.do"), 3);
    assert_true(saga_is(&locked, owned_by_2));
}

/* While one node adopts, another one gets the rest; what is rolled back is there again. */
static void test_two_that_adopt_share_a_dead_node(void **state)
{
    (void)state;
    enum { MANY = 10 };
    both_join();
    fixture_exec(watch, "INSERT INTO node SELECT 'node-3', gen_random_uuid(), now(), '-infinity'");
    for (int i = 0; i < MANY; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "share-%d", i);
        (void)started(one, id);
    }
    fixture_exec(watch, "UPDATE saga SET owner = 'node-3'");
    struct store_op first = adoption(DEAD_MS, 4, NULL, 0), second = adoption(DEAD_MS, 100, NULL, 0);
    session_send(&sessions[0], &first);
    assert_true(session_take(&sessions[0]));
    assert_int_equal(first.uid_count, 4);
    session_send(&sessions[1], &second);
    assert_true(session_take(&sessions[1])); /* without waiting */
    assert_int_equal(second.uid_count, MANY - 4);
    fixture_exec(sessions[1].conn, "COMMIT");
    fixture_exec(sessions[0].conn, "ROLLBACK");
    assert_int_equal(adopted(two, DEAD_MS, NULL), 4);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM saga WHERE owner = 'node-2'"),
                     MANY);
    store_op_done(&first);
    store_op_done(&second);
}

/* Both at once, chunk by chunk: each saga is told to exactly one of them. */
static void test_each_saga_is_adopted_once(void **state)
{
    (void)state;
    enum { MANY = 200 };
    both_join();
    fixture_exec(watch, "INSERT INTO node SELECT 'node-3', gen_random_uuid(), now(), '-infinity'");
    static struct copy copies[MANY];
    for (int i = 0; i < MANY; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "once-%d", i);
        copy_new(&copies[i], id, NULL);
        if (i > 0)
            copies[i - 1].op.next = &copies[i].op;
    }
    fixture_run(one, &copies[0].op);
    fixture_exec(watch, "UPDATE saga SET owner = 'node-3'");
    struct store *const stores[] = { one, two };
    size_t told[2] = { 0, 0 };
    for (bool any = true; any;) {
        struct store_op ops[2];
        any = false;
        for (int i = 0; i < 2; i++) {
            ops[i] = adoption(DEAD_MS, 7, NULL, 0);
            stores[i]->ops->submit(stores[i], &ops[i]);
        }
        for (int i = 0; i < 2; i++) {
            fixture_pump(stores[i]);
            assert_int_equal(ops[i].result, STORE_OK);
            for (size_t n = 0; n < ops[i].uid_count; n++)
                assert_true(saga_is(&ops[i].uids[n], i ? owned_by_2 : owned_by_1));
            told[i] += ops[i].uid_count;
            any = any || ops[i].uid_count > 0;
            store_op_done(&ops[i]);
        }
    }
    assert_int_equal(told[0] + told[1], MANY);
    assert_true(told[0] > 0 && told[1] > 0);
    for (int i = 0; i < MANY; i++)
        copy_done(&copies[i]);
}

/* --- letting go and taking -------------------------------------------------------------------- */

static void test_only_the_owner_lets_go(void **state)
{
    (void)state;
    struct uuid mine = started(one, "mine"), other = started(two, "other");
    struct uuid terminal = ended(one, "terminal"), nobody = { { 9 } };
    struct store_op ops[] = { let_go(&other, 1, NULL), let_go(&mine, INT64_MAX, "pay.do"),
                              let_go(&terminal, 1, NULL), let_go(&nobody, 1, NULL) };
    for (size_t i = 0; i + 1 < ARRAY_LEN(ops); i++)
        ops[i].next = &ops[i + 1];
    fixture_run(one, ops);
    assert_int_equal(ops[0].result, STORE_LOST);
    assert_int_equal(ops[1].result, STORE_OK);
    assert_true(ops[1].now_ms > 0);
    assert_int_equal(ops[2].result, STORE_LOST);
    assert_int_equal(ops[3].result, STORE_LOST);
    assert_true(saga_is(&other, owned_by_2));
    assert_true(saga_is(&mine, "owner IS NULL AND wake_at IS NULL AND waiting_handler = 'pay.do'"));
    assert_true(saga_is(&terminal, owned_by_1));
    lets_go(one, &mine, 1, NULL, STORE_LOST); /* once */
    assert_true(saga_is(&mine, "wake_at IS NULL"));
}

static void test_a_load_takes_what_is_open(void **state)
{
    (void)state;
    struct uuid mine = started(one, "mine"), other = started(two, "other");
    struct uuid gone = started(two, "gone"), terminal = ended(two, "terminal");
    lets_go(two, &gone, 1, "pay.do", STORE_OK);
    assert_true(loads_mine(one, &mine, false));
    assert_false(loads_mine(one, &other, false)); /* looking is not taking */
    assert_false(loads_mine(one, &gone, false));
    assert_true(saga_is(&other, owned_by_2));
    assert_true(saga_is(&gone, "owner IS NULL AND wake_at IS NOT NULL"));
    static const char rewritten[] = "SELECT count(*) FROM saga WHERE saga_id = 'mine'"
                                    " AND ctid <> '(0,1)'";
    bool taken;
    assert_true(loads_mine_taken(one, &mine, true, &taken) && !taken);
    assert_int_equal(fixture_count(watch, rewritten), 0); /* ours already: nothing is written */
    assert_true(loads_mine_taken(one, &other, true, &taken) && taken);
    assert_true(loads_mine_taken(one, &gone, true, &taken) && taken);
    assert_true(!loads_mine_taken(one, &terminal, true, &taken) && !taken);
    assert_true(loads_mine_taken(one, &other, true, &taken) && !taken); /* once */
    assert_true(saga_is(&other, owned_by_1));
    assert_true(saga_is(&gone, owned_by_1));
    assert_true(saga_is(&terminal, owned_by_2));
    assert_false(loads_mine(two, &other, false));
    struct uuid nobody = { { 9 } };
    struct store_op op = load_of(&nobody, true);
    fixture_run(one, &op);
    assert_int_equal(op.result, STORE_NOT_FOUND);
}

/* Taken and loaded among other operations, some of one saga; the load sees what the batch wrote. */
static void test_taking_in_a_batch(void **state)
{
    (void)state;
    struct copy copy;
    copy_new(&copy, "moving", "w/1");
    copy_write(&copy, two, STORE_OK);
    copy_report(&copy, OUTCOME_DONE, "out");
    struct uuid other = started(two, "other");
    struct store_op ops[] = { load_of(&saga_row(copy.saga)->uid, true), load_of(&other, true),
                              load_of(&other, false), load_of(&other, true) };
    for (size_t i = 0; i + 1 < ARRAY_LEN(ops); i++)
        ops[i].next = &ops[i + 1];
    copy.op.next = ops;
    fixture_run(one, &copy.op);
    copy_expect(&copy, STORE_OK);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        assert_int_equal(ops[i].result, STORE_OK);
        assert_true(ops[i].sagas[0].mine);
    }
    assert_int_equal(ops[0].sagas[0].entries[0].outcome, OUTCOME_DONE);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        store_op_done(&ops[i]);
    copy_done(&copy);
}

static void test_a_locked_saga_is_not_taken_and_holds_up_no_other(void **state)
{
    (void)state;
    enum { MANY = 20, LOCKED = 11 };
    struct uuid uids[MANY];
    struct store_op ops[MANY];
    for (int i = 0; i < MANY; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "take-%d", i);
        uids[i] = started(two, id);
    }
    for (int i = 0; i < MANY; i++) {
        ops[i] = load_of(&uids[i], true);
        ops[i].next = i + 1 < MANY ? &ops[i + 1] : NULL;
    }
    fixture_exec(sessions[1].conn, "BEGIN; SELECT FROM saga WHERE saga_id = 'take-11' FOR UPDATE");
    int64_t before_ms = clock_mono_ms(&clock_system);
    fixture_run(one, ops);
    assert_in_range(clock_mono_ms(&clock_system) - before_ms, LOCK_TIMEOUT_MS, 1000);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ops[i].result, i == LOCKED ? STORE_FAILED : STORE_OK);
        assert_true(i == LOCKED || ops[i].sagas[0].mine);
    }
    assert_int_equal(ops[LOCKED].saga_count, 0);
    assert_true(ops[LOCKED].err.retryable);
    fixture_exec(sessions[1].conn, "ROLLBACK");
    for (int i = 0; i < MANY; i++)
        store_op_done(&ops[i]);
    assert_true(loads_mine(one, &uids[LOCKED], true));
}

/* Hints are of the state that they were made for. */
static void test_only_a_saga_in_the_same_state_is_let_go(void **state)
{
    (void)state;
    struct uuid uid = started(one, "turned");
    struct store_op op = let_go(&uid, 1, NULL);
    fixture_exec(watch, "UPDATE saga SET state = 'PARKED', phase = 'COMPENSATING'");
    for (int i = 0; i < 4; i++) {
        op.next = NULL;
        op.state = i & 1 ? SAGA_PARKED : SAGA_RUNNING;
        op.phase = i & 2 ? SAGA_COMPENSATING : SAGA_RUNNING;
        fixture_run(one, &op);
        assert_int_equal(op.result, i == 3 ? STORE_OK : STORE_LOST);
        assert_int_equal(saga_is(&uid, "owner IS NULL"), i == 3);
    }
}

/* Whoever comes second waits and then finds what the first one left. */
static void let_go_against_take(bool let_go_first, bool commit)
{
    char id[32];
    (void)snprintf(id, sizeof id, "against-%d-%d", let_go_first, commit);
    struct uuid uid = started(one, id);
    struct store_op leaving = let_go(&uid, 1, "pay.do"), taking = load_of(&uid, true);
    struct session *first = &sessions[let_go_first ? 0 : 1];
    struct session *second = &sessions[let_go_first ? 1 : 0];
    session_send(first, let_go_first ? &leaving : &taking);
    assert_true(session_take(first));
    session_send(second, let_go_first ? &taking : &leaving);
    session_wait_blocked(second, watch);
    fixture_exec(first->conn, commit ? "COMMIT" : "ROLLBACK");
    bool second_did = session_take(second);
    fixture_exec(second->conn, "COMMIT");
    /* A take comes through in any case; letting go needs that the saga is still ours. */
    assert_int_equal(second_did, let_go_first || !commit);
    if (let_go_first || commit)
        assert_true(saga_is(&uid, owned_by_2));
    else
        assert_true(saga_is(&uid, "owner IS NULL AND waiting_handler = 'pay.do'"));
}

static void test_letting_go_and_taking_exclude_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        let_go_against_take(i & 1, i & 2);
}

/* --- heartbeats ------------------------------------------------------------------------------- */

static void test_nodes_count_each_other(void **state)
{
    (void)state;
    beats(one, STORE_BEAT_JOIN, &fixture_instance, 1, true); /* nobody of this name was there */
    beats(one, STORE_BEAT, &fixture_instance, 1, false);
    beats(two, STORE_BEAT_JOIN, &instance_2, 2, true);
    beats(one, STORE_BEAT, &fixture_instance, 2, false);
    beat_was("node-2", "9 s");
    beats(one, STORE_BEAT, &fixture_instance, 2, false);
    beat_was("node-2", "11 s");
    beats(one, STORE_BEAT, &fixture_instance, 1, false);
    beats(two, STORE_BEAT, &instance_2, 2, true); /* it was taken for dead */
    beats(two, STORE_BEAT, &instance_2, 2, false);
}

static void test_a_heartbeat_is_the_databases_time(void **state)
{
    (void)state;
    both_join();
    beat_was("node-1", "1 s");
    fixture_exec(watch, "UPDATE node SET joined_at = now() - interval '1 day'");
    beats(one, STORE_BEAT, &fixture_instance, 2, false);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node WHERE name = 'node-1' AND"
                                          " now() - heartbeat_at < interval '1 s' AND heartbeat_at"
                                          " <= now() AND now() - joined_at > interval '1 hour'"),
                     1);
    beats(one, STORE_BEAT_JOIN, &fixture_instance, 2, false);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node WHERE name = 'node-1' AND"
                                          " now() - joined_at < interval '1 hour'"),
                     1);
}

/* Another process has joined under the name: the earlier one learns it and changes nothing. */
static void test_a_name_belongs_to_the_last_that_joined(void **state)
{
    (void)state;
    both_join();
    beats(one, STORE_BEAT_JOIN, &instance_2, 2, false); /* the same name, another process */
    beat_was("node-1", "3 s");
    beat_is_lost(one, STORE_BEAT, &fixture_instance);
    beat_is_lost(one, STORE_BEAT_LEAVE, &fixture_instance);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node WHERE name = 'node-1' AND"
                                          " now() - heartbeat_at BETWEEN interval '3 s' AND"
                                          " interval '9 s'"),
                     1);
    beats(one, STORE_BEAT, &instance_2, 2, false);
    beats(one, STORE_BEAT_JOIN, &fixture_instance, 2, false); /* and back */
    beat_is_lost(one, STORE_BEAT, &instance_2);
}

static void test_what_a_node_leaves_is_adopted_at_once(void **state)
{
    (void)state;
    both_join();
    struct uuid uid = started(one, "left");
    assert_int_equal(adopted(two, NEVER_DEAD_MS, NULL), 0);
    beats(one, STORE_BEAT_LEAVE, &fixture_instance, 1, false);
    assert_int_equal(adopted(two, NEVER_DEAD_MS, NULL), 1);
    assert_true(saga_is(&uid, owned_by_2));
    beats(two, STORE_BEAT, &instance_2, 1, false);
    beats(one, STORE_BEAT_JOIN, &fixture_instance, 2, true); /* and is back */
    assert_int_equal(adopted(two, NEVER_DEAD_MS, NULL), 0);
}

static void test_a_node_whose_row_is_gone_is_there_again(void **state)
{
    (void)state;
    both_join();
    fixture_exec(watch, "DELETE FROM node WHERE name = 'node-1'");
    beats(one, STORE_BEAT, &fixture_instance, 2, true);
    fixture_exec(watch, "DELETE FROM node WHERE name = 'node-1'");
    beats(one, STORE_BEAT_LEAVE, &fixture_instance, 1, true);
    beats(two, STORE_BEAT, &instance_2, 1, false);
}

static void test_who_joins_cleans_up(void **state)
{
    (void)state;
    fixture_exec(watch, "INSERT INTO node SELECT n, gen_random_uuid(), now(), t FROM (VALUES"
                        " ('gone', now() - interval '25 h'), ('left', '-infinity'),"
                        " ('dead', now() - interval '23 h'), ('owns', now() - interval '25 h'))"
                        " AS v (n, t)");
    struct uuid uid = started(one, "owned");
    fixture_exec(watch, "UPDATE saga SET owner = 'owns'");
    beats(two, STORE_BEAT_JOIN, &instance_2, 1, true);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node"), 3);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node WHERE name IN ('dead',"
                                          " 'owns', 'node-2')"),
                     3);
    assert_int_equal(adopted(two, DEAD_MS, NULL), 1); /* so nothing is forgotten */
    assert_true(saga_is(&uid, owned_by_2));
    fixture_exec(watch, "UPDATE node SET heartbeat_at = now() - interval '25 h'");
    beats(two, STORE_BEAT, &instance_2, 1, true); /* a beat leaves that to who joins */
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node"), 3);
    beats(two, STORE_BEAT_JOIN, &instance_2, 1, false);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node"), 1);
}

/* The heartbeat's transaction began while the node was not yet dead; then it dies and is adopted;
 * the heartbeat arrives after all. It must be told. */
static void test_a_node_that_is_being_adopted_learns_it(void **state)
{
    (void)state;
    both_join();
    (void)started(two, "adopted");
    beat_was("node-2", "9700 ms");
    struct store_op late = beat(STORE_BEAT, &instance_2, DEAD_MS);
    struct store_op op = adoption(DEAD_MS, 10, NULL, 0);
    fixture_exec(sessions[1].conn, "BEGIN; SELECT now()");
    for (int i = 0; op.uid_count == 0; i++) { /* until its 10 s are over */
        assert_true(i < 1000);
        session_send(&sessions[0], &op);
        assert_true(session_take(&sessions[0]));
        if (op.uid_count == 0)
            fixture_exec(sessions[0].conn, "COMMIT; SELECT pg_sleep(0.01)");
    }
    session_send(&sessions[1], &late);
    session_wait_blocked(&sessions[1], watch);
    fixture_exec(sessions[0].conn, "COMMIT");
    assert_true(session_take(&sessions[1]));
    fixture_exec(sessions[1].conn, "COMMIT");
    assert_true(late.was_dead);
    store_op_done(&op);
}

/* --- crash points, lost connections, keys, the migration ---------------------------------------
 */

static int hits;

/* Waits until this finds a session, and ends it. */
static void end_session(const char *condition)
{
    char sql[512];
    (void)snprintf(sql, sizeof sql,
                   "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                   " WHERE %s) s",
                   condition);
    for (int i = 0; fixture_count(watch, sql) == 0; i++) {
        assert_true(i < 1000);
        fixture_exec(watch, "SELECT pg_sleep(0.01)");
    }
}

/* The server has run it and waits for what comes next; nobody else sees it or gets the row. */
static void at_adoption(const char *point)
{
    static const char condition[] =
        "state = 'active' AND wait_event = 'ClientRead' AND pid IN (SELECT pid FROM pg_locks"
        " WHERE relation = 'saga'::regclass AND mode = 'RowExclusiveLock')";
    if (strcmp(point, "inside_adoption") != 0)
        return;
    hits++;
    char sql[512];
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM pg_stat_activity WHERE %s", condition);
    for (int i = 0; fixture_count(watch, sql) == 0; i++) {
        assert_true(i < 1000);
        fixture_exec(watch, "SELECT pg_sleep(0.01)");
    }
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM saga WHERE owner = 'node-1'"), 1);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM (SELECT FROM saga"
                                          " FOR UPDATE SKIP LOCKED) s"),
                     0);
    end_session(condition);
}

static void test_an_adoption_that_dies_inside_has_adopted_nothing(void **state)
{
    (void)state;
    both_join();
    struct uuid uid = started(one, "inside");
    beat_was("node-1", "1 hour");
    uint64_t before = two->ops->generation(two);
    struct store_op op = adoption(DEAD_MS, 10, NULL, 0);
    hits = 0;
    fault_hook = at_adoption;
    fixture_run(two, &op);
    fault_hook = NULL;
    assert_int_equal(hits, 1);
    assert_true(op.result == STORE_UNKNOWN || op.result == STORE_FAILED);
    assert_null(op.uids);
    assert_true(saga_is(&uid, owned_by_1));
    fixture_wait_ready(two, before);
    assert_int_equal(adopted(two, DEAD_MS, NULL), 1);
}

/* The session dies while they wait for locks behind a COMMIT that was sent. */
static void test_what_a_lost_connection_leaves(void **state)
{
    (void)state;
    both_join();
    struct uuid uid = started(one, "lost");
    uint64_t before = two->ops->generation(two);
    struct store_op take = load_of(&uid, true), alive = beat(STORE_BEAT, &instance_2, DEAD_MS);
    struct store_op adopt = adoption(DEAD_MS, 10, NULL, 0), leave = let_go(&uid, 1, NULL);
    take.next = &alive;
    alive.next = &adopt;
    adopt.next = &leave;
    fixture_exec(sessions[0].conn, "BEGIN; SELECT FROM saga FOR UPDATE");
    two->ops->submit(two, &take);
    end_session("wait_event_type = 'Lock'");
    fixture_pump(two);
    assert_int_equal(take.result, STORE_FAILED); /* a load can always be repeated */
    assert_true(take.err.retryable);
    assert_int_equal(alive.result, STORE_UNKNOWN);
    assert_int_equal(adopt.result, STORE_UNKNOWN);
    assert_int_equal(leave.result, STORE_UNKNOWN);
    fixture_exec(sessions[0].conn, "ROLLBACK");
    fixture_wait_ready(two, before);
}

/* An id of the shard of this one, and behind it in the order of keys. */
static void id_behind(const char *first, char ret[32])
{
    int i = 0;
    do
        (void)snprintf(ret, 32, "other-%d", i++);
    while (store_shard("test", "pay", first) != store_shard("test", "pay", ret));
}

/* Two nodes start the same keys, each with uids in another order. The statement goes by key: it
 * has not inserted the second one while it waits for the first, so nobody waits in a circle. */
static void test_starts_take_keys_in_their_own_order(void **state)
{
    (void)state;
    static const char first[] = "first";
    char second[32], sql[256];
    id_behind(first, second);
    struct copy a, b;
    copy_new(&b, second, NULL);
    for (bool in_order = false; !in_order;) { /* its uid is behind the other one's */
        copy_new(&a, first, NULL);
        in_order = memcmp(&saga_row(a.saga)->uid, &saga_row(b.saga)->uid, 16) > 0;
        if (!in_order)
            copy_done(&a);
    }
    a.op.next = &b.op;
    static const char insert[] = "INSERT INTO saga_key SELECT %d, 'test', 'pay', '%s',"
                                 " gen_random_uuid(), 1, sha256('')";
    fixture_exec(sessions[0].conn, "BEGIN");
    (void)snprintf(sql, sizeof sql, insert, store_shard("test", "pay", first), first);
    fixture_exec(sessions[0].conn, sql);
    one->ops->submit(one, &a.op);
    for (int i = 0; fixture_count(watch, "SELECT count(*) FROM pg_stat_activity"
                                         " WHERE wait_event_type = 'Lock'") == 0;
         i++) {
        assert_true(i < 1000);
        fixture_exec(watch, "SELECT pg_sleep(0.002)");
    }
    (void)snprintf(sql, sizeof sql, insert, store_shard("test", "pay", second), second);
    fixture_exec(sessions[0].conn, "SET lock_timeout = 20");
    fixture_exec(sessions[0].conn, sql); /* had it been inserted, this would wait in vain */
    fixture_exec(sessions[0].conn, "ROLLBACK");
    fixture_pump(one);
    copy_expect(&a, STORE_OK);
    copy_expect(&b, STORE_OK);
    copy_done(&a);
    copy_done(&b);
}

static void at_migration(const char *point)
{
    if (strcmp(point, "inside_migration") != 0)
        return;
    hits++;
    end_session("application_name = 'sagad' AND state = 'idle in transaction'");
}

/* A database of the schema before: its owners become nodes, so that their sagas can be adopted. A
 * migration that dies inside has done nothing. */
static void test_the_migration_knows_the_owners(void **state)
{
    (void)state;
    struct err err;
    struct uuid uid = started(one, "before");
    (void)ended(two, "ended-before");
    fixture_exec(watch,
                 "DROP VIEW IF EXISTS saga_effect;"
                 "DO $$ DECLARE later text; BEGIN FOR later IN SELECT tablename FROM pg_tables"
                 " WHERE schemaname = 'sagad' AND tablename NOT IN ('schema_migrations', 'saga',"
                 " 'saga_key', 'journal', 'late_report', 'definition', 'definition_revision')"
                 " LOOP EXECUTE 'DROP TABLE sagad.' || later; END LOOP; END $$;"
                 "DROP INDEX saga_owner, saga_wake, saga_waiting, saga_doubt, saga_key_forget,"
                 " saga_parked, saga_related;"
                 "ALTER TABLE saga_key DROP COLUMN purged_at, DROP COLUMN archive;"
                 "CREATE INDEX saga_open ON saga (shard, saga_uid)"
                 " WHERE state IN ('RUNNING', 'COMPENSATING', 'PARKED');"
                 "ALTER TABLE definition_revision DROP COLUMN descriptors;"
                 "ALTER TABLE definition DROP COLUMN last_revision, DROP COLUMN paused_at,"
                 " DROP COLUMN paused_by, DROP COLUMN pause_reason;"
                 "ALTER TABLE journal DROP COLUMN signal_id, DROP COLUMN held_ms,"
                 " DROP COLUMN asked_at;"
                 "ALTER TABLE saga DROP COLUMN start_at;"
                 "DELETE FROM schema_migrations WHERE version > 1");
    hits = 0;
    fault_hook = at_migration;
    assert_int_not_equal(store_migrate(conninfo, &err), 0);
    fault_hook = NULL;
    assert_int_equal(hits, 1);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM schema_migrations"), 1);
    ASSERT_OK(store_migrate(conninfo, &err), &err);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node WHERE name = 'node-1'"), 1);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM node"), 1);
    assert_int_equal(adopted(two, DEAD_MS, NULL), 0); /* it may live: time enough to join */
    beat_was("node-1", "11 s");
    assert_int_equal(adopted(two, DEAD_MS, NULL), 1);
    assert_true(saga_is(&uid, owned_by_2));
}

#define NODE_TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(test_a_finish_tells_whose_the_saga_is_where_that_is_asked),
        NODE_TEST(test_a_lease_names_the_process_that_granted_it),
        NODE_TEST(test_own_lists_what_is_open_and_ours),
        NODE_TEST(test_only_the_sagas_of_a_dead_node_are_adopted),
        NODE_TEST(test_adoption_goes_in_chunks),
        NODE_TEST(test_what_was_let_go_is_found_by_its_hints),
        NODE_TEST(test_who_waits_longest_is_adopted_first),
        NODE_TEST(test_adoption_waits_for_no_lock),
        NODE_TEST(test_two_that_adopt_share_a_dead_node),
        NODE_TEST(test_each_saga_is_adopted_once),
        NODE_TEST(test_only_the_owner_lets_go),
        NODE_TEST(test_only_a_saga_in_the_same_state_is_let_go),
        NODE_TEST(test_a_load_takes_what_is_open),
        NODE_TEST(test_taking_in_a_batch),
        NODE_TEST(test_a_locked_saga_is_not_taken_and_holds_up_no_other),
        NODE_TEST(test_letting_go_and_taking_exclude_each_other),
        NODE_TEST(test_a_heartbeat_tells_what_is_served),
        NODE_TEST(test_nodes_count_each_other),
        NODE_TEST(test_a_heartbeat_is_the_databases_time),
        NODE_TEST(test_a_name_belongs_to_the_last_that_joined),
        NODE_TEST(test_what_a_node_leaves_is_adopted_at_once),
        NODE_TEST(test_a_node_whose_row_is_gone_is_there_again),
        NODE_TEST(test_who_joins_cleans_up),
        NODE_TEST(test_a_node_that_is_being_adopted_learns_it),
        NODE_TEST(test_an_adoption_that_dies_inside_has_adopted_nothing),
        NODE_TEST(test_what_a_lost_connection_leaves),
        NODE_TEST(test_starts_take_keys_in_their_own_order),
        NODE_TEST(test_the_migration_knows_the_owners),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
