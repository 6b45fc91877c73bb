#include "store/reader_retention.h"

#include "store/connect.h"
#include "store/reader_internal.h"

void store_retention_status_done(struct store_retention_status *status)
{
    for (size_t i = 0; i < status->node_count; i++) {
        mem_free(status->nodes[i].node);
        mem_free(status->nodes[i].archive);
        mem_free(status->nodes[i].problem);
    }
    for (size_t i = 0; i < status->topic_count; i++) {
        mem_free(status->topics[i].rule);
        mem_free(status->topics[i].topic);
    }
    mem_free(status->nodes);
    mem_free(status->topics);
    *status = (struct store_retention_status){ 0 };
}

static void decode_node(struct columns *columns, struct store_retention_node *ret)
{
    ret->node = columns_text(columns);
    ret->retention_ms = columns_int8(columns);
    ret->key_memory_ms = columns_int8(columns);
    ret->archive = columns_text(columns);
    ret->seen_ms = columns_time_ms(columns);
    ret->round_began_ms = columns_time_ms(columns);
    ret->round_ended_ms = columns_time_ms(columns);
    ret->round_purged = columns_int8(columns);
    ret->purged = columns_int8(columns);
    ret->forgotten = columns_int8(columns);
    ret->problem = columns_text(columns);
}

static int read_nodes(struct store_reader *reader, struct store_retention_status *status,
                      struct err *err)
{
    params_int8(reader_start(reader, READ_RETENTION_NODES), RETENTION_ROWS_MAX);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    int rows = PQntuples(result);
    status->nodes = mem_calloc((size_t)rows + 1, sizeof *status->nodes);
    if (!status->nodes)
        return err_set(err, ERR_NOMEM, "retention");
    for (int row = 0; row < rows; row++) {
        struct columns columns = { .result = result, .row = row, .table = "retention", .err = err };
        decode_node(&columns, &status->nodes[status->node_count++]);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static int read_topics(struct store_reader *reader, struct store_retention_status *status,
                       struct err *err)
{
    params_int8(reader_start(reader, READ_RETENTION_TOPICS), RETENTION_ROWS_MAX);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    int rows = PQntuples(result);
    status->topics = mem_calloc((size_t)rows + 1, sizeof *status->topics);
    if (!status->topics)
        return err_set(err, ERR_NOMEM, "retention");
    for (int row = 0; row < rows; row++) {
        struct columns columns = {
            .result = result, .row = row, .table = "kafka_rule", .err = err
        };
        struct store_retention_topic *topic = &status->topics[status->topic_count++];
        topic->rule = columns_text(&columns);
        topic->topic = columns_text(&columns);
        topic->retention_ms = columns_int8(&columns);
        topic->compacted = columns_bool(&columns);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static int read_counts(struct store_reader *reader, struct store_retention_status *status,
                       struct err *err)
{
    params_int8(reader_start(reader, READ_RETENTION_COUNTS), RETENTION_COUNT_MAX);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct columns columns = { .result = result, .table = "saga", .err = err };
    status->now_ms = columns_time_ms(&columns);
    status->finished = columns_int8(&columns);
    status->purgeable = columns_int8(&columns);
    status->doubtful = columns_int8(&columns);
    status->parked = columns_int8(&columns);
    return columns.failed ? (int)err->code : 0;
}

static int retention_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct store_retention_status *status = ctx;
    store_retention_status_done(status); /* of a first try that broke */
    if (read_nodes(reader, status, err) != 0 || read_topics(reader, status, err) != 0 ||
        read_counts(reader, status, err) != 0)
        return (int)err->code;
    return 0;
}

int store_reader_retention(struct store_reader *reader, struct store_retention_status *ret,
                           struct err *err)
{
    struct store_retention_status status = { 0 };
    int rc = reader_with_connection(reader, retention_run, &status, err);
    if (rc)
        store_retention_status_done(&status);
    else
        *ret = status;
    return rc;
}
