/* Dead letters, and what is known of a business key. */
#include "store/reader_kafka_internal.h"

static const char *const state_names[LETTER_STATE_COUNT] = {
    [LETTER_OPEN] = "OPEN",
    [LETTER_REPLAY] = "REPLAY",
    [LETTER_REPLAYED] = "REPLAYED",
    [LETTER_DISCARDED] = "DISCARDED",
};

const char *store_letter_state_name(enum store_letter_state state)
{
    return state_names[state];
}

void store_letter_done(struct store_letter *letter)
{
    mem_free(letter->rule);
    mem_free(letter->topic);
    mem_free(letter->key.data);
    mem_free(letter->value.data);
    mem_free(letter->headers.data);
    mem_free(letter->saga_id);
    mem_free(letter->reason);
    mem_free(letter->message);
    mem_free(letter->decided_by);
    mem_free(letter->decision_reason);
    mem_free(letter->replay_error);
    *letter = (struct store_letter){ 0 };
}

static void take_letter(struct columns *columns, struct store_letter *letter)
{
    bool present;
    letter->id = columns_uuid(columns, &present);
    letter->rule = columns_text(columns);
    letter->topic = columns_text(columns);
    letter->partition = columns_int4(columns);
    letter->offset = columns_int8(columns);
    letter->time_ms = columns_int8(columns);
    letter->has_key = columns_bool(columns);
    letter->has_value = columns_bool(columns);
    letter->key_size = columns_int8(columns);
    letter->value_size = columns_int8(columns);
    letter->saga_id = columns_text(columns);
    letter->reason = columns_text(columns);
    letter->message = columns_text(columns);
    letter->received_at_ms = columns_time_ms(columns);
    letter->state = (enum store_letter_state)kafka_word(columns, state_names, LETTER_STATE_COUNT);
    letter->decided_by = columns_text(columns);
    letter->decision_reason = columns_text(columns);
    letter->decided_at_ms = columns_time_ms(columns);
    letter->saga_uid = columns_uuid(columns, &letter->has_saga);
    letter->replay_error = columns_text(columns);
    if (columns->at < PQnfields(columns->result)) { /* KAFKA_LETTER */
        letter->key = columns_bytes(columns);
        letter->value = columns_bytes(columns);
        letter->headers = columns_bytes(columns);
    }
}

/* --- lists ---------------------------------------------------------------------------------- */

/* The parameters of KAFKA_LETTERS and KAFKA_LETTERS_PICK. */
static void put_filter(struct params *params, const struct store_letter_filter *filter,
                       bool only_open, const struct uuid *bound, size_t limit)
{
    bool any = false;
    params_text(params, filter->rule);
    for (size_t i = 0; i < LETTER_STATE_COUNT && !only_open; i++) {
        if (!filter->states[i])
            continue;
        params_seek(params, 1);
        params_text(params, state_names[i]);
        any = true;
    }
    if (!any) {
        params_seek(params, 1);
        params_text(params, state_names[LETTER_OPEN]);
    }
    params_uuid(params, bound);
    params_text(params, filter->topic);
    if (filter->has_partition)
        params_int4(params, filter->partition);
    else
        params_null(params);
    params_text(params, filter->reason);
    params_int8(params, (int64_t)limit);
}

struct letters_call {
    const struct store_letter_filter *filter; /* NULL: one, by `id` */
    struct uuid id;
    size_t limit, count;
    struct store_letter *letters;
};

static void letters_drop(struct letters_call *call)
{
    for (size_t i = 0; i < call->count; i++)
        store_letter_done(&call->letters[i]);
    call->count = 0;
}

static int letters_take(const PGresult *result, struct letters_call *call, struct err *err)
{
    for (int row = 0; row < PQntuples(result) && call->count < call->limit; row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "dead_letter", .err = err
        };
        struct store_letter *letter = &call->letters[call->count++];
        *letter = (struct store_letter){ 0 };
        take_letter(&columns, letter);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static int letters_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct letters_call *call = ctx;
    letters_drop(call); /* of a first try that broke */
    struct params *params = reader_start_kafka(reader, call->filter ? KAFKA_LETTERS : KAFKA_LETTER);
    if (call->filter)
        put_filter(params, call->filter, false, &call->id, call->limit);
    else
        params_uuid(params, &call->id);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    return letters_take(result, call, err);
}

static int letters_read(struct store_reader *reader, struct letters_call *call, struct err *err)
{
    if (reader_with_connection(reader, letters_run, call, err) == 0)
        return 0;
    letters_drop(call);
    return (int)err->code;
}

int store_reader_letters(struct store_reader *reader, const struct store_letter_filter *filter,
                         const struct uuid *before, size_t limit, struct store_letter *ret,
                         size_t *ret_count, struct err *err)
{
    struct letters_call call = { .filter = filter, .limit = limit, .letters = ret };
    kafka_before(before, &call.id);
    if (letters_read(reader, &call, err) != 0)
        return (int)err->code;
    *ret_count = call.count;
    return 0;
}

