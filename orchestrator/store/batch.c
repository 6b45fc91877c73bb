#include "store/batch.h"

#include "base/fault.h"
#include "store/pg.h"

#include <assert.h>
#include <string.h>

enum slot_kind { SLOT_CONTROL, SLOT_WRITE, SLOT_EVENTS, SLOT_LOAD, SLOT_COMMIT, SLOT_SYNC };

struct batch_slot {
    enum slot_kind kind;
    bool answered; /* its result came; a NULL ends it */
    enum stmt_id stmt;
    size_t first, count; /* WRITE: writes; LOAD: first is the group */
};

static void op_fail(struct store_op *op, const struct err *err)
{
    store_op_done(op);
    op->result = STORE_FAILED;
    op->err = *err;
}

static bool op_is_write(const struct store_op *op)
{
    switch (op->kind) {
    case STORE_START:
    case STORE_TRANSITION:
    case STORE_EXTEND:
    case STORE_ADOPT:
    case STORE_LET_GO:
    case STORE_HEARTBEAT:
    case STORE_HANDLERS:
    case STORE_HANDLER:
        return true;
    case STORE_LOAD_UID:
        return op->take;
    default:
        return false;
    }
}

static bool unit_push(struct batch *batch, size_t first, size_t count, bool hurry)
{
    if (mem_grow((void **)&batch->units, &batch->unit_capacity, batch->unit_count,
                 sizeof *batch->units) != 0)
        return false;
    batch->units[batch->unit_count++] = (struct batch_unit){ first, count, hurry };
    return true;
}

static bool load_push(struct batch *batch, struct store_op *op)
{
    if (mem_grow((void **)&batch->loads, &batch->load_capacity, batch->load_count,
                 sizeof(struct store_op *)) != 0)
        return false;
    batch->loads[batch->load_count++] = op;
    return true;
}

static const struct err nomem = { .code = ERR_NOMEM, .retryable = true, .msg = "store batch" };

static void unit_fail(struct batch *batch, const struct batch_unit *unit, const struct err *err)
{
    for (size_t i = unit->first; i < unit->first + unit->count; i++)
        op_fail(batch->writes[i].op, err);
}

static void add_write(struct batch *batch, struct store_op *op)
{
    struct err err;
    if (mem_grow((void **)&batch->writes, &batch->write_capacity, batch->write_count,
                 sizeof *batch->writes) != 0)
        op_fail(op, &nomem);
    else if (write_route(op, &batch->writes[batch->write_count], &err) != 0)
        op_fail(op, &err);
    else
        batch->write_count++;
}

void batch_begin(struct batch *batch, struct store_op *list)
{
    batch->list = list;
    batch->write_count = batch->unit_count = batch->load_count = batch->group_count = 0;
    batch->round = ROUND_NONE;
    batch->need_rollback = batch->loads_done = false;
    for (struct store_op *op = list; op; op = op->next) {
        op->result = STORE_PENDING;
        if (op_is_write(op))
            add_write(batch, op);
        else if (!load_push(batch, op))
            op_fail(op, &nomem);
    }
    if (batch->write_count > 1)
        qsort(batch->writes, batch->write_count, sizeof *batch->writes, write_compare);
    size_t normal = 0;
    while (normal < batch->write_count && !batch->writes[normal].op->suspect)
        normal++;
    for (size_t i = batch->write_count; i > normal; i--)
        if (!unit_push(batch, i - 1, 1, true))
            op_fail(batch->writes[i - 1].op, &nomem);
    struct batch_unit all = { 0, normal, false };
    if (normal > 0 && !unit_push(batch, all.first, all.count, all.hurry))
        unit_fail(batch, &all, &nomem);
}

/* --- sending -------------------------------------------------------------------------------- */

static int slot_push(struct batch *batch, struct batch_slot slot, struct err *err)
{
    if (mem_grow((void **)&batch->slots, &batch->slot_capacity, batch->slot_count,
                 sizeof *batch->slots) != 0)
        return err_set(err, ERR_NOMEM, "store batch");
    batch->slots[batch->slot_count++] = slot;
    return 0;
}

