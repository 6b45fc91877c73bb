/* Messages of any type there and back. Any thread. */
#ifndef DEMO_MESSAGE_H
#define DEMO_MESSAGE_H

#include "base/buf.h"

#include <protobuf-c/protobuf-c.h>

/* Appends it; false: memory is out. */
static inline bool message_pack(const ProtobufCMessage *message, struct buf *buf)
{
    /* an empty message packs to nothing */
    uint8_t *room = buf_room(buf, protobuf_c_message_get_packed_size(message) + 1);
    if (room)
        buf_added(buf, protobuf_c_message_pack(message, room));
    return room != NULL;
}

/* protobuf-c's fields are not const; packing only reads. */
static inline char *message_borrow(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* For CLEANUP on a pointer to a message of any type. */
static inline void message_p(void *message)
{
    ProtobufCMessage *it = *(ProtobufCMessage **)message;
    if (it)
        protobuf_c_message_free_unpacked(it, NULL);
}

#endif
