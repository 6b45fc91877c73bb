/* A worker whose handlers do what their request says, which is the saga's input, one line for each
 * call that is not plain:
 *
 *   STEP OPERATION TRY WORD...      e.g. "ledger A 1 sleep=200 retry code=BUSY"
 *
 * STEP a name or *, OPERATION A, C, P (probe) or *, TRY a number or *; the first line that fits
 * counts. What its words set holds for the whole line, what they do is done in order:
 *
 *   sleep=MS     waits                        inner=MS  waits inside the guarded transaction
 *   effect       an effect without the guard  guarded   an effect under the guard, with its outcome
 *   crash        kill -9 of this process      hang      never returns
 *   until_lost   waits until the lease is not ours any more
 *   done already foreign rejected retry unknown none    the outcome (foreign: not by us)
 *   not_done still_unknown                              a probe's
 *   out=TEXT     output                       join=STEP adds that step's output to it
 *   hex=DIGITS   output, bytes as hexadecimal
 *   size=BYTES   output, so many, in place of what is above
 *   code=CODE    error code                   message=N error message of N two-byte characters
 *   after=MS     retry_after
 *
 * Without a line, or without an outcome: done, output = the step's name. Each call is a row of the
 * table `calls` of the bank's database, written before the handler does anything. */
#include "base/cleanup.h"
#include "base/clock.h"

#include <sagaworker.h>

#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    THREADS_MAX = 256,
    ADDRESSES_MAX = 4,
    OUT_MAX = 4096,
    LINE_MAX_BYTES = 512,
    RECORD_TRIES = 400
};

struct own { /* of each thread */
    PGconn *calls, *guard;
};

static struct {
    const char *bank, *id;
    struct own own[THREADS_MAX];
    struct saga_worker *worker;
} program;

struct call { /* one call of the handler */
    struct saga_task *task;
    struct own *own;
    const char *operation; /* "A", "C" or "P" */
    char id[24];           /* of its row in calls */
    char out[OUT_MAX], code[160], message[2 * OUT_MAX];
    size_t hex_bytes; /* of out, if it was given as such */
    char *large;      /* instead of it; NULL: none */
    size_t large_bytes;
    int inner_ms, after_ms;
};

static void sleep_ms(int64_t ms)
{
    struct timespec left = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    while (nanosleep(&left, &left) != 0)
        continue; /* a signal */
}

/* --- the bank --------------------------------------------------------------------------------- */

/* Runs it until it works, since PostgreSQL may be killed under us; false after some seconds. */
static bool record(PGconn **conn, const char *sql, int count, const char *const *values,
                   char *ret_id, size_t size)
{
    for (int i = 0; i < RECORD_TRIES; i++) {
        if (!*conn) {
            *conn = PQconnectdb(program.bank);
            PQclear(PQexec(*conn, "SET synchronous_commit = off"));
        } else if (PQstatus(*conn) != CONNECTION_OK) {
            PQreset(*conn);
            PQclear(PQexec(*conn, "SET synchronous_commit = off"));
        }
        PGresult *res = PQexecParams(*conn, sql, count, NULL, values, NULL, NULL, 0);
        bool ok = PQresultStatus(res) == PGRES_TUPLES_OK || PQresultStatus(res) == PGRES_COMMAND_OK;
        if (ok && ret_id && PQntuples(res) == 1)
            (void)snprintf(ret_id, size, "%s", PQgetvalue(res, 0, 0));
        if (!ok && PQstatus(*conn) == CONNECTION_OK)
            (void)fprintf(stderr, "scripted_worker: %s\n", PQerrorMessage(*conn));
        PQclear(res);
        if (ok)
            return true;
        sleep_ms(25);
    }
    (void)fprintf(stderr, "scripted_worker: gave up: %s\n", sql);
    return false;
}

static const char *action_seen(const struct call *call, char *text, size_t size)
{
    struct saga_bytes output;
    struct saga_probed probed;
    if (saga_task_probed(call->task, &probed)) {
        (void)snprintf(text, size, "PROBES:%s.%d", probed.operation == SAGA_ACTION ? "A" : "C",
                       probed.try_);
        return text;
    }
    switch (saga_task_action_outcome(call->task)) {
    case SAGA_ACTION_DONE:
        output = saga_task_action_output(call->task);
        (void)snprintf(text, size, "DONE:%.*s", (int)output.size, (const char *)output.data);
        return text;
    case SAGA_ACTION_MAYBE:
        return "MAYBE";
    default:
        return "";
    }
}

