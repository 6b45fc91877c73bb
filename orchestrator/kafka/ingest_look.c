/* What a rule's thread asks: the database, what is wanted of the rule, and the cluster, whether it
 * may run on its topic. */
#include "kafka/admin.h"
#include "kafka/ingest_internal.h"
#include "schema/definition_types.h"

#include "base/log.h"
#include "base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_MS = 500,
    ROW_MS = 3000,
    DEFINITION_MS = 2000,
    TOPIC_MS = 60 * 1000,
    TOPIC_AGAIN_MS = 5000, /* while it is not known, or has a problem */
    PROBE_MS = 5000,
    RETENTION_UNKNOWN = -2,
};

const char *look_problem(const struct run *run)
{
    const char *problems[] = { run->topic_problem, run->definition_problem, run->start_problem };
    for (size_t i = 0; i < ARRAY_LEN(problems); i++)
        if (*problems[i])
            return problems[i];
    return NULL;
}

/* `text` NULL: there is none (any more). */
static void problem_set(struct run *run, char problem[NOTE_BYTES], const char *text)
{
    if (strcmp(problem, text ? text : "") == 0)
        return;
    (void)snprintf(problem, NOTE_BYTES, "%s", text ? text : "");
    run->row_at = 0;
    if (text)
        log_line(LOG_ERROR, "a rule cannot run", "rule", run->rule->name, "problem", text, NULL);
    else
        log_line(LOG_INFO, "a rule can run again", "rule", run->rule->name, NULL);
}

/* --- what the database says
 * ----------------------------------------------------------------------- */

void look_drop_definition(struct run *run)
{
    run->definition = definition_free(run->definition);
    mem_free(run->content.data);
    mem_free(run->descriptors.data);
    run->content = run->descriptors = (struct bytes){ 0 };
}

