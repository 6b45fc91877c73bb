/* Filters put together from options. Any thread. */
#ifndef CTL_FILTER_TEXT_H
#define CTL_FILTER_TEXT_H

#include "ctl/arguments.h"
#include "ctl/moment.h"

/* Each is joined to what is there by AND. */
void filter_text_add(struct buf *filter, const char *text);
void filter_text_equal(struct buf *filter, const char *field, const char *value);
/* The option as a moment, if it is given: `compare` is "last_time >=". ERR_INVALID names the
 * option. */
MUST_USE int filter_text_time(struct buf *filter, const struct ctl_arguments *arguments,
                              const char *option, const char *compare, struct err *err);

#endif
