/* One saga on one screen: where it stands, since when, what each step did, what it waits for and
 * what to do about it. Text only, from a saga.v1.Saga in FULL view. Any thread. */
#ifndef CTL_WHERE_TEXT_H
#define CTL_WHERE_TEXT_H

#include "ctl/screen.h"

#include <saga/v1/saga.pb-c.h>

struct revision_types;

struct where_view {
    int64_t now_ms;
    bool color;
    const char *address;                /* NULL: the default one; else commands name it */
    const struct revision_types *types; /* of the saga's revision; NULL: payloads are bytes */
    size_t payload_max;                 /* longer payloads are cut; 0: none is */
};

void where_write(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out);
/* Its lines, one by one; "" for what is not there. */
void where_write_title(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out);
void where_write_state(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out);
void where_write_park(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out);
void where_write_cause(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out);
void where_write_pending(const Saga__V1__Saga *saga, const struct where_view *view,
                         struct buf *out);
void where_write_waiting(const Saga__V1__Saga *saga, const struct where_view *view,
                         struct buf *out);
/* Steps that may have taken effect: what is known of them, and the commands that settle it; and
 * what else the saga is in doubt of. "" when there is nothing. */
void where_write_unknown(const Saga__V1__Saga *saga, const struct where_view *view,
                         struct buf *out);
/* The saga's input; what its steps answered. True: something was cut. */
bool where_write_input(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out);
bool where_write_outputs(const Saga__V1__Saga *saga, const struct where_view *view,
                         struct buf *out);
/* How to see what was cut. */
void where_write_cut(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out);
/* A step's wait for a signal timed out. NULL is fine. */
bool where_lacks_signal(const Saga__V1__ErrorInfo *error);
/* " CODE: message"; "" for NULL and for an empty one. */
void where_write_error(const Saga__V1__ErrorInfo *error, struct buf *out);
/* "sagactl [--address A] [--namespace N] VERB DEFINITION KEY" */
void where_write_command(const Saga__V1__Saga *saga, const struct where_view *view,
                         const char *verb, struct buf *out);
/* The same with "--step STEP OPTIONS --evidence ..."; step NULL or "": without it. */
void where_write_resolve(const Saga__V1__Saga *saga, const struct where_view *view,
                         const char *step, const char *options, struct buf *out);
/* The command that a parked saga waits for, alone. */
void where_write_settling(const Saga__V1__Saga *saga, const struct where_view *view,
                          struct buf *out);
/* What an operator can do now; "" when there is nothing to do or nothing to wait for. */
void where_write_advice(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out);

#endif