static bool is_same(const struct bytes *a, const struct bytes *b)
{
    return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

static int definition_take(struct run *run, struct store_ingest_definition *found, struct err *err)
{
    struct definition *decoded = NULL;
    if (definition_decode_typed(&found->content, &found->descriptors, &decoded, err))
        return (int)err->code;
    look_drop_definition(run);
    decoded->revision = found->revision;
    run->definition = decoded;
    run->content = found->content;
    run->descriptors = found->descriptors;
    found->content = found->descriptors = (struct bytes){ 0 };
    run->counted_at = 0;
    struct err problem;
    int rc = kafka_rule_check(run->rule, decoded, &problem);
    problem_set(run, run->definition_problem, rc ? problem.msg : NULL);
    return 0;
}

/* Is a handler held that its sagas would wait for? */
static int held_look(struct run *run, struct err *err)
{
    const char *handlers[LIMIT_STEPS];
    size_t count = 0;
    char *held = NULL;
    *run->held_why = '\0';
    if (!run->rule->pauses_while_held || !run->definition)
        return 0;
    for (size_t i = 0; i < run->definition->step_count; i++)
        if (!run->definition->steps[i].signal)
            handlers[count++] = run->definition->steps[i].action.handler;
    if (store_ingest_held(run->store, handlers, count, &held, err))
        return (int)err->code;
    if (held)
        (void)snprintf(run->held_why, sizeof run->held_why, "handler %s is held", held);
    mem_free(held);
    return 0;
}

static int definition_look(struct run *run, struct err *err)
{
    const struct kafka_rule *rule = run->rule;
    struct store_ingest_definition found = { 0 };
    if (store_ingest_definition(run->store, rule->namespace_, rule->definition, &found, err)) {
        if (err->code != ERR_NOT_FOUND)
            return (int)err->code;
        look_drop_definition(run);
        problem_set(run, run->definition_problem, NULL);
        return 0;
    }
    run->is_paused = found.paused;
    int rc = 0;
    if (!run->definition || run->definition->revision != found.revision ||
        !is_same(&run->content, &found.content) || !is_same(&run->descriptors, &found.descriptors))
        rc = definition_take(run, &found, err);
    store_ingest_definition_done(&found);
    return rc ? rc : held_look(run, err);
}

static int row_write(struct run *run, struct store_ingest_wanted *ret, struct err *err)
{
    const struct kafka_rule *rule = run->rule;
    const struct store_ingest_rule row = {
        .group_id = rule->group,
        .namespace_ = rule->namespace_,
        .definition = rule->definition,
        .topic_retention_ms = run->topic_known ? run->topic_retention_ms : RETENTION_UNKNOWN,
        .topic_compacted = run->topic_compacted,
        .key_memory_ms = run->ingest->options.key_memory_ms,
        .problem = look_problem(run),
    };
    return store_ingest_rule(run->store, &row, ret, err);
}

/* Has a person let a partition go on that is stopped here, or moved a cursor? The latter needs the
 * rule stopped, but that may be over before this thread has seen it. */
static int cursors_look(struct run *run, struct err *err)
{
    if (!run->part_count || run->must_position)
        return 0;
    struct store_ingest_cursor *cursors = NULL;
    size_t count = 0;
    if (store_ingest_cursors(run->store, &cursors, &count, err))
        return (int)err->code;
    for (size_t i = 0; i < count; i++) {
        struct part *part = run_find_part(run, cursors[i].partition);
        if (!part || cursors[i].stopped)
            continue;
        if (part->stopped || part->reader.next_offset != cursors[i].next_offset) {
            log_line(LOG_INFO, part->stopped ? "a stopped partition goes on" : "a cursor was moved",
                     "rule", run->rule->name, "topic", run->rule->topic, "partition",
                     log_fmt("%" PRId32, part->partition), "cursor",
                     log_fmt("%" PRId64, cursors[i].next_offset), NULL);
            position_again(run, 0);
        }
    }
    store_ingest_cursors_done(cursors, count);
    return 0;
}

static int look_once(struct run *run, int64_t now, struct err *err)
{
    struct store_ingest_wanted wanted = { 0 };
    bool row_due = !run->known || now >= run->row_at;
    if (row_due ? row_write(run, &wanted, err) : store_ingest_wanted(run->store, &wanted, err))
        return (int)err->code;
    if (row_due)
        run->row_at = now + ROW_MS;
    if (run->known && run->wanted != wanted.run)
        log_line(LOG_INFO, wanted.run ? "a rule is to run" : "a rule is to stop", "rule",
                 run->rule->name, NULL);
    run->known = true;
    run->wanted = wanted.run;
    if (wanted.has_request || wanted.has_replay)
        work_begin(run);
    if (run->definition_stale || !run->definition || now >= run->definition_at) {
        if (definition_look(run, err))
            return (int)err->code;
        run->definition_at = now + DEFINITION_MS;
        run->definition_stale = false;
    }
    return cursors_look(run, err);
}

void look_database(struct run *run, int64_t now)
{
    struct err err;
    if (now < run->look_at)
        return;
    run->look_at = now + LOOK_MS;
    if (look_once(run, now, &err) == 0) {
        if (run->database_since)
            log_line(LOG_INFO, "the database is there again", "rule", run->rule->name, NULL);
        run->database_since = 0;
        return;
    }
    if (err.code == ERR_NOT_FOUND)
        run->known = false; /* the rule's row is gone: it is written anew */
    if (!run->database_since)
        run->database_since = now;
    run_failed(run, "looking what is wanted", &err);
    run->look_at = run_now(run) + LOOK_MS;
}

/* --- what the cluster says
 * ------------------------------------------------------------------------ */

static const char *duration_text(int64_t ms)
{
    static const struct {
        int64_t ms;
        const char *unit;
    } units[] = { { 86400000, "d" }, { 3600000, "h" }, { 60000, "m" }, { 1000, "s" } };
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (ms >= units[i].ms && ms % units[i].ms == 0)
            return log_fmt("%" PRId64 "%s", ms / units[i].ms, units[i].unit);
    return log_fmt("%" PRId64 "ms", ms);
}

/* How long a record is kept at most: a segment goes as a whole, retention.ms after its last record,
 * which may be segment.ms younger than its first. -1: for ever. */
static int64_t kept_ms(const struct admin_topic *settings)
{
    if (settings->retention_ms < 0 || settings->segment_ms < 0 ||
        settings->retention_ms > INT64_MAX - settings->segment_ms)
        return -1;
    return settings->retention_ms + settings->segment_ms;
}

/* A key must be remembered for as long as its record can come again. */
static int retention_check(struct run *run, struct err *err)
{
    const char *topic = run->rule->topic;
    int64_t memory = run->ingest->options.key_memory_ms;
    struct admin_topic settings;
    if (admin_topic_settings(consumer_handle(run->consumer), topic, CLUSTER_CALL_MS, &settings,
                             err)) {
        if (memory < 0)
            return 0; /* for ever is long enough, whatever they are */
        if (err->code == ERR_UNAVAILABLE)
            return (int)err->code;
        return err_reason(err, ERR_PRECONDITION, "RETENTION_UNKNOWN",
                          "how long %s keeps records is not to be learnt (%.120s): allow sagad"
                          " DescribeConfigs on it, or say key-memory = forever",
                          topic, err->msg);
    }
    run->topic_known = true;
    run->topic_compacted = settings.is_compacted;
    run->topic_retention_ms = settings.is_compacted ? -1 : kept_ms(&settings);
    if (memory < 0)
        return 0;
    if (run->topic_retention_ms < 0)
        return err_reason(err, ERR_PRECONDITION, "RETENTION_TOO_LONG",
                          "%s keeps records for ever%s, and key-memory is %s: a record could come"
                          " again when its key is forgotten. Say key-memory = forever",
                          topic, settings.is_compacted ? " (it is compacted)" : "",
                          duration_text(memory));
    if (run->topic_retention_ms > memory)
        return err_reason(
            err, ERR_PRECONDITION, "RETENTION_TOO_LONG",
            "%s keeps records for retention.ms = %s and segment.ms = %s, and key-memory"
            " is %s: a record could come again when its key is forgotten. Say"
            " key-memory = %s, or longer",
            topic, duration_text(settings.retention_ms), duration_text(settings.segment_ms),
            duration_text(memory), duration_text(run->topic_retention_ms));
    return 0;
}

/* What stands in a group.instance.id: [a-zA-Z0-9._-]. */
static void instance_name(const struct run *run, char ret[KAFKA_INSTANCE_BYTES + 1])
{
    const char *name = run->rule->instance ? run->rule->instance : run->ingest->options.node;
    (void)snprintf(ret, KAFKA_INSTANCE_BYTES + 1, "%s", name);
    for (char *at = ret; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("._-", *at))
            *at = '-';
}

static int consumer_make(struct run *run, struct err *err)
{
    char instance[KAFKA_INSTANCE_BYTES + 1], mark[KAFKA_RULE_NAME_BYTES + 8];
    instance_name(run, instance);
    (void)snprintf(mark, sizeof mark, "sagad/%s", run->rule->name);
    const struct consumer_options options = { .brokers = run->ingest->options.brokers,
                                              .topic = run->rule->topic,
                                              .group = run->rule->group,
                                              .instance = instance,
                                              .mark = mark,
                                              .common = run->ingest->options.properties,
                                              .own = &run->rule->properties };
    run->heard_at = run_now(run); /* from now on it is missed */
    return consumer_new(&options, &run->consumer, err);
}

static int topic_check(struct run *run, struct err *err)
{
    int32_t partitions;
    if (!run->consumer && consumer_make(run, err))
        return (int)err->code;
    if (admin_partition_count(consumer_handle(run->consumer), run->rule->topic, CLUSTER_CALL_MS,
                              &partitions, err))
        return (int)err->code;
    run->heard_at = run_now(run);
    return retention_check(run, err);
}

/* May the rule run on this topic? */
void look_topic(struct run *run, int64_t now)
{
    struct err err;
    if (!run->known || !run->wanted || run->fenced || now < run->topic_at)
        return;
    if (topic_check(run, &err) == 0) {
        run->topic_checked = true;
        problem_set(run, run->topic_problem, NULL);
        run->topic_at = run_now(run) + TOPIC_MS;
        return;
    }
    run->topic_at = run_now(run) + TOPIC_AGAIN_MS;
    if (err.code == ERR_UNAVAILABLE || err.code == ERR_NOMEM)
        run_failed(run, "asking the cluster", &err); /* what was known before still holds */
    else
        problem_set(run, run->topic_problem, err.msg);
}

/* A sign of the brokers, and where the logs begin and end by now. */
void look_probe(struct run *run, int64_t now)
{
    enum { PROBE_CALL_MS = 1000 };
    struct err err;
    if (now < run->probe_at || run->must_position)
        return;
    run->probe_at = now + PROBE_MS;
    rd_kafka_t *handle = consumer_handle(run->consumer);
    int32_t partitions;
    if (!run->part_count) {
        if (admin_partition_count(handle, run->rule->topic, PROBE_CALL_MS, &partitions, &err) == 0)
            run->heard_at = run_now(run);
        return;
    }
    CLEANUP(mem_free_p) struct consumer_position *low = mem_calloc(run->part_count, sizeof *low);
    if (!low)
        return; /* the next time */
    for (size_t i = 0; i < run->part_count; i++)
        low[i].partition = run->parts[i].partition;
    if (admin_offsets(handle, run->rule->topic, ADMIN_LOW, PROBE_CALL_MS, low, run->part_count,
                      &err))
        return;
    run->heard_at = run_now(run);
    for (size_t i = 0; i < run->part_count; i++)
        run->parts[i].low = low[i].offset;
}
