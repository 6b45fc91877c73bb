#include "rpc/sender.h"

#include "base/mem.h"
#include "rpc/internal.h"

#include <grpc/byte_buffer.h>

static void on_sent(struct rpc_tag *tag, bool ok);

void sender_init(struct sender *sender, struct call *call, void (*on_sent_fn)(struct sender *))
{
    pthread_mutex_init(&sender->lock, NULL);
    sender->call = call;
    sender->total = &call->server->send_bytes;
    sender->last = &sender->first;
    sender->tag.fn = on_sent;
    sender->on_sent = on_sent_fn;
    sender->put_ms = rpc_now_ms();
}

static void free_items(struct send_item *item)
{
    while (item) {
        struct send_item *next = item->next;
        grpc_slice_unref(item->slice);
        mem_free(item);
        item = next;
    }
}

void sender_done(struct sender *sender)
{
    pthread_mutex_destroy(&sender->lock);
}

void send_list_init(struct send_list *list)
{
    *list = (struct send_list){ .last = &list->first };
}

void send_list_add(struct send_list *list, const ProtobufCMessage *message)
{
    struct send_item *item = mem_calloc(1, sizeof *item);
    if (!item) {
        list->failed = true;
        return;
    }
    item->slice = message_to_slice(message);
    item->size = GRPC_SLICE_LENGTH(item->slice);
    *list->last = item;
    list->last = &item->next;
}

void send_list_done(struct send_list *list)
{
    free_items(list->first);
    send_list_init(list);
}

bool send_list_reply(struct send_list *list, struct call *call)
{
    size_t count = 0;
    for (const struct send_item *item = list->first; item; item = item->next)
        count++;
    grpc_slice *slices = list->failed ? NULL : mem_calloc(count + 1, sizeof *slices);
    bool is_sent = false;
    if (slices) {
        size_t i = 0;
        for (const struct send_item *item = list->first; item; item = item->next)
            slices[i++] = item->slice;
        is_sent = call_reply_slices(call, slices, count);
    } else {
        struct err err;
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        call_fail(call, &err);
    }
    mem_free(slices);
    send_list_done(list);
    return is_sent;
}

/* Under the lock. */
static void start_next(struct sender *sender)
{
    if (sender->busy || sender->closed || sender->status_sent)
        return;
    grpc_op ops[3];
    size_t count = 0;
    struct send_item *item = sender->first;
    if (!item && !sender->ending)
        return;
    if (!sender->greeted)
        ops[count++] = (grpc_op){ .op = GRPC_OP_SEND_INITIAL_METADATA };
    if (item) {
        sender->first = item->next;
        if (!sender->first)
            sender->last = &sender->first;
        sender->sending = grpc_raw_byte_buffer_create(&item->slice, 1);
        sender->sending_bytes = item->size;
        grpc_slice_unref(item->slice);
        mem_free(item);
        ops[count] = (grpc_op){ .op = GRPC_OP_SEND_MESSAGE };
        ops[count++].data.send_message.send_message = sender->sending;
    } else {
        ops[count++] = answer_op(&sender->call->answer);
        sender->status_sent = true;
    }
    sender->greeted = true;
    sender->busy = call_start(sender->call, ops, count, &sender->tag);
    sender->busy_since_ms = rpc_now_ms();
    if (!sender->busy) {
        sender->closed = true;
        if (sender->sending)
            grpc_byte_buffer_destroy(TAKE(sender->sending));
    }
}

/* Under the lock. */
static void add_bytes(struct sender *sender, size_t bytes)
{
    sender->bytes += bytes;
    atomic_fetch_add(sender->total, (long long)bytes);
}

static void take_bytes(struct sender *sender, size_t bytes)
{
    sender->bytes -= bytes;
    atomic_fetch_sub(sender->total, (long long)bytes);
}

static void drop_queue(struct sender *sender)
{
    free_items(sender->first);
    sender->first = NULL;
    sender->last = &sender->first;
    take_bytes(sender, sender->bytes - (sender->busy ? sender->sending_bytes : 0));
}

static void on_sent(struct rpc_tag *tag, bool ok)
{
    struct sender *sender = CONTAINER(tag, struct sender, tag);
    struct call *call = sender->call;
    pthread_mutex_lock(&sender->lock);
    if (sender->sending)
        grpc_byte_buffer_destroy(TAKE(sender->sending));
    take_bytes(sender, sender->sending_bytes);
    sender->sending_bytes = 0;
    sender->busy = false;
    if (!ok) { /* the peer has gone */
        sender->closed = true;
        drop_queue(sender);
    }
    start_next(sender);
    pthread_mutex_unlock(&sender->lock);
    sender->on_sent(sender);
    call_batch_done(call);
}

bool sender_put(struct sender *sender, struct send_list *list)
{
    pthread_mutex_lock(&sender->lock);
    bool takes = !list->failed && !sender->closed && !sender->ending;
    if (takes && list->first) {
        for (struct send_item *item = list->first; item; item = item->next)
            add_bytes(sender, item->size);
        *sender->last = list->first;
        sender->last = list->last;
        sender->put_ms = rpc_now_ms();
        start_next(sender);
    }
    pthread_mutex_unlock(&sender->lock);
    if (!takes)
        free_items(list->first);
    return takes;
}

void sender_end(struct sender *sender, const struct err *err)
{
    pthread_mutex_lock(&sender->lock);
    if (!sender->ending && !sender->closed) {
        sender->ending = true;
        answer_set(&sender->call->answer, err, NULL);
        start_next(sender);
    }
    pthread_mutex_unlock(&sender->lock);
}

void sender_close(struct sender *sender)
{
    pthread_mutex_lock(&sender->lock);
    sender->closed = true;
    drop_queue(sender);
    pthread_mutex_unlock(&sender->lock);
}

size_t sender_bytes(struct sender *sender)
{
    pthread_mutex_lock(&sender->lock);
    size_t bytes = sender->bytes;
    pthread_mutex_unlock(&sender->lock);
    return bytes;
}

bool sender_is_open(struct sender *sender)
{
    pthread_mutex_lock(&sender->lock);
    bool is_open = !sender->closed && !sender->ending;
    pthread_mutex_unlock(&sender->lock);
    return is_open;
}

void sender_times(struct sender *sender, int64_t now_ms, int64_t *ret_idle_ms, int64_t *ret_busy_ms)
{
    pthread_mutex_lock(&sender->lock);
    *ret_idle_ms = now_ms - sender->put_ms;
    *ret_busy_ms = sender->busy ? now_ms - sender->busy_since_ms : 0;
    pthread_mutex_unlock(&sender->lock);
}
