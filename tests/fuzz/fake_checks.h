/* What the files that play the reader share: what a service may let through to it. */
#ifndef FUZZ_FAKE_CHECKS_H
#define FUZZ_FAKE_CHECKS_H

#include "base/err.h"

#include <stddef.h>

struct engine_worker_event;

/* Text without control characters, of so many bytes. */
void check_name(const char *text, size_t least, size_t most);
void check_name_or_null(const char *text, size_t most);
void check_prose_or_null(const char *text);
/* What a worker reports. */
void check_reports(const struct engine_worker_event *event);
/* NOT_FOUND */
int refuse(struct err *err);
/* The reader is to answer errors. */
bool fake_reader_refuses(void);
/* An event of a worker is on its way, and later: all of them come back. */
void fake_worker_post(struct engine_worker_event *event);
void fake_workers_run(void);

#endif
