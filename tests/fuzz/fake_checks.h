/* What the files that play the reader share: what a service may let through to it. */
#ifndef FUZZ_FAKE_CHECKS_H
#define FUZZ_FAKE_CHECKS_H

#include "base/err.h"

#include <stddef.h>

/* Text without control characters, of so many bytes. */
void check_name(const char *text, size_t least, size_t most);
void check_name_or_null(const char *text, size_t most);
void check_prose_or_null(const char *text);
/* NOT_FOUND */
int refuse(struct err *err);
/* The reader is to answer errors. */
bool fake_reader_refuses(void);

#endif
