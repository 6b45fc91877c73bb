#include "ctl/definition_changes.h"

#include "ctl/screen.h"

#include <string.h>

static enum screen_style style_of(enum diff_severity severity)
{
    return severity == DIFF_BREAKING  ? STYLE_BAD
           : severity == DIFF_WARNING ? STYLE_BUSY
                                      : STYLE_FAINT;
}

void changes_add(void *ctx, enum diff_severity severity, const char *path, const char *text)
{
    struct changes *changes = ctx;
    struct buf *line = &changes->lines[severity];
    const char *name = diff_severity_name(severity);
    screen_styled(line, name, style_of(severity), changes->color);
    buf_printf(line, "%*s", (int)(sizeof "BREAKING" + 1 - strlen(name)), "");
    screen_text(line, path);
    buf_text(line, ": ");
    screen_text(line, text);
    buf_text(line, "\n");
    changes->counts.of[severity]++;
    if (!changes->json)
        changes->json = json_array();
    if (json_array_append_new(changes->json, json_pack("{s:s, s:s, s:s}", "severity", name, "path",
                                                       path, "text", text)) != 0)
        line->failed = true; /* out of memory */
}

void changes_add_told(struct changes *changes, Saga__V1__DefinitionChange *const *told,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        Saga__V1__ChangeSeverity severity = told[i]->severity;
        changes_add(changes,
                    severity == SAGA__V1__CHANGE_SEVERITY__CHANGE_SEVERITY_NOTE ? DIFF_NOTE
                    : severity == SAGA__V1__CHANGE_SEVERITY__CHANGE_SEVERITY_WARNING
                        ? DIFF_WARNING
                        : DIFF_BREAKING, /* so is what this program does not know */
                    told[i]->path, told[i]->text);
    }
}

void changes_write(const struct changes *changes, struct buf *out)
{
    for (size_t i = DIFF_SEVERITY_COUNT; i-- > 0;) {
        buf_text(out, buf_cstr(&changes->lines[i]));
        out->failed |= changes->lines[i].failed;
    }
}

void changes_write_counts(const struct diff_counts *counts, struct buf *out)
{
    static const char *const words[DIFF_SEVERITY_COUNT][2] = {
        [DIFF_NOTE] = { "note", "notes" },
        [DIFF_WARNING] = { "warning", "warnings" },
        [DIFF_BREAKING] = { "breaking change", "breaking changes" },
    };
    const char *comma = "";
    for (size_t i = DIFF_SEVERITY_COUNT; i-- > 0;) {
        if (!counts->of[i])
            continue;
        buf_printf(out, "%s%zu %s", comma, counts->of[i], words[i][counts->of[i] != 1]);
        comma = ", ";
    }
    if (!*comma)
        buf_text(out, "no difference");
}

void changes_done(struct changes *changes)
{
    for (size_t i = 0; i < DIFF_SEVERITY_COUNT; i++)
        buf_done(&changes->lines[i]);
    json_decref(changes->json);
    *changes = (struct changes){ 0 };
}