static void record_start(struct call *call)
{
    char run_try[16], fence[24], pid[16], seen[OUT_MAX];
    (void)snprintf(run_try, sizeof run_try, "%d", saga_task_try(call->task));
    (void)snprintf(fence, sizeof fence, "%" PRId64, saga_task_fence(call->task));
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    const char *values[] = { program.id,
                             pid,
                             saga_task_definition(call->task),
                             saga_task_saga_id(call->task),
                             saga_task_step(call->task),
                             call->operation,
                             run_try,
                             fence,
                             saga_task_idempotency_key(call->task),
                             action_seen(call, seen, sizeof seen) };
    (void)record(&call->own->calls, /* it said so if it failed; the tests miss the row */
                 "INSERT INTO calls (worker, pid, definition, saga_id, step, operation, try, fence,"
                 " key, seen) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id",
                 ARRAY_LEN(values), values, call->id, sizeof call->id);
}

static void record_end(struct call *call)
{
    static const char *const stops[] = { "", "DRAINING", "CANCELLED", "LOST" };
    const char *values[] = { call->id, stops[saga_task_stop_requested(call->task)] };
    (void)record(&call->own->calls, /* it said so if it failed */
                 "UPDATE calls SET ended_at = clock_timestamp(), stop = $2 WHERE id = $1",
                 ARRAY_LEN(values), values, NULL, 0);
}

