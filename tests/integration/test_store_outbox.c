/* Goal: what a relay is given is the first event of each saga and handler in its slices, all of
 * them in turn, and nothing of others' slices; what is published goes, what is refused waits and
 * holds up its own saga or handler alone; relays share the slices, and a dead one's are taken over.
 * Method: store/outbox.h on PostgreSQL, on rows that the store wrote and on many made ones. */
#include "store_fixture.h"

#include "support/wait.h"

#include "store/outbox.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALL = 0xffff, LIMIT = 64, TTL_MS = 60000 };

static struct test_postgres *postgres;
static char conninfo[POSTGRES_CONNINFO_SIZE];
static struct store *store;
static PGconn *watch;

static int group_setup(void **state)
{
    (void)state;
    struct err err;
    static const char *const settings[] = { "wal_keep_size=1GB", NULL };
    SETUP_OK(test_postgres_start(settings, &postgres, &err), &err);
    fixture_database(postgres, "outbox", conninfo);
    store = fixture_store(conninfo);
    watch = fixture_connect(conninfo);
    fixture_publish(PUBLISH_TRANSITIONS);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    PQfinish(watch);
    store = store_pg_free(store);
    postgres = test_postgres_free(postgres);
    return 0;
}

static int each_setup(void **state)
{
    (void)state;
    fixture_exec(watch, "TRUNCATE outbox, journal, saga, saga_key, outbox_relay, handler,"
                        " handler_event, handler_hold, handler_node;"
                        "UPDATE outbox_slice SET instance = NULL, until = '-infinity'");
    return 0;
}

static struct store_outbox *relay(uint8_t number)
{
    struct err err;
    struct store_outbox *outbox;
    char node[16];
    (void)snprintf(node, sizeof node, "node-%d", number);
    const struct store_outbox_options options = {
        .conninfo = conninfo, .node = node, .instance = { { number } }, .wake_fd = -1
    };
    ASSERT_OK(store_outbox_new(&options, &outbox, &err), &err);
    return outbox;
}

/* --- slices ----------------------------------------------------------------------------------- */

static uint16_t claim(struct store_outbox *outbox, int64_t ttl_ms, uint16_t give)
{
    struct err err;
    uint16_t slices;
    int share;
    const struct store_outbox_claim what = { .ttl_ms = ttl_ms, .give = give };
    ASSERT_OK(store_outbox_claim(outbox, &what, &slices, &share, &err), &err);
    return slices;
}

/* It has too many, and gives the last ones away. */
static uint16_t claim_share(struct store_outbox *outbox, int expected)
{
    struct err err;
    uint16_t slices;
    int share;
    const struct store_outbox_claim what = { .ttl_ms = TTL_MS };
    ASSERT_OK(store_outbox_claim(outbox, &what, &slices, &share, &err), &err);
    assert_int_equal(share, expected);
    uint16_t give = slices;
    for (int kept = 0; kept < share && give; kept++)
        give = (uint16_t)(give & (give - 1U));
    return claim(outbox, TTL_MS, give);
}

static void test_relays_share_the_slices(void **state)
{
    (void)state;
    struct err err;
    struct store_outbox *a = relay(1), *b = relay(2), *c = relay(3);
    assert_int_equal(claim(a, TTL_MS, 0), ALL);
    assert_int_equal(claim(b, TTL_MS, 0), 0); /* none is free */
    assert_int_equal(claim(a, TTL_MS, 0), ALL);
    uint16_t of_a = claim_share(a, 8), of_b = claim(b, TTL_MS, 0);
    assert_int_equal(__builtin_popcount(of_a), 8);
    assert_int_equal(of_a ^ of_b, ALL);
    assert_int_equal(claim(c, TTL_MS, 0), 0);
    of_a = claim_share(a, 6);
    of_b = claim_share(b, 6);
    uint16_t of_c = claim(c, TTL_MS, 0);
    assert_int_equal(of_a | of_b | of_c, ALL);
    assert_int_equal(of_a & of_b, 0);
    assert_int_equal((of_a | of_b) & of_c, 0);
    assert_int_equal(__builtin_popcount(of_c), 4);
    /* an ordered end: free at once */
    ASSERT_OK(store_outbox_leave(b, &err), &err);
    ASSERT_OK(store_outbox_leave(c, &err), &err);
    assert_int_equal(claim(a, TTL_MS, 0), ALL);
    (void)store_outbox_free(a); /* always NULL */
    (void)store_outbox_free(b);
    (void)store_outbox_free(c);
}

