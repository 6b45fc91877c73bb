#include "wire/json_scalars.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NANOS = 1000000000, DAY = 86400 };
#define DURATION_SECONDS_MAX  INT64_C(315576000000)
#define TIMESTAMP_SECONDS_MIN INT64_C(-62135596800) /* 0001-01-01 */
#define TIMESTAMP_SECONDS_MAX INT64_C(253402300799) /* 9999-12-31 */

void json_base64_write(struct buf *out, const void *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t group = (uint32_t)bytes[i] << 16;
        group |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        group |= left > 2 ? bytes[i + 2] : 0;
        char text[4] = { digits[group >> 18], digits[(group >> 12) & 63],
                         left > 1 ? digits[(group >> 6) & 63] : '=',
                         left > 2 ? digits[group & 63] : '=' };
        buf_append(out, text, sizeof text);
    }
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    return c == '/' || c == '_' ? 63 : -1;
}

int json_base64_read(const char *text, size_t size, struct bytes *ret)
{
    size_t padding = 0;
    while (size && padding < 2 && text[size - 1] == '=') {
        size--;
        padding++;
    }
    if (size % 4 == 1 || (padding && (size + padding) % 4 != 0))
        return -1;
    CLEANUP(mem_free_p) uint8_t *data = size ? mem_calloc(1, size) : NULL;
    if (size && !data)
        return -2;
    size_t count = 0;
    uint32_t group = 0;
    for (size_t i = 0; i < size; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0)
            return -1;
        group = group << 6 | (uint32_t)digit;
        if (i % 4 != 0)
            data[count++] = (uint8_t)(group >> (6 - 2 * (i % 4)));
    }
    *ret = (struct bytes){ TAKE(data), count };
    return 0;
}

/* Days since 1970-01-01 of a date in the Gregorian calendar, years from 1 (Fliegel and Van Flandern
 * count years from March, so that the leap day is the last one). */
static int64_t days_from_date(int64_t year, int month, int day)
{
    int64_t march_year = month <= 2 ? year - 1 : year;
    int64_t march_month = (month + 9) % 12;
    return 365 * march_year + march_year / 4 - march_year / 100 + march_year / 400 +
           (153 * march_month + 2) / 5 + day - 1 - 719468;
}

static int days_in_month(int64_t year, int month)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

static void date_from_days(int64_t days, int64_t *ret_year, int *ret_month, int *ret_day)
{
    int64_t year = 1970 + days / 366; /* a little low at worst for later dates, high for earlier */
    while (days_from_date(year + 1, 1, 1) <= days)
        year++;
    while (days_from_date(year, 1, 1) > days)
        year--;
    int64_t rest = days - days_from_date(year, 1, 1);
    int month = 1;
    for (; rest >= days_in_month(year, month); month++)
        rest -= days_in_month(year, month);
    *ret_year = year;
    *ret_month = month;
    *ret_day = (int)rest + 1;
}

/* ".250", ".000001", or nothing: 0, 3, 6 or 9 digits. */
static void fraction_write(int32_t nanos, char ret[12])
{
    if (nanos == 0)
        ret[0] = '\0';
    else if (nanos % 1000000 == 0)
        (void)snprintf(ret, 12, ".%03d", nanos / 1000000);
    else if (nanos % 1000 == 0)
        (void)snprintf(ret, 12, ".%06d", nanos / 1000);
    else
        (void)snprintf(ret, 12, ".%09d", nanos);
}

bool json_timestamp_write(int64_t seconds, int32_t nanos, char ret[JSON_TIME_SIZE])
{
    if (seconds < TIMESTAMP_SECONDS_MIN || seconds > TIMESTAMP_SECONDS_MAX || nanos < 0 ||
        nanos >= NANOS)
        return false;
    int64_t days = seconds / DAY;
    int64_t rest = seconds % DAY;
    if (rest < 0) {
        rest += DAY;
        days--;
    }
    int64_t year;
    int month, day;
    date_from_days(days, &year, &month, &day);
    char fraction[12];
    fraction_write(nanos, fraction);
    (void)snprintf(ret, JSON_TIME_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d%sZ", (int)year, month, day,
                   (int)(rest / 3600), (int)(rest / 60 % 60), (int)(rest % 60), fraction);
    return true;
}

/* Exactly `count` digits. */
static bool digits_read(const char **text, int count, int *ret)
{
    int value = 0;
    for (int i = 0; i < count; i++, (*text)++) {
        if (**text < '0' || **text > '9')
            return false;
        value = value * 10 + (**text - '0');
    }
    *ret = value;
    return true;
}

/* Nothing, or a point and 1 to 9 digits. */
static bool fraction_read(const char **text, int32_t *ret_nanos)
{
    *ret_nanos = 0;
    if (**text != '.')
        return true;
    (*text)++;
    int32_t unit = NANOS / 10;
    const char *first = *text;
    for (; **text >= '0' && **text <= '9'; (*text)++, unit /= 10) {
        if (unit == 0)
            return false;
        *ret_nanos += (**text - '0') * unit;
    }
    return *text != first;
}