static int no_letter(const struct uuid *id, struct err *err)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(id, text);
    return err_reason(err, ERR_NOT_FOUND, "LETTER_NOT_FOUND", "no dead letter %s", text);
}

int store_reader_letter(struct store_reader *reader, const struct uuid *id,
                        struct store_letter *ret, struct err *err)
{
    struct store_letter letter = { 0 };
    struct letters_call call = { .id = *id, .limit = 1, .letters = &letter };
    if (letters_read(reader, &call, err) != 0)
        return (int)err->code;
    if (call.count == 0)
        return no_letter(id, err);
    *ret = letter;
    return 0;
}

/* --- decisions ------------------------------------------------------------------------------ */

struct decide_call {
    const struct store_letter_decision *what;
    struct uuid ids[LETTERS_PER_DECISION + 1];
    size_t id_count;
    size_t count; /* decided */
};

/* Without ids of the caller: the oldest that the filter takes. */
static int decide_pick(struct store_reader *reader, struct decide_call *call, struct err *err)
{
    const struct store_letter_decision *what = call->what;
    static const struct uuid first;
    put_filter(reader_start_kafka(reader, KAFKA_LETTERS_PICK), &what->filter, true, &first,
               what->limit + what->dry_run);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    for (int row = 0; row < PQntuples(result) && call->id_count < ARRAY_LEN(call->ids); row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "dead_letter", .err = err
        };
        bool present;
        call->ids[call->id_count++] = columns_uuid(&columns, &present);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static void put_ids(struct params *params, const struct decide_call *call)
{
    for (size_t i = 0; i < call->id_count; i++) {
        params_seek(params, 0);
        params_uuid(params, &call->ids[i]);
    }
    params_seek(params, 1);
}

static bool is_in(const PGresult *result, const struct uuid *id)
{
    for (int row = 0; row < PQntuples(result); row++)
        if (PQgetlength(result, row, 0) == (int)sizeof *id &&
            memcmp(PQgetvalue(result, row, 0), id, sizeof *id) == 0)
            return true;
    return false;
}

/* Holds them; where the caller named them each must be there and open. */
static int decide_lock(struct store_reader *reader, struct decide_call *call, struct err *err)
{
    put_ids(reader_start_kafka(reader, KAFKA_LETTERS_LOCK), call);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    call->count = 0;
    for (size_t i = 0; i < call->what->id_count; i++)
        if (!is_in(result, &call->what->ids[i]))
            return no_letter(&call->what->ids[i], err);
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "dead_letter", .err = err
        };
        bool present;
        char text[UUID_TEXT_SIZE];
        struct uuid id = columns_uuid(&columns, &present);
        size_t state = kafka_word(&columns, state_names, LETTER_STATE_COUNT);
        bool has_rule = columns_bool(&columns);
        const char *rule = columns_borrow(&columns);
        if (columns.failed)
            return (int)err->code;
        uuid_format(&id, text);
        if (state != LETTER_OPEN && call->what->id_count > 0)
            return err_reason(err, ERR_PRECONDITION, "LETTER_NOT_OPEN",
                              "the dead letter %s is %s: it was decided before", text,
                              state_names[state]);
        if (state == LETTER_OPEN && call->what->replay && !has_rule)
            return err_reason(
                err, ERR_PRECONDITION, "RULE_NOT_FOUND",
                "no node serves the rule %s of the dead letter %s: nobody could replay"
                " it. Name a rule so again, or discard it",
                rule, text);
        call->count += state == LETTER_OPEN;
    }
    return 0;
}

static int decide_change(struct store_reader *reader, const struct decide_call *call,
                         struct err *err)
{
    const struct store_letter_decision *what = call->what;
    struct params *params = reader_start_kafka(reader, KAFKA_LETTERS_DECIDE);
    put_ids(params, call);
    params_bool(params, what->replay);
    params_text(params, what->actor);
    params_text(params, what->reason);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "dead_letter", .err = err
        };
        const char *rule = columns_borrow(&columns);
        struct kafka_audit audit = { .kind = what->replay ? KAFKA_KIND_REPLAY : KAFKA_KIND_DISCARD,
                                     .rule = rule,
                                     .letters = columns_int8(&columns),
                                     .topic = what->filter.topic,
                                     .letters_reason = what->filter.reason,
                                     .actor = what->actor,
                                     .reason = what->reason };
        if (columns.failed || kafka_audit(reader, &audit, err) != 0)
            return (int)err->code;
    }
    return 0;
}

