#include "app/config.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

/* What inih's two callbacks share. */
struct reading {
    struct config *config;
    FILE *file;
    unsigned line; /* the one that was handed to inih last */
    struct err *err;
    bool failed; /* err is set; nothing more is looked at */
};

static char *refuse_line(struct reading *reading, const char *what)
{
    reading->failed = true;
    (void)err_set(reading->err, ERR_INVALID, "the line %s", what);
    return NULL;
}

/* fgets for inih, which would cut long lines, and any line at a NUL byte, without a word: they are
 * refused here. */
static char *read_line(char *text, int size, void *ctx)
{
    struct reading *reading = ctx;
    int length = 0, c = 0;
    if (reading->failed)
        return NULL;
    reading->line++;
    while (c != '\n' && length + 1 < size && (c = getc(reading->file)) != EOF) {
        if (c == '\0')
            return refuse_line(reading, "holds a NUL byte");
        text[length++] = (char)c;
    }
    text[length] = '\0';
    if (c == '\n' || (length && c == EOF))
        return text;
    if (c != EOF && getc(reading->file) != EOF)
        return refuse_line(reading, "is too long");
    return length ? text : NULL;
}

static int take_value(void *ctx, const char *section, const char *name, const char *value)
{
    struct reading *reading = ctx;
    if (reading->failed)
        return 0;
    int id = config_find(name, CONFIG_FOR_SERVE | CONFIG_FOR_DEV);
    int rc;
    if (*section)
        rc = err_set(reading->err, ERR_INVALID, "[%s]: this file has no sections", section);
    else if (id < 0)
        rc = err_set(reading->err, ERR_INVALID, "unknown key \"%s\" (sagad --help lists them)",
                     name);
    else if (!(config_options[id].commands & reading->config->command)) {
        struct config other = { .command = config_options[id].commands };
        rc = config_set(&other, (enum config_id)id, CONFIG_FROM_FILE, value, reading->err);
        config_done(&other);
    } else {
        rc = config_set(reading->config, (enum config_id)id, CONFIG_FROM_FILE, value, reading->err);
    }
    reading->failed = rc != 0;
    return rc == 0;
}

int config_read_file(struct config *config, const char *path, struct err *err)
{
    struct reading reading = { .config = config, .err = err };
    reading.file = fopen(path, "re");
    if (!reading.file)
        return err_set(err, ERR_INVALID, "configuration file %s: %s", path, strerror(errno));
    int rc = ini_parse_stream(read_line, &reading, take_value, &reading);
    bool unreadable = ferror(reading.file) != 0;
    (void)fclose(reading.file); /* it was only read */
    if (reading.failed)
        return err_wrap(err, "%s, line %u", path, reading.line);
    if (unreadable)
        return err_set(err, ERR_INVALID, "configuration file %s: cannot be read", path);
    if (rc != 0)
        return err_set(err, ERR_INVALID, "%s, line %d: neither a comment nor \"key = value\"", path,
                       rc);
    return 0;
}
