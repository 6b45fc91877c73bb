#include "store_fixture.h"

#include "base/mem.h"
#include "store/connect.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

const struct uuid fixture_instance = { { 1, [10] = 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff } };

static struct rng rng;
static const int64_t minute_ms = 60 * 1000;

static void rule_fill(struct operation_rule *rule, const char *handler)
{
    *rule = (struct operation_rule){
        .handler = mem_strdup(handler),
        .effect = EFFECT_IDEMPOTENT,
        .retry = { DEFAULT_RETRY_FOR_MS, DEFAULT_RETRY_INITIAL_MS, DEFAULT_RETRY_CAP_MS, 0 },
        .lease_ms = DEFAULT_LEASE_MS,
        .attempt_timeout_ms = DEFAULT_ATTEMPT_TIMEOUT_MS,
        .lost_leases_max = DEFAULT_LOST_LEASES_MAX,
    };
}

static struct definition *pay;

const struct definition *fixture_definition(void)
{
    static const char *const names[] = { "debit", "ledger", "risk" };
    if (pay)
        return pay;
    pay = definition_new(ARRAY_LEN(names));
    assert_non_null(pay);
    pay->namespace_ = mem_strdup("test");
    pay->name = mem_strdup("pay");
    pay->revision = 1;
    pay->deadline_ms = 60 * minute_ms;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct step_rule *step = &pay->steps[i];
        step->name = mem_strdup(names[i]);
        step->has_compensation = step->guarded = true;
        step->settle_ms = -1;
        rule_fill(&step->action, "pay.do");
        rule_fill(&step->compensation, "pay.undo");
    }
    return pay;
}

void fixture_publish(enum publish publish)
{
    assert_non_null(fixture_definition());
    pay->publish = publish;
}

void fixture_database(struct test_postgres *postgres, const char *name,
                      char ret_conninfo[POSTGRES_CONNINFO_SIZE])
{
    struct err err;
    ASSERT_OK(test_postgres_createdb(postgres, name, ret_conninfo, &err), &err);
    ASSERT_OK(store_migrate(ret_conninfo, &err), &err);
    struct store_reader *reader;
    ASSERT_OK(store_reader_new(ret_conninfo, &reader, &err), &err);
    struct store_registered registered;
    struct store_register what = { .namespace_ = "test",
                                   .name = "pay",
                                   .content = { (uint8_t *)"pay, revision 1", 15 } };
    ASSERT_OK(store_reader_register(reader, &what, &registered, &err), &err);
    assert_true(registered.created);
    store_registered_done(&registered);
    (void)store_reader_free(reader);
}

static int64_t mono_ms(void)
{
    return clock_mono_ms(&clock_system);
}

/* One turn, waiting for the socket at most 20 ms. */
static void turn(struct store *store)
{
    short events;
    int fd = store->ops->poll_fd(store, &events);
    struct pollfd wait = { .fd = fd, .events = events };
    (void)poll(&wait, fd >= 0, fd >= 0 ? 20 : 5); /* the store looks for itself */
    store->ops->process(store, mono_ms());
}

void fixture_wait_ready(struct store *store, uint64_t before)
{
    int64_t limit = mono_ms() + 30 * 1000;
    for (;;) {
        uint64_t now = store->ops->generation(store);
        if (now != 0 && now != before)
            return;
        assert_true(mono_ms() < limit);
        turn(store);
    }
}

struct store *fixture_store(const char *conninfo)
{
    return fixture_store_of(conninfo, "node-1", &fixture_instance);
}

struct store *fixture_store_of(const char *conninfo, const char *node, const struct uuid *instance)
{
    if (rng.s[0] == 0)
        rng_seed_os(&rng);
    struct err err;
    struct store *store;
    struct store_pg_options options = { .conninfo = conninfo,
                                        .clock = &clock_system,
                                        .node = node,
                                        .instance = *instance,
                                        .rng_seed = 1 };
    ASSERT_OK(store_pg_new(&options, &store, &err), &err);
    fixture_wait_ready(store, 0);
    return store;
}

