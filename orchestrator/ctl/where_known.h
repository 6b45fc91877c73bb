/* What is known of a business key where no saga of it is there (any more), and beside those that
 * are: as text, from a saga.v1.LookUpKeyResponse. Any thread. */
#ifndef CTL_WHERE_KNOWN_H
#define CTL_WHERE_KNOWN_H

#include "ctl/where_text.h"

#include <saga/v1/kafka.pb-c.h>

/* Sagas that were purged, dead letters, and rules that may yet bring it. "" when there is nothing.
 */
void where_write_known(const Saga__V1__LookUpKeyResponse *known, const struct where_view *view,
                       struct buf *out);
/* Its dead letters alone. */
void where_write_letters(const Saga__V1__LookUpKeyResponse *known, const struct where_view *view,
                         struct buf *out);
/* The key was there: as a saga, or as a record that is a dead letter. */
bool where_has_known(const Saga__V1__LookUpKeyResponse *known);

#endif
