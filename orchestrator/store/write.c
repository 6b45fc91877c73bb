#include "store/write.h"

#include "store/decode.h"
#include "store/handlers.h"

#include <string.h>

static const struct journal_entry *appended(const struct store_op *op, size_t index)
{
    return saga_entry(op->saga, op->transition->append_seq + (int64_t)index);
}

/* A transition appends nothing but the lease that it grants. */
static bool grants_only(const struct store_op *op)
{
    return op->transition->append_count == 1 && appended(op, 0)->kind == ENTRY_LEASE;
}

static bool transition_stmt(const struct store_op *op, enum stmt_id *ret)
{
    const struct transition *t = op->transition;
    bool appends = t->append_seq != 0 && t->append_count > 0;
    if (t->late_row) {
        *ret = STMT_LATE;
        return !t->finishes && !appends && !t->phase_change;
    }
    if (appends && !t->changes_row && grants_only(op))
        *ret = t->finishes                ? STMT_FINISH_GRANT
               : appended(op, 0)->held_ms ? STMT_GRANT_HELD
                                          : STMT_GRANT;
    else if (appends)
        /* Also evidence that leaves the row as it is: only the locked row tells that no end came
         * before it, since an end has no entry. */
        *ret = STMT_PHASE;
    else if (t->finishes)
        *ret = t->changes_row ? STMT_FINISH_END : STMT_FINISH;
    else
        return false;
    return true;
}

int write_route(struct store_op *op, struct write *ret, struct err *err)
{
    struct write write = { .op = op };
    const struct transition *t = op->transition;
    if (op->kind == STORE_EXTEND) {
        write.stmt = STMT_EXTEND;
        write.uid = op->uid;
        write.seq = op->seq;
    } else if (op->kind == STORE_LOAD_UID || op->kind == STORE_LET_GO) {
        write.stmt = op->kind == STORE_LET_GO ? STMT_LET_GO : STMT_TAKE;
        write.uid = op->uid;
    } else if (op->kind == STORE_ADOPT || op->kind == STORE_HEARTBEAT) {
        write.stmt = op->kind == STORE_ADOPT ? STMT_ADOPT : STMT_HEARTBEAT;
    } else if (op->kind == STORE_HANDLERS || op->kind == STORE_HANDLER) {
        write.stmt = op->kind == STORE_HANDLERS ? STMT_HANDLERS : STMT_HANDLER;
    } else if (op->kind == STORE_START) {
        bool suspect = t->append_count == 1 && appended(op, 0)->kind == ENTRY_SUSPECT;
        if (t->finishes || t->changes_row || t->late_row ||
            (t->append_seq && (t->append_seq != 1 || !(suspect || grants_only(op)))))
            return err_set(err, ERR_INTERNAL, "start: no statement carries this transition");
        write.stmt = suspect ? STMT_START_SUSPECT : STMT_START;
        write.uid = saga_row(op->saga)->uid;
        write.seq = 1;
    } else {
        if (!transition_stmt(op, &write.stmt))
            return err_set(err, ERR_INTERNAL, "no statement carries this transition");
        write.uid = saga_row(op->saga)->uid;
        write.seq = t->late_row ? t->late.fence : t->append_seq ? t->append_seq : t->finish_seq;
    }
    *ret = write;
    return 0;
}

static int compare_place(const struct write *a, const struct uuid *uid, int64_t seq)
{
    uint8_t shard = uuid_shard(&a->uid), other = uuid_shard(uid);
    if (shard != other)
        return shard < other ? -1 : 1;
    int order = memcmp(a->uid.bytes, uid->bytes, sizeof uid->bytes);
    if (order != 0)
        return order;
    return a->seq < seq ? -1 : a->seq > seq;
}

int write_compare(const void *a, const void *b)
{
    const struct write *left = a, *right = b;
    if (left->op->suspect != right->op->suspect)
        return left->op->suspect ? 1 : -1;
    if (left->stmt != right->stmt)
        return left->stmt < right->stmt ? -1 : 1;
    return compare_place(left, &right->uid, right->seq);
}

static void put_place(struct params *params, const struct uuid *uid)
{
    params_int2(params, uuid_shard(uid));
    params_uuid(params, uid);
}

