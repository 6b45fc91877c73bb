/* Shared by the files of the database. */
#ifndef SIM_DATABASE_INTERNAL_H
#define SIM_DATABASE_INTERNAL_H

#include "sim/database.h"

/* START, TRANSITION, EXTEND: *ret_saga is what may have changed, NULL: nothing. */
void database_write(struct world *world, struct request *request, int64_t now_ms,
                    struct db_saga **ret_saga);
/* Is the saga the node's that asks? */
bool request_is_owner(const struct db_saga *saga, const struct request *request);
/* The rest. */
void database_read(struct world *world, struct request *request, int64_t now_ms);

#endif
