/* Mutations that know the message: fields of the type are added, taken away, doubled and changed,
 * at any depth, so that most inputs get past the scan and reach what lies behind it. */
#ifndef FUZZ_MUTATE_MESSAGE_H
#define FUZZ_MUTATE_MESSAGE_H

#include "base/rng.h"

#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

/* Changes the packed message in place; returns its new size, at most size_max. Bytes that are no
 * message are changed blindly. */
size_t mutate_message(const ProtobufCMessageDescriptor *type, uint8_t *data, size_t size,
                      size_t size_max, struct rng *rng);

#endif
