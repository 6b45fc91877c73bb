#include "ctl/zone.h"

#include "ctl/arguments.h"
#include "wire/json_scalars.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int ctl_zone_set(const char *zone, struct err *err)
{
    char path[320];
    const char *folder = getenv("TZDIR");
    bool is_name = *zone && *zone != '/' && !strstr(zone, "..");
    (void)snprintf(path, sizeof path, "%s/%s", folder ? folder : "/usr/share/zoneinfo", zone);
    /* The C library takes a zone that it does not know for UTC, and says nothing. */
    bool is_known = strcmp(zone, "UTC") == 0 || (is_name && access(path, R_OK) == 0);
    if (!is_known)
        return err_set(err, ERR_INVALID,
                       "--tz: this machine knows no time zone \"%.100s\" (e.g. Europe/Berlin, UTC)",
                       zone);
    if (setenv("TZ", zone, 1) != 0)
        return err_set(err, ERR_NOMEM, "out of memory");
    tzset();
    return 0;
}

static bool reads_as(time_t at, const struct tm *wanted)
{
    struct tm back;
    return localtime_r(&at, &back) && back.tm_year == wanted->tm_year &&
           back.tm_mon == wanted->tm_mon && back.tm_mday == wanted->tm_mday &&
           back.tm_hour == wanted->tm_hour && back.tm_min == wanted->tm_min &&
           back.tm_sec == wanted->tm_sec;
}

/* When a clock on the wall shows this, which must be once. */
static int read_wall(const char *option, const char *text, const struct tm *wanted, int64_t *ret_ms,
                     struct err *err)
{
    time_t found[2];
    size_t count = 0;
    for (int summer = 0; summer < 2; summer++) {
        struct tm tm = *wanted;
        tm.tm_isdst = summer;
        time_t at = mktime(&tm);
        if (at != -1 && reads_as(at, wanted) && (count == 0 || found[0] != at))
            found[count++] = at;
    }
    if (count == 1) {
        *ret_ms = (int64_t)found[0] * 1000;
        return 0;
    }
    return err_set(
        err, ERR_INVALID,
        "--%s: %s: give it with its offset from UTC, as 2026-10-25T02:30:00+02:00: \"%s\"", option,
        count ? "the clocks were put back, so there were two such times"
              : "there is no such local time",
        text);
}

/* Numbers at `places` of the text: digits where the form has them, the form's character elsewhere.
 */
static bool has_form(const char *text, const char *form)
{
    for (; *form && *text; form++, text++) {
        bool is_digit = *text >= '0' && *text <= '9';
        bool fits = *form == '0'   ? is_digit
                    : *form == ' ' ? *text == ' ' || *text == 'T'
                                   : *text == *form;
        if (!fits)
            return false;
    }
    return !*form && !*text;
}

static int two(const char *digits)
{
    return (digits[0] - '0') * 10 + (digits[1] - '0');
}

static bool read_local(const char *text, int64_t now_ms, struct tm *ret, bool *ret_today)
{
    static const char date_form[] = "0000-00-00", time_form[] = "00:00";
    bool with_time = has_form(text, "0000-00-00 00:00");
    bool with_seconds = has_form(text, "0000-00-00 00:00:00");
    *ret_today = has_form(text, time_form);
    struct tm tm = { 0 };
    if (*ret_today) {
        time_t now = (time_t)(now_ms / 1000);
        if (!localtime_r(&now, &tm))
            return false;
        tm.tm_hour = two(text);
        tm.tm_min = two(text + 3);
        tm.tm_sec = 0;
    } else if (with_time || with_seconds || has_form(text, date_form)) {
        tm.tm_year = two(text) * 100 + two(text + 2) - 1900;
        tm.tm_mon = two(text + 5) - 1;
        tm.tm_mday = two(text + 8);
        tm.tm_hour = with_time || with_seconds ? two(text + 11) : 0;
        tm.tm_min = with_time || with_seconds ? two(text + 14) : 0;
        tm.tm_sec = with_seconds ? two(text + 17) : 0;
    } else {
        return false;
    }
    *ret = tm;
    return tm.tm_hour < 24 && tm.tm_min < 60 && tm.tm_sec < 60;
}

int ctl_zone_time(const char *option, const char *text, int64_t now_ms, int64_t *ret_ms,
                  struct err *err)
{
    int64_t seconds, span_ms;
    int32_t nanos;
    struct tm tm;
    bool today;
    if (json_timestamp_read(text, &seconds, &nanos)) {
        *ret_ms = seconds * 1000 + nanos / 1000000;
        return 0;
    }
    if ((*text == '+' || *text == '-') && ctl_duration(text + 1, &span_ms)) {
        *ret_ms = now_ms + (*text == '+' ? span_ms : -span_ms);
        return 0;
    }
    if (!read_local(text, now_ms, &tm, &today))
        return err_set(
            err, ERR_INVALID,
            "--%s must be a time such as 2026-03-02T14:05:00Z, \"2026-03-02 14:05\", 14:05,"
            " +2h or -30m, not \"%.100s\"",
            option, text);
    int rc = read_wall(option, text, &tm, ret_ms, err);
    if (rc || !today || *ret_ms <= now_ms)
        return rc;
    struct tm day = tm; /* yesterday's, also on the first of a month */
    day.tm_mday--;
    day.tm_hour = 12;
    day.tm_isdst = -1;
    if (mktime(&day) == -1)
        return err_set(err, ERR_INVALID, "--%s: there is no such local time: \"%s\"", option, text);
    tm.tm_year = day.tm_year;
    tm.tm_mon = day.tm_mon;
    tm.tm_mday = day.tm_mday;
    return read_wall(option, text, &tm, ret_ms, err);
}
