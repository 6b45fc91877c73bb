/* Decides whether a history is one that the promises allow: P1, P2, and that whoever was told
 * something sees it from then on, at any node. Every call is about one key, and keys are judged one
 * by one. The final database is the last read.
 *
 * Only order that is certain counts: A was before B if A's answer was there when B began. What was
 * never answered, or answered with "unknown", promises nothing and may have happened or not.
 *
 * thread: any. Pure. */
#ifndef HISTORY_JUDGE_H
#define HISTORY_JUDGE_H

#include "history.h"

enum violation {
    VIOLATION_OTHER_SAGA,     /* one key, and two sagas were spoken of */
    VIOLATION_TWO_CREATED,    /* two starts were told that they made it */
    VIOLATION_OUT_OF_NOTHING, /* it existed before anybody can have started it */
    VIOLATION_OTHER_INPUT,    /* acknowledged, and what runs has other input */
    VIOLATION_FALSE_MISMATCH, /* refused for its input, which is the one that runs */
    VIOLATION_LOST_START,     /* was acknowledged or seen, and was not found later */
    VIOLATION_LOST_REPORT,    /* was acknowledged, and a later journal does not have it */
    VIOLATION_LOST_FOLLOW_UP, /* was acknowledged, and what follows was not there later */
    VIOLATION_LOST_CANCEL,    /* was acknowledged, and it went forward later */
    VIOLATION_LOST_LEASE,     /* a worker was handed what a later journal does not know */
    VIOLATION_TWICE_GRANTED,  /* one fence was handed out twice */
    VIOLATION_STALE_COUNTED,  /* every report of a lease was refused, and one counts */
    VIOLATION_WENT_BACK,      /* a later read says less, or the opposite */
    VIOLATION_BAD_ANSWER,     /* an answer that a client must never get */
    VIOLATION_COUNT
};
extern const char *const violation_names[VIOLATION_COUNT];

enum { JUDGE_CITED_MAX = 20 };

struct judge_verdict {
    size_t found[VIOLATION_COUNT], total;
    int64_t oks; /* calls that were answered with ok */
    size_t keys;
    struct judge_cited { /* the first ones; borrowed from the history */
        enum violation violation;
        const struct history_call *a, *b; /* what promised, what broke it (NULL: absence) */
    } cited[JUDGE_CITED_MAX];
    size_t cited_count;
};

/* Fails only when memory is out or an `entries` cannot be read. */
MUST_USE int judge(const struct history *history, struct judge_verdict *ret, struct err *err);
/* One line for each that is cited. */
void judge_print(const struct judge_verdict *verdict, FILE *out);

#endif
