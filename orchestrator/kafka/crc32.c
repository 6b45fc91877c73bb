#include "kafka/record.h"

#include <string.h>

/* The remainder of each half of a byte. */
static const uint32_t remainders[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

uint32_t kafka_crc32(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ remainders[crc & 15];
        crc = crc >> 4 ^ remainders[crc & 15];
    }
    return ~crc;
}

bool kafka_canary_takes(unsigned canary, const char *key, size_t size)
{
    return kafka_crc32(0, key, size) % 100 < canary;
}

uint32_t kafka_record_crc(const struct kafka_bytes *key, const struct kafka_bytes *value)
{
    uint8_t head[9] = { (uint8_t)(key->is_there | value->is_there << 1) };
    for (unsigned i = 0; i < 8; i++)
        head[8 - i] = (uint8_t)((uint64_t)key->size >> 8 * i);
    uint32_t crc = kafka_crc32(0, head, sizeof head);
    crc = kafka_crc32(crc, key->data, key->size);
    return kafka_crc32(crc, value->data, value->size);
}
