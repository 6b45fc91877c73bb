#include "load.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/wait.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { PREFIX_SIZE = 32, START_MS = 3000, AGAIN_MS = 20, ADDRESSES_MAX = 3 };

struct load {
    struct rig *rig;
    enum load_books books;
    char prefix[PREFIX_SIZE];
    int count;
    const char *addresses[ADDRESSES_MAX + 1];
    pthread_t thread;
    atomic_bool stopped;
    atomic_int acked, repeated, allowed;
    bool refused; /* by thread, read after it was joined */
    char why[256];
    bool joined;
};

void load_define(struct rig *rig)
{
    rig_define(rig, "load", NULL,
               "a: IDEMPOTENT | IDEMPOTENT | guarded\n"
               "b: ONCE | IDEMPOTENT | settle=0s\n"
               "c: IDEMPOTENT | IDEMPOTENT | guarded");
}

/* --- starting --------------------------------------------------------------------------------- */

static const char *script_of(const struct load *load, int i)
{
    static const char *const scripts[][4] = {
        [LOAD_BANK_LIVES] = { "b * * sleep=3 effect\n* * * sleep=5 guarded",
                              "c A * sleep=3 rejected\nb * * effect\n* * * guarded",
                              "c A 1 retry\nb * * effect\n* * * sleep=3 guarded",
                              "b * * effect\n* * * guarded" },
        [LOAD_BANK_DIES] = { "* * * sleep=5 guarded", "c A * sleep=3 rejected\n* * * guarded",
                             "c A 1 retry\n* * * sleep=3 guarded", "* * * guarded" },
    };
    return scripts[load->books][i % 4];
}

/* One call. False: it is to be repeated, on a new connection. */
static bool start_once(struct load *load, struct client *client, int i)
{
    char id[PREFIX_SIZE + 16];
    const char *script = script_of(load, i);
    Saga__V1__StartSagaRequest request = SAGA__V1__START_SAGA_REQUEST__INIT;
    (void)snprintf(id, sizeof id, "%s%d", load->prefix, i);
    request.definition = rig_borrow("load");
    request.saga_id = id;
    request.input.data = (uint8_t *)rig_borrow(script);
    request.input.len = strlen(script);
    ProtobufCMessage *reply = NULL;
    struct err err;
    if (client_call(client, "/saga.v1.SagaService/StartSaga", &request.base,
                    &saga__v1__start_saga_response__descriptor, START_MS, &reply, &err) == 0) {
        protobuf_c_message_free_unpacked(reply, NULL);
        return true;
    }
    /* A client may be told that it is not now; never that its request is bad, or nonsense. */
    if (err.code != ERR_UNAVAILABLE && err.code != ERR_NOMEM && err.code != ERR_CONFLICT) {
        load->refused = true;
        (void)snprintf(load->why, sizeof load->why, "%s: %s: %s", id, err_code_name(err.code),
                       err.msg);
    }
    return false;
}

static void *run(void *ctx)
{
    struct load *load = ctx;
    struct client *client = NULL;
    struct err err;
    int i = 0;
    size_t at = 0;
    while (i < load->count && !load->refused && !atomic_load(&load->stopped)) {
        if (i >= atomic_load(&load->allowed)) {
            wait_ms(AGAIN_MS);
            continue;
        }
        if (!client && client_new(load->addresses[at], &client, &err) != 0)
            break; /* the await misses them */
        if (start_once(load, client, i)) {
            atomic_store(&load->acked, ++i);
            continue;
        }
        atomic_fetch_add(&load->repeated, 1);
        /* A channel that has seen the server go waits before it tries again. */
        client = client_free(client);
        if (!load->addresses[++at])
            at = 0;
        wait_ms(AGAIN_MS);
    }
    (void)client_free(client);
    return NULL;
}

struct load *load_start_at(struct rig *rig, const char *const *addresses, enum load_books books,
                           const char *prefix, int count)
{
    struct load *load = mem_calloc(1, sizeof *load);
    assert_non_null(load);
    load->rig = rig;
    load->books = books;
    load->count = count;
    atomic_store(&load->allowed, count);
    for (size_t i = 0; addresses[i]; i++) {
        assert_true(i < ADDRESSES_MAX);
        load->addresses[i] = addresses[i];
    }
    (void)snprintf(load->prefix, sizeof load->prefix, "%s", prefix);
    assert_int_equal(pthread_create(&load->thread, NULL, run, load), 0);
    return load;
}

