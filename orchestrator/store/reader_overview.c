/* What there is, in numbers: counts with an end, and sizes. */
#include "store/reader_internal.h"

#include "store/connect.h"

void store_overview_done(struct store_overview *overview)
{
    for (size_t i = 0; i < overview->table_count; i++)
        mem_free(overview->tables[i].name);
    mem_free(overview->database);
    mem_free(overview->server_version);
    mem_free(overview->synchronous_standbys);
    *overview = (struct store_overview){ 0 };
}

static struct store_count take_count(struct columns *columns)
{
    struct store_count count;
    count.count = columns_int8(columns);
    count.estimate = columns_int8(columns);
    return count;
}

static int take_states(struct store_reader *reader, struct store_overview *overview,
                       struct err *err)
{
    params_int8(reader_start_find(reader, FIND_STATES), STORE_COUNT_MAX);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = { .result = result, .row = row, .table = "saga", .err = err };
        enum saga_state state = columns_saga_state(&columns);
        struct store_count count = take_count(&columns);
        if (columns.failed)
            return (int)err->code;
        overview->states[state] = count;
    }
    return 0;
}

static int take_reasons(struct store_reader *reader, struct store_overview *overview,
                        struct err *err)
{
    struct params *params = reader_start_find(reader, FIND_REASONS);
    params_int8(params, STORE_COUNT_MAX);
    for (int reason = PARK_NONE + 1; reason < PARK_REASON_COUNT; reason++) {
        params_seek(params, 1);
        params_text(params, park_reason_name((enum park_reason)reason));
    }
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    for (int row = 0; row < PQntuples(result); row++) {
        struct columns columns = { .result = result, .row = row, .table = "saga", .err = err };
        enum park_reason reason = columns_park_reason(&columns);
        struct store_count count = take_count(&columns);
        if (columns.failed)
            return (int)err->code;
        overview->reasons[reason] = count;
    }
    return 0;
}

static int take_tables(struct store_reader *reader, struct store_overview *overview,
                       struct err *err)
{
    params_int8(reader_start_find(reader, FIND_TABLES), STORE_TABLES_MAX);
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    for (int row = 0; row < PQntuples(result) && row < STORE_TABLES_MAX; row++) {
        struct columns columns = { .result = result, .row = row, .table = "pg_class", .err = err };
        struct store_table *table = &overview->tables[overview->table_count++];
        table->name = columns_text(&columns);
        table->rows = columns_int8(&columns);
        table->bytes = columns_int8(&columns);
        if (columns.failed)
            return (int)err->code;
    }
    return 0;
}

static int take_database(struct store_reader *reader, struct store_overview *overview,
                         struct err *err)
{
    (void)reader_start_find(reader, FIND_DATABASE); /* without parameters */
    CLEANUP(connect_clear_p) PGresult *result = NULL;
    if (reader_execute(reader, &result, err) != 0)
        return (int)err->code;
    struct columns columns = { .result = result, .table = "database", .err = err };
    overview->database = columns_text(&columns);
    overview->server_version = columns_text(&columns);
    overview->database_bytes = columns_int8(&columns);
    overview->is_standby = columns_bool(&columns);
    overview->epoch = columns_int8(&columns);
    overview->synchronous_standbys = columns_text(&columns);
    return columns.failed ? (int)err->code : 0;
}

static int overview_run(struct store_reader *reader, void *ctx, struct err *err)
{
    struct store_overview *overview = ctx;
    store_overview_done(overview); /* of a first try that broke */
    if (take_states(reader, overview, err) != 0 || take_reasons(reader, overview, err) != 0 ||
        take_tables(reader, overview, err) != 0)
        return (int)err->code;
    return take_database(reader, overview, err);
}

int store_reader_overview(struct store_reader *reader, struct store_overview *ret, struct err *err)
{
    struct store_overview overview = { 0 };
    if (reader_with_connection(reader, overview_run, &overview, err) != 0) {
        store_overview_done(&overview);
        return (int)err->code;
    }
    *ret = overview;
    return 0;
}
