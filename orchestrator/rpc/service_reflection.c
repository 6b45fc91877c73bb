/* grpc.reflection v1 and v1alpha: a stream that is asked and answers (reflection.h). One request at
 * a time: the next one is read when the answer to the one before has gone, so a stream holds one of
 * either. Reading and what follows from it are the call's pump's alone; the server's list is under
 * its lock. */
#include "rpc/reflection.h"

#include "base/mem.h"
#include "rpc/request.h"
#include "rpc/sender.h"

#include <utlist.h>

enum { SILENCE_MS_MAX = 5 * 60 * 1000 }; /* of a tool that keeps its stream */

struct reflector {
    struct sender sender;
    struct call *call;
    struct reflector *prev, *next;
    bool is_listed;
    struct arena arena; /* of one request */
    atomic_llong heard_ms;
};

static int answer_one(struct reflector *reflector, struct err *err)
{
    ProtobufCMessage *request = NULL;
    int rc =
        call_unpack(reflector->call, &grpc__reflection__v1__server_reflection_request__descriptor,
                    &reflector->arena, &request, err);
    if (rc)
        return rc;
    Grpc__Reflection__V1__ServerReflectionResponse *response =
        reflection_answer(&reflector->arena, (void *)request);
    if (!response)
        return err_set(err, ERR_NOMEM, "reflection");
    struct send_list list;
    send_list_init(&list);
    send_list_add(&list, &response->base);
    bool failed = list.failed;
    (void)sender_put(&reflector->sender, &list); /* false, too, if the stream has ended */
    return failed ? err_set(err, ERR_NOMEM, "reflection") : 0;
}

static void on_request(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, read_tag);
    struct reflector *reflector = call->reflector;
    struct err err;
    enum call_read result = call_read_result(call, ok);
    atomic_store(&reflector->heard_ms, rpc_now_ms());
    if (result == CALL_READ_END)
        sender_end(&reflector->sender, NULL);
    else if (result == CALL_READ_MESSAGE && answer_one(reflector, &err))
        sender_end(&reflector->sender, &err);
    arena_done(&reflector->arena);
    call_batch_done(call);
}

static void read_next(struct reflector *reflector)
{
    struct err err;
    if (!reflector->is_listed || !sender_is_open(&reflector->sender) || call_read(reflector->call))
        return;
    (void)err_set(&err, ERR_NOMEM, "out of memory");
    sender_end(&reflector->sender, &err);
}

static void on_sent(struct sender *sender)
{
    read_next(CONTAINER(sender, struct reflector, sender));
}

static void on_close(struct rpc_tag *tag, bool ok)
{
    struct call *call = CONTAINER(tag, struct call, close_tag);
    struct reflector *reflector = call->reflector;
    struct rpc_server *server = call->server;
    (void)ok; /* always true */
    sender_close(&reflector->sender);
    pthread_mutex_lock(&server->lock);
    DL_DELETE(server->reflectors, reflector);
    reflector->is_listed = false;
    pthread_mutex_unlock(&server->lock);
    atomic_fetch_sub(&server->reflector_count, 1);
    call_release_grpc(call);
    call_batch_done(call);
    call_unref(call);
}

void reflector_free(struct reflector *reflector)
{
    sender_done(&reflector->sender);
    mem_free(reflector);
}

void reflector_begin(struct call *call)
{
    struct rpc_server *server = call->server;
    struct err err;
    if (!rpc_server_admit(&server->reflector_count, NULL, RPC_REFLECTORS_MAX)) {
        (void)err_reason(&err, ERR_LIMIT, "TOO_MANY_REFLECTIONS", "more than %d reflection streams",
                         RPC_REFLECTORS_MAX);
        err.retryable = true;
        call_fail(call, &err);
        return;
    }
    struct reflector *reflector = mem_calloc(1, sizeof *reflector);
    if (!reflector) {
        atomic_fetch_sub(&server->reflector_count, 1);
        call_fail_memory(call);
        return;
    }
    reflector->call = call;
    atomic_init(&reflector->heard_ms, rpc_now_ms());
    sender_init(&reflector->sender, call, on_sent);
    call->reflector = reflector;
    call->close_tag.fn = on_close;
    call->read_tag.fn = on_request;
    pthread_mutex_lock(&server->lock);
    DL_APPEND(server->reflectors, reflector);
    reflector->is_listed = true;
    pthread_mutex_unlock(&server->lock);
    read_next(reflector);
}

void reflectors_tick(struct rpc_server *server, int64_t now_ms)
{
    struct reflector *reflector;
    pthread_mutex_lock(&server->lock);
    DL_FOREACH(server->reflectors, reflector)
    {
        int64_t idle_ms, busy_ms;
        sender_times(&reflector->sender, now_ms, &idle_ms, &busy_ms);
        if (busy_ms > RPC_PEER_MS_MAX ||
            now_ms - atomic_load(&reflector->heard_ms) > SILENCE_MS_MAX)
            call_cancel(reflector->call, GRPC_STATUS_DEADLINE_EXCEEDED,
                        "whoever asked does not read the answer, or asks nothing any more");
    }
    pthread_mutex_unlock(&server->lock);
}

void reflectors_end(struct rpc_server *server)
{
    struct err err;
    struct reflector *reflector;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    pthread_mutex_lock(&server->lock);
    DL_FOREACH(server->reflectors, reflector)
    {
        sender_end(&reflector->sender, &err);
    }
    pthread_mutex_unlock(&server->lock);
}
