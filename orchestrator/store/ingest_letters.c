/* Dead letters: written by a batch, and replayed as one. */
#include "store/ingest_batch.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static void put_bytes(struct params *params, const struct store_ingest_bytes *bytes)
{
    if (bytes->is_there)
        params_blob(params, bytes->data, bytes->size);
    else
        params_null(params);
}

/* Texts of others, made of bytes that could not be read: they must not make the letter fail. */
static const char *sound(const char *text, size_t limit, const char *otherwise)
{
    return text && strlen(text) <= limit && utf8_is_valid(text, strlen(text)) ? text : otherwise;
}

static void put_letter(struct params *params, const struct item *item)
{
    const struct store_ingest_record *record = item->record;
    params_seek(params, 2);
    params_uuid(params, &item->letter_id);
    params_int4(params, record->partition);
    params_int8(params, record->offset);
    params_int8(params, record->time_ms);
    params_int8(params, record->crc);
    put_bytes(params, &record->key);
    put_bytes(params, &record->value);
    params_blob(params, record->headers.data, record->headers.size);
    params_text(params, sound(record->saga_id, LIMIT_SAGA_ID_BYTES, NULL));
    params_text(params, sound(item->reason, LIMIT_ERROR_CODE_BYTES, "UNKNOWN"));
    params_text(params, sound(item->message, LIMIT_ERROR_MESSAGE_BYTES, "no readable message"));
}

/* The next id: above each one before it, also within a millisecond (the count stands in the 12 bits
 * behind the version; RFC 9562, 6.2) and when the clock goes back. So letters are listed and
 * replayed in the order in which they came. */
static struct uuid letter_id(struct store_ingest *ingest)
{
    int64_t now_ms = clock_wall_ms(ingest->clock);
    if (now_ms > ingest->letter_ms) {
        ingest->letter_ms = now_ms;
        ingest->letter_count = 0;
    } else if (++ingest->letter_count == 1 << 12) {
        ingest->letter_ms++;
        ingest->letter_count = 0;
    }
    uint8_t last = (uint8_t)rng_next(&ingest->rng);
    struct uuid id = uuid_v7(ingest->letter_ms, &ingest->rng, last);
    id.bytes[6] = (uint8_t)(0x70 | ingest->letter_count >> 8);
    id.bytes[7] = (uint8_t)ingest->letter_count;
    return id;
}

/* Those that are letters and not there yet. */
int run_letters(struct run *run, struct err *err)
{
    size_t count = 0, at = 0;
    struct params *params = ingest_start_rule(run->ingest, INGEST_DEAD_LETTERS);
    for (size_t i = 0; i < run->batch->record_count; i++) {
        struct item *item = &run->items[i];
        if (!item->is_letter || item->inserted)
            continue;
        item->letter_id = letter_id(run->ingest);
        put_letter(params, item);
        run->picked[count++] = item;
    }
    if (count == 0)
        return 0;
    if (ingest_run(run->ingest, err) != 0)
        return (int)err->code;
    const PGresult *result = ingest_result(run->ingest, 0);
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "dead_letter", .err = err
        };
        bool present;
        struct uuid id = columns_uuid(&columns, &present);
        size_t left = count;
        for (; left > 0 && memcmp(&run->picked[at]->letter_id, &id, sizeof id) != 0; left--)
            at = (at + 1) % count;
        if (columns.failed || left == 0)
            return columns.failed ? (int)err->code
                                  : err_set(err, ERR_INTERNAL, "ingest: another letter came back");
        run->picked[at]->inserted = true;
    }
    return 0;
}

int run_send_replayed(struct run *run, struct err *err)
{
    struct params *params = ingest_start(run->ingest, &ingest_stmts[INGEST_REPLAY_END]);
    for (size_t i = 0; i < run->batch->record_count; i++) {
        const struct item *item = &run->items[i];
        const struct store_ingest_record *record = item->record;
        if (!item->allowed)
            continue;
        char error[LIMIT_ERROR_CODE_BYTES + LIMIT_ERROR_MESSAGE_BYTES + 3] = "";
        if (item->is_letter)
            (void)snprintf(error, sizeof error, "%s: %s",
                           sound(item->reason, LIMIT_ERROR_CODE_BYTES, "UNKNOWN"),
                           sound(item->message, LIMIT_ERROR_MESSAGE_BYTES, "no readable message"));
        params_seek(params, 0);
        params_uuid(params, &run->letters[i].id);
        params_bool(params, !item->is_letter);
        if (item->is_letter)
            params_null(params);
        else
            params_uuid(params, &record->uid);
        params_text(params, sound(record->saga_id, LIMIT_SAGA_ID_BYTES, NULL));
        params_text(params, item->is_letter ? error : NULL);
    }
    return ingest_send(run->ingest, err);
}

/* --- those that are to be replayed ---------------------------------------------------------- */

void store_ingest_letters_done(struct store_ingest_letter *letters, size_t count)
{
    for (size_t i = 0; letters && i < count; i++) {
        mem_free(letters[i].key.data);
        mem_free(letters[i].value.data);
        mem_free(letters[i].headers.data);
    }
    mem_free(letters);
}

static struct store_ingest_letter take_letter(struct columns *columns)
{
    bool present;
    struct store_ingest_letter letter = { .id = columns_uuid(columns, &present) };
    letter.partition = columns_int4(columns);
    letter.offset = columns_int8(columns);
    letter.time_ms = columns_int8(columns);
    letter.crc = (uint32_t)columns_int8(columns);
    letter.has_key = columns_bool(columns);
    letter.has_value = columns_bool(columns);
    letter.key = columns_bytes(columns);
    letter.value = columns_bytes(columns);
    letter.headers = columns_bytes(columns);
    return letter;
}

static int take_letters(const PGresult *result, struct store_ingest_letter **ret, size_t *ret_count,
                        struct err *err)
{
    size_t count = (size_t)PQntuples(result);
    struct store_ingest_letter *letters = mem_calloc(count + 1, sizeof *letters);
    if (!letters)
        return err_set(err, ERR_NOMEM, "dead letters");
    for (size_t i = 0; i < count; i++) {
        struct columns columns = {
            .result = result, .row = (int)i, .table = "dead_letter", .err = err
        };
        letters[i] = take_letter(&columns);
        if (columns.failed) {
            store_ingest_letters_done(letters, i + 1);
            return (int)err->code;
        }
    }
    *ret = letters;
    *ret_count = count;
    return 0;
}

int store_ingest_letters(struct store_ingest *ingest, size_t limit,
                         struct store_ingest_letter **ret, size_t *ret_count, struct err *err)
{
    if (ingest_open(ingest, err) != 0)
        return (int)err->code;
    struct params *params = ingest_start(ingest, &ingest_stmts[INGEST_REPLAYS]);
    params_text(params, ingest->rule);
    params_int8(params, (int64_t)limit);
    int rc = ingest_run(ingest, err);
    if (rc == 0)
        rc = take_letters(ingest_result(ingest, 0), ret, ret_count, err);
    return ingest_close(ingest, rc, err);
}