void fixture_pump(struct store *store)
{
    int64_t limit = mono_ms() + 60 * 1000;
    while (!store->ops->completed(store)) {
        assert_true(mono_ms() < limit);
        turn(store);
    }
    assert_false(store->ops->busy(store));
}

void fixture_run(struct store *store, struct store_op *batch)
{
    store->ops->submit(store, batch);
    fixture_pump(store);
}

void fixture_handler(struct store *store, struct handler *handler,
                     const struct handler_change *change)
{
    struct store_op op = { .kind = STORE_HANDLER, .handler = handler };
    assert_true(handler_apply(handler, change, &op.effect));
    fixture_run(store, &op);
    assert_int_equal(op.result, STORE_OK);
    handler->version++;
}

static void op_ready(struct copy *copy, enum store_op_kind kind)
{
    copy->op =
        (struct store_op){ .kind = kind, .saga = copy->saga, .transition = &copy->transition };
}

void copy_new(struct copy *copy, const char *saga_id, const char *worker)
{
    if (rng.s[0] == 0)
        rng_seed_os(&rng);
    struct err err;
    *copy = (struct copy){ 0 };
    const struct definition *definition = fixture_definition();
    struct saga_row row = {
        .uid = uuid_v7(clock_wall_ms(&clock_system), &rng,
                       store_shard(definition->namespace_, definition->name, saga_id)),
        .namespace_ = mem_strdup(definition->namespace_),
        .definition = mem_strdup(definition->name),
        .revision = definition->revision,
        .saga_id = mem_strdup(saga_id),
        .run = 1,
        .park_step = -1,
        .labels = mem_strdup("{\"color\": \"blue\"}"),
    };
    assert_int_equal(mem_bytes_copy("input", 5, &row.input), 0);
    ASSERT_OK(saga_new(definition, &row, &copy->saga, &err), &err);
    if (worker)
        copy_grant(copy, worker);
    op_ready(copy, STORE_START);
    memset(copy->op.input_digest, 7, sizeof copy->op.input_digest);
}

void copy_done(struct copy *copy)
{
    store_op_done(&copy->op);
    copy->saga = saga_free(copy->saga);
}

void copy_grant(struct copy *copy, const char *worker)
{
    struct err err;
    struct grantable what;
    int64_t now_ms = clock_wall_ms(&clock_system) + minute_ms; /* no back-off is in the way */
    assert_int_equal(saga_grantable(copy->saga, now_ms, &what, 1), 1);
    ASSERT_OK(saga_grant(copy->saga, &what, worker, 0, now_ms, &copy->transition, &err), &err);
    op_ready(copy, STORE_TRANSITION);
}

void copy_report(struct copy *copy, enum outcome outcome, const char *output)
{
    struct err err;
    enum verdict verdict;
    int64_t seq = saga_last_seq(copy->saga);
    while (saga_entry(copy->saga, seq)->kind != ENTRY_LEASE)
        seq--;
    struct report report = {
        .fence = saga_entry(copy->saga, seq)->fence,
        .outcome = outcome,
        .output = { (uint8_t *)output, output ? strlen(output) : 0 },
        .error_code = output ? NULL : "CODE",
        .error_message = output ? NULL : "what went wrong",
    };
    copy->transition = (struct transition){ 0 };
    ASSERT_OK(saga_on_report(copy->saga, &report, clock_wall_ms(&clock_system), &rng,
                             &copy->transition, &verdict, &err),
              &err);
    op_ready(copy, STORE_TRANSITION);
}

void copy_cancel(struct copy *copy)
{
    struct err err;
    enum verdict verdict;
    copy->transition = (struct transition){ 0 };
    ASSERT_OK(saga_on_cancel(copy->saga, "someone", "not wanted", clock_wall_ms(&clock_system),
                             &copy->transition, &verdict, &err),
              &err);
    assert_int_equal(verdict, VERDICT_ACCEPTED);
    op_ready(copy, STORE_TRANSITION);
}

