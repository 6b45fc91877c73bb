/* What a worker without a stream says in calls of their own: reports, extensions, releases. Each
 * call is to the engine a stream on which one thing is said, so an answer is what would have come
 * back.
 *
 * The event is done when all that it asked is durable; what the engine has to say about it is
 * gathered until then, or said at the latest when a second event goes there and back. */
#include "rpc/sender.h"
#include "rpc/worker_decode.h"
#include "rpc/worker_encode.h"
#include "rpc/worker_poll.h"

#include "base/log.h"

struct unary { /* in the memory of its call, which it holds until the engine has forgotten it */
    struct worker_link link;
    struct call *call;
    struct engine_worker_event said, flush, gone;
    struct send_list answer;
    struct err err; /* ERR_OK, or how the engine ended it */
};

static struct unary *unary_of(struct worker_link *link)
{
    return CONTAINER(link, struct unary, link);
}

/* --- what the engine says (its thread) ----------------------------------------------------------
 */

static bool op_has_room(struct worker_link *link)
{
    (void)link;
    return false;
}

static bool op_tasks(struct worker_link *link, const struct engine_task *tasks, size_t count)
{
    (void)link;
    (void)tasks;
    (void)count;
    return false; /* without a Hello there are none */
}

static void op_acks(struct worker_link *link, const struct engine_lease_ack *acks, size_t count)
{
    worker_acks_part(&unary_of(link)->answer, acks, count);
}

static void op_extended(struct worker_link *link, const struct engine_lease_extended *leases,
                        size_t count)
{
    worker_extended_part(&unary_of(link)->answer, leases, count);
}

static void op_cancel_hint(struct worker_link *link, const struct uuid *uid, int64_t fence)
{
    (void)link;
    (void)uid;
    (void)fence;
}

static void op_welcome(struct worker_link *link, uint64_t session)
{
    (void)link;
    (void)session;
}

static void op_close(struct worker_link *link, const struct err *why)
{
    unary_of(link)->err = *why;
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

/* --- there and back -----------------------------------------------------------------------------
 */

static void unary_end(struct unary *unary)
{
    send_list_done(&unary->answer);
    call_unref(unary->call); /* and with it this */
}

static void on_gone(struct engine_event *base)
{
    struct engine_worker_event *event = CONTAINER(base, struct engine_worker_event, event);
    unary_end(CONTAINER(event, struct unary, gone));
}

static void fail(struct unary *unary, const struct err *err)
{
    send_list_done(&unary->answer);
    call_fail(unary->call, err);
}

static void answer(struct unary *unary)
{
    struct rpc_server *server = unary->call->server;
    if (unary->err.code) {
        fail(unary, &unary->err);
        return;
    }
    if (unary->said.kind == WORKER_EXTEND)
        worker_poll_hints(server, &unary->said, &unary->answer);
    (void)send_list_reply(&unary->answer, unary->call); /* who gave up says it again */
}

static void on_flushed(struct engine_event *base)
{
    struct engine_worker_event *event = CONTAINER(base, struct engine_worker_event, event);
    struct unary *unary = CONTAINER(event, struct unary, flush);
    answer(unary);
    if (!engine_post_always(unary->call->server->engine, &unary->gone.event))
        unary_end(unary); /* the engine has stopped: it looks at no link any more */
}

static void stopping(struct unary *unary)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    fail(unary, &err);
    unary_end(unary);
}

static void on_said(struct engine_event *base)
{
    struct engine_worker_event *event = CONTAINER(base, struct engine_worker_event, event);
    struct unary *unary = CONTAINER(event, struct unary, said);
    if (!engine_post_always(unary->call->server->engine, &unary->flush.event))
        stopping(unary);
}

/* --- the calls ----------------------------------------------------------------------------------
 */

static struct unary *unary_new(struct call *call)
{
    struct unary *unary = arena_alloc(&call->arena, sizeof *unary);
    struct err err;
    if (!unary) {
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        call_fail(call, &err);
        return NULL;
    }
    unary->link.ops = &link_ops;
    unary->call = call;
    send_list_init(&unary->answer);
    return unary;
}

/* rc and err: of reading the request. */
static void say(struct unary *unary, int rc, const struct err *err)
{
    struct call *call = unary->call;
    if (rc) {
        call_fail(call, err);
        return;
    }
    worker_poll_heard(call->server, &unary->said);
    worker_event_init(&unary->said, &unary->link, unary->said.kind, on_said);
    worker_event_init(&unary->flush, &unary->link, WORKER_ROOM, on_flushed);
    worker_event_init(&unary->gone, &unary->link, WORKER_GONE, on_gone);
    call_ref(call);
    if (!engine_post_always(call->server->engine, &unary->said.event))
        stopping(unary);
}

void worker_report_outcomes(struct call *call)
{
    struct unary *unary = unary_new(call);
    struct err err;
    if (unary)
        say(unary,
            worker_report_read((void *)call->request, call->server->payload_bytes_max, &call->arena,
                               &unary->said, &err),
            &err);
}

void worker_extend_leases(struct call *call)
{
    struct unary *unary = unary_new(call);
    struct err err;
    if (unary)
        say(unary, worker_extend_read((void *)call->request, &call->arena, &unary->said, &err),
            &err);
}

void worker_release_tasks(struct call *call)
{
    struct unary *unary = unary_new(call);
    struct err err;
    if (!unary)
        return;
    const Saga__V1__ReleaseTasksRequest *request = (void *)call->request;
    int rc = worker_release_read(request, &call->arena, &unary->said, &err);
    if (!rc && request->drain)
        worker_poll_ends(call->server, &unary->said);
    say(unary, rc, &err);
}
