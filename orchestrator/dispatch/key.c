#include "dispatch/key.h"

#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

int idempotency_key(const char *namespace_, const char *definition, const char *saga_id,
                    int32_t run, const char *step, enum operation operation, int32_t generation,
                    char ret_key[IDEMPOTENCY_KEY_SIZE])
{
    char run_text[16], generation_text[16];
    (void)snprintf(run_text, sizeof run_text, "%d", run);
    const char *name = operation_name(operation);
    bool fresh = generation > 0;
    if (fresh)
        (void)snprintf(generation_text, sizeof generation_text, "%d", generation);
    /* Each field with its NUL; the last without. */
    const struct sha256_part parts[] = {
        { namespace_, strlen(namespace_) + 1 },
        { definition, strlen(definition) + 1 },
        { saga_id, strlen(saga_id) + 1 },
        { run_text, strlen(run_text) + 1 },
        { step, strlen(step) + 1 },
        { name, strlen(name) + fresh },
        { generation_text, fresh ? strlen(generation_text) : 0 },
    };
    uint8_t digest[32];
    if (sha256(parts, ARRAY_LEN(parts), digest))
        return -1;
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        ret_key[i * 2] = hex[digest[i] >> 4];
        ret_key[i * 2 + 1] = hex[digest[i] & 15];
    }
    ret_key[IDEMPOTENCY_KEY_SIZE - 1] = '\0';
    return 0;
}
