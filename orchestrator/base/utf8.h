/* UTF-8 as RFC 3629 defines it: no surrogates, no overlong forms. Any thread. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Well-formed? NUL bytes count as a character (use utf8_is_text to refuse them). */
bool utf8_is_valid(const char *text, size_t size);
/* Well-formed and free of control characters (U+0000-001F, U+007F-009F)? */
bool utf8_is_text(const char *text, size_t size);
/* Largest n <= limit and <= size at which well-formed text may be cut without splitting a
 * character. */
size_t utf8_cut(const char *text, size_t size, size_t limit);

#endif