static int send_control(struct batch *batch, PGconn *conn, enum control_id id, enum slot_kind kind,
                        struct err *err)
{
    const char *name = control_stmts[id].name;
    if (!PQsendQueryPrepared(conn, name, 0, NULL, NULL, NULL, 1))
        return sqlstate_connection(conn, name, err);
    return slot_push(batch, (struct batch_slot){ .kind = kind }, err);
}

static int send_sync(struct batch *batch, PGconn *conn, struct err *err)
{
    if (!PQpipelineSync(conn))
        return sqlstate_connection(conn, "sync", err);
    return slot_push(batch, (struct batch_slot){ .kind = SLOT_SYNC }, err);
}

/* The longest run of writes from `first` on that one statement carries. */
static size_t run_length(const struct batch *batch, size_t first, size_t end)
{
    size_t count = 1, most = write_rows_max(batch->writes[first].stmt);
    while (first + count < end && count < most &&
           batch->writes[first + count].stmt == batch->writes[first].stmt)
        count++;
    return count;
}

static int send_statements(struct batch *batch, PGconn *conn, struct err *err)
{
    size_t end = batch->unit.first + batch->unit.count;
    for (size_t first = batch->unit.first; first < end;) {
        size_t count = run_length(batch, first, end);
        struct write *writes = &batch->writes[first];
        struct batch_slot slot = { SLOT_WRITE, false, writes->stmt, first, count };
        for (size_t i = 0; i < count; i++) { /* also of a round before */
            writes[i].applied = false;
            writes[i].now_ms = 0;
        }
        write_fill(&batch->params, writes, count, &batch->self);
        if (params_send(&batch->params, conn, err) != 0 || slot_push(batch, slot, err) != 0)
            return (int)err->code;
        first += count;
    }
    return 0;
}

/* Behind the writes: it looks at what they did. */
static int send_events(struct batch *batch, PGconn *conn, struct err *err)
{
    const struct write *writes = &batch->writes[batch->unit.first];
    struct batch_slot slot = { .kind = SLOT_EVENTS, .stmt = STMT_EVENTS };
    if (!write_fill_events(&batch->params, writes, batch->unit.count))
        return 0;
    return params_send(&batch->params, conn, err) != 0 ? (int)err->code
                                                       : slot_push(batch, slot, err);
}

/* For tests: the server has it all when they stop the world. */
static void stop_before_commit(const struct batch *batch, PGconn *conn)
{
    if (!fault_hook)
        return;
    (void)PQflush(conn); /* what goes wrong is found when its answers are read */
    for (size_t i = 0; i < batch->unit.count; i++)
        if (batch->writes[batch->unit.first + i].stmt == STMT_ADOPT)
            fault_point("inside_adoption");
    fault_point("before_commit");
}

static int send_write(struct batch *batch, PGconn *conn, struct err *err)
{
    batch->round = ROUND_WRITE;
    batch->unit = batch->units[--batch->unit_count];
    if (send_control(batch, conn, CONTROL_BEGIN, SLOT_CONTROL, err) != 0)
        return (int)err->code;
    if (batch->unit.hurry && send_control(batch, conn, CONTROL_HURRY, SLOT_CONTROL, err) != 0)
        return (int)err->code;
    if (send_statements(batch, conn, err) != 0 || send_events(batch, conn, err) != 0)
        return (int)err->code;
    stop_before_commit(batch, conn);
    batch->commit_sent = true; /* from here on nobody knows until the answer is there */
    if (send_control(batch, conn, CONTROL_COMMIT, SLOT_COMMIT, err) != 0)
        return (int)err->code;
    return send_sync(batch, conn, err);
}

static int send_rollback(struct batch *batch, PGconn *conn, struct err *err)
{
    batch->round = ROUND_ROLLBACK;
    batch->need_rollback = false;
    if (send_control(batch, conn, CONTROL_ROLLBACK, SLOT_CONTROL, err) != 0)
        return (int)err->code;
    return send_sync(batch, conn, err);
}

