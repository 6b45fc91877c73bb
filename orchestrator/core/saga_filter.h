/* Which sagas are meant, or which effects of theirs: everything that is said must hold. Plain data;
 * all zero means every saga. Texts are borrowed. Any thread. */
#ifndef CORE_SAGA_FILTER_H
#define CORE_SAGA_FILTER_H

#include "core/limits.h"
#include "core/words.h"

#include <stdint.h>

struct span { /* from <= x < to */
    bool has_from, has_to;
    int64_t from, to;
};
struct label_filter {
    const char *key, *value;
};

struct saga_filter {
    const char *namespace_, *definition; /* NULL: every one, as in the texts below */
    const char *saga_id;                 /* exact */
    const char *saga_id_prefix;
    struct span revision;
    bool not_states[SAGA_STATE_COUNT];
    /* Of parked sagas alone: one that is not parked fits none of these three. */
    bool not_reasons[PARK_REASON_COUNT];
    const char *park_step, *park_code;
    bool has_doubt, doubt;
    struct label_filter labels[LIMIT_LABELS];
    size_t label_count;
    struct span started_us, updated_us, ended_us; /* Unix microseconds; ended: one that has */
    /* Of effects (the view saga_effect) */
    const char *step;
    bool has_operation;
    enum operation operation;
    struct span dispatched, sure, possible;
    struct span first_us, last_us; /* dispatch */
};

static inline bool span_is_set(const struct span *span)
{
    return span->has_from || span->has_to;
}
/* Is anything said about why it is parked? */
static inline bool saga_filter_wants_parked(const struct saga_filter *filter)
{
    bool some = filter->park_step || filter->park_code;
    for (int reason = 0; reason < PARK_REASON_COUNT; reason++)
        some = some || filter->not_reasons[reason];
    return some;
}

#endif
