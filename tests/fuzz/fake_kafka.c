/* The reader's side of KafkaService, as fake_server.c plays the rest of it. */
#include "core/limits.h"
#include "fake_checks.h"
#include "fuzz.h"
#include "store/reader_kafka.h"
#include "store/reader_outbox.h"

#include <string.h>

enum { NAME_BYTES = 255, CURSORS = 3 };
#define TIME_MS INT64_C(1700000000000)

static char *keep(const char *text)
{
    fail_memory(0); /* it is not this side's memory that ends */
    char *copy = mem_strdup(text);
    FUZZ_CHECK(copy);
    return copy;
}

static void *make(size_t count, size_t size)
{
    fail_memory(0);
    void *block = mem_calloc(count, size);
    FUZZ_CHECK(block);
    return block;
}

static void check_words(const char *actor, const char *reason)
{
    check_name(actor, 1, LIMIT_ACTOR_BYTES);
    FUZZ_CHECK(*reason);
    check_prose_or_null(reason);
}

/* --- rules ------------------------------------------------------------------------------------ */

void store_kafka_rules_done(struct store_kafka_rules *rules)
{
    for (size_t i = 0; i < rules->rule_count; i++) {
        struct store_kafka_rule *rule = &rules->rules[i];
        char *texts[] = { rule->rule,        rule->topic,      rule->group_id,
                          rule->namespace_,  rule->definition, rule->stopped_by,
                          rule->stop_reason, rule->problem,    rule->node };
        for (size_t j = 0; j < ARRAY_LEN(texts); j++)
            mem_free(texts[j]);
    }
    for (size_t i = 0; i < rules->cursor_count; i++) {
        struct store_kafka_cursor *cursor = &rules->cursors[i];
        char *texts[] = { cursor->rule,         cursor->topic, cursor->stop_reason,
                          cursor->stop_message, cursor->node,  cursor->paused_why };
        for (size_t j = 0; j < ARRAY_LEN(texts); j++)
            mem_free(texts[j]);
    }
    mem_free(rules->rules);
    mem_free(rules->cursors);
    *rules = (struct store_kafka_rules){ 0 };
}

static void fill_rules(const char *rule, struct store_kafka_rules *ret)
{
    *ret = (struct store_kafka_rules){ .rules = make(1, sizeof *ret->rules),
                                       .rule_count = 1,
                                       .cursors = make(CURSORS, sizeof *ret->cursors),
                                       .cursor_count = CURSORS,
                                       .now_ms = TIME_MS };
    bool wanted = strlen(rule) % 2;
    ret->rules[0] = (struct store_kafka_rule){ .rule = keep(rule),
                                               .topic = keep("t"),
                                               .group_id = keep("g"),
                                               .namespace_ = keep("default"),
                                               .definition = keep("order"),
                                               .wanted = wanted,
                                               .stopped_by = wanted ? NULL : keep("ada"),
                                               .stop_reason = wanted ? NULL : keep("why"),
                                               .topic_retention_ms = wanted ? -1 : -2,
                                               .key_memory_ms = wanted ? -1 : 1000,
                                               .node = keep("n") };
    for (int i = 0; i < CURSORS; i++)
        ret->cursors[i] = (struct store_kafka_cursor){ .rule = keep(i ? rule : ""),
                                                       .topic = keep("t"),
                                                       .partition = i,
                                                       .next_offset = 10,
                                                       .end_offset = i * 10 - 1,
                                                       .stopped = i == 1,
                                                       .rate_per_s = 1.5 * i,
                                                       .seen_at_ms = i ? TIME_MS : 0 };
}

int store_reader_kafka_rules(struct store_reader *reader, const char *rule,
                             struct store_kafka_rules *ret, struct err *err)
{
    (void)reader;
    check_name_or_null(rule, NAME_BYTES);
    if (fake_reader_refuses())
        return refuse(err);
    fill_rules(rule ? rule : "r", ret);
    return 0;
}