static void put_null(struct params *params, size_t count)
{
    while (count-- > 0)
        params_null(params);
}

static const char *step_name(const struct saga *saga, int16_t step)
{
    return step < 0 ? NULL : saga_definition(saga)->steps[step].name;
}

/* FINISH_PARAMS; without a lease to finish seq and what follows are NULL. */
static void put_finish(struct params *params, const struct store_op *op, const struct uuid *uid)
{
    const struct transition *t = op->transition;
    put_place(params, uid);
    if (!t->finishes) {
        put_null(params, 7);
        return;
    }
    const struct journal_entry *entry = saga_entry(op->saga, t->finish_seq);
    params_int8(params, t->finish_seq);
    params_bool(params, t->only_if_expired);
    params_text(params, outcome_name(entry->outcome));
    if (t->retry_in_ms >= 0)
        params_int8(params, t->retry_in_ms);
    else
        params_null(params);
    params_bytes(params, &entry->output);
    params_text(params, entry->error_code);
    params_text(params, entry->error_message);
}

static void put_send_before(struct params *params, const struct transition *transition)
{
    if (transition->send_before_ms)
        params_int8(params, transition->send_before_ms);
    else
        params_null(params);
}

/* GRANT_PARAMS */
static void put_grant(struct params *params, const struct store_op *op)
{
    const struct journal_entry *entry = appended(op, 0);
    params_int8(params, entry->seq);
    params_int8(params, entry->fence);
    params_text(params, step_name(op->saga, entry->step));
    params_int2(params, entry->step);
    params_text(params, operation_name(entry->operation));
    params_int4(params, entry->try_);
    params_text(params, entry->worker);
    params_int8(params, op->transition->lease_ms);
    params_int8(params, op->transition->attempt_timeout_ms);
    put_send_before(params, op->transition);
}

/* ROW_PARAMS; a transition that does not change the row expects it as it is and leaves it so. */
static void put_row(struct params *params, const struct store_op *op)
{
    const struct saga_row *row = saga_row(op->saga);
    const struct transition *t = op->transition;
    params_text(params, saga_state_name(t->changes_row ? t->state_from : row->state));
    params_text(params, saga_state_name(t->changes_row ? t->phase_from : row->phase));
    params_text(params, saga_state_name(row->state));
    params_text(params, saga_state_name(row->phase));
    params_bool(params, row->doubt);
    params_text(params, park_reason_name(row->park_reason));
    params_text(params, step_name(op->saga, row->park_step));
    if (row->park_step >= 0)
        params_int2(params, row->park_step);
    else
        params_null(params);
    params_text(params, row->park_code);
    params_text(params, row->park_message);
    params_bool(params, t->ends);
    params_bool(params, t->changes_row);
    if (t->sets_deadline)
        params_int8(params, row->deadline_at_ms);
    else
        params_null(params);
}

static const char *reason_name(const struct journal_entry *entry)
{
    if (entry_has_cause(entry->kind))
        return cause_name((enum cause)entry->reason);
    return entry->kind == ENTRY_PARK ? park_reason_name((enum park_reason)entry->reason) : NULL;
}

/* ENTRY_PARAMS */
static void put_entry(struct params *params, const struct store_op *op, const struct uuid *uid,
                      size_t index)
{
    const struct journal_entry *entry = appended(op, index);
    bool lease = entry->kind == ENTRY_LEASE;
    params_uuid(params, uid);
    params_bool(params, index == 0);
    params_int8(params, entry->seq);
    params_int8(params, entry->fence);
    params_text(params, entry_kind_name(entry->kind));
    params_text(params, step_name(op->saga, entry->step));
    if (entry->step >= 0)
        params_int2(params, entry->step);
    else
        params_null(params);
    params_text(params, entry->step >= 0 ? operation_name(entry->operation) : NULL);
    params_int4(params, entry->try_);
    params_text(params, entry->worker);
    params_text(params, outcome_name(entry->outcome));
    params_bytes(params, &entry->output);
    params_text(params, entry->error_code);
    params_text(params, entry->error_message);
    params_text(params, reason_name(entry));
    if (entry->about)
        params_int8(params, entry->about);
    else
        params_null(params);
    params_text(params, entry->actor);
    params_text(params, entry->signal_id);
    if (lease) {
        params_int8(params, op->transition->lease_ms);
        params_int8(params, op->transition->attempt_timeout_ms);
        put_send_before(params, op->transition);
    } else {
        put_null(params, 3);
    }
    params_bool(params, entry_is_asked(entry));
}

