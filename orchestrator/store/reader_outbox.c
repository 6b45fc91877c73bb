#include "store/reader_outbox.h"

#include "base/clock.h"
#include "base/rng.h"
#include "store/reader_kafka_internal.h"

#include <inttypes.h>

void store_outbox_status_done(struct store_outbox_status *status)
{
    for (size_t i = 0; i < status->relay_count; i++) {
        mem_free(status->relays[i].node);
        mem_free(status->relays[i].problem);
    }
    for (size_t i = 0; i < status->refused_count; i++) {
        mem_free(status->refused[i].namespace_);
        mem_free(status->refused[i].definition);
        mem_free(status->refused[i].saga_id);
        mem_free(status->refused[i].handler);
        mem_free(status->refused[i].error);
    }
    mem_free(status->relays);
    mem_free(status->refused);
    *status = (struct store_outbox_status){ 0 };
}

static void take_refused(struct columns *columns, struct store_outbox_refused *ret)
{
    bool present;
    ret->id.uid = columns_uuid(columns, &present);
    ret->id.seq = columns_int8(columns);
    ret->id.part = (enum store_event_part)columns_int2(columns, -1);
    ret->namespace_ = columns_text(columns);
    ret->definition = columns_text(columns);
    ret->saga_id = columns_text(columns);
    ret->waits_since_ms = columns_time_ms(columns);
    ret->refused_at_ms = columns_time_ms(columns);
    ret->refusals = columns_int4(columns);
    ret->error = columns_text(columns);
    ret->handler = columns_text(columns);
}

static int read_relays(struct store_reader *reader, struct store_outbox_status *status,
                       struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    params_int8(reader_start_kafka(reader, KAFKA_OUTBOX_RELAYS), OUTBOX_RELAYS_MAX);
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    int rows = PQntuples(result);
    status->relays = mem_calloc((size_t)rows + 1, sizeof *status->relays);
    if (!status->relays)
        return err_set(err, ERR_NOMEM, "outbox");
    for (int row = 0; row < rows; row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "outbox_relay", .err = err
        };
        struct store_outbox_relay *relay = &status->relays[status->relay_count++];
        relay->node = columns_text(&columns);
        relay->published = columns_int8(&columns);
        relay->refused = columns_int8(&columns);
        relay->problem = columns_text(&columns);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static int read_refused(struct store_reader *reader, struct store_outbox_status *status,
                        struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    params_int8(reader_start_kafka(reader, KAFKA_OUTBOX_REFUSED), OUTBOX_REFUSED_MAX + 1);
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    int rows = PQntuples(result);
    status->more_refused = rows > OUTBOX_REFUSED_MAX;
    status->refused = mem_calloc((size_t)rows + 1, sizeof *status->refused);
    if (!status->refused)
        return err_set(err, ERR_NOMEM, "outbox");
    for (int row = 0; row < rows && row < OUTBOX_REFUSED_MAX; row++) {
        struct columns columns = { .result = result, .row = row, .table = "outbox", .err = err };
        take_refused(&columns, &status->refused[status->refused_count++]);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static int read_waits(struct store_reader *reader, struct store_outbox_status *status,
                      struct err *err)
{
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    (void)reader_start_kafka(reader, KAFKA_OUTBOX_WAITS); /* no parameters */
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct columns columns = { .result = result, .table = "outbox", .err = err };
    status->waits = columns_bool(&columns);
    return columns.failed ? (int)err->code : 0;
}

static int status_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct store_outbox_status *status = ctx;
    store_outbox_status_done(status); /* of a first try that broke */
    if (reader_command(reader, control_stmts[CONTROL_BEGIN_READ].sql, err) != 0 ||
        read_relays(reader, status, err) != 0 || read_refused(reader, status, err) != 0 ||
        read_waits(reader, status, err) != 0)
        return (int)err->code;
    return reader_command(reader, "COMMIT", err);
}

int store_reader_outbox(struct store_reader *reader, struct store_outbox_status *ret,
                        struct err *err)
{
    struct store_outbox_status status = { 0 };
    if (reader_with_connection(reader, status_run, &status, err) != 0) {
        store_outbox_status_done(&status);
        return (int)err->code;
    }
    *ret = status;
    return 0;
}

/* --- decisions ------------------------------------------------------------------------------ */

static int decide_run(struct store_reader *reader, void *ctx, struct err *err)
{
    const struct store_outbox_decision *what = ctx;
    const struct store_event_id *id = &what->id;
    char uid[UUID_TEXT_SIZE], event[UUID_TEXT_SIZE + 32];
    struct rng rng;
    rng_seed_os(&rng);
    struct uuid request = uuid_v7(clock_wall_ms(&clock_system), &rng, (uint8_t)rng_next(&rng));
    uuid_format(&id->uid, uid);
    (void)snprintf(event, sizeof event, "%s/%" PRId64 "/%d", uid, id->seq, (int)id->part);
    struct params *params = reader_start_kafka(reader, KAFKA_OUTBOX_DECIDE);
    params_int2(params, uuid_shard(&id->uid));
    params_uuid(params, &id->uid);
    params_int8(params, id->seq);
    params_int2(params, (int16_t)id->part);
    params_bool(params, what->discard);
    params_uuid(params, &request);
    params_text(params, what->actor);
    params_text(params, what->reason);
    params_text(params, event);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    if (PQntuples(result) == 0)
        return err_reason(err, ERR_NOT_FOUND, "EVENT_NOT_FOUND",
                          "no event %s waits in the outbox: it was published, or discarded", event);
    struct columns columns = { .result = result, .table = "outbox", .err = err };
    bool refused = columns_bool(&columns);
    if (columns.failed)
        return (int)err->code;
    return refused ? 0
                   : err_reason(err, ERR_PRECONDITION, "EVENT_NOT_REFUSED",
                                "the event %s was not refused: it waits for its turn", event);
}

int store_reader_outbox_decide(struct store_reader *reader,
                               const struct store_outbox_decision *what, struct err *err)
{
    struct store_outbox_decision copy = *what;
    return reader_with_connection(reader, decide_run, &copy, err);
}
