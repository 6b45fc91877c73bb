/* Named points at which tests stop the world: in them nothing is half done by accident, and a
 * process that dies exactly there must be survived. Without a hook they cost one load.
 *
 *   before_commit    a batch was sent, its COMMIT was not
 *   after_commit     the answer to COMMIT was read, nothing was told to anyone
 *   after_reply      a start, a verb or acknowledgements were handed to gRPC
 *   after_task_sent  tasks were handed to gRPC
 *   inside_adoption  sagas were made this node's, not yet committed
 *   inside_migration a migration has run, not yet committed
 *   before_ingest    a batch of Kafka records is in hand, nothing of it was sent
 *   ingest_before_commit, ingest_after_commit   its COMMIT was not sent; was answered
 *   after_ingest     nobody was told of its sagas, nor the group of its offsets
 *   after_archive    sagas are in an archive and on the disk, their rows not yet deleted
 *   before_outbox_delete  events are known to be on their topic, and are in the database still
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stddef.h>

/* Tests: set before threads start. thread: called on whichever thread passes the point */
extern void (*fault_hook)(const char *point);

static inline void fault_point(const char *point)
{
    if (fault_hook)
        fault_hook(point);
}

#endif