/* Of a start; NULL without one. */
static void put_first_lease(struct params *params, const struct store_op *op)
{
    if (!op->transition->append_seq) {
        put_null(params, 7);
        return;
    }
    const struct journal_entry *entry = appended(op, 0);
    params_int8(params, entry->fence);
    params_text(params, step_name(op->saga, entry->step));
    params_int2(params, entry->step);
    params_text(params, operation_name(entry->operation));
    params_text(params, entry->worker);
    params_int8(params, op->transition->lease_ms);
    params_int8(params, op->transition->attempt_timeout_ms);
}

/* START_PARAMS */
static void put_start(struct params *params, const struct store_op *op, const struct uuid *uid)
{
    const struct saga_row *row = saga_row(op->saga);
    const struct definition *definition = saga_definition(op->saga);
    put_place(params, uid);
    params_text(params, row->namespace_);
    params_text(params, row->definition);
    params_text(params, row->saga_id);
    params_int4(params, row->run);
    params_blob(params, op->input_digest, sizeof op->input_digest);
    params_int4(params, row->revision);
    params_bytes(params, &row->input);
    params_text(params, row->labels);
    if (definition->deadline_ms > 0)
        params_int8(params, definition->deadline_ms);
    else
        params_null(params);
    if (row->has_related)
        params_uuid(params, &row->related);
    else
        params_null(params);
    if (row->start_at_ms)
        params_int8(params, row->start_at_ms);
    else
        params_null(params);
}

static void put_late(struct params *params, const struct store_op *op, const struct uuid *uid)
{
    const struct late_report *late = &op->transition->late;
    put_place(params, uid);
    params_int8(params, late->fence);
    params_text(params, outcome_name(late->outcome));
    params_bool(params, late->effect);
    params_bytes(params, &late->output);
    params_text(params, late->error_code);
    params_text(params, late->error_message);
}

static void put_phase(struct params *params, const struct store_op *op, const struct uuid *uid)
{
    put_finish(params, op, uid);
    put_row(params, op);
    size_t first_entry_column = params->at;
    for (size_t i = 0; i < op->transition->append_count; i++) {
        params_seek(params, first_entry_column);
        put_entry(params, op, uid, i);
    }
}

static void put_let_go(struct params *params, const struct store_op *op)
{
    put_place(params, &op->uid);
    if (op->wake_at_ms < INT64_MAX)
        params_int8(params, op->wake_at_ms);
    else
        params_null(params);
    params_text(params, op->waiting_handler);
    params_text(params, saga_state_name(op->state));
    params_text(params, saga_state_name(op->phase));
}

static void put_adopt(struct params *params, const struct store_op *op, const char *node)
{
    for (size_t i = 0; i < op->handler_count; i++) {
        params_seek(params, 0);
        params_text(params, op->handlers[i]);
    }
    params_seek(params, 1);
    params_text(params, node);
    params_int8(params, op->dead_ms);
    params_int8(params, (int64_t)op->limit);
}

static void put_heartbeat(struct params *params, const struct store_op *op, const char *node)
{
    params_text(params, node);
    params_uuid(params, &op->instance);
    params_int8(params, op->dead_ms);
    params_bool(params, op->beat == STORE_BEAT_JOIN);
    params_bool(params, op->beat == STORE_BEAT_LEAVE);
    for (size_t i = 0; i < op->handler_count; i++) {
        params_seek(params, 5);
        params_text(params, op->handlers[i]);
    }
}