struct load *load_start(struct rig *rig, enum load_books books, const char *prefix, int count)
{
    const char *addresses[] = { rig->address, NULL };
    return load_start_at(rig, addresses, books, prefix, count);
}

void load_allow(struct load *load, int count)
{
    atomic_store(&load->allowed, count);
}

int load_acked(const struct load *load)
{
    return atomic_load(&load->acked);
}

int load_repeated(const struct load *load)
{
    return atomic_load(&load->repeated);
}

static void join(struct load *load)
{
    if (!load->joined)
        (void)pthread_join(load->thread, NULL); /* started once, joined once */
    load->joined = true;
}

struct load *load_free(struct load *load)
{
    if (!load)
        return NULL;
    atomic_store(&load->stopped, true);
    join(load);
    mem_free(load);
    return NULL;
}

/* --- judging ---------------------------------------------------------------------------------- */

static const char at_rest[] = "'SUCCEEDED', 'COMPENSATED'";
static const char or_parked[] = "'SUCCEEDED', 'COMPENSATED', 'PARKED'";

/* Waits until no more than `most` sagas are in none of the states; else fails with some of them. */
static void await_rest(const struct load *load, const char *states, int most, int64_t limit_ms)
{
    int64_t until = clock_mono_ms(&clock_system) + limit_ms;
    char text[4096];
    while (rig_count(load->rig, RIG_STORE,
                     "SELECT count(*) FROM saga WHERE starts_with(saga_id, '%s')"
                     " AND state NOT IN (%s)",
                     load->prefix, states) > most) {
        if (clock_mono_ms(&clock_system) > until)
            fail_msg("%s: not at rest after %lld ms, such as\n%s", load->prefix,
                     (long long)limit_ms,
                     rig_text(load->rig, RIG_STORE, text, sizeof text,
                              "SELECT string_agg(line, E'\n') FROM (SELECT saga_id || ' ' || state"
                              " || coalesce(' ' || park_reason, '') || ': ' || string_agg("
                              "  concat_ws(' ', kind, operation, step, try, outcome,"
                              "   finished_at::time), ', ' ORDER BY seq) AS line"
                              " FROM saga JOIN journal USING (shard, saga_uid)"
                              " WHERE starts_with(saga_id, '%s') AND state NOT IN (%s)"
                              " GROUP BY saga_id, state, park_reason LIMIT 5) stuck",
                              load->prefix, states));
        wait_ms(AGAIN_MS);
    }
}

void load_await(struct load *load, int64_t limit_ms)
{
    int64_t until = clock_mono_ms(&clock_system) + limit_ms;
    while (load_acked(load) < load->count) {
        if (clock_mono_ms(&clock_system) > until) {
            atomic_store(&load->stopped, true);
            join(load);
            fail_msg("%s: %d of %d starts acknowledged within %lld ms %s", load->prefix,
                     load_acked(load), load->count, (long long)limit_ms, load->why);
        }
        wait_ms(AGAIN_MS);
    }
    join(load);
    await_rest(load, or_parked, 0, limit_ms);
}

struct books { /* effects of one saga, by the participant's own table */
    int actions[3], undos[3], once_calls;
};