static int insert_effect(PGconn *conn, const struct call *call, bool guarded)
{
    char run[16], fence[24];
    (void)snprintf(run, sizeof run, "%d", saga_task_run(call->task));
    (void)snprintf(fence, sizeof fence, "%" PRId64, saga_task_fence(call->task));
    const char *values[] = { saga_task_definition(call->task),
                             saga_task_saga_id(call->task),
                             run,
                             saga_task_step(call->task),
                             call->operation,
                             fence,
                             program.id,
                             guarded ? "t" : "f" };
    PGresult *res = PQexecParams(conn,
                                 "INSERT INTO effects (definition, saga_id, run, step, operation,"
                                 " fence, worker, guarded) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                                 ARRAY_LEN(values), NULL, values, NULL, NULL, 0);
    int rc = PQresultStatus(res) == PGRES_COMMAND_OK ? 0 : -1;
    PQclear(res);
    return rc;
}

static const char *out_of(const struct call *call)
{
    if (call->large)
        return call->large;
    return *call->out || call->hex_bytes ? call->out : saga_task_step(call->task);
}

static size_t size_of(const struct call *call)
{
    if (call->large)
        return call->large_bytes;
    return call->hex_bytes ? call->hex_bytes : strlen(out_of(call));
}

static int guard_body(struct saga_task *task, PGconn *conn, void *ctx)
{
    struct call *call = ctx;
    if (insert_effect(conn, call, true) != 0)
        return -1;
    if (call->inner_ms)
        sleep_ms(call->inner_ms);
    return saga_task_done(task, out_of(call), size_of(call));
}

static PGconn *guard_conn(struct own *own)
{
    if (!own->guard)
        own->guard = PQconnectdb(program.bank); /* a broken one is reset by saga_guard_run */
    return own->guard;
}

/* --- the script ------------------------------------------------------------------------------- */

static bool word_value(const char *word, const char *name, const char **ret)
{
    size_t size = strlen(name);
    if (strncmp(word, name, size) != 0)
        return false;
    *ret = word + size;
    return true;
}

static void add_output_of(struct call *call, const char *step)
{
    struct saga_bytes output;
    size_t size = strlen(call->out);
    bool found = saga_task_output_of(call->task, step, &output);
    (void)snprintf(call->out + size, sizeof call->out - size, "[%s=%.*s]", step,
                   found ? (int)output.size : 4, found ? (const char *)output.data : "none");
}

static void set_bytes(struct call *call, const char *digits)
{
    unsigned byte;
    call->hex_bytes = 0;
    while (call->hex_bytes < sizeof call->out && sscanf(digits, "%2x", &byte) == 1) {
        call->out[call->hex_bytes++] = (char)byte;
        digits += 2;
    }
}

static void set_large(struct call *call, size_t size)
{
    free(call->large);
    call->large = malloc(size);
    call->large_bytes = size;
    if (call->large)
        memset(call->large, 'L', size); /* else: the step's name, which no test takes for it */
}

static void fill_message(struct call *call, int characters)
{
    size_t size = 0;
    for (int i = 0; i < characters && size + 3 < sizeof call->message; i++, size += 2)
        memcpy(call->message + size, "\xc3\xa4", 3);
}

/* True if the word sets something. */
static bool do_setting(struct call *call, const char *word)
{
    const char *value;
    if (word_value(word, "inner=", &value))
        call->inner_ms = (int)strtol(value, NULL, 10);
    else if (word_value(word, "out=", &value))
        (void)snprintf(call->out, sizeof call->out, "%s", value);
    else if (word_value(word, "hex=", &value))
        set_bytes(call, value);
    else if (word_value(word, "size=", &value))
        set_large(call, strtoul(value, NULL, 10));
    else if (word_value(word, "join=", &value))
        add_output_of(call, value);
    else if (word_value(word, "code=", &value))
        (void)snprintf(call->code, sizeof call->code, "%s", value);
    else if (word_value(word, "message=", &value))
        fill_message(call, (int)strtol(value, NULL, 10));
    else if (word_value(word, "after=", &value))
        call->after_ms = (int)strtol(value, NULL, 10);
    else
        return false;
    return true;
}

static void do_pause(const char *word)
{
    const char *value;
    if (word_value(word, "sleep=", &value))
        sleep_ms(strtol(value, NULL, 10));
}

/* True if the word does something. */
static bool do_deed(struct call *call, const char *word)
{
    if (strcmp(word, "until_lost") == 0) {
        while (saga_task_still_mine(call->task))
            sleep_ms(20);
    } else if (strcmp(word, "hang") == 0) {
        for (;;)
            sleep_ms(1000);
    } else if (strcmp(word, "crash") == 0) {
        (void)kill(getpid(), SIGKILL); /* does not return */
    } else if (strcmp(word, "effect") == 0) {
        if (insert_effect(guard_conn(call->own), call, false) != 0)
            (void)fprintf(stderr, "scripted_worker: effect: %s\n",
                          PQerrorMessage(call->own->guard));
    } else {
        return false;
    }
    return true;
}

static int do_outcome(struct call *call, const char *word)
{
    struct saga_task *task = call->task;
    const char *code = *call->code ? call->code : "SCRIPT";
    const char *message = *call->message ? call->message : "as the script says";
    size_t size = size_of(call);
    if (strcmp(word, "done") == 0)
        return saga_task_done(task, out_of(call), size);
    if (strcmp(word, "already") == 0)
        return saga_task_already_done(task, out_of(call), size, true);
    if (strcmp(word, "foreign") == 0)
        return saga_task_already_done(task, out_of(call), size, false);
    if (strcmp(word, "rejected") == 0)
        return saga_task_rejected(task, code, message);
    if (strcmp(word, "retry") == 0)
        return saga_task_retry(task, code, message, call->after_ms);
    if (strcmp(word, "unknown") == 0)
        return saga_task_unknown(task, code, message);
    if (strcmp(word, "not_done") == 0)
        return saga_task_not_done(task);
    if (strcmp(word, "still_unknown") == 0)
        return saga_task_still_unknown(task, code, message);
    if (strcmp(word, "none") == 0)
        return 0;
    if (strcmp(word, "guarded") != 0)
        return -1;
    saga_guard_run(task, guard_conn(call->own), guard_body, call);
    return 0;
}

/* The words behind the first line that fits; false: none does. */
static bool find_line(const struct call *call, char ret_words[LINE_MAX_BYTES])
{
    struct saga_bytes input = saga_task_request(call->task);
    const char *text = (const char *)input.data;
    for (size_t at = 0; at < input.size;) {
        const char *end = memchr(text + at, '\n', input.size - at);
        size_t size = end ? (size_t)(end - text) - at : input.size - at;
        char line[LINE_MAX_BYTES];
        (void)snprintf(line, sizeof line, "%.*s", (int)size, text + at);
        at += size + 1;
        char *rest = line;
        const char *step = strsep(&rest, " "), *operation = strsep(&rest, " "),
                   *try_ = strsep(&rest, " ");
        if (!step || !operation || !try_ || !rest)
            continue;
        bool fits = (*step == '*' || strcmp(step, saga_task_step(call->task)) == 0) &&
                    (*operation == '*' || strcmp(operation, call->operation) == 0) &&
                    (*try_ == '*' || strtol(try_, NULL, 10) == saga_task_try(call->task));
        if (!fits)
            continue;
        (void)snprintf(ret_words, LINE_MAX_BYTES, "%s", rest);
        return true;
    }
    return false;
}

static void handle(struct saga_task *task, void *ctx)
{
    (void)ctx;
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        return; /* reported as UNKNOWN */
    call->task = task;
    call->own = &program.own[saga_task_thread(task)];
    static const char *const operations[] = { "", "A", "C", "P" };
    call->operation = operations[saga_task_operation(task)];
    record_start(call);
    char words[LINE_MAX_BYTES] = "done", deeds[LINE_MAX_BYTES];
    bool ended = false;
    (void)find_line(call, words); /* none: "done" */
    memcpy(deeds, words, sizeof deeds);
    char *rest = words;
    for (char *word; (word = strsep(&rest, " "));)
        (void)do_setting(call, word); /* the others are next */
    rest = deeds;
    for (char *word; (word = strsep(&rest, " "));) {
        if (!*word || strchr(word, '=') != NULL) {
            do_pause(word);
            continue;
        }
        if (do_deed(call, word))
            continue;
        ended = true;
        if (do_outcome(call, word) != 0)
            (void)fprintf(stderr, "scripted_worker: cannot do \"%s\"\n", word);
    }
    if (!ended)
        (void)do_outcome(call, "done"); /* fails only when memory is out */
    record_end(call);
    free(call->large);
    free(call);
}

/* --- the program ------------------------------------------------------------------------------ */

/* Tells tests what no call of the SDK tells them. */
static void *watch(void *ctx)
{
    (void)ctx;
    struct saga_worker_stats last = { 0 };
    for (;;) {
        struct saga_worker_stats now;
        saga_worker_stats(program.worker, &now);
        for (uint64_t i = last.connects; i < now.connects; i++)
            (void)printf("scripted_worker: connected\n");
        if (now.reports_stale != last.reports_stale)
            (void)printf("scripted_worker: stale=%" PRIu64 ".\n", now.reports_stale);
        if (now.reports_duplicate != last.reports_duplicate)
            (void)printf("scripted_worker: duplicate=%" PRIu64 ".\n", now.reports_duplicate);
        if (now.leases_lost != last.leases_lost)
            (void)printf("scripted_worker: lost=%" PRIu64 ".\n", now.leases_lost);
        (void)fflush(stdout); /* a test that is gone reads nothing */
        last = now;
        sleep_ms(20);
    }
    return NULL;
}

static int add_handler(char *text, struct saga_error *error)
{
    char *rest = text;
    const char *name = strsep(&rest, ":");
    int most = rest ? (int)strtol(rest, NULL, 10) : 1;
    return saga_worker_handle(program.worker, name, most, handle, NULL, error);
}

static const char *option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return NULL;
}

