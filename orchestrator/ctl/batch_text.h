/* What sagactl batch shows: how far it is, on stderr, and what became of sagas, on stdout. thread:
 * the main thread. */
#ifndef CTL_BATCH_TEXT_H
#define CTL_BATCH_TEXT_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <saga/v1/operator.pb-c.h>

struct batch_progress {
    const char *what; /* "counting", "retried" */
    bool is_terminal; /* a bar that moves; else a line now and then */
    bool shown;       /* the line is not ended */
    int64_t begun_ms, shown_ms;
};
void batch_progress_begin(struct batch_progress *progress, const char *what, int64_t now_ms);
/* expected 0: not known. */
void batch_progress_show(struct batch_progress *progress,
                         const Saga__V1__RunBatchResponse *response, int64_t expected,
                         int64_t now_ms);
void batch_progress_end(struct batch_progress *progress);
/* "[########            ] 40 %, 400 of 1000, 3 refused, 600/s, 1 s left" */
void batch_progress_text(const Saga__V1__RunBatchResponse *response, int64_t expected,
                         int64_t elapsed_ms, struct buf *out);

/* A saga that refused. `clear`: a bar stands on the line. */
void batch_result_text(const Saga__V1__RunBatchResponse__Result *result, bool clear);
/* Any saga, as a line of JSON. */
MUST_USE int batch_result_json(const Saga__V1__RunBatchResponse__Result *result, struct err *err);
/* Consumed; the exit code. */
int batch_line_json(json_t *value);

#endif