void copy_extend(struct copy *copy, int64_t seq)
{
    copy->op = (struct store_op){ .kind = STORE_EXTEND,
                                  .uid = saga_row(copy->saga)->uid,
                                  .seq = seq,
                                  .lease_ms = DEFAULT_LEASE_MS };
}

void copy_expect(struct copy *copy, enum store_result expected)
{
    if (copy->op.result != expected)
        fail_msg("result %d instead of %d: %s", copy->op.result, expected, copy->op.err.msg);
    if (expected != STORE_OK)
        return;
    if (copy->op.kind == STORE_EXTEND)
        saga_extended(copy->saga, copy->op.seq, copy->op.now_ms);
    else
        saga_committed(copy->saga, &copy->transition, copy->op.now_ms);
    copy->transition = (struct transition){ 0 };
}

void copy_write(struct copy *copy, struct store *store, enum store_result expected)
{
    fixture_run(store, &copy->op);
    copy_expect(copy, expected);
}

void copy_load(struct copy *copy, struct store *store, const struct uuid *uid)
{
    struct err err;
    *copy = (struct copy){ 0 };
    struct store_op load = { .kind = STORE_LOAD_UID, .uid = *uid };
    fixture_run(store, &load);
    assert_int_equal(load.result, STORE_OK);
    assert_int_equal(load.saga_count, 1);
    struct store_saga *loaded = &load.sagas[0];
    ASSERT_OK(saga_replay(fixture_definition(), &loaded->row, loaded->entries, loaded->entry_count,
                          &copy->saga, &err),
              &err);
    ASSERT_OK(saga_check(copy->saga, &err), &err);
    mem_free(loaded->entries);
    mem_free(load.sagas);
}

static void assert_text(const char *a, const char *b, const char *what)
{
    if ((a == NULL) != (b == NULL) || (a && strcmp(a, b) != 0))
        fail_msg("%s: \"%s\" in memory, \"%s\" stored", what, a ? a : "-", b ? b : "-");
}

static void assert_bytes(const struct bytes *a, const struct bytes *b)
{
    assert_int_equal(a->size, b->size);
    if (a->size)
        assert_memory_equal(a->data, b->data, a->size);
}

static void assert_rows(const struct saga_row *a, const struct saga_row *b)
{
    assert_memory_equal(&a->uid, &b->uid, sizeof a->uid);
    assert_text(a->namespace_, b->namespace_, "namespace");
    assert_text(a->definition, b->definition, "definition");
    assert_text(a->saga_id, b->saga_id, "saga_id");
    assert_text(a->labels, b->labels, "labels");
    assert_text(a->park_code, b->park_code, "park_code");
    assert_text(a->park_message, b->park_message, "park_message");
    assert_int_equal(a->start_at_ms, b->start_at_ms);
    assert_bytes(&a->input, &b->input);
    assert_int_equal(a->revision, b->revision);
    assert_int_equal(a->run, b->run);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->phase, b->phase);
    assert_int_equal(a->doubt, b->doubt);
    assert_int_equal(a->park_reason, b->park_reason);
    assert_int_equal(a->park_step, b->park_step);
    assert_int_equal(a->has_related, b->has_related);
    assert_int_equal(a->started_at_ms, b->started_at_ms);
    assert_int_equal(a->updated_at_ms, b->updated_at_ms);
    assert_int_equal(a->deadline_at_ms, b->deadline_at_ms);
    assert_int_equal(a->ended_at_ms, b->ended_at_ms);
}

