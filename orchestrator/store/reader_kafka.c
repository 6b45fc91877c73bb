#include "store/reader_kafka.h"

#include "store/reader_kafka_internal.h"

#include "base/clock.h"

#include <string.h>

/* --- words ---------------------------------------------------------------------------------- */

static const char *const kind_names[KAFKA_KIND_COUNT] = {
    [KAFKA_KIND_CHECK] = "CHECK",   [KAFKA_KIND_TAKEOVER] = "TAKEOVER",
    [KAFKA_KIND_RESUME] = "RESUME", [KAFKA_KIND_STOP] = "STOP",
    [KAFKA_KIND_START] = "START",   [KAFKA_KIND_DISCARD] = "DISCARD",
    [KAFKA_KIND_REPLAY] = "REPLAY",
};
static const char *const request_state_names[KAFKA_REQUEST_STATE_COUNT] = {
    [KAFKA_REQUEST_OPEN] = "OPEN",
    [KAFKA_REQUEST_TAKEN] = "TAKEN",
    [KAFKA_REQUEST_DONE] = "DONE",
    [KAFKA_REQUEST_FAILED] = "FAILED",
};

const char *store_kafka_kind_name(enum store_kafka_kind kind)
{
    return kind_names[kind];
}

const char *store_kafka_request_state_name(enum store_kafka_request_state state)
{
    return request_state_names[state];
}

