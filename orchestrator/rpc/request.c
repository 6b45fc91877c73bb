#include "rpc/request.h"

#include "base/sha256.h"
#include "base/utf8.h"
#include "core/limits.h"

#include <string.h>

enum { PAGE_VERSION = 1, PAGE_HEAD_BYTES = 2 + PAGE_DIGEST_BYTES };

static int check_length(const char *field, const char *text, size_t least, size_t most,
                        struct err *err)
{
    size_t size = strlen(text);
    if (size < least)
        return err_field(err, field, "%s: is required", field);
    if (size > most)
        return err_field(err, field, "%s: has %zu bytes, the limit is %zu", field, size, most);
    return 0;
}

int check_text(const char *field, const char *text, size_t least, size_t most, struct err *err)
{
    int rc = check_length(field, text, least, most, err);
    if (!rc && !utf8_is_text(text, strlen(text)))
        rc = err_field(err, field, "%s: control characters are not allowed", field);
    return rc;
}

int check_prose(const char *field, const char *text, size_t most, struct err *err)
{
    int rc = check_length(field, text, 0, most, err);
    for (const char *c = text; !rc && *c; c++) {
        bool is_control = (unsigned char)*c < 0x20 || *c == 0x7f;
        if (is_control && *c != '\n' && *c != '\t' && *c != '\r')
            rc = err_field(err, field, "%s: control characters are not allowed", field);
    }
    return rc;
}

int read_ref(const Saga__V1__SagaRef *message, struct store_ref *ret, struct err *err)
{
    if (!message)
        return err_field(err, "saga", "saga: is required");
    struct store_ref ref = { 0 };
    if (*message->uid) {
        if (!uuid_parse(message->uid, &ref.uid))
            return err_field(err, "saga.uid", "saga.uid: is not a UUID");
        ref.by_uid = true;
        *ret = ref;
        return 0;
    }
    int rc = check_text("saga.namespace", message->namespace_, 0, LIMIT_NAMESPACE_BYTES, err);
    if (!rc)
        rc =
            check_text("saga.definition", message->definition, 1, LIMIT_DEFINITION_NAME_BYTES, err);
    if (!rc)
        rc = check_text("saga.saga_id", message->saga_id, 1, LIMIT_SAGA_ID_BYTES, err);
    if (!rc && message->run < 0)
        rc = err_field(err, "saga.run", "saga.run: must not be negative: %d", message->run);
    if (rc)
        return rc;
    ref.namespace_ = namespace_or_default(message->namespace_);
    ref.definition = message->definition;
    ref.saga_id = message->saga_id;
    ref.run = message->run;
    *ret = ref;
    return 0;
}

int read_page_size(int32_t asked, size_t *ret, struct err *err)
{
    if (asked < 0 || asked > LIMIT_PAGE_ITEMS)
        return err_field(err, "page_size", "page_size: must be 0 to %d: %d", LIMIT_PAGE_ITEMS,
                         asked);
    *ret = asked ? (size_t)asked : PAGE_ITEMS_DEFAULT;
    return 0;
}

/* --- page tokens ------------------------------------------------------------------------------ */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

int page_filter_make(const struct sha256_part *parts, size_t count, struct page_filter *ret,
                     struct err *err)
{
    uint8_t digest[32];
    if (sha256(parts, count, digest))
        return err_set(err, ERR_NOMEM, "page token");
    memcpy(ret->digest, digest, sizeof ret->digest);
    return 0;
}

char *page_token_make(struct arena *arena, enum page_kind kind, const struct page_filter *filter,
                      const void *place, size_t size)
{
    uint8_t raw[PAGE_HEAD_BYTES + PAGE_PLACE_MAX] = { PAGE_VERSION, (uint8_t)kind };
    if (size > PAGE_PLACE_MAX)
        return NULL;
    memcpy(raw + 2, filter->digest, PAGE_DIGEST_BYTES);
    memcpy(raw + PAGE_HEAD_BYTES, place, size);
    size_t total = PAGE_HEAD_BYTES + size;
    char *token = arena_alloc(arena, (total * 4 + 2) / 3 + 1);
    if (!token)
        return NULL;
    size_t out = 0;
    for (size_t i = 0; i < total; i += 3) {
        uint32_t bits = (uint32_t)raw[i] << 16;
        if (i + 1 < total)
            bits |= (uint32_t)raw[i + 1] << 8;
        if (i + 2 < total)
            bits |= raw[i + 2];
        size_t count = i + 2 < total ? 4 : total - i + 1;
        for (size_t j = 0; j < count; j++)
            token[out++] = digits[bits >> (18 - 6 * j) & 63];
    }
    token[out] = '\0';
    return token;
}

/* -1 for what is no base64url, or too long. */
static int token_decode(const char *token, uint8_t *raw, size_t room, size_t *ret_size)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t size = 0;
    for (const char *c = token; *c; c++) {
        const char *digit = strchr(digits, *c);
        if (!digit)
            return -1;
        bits = bits << 6 | (uint32_t)(digit - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            if (size == room)
                return -1;
            raw[size++] = (uint8_t)(bits >> have);
        }
    }
    *ret_size = size;
    return 0;
}

int page_token_read(const char *token, enum page_kind kind, const struct page_filter *filter,
                    uint8_t ret_place[PAGE_PLACE_MAX], size_t *ret_size, struct err *err)
{
    if (!*token) {
        *ret_size = 0;
        return 0;
    }
    uint8_t raw[PAGE_HEAD_BYTES + PAGE_PLACE_MAX];
    size_t size = 0;
    if (token_decode(token, raw, sizeof raw, &size) || size <= PAGE_HEAD_BYTES ||
        raw[0] != PAGE_VERSION || raw[1] != kind)
        return err_field(err, "page_token", "page_token: is not a token of this method");
    if (memcmp(raw + 2, filter->digest, PAGE_DIGEST_BYTES) != 0)
        return err_field(err, "page_token", "page_token: belongs to another filter");
    *ret_size = size - PAGE_HEAD_BYTES;
    memcpy(ret_place, raw + PAGE_HEAD_BYTES, *ret_size);
    return 0;
}

void page_number_write(int64_t number, uint8_t ret[8])
{
    for (int i = 0; i < 8; i++)
        ret[i] = (uint8_t)((uint64_t)number >> (56 - 8 * i));
}

int64_t page_number_read(const uint8_t bytes[8])
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++)
        number = number << 8 | bytes[i];
    return (int64_t)number;
}

/* --- replies ---------------------------------------------------------------------------------- */

void *reply_new(struct arena *arena, const ProtobufCMessageDescriptor *type)
{
    void *message = arena_alloc(arena, type->sizeof_message);
    if (message)
        protobuf_c_message_init(type, message);
    return message;
}

void call_fail_memory(struct call *call)
{
    struct err err;
    (void)err_set(&err, ERR_NOMEM, "the request needs more memory than one request may have");
    call_fail(call, &err);
}
