/* The threads, and what a rule's thread does over and over: it looks what is wanted, asks the
 * cluster, and reads. Whatever blocks is bounded; the end wakes up what waits for the database. */
#include "kafka/ingest.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kafka/ingest_internal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    SECOND_MS = 1000,
    COUNT_MS = 1000,      /* how old a count for max_running may be */
    COUNT_AGAIN_MS = 250, /* and when none may start */
    PAUSE_AFTER_MS = 1000,
    TELL_MS = 5000,
    NAP_MS = 20,
    STACK_BYTES = 4 * 1024 * 1024, /* records may be nested deep */
};

/* --- waiting and failing ------------------------------------------------------------------------
 */

static void nap(struct run *run, int64_t ms)
{
    struct pollfd wait = { .fd = run->ingest->wake_fd, .events = POLLIN };
    (void)poll(&wait, 1, (int)ms); /* EINTR: the next turn waits again */
}

void run_failed(struct run *run, const char *what, const struct err *err)
{
    int64_t now = run_now(run);
    if (run_ends(run))
        return;
    run->back_off_ms = run->back_off_ms ? run->back_off_ms * 2 : BACK_OFF_MIN_MS;
    if (run->back_off_ms > BACK_OFF_MAX_MS)
        run->back_off_ms = BACK_OFF_MAX_MS;
    run->hold_until = now + run->back_off_ms;
    (void)snprintf(run->hold_why, sizeof run->hold_why, "%s", err->msg);
    if (err->code == ERR_UNAVAILABLE)
        run->look_at = now; /* is the database there? */
    if (run->told_at && now - run->told_at < TELL_MS)
        return;
    run->told_at = now;
    log_line(err->retryable ? LOG_WARN : LOG_ERROR, "a rule does not get on, and tries again",
             "rule", run->rule->name, "at", what, "err", err->msg, NULL);
}

struct part *run_find_part(struct run *run, int32_t partition)
{
    size_t low = 0, high = run->part_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (run->parts[middle].partition < partition)
            low = middle + 1;
        else
            high = middle;
    }
    return low < run->part_count && run->parts[low].partition == partition ? &run->parts[low]
                                                                           : NULL;
}

/* --- reading
 * -------------------------------------------------------------------------------------- */

static void parts_drop(struct run *run)
{
    records_drop(&run->batch);
    mem_free(run->parts);
    run->parts = NULL;
    run->part_count = 0;
    run->must_position = run->ends_seen = run->assigned = false;
}

static void fence(struct run *run, const struct err *err)
{
    run->fenced = true;
    log_line(LOG_ERROR,
             "a rule ends on this node: another member has its place in the group. Give each node"
             " an instance of its own, or end one of them",
             "rule", run->rule->name, "group", run->rule->group, "err", err->msg, NULL);
}

static void end_of_log(struct run *run, const struct consumer_event *event)
{
    struct part *part = run_find_part(run, event->partition);
    if (!part || part->stopped || run->must_position)
        return;
    switch (partition_end(&part->reader, event->offset)) {
    case PARTITION_HANDLE:
        part->log_end = event->offset;
        run->ends_seen = true;
        return;
    case PARTITION_ANOTHER:
        (void)position_stop(run, part, PARTITION_TOPIC_RECREATED, part->reader.before.offset,
                            event->offset); /* it tells */
        return;
    case PARTITION_PASS:
        break;
    }
}

static void event_take(struct run *run, struct consumer_event *event)
{
    enum { RANGE_AGAIN_MS = 1000 };
    switch (event->kind) {
    case CONSUMER_NOTHING:
        break;
    case CONSUMER_RECORD:
        run->heard_at = run_now(run);
        records_gather(run, event->message);
        break;
    case CONSUMER_ASSIGNED:
        parts_drop(run);
        run->assigned = true;
        position_again(run, 0);
        break;
    case CONSUMER_REVOKED:
        log_line(LOG_INFO, "the group takes this node's partitions back", "rule", run->rule->name,
                 "partitions", log_fmt("%zu", run->part_count), NULL);
        parts_drop(run);
        break;
    case CONSUMER_OUT_OF_RANGE: /* trimmed, or made anew: the log's ends tell */
        position_again(run, RANGE_AGAIN_MS);
        break;
    case CONSUMER_END:
        end_of_log(run, event);
        break;
    case CONSUMER_ERROR:
        if (!run->told_at || run_now(run) - run->told_at >= TELL_MS) {
            run->told_at = run_now(run);
            log_line(LOG_WARN, "Kafka", "rule", run->rule->name, "err", event->err.msg, NULL);
        }
        break;
    case CONSUMER_FATAL:
        fence(run, &event->err);
        break;
    }
}

