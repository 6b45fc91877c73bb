#include "ctl/screen.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR };

void screen_text(struct buf *out, const char *text)
{
    size_t size = strlen(text);
    if (utf8_is_text(text, size)) {
        buf_append(out, text, size);
        return;
    }
    bool valid = utf8_is_valid(text, size);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n' || c == '\t' || c == '\r') {
            buf_text(out, " ");
        } else if (c < 0x20 || c == 0x7f || (!valid && c >= 0x80)) {
            buf_text(out, "?");
        } else if (c == 0xc2 && (unsigned char)text[i + 1] < 0xa0) {
            buf_text(out, "?"); /* U+0080 to U+009F */
            i++;
        } else {
            buf_append(out, &text[i], 1);
        }
    }
}

static const char *style_code(enum screen_style style)
{
    static const char *const codes[] = {
        [STYLE_PLAIN] = "", [STYLE_GOOD] = "32", [STYLE_BUSY] = "33",
        [STYLE_BAD] = "31", [STYLE_FAINT] = "2", [STYLE_BOLD] = "1",
    };
    return codes[style];
}

void screen_styled(struct buf *out, const char *text, enum screen_style style, bool color)
{
    bool styled = color && style != STYLE_PLAIN;
    if (styled)
        buf_printf(out, "\033[%sm", style_code(style));
    screen_text(out, text);
    if (styled)
        buf_text(out, "\033[0m");
}

/* --- tables --------------------------------------------------------------------------------------
 */

void table_cell(struct table *table, const char *text, enum screen_style style)
{
    struct buf safe = { 0 };
    screen_text(&safe, text ? text : "");
    buf_append(&safe, "", 0); /* a block, for an empty cell as well */
    if (safe.failed || mem_grow((void **)&table->cells, &table->capacity, table->count,
                                sizeof *table->cells) != 0) {
        table->failed = true;
        buf_done(&safe);
        return;
    }
    table->cells[table->count++] = (struct table_cell){ (char *)safe.data, style };
}

void table_cellf(struct table *table, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args); /* cut is fine */
    va_end(args);
    text[utf8_cut(text, strlen(text), sizeof text - 1)] = '\0';
    table_cell(table, text, STYLE_PLAIN);
}

/* Characters, not bytes. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void write_row(const struct table *table, const struct table_cell *cells,
                      const size_t *widths, const char *indent, bool color, struct buf *out)
{
    size_t last = 0;
    for (size_t i = 0; i < table->columns; i++)
        if (cells[i].text[0])
            last = i;
    buf_text(out, indent);
    for (size_t i = 0; i <= last; i++) {
        screen_styled(out, cells[i].text, cells[i].style, color);
        size_t gap = widths[i] - width_of(cells[i].text) + 2;
        if (i < last)
            buf_printf(out, "%*s", (int)gap, "");
    }
    buf_text(out, "\n");
}

void table_write(const struct table *table, const char *indent, bool color, struct buf *out)
{
    struct table_cell headers[TABLE_COLUMNS_MAX];
    size_t widths[TABLE_COLUMNS_MAX];
    assert(table->columns > 0 && table->columns <= TABLE_COLUMNS_MAX);
    for (size_t i = 0; i < table->columns; i++) {
        headers[i] = (struct table_cell){ (char *)table->headers[i], STYLE_FAINT };
        widths[i] = width_of(table->headers[i]);
    }
    for (size_t i = 0; i < table->count; i++) {
        size_t width = width_of(table->cells[i].text);
        if (width > widths[i % table->columns])
            widths[i % table->columns] = width;
    }
    write_row(table, headers, widths, indent, color, out);
    for (size_t i = 0; i + table->columns <= table->count; i += table->columns)
        write_row(table, &table->cells[i], widths, indent, color, out);
    if (table->failed)
        buf_text(out, "(out of memory: rows are missing)\n");
}

void table_done(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        mem_free(table->cells[i].text);
    mem_free(table->cells);
    *table = (struct table){ 0 };
}

/* --- times ---------------------------------------------------------------------------------------
 */

int64_t screen_time_ms(const Google__Protobuf__Timestamp *time)
{
    return time->seconds * SECOND + time->nanos / 1000000;
}

void screen_span(struct buf *out, int64_t ms)
{
    if (ms < 0)
        ms = 0;
    if (ms < MINUTE)
        buf_printf(out, "%" PRId64 " s", ms / SECOND);
    else if (ms < HOUR)
        buf_printf(out, "%" PRId64 " min", ms / MINUTE);
    else if (ms < DAY && ms % HOUR >= MINUTE)
        buf_printf(out, "%" PRId64 " h %" PRId64 " min", ms / HOUR, ms % HOUR / MINUTE);
    else if (ms < DAY)
        buf_printf(out, "%" PRId64 " h", ms / HOUR);
    else
        buf_printf(out, "%" PRId64 " day%s", ms / DAY, ms < 2 * DAY ? "" : "s");
}

void screen_time(struct buf *out, const Google__Protobuf__Timestamp *time, int64_t now_ms)
{
    if (!time) {
        buf_text(out, "-");
        return;
    }
    struct tm local;
    char text[32];
    time_t seconds = (time_t)time->seconds;
    if (!localtime_r(&seconds, &local) ||
        !strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local)) {
        buf_printf(out, "%" PRId64 " s since 1970", time->seconds);
        return;
    }
    int64_t age = now_ms - screen_time_ms(time);
    buf_printf(out, "%s (%s", text, age < 0 ? "in " : "");
    screen_span(out, age < 0 ? -age : age);
    buf_text(out, age < 0 ? ")" : " ago)");
}

void screen_shell_word(struct buf *out, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-.:/@%+=,";
    if (*word && strspn(word, safe) == strlen(word)) {
        buf_text(out, word);
        return;
    }
    buf_text(out, "'");
    for (const char *p = word; *p; p++) {
        if (*p == '\'')
            buf_text(out, "'\\''");
        else
            buf_append(out, p, 1);
    }
    buf_text(out, "'");
}
