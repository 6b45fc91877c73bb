#include "store/store.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

uint8_t store_shard(const char *namespace_, const char *definition, const char *saga_id)
{
    const char *const parts[] = { namespace_, definition, saga_id };
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (i > 0)
            hash *= UINT64_C(1099511628211); /* the 0x00 between the parts: XOR changes nothing */
        for (const char *at = parts[i]; *at; at++) {
            hash ^= (uint8_t)*at;
            hash *= UINT64_C(1099511628211);
        }
    }
    return (uint8_t)hash;
}

void store_granter(const char *node, const struct uuid *instance, char ret[STORE_GRANTER_SIZE])
{
    char text[UUID_TEXT_SIZE];
    uuid_format(instance, text);
    (void)snprintf(ret, STORE_GRANTER_SIZE, "%s/%s", node, strrchr(text, '-') + 1); /* 12 digits */
}

void store_saga_done(struct store_saga *saga)
{
    saga_row_done(&saga->row);
    for (size_t i = 0; i < saga->entry_count; i++)
        journal_entry_done(&saga->entries[i]);
    mem_free(saga->entries);
    mem_free(saga->park_step);
    *saga = (struct store_saga){ 0 };
}

void store_handlers_done(struct store_op *op)
{
    for (size_t i = 0; i < op->stored_count; i++)
        mem_free(op->stored[i].times);
    mem_free(op->stored);
    op->stored = NULL;
    op->stored_count = 0;
}

void store_op_done(struct store_op *op)
{
    store_handlers_done(op);
    for (size_t i = 0; i < op->saga_count; i++)
        store_saga_done(&op->sagas[i]);
    mem_free(op->sagas);
    mem_free(op->uids);
    mem_free(op->content.data);
    mem_free(op->descriptors.data);
    mem_free(op->pause_reason);
    op->sagas = NULL;
    op->uids = NULL;
    op->saga_count = op->uid_count = 0;
    op->content = op->descriptors = (struct bytes){ NULL, 0 };
    op->pause_reason = NULL;
}
