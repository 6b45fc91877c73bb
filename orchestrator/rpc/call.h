/* The life of one gRPC call on the server, from the armed request to the last unref; and the answer
 * of unary calls.
 *
 * Two counts. `grpc_refs`: outstanding batches, plus one until the call is answered or given up; at
 * zero the grpc_call is let go. `work_refs`: whoever still has to answer (an event at the engine, a
 * query); at zero the request and what was made of it go. When both are at zero the object is
 * freed. So a call that its client gave up lets go of gRPC at once, while its event may stay with
 * the engine for minutes; and an answer that its client does not take holds up its own bytes alone.
 *
 * thread: batches of one direction are started by one thread at a time (the pump, or under the lock
 * of the stream); call_reply and call_fail by any. */
#ifndef RPC_CALL_H
#define RPC_CALL_H

#include "base/err.h"
#include "rpc/status.h"
#include "wire/arena.h"

#include <grpc/grpc.h>
#include <protobuf-c/protobuf-c.h>
#include <stdatomic.h>

struct rpc_server;
struct pump;
struct method;

/* What a completion queue hands back: who is to be told. */
struct rpc_tag {
    void (*fn)(struct rpc_tag *tag, bool ok);
};

enum call_stage { CALL_OPEN, CALL_ANSWERED, CALL_GIVEN_UP };

struct call {
    struct rpc_server *server;
    struct pump *pump;
    const struct method *method; /* NULL until known */
    grpc_call *grpc;             /* valid while grpc_refs > 0 */
    grpc_call_details details;
    grpc_metadata_array metadata;
    atomic_int sides, work_refs, grpc_refs; /* sides: which of the other two are not at zero */
    atomic_int stage;                       /* enum call_stage: who answers, answers once */
    atomic_bool cancelled;
    int cancelled_by_peer; /* written by gRPC */
    struct rpc_tag new_tag, close_tag, read_tag, answer_tag;
    grpc_byte_buffer *received;
    size_t received_bytes, answer_bytes; /* as counted by the server */
    struct answer answer;

    /* unary calls: the request and everything that is made for its reply */
    struct arena arena;
    ProtobufCMessage *request;

    /* the pump's list of unary calls, oldest first */
    struct call *next, *prev;
    bool listed, counted;
    int64_t since_ms;             /* monotonic */
    atomic_llong peer_awaited_ms; /* since when its client owes us a move; INT64_MAX: it does not */

    struct worker_stream *stream; /* streaming calls: theirs */
    struct watcher *watcher;
    struct saga_watch *watch;
    struct reflector *reflector;
    struct batch_run *batch;
};

/* Asks gRPC for the next new call. False: memory is out or the server shuts down. */
bool call_arm(struct pump *pump);

void call_ref(struct call *call);
/* False: nobody works on it any more. Under the lock of the pump's list. */
bool call_ref_if_open(struct call *call);
void call_unref(struct call *call);
/* Starts a batch whose completion goes to `tag`. False: refused by gRPC (the call is dying); the
 * tag will not come. */
MUST_USE bool call_start(struct call *call, const grpc_op *ops, size_t count, struct rpc_tag *tag);
/* Ends the hold that a started batch had; first thing or last thing in its completion. */
void call_batch_done(struct call *call);
/* The next message, into `received`. */
MUST_USE bool call_read(struct call *call);
/* Nothing will be started on this call any more by its owner (streams; unary calls do it by
 * themselves). */
void call_release_grpc(struct call *call);
/* Ends the call from our side without an answer of its own. thread: any, while grpc is held */
void call_cancel(struct call *call, grpc_status_code code, const char *why);

/* What came with the last read: end of the client's messages, a message, or a broken call. */
enum call_read { CALL_READ_MESSAGE, CALL_READ_END, CALL_READ_BROKEN };
enum call_read call_read_result(struct call *call, bool ok);
/* Scans, unpacks and validates `received` into the arena; frees the buffer. */
MUST_USE int call_unpack(struct call *call, const ProtobufCMessageDescriptor *type,
                         struct arena *arena, ProtobufCMessage **ret, struct err *err);

/* Unary calls: exactly one of these, once; they take over the caller's reference, and with the last
 * one everything in the arena goes. thread: any */
void call_reply(struct call *call, const ProtobufCMessage *reply);
/* The same for a packed message in pieces, which stay the caller's. False: the client had given up,
 * or the reply was refused; nothing of it was or will be sent. */
bool call_reply_slices(struct call *call, grpc_slice *slices, size_t count);
void call_fail(struct call *call, const struct err *err);
void call_fail_faults(struct call *call, const struct err *err, const struct faults *faults);
/* Answers it in the stead of whoever works on it; what that one says later is dropped. Takes over
 * no reference. */
void call_preempt(struct call *call, const struct err *err);

/* A message as bytes to send. */
grpc_slice message_to_slice(const ProtobufCMessage *message);

#endif