static PGresult *ask(PGconn *conn, const char *sql, const char *prefix)
{
    const char *values[] = { prefix };
    PGresult *res = PQexecParams(conn, sql, 1, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(res) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    return res;
}

/* Why the books do not fit the state; NULL: they do. */
static const char *misfit(const struct load *load, const char *state, const struct books *books)
{
    bool succeeded = strcmp(state, "SUCCEEDED") == 0, parked = strcmp(state, "PARKED") == 0;
    bool b_is_guarded = load->books == LOAD_BANK_DIES;
    if (!succeeded && !parked && strcmp(state, "COMPENSATED") != 0)
        return "its state is none at rest";
    for (int i = 0; i < 3; i++) {
        bool exact = i != 1 || b_is_guarded; /* else its undo may run again, or for nothing */
        if (books->actions[i] > 1)
            return "an action took effect twice";
        if (exact && books->undos[i] > books->actions[i])
            return "more was taken back than was done";
        if (succeeded && (books->actions[i] != 1 || books->undos[i] != 0))
            return "it succeeded, but not each effect is there";
        if (!succeeded && !parked && books->undos[i] < books->actions[i])
            return "it is compensated, but an effect is left";
    }
    if (!b_is_guarded && books->once_calls > 1) /* the guard may answer RETRY */
        return "what may not be repeated was called twice";
    return NULL;
}

/* Of both results the rows are in order of saga_id. */
static void read_books(const PGresult *rows, int *at, const char *id, struct books *ret)
{
    *ret = (struct books){ 0 };
    for (; *at < PQntuples(rows) && strcmp(PQgetvalue(rows, *at, 0), id) == 0; ++*at) {
        const char *step = PQgetvalue(rows, *at, 1), *kind = PQgetvalue(rows, *at, 2);
        int count = (int)strtol(PQgetvalue(rows, *at, 3), NULL, 10);
        if (strcmp(kind, "call") == 0)
            ret->once_calls = count;
        else if (*step < 'a' || *step > 'c')
            fail_msg("an effect of step %s of %s", step, id);
        else if (strcmp(kind, "A") == 0)
            ret->actions[*step - 'a'] = count;
        else
            ret->undos[*step - 'a'] = count;
    }
}

static int judge_each(const struct load *load, const PGresult *sagas, const PGresult *rows)
{
    int at = 0, parked = 0;
    for (int i = 0; i < PQntuples(sagas); i++) {
        const char *id = PQgetvalue(sagas, i, 0), *state = PQgetvalue(sagas, i, 1);
        struct books books;
        read_books(rows, &at, id, &books);
        const char *why = misfit(load, state, &books);
        if (why)
            fail_msg("%s is %s (%s): %s: actions %d %d %d, undos %d %d %d", id, state,
                     PQgetvalue(sagas, i, 2), why, books.actions[0], books.actions[1],
                     books.actions[2], books.undos[0], books.undos[1], books.undos[2]);
        parked += strcmp(state, "PARKED") == 0;
        if (strcmp(state, "PARKED") == 0 && !*PQgetvalue(sagas, i, 2))
            fail_msg("%s is parked without a reason", id);
    }
    if (at != PQntuples(rows))
        fail_msg("the bank knows %s, sagad does not", PQgetvalue(rows, at, 0));
    return parked;
}

/* The sagas when all are at rest: a late report may take one out of PARKED at any time. */
static PGresult *sagas_at_rest(const struct load *load, PGconn *store, int parked_max,
                               int64_t limit_ms)
{
    for (;;) {
        await_rest(load, at_rest, parked_max, limit_ms);
        PGresult *sagas = ask(store,
                              "SELECT saga_id, state, park_reason FROM saga"
                              " WHERE starts_with(saga_id, $1) ORDER BY saga_id",
                              load->prefix);
        int i = 0;
        while (i < PQntuples(sagas) && strcmp(PQgetvalue(sagas, i, 1), "RUNNING") != 0 &&
               strcmp(PQgetvalue(sagas, i, 1), "COMPENSATING") != 0)
            i++;
        if (i == PQntuples(sagas))
            return sagas;
        PQclear(sagas);
        await_rest(load, or_parked, 0, limit_ms);
    }
}

int load_judge(struct load *load, int parked_max, int64_t limit_ms)
{
    load_await(load, limit_ms);
    PGconn *store = rig_connect(load->rig, RIG_STORE), *bank = rig_connect(load->rig, RIG_BANK);
    PGresult *sagas = sagas_at_rest(load, store, parked_max, limit_ms);
    PGresult *rows =
        ask(bank,
            "SELECT saga_id, step, operation, count(*) FROM effects WHERE starts_with(saga_id, $1)"
            " GROUP BY 1, 2, 3 UNION ALL SELECT saga_id, step, 'call', count(DISTINCT fence)"
            " FROM calls WHERE starts_with(saga_id, $1) AND step = 'b' AND operation = 'A'"
            " GROUP BY 1, 2 ORDER BY saga_id",
            load->prefix);
    assert_int_equal(PQntuples(sagas), load->count);
    int parked = judge_each(load, sagas, rows);
    PQclear(rows);
    PQclear(sagas);
    PQfinish(bank);
    PQfinish(store);
    (void)load_free(load); /* always NULL */
    return parked;
}
