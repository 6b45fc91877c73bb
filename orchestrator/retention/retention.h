/* Purges sagas that ended long ago, in bounded batches on a connection and a thread of its own, and
 * forgets keys whose time is over. Writes what it does into the table `retention`, where every node
 * can read it.
 *
 * Never: a saga that is parked, in doubt, or has events that are not published; a key whose saga is
 * there. With an archive nothing is deleted that is not on the disk. Whatever stops it (a full
 * disk, a folder that is not there, no database) is said loudly, and tried again; sagad goes on.
 *
 * Pace: a batch is followed by a pause as long as it took, batches that take long become smaller,
 * and no more goes than twice of what ends (but 2,000 a second), so that others are hardly held up.
 * Several nodes share the work: each begins its rounds at another place, and what one has locked
 * the others leave out. */
#ifndef RETENTION_RETENTION_H
#define RETENTION_RETENTION_H

#include "base/err.h"

#include <stdint.h>

struct retention;

struct retention_options { /* copied */
    const char *conninfo;
    const char *node;
    int64_t age_ms;         /* after its end a saga is purged; -1: never */
    int64_t key_memory_ms;  /* after its end a purged saga's key is forgotten; -1: never */
    int64_t audit_ms;       /* age at which lines of the audit go; 0: never */
    const char *archive;    /* the folder; NULL or "": none */
    int64_t round_pause_ms; /* between two rounds; 0: as the age wants it */
    /* How many sagas have ended since any time, for the pace; NULL: as fast as batches go. Called
     * by the thread of retention until retention_stop has returned. */
    int64_t (*ended)(void *ctx);
    void *ended_ctx;
};

/* Does not wait for the database. */
MUST_USE int retention_start(const struct retention_options *options, struct retention **ret,
                             struct err *err);
/* Ends what it is at within moments, also when the database does not answer. NULL is fine; always
 * returns NULL. */
struct retention *retention_stop(struct retention *retention);

#endif
