/* What is new of a saga that is watched, as lines of `where`. Text only, from two saga.v1.Saga in
 * FULL view. Any thread. */
#ifndef CTL_WATCH_TEXT_H
#define CTL_WATCH_TEXT_H

#include "ctl/where_text.h"

/* The lines that are not as they were. `before` NULL: all of them, with the title. "" where nothing
 * that a line shows has changed. */
void watch_write(const Saga__V1__Saga *before, const Saga__V1__Saga *saga,
                 const struct where_view *view, struct buf *out);

#endif
