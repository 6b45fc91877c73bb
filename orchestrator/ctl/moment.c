#include "ctl/moment.h"

#include "ctl/arguments.h"
#include "wire/json_scalars.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static bool clock_fits(int hour, int minute, int second)
{
    return hour >= 0 && hour <= 23 && minute >= 0 && minute <= 59 && second >= 0 && second <= 59;
}

static bool local_ms(struct tm *local, int64_t *ret_ms)
{
    local->tm_isdst = -1; /* as the zone says for that day */
    time_t at = mktime(local);
    *ret_ms = (int64_t)at * 1000;
    return at != (time_t)-1;
}

/* "22:00" or "22:00:30": today, or yesterday if that is still to come. */
static bool read_clock(const char *text, int64_t now_ms, int64_t *ret_ms)
{
    int hour, minute, second = 0, end = 0, whole = 0;
    if (sscanf(text, "%2d:%2d%n:%2d%n", &hour, &minute, &end, &second, &whole) < 2)
        return false;
    if ((text[end] && (!whole || text[whole])) || !clock_fits(hour, minute, second))
        return false;
    time_t now = (time_t)(now_ms / 1000);
    struct tm local;
    if (!localtime_r(&now, &local))
        return false;
    local.tm_hour = hour;
    local.tm_min = minute;
    local.tm_sec = second;
    struct tm today = local;
    if (!local_ms(&today, ret_ms))
        return false;
    if (*ret_ms <= now_ms)
        return true;
    local.tm_mday--; /* mktime takes the day before the first as the last one of the month before */
    return local_ms(&local, ret_ms);
}

/* "2026-11-30", with or without a time behind a blank or a T. */
static bool read_date(const char *text, int64_t *ret_ms)
{
    struct tm local = { 0 };
    int day_end = 0, end = 0, whole = 0;
    char separator = ' ';
    int fields = sscanf(text, "%4d-%2d-%2d%n%c%2d:%2d%n:%2d%n", &local.tm_year, &local.tm_mon,
                        &local.tm_mday, &day_end, &separator, &local.tm_hour, &local.tm_min, &end,
                        &local.tm_sec, &whole);
    bool is_day = fields == 3 && !text[day_end];
    bool is_time =
        fields >= 6 && strchr(" T", separator) && (!text[end] || (fields == 7 && !text[whole]));
    if ((!is_day && !is_time) || local.tm_year < 1970 || local.tm_mon < 1 || local.tm_mon > 12 ||
        local.tm_mday < 1 || local.tm_mday > 31 ||
        !clock_fits(local.tm_hour, local.tm_min, local.tm_sec))
        return false;
    int day = local.tm_mday;
    local.tm_year -= 1900;
    local.tm_mon--;
    return local_ms(&local, ret_ms) && local.tm_mday == day; /* not "02-30" */
}

bool ctl_moment(const char *text, int64_t now_ms, int64_t *ret_ms)
{
    int64_t seconds, ms;
    int32_t nanos;
    if (json_timestamp_read(text, &seconds, &nanos))
        ms = seconds * 1000 + nanos / 1000000;
    else if (ctl_duration(text, &ms) && strpbrk(text, "smhd"))
        ms = now_ms - ms;
    else if (!read_clock(text, now_ms, &ms) && !read_date(text, &ms))
        return false;
    *ret_ms = ms;
    return true;
}
