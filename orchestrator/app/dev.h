/* `sagad dev`: everything on this machine with one command, for trying things out.
 * thread: the main thread. */
#ifndef APP_DEV_H
#define APP_DEV_H

#include "app/config.h"

/* A private PostgreSQL, an orchestrator on it, until a signal; then both end, the orchestrator
 * first. The data stays. */
MUST_USE int dev_run(const struct config *config, struct err *err);

#endif
