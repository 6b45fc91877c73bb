/* The files that purged sagas are written to before their rows go: one a day (UTC) and node,
 * "sagas-2026-11-30-NODE.jsonl", one JSON object a line. What archive_sync has returned for is on
 * the disk, and its file is in the folder. A crash between that and the delete writes a saga again:
 * a reader takes the last line of a uid.
 *
 * When the day is over the file gets a manifest, "sagas-2026-11-30-NODE.manifest.json": its lines,
 * bytes, SHA-256, and when the first and the last line were written. After that it never changes.
 *
 * A file is written by one process alone (flock). Any error leaves the file as it was before
 * archive_begin. One owner thread. */
#ifndef RETENTION_ARCHIVE_H
#define RETENTION_ARCHIVE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct archive;

/* The folder is looked for at the first line, and must be there. Strings are copied. stop_fd: once
 * it is readable a manifest that is being made is left to the next process; -1: none. */
MUST_USE int archive_new(const char *folder, const char *node, int stop_fd, struct archive **ret,
                         struct err *err);
struct archive *archive_free(struct archive *archive);

/* The file of this day, at its end. ERR_UNAVAILABLE with what to do: no folder, not allowed, held
 * by another process, closed by its manifest. */
MUST_USE int archive_begin(struct archive *archive, int64_t wall_ms, struct err *err);
/* Between begin and sync. `line` has no line end. */
MUST_USE int archive_add(struct archive *archive, const char *line, size_t size, struct err *err);
MUST_USE int archive_sync(struct archive *archive, struct err *err);
/* As it was before archive_begin. */
void archive_undo(struct archive *archive);
/* Name of the file in the folder; borrowed until the next archive_begin. */
const char *archive_name(const struct archive *archive);

/* Manifests of this node's files of days before. `ret_made`: how many (NULL: not wanted). */
MUST_USE int archive_close_days(struct archive *archive, int64_t wall_ms, size_t *ret_made,
                                struct err *err);

#endif
