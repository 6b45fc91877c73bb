#include "ctl/batch_text.h"

#include "ctl/ctl.h"
#include "ctl/screen.h"
#include "wire/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { BAR_CHARS = 20, LINE_MS = 10 * 1000, BAR_MS = 200, RATE_MIN_MS = 1000 };

void batch_progress_begin(struct batch_progress *progress, const char *what, int64_t now_ms)
{
    *progress = (struct batch_progress){
        .what = what, .is_terminal = isatty(STDERR_FILENO), .begun_ms = now_ms, .shown_ms = now_ms
    };
}

void batch_progress_text(const Saga__V1__RunBatchResponse *response, int64_t expected,
                         int64_t elapsed_ms, struct buf *out)
{
    int64_t so_far = response->done + response->refused;
    if (expected > 0) {
        int64_t part = so_far < expected ? so_far : expected; /* the set may have grown */
        int full = (int)(part * BAR_CHARS / expected);
        buf_text(out, "[");
        for (int i = 0; i < BAR_CHARS; i++)
            buf_text(out, i < full ? "#" : " ");
        buf_printf(out, "] %d %%, %" PRId64 " of %" PRId64, (int)(part * 100 / expected), so_far,
                   expected);
    } else {
        buf_printf(out, "%" PRId64, response->matched);
    }
    if (response->refused)
        buf_printf(out, ", %" PRId64 " refused", response->refused);
    if (so_far <= 0 || elapsed_ms < RATE_MIN_MS)
        return;
    double rate = (double)so_far * 1000 / (double)elapsed_ms;
    buf_printf(out, ", %.0f/s", rate);
    if (expected > so_far) {
        buf_text(out, ", ");
        screen_span(out, (int64_t)((double)(expected - so_far) / rate * 1000));
        buf_text(out, " left");
    }
}

void batch_progress_show(struct batch_progress *progress,
                         const Saga__V1__RunBatchResponse *response, int64_t expected,
                         int64_t now_ms)
{
    if (now_ms - progress->shown_ms < (progress->is_terminal ? BAR_MS : LINE_MS))
        return;
    CLEANUP(buf_done) struct buf text = { 0 };
    batch_progress_text(response, expected, now_ms - progress->begun_ms, &text);
    (void)fprintf(stderr, progress->is_terminal ? "\r\x1b[K%s: %s" : "%s: %s\n", progress->what,
                  buf_cstr(&text));
    progress->shown = progress->is_terminal;
    progress->shown_ms = now_ms;
}

void batch_progress_end(struct batch_progress *progress)
{
    if (progress->shown)
        (void)fputs("\r\x1b[K", stderr);
    progress->shown = false;
}

void batch_result_text(const Saga__V1__RunBatchResponse__Result *result, bool clear)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    screen_text(&text, result->definition);
    buf_text(&text, " ");
    screen_text(&text, result->saga_id);
    buf_printf(&text, " (run %d): ", result->run);
    screen_text(&text, result->message);
    if (*result->reason)
        buf_printf(&text, " [%s]", result->reason);
    buf_text(&text, "\n");
    if (clear)
        (void)fputs("\r\x1b[K", stderr);
    (void)fputs(buf_cstr(&text), stdout);
}

int batch_line_json(json_t *value)
{
    int failed = !value || json_dumpf(value, stdout, JSON_COMPACT) != 0 || putchar('\n') == EOF ||
                 fflush(stdout) != 0;
    json_decref(value);
    if (!failed)
        return 0;
    (void)fputs("sagactl: the output could not be written\n", stderr);
    return CTL_EXIT_FAILED;
}

int batch_result_json(const Saga__V1__RunBatchResponse__Result *result, struct err *err)
{
    json_t *value;
    if (wire_json_from_message(&result->base, &value, err) != 0)
        return (int)err->code;
    return batch_line_json(value) == 0 ? 0 : err_set(err, ERR_UNAVAILABLE, "stdout is closed");
}
