#include "store/decode.h"

#include "base/mem.h"

#include <string.h>

#define PG_EPOCH_US INT64_C(946684800000000) /* 2000-01-01 in Unix microseconds */

void columns_fault(struct columns *columns, const char *what)
{
    if (columns->failed)
        return;
    columns->failed = true;
    char uid[UUID_TEXT_SIZE];
    uuid_format(&columns->uid, uid);
    const char *column = PQfname(columns->result, columns->at);
    (void)err_set(columns->err, ERR_INTERNAL, "%s.%s of saga %s: %s", columns->table,
                  column ? column : "?", uid, what);
}

static void columns_nomem(struct columns *columns)
{
    if (!columns->failed)
        (void)err_set(columns->err, ERR_NOMEM, "load %s", columns->table);
    columns->failed = true;
}

bool columns_is_null(const struct columns *columns)
{
    return columns->at >= PQnfields(columns->result) ||
           PQgetisnull(columns->result, columns->row, columns->at);
}

/* The bytes of a value that must have this size; NULL (and a fault) if not. */
static const uint8_t *fixed(struct columns *columns, int size)
{
    if (columns_is_null(columns)) {
        columns_fault(columns, "is NULL");
        return NULL;
    }
    if (PQgetlength(columns->result, columns->row, columns->at) != size) {
        columns_fault(columns, "has an unexpected type");
        return NULL;
    }
    return (const uint8_t *)PQgetvalue(columns->result, columns->row, columns->at);
}

static uint64_t big_endian(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | at[i];
    return value;
}

bool columns_bool(struct columns *columns)
{
    const uint8_t *at = fixed(columns, 1);
    columns->at++;
    return at && *at;
}

int16_t columns_int2(struct columns *columns, int16_t if_null)
{
    if (columns_is_null(columns)) {
        columns->at++;
        return if_null;
    }
    const uint8_t *at = fixed(columns, 2);
    columns->at++;
    return at ? (int16_t)(uint16_t)big_endian(at, 2) : if_null;
}

int32_t columns_int4(struct columns *columns)
{
    const uint8_t *at = fixed(columns, 4);
    columns->at++;
    return at ? (int32_t)(uint32_t)big_endian(at, 4) : 0;
}

int64_t columns_int8(struct columns *columns)
{
    const uint8_t *at = fixed(columns, 8);
    columns->at++;
    return at ? (int64_t)big_endian(at, 8) : 0;
}

struct uuid columns_uuid(struct columns *columns, bool *ret_present)
{
    struct uuid uuid = { { 0 } };
    *ret_present = !columns_is_null(columns);
    if (*ret_present) {
        const uint8_t *at = fixed(columns, sizeof uuid.bytes);
        if (at)
            memcpy(uuid.bytes, at, sizeof uuid.bytes);
    }
    columns->at++;
    return uuid;
}

const char *columns_borrow(struct columns *columns)
{
    const char *text =
        columns_is_null(columns) ? NULL : PQgetvalue(columns->result, columns->row, columns->at);
    columns->at++;
    return text;
}

char *columns_text(struct columns *columns)
{
    const char *text = columns_borrow(columns);
    char *copy = text && !columns->failed ? mem_strdup(text) : NULL;
    if (text && !copy)
        columns_nomem(columns);
    return copy;
}

struct bytes columns_bytes(struct columns *columns)
{
    struct bytes bytes = { NULL, 0 };
    if (!columns_is_null(columns) && !columns->failed) {
        int size = PQgetlength(columns->result, columns->row, columns->at);
        if (mem_bytes_copy(PQgetvalue(columns->result, columns->row, columns->at), (size_t)size,
                           &bytes) != 0)
            columns_nomem(columns);
    }
    columns->at++;
    return bytes;
}

int64_t decode_time_ms(int64_t pg_us)
{
    int64_t us = pg_us + PG_EPOCH_US;
    return us / 1000 - (us % 1000 < 0);
}

int64_t decode_time_pg(int64_t unix_us)
{
    return unix_us - PG_EPOCH_US;
}