static int kind_compare(const void *a, const void *b)
{
    const struct store_op *left = *(struct store_op *const *)a;
    const struct store_op *right = *(struct store_op *const *)b;
    return (left->kind > right->kind) - (left->kind < right->kind);
}

/* One group for each kind that takes many operations, one for each operation of the others. */
static int group_loads(struct batch *batch, struct err *err)
{
    qsort(batch->loads, batch->load_count, sizeof(struct store_op *), kind_compare);
    for (size_t i = 0; i < batch->load_count; i++) {
        enum store_op_kind kind = batch->loads[i]->kind;
        bool single = kind == STORE_OWN || kind == STORE_LOAD_DEFINITION;
        if (batch->group_count > 0 && !single &&
            batch->groups[batch->group_count - 1].kind == kind) {
            batch->groups[batch->group_count - 1].count++;
            continue;
        }
        if (mem_grow((void **)&batch->groups, &batch->group_capacity, batch->group_count,
                     sizeof *batch->groups) != 0)
            return err_set(err, ERR_NOMEM, "store batch");
        batch->groups[batch->group_count++] =
            (struct load_group){ kind, batch->self.node, &batch->loads[i], 1 };
    }
    return 0;
}

static int send_loads(struct batch *batch, PGconn *conn, struct err *err)
{
    batch->round = ROUND_LOAD;
    if (group_loads(batch, err) != 0 ||
        send_control(batch, conn, CONTROL_BEGIN_READ, SLOT_CONTROL, err) != 0)
        return (int)err->code;
    for (size_t g = 0; g < batch->group_count; g++) {
        enum stmt_id ids[LOAD_STMTS_MAX];
        size_t count = load_stmts(&batch->groups[g], ids);
        for (size_t i = 0; i < count; i++) {
            struct batch_slot slot = { SLOT_LOAD, false, ids[i], g, 0 };
            load_fill(&batch->params, &batch->groups[g], ids[i]);
            if (params_send(&batch->params, conn, err) != 0 || slot_push(batch, slot, err) != 0)
                return (int)err->code;
        }
    }
    if (send_control(batch, conn, CONTROL_COMMIT, SLOT_CONTROL, err) != 0)
        return (int)err->code;
    return send_sync(batch, conn, err);
}

enum batch_state batch_send(struct batch *batch, PGconn *conn, struct err *err)
{
    batch->slot_count = batch->slot_at = 0;
    batch->commit_sent = batch->commit_failed = batch->committed = false;
    batch->failed = batch->doubtful = batch->unread = false;
    int rc;
    if (batch->need_rollback)
        rc = send_rollback(batch, conn, err);
    else if (batch->unit_count > 0)
        rc = send_write(batch, conn, err);
    else if (batch->load_count > 0 && !batch->loads_done)
        rc = send_loads(batch, conn, err);
    else
        return BATCH_FINISHED;
    if (rc != 0)
        return BATCH_BROKEN;
    if (PQflush(conn) < 0) {
        (void)sqlstate_connection(conn, "send", err);
        return BATCH_BROKEN;
    }
    return BATCH_WAITING;
}

/* --- answers -------------------------------------------------------------------------------- */

static void round_fail(struct batch *batch, enum fault fault, const struct err *err)
{
    if (batch->failed)
        return; /* the first error is the cause */
    batch->failed = true;
    batch->fault = fault;
    batch->err = *err;
}

static const char *slot_name(const struct batch_slot *slot)
{
    if (slot->kind == SLOT_WRITE || slot->kind == SLOT_EVENTS || slot->kind == SLOT_LOAD)
        return stmts[slot->stmt].name;
    return slot->kind == SLOT_COMMIT ? "commit" : "transaction";
}