static void assert_entries(const struct journal_entry *a, const struct journal_entry *b)
{
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->fence, b->fence);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->operation, b->operation);
    assert_int_equal(a->try_, b->try_);
    assert_text(a->worker, b->worker, "worker");
    assert_int_equal(a->leased_at_ms, b->leased_at_ms);
    assert_int_equal(a->attempt_until_ms, b->attempt_until_ms);
    assert_int_equal(a->lease_until_ms, b->lease_until_ms);
    assert_int_equal(a->outcome, b->outcome);
    assert_int_equal(a->finished_at_ms, b->finished_at_ms);
    assert_int_equal(a->retry_at_ms, b->retry_at_ms);
    assert_bytes(&a->output, &b->output);
    assert_text(a->error_code, b->error_code, "error_code");
    assert_text(a->error_message, b->error_message, "error_message");
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->about, b->about);
    assert_text(a->signal_id, b->signal_id, "signal_id");
    if (a->kind != ENTRY_LEASE) /* the copy leaves it to the store to say who granted */
        assert_text(a->actor, b->actor, "actor");
    else
        assert_true(b->actor && strncmp(b->actor, "node-", 5) == 0);
}

void copy_assert_stored(const struct copy *copy, struct store *store)
{
    struct copy stored;
    copy_load(&stored, store, &saga_row(copy->saga)->uid);
    assert_rows(saga_row(copy->saga), saga_row(stored.saga));
    assert_int_equal(saga_last_seq(copy->saga), saga_last_seq(stored.saga));
    for (int64_t seq = 1; seq <= saga_last_seq(copy->saga); seq++)
        assert_entries(saga_entry(copy->saga, seq), saga_entry(stored.saga, seq));
    copy_done(&stored);
}

void session_open(struct session *session, const char *conninfo, const char *node)
{
    struct err err;
    *session = (struct session){ .node = node };
    ASSERT_OK(connect_blocking(conninfo, CONNECT_ENGINE, &session->conn, &err), &err);
    for (size_t i = 0; i < STMT_COUNT; i++)
        PQclear(PQprepare(session->conn, stmts[i].name, stmts[i].sql, stmts[i].nparams,
                          stmts[i].types));
    fixture_exec(session->conn, "SET lock_timeout = '30s'");
}

void session_close(struct session *session)
{
    PQfinish(session->conn);
    params_done(&session->params);
}

void session_send(struct session *session, struct store_op *op)
{
    struct err err;
    char granter[STORE_GRANTER_SIZE];
    store_granter(session->node, &fixture_instance, granter);
    const struct write_self self = { session->node, granter };
    if (PQtransactionStatus(session->conn) == PQTRANS_IDLE)
        fixture_exec(session->conn, "BEGIN");
    ASSERT_OK(write_route(op, &session->write, &err), &err);
    session->write.applied = false;
    write_fill(&session->params, &session->write, 1, &self);
    ASSERT_OK(params_send(&session->params, session->conn, &err), &err);
}

bool session_take(struct session *session)
{
    struct err err;
    PGresult *result = PQgetResult(session->conn);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    ASSERT_OK(write_mark(result, &session->write, 1, &err), &err);
    PQclear(result);
    assert_null(PQgetResult(session->conn));
    return session->write.applied;
}

void session_wait_blocked(const struct session *session, PGconn *watch)
{
    char sql[160];
    (void)snprintf(sql, sizeof sql,
                   "SELECT count(*) FROM pg_stat_activity WHERE pid = %d"
                   " AND wait_event_type = 'Lock'",
                   PQbackendPID(session->conn));
    for (int i = 0; fixture_count(watch, sql) == 0; i++) {
        assert_true(i < 1000);
        fixture_exec(watch, "SELECT pg_sleep(0.01)");
    }
}

PGconn *fixture_connect(const char *conninfo)
{
    PGconn *conn = PQconnectdb(conninfo);
    assert_int_equal(PQstatus(conn), CONNECTION_OK);
    fixture_exec(conn, "SET search_path = sagad");
    return conn;
}

void fixture_exec(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQresultErrorMessage(result));
    PQclear(result);
}

int64_t fixture_count(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
        fail_msg("%s: %s", sql, PQresultErrorMessage(result));
    int64_t count = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return count;
}