int64_t columns_time_ms(struct columns *columns)
{
    if (columns_is_null(columns)) {
        columns->at++;
        return 0;
    }
    int64_t pg_us = columns_int8(columns);
    if (pg_us == INT64_MIN || pg_us > INT64_MAX - PG_EPOCH_US) { /* -infinity, infinity */
        columns->at--;
        columns_fault(columns, "is no point in time");
        columns->at++;
        return 0;
    }
    return decode_time_ms(pg_us);
}

/* A word of one of the enums. `required`: NULL is a fault, else it leaves *ret (an enum) as it is.
 */
#define COLUMNS_WORD(columns, parse, ret, required)                                                \
    do {                                                                                           \
        const char *word_ = columns_borrow(columns);                                               \
        if (word_ ? !parse(word_, (ret)) : (required)) {                                           \
            (columns)->at--;                                                                       \
            columns_fault(columns, word_ ? "holds an unknown word" : "is NULL");                   \
            (columns)->at++;                                                                       \
        }                                                                                          \
    } while (0)

enum saga_state columns_saga_state(struct columns *columns)
{
    enum saga_state state = SAGA_RUNNING;
    COLUMNS_WORD(columns, saga_state_parse, &state, true);
    return state;
}

enum park_reason columns_park_reason(struct columns *columns)
{
    enum park_reason reason = PARK_NONE;
    COLUMNS_WORD(columns, park_reason_parse, &reason, true);
    return reason;
}

static void required_text(struct columns *columns, char **ret)
{
    if (columns_is_null(columns))
        columns_fault(columns, "is NULL");
    *ret = columns_text(columns);
}

int decode_saga(const PGresult *result, int row, struct saga_row *ret, struct err *err)
{
    struct columns columns = { .result = result, .row = row, .at = 3, .table = "saga", .err = err };
    struct saga_row saga = { 0 };
    bool present;
    saga.uid = columns.uid = columns_uuid(&columns, &present);
    required_text(&columns, &saga.namespace_);
    required_text(&columns, &saga.definition);
    saga.revision = columns_int4(&columns);
    required_text(&columns, &saga.saga_id);
    saga.run = columns_int4(&columns);
    saga.state = columns_saga_state(&columns);
    saga.phase = columns_saga_state(&columns);
    saga.doubt = columns_bool(&columns);
    COLUMNS_WORD(&columns, park_reason_parse, &saga.park_reason, false);
    saga.park_step = columns_int2(&columns, -1);
    saga.park_code = columns_text(&columns);
    saga.park_message = columns_text(&columns);
    saga.related = columns_uuid(&columns, &saga.has_related);
    saga.started_at_ms = columns_time_ms(&columns);
    saga.updated_at_ms = columns_time_ms(&columns);
    saga.deadline_at_ms = columns_time_ms(&columns);
    saga.ended_at_ms = columns_time_ms(&columns);
    saga.start_at_ms = columns_time_ms(&columns);
    saga.labels = columns_text(&columns);
    saga.input = columns_bytes(&columns);
    if (columns.failed) {
        saga_row_done(&saga);
        return (int)err->code;
    }
    *ret = saga;
    return 0;
}

bool decode_mine(const PGresult *result, int row, const char *node)
{
    struct columns columns = { .result = result, .row = row, .at = 2 };
    const char *owner = columns_borrow(&columns);
    return owner && strcmp(owner, node) == 0;
}

int decode_uids(const PGresult *result, struct store_op *op, int64_t *ret_now_ms, struct err *err)
{
    size_t count = (size_t)PQntuples(result);
    struct uuid *uids = count ? mem_calloc(count, sizeof *uids) : NULL;
    if (count && !uids)
        return err_set(err, ERR_NOMEM, "list of sagas");
    struct columns columns = { .result = result, .table = "saga", .err = err };
    for (; (size_t)columns.row < count && !columns.failed; columns.row++) {
        bool present;
        columns.at = 0;
        uids[columns.row] = columns_uuid(&columns, &present);
        *ret_now_ms = columns_time_ms(&columns);
    }
    if (columns.failed) {
        mem_free(uids);
        return (int)err->code;
    }
    mem_free(op->uids); /* of a transaction that failed */
    op->uids = uids;
    op->uid_count = count;
    return 0;
}