static void take_success(struct batch *batch, const struct batch_slot *slot, PGresult *result)
{
    struct err err;
    if (slot->kind == SLOT_WRITE) {
        if (write_mark(result, &batch->writes[slot->first], slot->count, &err) != 0) {
            batch->unread = true;
            round_fail(batch, FAULT_CONNECTION, &err);
        }
    } else if (slot->kind == SLOT_LOAD) {
        load_take(&batch->groups[slot->first], slot->stmt, result);
    } else if (slot->kind == SLOT_COMMIT) {
        batch->committed = strcmp(PQcmdStatus(result), "COMMIT") == 0;
        if (!batch->committed) {
            (void)err_set(&err, ERR_CONFLICT, "COMMIT was answered %s", PQcmdStatus(result));
            round_fail(batch, FAULT_ROW, &err);
        }
    }
}

static void take_result(struct batch *batch, struct batch_slot *slot, PGresult *result)
{
    struct err err;
    slot->answered = true;
    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
        take_success(batch, slot, result);
        break;
    case PGRES_PIPELINE_ABORTED: /* an earlier one failed */
        break;
    default: {
        enum fault fault = sqlstate_classify(result, slot_name(slot), &err);
        if (slot->kind == SLOT_COMMIT)
            batch->commit_failed = true;
        if (slot->kind == SLOT_SYNC) /* all was done; what is told here is the session's end */
            fault = FAULT_CONNECTION;
        round_fail(batch, fault, &err);
        break;
    }
    }
}

/* The transaction is durable: what each write came to. */
static void settle_writes(struct batch *batch)
{
    fault_point("after_commit");
    for (size_t i = batch->unit.first; i < batch->unit.first + batch->unit.count; i++) {
        struct write *write = &batch->writes[i];
        struct store_op *op = write->op;
        /* Taken or not, it is loaded; a key that is known: of whom? */
        bool load = op->kind == STORE_LOAD_UID || (op->kind == STORE_START && !write->applied);
        op->taken = op->kind == STORE_LOAD_UID && write->applied;
        if (load && !load_push(batch, op)) {
            op_fail(op, &nomem);
        } else if (!load) {
            op->result = write->applied ? STORE_OK : STORE_LOST;
            op->now_ms = write->now_ms;
        }
    }
}

/* The transaction had no effect. Parts of it may still go through. */
static void split_unit(struct batch *batch)
{
    struct batch_unit unit = batch->unit;
    if (unit.count == 1 || batch->fault == FAULT_SYSTEM) {
        unit_fail(batch, &unit, &batch->err);
        return;
    }
    size_t parts = unit.count < BATCH_SPLIT ? unit.count : BATCH_SPLIT;
    size_t end = unit.first + unit.count;
    for (size_t left = parts; left > 0; left--) { /* pushed from behind: the first is next */
        struct batch_unit part = { .first = unit.first + unit.count * (left - 1) / parts };
        part.count = end - part.first;
        end = part.first;
        if (!unit_push(batch, part.first, part.count, true))
            unit_fail(batch, &part, &nomem);
    }
}

static void loads_fail(struct batch *batch, const struct err *err)
{
    for (size_t i = 0; i < batch->load_count; i++)
        op_fail(batch->loads[i], err);
}

/* All answers of the round are there. */
static enum batch_state round_over(struct batch *batch, PGconn *conn, struct err *err)
{
    bool broken = batch->doubtful || (batch->failed && batch->fault == FAULT_CONNECTION);
    if (broken) {
        if (batch->failed)
            *err = batch->err;
        else
            (void)err_set(err, ERR_UNAVAILABLE, "COMMIT: durable here, perhaps not on a standby");
        /* An error before COMMIT was reached: certainly no effect. */
        if (batch->failed && !batch->commit_failed && !batch->committed)
            batch->commit_sent = false;
        return BATCH_BROKEN;
    }
    batch->need_rollback = PQtransactionStatus(conn) == PQTRANS_INERROR;
    if (batch->round == ROUND_WRITE) {
        if (batch->failed)
            split_unit(batch);
        else
            settle_writes(batch);
    } else if (batch->round == ROUND_LOAD) {
        batch->loads_done = true;
        if (batch->failed)
            loads_fail(batch, &batch->err);
        for (size_t g = 0; g < batch->group_count && !batch->failed; g++)
            load_settle(&batch->groups[g]);
    } else if (batch->failed) { /* not even ROLLBACK */
        *err = batch->err;
        return BATCH_BROKEN;
    }
    batch->round = ROUND_NONE;
    return batch_send(batch, conn, err);
}

