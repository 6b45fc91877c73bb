#include "kafka/json_field.h"

#include "base/utf8.h"
#include "schema/payload.h"
#include "schema/record.h"
#include "schema/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A path of names, from the value that is looked at on; NULL: it is on no path. */
struct route {
    const char *names;
    size_t size; /* 0: the value is the end of it */
};

struct scan {
    const char *begin, *at, *end;
    unsigned depth;
    char path[96];   /* of the field, as err.field has it; "": none is looked for */
    struct buf name; /* of a member */
    struct buf *out; /* receives the field */
    bool is_there;
    struct err *err;
};

static int scan_value(struct scan *scan, const struct route *route);

/* ---- faults ---- */

static int malformed(struct scan *scan, const char *what)
{
    unsigned line = 1;
    const char *start = scan->begin;
    for (const char *p = scan->begin; p < scan->at; p++) {
        if (*p == '\n') {
            line++;
            start = p + 1;
        }
    }
    return err_set(scan->err, ERR_INVALID, "line %u, column %zu: %s", line,
                   (size_t)(scan->at - start) + 1, what);
}

FMT(2, 3) static int unfit(struct scan *scan, const char *fmt, ...)
{
    char text[128];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_field(scan->err, scan->path, "{%s}: %s", scan->path, text);
}

/* ---- text ---- */

static void skip_space(struct scan *scan)
{
    static const char space[] = { ' ', '\t', '\r', '\n' };
    while (scan->at < scan->end && memchr(space, *scan->at, sizeof space))
        scan->at++;
}

static bool take(struct scan *scan, char c)
{
    if (scan->at == scan->end || *scan->at != c)
        return false;
    scan->at++;
    return true;
}

/* Four hex digits; -1: they are none. */
static int32_t take_hex(struct scan *scan)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++, scan->at++) {
        if (scan->at == scan->end)
            return -1;
        char c = *scan->at;
        if (c >= '0' && c <= '9')
            value = value << 4 | (c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            value = value << 4 | ((c | 32) - 'a' + 10);
        else
            return -1;
    }
    return value;
}

static void put_character(struct buf *out, uint32_t c)
{
    uint8_t bytes[4];
    size_t size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t heads[] = { 0, 0x00, 0xc0, 0xe0, 0xf0 };
    for (size_t i = size; i-- > 1; c >>= 6)
        bytes[i] = (uint8_t)(0x80 | (c & 0x3f));
    bytes[0] = (uint8_t)(heads[size] | c);
    buf_append(out, bytes, size);
}

static int scan_unicode(struct scan *scan, struct buf *out)
{
    int32_t c = take_hex(scan);
    if (c >= 0xd800 && c < 0xdc00) {
        int32_t low = take(scan, '\\') && take(scan, 'u') ? take_hex(scan) : -1;
        c = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    if (c < 0 || (c >= 0xdc00 && c < 0xe000))
        return malformed(scan, "no character in \\u");
    if (out)
        put_character(out, (uint32_t)c);
    return 0;
}

static int scan_escape(struct scan *scan, struct buf *out)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (take(scan, 'u'))
        return scan_unicode(scan, out);
    const char *escape =
        scan->at < scan->end ? memchr(escapes, *scan->at, sizeof escapes - 1) : NULL;
    if (!escape)
        return malformed(scan, "no such escape");
    scan->at++;
    if (out)
        buf_append(out, &meant[escape - escapes], 1);
    return 0;
}

/* Behind its first quote; `out` NULL: it is passed over. */
static int scan_string(struct scan *scan, struct buf *out)
{
    for (;;) {
        const char *start = scan->at;
        while (scan->at < scan->end && (unsigned char)*scan->at >= 32 && *scan->at != '"' &&
               *scan->at != '\\')
            scan->at++;
        if (out)
            buf_append(out, start, (size_t)(scan->at - start));
        if (take(scan, '"'))
            return 0;
        if (!take(scan, '\\'))
            return malformed(scan, scan->at == scan->end ? "a string without its end"
                                                         : "a control character in a string");
        int rc = scan_escape(scan, out);
        if (rc)
            return rc;
    }
}