static bool has_all(void *ctx)
{
    return claim(ctx, TTL_MS, 0) == ALL;
}

static void test_slices_of_a_dead_relay_are_taken_when_their_time_is_over(void **state)
{
    (void)state;
    struct store_outbox *dead = relay(1), *other = relay(2);
    assert_int_equal(claim(dead, 400, 0), ALL);
    assert_int_equal(claim(other, TTL_MS, 0), 0);
    assert_true(wait_until(has_all, other, 10000));
    assert_int_equal(claim(dead, TTL_MS, 0), 0); /* it was too late */
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox_relay"), 2);
    (void)store_outbox_free(dead); /* always NULL */
    (void)store_outbox_free(other);
}

/* The same node in another process: it need not wait for what it had itself. */
static void test_a_node_that_comes_back_has_its_slices_at_once(void **state)
{
    (void)state;
    struct err err;
    struct store_outbox *dead = relay(1), *again, *other = relay(2);
    const struct store_outbox_options options = {
        .conninfo = conninfo, .node = "node-1", .instance = { { 7 } }, .wake_fd = -1
    };
    assert_int_equal(claim(dead, TTL_MS, 0), ALL);
    assert_int_equal(claim(dead, TTL_MS, 0xff00), 0x00ff);
    assert_int_equal(claim(other, TTL_MS, 0), 0xff00);
    ASSERT_OK(store_outbox_new(&options, &again, &err), &err);
    assert_int_equal(claim(again, TTL_MS, 0), 0x00ff);
    assert_int_equal(claim(dead, TTL_MS, 0), 0); /* it does not take them back */
    assert_int_equal(claim(again, TTL_MS, 0), 0x00ff);
    (void)store_outbox_free(dead); /* always NULL */
    (void)store_outbox_free(again);
    (void)store_outbox_free(other);
}

static void test_a_relay_says_how_it_does(void **state)
{
    (void)state;
    struct err err;
    uint16_t slices;
    int share;
    struct store_outbox *outbox = relay(9);
    struct store_outbox_claim what = {
        .ttl_ms = TTL_MS, .published = 7, .refused = 2, .problem = "no broker"
    };
    ASSERT_OK(store_outbox_claim(outbox, &what, &slices, &share, &err), &err);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox_relay WHERE published = 7"
                                          " AND refused = 2 AND problem = 'no broker'"
                                          " AND node = 'node-9'"),
                     1);
    what.problem = NULL;
    ASSERT_OK(store_outbox_claim(outbox, &what, &slices, &share, &err), &err);
    assert_int_equal(
        fixture_count(watch, "SELECT count(*) FROM outbox_relay WHERE problem IS NULL"), 1);
    (void)store_outbox_free(outbox); /* always NULL */
}

/* --- events ----------------------------------------------------------------------------------- */

struct page {
    struct store_event events[LIMIT];
    size_t count;
    bool more;
    struct store_outbox_cursor cursors[OUTBOX_SLICES];
};

static void page_done(struct page *page)
{
    while (page->count > 0)
        store_event_done(&page->events[--page->count]);
}

static void page_read(struct store_outbox *outbox, uint16_t slices, struct page *page)
{
    struct err err;
    page_done(page);
    ASSERT_OK(store_outbox_page(outbox, slices, LIMIT, page->cursors, page->events, &page->count,
                                &page->more, &err),
              &err);
}