int store_reader_kafka_resume(struct store_reader *reader, const struct store_kafka_resume *what,
                              int64_t *ret_offset, struct err *err)
{
    (void)reader;
    check_name(what->rule, 1, NAME_BYTES);
    check_name(what->topic, 1, NAME_BYTES);
    check_words(what->actor, what->reason);
    FUZZ_CHECK(what->partition >= 0 && what->from <= KAFKA_FROM_CURSOR && what->offset >= 0);
    FUZZ_CHECK(what->from == KAFKA_FROM_OFFSET || what->offset == 0);
    *ret_offset = what->offset;
    return fake_reader_refuses() ? refuse(err) : 0;
}

int store_reader_kafka_want(struct store_reader *reader, const char *rule, bool run,
                            const char *actor, const char *reason, bool *ret_changed,
                            struct err *err)
{
    (void)reader;
    check_name(rule, 1, NAME_BYTES);
    check_words(actor, reason);
    *ret_changed = run;
    return fake_reader_refuses() ? refuse(err) : 0;
}

/* --- requests --------------------------------------------------------------------------------- */

/* One of each kind, and what a node makes of it. */
static const char *const results[KAFKA_KIND_COUNT] = {
    [KAFKA_KIND_CHECK] = "{\"records\":2,\"good\":1,\"bad\":[{\"reason\":\"TEMPLATE\",\"count\":1,"
                         "\"partition\":0,\"offset\":7,\"message\":\"no field\"}]}",
    [KAFKA_KIND_TAKEOVER] = "{\"partitions\":[{\"partition\":0,\"next_offset\":1,"
                            "\"suspect_until\":2}]}",
    [KAFKA_KIND_RESUME] = "{\"next_offset\":1}",
    [KAFKA_KIND_STOP] = "{}",
    [KAFKA_KIND_START] = "{}",
    [KAFKA_KIND_DISCARD] = "{\"letters\":1}",
    [KAFKA_KIND_REPLAY] = "{\"letters\":1}",
};

void store_kafka_request_done(struct store_kafka_request *request)
{
    char *texts[] = { request->rule, request->arguments, request->actor, request->reason,
                      request->node, request->result,    request->error };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        mem_free(texts[i]);
    *request = (struct store_kafka_request){ 0 };
}

static void fill_request(const struct uuid *id, enum store_kafka_kind kind,
                         struct store_kafka_request *ret)
{
    enum store_kafka_request_state state = id->bytes[15] % KAFKA_REQUEST_STATE_COUNT;
    *ret = (struct store_kafka_request){
        .id = *id,
        .rule = keep("r"),
        .kind = kind,
        .arguments = keep("{}"),
        .actor = keep("ada"),
        .reason = keep("why"),
        .requested_at_ms = TIME_MS,
        .state = state,
        .node = state == KAFKA_REQUEST_OPEN ? NULL : keep("n"),
        .result = state == KAFKA_REQUEST_DONE ? keep(results[kind]) : NULL,
        .error = state == KAFKA_REQUEST_FAILED ? keep("GROUP_HAS_MEMBERS") : NULL,
    };
}

int store_reader_kafka_check(struct store_reader *reader, const struct uuid *id, const char *rule,
                             int64_t last, const char *actor, const char *reason, struct err *err)
{
    (void)reader;
    (void)id;
    check_name(rule, 1, NAME_BYTES);
    check_words(actor, reason);
    FUZZ_CHECK(last >= 1 && last <= 10000000);
    return fake_reader_refuses() ? refuse(err) : 0;
}

int store_reader_kafka_takeover(struct store_reader *reader, const struct uuid *id,
                                const char *rule, const char *group, const char *actor,
                                const char *reason, struct err *err)
{
    check_name(group, 1, NAME_BYTES);
    return store_reader_kafka_check(reader, id, rule, 1, actor, reason, err);
}

int store_reader_kafka_request(struct store_reader *reader, const struct uuid *id,
                               struct store_kafka_request *ret, struct err *err)
{
    (void)reader;
    if (fake_reader_refuses())
        return refuse(err);
    fill_request(id, id->bytes[14] % KAFKA_KIND_COUNT, ret);
    return 0;
}

