/* What people asked for. A thread of its own does it, on connections of its own, so that the rule
 * goes on reading meanwhile; it takes one request after the other and ends when there is none. */
#include "kafka/admin.h"
#include "kafka/ingest_internal.h"
#include "schema/definition_types.h"

#include "base/log.h"
#include "base/mem.h"
#include "wire/json.h"

#include <inttypes.h>
#include <saga/v1/kafka.pb-c.h>
#include <string.h>
#include <time.h>

enum { CLOSE_MS = 2000, STACK_BYTES = 4 * 1024 * 1024 };

int work_consumer(const struct work *work, struct consumer **ret, struct err *err)
{
    const struct consumer_options options = { .brokers = work->ingest->options.brokers,
                                              .topic = work->rule->topic,
                                              .group = work->rule->group, /* never joined */
                                              .mark = "sagad",
                                              .common = work->ingest->options.properties,
                                              .own = &work->rule->properties };
    return consumer_new(&options, ret, err);
}

int work_positions(const struct work *work, struct consumer *consumer, int64_t time_ms,
                   struct consumer_position **ret, size_t *ret_count, struct err *err)
{
    int32_t count = 0;
    rd_kafka_t *handle = consumer_handle(consumer);
    if (admin_partition_count(handle, work->rule->topic, CLUSTER_CALL_MS, &count, err))
        return (int)err->code;
    struct consumer_position *positions = mem_calloc((size_t)count, sizeof *positions);
    if (!positions)
        return err_set(err, ERR_NOMEM, "%" PRId32 " partitions: out of memory", count);
    for (int32_t i = 0; i < count; i++)
        positions[i].partition = i;
    if (admin_offsets(handle, work->rule->topic, time_ms, CLUSTER_CALL_MS, positions, (size_t)count,
                      err)) {
        mem_free(positions);
        return (int)err->code;
    }
    *ret = positions;
    *ret_count = (size_t)count;
    return 0;
}

/* --- TAKEOVER
 * ------------------------------------------------------------------------------------- */

static int check_members(struct consumer *consumer, const char *group, struct err *err)
{
    char member[256];
    size_t count = 0;
    if (admin_group_members(consumer_handle(consumer), group, CLUSTER_CALL_MS, &count, member,
                            sizeof member, err))
        return (int)err->code;
    if (!count)
        return 0;
    return err_reason(err, ERR_PRECONDITION, "GROUP_HAS_MEMBERS",
                      "the group %s has members (%zu, the first is %s): stop its consumers first",
                      group, count, member);
}

/* Where the rule would begin in a partition that the group has no offset of. */
static int64_t start_time(const struct kafka_rule *rule)
{
    switch (rule->start) {
    case KAFKA_START_LATEST:
        return ADMIN_END;
    case KAFKA_START_TIME:
        return rule->start_ms;
    case KAFKA_START_GROUP:
    case KAFKA_START_EARLIEST:
        break;
    }
    return ADMIN_LOW;
}

struct takeover { /* one block each, by partition */
    struct consumer_position *starts, *ends, *offsets;
    struct store_ingest_takeover *parts;
    size_t count;
};

static void takeover_done(struct takeover *takeover)
{
    mem_free(takeover->starts);
    mem_free(takeover->ends);
    mem_free(takeover->offsets);
    mem_free(takeover->parts);
}

static int takeover_ask(const struct work *work, struct consumer *consumer, const char *group,
                        struct takeover *ret, struct err *err)
{
    size_t starts, ends, offsets;
    bool any = false;
    if (check_members(consumer, group, err) ||
        work_positions(work, consumer, ADMIN_LOW, &ret->offsets, &offsets, err) ||
        admin_group_offsets(consumer_handle(consumer), group, work->rule->topic, CLUSTER_CALL_MS,
                            ret->offsets, offsets, err))
        return (int)err->code;
    for (size_t i = 0; i < offsets; i++)
        any = any || ret->offsets[i].offset >= 0;
    if (!any)
        return err_reason(err, ERR_PRECONDITION, "GROUP_HAS_NO_OFFSETS",
                          "the group %s has none on %s", group, work->rule->topic);
    /* The ends after the offsets, and the members once more: nobody moved on in between. */
    if (work_positions(work, consumer, start_time(work->rule), &ret->starts, &starts, err) ||
        work_positions(work, consumer, ADMIN_END, &ret->ends, &ends, err) ||
        check_members(consumer, group, err))
        return (int)err->code;
    if (starts != offsets || ends != offsets)
        return err_set(err, ERR_UNAVAILABLE, "the topic's partitions change just now");
    ret->count = offsets;
    ret->parts = mem_calloc(offsets, sizeof *ret->parts);
    return ret->parts ? 0 : err_set(err, ERR_NOMEM, "takeover: out of memory");
}

