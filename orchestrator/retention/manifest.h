/* What is in an archive file whose day is over. One owner thread. */
#ifndef RETENTION_MANIFEST_H
#define RETENTION_MANIFEST_H

#include "base/err.h"

#include <limits.h>

/* "sagas-....jsonl" becomes "sagas-....manifest.json". */
void manifest_name(const char *file, char ret[NAME_MAX + 1]);
/* Reads the file from its start and writes its manifest beside it, whole or not at all: both are on
 * the disk when it returns 0. Gives up as ERR_UNAVAILABLE once stop_fd is readable (-1: never). */
MUST_USE int manifest_write(int folder_fd, int file_fd, const char *file, int stop_fd,
                            struct err *err);

#endif