static bool char_read(const char **text, const char *allowed, char *ret)
{
    if (**text == '\0' || !strchr(allowed, **text))
        return false;
    *ret = *(*text)++;
    return true;
}

static bool offset_read(const char **text, int *ret_seconds)
{
    char sign, colon;
    int hours, minutes;
    *ret_seconds = 0;
    if (!char_read(text, "Zz+-", &sign))
        return false;
    if (sign == 'Z' || sign == 'z')
        return true;
    if (!digits_read(text, 2, &hours) || !char_read(text, ":", &colon) ||
        !digits_read(text, 2, &minutes) || hours > 23 || minutes > 59)
        return false;
    *ret_seconds = (hours * 60 + minutes) * 60 * (sign == '-' ? -1 : 1);
    return true;
}

bool json_timestamp_read(const char *text, int64_t *ret_seconds, int32_t *ret_nanos)
{
    int year, month, day, hour, minute, second, offset;
    int32_t nanos;
    char separator;
    if (!digits_read(&text, 4, &year) || !char_read(&text, "-", &separator) ||
        !digits_read(&text, 2, &month) || !char_read(&text, "-", &separator) ||
        !digits_read(&text, 2, &day) || !char_read(&text, "Tt", &separator) ||
        !digits_read(&text, 2, &hour) || !char_read(&text, ":", &separator) ||
        !digits_read(&text, 2, &minute) || !char_read(&text, ":", &separator) ||
        !digits_read(&text, 2, &second) || !fraction_read(&text, &nanos) ||
        !offset_read(&text, &offset) || *text)
        return false;
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) ||
        hour > 23 || minute > 59 || second > 59)
        return false;
    int64_t seconds =
        days_from_date(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    if (seconds < TIMESTAMP_SECONDS_MIN || seconds > TIMESTAMP_SECONDS_MAX)
        return false;
    *ret_seconds = seconds;
    *ret_nanos = nanos;
    return true;
}

bool json_duration_write(int64_t seconds, int32_t nanos, char ret[JSON_TIME_SIZE])
{
    if (seconds < -DURATION_SECONDS_MAX || seconds > DURATION_SECONDS_MAX || nanos <= -NANOS ||
        nanos >= NANOS || (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0))
        return false;
    bool negative = seconds < 0 || nanos < 0;
    char fraction[12];
    fraction_write(nanos < 0 ? -nanos : nanos, fraction);
    (void)snprintf(ret, JSON_TIME_SIZE, "%s%" PRId64 "%ss", negative ? "-" : "",
                   seconds < 0 ? -seconds : seconds, fraction);
    return true;
}

bool json_duration_read(const char *text, int64_t *ret_seconds, int32_t *ret_nanos)
{
    bool negative = *text == '-';
    if (negative)
        text++;
    int64_t seconds = 0;
    const char *first = text;
    for (; *text >= '0' && *text <= '9'; text++) {
        seconds = seconds * 10 + (*text - '0');
        if (seconds > DURATION_SECONDS_MAX)
            return false;
    }
    int32_t nanos;
    if (text == first || !fraction_read(&text, &nanos) || strcmp(text, "s") != 0)
        return false;
    *ret_seconds = negative ? -seconds : seconds;
    *ret_nanos = negative ? -nanos : nanos;
    return true;
}

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static bool camel_case(const char *name, bool first_upper, const char *suffix,
                       char ret[JSON_NAME_SIZE])
{
    size_t size = 0;
    bool up = first_upper;
    for (; *name; name++) {
        if (*name == '_') {
            up = true;
            continue;
        }
        if (size + 1 >= JSON_NAME_SIZE)
            return false;
        ret[size++] = up ? upper(*name) : *name;
        up = false;
    }
    int added = snprintf(ret + size, JSON_NAME_SIZE - size, "%s", suffix);
    return added >= 0 && (size_t)added < JSON_NAME_SIZE - size;
}

bool json_field_name(const char *name, char ret[JSON_NAME_SIZE])
{
    return camel_case(name, false, "", ret);
}

bool json_field_is_map(const ProtobufCMessageDescriptor *parent,
                       const ProtobufCFieldDescriptor *field)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED || field->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;
    const ProtobufCMessageDescriptor *type = field->descriptor;
    size_t parent_size = strlen(parent->name);
    char entry[JSON_NAME_SIZE];
    return type->n_fields == 2 && strcmp(type->fields[0].name, "key") == 0 &&
           strcmp(type->fields[1].name, "value") == 0 &&
           strncmp(type->name, parent->name, parent_size) == 0 && type->name[parent_size] == '.' &&
           camel_case(field->name, true, "Entry", entry) &&
           strcmp(type->name + parent_size + 1, entry) == 0;
}

bool json_is_well_known(const ProtobufCMessageDescriptor *type, const char *name)
{
    static const char package[] = "google.protobuf.";
    return strncmp(type->name, package, sizeof package - 1) == 0 &&
           strcmp(type->name + sizeof package - 1, name) == 0;
}
