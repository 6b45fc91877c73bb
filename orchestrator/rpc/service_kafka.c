/* KafkaService: rules and their partitions, and what people decide about them. */
#include "rpc/service_kafka.h"

#include "core/limits.h"
#include "wire/times.h"

#include <string.h>

int kafka_check_words(const char *actor, const char *reason, struct err *err)
{
    int rc = check_text("actor", actor, 1, LIMIT_ACTOR_BYTES, err);
    if (!rc && !*reason)
        rc = err_field(err, "reason", "reason: is required: it is kept with the decision");
    return rc ? rc : check_prose("reason", reason, LIMIT_REASON_BYTES, err);
}

int kafka_check_rule(const char *rule, struct err *err)
{
    return check_text("rule", rule, 1, KAFKA_NAME_BYTES_MAX, err);
}

int kafka_page_read(const char *token, enum page_kind kind, const struct page_filter *filter,
                    bool *ret_has, struct uuid *ret_id, struct err *err)
{
    uint8_t place[PAGE_PLACE_MAX];
    size_t size = 0;
    int rc = page_token_read(token, kind, filter, place, &size, err);
    if (!rc && size && size != sizeof *ret_id)
        rc = err_field(err, "page_token", "page_token: is not a token of this method");
    if (rc)
        return rc;
    *ret_has = size > 0;
    if (size)
        memcpy(ret_id, place, sizeof *ret_id);
    return 0;
}

Google__Protobuf__Timestamp *kafka_time(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Timestamp *time =
        ms ? reply_new(arena, &google__protobuf__timestamp__descriptor) : NULL;
    if (time)
        timestamp_from_ms(ms, time);
    return time;
}

/* --- rules as messages ------------------------------------------------------------------------ */

static Google__Protobuf__Duration *reply_duration(struct arena *arena, int64_t ms)
{
    Google__Protobuf__Duration *span = reply_new(arena, &google__protobuf__duration__descriptor);
    if (span)
        duration_from_ms(ms, span);
    return span;
}

static Saga__V1__KafkaPartition *make_partition(struct arena *arena,
                                                const struct store_kafka_cursor *from)
{
    Saga__V1__KafkaPartition *to = reply_new(arena, &saga__v1__kafka_partition__descriptor);
    Saga__V1__KafkaCounters *counters = reply_new(arena, &saga__v1__kafka_counters__descriptor);
    if (!to || !counters)
        return NULL;
    *counters = (Saga__V1__KafkaCounters){
        .base = counters->base,
        .records = from->records,
        .started = from->started,
        .duplicates = from->duplicates,
        .mismatches = from->mismatches,
        .dead_letters = from->dead_letters,
        .filtered = from->filtered,
        .tombstones = from->tombstones,
    };
    to->rule = from->rule;
    to->topic = from->topic;
    to->partition = from->partition;
    to->state = from->stopped ? SAGA__V1__KAFKA_PARTITION__STATE__STATE_STOPPED
                              : SAGA__V1__KAFKA_PARTITION__STATE__STATE_RUNNING;
    to->next_offset = from->next_offset;
    to->suspect_until = from->suspect_until;
    to->counters = counters;
    if (from->stopped) {
        to->stop_reason = kafka_text(from->stop_reason);
        to->stop_message = kafka_text(from->stop_message);
        to->stop_from_offset = from->stop_from;
        to->stop_to_offset = from->stop_to;
        to->stop_time = kafka_time(arena, from->stopped_at_ms);
    }
    to->seen_time = kafka_time(arena, from->seen_at_ms);
    to->node = kafka_text(from->node);
    to->low_offset = from->low_offset;
    to->end_offset = from->end_offset;
    to->lag = from->end_offset > from->next_offset ? from->end_offset - from->next_offset : 0;
    to->rate_per_s = (int64_t)(from->rate_per_s + 0.5);
    to->paused_why = kafka_text(from->paused_why);
    return to;
}

