#include "schema/payload_json.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 17, TEXT_SIZE = 40 };

/* One more in the last digit of "d.ddde+XX"; false: it would carry into a new digit. */
static bool round_up(char *text)
{
    char *end = strchr(text, 'e');
    for (char *digit = end - 1; digit >= text; digit--) {
        if (*digit == '.')
            continue;
        if (*digit != '9') {
            ++*digit;
            return true;
        }
        *digit = '0';
    }
    return false;
}

/* The fewest digits that read back as `value`, as "d.ddde+XX". The nearest decimal of a length may
 * read back as a neighbour although the next one above does not: below a power of two, numbers are
 * twice as dense as above. */
static void shortest(double value, char text[TEXT_SIZE])
{
    int least = value >= DBL_MIN ? DBL_DIG : 1; /* DBL_DIG digits always tell normal ones apart */
    for (int digits = least; digits <= DIGITS_MAX; digits++) {
        (void)snprintf(text, TEXT_SIZE, "%.*e", digits - 1, value);
        if (strtod(text, NULL) == value || (round_up(text) && strtod(text, NULL) == value))
            return;
    }
}

void json_double_write(struct buf *out, double value)
{
    char text[TEXT_SIZE], digits[DIGITS_MAX + 1] = "";
    if (signbit(value))
        buf_text(out, "-");
    if (value == 0) {
        buf_text(out, "0.0");
        return;
    }
    shortest(fabs(value), text);
    int count = 0;
    for (const char *c = text; *c != 'e'; c++)
        if (*c != '.')
            digits[count++] = *c;
    while (count > 1 && digits[count - 1] == '0')
        count--;
    int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10), point = exponent + 1;
    if (exponent < -4 || exponent >= 16)
        buf_printf(out, "%c%s%.*se%c%02d", digits[0], count > 1 ? "." : "", count - 1, digits + 1,
                   exponent < 0 ? '-' : '+', abs(exponent));
    else if (point <= 0)
        buf_printf(out, "0.%.*s%.*s", -point, "0000", count, digits);
    else if (count > point)
        buf_printf(out, "%.*s.%.*s", point, digits, count - point, digits + point);
    else
        buf_printf(out, "%.*s%.*s.0", count, digits, point - count, "000000000000000");
}

void json_float_write(struct buf *out, float value)
{
    char text[TEXT_SIZE];
    for (int digits = FLT_DIG; digits <= FLT_DECIMAL_DIG; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if ((float)strtod(text, NULL) == value)
            break;
    }
    json_double_write(out, strtod(text, NULL));
}

void json_text_write(struct buf *out, const char *text, size_t size)
{
    static const char letters[] = "btn.fr"; /* of U+0008 to U+000D */
    buf_text(out, "\"");
    size_t plain = 0; /* where the piece begins that needs no escape */
    for (size_t i = 0; i < size; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_append(out, text + plain, i - plain);
        plain = i + 1;
        if (c >= 0x20)
            buf_printf(out, "\\%c", c);
        else if (c >= '\b' && c <= '\r' && c != '\v')
            buf_printf(out, "\\%c", letters[c - '\b']);
        else
            buf_printf(out, "\\u%04x", c);
    }
    if (plain < size)
        buf_append(out, text + plain, size - plain);
    buf_text(out, "\"");
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

bool json_path_write(struct buf *out, const char *path, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char c = path[i];
        if (is_upper(c) || c == ',')
            return false;
        if (c == '_') {
            if (++i == size || !is_lower(path[i]))
                return false;
            c = (char)(path[i] - 'a' + 'A');
        }
        buf_append(out, &c, 1);
    }
    return size > 0;
}

bool json_path_read(struct buf *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '_')
            return false;
        if (is_upper(c)) {
            buf_text(out, "_");
            c = (char)(c - 'A' + 'a');
        }
        buf_append(out, &c, 1);
    }
    return size > 0;
}

bool json_is_null_value(const struct schema_field *field)
{
    return field->enumeration &&
           strcmp(field->enumeration->full_name, "google.protobuf.NullValue") == 0;
}

const struct schema_message *json_any_type(const struct schema *schema, const char *url,
                                           size_t size)
{
    char name[SCHEMA_NAME_BYTES + 1];
    const char *slash = memrchr(url, '/', size);
    const char *start = slash ? slash + 1 : url;
    size_t length = size - (size_t)(start - url);
    if (length >= sizeof name || memchr(start, '\0', length))
        return NULL;
    memcpy(name, start, length);
    name[length] = '\0';
    const struct schema_message *type = schema_message_find(schema, name);
    return type && !type->map_entry ? type : NULL;
}