/* One saga alone: its events one after the other, each the first of what is left. */
static void next_is(struct store_outbox *outbox, int64_t seq, enum store_event_part part)
{
    struct err err;
    struct page page = { 0 };
    page_read(outbox, ALL, &page);
    assert_int_equal(page.count, 1);
    assert_false(page.more);
    const struct store_event *event = &page.events[0];
    assert_null(event->fault);
    assert_true(event->due);
    assert_int_equal(event->id.seq, seq);
    assert_int_equal(event->id.part, part);
    assert_string_equal(event->saga.namespace_, "test");
    assert_string_equal(event->saga.definition, "pay");
    assert_string_equal(event->saga.saga_id, "one");
    assert_string_equal(event->saga.labels, "{\"color\": \"blue\"}");
    assert_int_equal(event->saga.run, 1);
    assert_true(event->time_ms >= event->saga.started_at_ms);
    if (part == STORE_EVENT_ENTRY) {
        assert_int_equal(event->entry.seq, seq);
        assert_int_equal(event->entry.finished_at_ms, event->time_ms);
        assert_null(event->entry.output.data);
        assert_string_equal(event->step, seq == 1 ? "debit" : seq == 4 ? "risk" : "ledger");
    }
    if (part == STORE_EVENT_END)
        assert_int_equal(event->saga.state, SAGA_SUCCEEDED);
    ASSERT_OK(store_outbox_published(outbox, &event->id, 1, &err), &err);
    page_done(&page);
}

