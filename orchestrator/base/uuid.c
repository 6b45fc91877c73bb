#include "base/uuid.h"

#include <ctype.h>
#include <string.h>

struct uuid uuid_v7(int64_t wall_ms, struct rng *rng, uint8_t last_byte)
{
    struct uuid uuid;
    uint64_t high = rng_next(rng);
    uint64_t low = rng_next(rng);
    for (int i = 0; i < 6; i++)
        uuid.bytes[i] = (uint8_t)((uint64_t)wall_ms >> (40 - 8 * i));
    uuid.bytes[6] = (uint8_t)(0x70 | (high & 0x0f));
    uuid.bytes[7] = (uint8_t)(high >> 8);
    for (int i = 0; i < 8; i++)
        uuid.bytes[8 + i] = (uint8_t)(low >> (8 * i));
    uuid.bytes[8] = (uint8_t)(0x80 | (uuid.bytes[8] & 0x3f));
    uuid.bytes[15] = last_byte;
    return uuid;
}

void uuid_format(const struct uuid *uuid, char text[UUID_TEXT_SIZE])
{
    static const char hex[] = "0123456789abcdef";
    char *out = text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *out++ = '-';
        *out++ = hex[uuid->bytes[i] >> 4];
        *out++ = hex[uuid->bytes[i] & 15];
    }
    *out = '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    int lower = tolower((unsigned char)c);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool uuid_parse(const char *text, struct uuid *ret)
{
    struct uuid uuid;
    if (strlen(text) != UUID_TEXT_SIZE - 1)
        return false;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            if (*text++ != '-')
                return false;
        }
        int high = hex_value(text[0]);
        int low = hex_value(text[1]);
        if (high < 0 || low < 0)
            return false;
        uuid.bytes[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    *ret = uuid;
    return true;
}
