#include "base/utf8.h"

#include <stdint.h>

/* Length of the character at p (1-4), 0 if it is malformed. */
static size_t utf8_char(const uint8_t *p, size_t left, uint32_t *ret_code)
{
    if (p[0] < 0x80) {
        *ret_code = p[0];
        return 1;
    }
    size_t size = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < size)
        return 0;
    uint32_t code = p[0] & (0xffu >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3fu);
    }
    static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (code < smallest[size] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    *ret_code = code;
    return size;
}

static bool utf8_scan(const char *text, size_t size, bool controls_allowed)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t at = 0; at < size;) {
        uint32_t code = 0;
        size_t step = utf8_char(p + at, size - at, &code);
        if (!step)
            return false;
        if (!controls_allowed && (code < 0x20 || (code >= 0x7f && code <= 0x9f)))
            return false;
        at += step;
    }
    return true;
}

bool utf8_is_valid(const char *text, size_t size)
{
    return utf8_scan(text, size, true);
}

bool utf8_is_text(const char *text, size_t size)
{
    return utf8_scan(text, size, false);
}

size_t utf8_cut(const char *text, size_t size, size_t limit)
{
    size_t at = size < limit ? size : limit;
    size_t start = at;
    while (start > 0 && start + 4 > at && ((uint8_t)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (start == 0)
        return at;
    uint8_t lead = (uint8_t)text[start - 1];
    size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return at - (start - 1) >= want ? at : start - 1;
}
