#include "retention/retention.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "retention/archive.h"
#include "retention/pace.h"
#include "store/retention.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    SAY_MS = 5000,             /* how often the table is told */
    FORGET_LOOK_MS = 5000,     /* how often to look for keys whose time is over */
    FORGET_MAX = 1000,         /* keys of one transaction; lines of the audit, too */
    AUDIT_LOOK_MS = 60 * 1000, /* how often to look for lines that are old */
    RETRY_FIRST_MS = 500,      /* after a failure */
    RETRY_MAX_MS = 5000,
    TELL_MS = 60 * 1000,     /* how often the same problem is logged */
    DAY_LOOK_MS = 60 * 1000, /* how often to look for days that are over */
    RATE_LOOK_MS = 1000,     /* how often to look how many sagas end */
    PROBLEM_SIZE = sizeof((struct err){ 0 }.msg),
};

enum turn { TURN_NOTHING, TURN_SAY, TURN_FORGET, TURN_AUDIT, TURN_DAYS, TURN_PURGE };

struct retention {
    char *node, *folder; /* folder NULL: no archive */
    int64_t age_ms, key_memory_ms, audit_ms, round_pause_ms;
    int64_t (*ended)(void *ctx);
    void *ended_ctx;
    int stop_fd; /* eventfd */
    pthread_t thread;
    /* The thread's: */
    struct store_retention *store;
    struct archive *archive; /* NULL: none */
    struct store_retention_batch batch;
    struct pace pace;
    int64_t rate; /* 0: no bound */
    int64_t ended_before, rate_looked_ms;
    bool in_round;
    struct store_retention_round round;
    int64_t round_due_ms, forget_due_ms, audit_due_ms, say_due_ms, days_due_ms; /* monotonic */
    int64_t round_began_ms, round_ended_ms, round_purged, purged, forgotten;
    char problem[PROBLEM_SIZE]; /* "": none */
    enum turn problem_turn;     /* what it stopped; that alone, done, ends it */
    int64_t told_ms, retry_ms, retry_at_ms;
};

static int64_t now_ms(void)
{
    return clock_mono_ms(&clock_system);
}

/* False: it is to stop. */
static bool wait_ms(const struct retention *retention, int64_t ms)
{
    struct pollfd stop = { .fd = retention->stop_fd, .events = POLLIN };
    int ready = poll(&stop, 1, (int)ms);
    return ready == 0 || (ready < 0 && errno == EINTR);
}

/* --- what is in the way --------------------------------------------------------------------------
 */

static void problem_is(struct retention *retention, enum turn turn, const struct err *err)
{
    static const char *const what[] = {
        [TURN_NOTHING] = "retention",
        [TURN_SAY] = "retention: the database cannot be told what is done",
        [TURN_FORGET] = "retention: no keys are forgotten",
        [TURN_AUDIT] = "retention: no lines of the audit are forgotten",
        [TURN_DAYS] = "retention: a day's archive gets no manifest",
        [TURN_PURGE] = "retention stands still: nothing is purged",
    };
    bool same = strcmp(retention->problem, err->msg) == 0;
    if (!same || now_ms() - retention->told_ms >= TELL_MS) {
        bool stops = turn == TURN_PURGE || turn == TURN_DAYS;
        log_line(stops ? LOG_ERROR : LOG_WARN, what[turn], "err", err->msg, NULL);
        retention->told_ms = now_ms();
    }
    if (!same && turn != TURN_SAY)
        retention->say_due_ms = 0;
    (void)snprintf(retention->problem, sizeof retention->problem, "%s", err->msg);
    retention->problem_turn = turn;
    int64_t longer_ms = retention->retry_ms ? 2 * retention->retry_ms : RETRY_FIRST_MS;
    retention->retry_ms = longer_ms < RETRY_MAX_MS ? longer_ms : RETRY_MAX_MS;
    retention->retry_at_ms = now_ms() + retention->retry_ms;
    if (turn == TURN_DAYS) /* the rest goes on */
        retention->days_due_ms = now_ms() + RETRY_MAX_MS;
}

static void problem_is_over(struct retention *retention)
{
    log_line(LOG_INFO, "retention goes on", NULL);
    retention->problem[0] = '\0';
    retention->retry_ms = retention->retry_at_ms = 0;
    retention->say_due_ms = 0;
}

/* --- rounds --------------------------------------------------------------------------------------
 */

static void round_begin(struct retention *retention)
{
    struct rng rng;
    rng_seed_os(&rng);
    retention->in_round = true;
    /* Another node's begins elsewhere. */
    retention->round =
        (struct store_retention_round){ .next = (uint8_t)(rng_next(&rng) % RETENTION_SHARDS) };
    retention->round_began_ms = clock_wall_ms(&clock_system);
    retention->round_ended_ms = 0;
    retention->round_purged = 0;
}