static void add_counters(Saga__V1__KafkaCounters *sum, const struct store_kafka_cursor *of)
{
    sum->records += of->records;
    sum->started += of->started;
    sum->duplicates += of->duplicates;
    sum->mismatches += of->mismatches;
    sum->dead_letters += of->dead_letters;
    sum->filtered += of->filtered;
    sum->tombstones += of->tombstones;
}

/* `cursors`: those of this rule. */
static int fill_partitions(struct arena *arena, const struct store_kafka_cursor *cursors,
                           size_t count, bool with_partitions, Saga__V1__KafkaRule *rule)
{
    double rate_per_s = 0;
    if (with_partitions)
        rule->partitions = arena_array(arena, count + 1, sizeof(ProtobufCMessage *));
    if (with_partitions && !rule->partitions)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const struct store_kafka_cursor *cursor = &cursors[i];
        add_counters(rule->counters, cursor);
        rule->stopped_partitions += cursor->stopped;
        rate_per_s += cursor->rate_per_s;
        if (cursor->end_offset > cursor->next_offset)
            rule->lag += cursor->end_offset - cursor->next_offset;
        if (!with_partitions)
            continue;
        rule->partitions[i] = make_partition(arena, cursor);
        if (!rule->partitions[i])
            return -1;
        rule->n_partitions++;
    }
    rule->rate_per_s = (int64_t)(rate_per_s + 0.5);
    return 0;
}

static Saga__V1__KafkaRule *make_rule(struct arena *arena, const struct store_kafka_rule *from)
{
    Saga__V1__KafkaRule *to = reply_new(arena, &saga__v1__kafka_rule__descriptor);
    if (!to)
        return NULL;
    to->name = from->rule;
    to->topic = from->topic;
    to->group = from->group_id;
    to->namespace_ = from->namespace_;
    to->definition = from->definition;
    to->problem = kafka_text(from->problem);
    if (from->topic_retention_ms != -1)
        to->topic_retention =
            reply_duration(arena, from->topic_retention_ms < 0 ? 0 : from->topic_retention_ms);
    to->topic_compacted = from->topic_compacted;
    if (from->key_memory_ms >= 0)
        to->key_memory = reply_duration(arena, from->key_memory_ms);
    to->node = from->node;
    to->seen_time = kafka_time(arena, from->seen_at_ms);
    to->counters = reply_new(arena, &saga__v1__kafka_counters__descriptor);
    if (!from->wanted) {
        to->stop = reply_new(arena, &saga__v1__kafka_rule_stop__descriptor);
        if (!to->stop)
            return NULL;
        to->stop->time = kafka_time(arena, from->stopped_at_ms);
        to->stop->actor = kafka_text(from->stopped_by);
        to->stop->reason = kafka_text(from->stop_reason);
    }
    return arena->oom ? NULL : to;
}

int kafka_fill_rules(struct arena *arena, const struct store_kafka_rules *stored,
                     bool with_partitions, Saga__V1__KafkaRule ***ret, size_t *ret_count)
{
    size_t at = 0; /* cursors come in the order of the rules */
    *ret = arena_array(arena, stored->rule_count + 1, sizeof(ProtobufCMessage *));
    if (!*ret)
        return -1;
    for (size_t i = 0; i < stored->rule_count; i++) {
        const char *name = stored->rules[i].rule;
        Saga__V1__KafkaRule *rule = (*ret)[i] = make_rule(arena, &stored->rules[i]);
        if (!rule)
            return -1;
        while (at < stored->cursor_count && strcmp(stored->cursors[at].rule, name) < 0)
            at++;
        size_t first = at;
        while (at < stored->cursor_count && strcmp(stored->cursors[at].rule, name) == 0)
            at++;
        if (fill_partitions(arena, &stored->cursors[first], at - first, with_partitions, rule))
            return -1;
    }
    *ret_count = stored->rule_count;
    return arena->oom ? -1 : 0;
}