/* The arrays' elements for one operation, and all of a statement that carries only one. */
static void put(struct params *params, const struct write *write, const char *node)
{
    const struct store_op *op = write->op;
    switch (write->stmt) {
    case STMT_EXTEND:
        put_place(params, &op->uid);
        params_int8(params, op->seq);
        params_int8(params, op->lease_ms);
        break;
    case STMT_TAKE:
        put_place(params, &op->uid);
        break;
    case STMT_LET_GO:
        put_let_go(params, op);
        break;
    case STMT_ADOPT:
        put_adopt(params, op, node);
        break;
    case STMT_HEARTBEAT:
        put_heartbeat(params, op, node);
        break;
    case STMT_START:
        put_start(params, op, &write->uid);
        put_first_lease(params, op);
        break;
    case STMT_START_SUSPECT:
        put_start(params, op, &write->uid);
        params_int8(params, appended(op, 0)->leased_at_ms);
        params_text(params, appended(op, 0)->actor);
        break;
    case STMT_HANDLERS:
        handlers_put_counts(params, op, node);
        break;
    case STMT_HANDLER:
        handlers_put_change(params, op->handler, &op->effect);
        break;
    case STMT_GRANT:
    case STMT_GRANT_HELD:
        put_place(params, &write->uid);
        put_grant(params, op);
        if (write->stmt == STMT_GRANT_HELD)
            params_int8(params, appended(op, 0)->held_ms);
        break;
    case STMT_FINISH_GRANT:
        put_finish(params, op, &write->uid);
        put_grant(params, op);
        break;
    case STMT_PHASE:
        put_phase(params, op, &write->uid);
        break;
    case STMT_FINISH_END:
        put_finish(params, op, &write->uid);
        params_text(params, saga_state_name(op->transition->state_from));
        params_text(params, saga_state_name(saga_row(op->saga)->state));
        break;
    case STMT_LATE:
        put_late(params, op, &write->uid);
        break;
    default:
        put_finish(params, op, &write->uid);
        break;
    }
}

void write_fill(struct params *params, const struct write *writes, size_t count,
                const struct write_self *self)
{
    enum stmt_id stmt = writes[0].stmt;
    params_start(params, &stmts[stmt]);
    for (size_t i = 0; i < count; i++) {
        params_seek(params, 0);
        put(params, &writes[i], self->node);
    }
    /* What is the same for all, behind the arrays. */
    bool asks_owner = false;
    for (size_t i = 0; i < count && stmt == STMT_FINISH; i++)
        asks_owner = asks_owner || writes[i].op->asks_owner;
    if (stmt == STMT_FINISH)
        params_bool(params, asks_owner);
    if (stmt == STMT_START || stmt == STMT_GRANT || stmt == STMT_GRANT_HELD ||
        stmt == STMT_FINISH_GRANT || stmt == STMT_PHASE)
        params_text(params, self->granter);
    if (stmt == STMT_START || stmt == STMT_START_SUSPECT || stmt == STMT_FINISH ||
        stmt == STMT_PHASE || stmt == STMT_TAKE || stmt == STMT_LET_GO)
        params_text(params, self->node);
}

enum { PART_START, PART_ENTRY, PART_END }; /* outbox.part */

static void put_event(struct params *params, const struct uuid *uid, int64_t seq, int16_t part)
{
    params_seek(params, 0);
    put_place(params, uid);
    params_int8(params, seq);
    params_int2(params, part);
}

static bool is_published(enum publish publish, const struct journal_entry *entry)
{
    return publish == PUBLISH_TRANSITIONS ? entry->kind != ENTRY_LEASE : entry->kind == ENTRY_PARK;
}

static size_t put_events(struct params *params, const struct write *write)
{
    const struct store_op *op = write->op;
    enum publish publish = saga_definition(op->saga)->publish;
    const struct transition *t = op->transition;
    size_t count = 0, appended_count = t->append_seq ? t->append_count : 0;
    if (publish == PUBLISH_NONE || t->late_row)
        return 0;
    if (write->stmt == STMT_START) {
        if (publish == PUBLISH_TRANSITIONS)
            put_event(params, &write->uid, 0, PART_START);
        return publish == PUBLISH_TRANSITIONS;
    }
    if (t->finishes && publish == PUBLISH_TRANSITIONS) {
        put_event(params, &write->uid, t->finish_seq, PART_ENTRY);
        count++;
    }
    for (size_t i = 0; i < appended_count; i++) {
        if (!is_published(publish, appended(op, i)))
            continue;
        put_event(params, &write->uid, appended(op, i)->seq, PART_ENTRY);
        count++;
    }
    if (t->ends) {
        int64_t last = appended_count ? appended(op, appended_count - 1)->seq : t->finish_seq;
        put_event(params, &write->uid, last, PART_END);
        count++;
    }
    return count;
}

