/* google.protobuf.Duration and Timestamp as the milliseconds that everything else uses. Any
 * thread. */
#ifndef WIRE_TIMES_H
#define WIRE_TIMES_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

#include <google/protobuf/duration.pb-c.h>
#include <google/protobuf/timestamp.pb-c.h>

/* Within the ranges that the types themselves allow (seconds, nanos, equal signs)? */
bool duration_is_valid(const Google__Protobuf__Duration *duration);
bool timestamp_is_valid(const Google__Protobuf__Timestamp *timestamp);

/* Whole milliseconds, rounded up: a wait is never shorter than it was asked for. The duration is
 * valid. */
int64_t duration_to_ms(const Google__Protobuf__Duration *duration);
/* Fills an initialised message. */
void duration_from_ms(int64_t ms, Google__Protobuf__Duration *ret);
void timestamp_from_ms(int64_t ms, Google__Protobuf__Timestamp *ret);

#endif
