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

static int template_key(const struct saga *saga, const char *text, int32_t generation,
                        char ret_key[OPERATION_KEY_SIZE])
{
    const struct definition *definition = saga_definition(saga);
    struct buf key = { 0 };
    struct err err;
    int rc = definition->types
                 ? definition->types->ops->fill(definition, text, &saga_row(saga)->input,
                                                LIMIT_IDEMPOTENCY_KEY_BYTES, &key, &err)
                 : -1;
    if (!rc && generation > 0)
        buf_printf(&key, "#%d", generation);
    if (!rc && !key.failed)
        (void)snprintf(ret_key, OPERATION_KEY_SIZE, "%s", buf_cstr(&key)); /* fits */
    rc = rc || key.failed ? -1 : 0;
    buf_done(&key);
    return rc;
}

int operation_key(const struct saga *saga, size_t step, enum operation operation,
                  int32_t generation, char ret_key[OPERATION_KEY_SIZE])
{
    const struct saga_row *row = saga_row(saga);
    const struct definition *definition = saga_definition(saga);
    const struct operation_rule *rule = definition_rule(definition, step, operation);
    if (rule->key_template)
        return template_key(saga, rule->key_template, generation, ret_key);
    return idempotency_key(row->namespace_, row->definition, row->saga_id, row->run,
                           definition->steps[step].name, operation, generation, ret_key);
}