static void write_one(const char *id)
{
    struct copy copy;
    copy_new(&copy, id, "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_DONE, "out");
    copy_grant(&copy, "w/1");
    copy_write(&copy, store, STORE_OK);
    copy_report(&copy, OUTCOME_RETRY, NULL);
    copy_write(&copy, store, STORE_OK);
    for (int i = 0; i < 2; i++) {
        copy_grant(&copy, "w/1");
        copy_write(&copy, store, STORE_OK);
        copy_report(&copy, OUTCOME_DONE, "out");
        copy_write(&copy, store, STORE_OK);
    }
    assert_int_equal(saga_row(copy.saga)->state, SAGA_SUCCEEDED);
    copy_done(&copy);
}

static void test_events_of_a_saga_come_in_their_order(void **state)
{
    (void)state;
    struct store_outbox *outbox = relay(1);
    write_one("one");
    next_is(outbox, 0, STORE_EVENT_START);
    for (int seq = 1; seq <= 4; seq++)
        next_is(outbox, seq, STORE_EVENT_ENTRY);
    next_is(outbox, 4, STORE_EVENT_END);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox"), 0);
    (void)store_outbox_free(outbox); /* always NULL */
}

/* The order of things that happened, not of their positions: leases overtake each other. */
static void test_what_happened_first_comes_first(void **state)
{
    (void)state;
    struct store_outbox *outbox = relay(1);
    write_one("one");
    fixture_exec(watch, "UPDATE outbox SET created_at = created_at - interval '1 s' WHERE seq = 3;"
                        "UPDATE journal SET finished_at = finished_at - interval '1 s'"
                        " WHERE seq = 3;"
                        "UPDATE outbox SET created_at = created_at - interval '1 h' WHERE part = 2;"
                        "UPDATE outbox SET created_at = created_at + interval '1 h' WHERE part = 0;"
                        "UPDATE saga SET started_at = started_at - interval '2 h'");
    next_is(outbox, 0, STORE_EVENT_START); /* whatever the clock did: nothing was before it */
    next_is(outbox, 3, STORE_EVENT_ENTRY);
    next_is(outbox, 1, STORE_EVENT_ENTRY);
    next_is(outbox, 2, STORE_EVENT_ENTRY);
    next_is(outbox, 4, STORE_EVENT_ENTRY);
    next_is(outbox, 4, STORE_EVENT_END);
    (void)store_outbox_free(outbox); /* always NULL */
}

static void make_many(void)
{
    fixture_exec(
        watch,
        "CREATE TEMP TABLE IF NOT EXISTS n AS SELECT i, (i % 256)::smallint AS shard,"
        " ('018f0000-0000-7000-8000-' || lpad(to_hex(i), 10, '0') || lpad(to_hex(i % 256), 2, '0'))"
        "::uuid AS uid FROM generate_series(1, 2000) i;"
        "INSERT INTO saga (shard, saga_uid, namespace, definition, revision, saga_id, run, state,"
        " phase, doubt, started_at, updated_at) SELECT shard, uid, 'test', 'pay', 1, 'k' || i, 1,"
        " 'RUNNING', 'RUNNING', false, now(), now() FROM n;"
        "INSERT INTO journal (shard, saga_uid, seq, fence, kind, step, step_index, operation, try,"
        " worker, leased_at, outcome, finished_at) SELECT shard, uid, 1, 1, 'LEASE', 'debit', 0,"
        " 'ACTION', 1, 'w/1', now(), 'DONE', now() FROM n;"
        "INSERT INTO outbox SELECT shard, uid, p, p, now() FROM n, generate_series(0, 1) p");
}

/* Is it the first, or behind the last one that was seen of its slice since that began? */
static void assert_ascends(struct uuid *before, const struct uuid *uid)
{
    assert_true(uuid_shard(before) < uuid_shard(uid) ||
                (uuid_shard(before) == uuid_shard(uid) && memcmp(before, uid, sizeof *uid) < 0));
    *before = *uid;
}

/* Page by page: in each slice saga after saga, each with its first event, and from the start again
 * when it is at its end, also while other slices are not. */
static void test_pages_go_round_and_have_the_first_event_of_each_saga(void **state)
{
    (void)state;
    static struct page page;
    static int seen[2000 + 1];
    struct store_outbox *outbox = relay(1);
    make_many();
    size_t count = 0, pages = 0;
    struct uuid last[OUTBOX_SLICES] = { 0 };
    do {
        page_read(outbox, ALL, &page);
        for (size_t i = 0; i < page.count; i++) {
            const struct store_event *event = &page.events[i];
            assert_int_equal(event->id.part, STORE_EVENT_START);
            assert_ascends(&last[uuid_shard(&event->id.uid) / 16], &event->id.uid);
            count += seen[strtol(event->saga.saga_id + 1, NULL, 10)]++ == 0;
        }
        for (size_t i = 0; i < OUTBOX_SLICES; i++)
            if (!page.cursors[i].begun)
                last[i] = (struct uuid){ 0 };
        pages++;
    } while (page.more);
    assert_int_equal(count, 2000);
    assert_in_range(pages, 2000 / LIMIT, 2000 / LIMIT + 4);
    page_done(&page);
    /* slices 3 and 7 alone */
    memset(page.cursors, 0, sizeof page.cursors);
    count = 0;
    do {
        page_read(outbox, 1U << 3 | 1U << 7, &page);
        for (size_t i = 0; i < page.count; i++) {
            int slice = uuid_shard(&page.events[i].id.uid) / 16;
            assert_true(slice == 3 || slice == 7);
        }
        count += page.count;
    } while (page.more);
    assert_true(count >= (size_t)fixture_count(watch, "SELECT count(*) FROM saga WHERE shard / 16"
                                                      " IN (3, 7)"));
    page_read(outbox, 0, &page);
    assert_int_equal(page.count, 0);
    assert_false(page.more);
    (void)store_outbox_free(outbox); /* always NULL */
}

/* --- refused ---------------------------------------------------------------------------------- */

static void test_what_is_refused_waits_and_holds_up_its_own_saga_alone(void **state)
{
    (void)state;
    static struct page page;
    struct err err;
    struct store_outbox *outbox = relay(1);
    write_one("one");
    write_one("two");
    page_read(outbox, ALL, &page);
    assert_int_equal(page.count, 2);
    struct store_event_id refused = page.events[0].id, other = page.events[1].id;
    for (int i = 0; i < 6; i++) /* 32 s: the test does not see the end of it by itself */
        ASSERT_OK(store_outbox_refused(outbox, &refused, "too large", &err), &err);
    ASSERT_OK(store_outbox_published(outbox, &other, 1, &err), &err);
    page_read(outbox, ALL, &page);
    assert_int_equal(page.count, 2);
    for (size_t i = 0; i < 2; i++) {
        bool is_it = memcmp(&page.events[i].id.uid, &refused.uid, sizeof refused.uid) == 0;
        assert_int_equal(page.events[i].due, !is_it);
        assert_int_equal(page.events[i].id.part, is_it ? STORE_EVENT_START : STORE_EVENT_ENTRY);
    }
    assert_int_equal(fixture_count(watch, "SELECT failures FROM outbox WHERE error = 'too large'"),
                     6);
    fixture_exec(watch, "UPDATE outbox SET failed_at = failed_at - interval '31 s'");
    page_read(outbox, ALL, &page);
    assert_false(page.events[0].due && page.events[1].due);
    fixture_exec(watch, "UPDATE outbox SET failed_at = failed_at - interval '2 s'");
    page_read(outbox, ALL, &page);
    assert_true(page.events[0].due && page.events[1].due);
    fixture_exec(watch, "UPDATE outbox SET failures = 1000, failed_at = now() - interval '301 s'"
                        " WHERE failures > 0");
    page_read(outbox, ALL, &page);
    assert_true(page.events[0].due && page.events[1].due);
    page_done(&page);
    (void)store_outbox_free(outbox); /* always NULL */
}

/* Rows that should not be, each beside a saga that goes on. */
static void test_what_nothing_can_be_said_of_has_a_fault(void **state)
{
    (void)state;
    static const struct {
        const char *sql, *fault;
    } cases[] = {
        { "DELETE FROM saga WHERE saga_id = 'bad'", "its saga was purged" },
        { "UPDATE saga SET state = 'DANCING' WHERE saga_id = 'bad'", "outbox.state" },
        { "DELETE FROM outbox WHERE part = 0; DELETE FROM journal j USING saga s"
          " WHERE s.saga_uid = j.saga_uid AND s.saga_id = 'bad'",
          "its journal entry is gone" },
        { "DELETE FROM outbox WHERE part = 0; UPDATE journal j SET kind = 'DREAM' FROM saga s"
          " WHERE s.saga_uid = j.saga_uid AND s.saga_id = 'bad'",
          "journal.kind" },
    };
    static struct page page;
    struct store_outbox *outbox = relay(1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)each_setup(state);
        write_one("good");
        write_one("bad");
        fixture_exec(watch, cases[i].sql);
        page_read(outbox, ALL, &page);
        assert_int_equal(page.count, 2);
        const struct store_event *bad = page.events[0].fault ? &page.events[0] : &page.events[1];
        const struct store_event *good = page.events[0].fault ? &page.events[1] : &page.events[0];
        assert_null(good->fault);
        assert_string_equal(good->saga.saga_id, "good");
        assert_non_null(bad->fault);
        if (!strstr(bad->fault, cases[i].fault))
            fail_msg("\"%s\" instead of \"%s\"", bad->fault, cases[i].fault);
    }
    page_done(&page);
    (void)store_outbox_free(outbox); /* always NULL */
}

