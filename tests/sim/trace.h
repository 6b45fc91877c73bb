/* What happened, one line each: "  12.345 db        O-1 #3 debit ACTION -> DONE". To a stream at
 * once, or kept so that the end can be printed. */
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

struct trace {
    FILE *out;        /* NULL: kept in `lines` */
    struct buf lines; /* owned */
    int64_t from_ms;  /* nothing is told before; times count from then */
};

void trace_line(struct trace *trace, int64_t at_ms, const char *who, const char *fmt, va_list args)
    __attribute__((format(printf, 4, 0)));
/* The last `count` lines; borrowed until the next line. */
const char *trace_tail(const struct trace *trace, size_t count);
void trace_done(struct trace *trace);

#endif
