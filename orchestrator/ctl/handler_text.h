/* Handlers as text for people. Any thread. */
#ifndef CTL_HANDLER_TEXT_H
#define CTL_HANDLER_TEXT_H

#include "ctl/where_text.h"

#include <saga/v1/operator.pb-c.h>

/* "1,171,204" */
void handler_write_count(int64_t count, struct buf *out);
/* "600/s", "30/min", "10/h", "7 in 1000 s" */
void handler_write_rate(const Saga__V1__Rate *rate, struct buf *out);
/* "risk held since 02:03 by anna (the bank asked), 1,171,204 waiting", "risk released gradually,
 * 1,171,204 waiting, about 32 min at 600/s", "risk limited to 600/s, ..." */
void handler_write_state(const Saga__V1__Handler *handler, const struct where_view *view,
                         struct buf *out);
void handlers_write(const Saga__V1__ListHandlersResponse *handlers, const struct where_view *view,
                    struct buf *out);

#endif