static int takeover_text(const struct takeover *takeover, char **ret, struct err *err)
{
    size_t count = takeover->count;
    Saga__V1__KafkaTakeOverResult message = SAGA__V1__KAFKA_TAKE_OVER_RESULT__INIT;
    CLEANUP(mem_free_p)
    Saga__V1__KafkaTakeOverResult__Partition *parts = mem_calloc(count, sizeof *parts);
    CLEANUP(mem_free_p)
    Saga__V1__KafkaTakeOverResult__Partition **pointers = mem_calloc(count, sizeof(void *));
    if (!parts || !pointers)
        return err_set(err, ERR_NOMEM, "takeover: out of memory");
    for (size_t i = 0; i < count; i++) {
        saga__v1__kafka_take_over_result__partition__init(&parts[i]);
        parts[i].partition = takeover->parts[i].partition;
        parts[i].next_offset = takeover->parts[i].next_offset;
        parts[i].suspect_until = takeover->parts[i].suspect_until;
        pointers[i] = &parts[i];
    }
    message.n_partitions = count;
    message.partitions = pointers;
    return wire_json_encode(&message.base, ret, err);
}

static int take_over(struct work *work, const struct store_ingest_request *request, struct err *err)
{
    CLEANUP(takeover_done) struct takeover takeover = { 0 };
    CLEANUP(mem_free_p) char *text = NULL;
    struct consumer *consumer = NULL;
    if (work_consumer(work, &consumer, err))
        return (int)err->code;
    int rc = takeover_ask(work, consumer, request->group, &takeover, err);
    (void)consumer_close(consumer, CLOSE_MS);
    if (rc)
        return rc;
    for (size_t i = 0; i < takeover.count; i++) {
        bool has = takeover.offsets[i].offset >= 0;
        takeover.parts[i] = (struct store_ingest_takeover){
            .partition = takeover.offsets[i].partition,
            .next_offset = has ? takeover.offsets[i].offset : takeover.starts[i].offset,
            .suspect_until = takeover.ends[i].offset,
        };
    }
    if (takeover_text(&takeover, &text, err) ||
        store_ingest_takeover(work->store, &request->id, takeover.parts, takeover.count, text, err))
        return (int)err->code;
    for (size_t i = 0; i < takeover.count; i++)
        log_line(LOG_INFO, "a partition is taken over", "rule", work->rule->name, "topic",
                 work->rule->topic, "group", request->group, "partition",
                 log_fmt("%" PRId32, takeover.parts[i].partition), "offset",
                 log_fmt("%" PRId64, takeover.parts[i].next_offset), "suspect_until",
                 log_fmt("%" PRId64, takeover.parts[i].suspect_until), "actor", request->actor,
                 NULL);
    return 0;
}

/* --- one after the other
 * ---------------------------------------------------------------------------- */

static int definition_load(struct work *work, struct err *err)
{
    struct store_ingest_definition found = { 0 };
    work->definition = definition_free(work->definition);
    if (store_ingest_definition(work->store, work->rule->namespace_, work->rule->definition, &found,
                                err))
        return (int)err->code;
    int rc = definition_decode_typed(&found.content, &found.descriptors, &work->definition, err);
    if (rc == 0)
        work->definition->revision = found.revision;
    store_ingest_definition_done(&found);
    return rc ? rc : kafka_rule_check(work->rule, work->definition, err);
}

static int check(struct work *work, const struct store_ingest_request *request, struct err *err)
{
    CLEANUP(mem_free_p) char *text = NULL;
    if (definition_load(work, err) || work_check(work, request, &text, err))
        return (int)err->code;
    return store_ingest_finish(work->store, &request->id, text, NULL, err);
}

