#include "faults.h"

#include <stdarg.h>
#include <stdio.h>

void faults_add(struct faults *faults, const struct story *story, int number, const char *fmt, ...)
{
    if (faults->count++ >= FAULTS_SHOWN)
        return;
    char id[STORY_ID_SIZE];
    char text[240];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args); /* a cut line still names the key */
    va_end(args);
    story_id_format(story, number, id);
    buf_printf(&faults->text, "  %s %s\n", number ? id : "books:", text);
}

void faults_print(const struct faults *faults)
{
    (void)printf("%s", buf_cstr(&faults->text));
    if (faults->count > FAULTS_SHOWN)
        (void)printf("  and %d more\n", faults->count - FAULTS_SHOWN);
}