/* --- handlers --------------------------------------------------------------------------------- */

static void change(struct handler *handler, enum handler_change_kind kind, int64_t rate_milli)
{
    const struct handler_change what = {
        .kind = kind, .actor = "anna", .reason = "why", .rate_milli = rate_milli, .cap = 7
    };
    fixture_handler(store, handler, &what);
}

/* One handler alone: what is told of it next, and is published then. */
static struct store_handler_event next_of_handler(struct store_outbox *outbox, int64_t version,
                                                  enum handler_event kind, enum handler_hold hold)
{
    struct err err;
    struct page page = { 0 };
    page_read(outbox, ALL, &page);
    assert_int_equal(page.count, 1);
    const struct store_event *event = &page.events[0];
    assert_null(event->fault);
    assert_true(event->due);
    assert_int_equal(event->id.part, STORE_EVENT_HANDLER);
    assert_int_equal(event->id.seq, version);
    assert_int_equal(event->handler.kind, kind);
    assert_int_equal(event->handler.hold, hold);
    assert_string_equal(event->handler.handler, "b\xc3\xa4nk\\");
    assert_null(event->saga.saga_id);
    struct store_handler_event ret = event->handler; /* texts gone with the page */
    ASSERT_OK(store_outbox_published(outbox, &event->id, 1, &err), &err);
    page_done(&page);
    ret.handler = ret.actor = ret.reason = NULL;
    return ret;
}

