/* Lists of columns that several statements share. The decoder (store/decode.c) reads them by
 * position.
 */
#ifndef STORE_COLUMNS_H
#define STORE_COLUMNS_H

#define SAGA_COLUMNS                                                                               \
    "s.owner, s.saga_uid, s.namespace, s.definition, s.revision, s.saga_id, s.run, s.state,"       \
    " s.phase, s.doubt, s.park_reason, s.park_step_index, s.park_code, s.park_message, "           \
    "s.related_saga,"                                                                              \
    " s.started_at, s.updated_at, s.deadline_at, s.ended_at, s.start_at, s.labels::text"

#endif