/* The reason's words depend on the kind of entry. */
static uint8_t columns_reason(struct columns *columns, enum entry_kind kind)
{
    if (entry_has_cause(kind)) {
        enum cause cause = CAUSE_REFUSED;
        COLUMNS_WORD(columns, cause_parse, &cause, true);
        return (uint8_t)cause;
    }
    if (kind == ENTRY_PARK) {
        return (uint8_t)columns_park_reason(columns);
    }
    if (!columns_is_null(columns))
        columns_fault(columns, "is set on an entry of this kind");
    columns->at++;
    return 0;
}

int decode_entry(const PGresult *result, int row, const struct uuid *uid, struct journal_entry *ret,
                 struct err *err)
{
    struct columns columns = {
        .result = result, .row = row, .at = 1, .table = "journal", .uid = *uid, .err = err
    };
    struct journal_entry entry = { 0 };
    entry.seq = columns_int8(&columns);
    entry.fence = columns_int8(&columns);
    COLUMNS_WORD(&columns, entry_kind_parse, &entry.kind, true);
    entry.step = columns_int2(&columns, -1);
    COLUMNS_WORD(&columns, operation_parse, &entry.operation, false);
    entry.try_ = columns_int4(&columns);
    entry.worker = columns_text(&columns);
    entry.leased_at_ms = columns_time_ms(&columns);
    entry.attempt_until_ms = columns_time_ms(&columns);
    entry.lease_until_ms = columns_time_ms(&columns);
    COLUMNS_WORD(&columns, outcome_parse, &entry.outcome, false);
    entry.finished_at_ms = columns_time_ms(&columns);
    entry.retry_at_ms = columns_time_ms(&columns);
    entry.output = columns_bytes(&columns);
    entry.error_code = columns_text(&columns);
    entry.error_message = columns_text(&columns);
    entry.reason = columns_reason(&columns, entry.kind);
    entry.about = columns_is_null(&columns) ? (columns.at++, 0) : columns_int8(&columns);
    entry.actor = columns_text(&columns);
    entry.signal_id = columns_text(&columns);
    entry.held_ms = columns_is_null(&columns) ? (columns.at++, 0) : columns_int8(&columns);
    if (columns.failed) {
        journal_entry_done(&entry);
        return (int)err->code;
    }
    *ret = entry;
    return 0;
}

int decode_entries(const PGresult *result, int first, int count, struct store_saga *saga,
                   struct err *err)
{
    if (count == 0)
        return 0;
    saga->entries = mem_calloc((size_t)count, sizeof *saga->entries);
    if (!saga->entries)
        return err_set(err, ERR_NOMEM, "load journal");
    for (int i = 0; i < count; i++) {
        if (decode_entry(result, first + i, &saga->row.uid, &saga->entries[i], err) != 0)
            return (int)err->code;
        saga->entry_count++;
    }
    return 0;
}

int decode_key(const PGresult *result, int row, struct store_key *ret, struct err *err)
{
    struct columns columns = {
        .result = result, .row = row, .at = 2, .table = "saga_key", .err = err
    };
    struct store_key key = { .final_state = SAGA_RUNNING };
    bool present;
    key.uid = columns.uid = columns_uuid(&columns, &present);
    key.run = columns_int4(&columns);
    const uint8_t *digest = fixed(&columns, sizeof key.input_digest);
    if (digest)
        memcpy(key.input_digest, digest, sizeof key.input_digest);
    columns.at++;
    key.ended = !columns_is_null(&columns);
    COLUMNS_WORD(&columns, saga_state_parse, &key.final_state, false);
    if (columns.failed)
        return (int)err->code;
    *ret = key;
    return 0;
}

static int64_t leading_int8(const PGresult *result, int row, int column)
{
    if (PQgetlength(result, row, column) != 8)
        return 0;
    return (int64_t)big_endian((const uint8_t *)PQgetvalue(result, row, column), 8);
}

int64_t decode_ordinal(const PGresult *result, int row)
{
    return leading_int8(result, row, 0);
}

int64_t decode_now_ms(const PGresult *result, int row)
{
    return decode_time_ms(leading_int8(result, row, 1));
}
