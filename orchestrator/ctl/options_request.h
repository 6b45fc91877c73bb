/* The request of SetOptions, of one saga and of a batch, from what is on the command line. */
#ifndef CTL_OPTIONS_REQUEST_H
#define CTL_OPTIONS_REQUEST_H

#include "ctl/ctl.h"

#include <saga/v1/operator.pb-c.h>

#define OPTIONS_REQUEST_OPTIONS                                                                    \
    { "deadline", "TIME", false, "of the saga: +2h, 2026-03-02T06:00:00Z, or none" },              \
        { "retry-for", "SPAN", false, "retry budget, from the first attempt on: 30m, 12h, 3d" },   \
        { "retry-initial", "SPAN", false, "the first back-off" },                                  \
        { "retry-cap", "SPAN", false, "the longest back-off" },                                    \
        { "max-attempts", "N", false, "tries of a budget; 0: its time alone decides" },            \
        { "lease", "SPAN", false, "length of a lease, 5s to 1h" },                                 \
        { "step", "NAME", false, "of this step (default: of every step)" },                        \
        { "operation", "WHAT", false, "action, compensation or probe (default: all)" },            \
        { "reason", "TEXT", false, "required: why; kept in the journal" },

/* What a request borrows. */
struct options_spans {
    Google__Protobuf__Duration retry_for, retry_initial, retry_cap, lease;
    Google__Protobuf__Timestamp deadline;
};

/* All but saga and actor. ERR_INVALID */
MUST_USE int options_request_read(const struct ctl_arguments *arguments,
                                  struct options_spans *spans, Saga__V1__SetOptionsRequest *request,
                                  struct err *err);

#endif