int store_reader_kafka_requests(struct store_reader *reader, const char *rule,
                                const struct uuid *before, size_t limit,
                                struct store_kafka_request *ret, size_t *ret_count, struct err *err)
{
    (void)reader;
    (void)before; /* any: what has gone since is no fault */
    check_name_or_null(rule, NAME_BYTES);
    FUZZ_CHECK(limit >= 2 && limit <= LIMIT_PAGE_ITEMS + 1);
    *ret_count = 0;
    if (fake_reader_refuses())
        return refuse(err);
    size_t count = limit < KAFKA_KIND_COUNT ? limit : KAFKA_KIND_COUNT;
    for (size_t i = 0; i < count; i++) {
        struct uuid id = { { 0 } };
        id.bytes[15] = KAFKA_REQUEST_DONE;
        fill_request(&id, (enum store_kafka_kind)i, &ret[i]);
    }
    *ret_count = count;
    return 0;
}

/* --- dead letters ----------------------------------------------------------------------------- */

void store_letter_done(struct store_letter *letter)
{
    char *texts[] = {
        letter->rule,    letter->topic,      letter->saga_id,         letter->reason,
        letter->message, letter->decided_by, letter->decision_reason, letter->replay_error
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        mem_free(texts[i]);
    mem_free(letter->key.data);
    mem_free(letter->value.data);
    mem_free(letter->headers.data);
    *letter = (struct store_letter){ 0 };
}

static void fill_letter(const struct uuid *id, enum store_letter_state state,
                        struct store_letter *ret)
{
    bool decided = state != LETTER_OPEN;
    *ret = (struct store_letter){
        .id = *id,
        .rule = keep("r"),
        .topic = keep("t"),
        .time_ms = decided ? TIME_MS : -1,
        .has_value = true,
        .value_size = 1,
        .saga_id = decided ? keep("o-1") : NULL,
        .reason = keep("TEMPLATE"),
        .message = keep("no field"),
        .received_at_ms = TIME_MS,
        .state = state,
        .decided_by = decided ? keep("ada") : NULL,
        .decision_reason = decided ? keep("why") : NULL,
        .decided_at_ms = decided ? TIME_MS : 0,
        .has_saga = state == LETTER_REPLAYED,
    };
}

static void check_filter(const struct store_letter_filter *filter)
{
    check_name_or_null(filter->rule, NAME_BYTES);
    check_name_or_null(filter->topic, NAME_BYTES);
    check_name_or_null(filter->reason, NAME_BYTES);
    FUZZ_CHECK(filter->partition >= 0);
    FUZZ_CHECK(filter->has_partition || !filter->partition);
}

int store_reader_letters(struct store_reader *reader, const struct store_letter_filter *filter,
                         const struct uuid *before, size_t limit, struct store_letter *ret,
                         size_t *ret_count, struct err *err)
{
    (void)reader;
    (void)before;
    check_filter(filter);
    FUZZ_CHECK(limit >= 2 && limit <= LIMIT_PAGE_ITEMS + 1);
    *ret_count = 0;
    if (fake_reader_refuses())
        return refuse(err);
    struct uuid id = { { 0 } };
    size_t count = limit < LETTER_STATE_COUNT ? limit : LETTER_STATE_COUNT;
    for (size_t i = 0; i < count; i++)
        fill_letter(&id, (enum store_letter_state)i, &ret[i]);
    *ret_count = count;
    return 0;
}

int store_reader_letter(struct store_reader *reader, const struct uuid *id,
                        struct store_letter *ret, struct err *err)
{
    static const uint8_t headers[] = { 0x0a, 3, 0x0a, 1, 'h' };
    (void)reader;
    if (fake_reader_refuses())
        return refuse(err);
    fill_letter(id, id->bytes[15] % LETTER_STATE_COUNT, ret);
    FUZZ_CHECK(mem_bytes_copy("v", 1, &ret->value) == 0);
    FUZZ_CHECK(mem_bytes_copy(headers, sizeof headers, &ret->headers) == 0);
    return 0;
}

int store_reader_letters_decide(struct store_reader *reader,
                                const struct store_letter_decision *what, size_t *ret_count,
                                struct err *err)
{
    (void)reader;
    if (!what->dry_run)
        check_words(what->actor, what->reason);
    FUZZ_CHECK(what->id_count <= LETTERS_PER_DECISION);
    FUZZ_CHECK(what->limit >= 1 && what->limit <= LETTERS_PER_DECISION);
    check_filter(&what->filter);
    *ret_count = what->id_count ? what->id_count : what->limit + what->dry_run;
    return fake_reader_refuses() ? refuse(err) : 0;
}

/* --- the outbox ------------------------------------------------------------------------------- */

void store_outbox_status_done(struct store_outbox_status *status)
{
    for (size_t i = 0; i < status->relay_count; i++) {
        mem_free(status->relays[i].node);
        mem_free(status->relays[i].problem);
    }
    for (size_t i = 0; i < status->refused_count; i++) {
        mem_free(status->refused[i].saga_id);
        mem_free(status->refused[i].handler);
        mem_free(status->refused[i].error);
    }
    mem_free(status->relays);
    mem_free(status->refused);
    *status = (struct store_outbox_status){ 0 };
}

int store_reader_outbox(struct store_reader *reader, struct store_outbox_status *ret,
                        struct err *err)
{
    (void)reader;
    if (fake_reader_refuses())
        return refuse(err);
    *ret = (struct store_outbox_status){ .relays = make(1, sizeof *ret->relays),
                                         .relay_count = 1,
                                         .refused = make(2, sizeof *ret->refused),
                                         .refused_count = 2 };
    ret->relays[0] = (struct store_outbox_relay){ .node = keep("n"), .problem = keep("no broker") };
    ret->refused[0] = (struct store_outbox_refused){ .id = { .seq = 7, .part = STORE_EVENT_ENTRY },
                                                     .saga_id = keep("s"),
                                                     .waits_since_ms = TIME_MS,
                                                     .error = keep("too large") };
    ret->refused[1] =
        (struct store_outbox_refused){ .id = { .seq = 3, .part = STORE_EVENT_HANDLER },
                                       .handler = keep("h"),
                                       .waits_since_ms = TIME_MS,
                                       .error = keep("no") };
    return 0;
}

int store_reader_outbox_decide(struct store_reader *reader,
                               const struct store_outbox_decision *what, struct err *err)
{
    (void)reader;
    check_words(what->actor, what->reason);
    FUZZ_CHECK(what->id.seq >= 0 && what->id.part >= 0 && what->id.part < STORE_EVENT_PART_COUNT);
    return fake_reader_refuses() ? refuse(err) : 0;
}

/* --- one business key ------------------------------------------------------------------------- */

void store_kafka_where_done(struct store_kafka_where *where)
{
    for (size_t i = 0; i < where->key_count; i++) {
        mem_free(where->keys[i].namespace_);
        mem_free(where->keys[i].definition);
        mem_free(where->keys[i].archive);
    }
    for (size_t i = 0; i < where->letter_count; i++)
        store_letter_done(&where->letters[i]);
    mem_free(where->keys);
    mem_free(where->letters);
    store_kafka_rules_done(&where->rules);
    *where = (struct store_kafka_where){ 0 };
}

int store_reader_kafka_where(struct store_reader *reader, const char *namespace_,
                             const char *definition, const char *saga_id,
                             struct store_kafka_where *ret, struct err *err)
{
    (void)reader;
    check_name_or_null(namespace_, LIMIT_NAMESPACE_BYTES);
    check_name_or_null(definition, LIMIT_DEFINITION_NAME_BYTES);
    check_name(saga_id, 1, LIMIT_SAGA_ID_BYTES);
    if (fake_reader_refuses())
        return refuse(err);
    *ret = (struct store_kafka_where){ .keys = make(1, sizeof *ret->keys),
                                       .key_count = 1,
                                       .letters = make(1, sizeof *ret->letters),
                                       .letter_count = 1 };
    bool ended = strlen(saga_id) % 2;
    ret->keys[0] = (struct store_kafka_key){ .namespace_ = keep("default"),
                                             .definition = keep("order"),
                                             .run = 1,
                                             .ended = ended,
                                             .final_state = SAGA_SUCCEEDED,
                                             .has_row = !ended,
                                             .remembered_until_ms = ended ? TIME_MS : 0,
                                             .archive = ended ? keep("f.jsonl") : NULL };
    fill_letter(&ret->keys[0].uid, LETTER_OPEN, &ret->letters[0]);
    fill_rules("r", &ret->rules);
    return 0;
}
