#include "rpc/worker_poll_internal.h"

#include "base/mem.h"
#include "rpc/worker_encode.h"

enum {
    DEADLINE_MARGIN_MS = 500, /* an answer leaves that long before its client gives up */
    HINTS_MAX = 10000,
};

/* Leases of a poll that the engine is told about. */
struct poll_leases {
    struct engine_worker_event event;
    struct poll *poll;
    struct worker_lease_ref refs[];
};

static struct poll *poll_of(struct worker_link *link)
{
    return CONTAINER(link, struct poll, link);
}

/* --- references and events ----------------------------------------------------------------------
 */

static void drop_parts(struct poll *poll)
{
    send_list_done(&poll->parts);
    atomic_fetch_sub(&poll->server->send_bytes, (long long)poll->bytes);
    poll->bytes = 0;
}

/* Whoever asked is not the one that is answered any more. */
static void fail_late(struct call *call)
{
    struct err err;
    if (atomic_load(&call->server->stopping))
        (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    else
        (void)err_reason(&err, ERR_CONFLICT, "NEWER_CALL",
                         "this worker instance has asked anew: drop what this call brings");
    call_fail(call, &err);
}

void poll_free(struct poll *poll)
{
    struct rpc_server *server = poll->server;
    struct call *call = TAKE(poll->call);
    if (call)
        fail_late(call);
    drop_parts(poll);
    mem_free(poll->given.items);
    mem_free(poll);
    rpc_server_unref(server);
}

static void poll_unref(struct poll *poll)
{
    polls_lock(poll->server);
    bool last = --poll->refs == 0;
    polls_unlock(poll->server);
    if (last)
        poll_free(poll);
}

bool poll_post(struct poll *poll, struct engine_worker_event *event)
{
    poll->refs++;
    if (engine_post_always(poll->server->engine, &event->event))
        return true;
    poll->refs--;
    return false;
}

static struct engine_worker_event *event_of(struct engine_event *base)
{
    return CONTAINER(base, struct engine_worker_event, event);
}

void poll_pause(struct poll *poll)
{
    if (!poll->paused && !poll->gone)
        poll->paused = poll_post(poll, &poll->pause);
}

bool poll_end_link(struct poll *poll)
{
    poll->session = NULL;
    if (poll->gone)
        return false;
    poll->gone = true;
    (void)poll_post(poll, &poll->over); /* if not, the engine looks at no link any more */
    return --poll->refs == 0;
}

bool poll_is_waiting(const struct poll *poll)
{
    return poll->call && atomic_load(&poll->call->stage) == CALL_OPEN;
}

static void on_drained(struct engine_event *base)
{
    poll_unref(CONTAINER(event_of(base), struct poll, drain));
}

/* --- leases that did not get there --------------------------------------------------------------
 */

static void on_leases_done(struct engine_event *base)
{
    struct poll_leases *leases = CONTAINER(event_of(base), struct poll_leases, event);
    struct poll *poll = leases->poll;
    mem_free(leases);
    poll_unref(poll);
}

bool poll_tell_leases(struct poll *poll, enum worker_event_kind kind, const struct given *items,
                      size_t count)
{
    struct poll_leases *leases =
        mem_calloc(1, sizeof *leases + count * sizeof(struct worker_lease_ref));
    if (!leases)
        return false;
    leases->poll = poll;
    leases->event.leases = leases->refs;
    leases->event.lease_count = count;
    for (size_t i = 0; i < count; i++) {
        leases->refs[i].uid = items[i].uid;
        leases->refs[i].fence = items[i].fence;
    }
    worker_event_init(&leases->event, &poll->link, kind, on_leases_done);
    if (poll_post(poll, &leases->event))
        return true;
    mem_free(leases);
    return false;
}

/* --- what the engine says (its thread) ----------------------------------------------------------
 */

static bool op_has_room(struct worker_link *link)
{
    struct poll *poll = poll_of(link);
    struct rpc_server *server = poll->server;
    polls_lock(server);
    bool takes = !poll->paused && poll_is_waiting(poll);
    bool has_room = atomic_load(&server->send_bytes) < (long long)server->send_bytes_max;
    poll->wants_room = takes && !has_room;
    polls_unlock(server);
    return takes && has_room;
}

static bool op_tasks(struct worker_link *link, const struct engine_task *tasks, size_t count)
{
    struct poll *poll = poll_of(link);
    struct rpc_server *server = poll->server;
    size_t bytes = poll->bytes, first = poll->given.count;
    polls_lock(server);
    bool takes = poll_is_waiting(poll) && poll->session;
    polls_unlock(server);
    for (size_t i = 0; takes && i < count; i++)
        takes = !given_add(&poll->given, &saga_row(tasks[i].saga)->uid, tasks[i].view.lease->fence);
    size_t taken =
        takes ? worker_tasks_part(&poll->parts, tasks, count, RPC_REPLY_BYTES_MAX, &poll->bytes)
              : 0;
    atomic_fetch_add(&server->send_bytes, (long long)(poll->bytes - bytes));
    polls_lock(server);
    poll_pause(poll);
    if (taken && taken < count) /* no room in one answer; out of memory, their time ends them */
        (void)poll_tell_leases(poll, WORKER_RELEASE, poll->given.items + first + taken,
                               count - taken);
    polls_unlock(server);
    poll->given.count = first + taken;
    return taken > 0;
}

/* Reports and extensions come over links of their own. */
static void op_acks(struct worker_link *link, const struct engine_lease_ack *acks, size_t count)
{
    (void)link;
    (void)acks;
    (void)count;
}

static void op_extended(struct worker_link *link, const struct engine_lease_extended *leases,
                        size_t count)
{
    (void)link;
    (void)leases;
    (void)count;
}

static void op_cancel_hint(struct worker_link *link, const struct uuid *uid, int64_t fence)
{
    struct poll *poll = poll_of(link);
    polls_lock(poll->server);
    struct poll_session *session = poll->session;
    if (session && session->hints.count < HINTS_MAX && !given_add(&session->hints, uid, fence) &&
        poll_is_waiting(poll))
        poll_pause(poll); /* told at once */
    polls_unlock(poll->server);
}

static void op_welcome(struct worker_link *link, uint64_t session)
{
    (void)link;
    (void)session;
}

/* A newer one is in its place (a LeaseTasks, or a stream of the same instance), or the engine could
 * not take it. */
static void op_close(struct worker_link *link, const struct err *why)
{
    struct poll *poll = poll_of(link);
    struct rpc_server *server = poll->server;
    polls_lock(server);
    struct call *call = TAKE(poll->call);
    struct poll_session *session = poll->session;
    bool last = session && poll_end_link(poll);
    if (session)
        poll_session_free(server, session);
    polls_unlock(server);
    if (call && why->code == ERR_UNAVAILABLE)
        fail_late(call);
    else if (call)
        call_fail(call, why);
    if (last)
        poll_free(poll);
}

static const struct worker_link_ops link_ops = {
    .has_room = op_has_room,
    .tasks = op_tasks,
    .acks = op_acks,
    .extended = op_extended,
    .cancel_hint = op_cancel_hint,
    .welcome = op_welcome,
    .close = op_close,
};

/* --- the answer (the engine's thread) -----------------------------------------------------------
 */

/* What it brings waits for its receipt from before it leaves, so that the receipt finds it. */
static bool begin_answer(struct poll *poll, struct call **ret_call, struct given_list *ret_hints)
{
    polls_lock(poll->server);
    struct poll_session *session = poll->session;
    struct call *call = TAKE(poll->call);
    *ret_call = call;
    *ret_hints = poll_session_take_hints(call ? session : NULL);
    if (session && call) {
        poll_session_answered(session, &poll->given);
    }
    polls_unlock(poll->server);
    return session != NULL;
}

/* Nothing of the answer has left. */
static void take_back(struct poll *poll)
{
    polls_lock(poll->server);
    struct poll_session *session = poll->session;
    if (session && session->given.count &&
        poll_tell_leases(poll, WORKER_RELEASE, session->given.items, session->given.count))
        session->given.count = 0; /* else they wait for a receipt that does not come */
    polls_unlock(poll->server);
}

static void on_paused(struct engine_event *base)
{
    struct poll *poll = CONTAINER(event_of(base), struct poll, pause);
    struct call *call = NULL;
    struct given_list hints;
    bool is_last = begin_answer(poll, &call, &hints);
    if (call && is_last) {
        Saga__V1__LeaseTasksResponse part = SAGA__V1__LEASE_TASKS_RESPONSE__INIT;
        part.node = poll->server->node;
        poll_reply_end(&poll->parts, poll->server, &hints);
        send_list_add(&poll->parts, &part.base);
        if (!send_list_reply(&poll->parts, call))
            take_back(poll);
    } else if (call) {
        fail_late(call); /* the newer one's Hello releases what it was given */
    }
    drop_parts(poll);
    mem_free(hints.items);
    poll_unref(poll);
}

static void on_room(struct engine_event *base)
{
    struct poll *poll = CONTAINER(event_of(base), struct poll, room);
    polls_lock(poll->server);
    poll->room_posted = false;
    polls_unlock(poll->server);
    poll_unref(poll);
}

static void on_over(struct engine_event *base)
{
    poll_unref(CONTAINER(event_of(base), struct poll, over));
}

/* --- LeaseTasks ---------------------------------------------------------------------------------
 */

/* The request is theirs until they are done. */
static void asked_done(struct poll *poll)
{
    call_unref(poll->asked);
    poll_unref(poll);
}

static void on_hello(struct engine_event *base)
{
    struct worker_lease_ask *ask = CONTAINER(event_of(base), struct worker_lease_ask, hello);
    asked_done(CONTAINER(ask, struct poll, ask));
}

static void on_credit(struct engine_event *base)
{
    struct worker_lease_ask *ask = CONTAINER(event_of(base), struct worker_lease_ask, credit);
    asked_done(CONTAINER(ask, struct poll, ask));
}

static struct poll *poll_new(struct call *call)
{
    struct poll *poll = mem_calloc(1, sizeof *poll);
    if (!poll)
        return NULL;
    rpc_server_ref(call->server);
    poll->server = call->server;
    poll->asked = call;
    poll->refs = 1;
    poll->link.ops = &link_ops;
    send_list_init(&poll->parts);
    worker_event_init(&poll->pause, &poll->link, WORKER_PAUSE, on_paused);
    worker_event_init(&poll->room, &poll->link, WORKER_ROOM, on_room);
    worker_event_init(&poll->drain, &poll->link, WORKER_DRAIN, on_drained);
    worker_event_init(&poll->over, &poll->link, WORKER_GONE, on_over);
    return poll;
}

/* In time for a client, or a proxy, that waits less long. */
static int64_t answer_at(const struct call *call, int64_t wait_ms)
{
    gpr_timespec deadline = call->details.deadline;
    int64_t left_ms = gpr_time_to_millis(gpr_time_sub(deadline, gpr_now(deadline.clock_type))) -
                      DEADLINE_MARGIN_MS;
    return rpc_now_ms() + (left_ms < wait_ms ? left_ms : wait_ms);
}

static bool post_asked(struct poll *poll, struct engine_worker_event *event)
{
    call_ref(poll->asked);
    if (poll_post(poll, event))
        return true;
    call_unref(poll->asked); /* never the last: whoever handles it has one */
    return false;
}

/* Puts it in the place of the instance's poll before, whose end the engine hears of behind the new
 * Hello. *ret_dead: NULL, or what is to be freed. */
static int poll_join(struct poll *poll, struct poll **ret_dead, struct err *err)
{
    struct rpc_server *server = poll->server;
    struct poll_session *session = NULL;
    int rc = poll_session_get(server, &poll->ask.hello, &session, err);
    if (rc)
        return rc;
    struct poll *before = session->poll;
    session->poll = poll;
    session->heard_ms = rpc_now_ms();
    session->given.count = 0; /* what was not listed is released */
    poll->session = session;
    poll->refs++;
    poll->call = poll->asked;
    bool posted = post_asked(poll, &poll->ask.hello) && post_asked(poll, &poll->ask.credit);
    if (before && poll_end_link(before))
        *ret_dead = before;
    if (posted)
        return 0;
    poll->call = NULL;
    poll_session_free(server, session);
    (void)poll_end_link(poll); /* never the last: the caller has one */
    return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
}

/* A server that stops gives no tasks, and says so. */
static void answer_draining(struct call *call)
{
    Saga__V1__LeaseTasksResponse reply = SAGA__V1__LEASE_TASKS_RESPONSE__INIT;
    reply.draining = true;
    reply.node = call->server->node;
    call_reply(call, &reply.base);
}

void worker_lease_tasks(struct call *call)
{
    struct rpc_server *server = call->server;
    struct poll *poll = poll_new(call), *dead = NULL;
    struct err err;
    int rc = poll ? worker_lease_read((void *)call->request, &call->arena, &poll->ask, &err)
                  : err_set(&err, ERR_NOMEM, "out of memory");
    if (!rc && atomic_load(&server->draining)) {
        answer_draining(call);
    } else if (!rc) {
        worker_event_init(&poll->ask.hello, &poll->link, WORKER_HELLO, on_hello);
        worker_event_init(&poll->ask.credit, &poll->link, WORKER_CREDIT, on_credit);
        poll->until_ms = answer_at(call, poll->ask.wait_ms);
        polls_lock(server);
        rc = poll_join(poll, &dead, &err);
        polls_unlock(server);
    }
    if (rc)
        call_fail(call, &err);
    if (poll)
        poll_unref(poll);
    if (dead)
        poll_free(dead);
}
