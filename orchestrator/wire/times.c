#include "wire/times.h"

/* The ranges that the two types' own descriptions give: some 10,000 years, and the years 1 to
 * 9999. */
#define DURATION_SECONDS_MAX  INT64_C(315576000000)
#define TIMESTAMP_SECONDS_MIN (-INT64_C(62135596800))
#define TIMESTAMP_SECONDS_MAX INT64_C(253402300799)
enum { NANOS_MAX = 999999999, NANOS_PER_MS = 1000000 };

bool duration_is_valid(const Google__Protobuf__Duration *duration)
{
    int64_t seconds = duration->seconds;
    int32_t nanos = duration->nanos;
    if (seconds < -DURATION_SECONDS_MAX || seconds > DURATION_SECONDS_MAX)
        return false;
    if (nanos < -NANOS_MAX || nanos > NANOS_MAX)
        return false;
    return !(seconds > 0 && nanos < 0) && !(seconds < 0 && nanos > 0);
}

bool timestamp_is_valid(const Google__Protobuf__Timestamp *timestamp)
{
    return timestamp->seconds >= TIMESTAMP_SECONDS_MIN &&
           timestamp->seconds <= TIMESTAMP_SECONDS_MAX && timestamp->nanos >= 0 &&
           timestamp->nanos <= NANOS_MAX;
}

int64_t duration_to_ms(const Google__Protobuf__Duration *duration)
{
    int64_t ms = duration->seconds * 1000 + duration->nanos / NANOS_PER_MS;
    return duration->nanos % NANOS_PER_MS > 0 ? ms + 1 : ms;
}

void duration_from_ms(int64_t ms, Google__Protobuf__Duration *ret)
{
    ret->seconds = ms / 1000;
    ret->nanos = (int32_t)(ms % 1000) * NANOS_PER_MS;
}

void timestamp_from_ms(int64_t ms, Google__Protobuf__Timestamp *ret)
{
    int64_t seconds = ms / 1000;
    int64_t rest = ms % 1000;
    if (rest < 0) { /* before 1970: nanos always count forward */
        seconds--;
        rest += 1000;
    }
    ret->seconds = seconds;
    ret->nanos = (int32_t)rest * NANOS_PER_MS;
}