int main(int argc, char **argv)
{
    const char *threads = option(argc, argv, "--threads");
    const char *addresses[ADDRESSES_MAX + 1] = { NULL };
    for (int i = 1, count = 0; i + 1 < argc && count < ADDRESSES_MAX; i += 2)
        if (strcmp(argv[i], "--address") == 0)
            addresses[count++] = argv[i + 1];
    program.bank = option(argc, argv, "--bank");
    program.id = option(argc, argv, "--id");
    if (!addresses[0] || !program.bank || !program.id || argc % 2 == 0) {
        (void)fprintf(stderr, "usage: scripted_worker --address A ... --bank CONNINFO --id NAME"
                              " [--threads N] --handler NAME:MAX ...\n");
        return 2;
    }
    struct saga_worker_options options = {
        .addresses = addresses,
        .worker_id = program.id,
        .threads = threads ? (int)strtol(threads, NULL, 10) : 4,
        .drain_ms = 5000,
        .output_bytes_max = SAGA_OUTPUT_HARD_MAX, /* what the server takes of it is its own */
        .handle_signals = true,
    };
    struct saga_error error = { "" };
    int rc =
        options.threads > THREADS_MAX ? -1 : saga_worker_new(&options, &program.worker, &error);
    for (int i = 1; rc == 0 && i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--handler") == 0)
            rc = add_handler(argv[i + 1], &error);
    pthread_t watcher;
    if (rc == 0 && pthread_create(&watcher, NULL, watch, NULL) == 0)
        rc = saga_worker_run(program.worker, &error);
    if (rc != 0)
        (void)fprintf(stderr, "scripted_worker: %s\n", error.message);
    (void)printf("scripted_worker: ended\n");
    (void)fflush(stdout);   /* a test that is gone reads nothing */
    _exit(rc == 0 ? 0 : 1); /* the watcher still looks at the worker */
}