/* --- ListRules -------------------------------------------------------------------------------- */

static void run_list(struct query *base, struct store_reader *reader)
{
    struct call *call = base->call;
    const Saga__V1__ListRulesRequest *request = (void *)call->request;
    struct store_kafka_rules stored = { 0 };
    struct store_outbox_status outbox = { 0 };
    Saga__V1__ListRulesResponse reply = SAGA__V1__LIST_RULES_RESPONSE__INIT;
    struct err err;
    bool all = !*request->rule;
    if (store_reader_kafka_rules(reader, or_null(request->rule), &stored, &err) ||
        (all && store_reader_outbox(reader, &outbox, &err))) {
        call_fail(call, &err);
        store_kafka_rules_done(&stored);
        return;
    }
    reply.now = kafka_time(&call->arena, stored.now_ms);
    if (kafka_fill_rules(&call->arena, &stored, !request->omit_partitions, &reply.rules,
                         &reply.n_rules) ||
        (all && kafka_fill_outbox(&call->arena, &outbox, &reply.outbox)))
        call_fail_memory(call);
    else
        call_reply(call, &reply.base);
    store_outbox_status_done(&outbox);
    store_kafka_rules_done(&stored);
}

void kafka_list_rules(struct call *call)
{
    const Saga__V1__ListRulesRequest *request = (void *)call->request;
    struct err err;
    if (check_text("rule", request->rule, 0, KAFKA_NAME_BYTES_MAX, &err)) {
        call_fail(call, &err);
        return;
    }
    struct query *query = query_new(call, sizeof *query, run_list);
    if (query)
        queries_post(query);
}

/* --- StopRule, StartRule ---------------------------------------------------------------------- */

struct want_query {
    struct query query;
    bool run;
    const char *rule, *actor, *reason; /* of the request */
};

static void reply_rule(struct call *call, const struct store_kafka_rules *stored)
{
    Saga__V1__KafkaRule **rules;
    size_t count;
    if (kafka_fill_rules(&call->arena, stored, true, &rules, &count) || count != 1)
        call_fail_memory(call);
    else
        call_reply(call, &rules[0]->base);
}

static void run_want(struct query *base, struct store_reader *reader)
{
    struct want_query *query = CONTAINER(base, struct want_query, query);
    struct store_kafka_rules stored = { 0 };
    struct err err;
    bool changed;
    int rc = store_reader_kafka_want(reader, query->rule, query->run, query->actor, query->reason,
                                     &changed, &err);
    if (!rc)
        rc = store_reader_kafka_rules(reader, query->rule, &stored, &err);
    if (rc)
        call_fail(base->call, &err);
    else
        reply_rule(base->call, &stored);
    store_kafka_rules_done(&stored);
}

static void want(struct call *call, bool run, const char *rule, const char *actor,
                 const char *reason)
{
    struct err err;
    if (kafka_check_rule(rule, &err) || kafka_check_words(actor, reason, &err)) {
        call_fail(call, &err);
        return;
    }
    struct want_query *query = query_new(call, sizeof *query, run_want);
    if (!query)
        return;
    query->run = run;
    query->rule = rule;
    query->actor = actor;
    query->reason = reason;
    queries_post(&query->query);
}

void kafka_stop_rule(struct call *call)
{
    const Saga__V1__StopRuleRequest *request = (void *)call->request;
    want(call, false, request->rule, request->actor, request->reason);
}

void kafka_start_rule(struct call *call)
{
    const Saga__V1__StartRuleRequest *request = (void *)call->request;
    want(call, true, request->rule, request->actor, request->reason);
}

/* --- ResumePartition -------------------------------------------------------------------------- */

struct resume_query {
    struct query query;
    struct store_kafka_resume what;
};

