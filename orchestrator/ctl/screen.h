/* Text for people: cells that are safe on a terminal, tables, times with their age, states in
 * colour. Builds text only; prints nothing. Any thread. */
#ifndef CTL_SCREEN_H
#define CTL_SCREEN_H

#include "base/buf.h"

#include <google/protobuf/timestamp.pb-c.h>

enum screen_style { STYLE_PLAIN, STYLE_GOOD, STYLE_BUSY, STYLE_BAD, STYLE_FAINT, STYLE_BOLD };

/* Appends text without its control characters (each becomes a blank or a '?'): what came from a
 * worker must not steer a terminal. */
void screen_text(struct buf *out, const char *text);
/* The same in a style, which `color` switches on. */
void screen_styled(struct buf *out, const char *text, enum screen_style style, bool color);

enum { TABLE_COLUMNS_MAX = 10 };

struct table_cell {
    char *text; /* owned */
    enum screen_style style;
};
struct table {
    const char *const *headers; /* borrowed; `columns` of them */
    size_t columns;
    struct table_cell *cells; /* owned */
    size_t count, capacity;
    bool failed; /* out of memory */
};
/* Row by row: as many calls as there are columns. NULL is an empty cell. */
void table_cell(struct table *table, const char *text, enum screen_style style);
FMT(2, 3) void table_cellf(struct table *table, const char *fmt, ...);
/* Columns as wide as they must be, two blanks between, no blank at the end of a line. Each line
 * starts with `indent`. */
void table_write(const struct table *table, const char *indent, bool color, struct buf *out);
void table_done(struct table *table);

/* "2026-03-02 14:05:11 (3 min ago)" in local time; "-" for NULL. */
void screen_time(struct buf *out, const Google__Protobuf__Timestamp *time, int64_t now_ms);
/* "12 s", "3 min", "2 h 5 min", "3 days". Negative counts as 0. */
void screen_span(struct buf *out, int64_t ms);
int64_t screen_time_ms(const Google__Protobuf__Timestamp *time);

/* An argument as a shell takes it: quoted where it must be. */
void screen_shell_word(struct buf *out, const char *word);

#endif