/* Nothing is told where no relay ever was; what nobody is told of, such as a trial, never. */
static void test_events_of_a_handler_come_in_their_order(void **state)
{
    (void)state;
    struct err err;
    struct handler handler;
    struct store_outbox *outbox = relay(1);
    handler_init(&handler, "b\xc3\xa4nk\\");
    change(&handler, HANDLER_HOLD, 0);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox"), 0);
    assert_int_equal(claim(outbox, TTL_MS, 0), ALL);
    ASSERT_OK(store_outbox_leave(outbox, &err), &err); /* it is to come again */
    change(&handler, HANDLER_RELEASE, 0);
    fixture_exec(watch, "INSERT INTO handler_node SELECT 'b\xc3\xa4nk\\', 'n' || i, i, 0, true,"
                        " NULL, now() - CASE WHEN i > 2 THEN interval '1 h' ELSE '0' END"
                        " FROM generate_series(1, 3) i");
    change(&handler, HANDLER_TRIP, 0);
    handler.trial_at_ms = 0;
    change(&handler, HANDLER_TRIAL, 0);
    change(&handler, HANDLER_RELEASE, 600500);
    change(&handler, HANDLER_DRAINED, 0);
    change(&handler, HANDLER_LIMIT, 5000);
    assert_int_equal(fixture_count(watch,
                                   "SELECT count(*) FROM outbox WHERE part = 3 AND"
                                   " shard = ('x' || right(saga_uid::text, 2))::bit(8)::int"),
                     5);
    assert_false(next_of_handler(outbox, 2, HANDLER_EVENT_RELEASED, HOLD_NONE).has_waiting);
    struct store_handler_event event = next_of_handler(outbox, 3, HANDLER_EVENT_HELD, HOLD_BREAKER);
    assert_true(event.has_waiting);
    assert_int_equal(event.waiting, 1 + 2);
    event = next_of_handler(outbox, 5, HANDLER_EVENT_RELEASED, HOLD_NONE);
    assert_int_equal(event.release_rate_milli, 600500);
    event = next_of_handler(outbox, 6, HANDLER_EVENT_DRAINED, HOLD_NONE);
    assert_int_equal(event.release_rate_milli, 0);
    event = next_of_handler(outbox, 7, HANDLER_EVENT_LIMITED, HOLD_NONE);
    assert_int_equal(event.rate_milli, 5000);
    assert_int_equal(event.cap, 7);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox"), 0);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM handler_event"), 6);
    (void)store_outbox_free(outbox); /* always NULL */
}

