#include "effect_log.h"

#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int effect_log_open(const char *path, int *ret_fd, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerror(errno));
    *ret_fd = fd;
    return 0;
}

int effect_log_check_word(const char *field, const char *text, struct err *err)
{
    size_t size = strlen(text);
    if (size > 0 && size <= 256 && utf8_is_text(text, size) && !strchr(text, ' '))
        return 0;
    return err_field(err, field, "%s must be one word", field);
}

int effect_log_write(int fd, const char *what, const char *idempotency_key,
                     const char *business_key, struct err *err)
{
    struct timespec now;
    struct tm utc;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
    if (!gmtime_r(&now.tv_sec, &utc))
        return err_set(err, ERR_INTERNAL, "effect log: no calendar time");
    char line[640];
    int size = snprintf(line, sizeof line, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s %s\n",
                        utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                        utc.tm_sec, now.tv_nsec / 1000000, what, idempotency_key, business_key);
    if (size < 0 || (size_t)size >= sizeof line)
        return err_set(err, ERR_INTERNAL, "effect log: line too long");
    ssize_t written = write(fd, line, (size_t)size);
    if (written != size)
        return err_set(err, ERR_INTERNAL, "effect log: %s", written < 0 ? strerror(errno) : "cut");
    return 0;
}

static bool take_line(const char *line, effect_log_take *take, void *ctx)
{
    char what[16], business_key[257];
    int end = 0;
    if (sscanf(line, "%*39s %15s %*256s %256s%n", what, business_key, &end) != 2 ||
        strcmp(line + end, "\n") != 0)
        return false;
    return take(ctx, what, business_key);
}

int effect_log_read(const char *path, effect_log_take *take, void *ctx, struct err *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return err_set(err, ERR_UNAVAILABLE, "effect log %s: %s", path, strerror(errno));
    char line[1024];
    int rc = 0;
    for (int number = 1; !rc && fgets(line, sizeof line, file); number++) {
        if (!strchr(line, '\n') || !take_line(line, take, ctx))
            rc = err_set(err, ERR_INVALID, "effect log %s: line %d cannot be read", path, number);
    }
    if (!rc && ferror(file))
        rc = err_set(err, ERR_UNAVAILABLE, "effect log %s: %s", path, strerror(errno));
    (void)fclose(file); /* only read */
    return rc;
}