static size_t take_digits(struct scan *scan)
{
    const char *start = scan->at;
    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
        scan->at++;
    return (size_t)(scan->at - start);
}

static int scan_number(struct scan *scan, bool is_field)
{
    const char *start = scan->at;
    bool is_negative = take(scan, '-'), is_zero = take(scan, '0'), is_whole = true;
    if (!is_zero && !take_digits(scan))
        return malformed(scan, "a value is missing");
    if (take(scan, '.')) {
        is_whole = false;
        if (!take_digits(scan))
            return malformed(scan, "a digit is missing");
    }
    if (take(scan, 'e') || take(scan, 'E')) {
        is_whole = false;
        if (!take(scan, '-'))
            (void)take(scan, '+'); /* either sign, or none */
        if (!take_digits(scan))
            return malformed(scan, "a digit is missing");
    }
    if (!is_field)
        return 0;
    if (!is_whole || (is_negative && is_zero))
        return unfit(scan, "is a number that has no single spelling (a fraction, an exponent, -0)");
    buf_append(scan->out, start, (size_t)(scan->at - start));
    return 0;
}

/* true, false, null. */
static int scan_word(struct scan *scan, bool is_field)
{
    static const char *const words[] = { "true", "false", "null" };
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(scan->end - scan->at) < size || memcmp(scan->at, words[i], size) != 0)
            continue;
        scan->at += size;
        if (is_field && *words[i] == 'n')
            scan->is_there = false;
        else if (is_field)
            buf_text(scan->out, words[i]);
        return 0;
    }
    return malformed(scan, "a value is missing");
}

/* ---- values within values ---- */

/* The member of that name on the route? Then *ret is what is left of it. */
static bool is_on_route(const struct scan *scan, const struct route *route, struct route *ret)
{
    const char *dot = memchr(route->names, '.', route->size);
    size_t size = dot ? (size_t)(dot - route->names) : route->size;
    if (size != scan->name.size || memcmp(route->names, buf_cstr(&scan->name), size) != 0)
        return false;
    size_t taken = dot ? size + 1 : size;
    *ret = (struct route){ route->names + taken, route->size - taken };
    return true;
}

static int scan_member(struct scan *scan, const struct route *route, bool *found)
{
    struct route rest;
    buf_clear(&scan->name);
    skip_space(scan);
    if (!take(scan, '"'))
        return malformed(scan, "the name of a member is missing");
    int rc = scan_string(scan, route ? &scan->name : NULL);
    if (!rc && scan->name.failed)
        rc = err_set(scan->err, ERR_NOMEM, "JSON: out of memory");
    bool is_wanted = !rc && route && is_on_route(scan, route, &rest);
    skip_space(scan);
    if (!rc && !take(scan, ':'))
        rc = malformed(scan, "a : is missing");
    if (!rc && is_wanted && *found)
        rc = unfit(scan, "a member of that name is there twice");
    *found = *found || is_wanted;
    return rc ? rc : scan_value(scan, is_wanted ? &rest : NULL);
}

static int scan_members(struct scan *scan, const struct route *route)
{
    bool found = false;
    skip_space(scan);
    if (take(scan, '}'))
        return 0;
    for (;;) {
        int rc = scan_member(scan, route, &found);
        if (rc)
            return rc;
        skip_space(scan);
        if (take(scan, '}'))
            return 0;
        if (!take(scan, ','))
            return malformed(scan, "a , or } is missing");
    }
}

static int scan_elements(struct scan *scan)
{
    skip_space(scan);
    if (take(scan, ']'))
        return 0;
    for (;;) {
        int rc = scan_value(scan, NULL);
        if (rc)
            return rc;
        skip_space(scan);
        if (take(scan, ']'))
            return 0;
        if (!take(scan, ','))
            return malformed(scan, "a , or ] is missing");
    }
}