/* Is it of no use to say so in the database, or is that not possible? */
static bool is_left(const struct work *work, const struct err *err)
{
    return work_ends(work) || err->code == ERR_CONFLICT || strcmp(err->reason, "STOPPED") == 0 ||
           strcmp(err->reason, "COMMIT_IN_DOUBT") == 0;
}

static int request_do(struct work *work, const struct store_ingest_request *request,
                      struct err *err)
{
    const char *kind = request->kind == INGEST_CHECK ? "CHECK" : "TAKEOVER";
    struct err failure;
    log_line(LOG_INFO, "a request is worked on", "rule", work->rule->name, "kind", kind, "actor",
             request->actor, "reason", request->reason, NULL);
    int rc = request->kind == INGEST_CHECK ? check(work, request, &failure)
                                           : take_over(work, request, &failure);
    if (rc == 0) {
        log_line(LOG_INFO, "a request is done", "rule", work->rule->name, "kind", kind, NULL);
        return 0;
    }
    log_line(LOG_WARN, "a request failed", "rule", work->rule->name, "kind", kind, "err",
             failure.msg, NULL);
    if (is_left(work, &failure)) { /* whoever takes it next goes on */
        *err = failure;
        return rc;
    }
    return store_ingest_finish(work->store, &request->id, NULL, &failure, err);
}

static int work_all(struct work *work, struct err *err)
{
    int rc = 0;
    while (rc == 0 && !work_ends(work)) {
        struct store_ingest_request request = { 0 };
        rc = store_ingest_take(work->store, WORK_LEASE_MS, &request, err);
        if (rc)
            break;
        rc = request_do(work, &request, err);
        store_ingest_request_done(&request);
    }
    if (rc && err->code != ERR_NOT_FOUND)
        return rc;
    if (definition_load(work, err)) /* letters wait for one that they can start */
        return err->code == ERR_NOT_FOUND || err->code == ERR_INVALID ? 0 : (int)err->code;
    return work_replay(work, err);
}

static void *work_main(void *ctx)
{
    struct work *work = ctx;
    struct err err;
    if (work_all(work, &err) && !work_ends(work))
        log_line(LOG_WARN, "what was asked for is done later", "rule", work->rule->name, "err",
                 err.msg, NULL);
    work->definition = definition_free(work->definition);
    atomic_store(&work->is_busy, false);
    return NULL;
}

static int work_new(const struct run *run, struct work **ret, struct err *err)
{
    struct work *work = mem_calloc(1, sizeof *work);
    if (!work)
        return err_set(err, ERR_NOMEM, "out of memory");
    work->ingest = run->ingest;
    work->rule = run->rule;
    const struct store_ingest_options options = { .conninfo = run->ingest->options.conninfo,
                                                  .clock = run->ingest->options.clock,
                                                  .node = run->ingest->options.node,
                                                  .rule = run->rule->name,
                                                  .topic = run->rule->topic,
                                                  .wake_fd = run->ingest->wake_fd,
                                                  .rng_seed = run->work_seed };
    if (store_ingest_new(&options, &work->store, err)) {
        mem_free(work);
        return (int)err->code;
    }
    *ret = work;
    return 0;
}

void work_begin(struct run *run)
{
    struct err err;
    struct work *work = run->work;
    if (!work && work_new(run, &work, &err)) {
        run_failed(run, "beginning what was asked for", &err);
        return;
    }
    run->work = work;
    if (!work || atomic_load(&work->is_busy))
        return;
    if (work->has_thread)
        (void)pthread_join(work->thread, NULL); /* it is at its last line */
    work->has_thread = false;
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0)
        return;                                          /* memory: the next look */
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* a size that is always allowed */
    atomic_store(&work->is_busy, true);
    work->has_thread = pthread_create(&work->thread, &attr, work_main, work) == 0;
    if (!work->has_thread)
        atomic_store(&work->is_busy, false); /* the next look tries again */
    (void)pthread_attr_destroy(&attr);
}

bool work_end(struct run *run, int64_t timeout_ms)
{
    struct work *work = run->work;
    if (!work)
        return true;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until); /* cannot fail for this clock */
    until.tv_sec += timeout_ms / 1000 + 1;
    if (work->has_thread && pthread_timedjoin_np(work->thread, NULL, &until) != 0) {
        (void)pthread_detach(work->thread);
        return false;
    }
    work->store = store_ingest_free(work->store);
    mem_free(work);
    run->work = NULL;
    return true;
}