/* How many more records may be gathered into this batch. */
static size_t room(const struct run *run)
{
    size_t limit = run->batch.limit;
    if (run->allowed < (int64_t)limit)
        limit = run->allowed > 0 ? (size_t)run->allowed : 0;
    return records_is_full(&run->batch) || run->batch.count >= limit ? 0 : limit - run->batch.count;
}

static void gather(struct run *run)
{
    struct consumer_event event;
    do {
        consumer_poll(run->consumer, run->batch.count || run->ends_seen ? 0 : POLL_MS, &event);
        event_take(run, &event);
    } while (event.kind != CONSUMER_NOTHING && room(run) && !run->must_position && !run->fenced &&
             !run_ends(run));
}

/* 0: `allowed` says how many sagas may start. */
static int allowed_count(struct run *run, int64_t now, struct err *err)
{
    int64_t max = run->definition->max_running, running;
    run->allowed = INT64_MAX;
    if (!max)
        return 0;
    if (store_ingest_running(run->store, run->rule->namespace_, run->rule->definition, max,
                             &running, err))
        return (int)err->code;
    run->allowed = max - running;
    run->counted_at = now;
    return 0;
}

static const char *held_by_limit(struct run *run, int64_t now)
{
    struct err err;
    int64_t age = run->counted_at ? now - run->counted_at : INT64_MAX;
    if (!run->definition->max_running) {
        run->allowed = INT64_MAX;
        return NULL;
    }
    if (age >= (run->allowed > 0 ? COUNT_MS : COUNT_AGAIN_MS) && allowed_count(run, now, &err)) {
        run_failed(run, "counting the sagas that run", &err);
        return run->hold_why;
    }
    return run->allowed > 0 ? NULL : "max_running sagas of the definition run";
}

/* Why nothing more is to be written now; NULL: it may be. */
static const char *held_by(struct run *run, int64_t now)
{
    if (run->database_since)
        return "the database is away";
    if (now < run->hold_until)
        return run->hold_why;
    if (!run->definition)
        return "the definition is not registered";
    if (run->is_paused)
        return "the definition is paused";
    if (*run->held_why)
        return run->held_why;
    if (!records_tell(run))
        return "the sagas that were started are not taken up yet";
    return held_by_limit(run, now);
}

/* Short waits cost nothing; before a long one the partitions are paused, and polling goes on. */
static void hold(struct run *run, const char *why, int64_t now)
{
    if (!run->held_since)
        run->held_since = now;
    if (why != run->hold_why)
        (void)snprintf(run->hold_why, sizeof run->hold_why, "%s", why);
    if (now - run->held_since < PAUSE_AFTER_MS) {
        nap(run, NAP_MS);
        return;
    }
    if (!run->hold_told) {
        run->hold_told = true;
        log_line(LOG_INFO, "partitions are paused", "rule", run->rule->name, "why", why, NULL);
    }
    consumer_pause(run->consumer);
    struct consumer_event event;
    consumer_poll(run->consumer, POLL_MS, &event);
    event_take(run, &event);
}

static void let_go(struct run *run)
{
    if (run->hold_told)
        log_line(LOG_INFO, "partitions are read again", "rule", run->rule->name, NULL);
    run->held_since = 0;
    run->hold_told = false;
    run->hold_why[0] = '\0';
    consumer_resume(run->consumer);
}

/* The group's offsets follow the cursors. timeout_ms 0: in the background, where they have moved;
 * else all of them, whatever became of what was sent before. */
static void follow(struct run *run, int timeout_ms)
{
    struct err err;
    size_t count = 0;
    bool any = timeout_ms > 0;
    CLEANUP(mem_free_p)
    struct consumer_position *positions = mem_calloc(run->part_count + 1, sizeof *positions);
    if (!positions || run->must_position)
        return; /* the next time */
    for (size_t i = 0; i < run->part_count; i++) {
        struct part *part = &run->parts[i];
        if (part->stopped)
            continue;
        any = any || part->followed != part->reader.next_offset;
        positions[count++] = (struct consumer_position){ .partition = part->partition,
                                                         .offset = part->reader.next_offset };
    }
    if (!any || consumer_follow(run->consumer, positions, count, timeout_ms, &err))
        return; /* they carry no promise */
    for (size_t i = 0; i < run->part_count; i++)
        run->parts[i].followed = run->parts[i].reader.next_offset;
}