static int scan_nested(struct scan *scan, const struct route *route, bool is_object)
{
    scan->at++;
    if (scan->depth == PAYLOAD_DEPTH_MAX)
        return err_set(scan->err, ERR_LIMIT, "nested deeper than %d", PAYLOAD_DEPTH_MAX);
    if (route && (!is_object || !route->size))
        return unfit(scan, "meets %s", is_object ? "an object" : "a list");
    scan->depth++;
    int rc = is_object ? scan_members(scan, route) : scan_elements(scan);
    scan->depth--;
    return rc;
}

static int scan_value(struct scan *scan, const struct route *route)
{
    skip_space(scan);
    char c = '\0';
    if (scan->at < scan->end)
        c = *scan->at;
    if (c == '{' || c == '[')
        return scan_nested(scan, route, c == '{');
    if (route && route->size && c != 'n')
        return unfit(scan, "leads through what is no object");
    bool is_field = route != NULL;
    if (is_field)
        scan->is_there = true;
    if (c == '"') {
        scan->at++;
        return scan_string(scan, is_field ? scan->out : NULL);
    }
    if (c == '-' || (c >= '0' && c <= '9'))
        return scan_number(scan, is_field);
    return scan_word(scan, is_field);
}

static int scan_all(struct scan *scan, const struct route *route)
{
    if (!utf8_is_valid(scan->begin, (size_t)(scan->end - scan->begin)))
        return err_set(scan->err, ERR_INVALID, "is not valid UTF-8");
    int rc = scan_value(scan, route);
    skip_space(scan);
    if (!rc && scan->at < scan->end)
        rc = malformed(scan, "something follows the value");
    if (!rc && scan->out && scan->out->failed)
        rc = err_set(scan->err, ERR_NOMEM, "JSON: out of memory");
    buf_done(&scan->name);
    return rc;
}

/* ---- what others call ---- */

int json_field_check(const char *text, size_t size, struct err *err)
{
    if (!size)
        return err_set(err, ERR_INVALID, "line 1, column 1: a value is missing");
    struct scan scan = { .begin = text, .at = text, .end = text + size, .err = err };
    return scan_all(&scan, NULL);
}

int json_field_write(const char *text, size_t size, const char *path, size_t path_size,
                     struct buf *out, bool *ret_is_there, struct err *err)
{
    if (!size)
        return json_field_check(text, size, err);
    struct scan scan = { .begin = text, .at = text, .end = text + size, .out = out, .err = err };
    struct route route = { path, path_size };
    size_t before = out->size;
    (void)snprintf(scan.path, sizeof scan.path, "%.*s",
                   (int)utf8_cut(path, path_size, sizeof scan.path - 1), path);
    int rc = scan_all(&scan, &route);
    if (rc)
        record_cut(out, before);
    else
        *ret_is_there = scan.is_there;
    return rc;
}

static int fill_part(const char *text, size_t size, const struct template_part *part,
                     struct buf *out, struct err *err)
{
    size_t before = out->size;
    bool is_there = false;
    if (!part->is_path) {
        buf_append(out, part->text, part->size);
        return 0;
    }
    int rc = json_field_write(text, size, part->text, part->size, out, &is_there, err);
    if (rc || out->size > before || out->failed)
        return rc;
    char path[96];
    (void)snprintf(path, sizeof path, "%.*s",
                   (int)utf8_cut(part->text, part->size, sizeof path - 1), part->text);
    return err_field(err, path, "{%s}: is %s", path, is_there ? "empty" : "not there");
}

int json_template_fill(const char *text, size_t size, const char *template_, size_t max,
                       struct buf *out, struct err *err)
{
    size_t before = out->size;
    int rc = json_field_check(text, size, err);
    while (*template_ && !rc) {
        struct template_part part;
        rc = template_next(&template_, &part, err);
        if (!rc)
            rc = fill_part(text, size, &part, out, err);
        if (!rc && out->failed)
            rc = err_set(err, ERR_NOMEM, "template: out of memory");
        if (!rc && out->size - before > max)
            rc = err_set(err, ERR_INVALID, "longer than %zu bytes", max);
    }
    if (rc)
        record_cut(out, before);
    return rc;
}
