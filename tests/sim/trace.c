#include "sim/trace.h"

#include <inttypes.h>

void trace_line(struct trace *trace, int64_t at_ms, const char *who, const char *fmt, va_list args)
{
    char text[1024];
    if (at_ms < trace->from_ms)
        return;
    at_ms -= trace->from_ms;
    (void)vsnprintf(text, sizeof text, fmt, args);
    if (trace->out) {
        fprintf(trace->out, "%5" PRId64 ".%03" PRId64 " %-10s %s\n", at_ms / 1000, at_ms % 1000,
                who, text);
        return;
    }
    buf_printf(&trace->lines, "%5" PRId64 ".%03" PRId64 " %-10s %s\n", at_ms / 1000, at_ms % 1000,
               who, text);
}

const char *trace_tail(const struct trace *trace, size_t count)
{
    const char *text = buf_cstr(&trace->lines);
    size_t at = trace->lines.size;
    while (at > 0 && count > 0) {
        at--;
        if (at > 0 && text[at - 1] == '\n')
            count--;
    }
    return text + at;
}

void trace_done(struct trace *trace)
{
    buf_done(&trace->lines);
}