static int decide_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct decide_call *call = ctx;
    const struct store_letter_decision *what = call->what;
    call->id_count = what->id_count;
    for (size_t i = 0; i < what->id_count; i++)
        call->ids[i] = what->ids[i];
    if (reader_command(reader, "BEGIN", err) != 0 ||
        (what->id_count == 0 && decide_pick(reader, call, err) != 0) ||
        decide_lock(reader, call, err) != 0 ||
        (!what->dry_run && decide_change(reader, call, err) != 0))
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

int store_reader_letters_decide(struct store_reader *reader,
                                const struct store_letter_decision *what, size_t *ret_count,
                                struct err *err)
{
    if (what->id_count > LETTERS_PER_DECISION || what->limit > LETTERS_PER_DECISION)
        return err_set(err, ERR_LIMIT, "at most %d dead letters at once", LETTERS_PER_DECISION);
    CLEANUP(mem_free_p) struct decide_call *call = mem_calloc(1, sizeof *call);
    if (!call)
        return err_set(err, ERR_NOMEM, "dead letters");
    call->what = what;
    if (reader_with_connection(reader, decide_run, call, err) != 0)
        return (int)err->code;
    *ret_count = call->count;
    return 0;
}

/* --- one business key ----------------------------------------------------------------------- */

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

struct where_call {
    const char *namespace_, *definition, *saga_id;
    struct store_kafka_where where;
};

/* Where the key would stand, of each definition that there ever was. */
static int where_places(struct store_reader *reader, const struct where_call *call,
                        PGresult **ret_definitions, struct err *err)
{
    struct params *params = reader_start_kafka(reader, KAFKA_DEFINITIONS);
    params_text(params, call->namespace_);
    params_text(params, call->definition);
    return reader_execute(reader, ret_definitions, err);
}

static void take_key(struct columns *columns, struct store_kafka_key *key)
{
    bool present;
    key->namespace_ = columns_text(columns);
    key->definition = columns_text(columns);
    key->uid = columns_uuid(columns, &present);
    key->run = columns_int4(columns);
    key->ended = columns_bool(columns);
    key->final_state = columns_saga_state(columns);
    key->has_row = columns_bool(columns);
    key->remembered_until_ms = columns_time_ms(columns);
    key->archive = columns_text(columns);
}

static int where_keys(struct store_reader *reader, struct where_call *call, struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *definitions = NULL;
    if (where_places(reader, call, &definitions, err) != 0)
        return (int)err->code;
    struct params *params = reader_start_kafka(reader, KAFKA_KEYS);
    for (int row = 0; row < PQntuples(definitions); row++) {
        const char *namespace_ = PQgetvalue(definitions, row, 0);
        const char *name = PQgetvalue(definitions, row, 1);
        params_seek(params, 0);
        params_int2(params, store_shard(namespace_, name, call->saga_id));
        params_text(params, namespace_);
        params_text(params, name);
    }
    params_seek(params, 3);
    params_text(params, call->saga_id);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct store_kafka_where *where = &call->where;
    where->keys = mem_calloc((size_t)PQntuples(result) + 1, sizeof *where->keys);
    if (!where->keys)
        return err_set(err, ERR_NOMEM, "keys");
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = { .result = result, .row = row, .table = "saga_key", .err = err };
        take_key(&columns, &where->keys[where->key_count++]);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static int where_letters(struct store_reader *reader, struct where_call *call, struct err *err)
{
    struct params *params = reader_start_kafka(reader, KAFKA_KEY_LETTERS);
    params_blob(params, call->saga_id, strlen(call->saga_id));
    params_text(params, call->saga_id);
    params_text(params, call->namespace_);
    params_text(params, call->definition);
    params_int8(params, KAFKA_KEY_LETTERS_MAX);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct letters_call letters = { .limit = KAFKA_KEY_LETTERS_MAX };
    letters.letters = call->where.letters =
        mem_calloc(KAFKA_KEY_LETTERS_MAX, sizeof *letters.letters);
    if (!letters.letters)
        return err_set(err, ERR_NOMEM, "dead letters");
    int rc = letters_take(result, &letters, err);
    call->where.letter_count = letters.count;
    return rc;
}

static int where_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct where_call *call = ctx;
    store_kafka_where_done(&call->where); /* of a first try that broke */
    if (reader_command(reader, control_stmts[CONTROL_BEGIN_READ].sql, err) != 0 ||
        where_keys(reader, call, err) != 0 || where_letters(reader, call, err) != 0 ||
        kafka_rules_read(reader, NULL, call->namespace_, call->definition, &call->where.rules,
                         err) != 0)
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

int store_reader_kafka_where(struct store_reader *reader, const char *namespace_,
                             const char *definition, const char *saga_id,
                             struct store_kafka_where *ret, struct err *err)
{
    struct where_call call = { .namespace_ = namespace_,
                               .definition = definition,
                               .saga_id = saga_id };
    if (reader_with_connection(reader, where_run, &call, err) != 0) {
        store_kafka_where_done(&call.where);
        return (int)err->code;
    }
    *ret = call.where;
    return 0;
}