static void seen(struct run *run, int64_t passed_ms)
{
    struct err err;
    CLEANUP(mem_free_p)
    struct store_ingest_seen *rows = mem_calloc(run->part_count + 1, sizeof *rows);
    if (!rows || run->database_since)
        return; /* the next time */
    for (size_t i = 0; i < run->part_count; i++) {
        struct part *part = &run->parts[i];
        int64_t end = consumer_end_offset(run->consumer, part->partition);
        if (end > part->end)
            part->end = end;
        rows[i] = (struct store_ingest_seen){
            .partition = part->partition,
            .low_offset = part->low,
            .end_offset = part->end,
            .paused_why = run->hold_told ? run->hold_why : NULL,
            .rate_per_s = (double)part->handled * 1000.0 / (double)passed_ms,
        };
        part->handled = 0;
    }
    if (run->part_count && store_ingest_seen(run->store, rows, run->part_count, &err))
        run->look_at = 0; /* is the database there? */
}

static void every_second(struct run *run, int64_t now)
{
    if (now < run->second_at)
        return;
    int64_t passed = now - run->second_at + SECOND_MS;
    run->second_at = now + SECOND_MS;
    follow(run, 0);
    seen(run, passed);
}

static void read_records(struct run *run, int64_t now)
{
    struct err err;
    if (!run->is_member) {
        if (consumer_subscribe(run->consumer, &err)) {
            run_failed(run, "joining the group", &err);
            nap(run, POLL_MS);
            return;
        }
        run->is_member = true;
        run->second_at = run->settled_at = now;
        log_line(LOG_INFO, "a rule joins its group", "rule", run->rule->name, "topic",
                 run->rule->topic, "group", run->rule->group, NULL);
    }
    if (run->must_position && now >= run->position_at && !run->database_since)
        position_try(run);
    if (run->assigned && !run->must_position)
        run->settled_at = now;
    const char *why = held_by(run, now);
    if (why) {
        hold(run, why, now);
    } else {
        let_go(run);
        if (room(run))
            gather(run);
        if ((run->batch.count || run->ends_seen) && !run->must_position && !run->fenced)
            records_write(run);
    }
    every_second(run, run_now(run));
    look_probe(run, run_now(run));
}

/* --- a rule's thread
 * ------------------------------------------------------------------------------ */

/* `leaves`: others get the partitions at once; else they stay this node's until the session is
 * over, so that a restart changes nothing. */
static void read_end(struct run *run, bool leaves, int64_t timeout_ms)
{
    if (!run->consumer)
        return;
    if (run->is_member && !run->fenced)
        follow(run, (int)(timeout_ms / 2));
    parts_drop(run);
    run->consumer = leaves ? consumer_leave(run->consumer, timeout_ms)
                           : consumer_close(run->consumer, timeout_ms);
    run->is_member = false;
    run->held_since = 0;
    run->hold_told = false;
    run->topic_checked = false;
    run->topic_at = 0;
}

/* Not ready while a rule that is to run cannot go on. */
static void stuck_tell(struct run *run, int64_t now)
{
    const char *why = NULL;
    if (run->fenced)
        why = "another member has its place in the group";
    else if (run->known && run->wanted && look_problem(run))
        why = look_problem(run);
    else if (run->database_since && now - run->database_since >= INGEST_DATABASE_MS)
        why = "the database is away";
    else if (run->consumer && now - run->heard_at >= INGEST_BROKER_MS)
        why = "no broker answers";
    else if (run->is_member && now - run->settled_at >= INGEST_BROKER_MS)
        why = "the group gives it no partitions, or nobody tells where they begin";
    bool was = atomic_exchange(&run->stuck, why != NULL);
    if (why && !was)
        log_line(LOG_WARN, "not ready: a rule that is to run cannot", "rule", run->rule->name,
                 "why", why, NULL);
    else if (!why && was)
        log_line(LOG_INFO, "a rule gets on again", "rule", run->rule->name, NULL);
}

static void turn(struct run *run)
{
    enum { LEAVE_MS = 5000 };
    int64_t now = run_now(run);
    look_database(run, now);
    look_topic(run, run_now(run));
    now = run_now(run);
    bool may = run->known && run->wanted && run->topic_checked && !run->fenced &&
               !*run->topic_problem && !*run->definition_problem;
    if (may) {
        read_records(run, now);
    } else {
        if (run->is_member || run->fenced || (run->known && !run->wanted))
            read_end(run, !run->fenced, LEAVE_MS);
        nap(run, POLL_MS);
    }
    stuck_tell(run, run_now(run));
}

static void *run_main(void *ctx)
{
    enum { CLOSE_MS = 2000 };
    struct run *run = ctx;
    while (!run_ends(run))
        turn(run);
    read_end(run, false, CLOSE_MS);
    run->left_behind = !work_end(run, CLOSE_MS);
    return NULL;
}

static struct run *run_free(struct run *run)
{
    if (!run)
        return NULL;
    look_drop_definition(run);
    records_done(&run->batch);
    mem_free(run->parts);
    run->store = store_ingest_free(run->store);
    mem_free(run);
    return NULL;
}

