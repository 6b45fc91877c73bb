/* What clients asked and what they were told: a log, one line when a call begins and one when it is
 * answered, with times of one clock. The judge (judge.h) reads it back.
 *
 *   1000 1 invoke START client=0 node=1 key=k1 input=x
 *   2300 1 ok uid=018f... run=1 existed=0
 *
 * `ok` is an answer that promises something, `fail` one that says nothing was done, `unknown` no
 * answer, or one that leaves it open. A call that was never answered has no second line. The final
 * content of the database stands in the same form behind it (SAGA, ENTRY).
 *
 * thread: writing, any; everything else, the owner. */
#ifndef HISTORY_HISTORY_H
#define HISTORY_HISTORY_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum history_what {
    HISTORY_START,   /* key, input -> uid, run, existed */
    HISTORY_CANCEL,  /* key */
    HISTORY_GET,     /* key -> uid, run, state, phase */
    HISTORY_JOURNAL, /* key -> entries */
    HISTORY_TASK,    /* a worker was handed: key, uid, seq, step */
    HISTORY_REPORT,  /* key, uid, seq, outcome, rank -> answer */
    HISTORY_SAGA,    /* a row of the final database: key, uid, run, state, phase, input */
    HISTORY_ENTRY,   /* the same: key, uid, seq, kind, step, outcome, about */
    HISTORY_WHAT_COUNT
};

enum history_end { HISTORY_OPEN, HISTORY_OK, HISTORY_FAIL, HISTORY_UNKNOWN, HISTORY_END_COUNT };

enum { HISTORY_TEXT_SIZE = 48 };

/* Text fields hold no blanks; "" and -1 are not written. */
struct history_call {
    int64_t id, invoked_us, ended_us; /* ended_us INT64_MAX: never answered */
    enum history_what what;
    enum history_end end;
    int64_t client, node, seq, run, existed, about;
    /* REPORT: what follows from it at least, once it is acknowledged: the saga is 0: anywhere, 1:
     * no longer going forward, 2: at its end. */
    int64_t rank;
    char key[HISTORY_TEXT_SIZE], uid[HISTORY_TEXT_SIZE], input[HISTORY_TEXT_SIZE],
        step[HISTORY_TEXT_SIZE], outcome[HISTORY_TEXT_SIZE], state[HISTORY_TEXT_SIZE],
        phase[HISTORY_TEXT_SIZE], kind[HISTORY_TEXT_SIZE];
    char answer[HISTORY_TEXT_SIZE]; /* of a report: ACCEPTED ...; fail, unknown: why */
    /* JOURNAL: "seq:kind:outcome:about,..." in order; an open lease has no outcome. Owned. */
    char *entries;
};
void history_call_init(struct history_call *call, enum history_what what);

/* --- writing --- */

struct history_log;
/* A new file. The caller owns *ret. */
MUST_USE int history_log_open(const char *path, struct history_log **ret, struct err *err);
/* NULL is fine; always returns NULL. */
struct history_log *history_log_close(struct history_log *log);
/* Returns the call's id, which is unique. */
int64_t history_invoke(struct history_log *log, const struct history_call *call);
/* What the answer said, of a call that began with this id. */
void history_end(struct history_log *log, int64_t id, const struct history_call *call);
/* Something that was seen, and asked for by nobody. */
void history_note(struct history_log *log, const struct history_call *call);

/* --- reading --- */

struct history {
    struct history_call *calls; /* in the order of their ids */
    size_t count;
};
/* Fails, with the line, on anything that is not as above. */
MUST_USE int history_parse(const char *text, struct history *ret, struct err *err);
MUST_USE int history_read(const char *path, struct history *ret, struct err *err);
void history_done(struct history *history);

extern const char *const history_what_names[HISTORY_WHAT_COUNT];
extern const char *const history_end_names[HISTORY_END_COUNT];

#endif
