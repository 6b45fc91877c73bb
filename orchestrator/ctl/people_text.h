/* What waits for people, how far the guards may be purged, and who is connected, as text. Prints
 * nothing. Any thread. */
#ifndef CTL_PEOPLE_TEXT_H
#define CTL_PEOPLE_TEXT_H

#include "ctl/where_text.h"

#include <saga/v1/operator.pb-c.h>

/* One line a group, with the command for the saga that waits longest. */
void parked_write(const Saga__V1__ListParkedResponse *parked, const struct where_view *view,
                  struct buf *out);
/* The floor, what holds it down, and the statements that raise it and purge. */
void guard_floor_write(const Saga__V1__GetGuardFloorResponse *floor, const struct where_view *view,
                       struct buf *out);
/* Workers with what they serve, and the handlers that nobody here serves. */
void workers_write(const Saga__V1__ListWorkersResponse *workers, const struct where_view *view,
                   struct buf *out);

#endif