static int run_new(struct kafka_ingest *ingest, const struct kafka_rule *rule, uint64_t seed,
                   struct run **ret, struct err *err)
{
    struct run *run = mem_calloc(1, sizeof *run);
    if (!run)
        return err_set(err, ERR_NOMEM, "rule %s: out of memory", rule->name);
    run->ingest = ingest;
    run->rule = rule;
    run->work_seed = ~seed;
    const struct store_ingest_options options = { .conninfo = ingest->options.conninfo,
                                                  .clock = ingest->options.clock,
                                                  .node = ingest->options.node,
                                                  .rule = rule->name,
                                                  .topic = rule->topic,
                                                  .wake_fd = ingest->wake_fd,
                                                  .rng_seed = seed };
    if (records_init(&run->batch, rule->batch, err) ||
        store_ingest_new(&options, &run->store, err)) {
        (void)run_free(run);
        return err_wrap(err, "rule %s", rule->name);
    }
    *ret = run;
    return 0;
}

/* --- all of them
 * ---------------------------------------------------------------------------------- */

static int run_begin(struct run *run, struct err *err)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0)
        return err_set(err, ERR_NOMEM, "rule %s: out of memory", run->rule->name);
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* a size that is always allowed */
    int failed = pthread_create(&run->thread, &attr, run_main, run);
    (void)pthread_attr_destroy(&attr);
    if (failed)
        return err_set(err, ERR_UNAVAILABLE, "rule %s: no thread: %s", run->rule->name,
                       strerror(failed));
    run->has_thread = true;
    return 0;
}

int kafka_ingest_start(const struct kafka_ingest_options *options, struct kafka_ingest **ret,
                       struct err *err)
{
    struct rng rng;
    rng_seed(&rng, options->rng_seed);
    struct kafka_ingest *ingest = mem_calloc(1, sizeof *ingest);
    if (!ingest || !(ingest->runs = mem_calloc(options->rule_count + 1, sizeof(void *)))) {
        mem_free(ingest);
        return err_set(err, ERR_NOMEM, "ingest: out of memory");
    }
    ingest->options = *options;
    if (!ingest->options.payload_bytes_max)
        ingest->options.payload_bytes_max = LIMIT_PAYLOAD_BYTES;
    ingest->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = ingest->wake_fd < 0 ? err_set(err, ERR_UNAVAILABLE, "ingest: %s", strerror(errno)) : 0;
    for (size_t i = 0; rc == 0 && i < options->rule_count; i++) {
        rc = run_new(ingest, options->rules[i], rng_next(&rng), &ingest->runs[i], err);
        ingest->run_count += rc == 0;
    }
    for (size_t i = 0; rc == 0 && i < ingest->run_count; i++)
        rc = run_begin(ingest->runs[i], err);
    if (rc) {
        (void)kafka_ingest_stop(ingest, NAP_MS); /* what has begun ends at once */
        return rc;
    }
    *ret = ingest;
    return 0;
}

bool kafka_ingest_is_ready(const struct kafka_ingest *ingest)
{
    for (size_t i = 0; i < ingest->run_count; i++)
        if (atomic_load(&ingest->runs[i]->stuck))
            return false;
    return true;
}

void kafka_ingest_end(struct kafka_ingest *ingest)
{
    if (!atomic_exchange(&ingest->ends, true) && ingest->wake_fd >= 0)
        (void)eventfd_write(ingest->wake_fd, 1); /* one write to an eventfd of ours */
}

/* False: it did not end in time. */
static bool run_join(struct run *run, const struct timespec *until)
{
    if (!run->has_thread)
        return true;
    if (pthread_timedjoin_np(run->thread, NULL, until) == 0)
        return !run->left_behind;
    log_line(LOG_WARN, "a rule's thread does not end in time; it is left behind", "rule",
             run->rule->name, NULL);
    (void)pthread_detach(run->thread);
    return false;
}

bool kafka_ingest_stop(struct kafka_ingest *ingest, int64_t grace_ms)
{
    kafka_ingest_end(ingest);
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until); /* cannot fail for this clock */
    until.tv_sec += grace_ms / 1000 + 1;
    bool all = true;
    for (size_t i = 0; i < ingest->run_count; i++) {
        bool ended = run_join(ingest->runs[i], &until);
        all = all && ended;
        if (ended)
            ingest->runs[i] = run_free(ingest->runs[i]);
    }
    if (!all)
        return false;
    if (ingest->wake_fd >= 0)
        (void)close(ingest->wake_fd); /* nothing was written but the one word */
    mem_free(ingest->runs);
    mem_free(ingest);
    return true;
}
