#include "schema/derive_internal.h"

#include "base/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    TYPO_BYTES_MAX = 64,   /* longer names are compared as they are, or not at all */
    TIME_DIGITS_MAX = 9,   /* before the point and after it: no product overflows */
    TIME_DAYS_MAX = 36500, /* beyond every bound of definition_check */
};

#define MS_OF_DAY (INT64_C(24) * 3600 * 1000)

void derive_fault(struct faults *faults, const char *where, const char *fmt, ...)
{
    char text[FAULT_BYTES];
    va_list args;
    va_start(args, fmt);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started on the line above */
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    /* A text of the input may have been cut in the middle of a character. */
    text[utf8_cut(text, strlen(text), sizeof text - 1)] = '\0';
    faults->count++;
    faults->on_fault(faults->ctx, where, text);
}

struct closest derive_closest(const struct faults *faults, const char *wanted)
{
    bool is_looked_for = faults->count < HINTS_MAX && strlen(wanted) <= TYPO_BYTES_MAX;
    return (struct closest){ .wanted = is_looked_for ? wanted : NULL, .distance = SIZE_MAX };
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many letters must be put in, taken out or changed; upper and lower case are one. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t size = strlen(b);
    size_t row[TYPO_BYTES_MAX + 1]; /* from what was read of `a` to each beginning of `b` */
    for (size_t j = 0; j <= size; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < size; j++) {
            bool is_same = tolower((unsigned char)a[i]) == tolower((unsigned char)b[j]);
            size_t changed = diagonal + (is_same ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = least(changed, least(row[j], diagonal) + 1);
        }
    }
    return row[size];
}

void derive_closest_offer(struct closest *closest, const char *candidate)
{
    if (!closest->wanted || strlen(candidate) > TYPO_BYTES_MAX)
        return;
    size_t size = strlen(closest->wanted);
    size_t distance = edit_distance(closest->wanted, candidate);
    if (distance > (size < 6 ? 1 : size / 3) || distance >= closest->distance)
        return;
    closest->best = candidate;
    closest->distance = distance;
}

const char *derive_hint(const struct closest *closest, const char *otherwise, char text[HINT_BYTES])
{
    if (closest->best)
        (void)snprintf(text, HINT_BYTES, ", did you mean \"%s\"?", closest->best);
    else
        (void)snprintf(text, HINT_BYTES, "%s", otherwise);
    return text;
}

/* Digits from *text on; false: none, or more than fit. *ret_scale: 10 to the power of their number.
 */
static bool read_digits(const char **text, int64_t *ret, int64_t *ret_scale)
{
    size_t digits = strspn(*text, "0123456789");
    if (digits == 0 || digits > TIME_DIGITS_MAX)
        return false;
    *ret = 0;
    *ret_scale = 1;
    for (size_t i = 0; i < digits; i++) {
        *ret = *ret * 10 + ((*text)[i] - '0');
        *ret_scale *= 10;
    }
    *text += digits;
    return true;
}

static int64_t unit_ms(const char *unit)
{
    static const struct unit {
        const char *name;
        int64_t ms;
    } units[] = {
        { "ms", 1 }, { "s", 1000 }, { "m", 60 * 1000 }, { "h", 3600 * 1000 }, { "d", MS_OF_DAY },
    };
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (strcmp(units[i].name, unit) == 0)
            return units[i].ms;
    return 0;
}

const char *derive_time_read(const char *text, int64_t *ret_ms)
{
    static const char *const form =
        "is no time: write a number and its unit, as \"200ms\", \"5s\", \"1.5s\", \"10m\", \"24h\" "
        "or \"3d\"";
    int64_t whole, part = 0, scale = 1;
    if (!read_digits(&text, &whole, &scale))
        return form;
    scale = 1;
    if (*text == '.') {
        text++;
        if (!read_digits(&text, &part, &scale))
            return form;
    }
    int64_t unit = unit_ms(text);
    if (!unit)
        return form;
    if (part * unit % scale)
        return "is not in whole milliseconds: give it in them";
    int64_t ms = whole * unit + part * unit / scale;
    if (ms > TIME_DAYS_MAX * MS_OF_DAY)
        return "is longer than any time here may be: 366d at most";
    *ret_ms = ms;
    return NULL;
}

char *derive_snake(struct arena *arena, const char *name)
{
    size_t size = strlen(name);
    char *snake = arena_alloc(arena, 2 * size + 1);
    if (!snake)
        return NULL;
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)name[i];
        unsigned char before = i ? (unsigned char)name[i - 1] : '_';
        unsigned char next = (unsigned char)name[i + 1];
        /* a word begins at "tA", "2A", and at the last capital of "PPi" */
        bool is_start = isupper(c) &&
                        (islower(before) || isdigit(before) || (isupper(before) && islower(next)));
        if (is_start)
            snake[used++] = '_';
        snake[used++] = (char)tolower(c);
    }
    return snake;
}

void *derive_message_new(struct arena *arena, const ProtobufCMessageDescriptor *type)
{
    void *message = arena_alloc(arena, type->sizeof_message);
    if (message)
        type->message_init(message);
    return message;
}