static void reply_partition(struct call *call, const struct store_kafka_resume *what,
                            const struct store_kafka_rules *stored)
{
    const struct store_kafka_cursor *cursor = NULL;
    struct err err;
    for (size_t i = 0; i < stored->cursor_count && !cursor; i++) {
        const struct store_kafka_cursor *one = &stored->cursors[i];
        if (one->partition == what->partition && strcmp(one->topic, what->topic) == 0)
            cursor = one;
    }
    if (!cursor) { /* it was there a moment ago */
        (void)err_reason(&err, ERR_NOT_FOUND, "PARTITION_NOT_FOUND",
                         "rule %s has no cursor of %s/%d", what->rule, what->topic,
                         what->partition);
        call_fail(call, &err);
        return;
    }
    Saga__V1__KafkaPartition *partition = make_partition(&call->arena, cursor);
    if (partition && !call->arena.oom)
        call_reply(call, &partition->base);
    else
        call_fail_memory(call);
}

static void run_resume(struct query *base, struct store_reader *reader)
{
    struct resume_query *query = CONTAINER(base, struct resume_query, query);
    struct store_kafka_rules stored = { 0 };
    struct err err;
    int64_t offset;
    int rc = store_reader_kafka_resume(reader, &query->what, &offset, &err);
    if (!rc)
        rc = store_reader_kafka_rules(reader, query->what.rule, &stored, &err);
    if (rc)
        call_fail(base->call, &err);
    else
        reply_partition(base->call, &query->what, &stored);
    store_kafka_rules_done(&stored);
}

static int read_from(const Saga__V1__ResumePartitionRequest *request,
                     struct store_kafka_resume *ret, struct err *err)
{
    if (request->from_case == SAGA__V1__RESUME_PARTITION_REQUEST__FROM_OFFSET) {
        ret->from = KAFKA_FROM_OFFSET;
        ret->offset = request->offset;
        return request->offset >= 0 ? 0
                                    : err_field(err, "offset", "offset: must not be negative: %lld",
                                                (long long)request->offset);
    }
    switch (request->from_case == SAGA__V1__RESUME_PARTITION_REQUEST__FROM_POSITION
                ? request->position
                : SAGA__V1__RESUME_PARTITION_REQUEST__POSITION__POSITION_UNSPECIFIED) {
    case SAGA__V1__RESUME_PARTITION_REQUEST__POSITION__POSITION_CURSOR:
        ret->from = KAFKA_FROM_CURSOR;
        return 0;
    case SAGA__V1__RESUME_PARTITION_REQUEST__POSITION__POSITION_LOW:
        ret->from = KAFKA_FROM_LOW;
        return 0;
    case SAGA__V1__RESUME_PARTITION_REQUEST__POSITION__POSITION_END:
        ret->from = KAFKA_FROM_END;
        return 0;
    default:
        return err_field(err, "from",
                         "from: is required: an offset, or the position CURSOR, LOW or END");
    }
}

static int read_resume(const Saga__V1__ResumePartitionRequest *request,
                       struct store_kafka_resume *ret, struct err *err)
{
    int rc = kafka_check_rule(request->rule, err);
    if (!rc)
        rc = check_text("topic", request->topic, 1, KAFKA_NAME_BYTES_MAX, err);
    if (!rc && request->partition < 0)
        rc = err_field(err, "partition", "partition: must not be negative: %d", request->partition);
    if (!rc)
        rc = read_from(request, ret, err);
    if (!rc)
        rc = kafka_check_words(request->actor, request->reason, err);
    ret->rule = request->rule;
    ret->topic = request->topic;
    ret->partition = request->partition;
    ret->actor = request->actor;
    ret->reason = request->reason;
    return rc;
}

void kafka_resume_partition(struct call *call)
{
    struct resume_query *query = query_new(call, sizeof *query, run_resume);
    struct err err;
    if (!query)
        return;
    if (read_resume((void *)call->request, &query->what, &err))
        call_fail(call, &err);
    else
        queries_post(&query->query);
}
