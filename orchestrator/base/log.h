/* One line an event on stderr: time, level, message, then key=value pairs. Values are quoted where
 * they hold spaces, quotes or control characters. Any thread. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/cleanup.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_LEVEL_COUNT };

/* Lines below it are dropped. The default is LOG_INFO. */
void log_set_level(enum log_level level);
/* "debug", "info", "warn", "error"; -1 for anything else. */
int log_level_parse(const char *name);

/* log_line(LOG_WARN, "batch failed", "sqlstate", "55P03", "items", "12", NULL): pairs of strings,
 * ended by NULL; a NULL value prints as "-". */
void log_line(enum log_level level, const char *message, ...) __attribute__((sentinel));
/* For a value that must be formatted first: up to 511 bytes, borrowed until the fourth next call on
 * the same thread. */
FMT(1, 2) const char *log_fmt(const char *fmt, ...);

#endif