/* Whoever was not first has changed nothing, and has nothing to tell. */
static void test_a_change_that_lost_is_not_told(void **state)
{
    (void)state;
    struct store_outbox *outbox = relay(1);
    struct handler handler;
    const struct handler_change hold = { .kind = HANDLER_HOLD };
    assert_int_equal(claim(outbox, TTL_MS, 0), ALL);
    handler_init(&handler, "bank");
    change(&handler, HANDLER_HOLD, 0);
    handler.version = 0;
    struct store_op op = { .kind = STORE_HANDLER, .handler = &handler };
    assert_true(handler_apply(&handler, &hold, &op.effect));
    fixture_run(store, &op);
    assert_int_equal(op.result, STORE_LOST);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox"), 1);
    (void)store_outbox_free(outbox); /* always NULL */
}

static void test_a_handler_holds_up_nobody_else(void **state)
{
    (void)state;
    static struct page page;
    static const char *const names[] = { "a", "b" };
    struct err err;
    struct store_outbox *outbox = relay(1);
    assert_int_equal(claim(outbox, TTL_MS, 0), ALL);
    write_one("one");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct handler handler;
        handler_init(&handler, names[i]);
        change(&handler, HANDLER_HOLD, 0);
        change(&handler, HANDLER_RELEASE, 0);
    }
    fixture_exec(watch, "DELETE FROM handler_event WHERE handler = 'b'");
    page_read(outbox, ALL, &page);
    assert_int_equal(page.count, 3);
    for (size_t i = 0; i < page.count; i++) {
        const struct store_event *event = &page.events[i];
        if (event->id.part == STORE_EVENT_HANDLER && event->fault) {
            assert_non_null(strstr(event->fault, "is not known any more"));
            for (int n = 0; n < 6; n++)
                ASSERT_OK(store_outbox_refused(outbox, &event->id, event->fault, &err), &err);
        } else {
            ASSERT_OK(store_outbox_published(outbox, &event->id, 1, &err), &err);
        }
    }
    page_read(outbox, ALL, &page);
    assert_int_equal(page.count, 3);
    for (size_t i = 0; i < page.count; i++)
        assert_int_equal(page.events[i].due, !page.events[i].fault);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox WHERE handler = 'b'"), 2);
    assert_int_equal(fixture_count(watch, "SELECT count(*) FROM outbox WHERE handler = 'a'"), 1);
    page_done(&page);
    (void)store_outbox_free(outbox); /* always NULL */
}

/* --- the session ------------------------------------------------------------------------------ */

