/* The bytes of protobuf, one record (tag and value) at a time: reading without a descriptor, and
 * writing. Never allocates while reading. Any thread. */
#ifndef SCHEMA_RECORD_H
#define SCHEMA_RECORD_H

#include "base/buf.h"
#include "schema/schema.h"

enum record_type {
    RECORD_VARINT,
    RECORD_64,
    RECORD_BYTES,
    RECORD_GROUP,
    RECORD_GROUP_END,
    RECORD_32
};

struct records { /* where we are in the bytes of a message, or of packed numbers */
    const uint8_t *data;
    size_t size, at;
};

struct record {
    uint32_t number; /* 0: not known */
    enum record_type type;
    uint64_t raw;        /* varint, or the bits of RECORD_64 and RECORD_32 */
    const uint8_t *data; /* RECORD_BYTES; borrowed */
    size_t size;
};

static inline bool records_left(const struct records *records)
{
    return records->at < records->size;
}

/* The next record; records_left. NULL, or what is wrong with it. */
MUST_USE const char *record_next(struct records *records, struct record *ret);
/* The next of packed numbers, `type` each; false: it is cut short or malformed. */
MUST_USE bool record_next_packed(struct records *records, enum record_type type, uint64_t *ret);

enum record_type record_type_of(enum schema_kind kind);
/* Can repeated ones be packed? */
static inline bool record_is_packable(enum schema_kind kind)
{
    enum record_type type = record_type_of(kind);
    return type != RECORD_BYTES && type != RECORD_GROUP;
}
static inline bool record_is_unsigned(enum schema_kind kind)
{
    return kind == KIND_UINT64 || kind == KIND_FIXED64 || kind == KIND_UINT32 ||
           kind == KIND_FIXED32;
}
/* A number that a closed enum does not declare makes the field an unknown one. */
bool record_is_known(const struct schema_field *field, const struct record *record);

/* What raw bits mean, by kind: whole numbers, enums and booleans. Unsigned 64-bit numbers are the
 * same bits. */
int64_t record_integer(enum schema_kind kind, uint64_t raw);
double record_real(enum schema_kind kind, uint64_t raw);
/* The other way. */
uint64_t record_raw_of_integer(enum schema_kind kind, int64_t value);
uint64_t record_raw_of_real(enum schema_kind kind, double value);

void record_put_varint(struct buf *out, uint64_t value);
void record_put_tag(struct buf *out, uint32_t number, enum record_type type);
/* Without a tag: as in packed ones. */
void record_put_raw(struct buf *out, enum record_type type, uint64_t raw);
void record_put_bytes(struct buf *out, uint32_t number, const void *data, size_t size);
/* A sub-message or packed numbers: what is appended between the two. */
size_t record_begin(struct buf *out, uint32_t number);
void record_end(struct buf *out, size_t begin);
/* Takes back what was appended since the buffer had that size. */
void record_cut(struct buf *out, size_t size);

#endif