static void round_end(struct retention *retention)
{
    int64_t wall_ms = clock_wall_ms(&clock_system);
    retention->in_round = false;
    retention->round_ended_ms = wall_ms;
    retention->round_due_ms = now_ms() + retention->round_pause_ms;
    if (retention->round_purged)
        log_line(LOG_INFO, "purged sagas that ended long ago", "sagas",
                 log_fmt("%" PRId64, retention->round_purged), "ms",
                 log_fmt("%" PRId64, wall_ms - retention->round_began_ms), NULL);
}

static int write_line(void *ctx, const char *line, size_t size, struct err *err)
{
    return archive_add(ctx, line, size, err);
}

/* The picked sagas are on the disk when it returns 0. */
static int write_batch(struct retention *retention, struct err *err)
{
    struct archive *archive = retention->archive;
    if (archive_begin(archive, clock_wall_ms(&clock_system), err) != 0)
        return (int)err->code;
    if (store_retention_lines(retention->store, &retention->batch, write_line, archive, err) != 0) {
        archive_undo(archive);
        return (int)err->code;
    }
    if (archive_sync(archive, err) != 0)
        return (int)err->code;
    fault_point("after_archive");
    return 0;
}

static void look_at_rate(struct retention *retention)
{
    int64_t now = now_ms(), ms = now - retention->rate_looked_ms;
    if (!retention->ended || (retention->rate && ms < RATE_LOOK_MS))
        return;
    int64_t ended = retention->ended(retention->ended_ctx);
    retention->rate = pace_rate(ended - retention->ended_before, ms);
    retention->ended_before = ended;
    retention->rate_looked_ms = now;
}

static int purge_batch(struct retention *retention, struct err *err)
{
    struct store_retention_batch *batch = &retention->batch;
    batch->count = 0;
    look_at_rate(retention);
    int64_t began_ms = now_ms();
    if (store_retention_pick(retention->store, &retention->round, retention->age_ms,
                             pace_limit(&retention->pace, retention->rate), batch, err) != 0)
        return (int)err->code;
    int64_t picked_ms = now_ms();
    if (batch->count && retention->archive && write_batch(retention, err) != 0) {
        store_retention_drop(retention->store);
        return (int)err->code;
    }
    int64_t archive_ms = now_ms() - picked_ms;
    const char *file = retention->archive ? archive_name(retention->archive) : NULL;
    if (batch->count &&
        store_retention_delete(retention->store, batch, file, retention->key_memory_ms, err) != 0)
        return (int)err->code;
    retention->round_purged += (int64_t)batch->count;
    retention->purged += (int64_t)batch->count;
    pace_batch(&retention->pace, batch->looked_at, now_ms() - began_ms - archive_ms,
               RETENTION_BATCH_MAX);
    retention->round = batch->after;
    if (batch->round_over)
        round_end(retention);
    return 0;
}

/* --- the thread ----------------------------------------------------------------------------------
 */

static int forget(struct retention *retention, struct err *err)
{
    size_t count = 0;
    if (store_retention_forget(retention->store, FORGET_MAX, &count, err) != 0)
        return (int)err->code;
    retention->forgotten += (int64_t)count;
    if (count < FORGET_MAX)
        retention->forget_due_ms = now_ms() + FORGET_LOOK_MS;
    return 0;
}

static int forget_audit(struct retention *retention, struct err *err)
{
    size_t count = 0;
    if (store_retention_audit(retention->store, retention->audit_ms, FORGET_MAX, &count, err) != 0)
        return (int)err->code;
    if (count < FORGET_MAX)
        retention->audit_due_ms = now_ms() + AUDIT_LOOK_MS;
    return 0;
}

static int say(struct retention *retention, struct err *err)
{
    const struct store_retention_node node = {
        .node = retention->node,
        .retention_ms = retention->age_ms,
        .key_memory_ms = retention->key_memory_ms,
        .archive = retention->folder,
        .problem = retention->problem[0] ? retention->problem : NULL,
        .round_began_ms = retention->round_began_ms,
        .round_ended_ms = retention->round_ended_ms,
        .round_purged = retention->round_purged,
        .purged = retention->purged,
        .forgotten = retention->forgotten,
    };
    if (store_retention_say(retention->store, &node, err) != 0)
        return (int)err->code;
    retention->say_due_ms = now_ms() + SAY_MS;
    return 0;
}

static int close_days(struct retention *retention, struct err *err)
{
    if (archive_close_days(retention->archive, clock_wall_ms(&clock_system), NULL, err) != 0)
        return (int)err->code;
    retention->days_due_ms = now_ms() + DAY_LOOK_MS;
    return 0;
}

/* What is due, what is quick before the purge. After a failure the table alone is told, if it is
 * not the database that fails. */
static enum turn choose(const struct retention *retention)
{
    int64_t now = now_ms();
    bool held = now < retention->retry_at_ms;
    if (retention->say_due_ms <= now && !(held && retention->problem_turn == TURN_SAY))
        return TURN_SAY;
    if (held)
        return TURN_NOTHING;
    if (retention->key_memory_ms >= 0 && retention->forget_due_ms <= now)
        return TURN_FORGET;
    if (retention->audit_ms > 0 && retention->audit_due_ms <= now)
        return TURN_AUDIT;
    if (retention->age_ms < 0)
        return TURN_NOTHING;
    if (retention->archive && retention->days_due_ms <= now)
        return TURN_DAYS;
    return retention->in_round || retention->round_due_ms <= now ? TURN_PURGE : TURN_NOTHING;
}

