#include "base/log.h"

#include "base/buf.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic int level_min = LOG_INFO;
static const char *const level_names[] = { "debug", "info", "warn", "error" };

void log_set_level(enum log_level level)
{
    atomic_store(&level_min, (int)level);
}

int log_level_parse(const char *name)
{
    for (int i = 0; i < LOG_LEVEL_COUNT; i++)
        if (strcmp(name, level_names[i]) == 0)
            return i;
    return -1;
}

static void append_value(struct buf *line, const char *value)
{
    if (*value && strcspn(value, " \"=\\\n\r\t") == strlen(value)) {
        buf_text(line, value);
        return;
    }
    buf_text(line, "\"");
    for (const char *p = value; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            buf_printf(line, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            buf_printf(line, "\\x%02x", c);
        else
            buf_append(line, p, 1);
    }
    buf_text(line, "\"");
}

void log_line(enum log_level level, const char *message, ...)
{
    if ((int)level < atomic_load_explicit(&level_min, memory_order_relaxed))
        return;
    struct timespec now;
    struct tm utc;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    char stamp[32];
    (void)strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    CLEANUP(buf_done) struct buf line = { .limit = 4096 };
    buf_printf(&line, "%s.%03ldZ %-5s %s", stamp, now.tv_nsec / 1000000, level_names[level],
               message);
    va_list args;
    va_start(args, message);
    for (const char *key; (key = va_arg(args, const char *));) {
        const char *value = va_arg(args, const char *);
        buf_printf(&line, " %s=", key);
        append_value(&line, value ? value : "-");
    }
    va_end(args);
    line.failed = false; /* an over-long line is cut */
    buf_text(&line, "\n");
    if (line.size && write(STDERR_FILENO, line.data, line.size) < 0)
        return; /* nobody left to tell */
}

const char *log_fmt(const char *fmt, ...)
{
    static _Thread_local char texts[4][512];
    static _Thread_local unsigned next;
    char *text = texts[next++ % 4];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof texts[0], fmt, args);
    va_end(args);
    return text;
}