static enum batch_state out_of_step(struct err *err)
{
    (void)err_set(err, ERR_INTERNAL, "answers out of step with the pipeline");
    return BATCH_BROKEN;
}

enum batch_state batch_read(struct batch *batch, PGconn *conn, struct err *err)
{
    while (!PQisBusy(conn)) {
        assert(batch->slot_at < batch->slot_count);
        struct batch_slot *slot = &batch->slots[batch->slot_at];
        PGresult *result = PQgetResult(conn);
        if (!result) {
            if (!slot->answered) { /* libpq has given up */
                if (PQstatus(conn) == CONNECTION_BAD) {
                    (void)sqlstate_connection(conn, slot_name(slot), err);
                    return BATCH_BROKEN;
                }
                return out_of_step(err);
            }
            batch->slot_at++;
            continue;
        }
        bool sync = PQresultStatus(result) == PGRES_PIPELINE_SYNC;
        bool in_step = sync
                           ? slot->kind == SLOT_SYNC
                           : slot->kind != SLOT_SYNC || PQresultStatus(result) == PGRES_FATAL_ERROR;
        if (in_step && !sync)
            take_result(batch, slot, result);
        PQclear(result);
        if (PQstatus(conn) == CONNECTION_BAD) {
            if (batch->failed)
                *err = batch->err;
            else
                (void)sqlstate_connection(conn, slot_name(slot), err);
            return BATCH_BROKEN;
        }
        if (!in_step)
            return out_of_step(err);
        if (slot->kind == SLOT_SYNC) {
            enum batch_state state = round_over(batch, conn, err);
            if (state != BATCH_WAITING)
                return state;
        }
    }
    return BATCH_WAITING;
}

void batch_notice(struct batch *batch, const PGresult *notice)
{
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *sqlstate = PQresultErrorField(notice, PG_DIAG_SQLSTATE);
    bool at_commit = batch->round == ROUND_WRITE && batch->slot_at < batch->slot_count &&
                     batch->slots[batch->slot_at].kind == SLOT_COMMIT;
    /* "committed locally": the wait for a standby was cancelled (01000) or cut by a shutdown. */
    if (at_commit && severity && strcmp(severity, "WARNING") == 0 && sqlstate &&
        (strcmp(sqlstate, "01000") == 0 || strcmp(sqlstate, "57P01") == 0))
        batch->doubtful = true;
}

/* --- the end -------------------------------------------------------------------------------- */

void batch_lost(struct batch *batch, const struct err *why)
{
    struct err err = *why;
    err.code = ERR_UNAVAILABLE;
    err.retryable = true;
    if (batch->round == ROUND_WRITE && batch->committed && !batch->doubtful && !batch->unread) {
        settle_writes(batch);
    } else if (batch->round == ROUND_WRITE) {
        for (size_t i = 0; i < batch->unit.count; i++) {
            struct store_op *op = batch->writes[batch->unit.first + i].op;
            bool doubt = batch->commit_sent && op->kind != STORE_LOAD_UID;
            op_fail(op, &err);
            if (doubt)
                op->result = STORE_UNKNOWN;
        }
    }
    for (size_t i = 0; i < batch->unit_count; i++)
        unit_fail(batch, &batch->units[i], &err);
    batch->unit_count = 0;
    if (!batch->loads_done)
        loads_fail(batch, &err);
    batch->loads_done = true;
    batch->round = ROUND_NONE;
}

struct store_op *batch_end(struct batch *batch)
{
    struct store_op *list = batch->list;
    for (struct store_op *op = list; op; op = op->next)
        assert(op->result != STORE_PENDING);
    batch->list = NULL;
    return list;
}

void batch_done(struct batch *batch)
{
    mem_free(batch->writes);
    mem_free(batch->units);
    mem_free(batch->loads);
    mem_free(batch->groups);
    mem_free(batch->slots);
    params_done(&batch->params);
}