static int take_turn(struct retention *retention, enum turn turn, struct err *err)
{
    switch (turn) {
    case TURN_SAY:
        return say(retention, err);
    case TURN_FORGET:
        return forget(retention, err);
    case TURN_AUDIT:
        return forget_audit(retention, err);
    case TURN_DAYS:
        return close_days(retention, err);
    case TURN_PURGE:
        if (!retention->in_round)
            round_begin(retention);
        return purge_batch(retention, err);
    default:
        return 0;
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How long there is nothing to do. */
static int64_t idle_ms(const struct retention *retention)
{
    int64_t now = now_ms(), next = retention->say_due_ms;
    if (now < retention->retry_at_ms) {
        bool says = retention->problem_turn != TURN_SAY;
        next = says ? earlier(next, retention->retry_at_ms) : retention->retry_at_ms;
    } else {
        if (retention->key_memory_ms >= 0)
            next = earlier(next, retention->forget_due_ms);
        if (retention->audit_ms > 0)
            next = earlier(next, retention->audit_due_ms);
        if (retention->age_ms >= 0)
            next = earlier(next, retention->in_round ? now : retention->round_due_ms);
    }
    return next > now ? next - now : 0;
}

static void *run(void *ctx)
{
    struct retention *retention = ctx;
    int64_t pause_ms = 0;
    while (wait_ms(retention, pause_ms)) {
        struct err err;
        enum turn turn = choose(retention);
        int64_t began_ms = now_ms();
        if (take_turn(retention, turn, &err) == 0) {
            if (retention->problem[0] && retention->problem_turn == turn)
                problem_is_over(retention);
            bool works = turn == TURN_PURGE || turn == TURN_FORGET || turn == TURN_AUDIT;
            size_t purged = turn == TURN_PURGE ? retention->batch.count : 0;
            pause_ms = works ? pace_pause_ms(now_ms() - began_ms, purged, retention->rate)
                             : idle_ms(retention);
            continue;
        }
        if (!wait_ms(retention, 0))
            break; /* that it stops is what failed it */
        problem_is(retention, turn, &err);
        pause_ms = idle_ms(retention);
    }
    return NULL;
}

static struct retention *retention_free(struct retention *retention)
{
    retention->store = store_retention_free(retention->store);
    retention->archive = archive_free(retention->archive);
    if (retention->stop_fd >= 0)
        (void)close(retention->stop_fd); /* nobody waits for it any more */
    mem_free(retention->node);
    mem_free(retention->folder);
    mem_free(retention);
    return NULL;
}

static int prepare(struct retention *retention, const struct retention_options *options,
                   struct err *err)
{
    bool archives = options->archive && *options->archive;
    retention->node = mem_strdup(options->node);
    retention->folder = archives ? mem_strdup(options->archive) : NULL;
    if (!retention->node || (archives && !retention->folder))
        return err_set(err, ERR_NOMEM, "retention: out of memory");
    retention->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (retention->stop_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "retention: eventfd: %s", strerror(errno));
    if (store_retention_new(options->conninfo, retention->stop_fd, &retention->store, err) != 0)
        return (int)err->code;
    return archives ? archive_new(options->archive, options->node, retention->stop_fd,
                                  &retention->archive, err)
                    : 0;
}

int retention_start(const struct retention_options *options, struct retention **ret,
                    struct err *err)
{
    struct retention *retention = mem_calloc(1, sizeof *retention);
    if (!retention)
        return err_set(err, ERR_NOMEM, "retention: out of memory");
    retention->stop_fd = -1;
    retention->age_ms = options->age_ms;
    retention->key_memory_ms = options->key_memory_ms;
    retention->audit_ms = options->audit_ms;
    retention->round_pause_ms =
        options->round_pause_ms ? options->round_pause_ms : pace_round_ms(options->age_ms);
    retention->pace.limit = PACE_FIRST;
    retention->ended = options->ended;
    retention->ended_ctx = options->ended_ctx;
    int rc = prepare(retention, options, err);
    int failed = rc ? 0 : pthread_create(&retention->thread, NULL, run, retention);
    if (failed)
        rc = err_set(err, ERR_UNAVAILABLE, "retention: no thread: %s", strerror(failed));
    if (rc) {
        (void)retention_free(retention); /* always NULL */
        return rc;
    }
    *ret = retention;
    return 0;
}

struct retention *retention_stop(struct retention *retention)
{
    if (!retention)
        return NULL;
    static const uint64_t one = 1;
    ssize_t written = write(retention->stop_fd, &one, sizeof one);
    (void)written;                               /* the counter cannot be full */
    (void)pthread_join(retention->thread, NULL); /* ours, joined once */
    return retention_free(retention);
}