size_t kafka_word(struct columns *columns, const char *const *names, size_t count)
{
    const char *word = columns_borrow(columns);
    for (size_t i = 0; word && i < count; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    if (!columns->failed)
        (void)err_set(columns->err, ERR_INTERNAL, "%s: unknown word %s", columns->table,
                      word ? word : "NULL");
    columns->failed = true;
    return 0;
}

/* --- rules and cursors ---------------------------------------------------------------------- */

static void rule_done(struct store_kafka_rule *rule)
{
    mem_free(rule->rule);
    mem_free(rule->topic);
    mem_free(rule->group_id);
    mem_free(rule->namespace_);
    mem_free(rule->definition);
    mem_free(rule->stopped_by);
    mem_free(rule->stop_reason);
    mem_free(rule->problem);
    mem_free(rule->node);
}

static void cursor_done(struct store_kafka_cursor *cursor)
{
    mem_free(cursor->rule);
    mem_free(cursor->topic);
    mem_free(cursor->stop_reason);
    mem_free(cursor->stop_message);
    mem_free(cursor->node);
    mem_free(cursor->paused_why);
}

void store_kafka_rules_done(struct store_kafka_rules *rules)
{
    for (size_t i = 0; i < rules->rule_count; i++)
        rule_done(&rules->rules[i]);
    for (size_t i = 0; i < rules->cursor_count; i++)
        cursor_done(&rules->cursors[i]);
    mem_free(rules->rules);
    mem_free(rules->cursors);
    *rules = (struct store_kafka_rules){ 0 };
}

static void take_rule(struct columns *columns, struct store_kafka_rule *rule, int64_t *ret_now_ms)
{
    rule->rule = columns_text(columns);
    rule->topic = columns_text(columns);
    rule->group_id = columns_text(columns);
    rule->namespace_ = columns_text(columns);
    rule->definition = columns_text(columns);
    rule->wanted = columns_bool(columns);
    rule->stopped_by = columns_text(columns);
    rule->stop_reason = columns_text(columns);
    rule->stopped_at_ms = columns_time_ms(columns);
    rule->topic_retention_ms = columns_int8(columns);
    rule->topic_compacted = columns_bool(columns);
    rule->key_memory_ms = columns_int8(columns);
    rule->problem = columns_text(columns);
    rule->node = columns_text(columns);
    rule->seen_at_ms = columns_time_ms(columns);
    *ret_now_ms = columns_time_ms(columns);
}

static void take_cursor(struct columns *columns, struct store_kafka_cursor *cursor)
{
    cursor->rule = columns_text(columns);
    cursor->topic = columns_text(columns);
    cursor->partition = columns_int4(columns);
    cursor->next_offset = columns_int8(columns);
    cursor->suspect_until = columns_int8(columns);
    cursor->stopped = columns_bool(columns);
    cursor->stop_reason = columns_text(columns);
    cursor->stop_message = columns_text(columns);
    cursor->stop_from = columns_int8(columns);
    cursor->stop_to = columns_int8(columns);
    cursor->stopped_at_ms = columns_time_ms(columns);
    cursor->records = columns_int8(columns);
    cursor->started = columns_int8(columns);
    cursor->duplicates = columns_int8(columns);
    cursor->mismatches = columns_int8(columns);
    cursor->dead_letters = columns_int8(columns);
    cursor->filtered = columns_int8(columns);
    cursor->tombstones = columns_int8(columns);
    cursor->low_offset = columns_int8(columns);
    cursor->end_offset = columns_int8(columns);
    cursor->node = columns_text(columns);
    cursor->paused_why = columns_text(columns);
    cursor->rate_per_s = (double)columns_int8(columns) / 1000;
    cursor->seen_at_ms = columns_time_ms(columns);
}

/* What was run, as an array of `size` bytes a row; *ret_count counts those that own something. */
static int take_rules(const PGresult *result, struct store_kafka_rules *rules, struct err *err)
{
    size_t count = (size_t)PQntuples(result);
    rules->rules = mem_calloc(count + 1, sizeof *rules->rules);
    if (!rules->rules)
        return err_set(err, ERR_NOMEM, "rules");
    for (size_t i = 0; i < count; i++) {
        struct columns columns = {
            .result = result, .row = (int)i, .table = "kafka_rule", .err = err
        };
        take_rule(&columns, &rules->rules[rules->rule_count++], &rules->now_ms);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static int take_cursors(const PGresult *result, struct store_kafka_rules *rules, struct err *err)
{
    size_t count = (size_t)PQntuples(result);
    rules->cursors = mem_calloc(count + 1, sizeof *rules->cursors);
    if (!rules->cursors)
        return err_set(err, ERR_NOMEM, "cursors");
    for (size_t i = 0; i < count; i++) {
        struct columns columns = {
            .result = result, .row = (int)i, .table = "kafka_cursor", .err = err
        };
        take_cursor(&columns, &rules->cursors[rules->cursor_count++]);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

int kafka_rules_read(struct store_reader *reader, const char *rule, const char *namespace_,
                     const char *definition, struct store_kafka_rules *rules, struct err *err)
{
    static const enum kafka_stmt_id ids[] = { KAFKA_RULES, KAFKA_RULE_CURSORS };
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct params *params = reader_start_kafka(reader, ids[i]);
        params_text(params, rule);
        params_text(params, namespace_);
        params_text(params, definition);
        CLEANUP(connect_clear_p) PGresult *result = NULL;
        if (reader_execute(reader, &result, err) != 0 ||
            (i == 0 ? take_rules(result, rules, err) : take_cursors(result, rules, err)) != 0)
            return (int)err->code;
    }
    return 0;
}

struct rules_call {
    const char *rule;
    struct store_kafka_rules rules;
};

static int no_rule(const char *rule, struct err *err)
{
    return err_reason(err, ERR_NOT_FOUND, "RULE_NOT_FOUND", "no rule \"%s\": no node has it", rule);
}

static int rules_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct rules_call *call = ctx;
    store_kafka_rules_done(&call->rules); /* of a first try that broke */
    if (reader_command(reader, control_stmts[CONTROL_BEGIN_READ].sql, err) != 0 ||
        kafka_rules_read(reader, call->rule, NULL, NULL, &call->rules, err) != 0)
        return (int)err->code;
    if (call->rule && call->rules.rule_count == 0)
        return no_rule(call->rule, err);
    return reader_command(reader, "COMMIT", err);
}

int store_reader_kafka_rules(struct store_reader *reader, const char *rule,
                             struct store_kafka_rules *ret, struct err *err)
{
    struct rules_call call = { .rule = rule };
    if (reader_with_connection(reader, rules_run, &call, err) != 0) {
        store_kafka_rules_done(&call.rules);
        return (int)err->code;
    }
    *ret = call.rules;
    return 0;
}

/* --- decisions about rules ------------------------------------------------------------------ */

int kafka_run(struct store_reader *reader, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    return reader_execute(reader, &result, err);
}

int kafka_audit(struct store_reader *reader, const struct kafka_audit *audit, struct err *err)
{
    struct rng rng;
    rng_seed_os(&rng);
    struct uuid id = uuid_v7(clock_wall_ms(&clock_system), &rng, (uint8_t)rng_next(&rng));
    struct params *params = reader_start_kafka(reader, KAFKA_AUDIT);
    params_uuid(params, &id);
    params_text(params, audit->rule);
    params_text(params, kind_names[audit->kind]);
    params_text(params, audit->actor);
    params_text(params, audit->reason);
    params_text(params, audit->topic);
    if (audit->topic && audit->kind == KAFKA_KIND_RESUME) {
        params_int4(params, audit->partition);
        params_int8(params, audit->cursor);
        params_int8(params, audit->next_offset);
    } else {
        params_null(params);
        params_null(params);
        params_null(params);
    }
    params_text(params, audit->letters_reason);
    if (audit->letters > 0)
        params_int8(params, audit->letters);
    else
        params_null(params);
    return kafka_run(reader, err);
}

static int lock_rule(struct store_reader *reader, const char *rule, bool *ret_wanted,
                     struct err *err)
{
    params_text(reader_start_kafka(reader, KAFKA_RULE_LOCK), rule);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    if (PQntuples(result) == 0)
        return no_rule(rule, err);
    struct columns columns = { .result = result, .table = "kafka_rule", .err = err };
    *ret_wanted = columns_bool(&columns);
    return columns.failed ? (int)err->code : 0;
}

struct resume_call {
    const struct store_kafka_resume *what;
    int64_t cursor, next_offset;
};

static void put_partition(struct params *params, const struct store_kafka_resume *what)
{
    params_text(params, what->rule);
    params_text(params, what->topic);
    params_int4(params, what->partition);
}

/* Holds the cursor, and says where it is to go on. */
static int resume_place(struct store_reader *reader, struct resume_call *call, bool wanted,
                        struct err *err)
{
    const struct store_kafka_resume *what = call->what;
    put_partition(reader_start_kafka(reader, KAFKA_CURSOR_LOCK), what);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    if (PQntuples(result) == 0)
        return err_reason(err, ERR_NOT_FOUND, "PARTITION_NOT_FOUND",
                          "the rule %s has no cursor of %s/%d", what->rule, what->topic,
                          what->partition);
    struct columns columns = { .result = result, .table = "kafka_cursor", .err = err };
    bool stopped = columns_bool(&columns);
    call->cursor = columns_int8(&columns);
    int64_t low = columns_int8(&columns), end = columns_int8(&columns);
    if (columns.failed)
        return (int)err->code;
    if (!stopped && wanted)
        return err_reason(err, ERR_PRECONDITION, "PARTITION_NOT_STOPPED",
                          "%s/%d is not stopped: it is at %lld. Stop the rule first", what->topic,
                          what->partition, (long long)call->cursor);
    const int64_t places[] = { [KAFKA_FROM_OFFSET] = what->offset,
                               [KAFKA_FROM_LOW] = low,
                               [KAFKA_FROM_END] = end,
                               [KAFKA_FROM_CURSOR] = call->cursor };
    call->next_offset = places[what->from];
    if (call->next_offset < 0)
        return err_reason(err, ERR_PRECONDITION, "NOT_SEEN",
                          "no node has seen the log of %s/%d yet: give an offset", what->topic,
                          what->partition);
    return 0;
}

static int resume_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct resume_call *call = ctx;
    const struct store_kafka_resume *what = call->what;
    bool wanted = false;
    if (reader_command(reader, "BEGIN", err) != 0 ||
        lock_rule(reader, what->rule, &wanted, err) != 0 ||
        resume_place(reader, call, wanted, err) != 0)
        return (int)err->code;
    struct params *params = reader_start_kafka(reader, KAFKA_RESUME);
    put_partition(params, what);
    params_int8(params, call->next_offset);
    const struct kafka_audit audit = { .kind = KAFKA_KIND_RESUME,
                                       .rule = what->rule,
                                       .topic = what->topic,
                                       .partition = what->partition,
                                       .cursor = call->cursor,
                                       .next_offset = call->next_offset,
                                       .actor = what->actor,
                                       .reason = what->reason };
    if (kafka_run(reader, err) != 0 || kafka_audit(reader, &audit, err) != 0)
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

int store_reader_kafka_resume(struct store_reader *reader, const struct store_kafka_resume *what,
                              int64_t *ret_offset, struct err *err)
{
    struct resume_call call = { .what = what };
    if (reader_with_connection(reader, resume_run, &call, err) != 0)
        return (int)err->code;
    *ret_offset = call.next_offset;
    return 0;
}

struct want_call {
    const char *rule, *actor, *reason;
    bool run, changed;
};

static int want_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct want_call *call = ctx;
    bool wanted = false;
    if (reader_command(reader, "BEGIN", err) != 0 ||
        lock_rule(reader, call->rule, &wanted, err) != 0)
        return (int)err->code;
    call->changed = wanted != call->run;
    if (!call->changed)
        return reader_command(reader, "COMMIT", err);
    struct params *params = reader_start_kafka(reader, KAFKA_WANT);
    params_text(params, call->rule);
    params_bool(params, call->run);
    params_text(params, call->actor);
    params_text(params, call->reason);
    const struct kafka_audit audit = { .kind = call->run ? KAFKA_KIND_START : KAFKA_KIND_STOP,
                                       .rule = call->rule,
                                       .actor = call->actor,
                                       .reason = call->reason };
    if (kafka_run(reader, err) != 0 || kafka_audit(reader, &audit, err) != 0)
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

int store_reader_kafka_want(struct store_reader *reader, const char *rule, bool run,
                            const char *actor, const char *reason, bool *ret_changed,
                            struct err *err)
{
    struct want_call call = { .rule = rule, .actor = actor, .reason = reason, .run = run };
    if (reader_with_connection(reader, want_run, &call, err) != 0)
        return (int)err->code;
    *ret_changed = call.changed;
    return 0;
}

/* --- requests ------------------------------------------------------------------------------- */

struct post_call {
    const struct uuid *id;
    enum store_kafka_kind kind;
    const char *rule, *group, *actor, *reason;
    int64_t last;
};

static int post_run(struct store_reader *reader, void *ctx, struct err *err)
{
    const struct post_call *call = ctx;
    bool wanted = false;
    if (reader_command(reader, "BEGIN", err) != 0 ||
        lock_rule(reader, call->rule, &wanted, err) != 0)
        return (int)err->code;
    if (call->kind == KAFKA_KIND_TAKEOVER && wanted)
        return err_reason(err, ERR_PRECONDITION, "RULE_RUNS",
                          "the rule %s runs: stop it before it takes over", call->rule);
    struct params *params = reader_start_kafka(reader, KAFKA_POST);
    params_uuid(params, call->id);
    params_text(params, call->rule);
    params_text(params, kind_names[call->kind]);
    params_text(params, call->actor);
    params_text(params, call->reason);
    if (call->kind == KAFKA_KIND_CHECK)
        params_int8(params, call->last);
    else
        params_null(params);
    params_text(params, call->group);
    if (kafka_run(reader, err) != 0)
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

int store_reader_kafka_check(struct store_reader *reader, const struct uuid *id, const char *rule,
                             int64_t last, const char *actor, const char *reason, struct err *err)
{
    struct post_call call = { .id = id,
                              .kind = KAFKA_KIND_CHECK,
                              .rule = rule,
                              .actor = actor,
                              .reason = reason,
                              .last = last };
    return reader_with_connection(reader, post_run, &call, err);
}

int store_reader_kafka_takeover(struct store_reader *reader, const struct uuid *id,
                                const char *rule, const char *group, const char *actor,
                                const char *reason, struct err *err)
{
    struct post_call call = { .id = id,
                              .kind = KAFKA_KIND_TAKEOVER,
                              .rule = rule,
                              .group = group,
                              .actor = actor,
                              .reason = reason };
    return reader_with_connection(reader, post_run, &call, err);
}

void store_kafka_request_done(struct store_kafka_request *request)
{
    mem_free(request->rule);
    mem_free(request->arguments);
    mem_free(request->actor);
    mem_free(request->reason);
    mem_free(request->node);
    mem_free(request->result);
    mem_free(request->error);
    *request = (struct store_kafka_request){ 0 };
}

static void take_request(struct columns *columns, struct store_kafka_request *request)
{
    bool present;
    request->id = columns_uuid(columns, &present);
    request->rule = columns_text(columns);
    request->kind = (enum store_kafka_kind)kafka_word(columns, kind_names, KAFKA_KIND_COUNT);
    request->arguments = columns_text(columns);
    request->actor = columns_text(columns);
    request->reason = columns_text(columns);
    request->requested_at_ms = columns_time_ms(columns);
    request->state = (enum store_kafka_request_state)kafka_word(columns, request_state_names,
                                                                KAFKA_REQUEST_STATE_COUNT);
    request->node = columns_text(columns);
    request->finished_at_ms = columns_time_ms(columns);
    request->progress = columns_int8(columns);
    request->total = columns_int8(columns);
    request->result = columns_text(columns);
    request->error = columns_text(columns);
}

struct requests_call {
    const char *rule;
    struct uuid id;
    bool one;
    size_t limit, count;
    struct store_kafka_request *requests;
};

static void requests_drop(struct requests_call *call)
{
    for (size_t i = 0; i < call->count; i++)
        store_kafka_request_done(&call->requests[i]);
    call->count = 0;
}

static int requests_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct requests_call *call = ctx;
    requests_drop(call); /* of a first try that broke */
    enum kafka_stmt_id id = call->one    ? KAFKA_REQUEST
                            : call->rule ? KAFKA_REQUESTS_OF_RULE
                                         : KAFKA_REQUESTS;
    struct params *params = reader_start_kafka(reader, id);
    params_uuid(params, &call->id);
    if (!call->one)
        params_int8(params, (int64_t)call->limit);
    if (!call->one && call->rule)
        params_text(params, call->rule);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    for (int row = 0; row < PQntuples(result) && call->count < call->limit; row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "kafka_request", .err = err
        };
        take_request(&columns, &call->requests[call->count++]);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static int requests_read(struct store_reader *reader, struct requests_call *call, struct err *err)
{
    if (reader_with_connection(reader, requests_run, call, err) == 0)
        return 0;
    requests_drop(call);
    return (int)err->code;
}

int store_reader_kafka_request(struct store_reader *reader, const struct uuid *id,
                               struct store_kafka_request *ret, struct err *err)
{
    struct store_kafka_request request = { 0 };
    struct requests_call call = { .id = *id, .one = true, .limit = 1, .requests = &request };
    if (requests_read(reader, &call, err) != 0)
        return (int)err->code;
    if (call.count == 0) {
        char text[UUID_TEXT_SIZE];
        uuid_format(id, text);
        return err_reason(err, ERR_NOT_FOUND, "REQUEST_NOT_FOUND", "no request %s", text);
    }
    *ret = request;
    return 0;
}

int store_reader_kafka_requests(struct store_reader *reader, const char *rule,
                                const struct uuid *before, size_t limit,
                                struct store_kafka_request *ret, size_t *ret_count, struct err *err)
{
    struct requests_call call = { .rule = rule, .limit = limit, .requests = ret };
    kafka_before(before, &call.id);
    if (requests_read(reader, &call, err) != 0)
        return (int)err->code;
    *ret_count = call.count;
    return 0;
}