bool write_fill_events(struct params *params, const struct write *writes, size_t count)
{
    size_t events = 0;
    params_start(params, &stmts[STMT_EVENTS]);
    for (size_t i = 0; i < count; i++)
        if (writes[i].op->transition)
            events += put_events(params, &writes[i]);
    return events > 0;
}

size_t write_rows_max(enum stmt_id stmt)
{
    return stmt == STMT_ADOPT || stmt == STMT_HEARTBEAT || stmt == STMT_HANDLERS ||
                   stmt == STMT_HANDLER
               ? 1
               : WRITE_ROWS_MAX;
}

static int take_heartbeat(const PGresult *result, struct write *write, struct err *err)
{
    struct columns columns = { .result = result, .table = "node", .err = err };
    if (PQntuples(result) == 0)
        return 0; /* another process has the name */
    int32_t nodes_alive = columns_int4(&columns);
    bool was_dead = columns_bool(&columns);
    int64_t now_ms = columns_time_ms(&columns);
    if (columns.failed)
        return (int)err->code;
    write->op->nodes_alive = nodes_alive;
    write->op->was_dead = was_dead;
    write->now_ms = now_ms;
    write->applied = true;
    return 0;
}

static struct write *find(struct write *writes, size_t count, const struct uuid *uid, int64_t seq)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_place(&writes[middle], uid, seq) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && compare_place(&writes[low], uid, seq) == 0 ? &writes[low] : NULL;
}

static int take_handlers(const PGresult *result, struct write *write, struct err *err)
{
    write->applied = true;
    return handlers_take(result, write->op, &write->now_ms, err);
}

/* No row: somebody was first. */
static int take_handler(const PGresult *result, struct write *write, struct err *err)
{
    struct columns columns = { .result = result, .table = "handler", .err = err };
    if (PQntuples(result) == 0)
        return 0;
    (void)columns_int8(&columns); /* its version */
    write->now_ms = columns_time_ms(&columns);
    write->applied = !columns.failed;
    return columns.failed ? (int)err->code : 0;
}

static int take_adopted(const PGresult *result, struct write *write, struct err *err)
{
    write->applied = true;
    return decode_uids(result, write->op, &write->now_ms, err);
}

int write_mark(const PGresult *result, struct write *writes, size_t count, struct err *err)
{
    if (writes[0].stmt == STMT_ADOPT)
        return take_adopted(result, writes, err);
    if (writes[0].stmt == STMT_HEARTBEAT)
        return take_heartbeat(result, writes, err);
    if (writes[0].stmt == STMT_HANDLERS)
        return take_handlers(result, writes, err);
    if (writes[0].stmt == STMT_HANDLER)
        return take_handler(result, writes, err);
    const char *name = stmts[writes[0].stmt].name;
    struct columns columns = { .result = result, .table = name, .err = err };
    for (int row = 0; row < PQntuples(result); row++) {
        columns.row = row;
        columns.at = 0;
        bool present;
        struct uuid uid = columns.uid = columns_uuid(&columns, &present);
        int64_t seq = columns_int8(&columns);
        int64_t now_ms = columns_time_ms(&columns);
        bool not_owner = writes[0].stmt == STMT_FINISH && columns_bool(&columns);
        struct write *write = find(writes, count, &uid, seq);
        if (!columns.failed && !write)
            return err_set(err, ERR_INTERNAL, "%s returned a row that was not asked for", name);
        if (columns.failed)
            return (int)err->code;
        /* The same lease extended twice in one batch is one row of the statement. */
        for (; write < writes + count && compare_place(write, &uid, seq) == 0; write++) {
            write->applied = true;
            write->now_ms = now_ms;
            write->op->not_owner = not_owner;
        }
    }
    return 0;
}