static void test_a_lost_connection_is_opened_anew(void **state)
{
    (void)state;
    struct err err;
    uint16_t slices;
    int share;
    struct store_outbox *outbox = relay(1);
    const struct store_outbox_claim what = { .ttl_ms = TTL_MS };
    assert_int_equal(claim(outbox, TTL_MS, 0), ALL);
    fixture_exec(watch, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'sagad outbox'");
    assert_int_not_equal(store_outbox_claim(outbox, &what, &slices, &share, &err), 0);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_int_equal(claim(outbox, TTL_MS, 0), ALL);
    (void)store_outbox_free(outbox); /* always NULL */
}

static void test_a_call_that_waits_for_a_lock_ends(void **state)
{
    (void)state;
    struct err err;
    uint16_t slices;
    int share;
    struct store_outbox *outbox = relay(1);
    const struct store_outbox_claim what = { .ttl_ms = TTL_MS };
    PGconn *locker = fixture_connect(conninfo);
    fixture_exec(locker, "BEGIN; LOCK TABLE outbox_slice");
    assert_int_not_equal(store_outbox_claim(outbox, &what, &slices, &share, &err), 0);
    assert_true(err.retryable);
    assert_string_equal(err.sqlstate, "55P03");
    fixture_exec(locker, "COMMIT");
    PQfinish(locker);
    assert_int_equal(claim(outbox, TTL_MS, 0), ALL);
    (void)store_outbox_free(outbox); /* always NULL */
}

/* --- back to an earlier point ----------------------------------------------------------------- */

/* What is told of saga "one" next. */
static void next_id_is(struct store_outbox *outbox, int64_t seq, int32_t epoch,
                       enum outcome outcome)
{
    struct err err;
    struct page page = { 0 };
    page_read(outbox, ALL, &page);
    assert_int_equal(page.count, 1);
    assert_int_equal(page.events[0].id.seq, seq);
    assert_int_equal(page.events[0].id.epoch, epoch);
    assert_int_equal(page.events[0].entry.outcome, outcome);
    ASSERT_OK(store_outbox_published(outbox, &page.events[0].id, 1, &err), &err);
    page_done(&page);
}

/* The same position comes to another end: an event of its own. What was committed before that point
 * is the same event as ever. */
static void test_what_is_told_anew_after_a_restore_is_another_event(void **state)
{
    (void)state;
    struct err err;
    struct copy copy;
    struct store_outbox *outbox = relay(1);
    ASSERT_OK(test_postgres_backup(postgres, &err), &err);
    copy_new(&copy, "one", "w/1");
    copy_write(&copy, store, STORE_OK);
    const struct uuid uid = saga_row(copy.saga)->uid;
    fixture_exec(watch, "SELECT pg_create_restore_point('before')");
    copy_report(&copy, OUTCOME_DONE, "out");
    copy_write(&copy, store, STORE_OK);
    next_id_is(outbox, 0, 0, OUTCOME_NONE);
    next_id_is(outbox, 1, 0, OUTCOME_DONE);
    copy_done(&copy);

    uint64_t before = store->ops->generation(store);
    PQfinish(watch);
    ASSERT_OK(test_postgres_stop_fast(postgres, &err), &err);
    ASSERT_OK(test_postgres_recover(postgres, "before", &err), &err);
    ASSERT_OK(test_postgres_promote(postgres, &err), &err);
    watch = fixture_connect(conninfo);
    fixture_wait_ready(store, before);
    copy_load(&copy, store, &uid);
    copy_report(&copy, OUTCOME_RETRY, NULL);
    copy_write(&copy, store, STORE_OK);
    copy_done(&copy);
    outbox = store_outbox_free(outbox);
    outbox = relay(1);
    next_id_is(outbox, 0, 0, OUTCOME_NONE);
    next_id_is(outbox, 1, 1, OUTCOME_RETRY);
    (void)store_outbox_free(outbox); /* always NULL */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_relays_share_the_slices, each_setup),
        cmocka_unit_test_setup(test_slices_of_a_dead_relay_are_taken_when_their_time_is_over,
                               each_setup),
        cmocka_unit_test_setup(test_a_node_that_comes_back_has_its_slices_at_once, each_setup),
        cmocka_unit_test_setup(test_a_relay_says_how_it_does, each_setup),
        cmocka_unit_test_setup(test_events_of_a_saga_come_in_their_order, each_setup),
        cmocka_unit_test_setup(test_what_happened_first_comes_first, each_setup),
        cmocka_unit_test_setup(test_pages_go_round_and_have_the_first_event_of_each_saga,
                               each_setup),
        cmocka_unit_test_setup(test_what_is_refused_waits_and_holds_up_its_own_saga_alone,
                               each_setup),
        cmocka_unit_test_setup(test_what_nothing_can_be_said_of_has_a_fault, each_setup),
        cmocka_unit_test_setup(test_events_of_a_handler_come_in_their_order, each_setup),
        cmocka_unit_test_setup(test_a_change_that_lost_is_not_told, each_setup),
        cmocka_unit_test_setup(test_a_handler_holds_up_nobody_else, each_setup),
        cmocka_unit_test_setup(test_a_lost_connection_is_opened_anew, each_setup),
        cmocka_unit_test_setup(test_a_call_that_waits_for_a_lock_ends, each_setup),
        cmocka_unit_test_setup(test_what_is_told_anew_after_a_restore_is_another_event, each_setup),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown) ? 1 : 0;
}
