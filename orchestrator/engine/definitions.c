/* The revisions in memory, loaded on first use and kept: they are immutable. Which revision is
 * current is kept, too, until somebody registers another. */
#include "engine/engine_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "core/limits.h"

#include <stdio.h>
#include <string.h>

static bool key_make(const char *namespace_, const char *name, int32_t revision,
                     struct definition_key *ret)
{
    if (strlen(namespace_) > LIMIT_NAMESPACE_BYTES || strlen(name) > LIMIT_DEFINITION_NAME_BYTES)
        return false; /* nothing of that name can have been registered */
    memset(ret, 0, sizeof *ret);
    (void)snprintf(ret->text, sizeof ret->text, "%s/%s/%d", namespace_, name, revision);
    return true;
}

static struct definition_slot *find(struct engine *engine, const struct definition_key *key)
{
    struct definition_slot *slot = NULL;
    HASH_FIND_STR(engine->definitions, key->text, slot);
    return slot;
}

static struct definition_slot *get(struct engine *engine, const char *namespace_, const char *name,
                                   int32_t revision)
{
    struct definition_key key;
    if (!key_make(namespace_, name, revision, &key))
        return NULL;
    struct definition_slot *slot = find(engine, &key);
    if (slot)
        return slot;
    slot = mem_calloc(1, sizeof *slot);
    char *namespace_copy = mem_strdup(namespace_);
    char *name_copy = mem_strdup(name);
    if (slot && namespace_copy && name_copy) {
        slot->key = key;
        HASH_ADD_STR(engine->definitions, key.text, slot);
    }
    if (!slot || !hash_holds(&slot->hh)) {
        mem_free(slot);
        mem_free(namespace_copy);
        mem_free(name_copy);
        return NULL;
    }
    slot->namespace_ = namespace_copy;
    slot->name = name_copy;
    slot->revision = revision;
    return slot;
}

static const struct definition *resolved(struct engine *engine, const struct definition_slot *slot)
{
    if (!slot || slot->revision || !slot->current)
        return slot ? slot->definition : NULL;
    struct definition_key key;
    if (!key_make(slot->namespace_, slot->name, slot->current, &key))
        return NULL;
    const struct definition_slot *target = find(engine, &key);
    return target ? target->definition : NULL;
}

const struct definition *definitions_current(struct engine *engine, const char *namespace_,
                                             const char *name, const char **ret_pause)
{
    struct definition_key key;
    struct definition_slot *slot = key_make(namespace_, name, 0, &key) ? find(engine, &key) : NULL;
    *ret_pause = slot ? slot->pause_reason : NULL;
    return resolved(engine, slot);
}

static void queue_load(struct engine *engine, struct definition_slot *slot)
{
    if (slot->queued || slot->in_flight)
        return;
    slot->queued = true;
    slot->next_to_load = NULL;
    *engine->definitions_last = slot;
    engine->definitions_last = &slot->next_to_load;
}

void definitions_with(struct engine *engine, const char *namespace_, const char *name,
                      int32_t revision, struct definition_waiter *waiter)
{
    struct definition_slot *slot = get(engine, namespace_, name, revision);
    const struct definition *definition = resolved(engine, slot);
    if (definition) {
        waiter->resume(engine, waiter, definition, NULL);
        return;
    }
    if (!slot) {
        struct err err;
        err_reason(&err, ERR_NOT_FOUND, "DEFINITION_NOT_FOUND", "no such definition");
        waiter->resume(engine, waiter, NULL, &err);
        return;
    }
    waiter->next = slot->waiters;
    slot->waiters = waiter;
    queue_load(engine, slot);
}

void definitions_forget_current(struct engine *engine, const char *namespace_, const char *name)
{
    struct definition_key key;
    struct definition_slot *slot = key_make(namespace_, name, 0, &key) ? find(engine, &key) : NULL;
    if (slot)
        slot->current = 0;
}

void definitions_forget_all_current(struct engine *engine)
{
    for (struct definition_slot *slot = engine->definitions; slot; slot = slot->hh.next)
        slot->current = 0;
}

void definitions_fill_batch(struct engine *engine)
{
    while (engine->definitions_to_load && engine->batch_count < engine->options.batch_limit) {
        struct definition_slot *slot = engine->definitions_to_load;
        engine->definitions_to_load = slot->next_to_load;
        if (!engine->definitions_to_load)
            engine->definitions_last = &engine->definitions_to_load;
        slot->queued = false;
        slot->in_flight = true;
        memset(&slot->op, 0, sizeof slot->op);
        slot->op.kind = STORE_LOAD_DEFINITION;
        slot->op.namespace_ = slot->namespace_;
        slot->op.definition = slot->name;
        slot->op.revision = slot->revision;
        *engine->batch_last = &slot->op;
        engine->batch_last = &slot->op.next;
        engine->batch_count++;
    }
}

/* Stores what was loaded; the definition that it came to, or NULL with err. */
static const struct definition *take_in(struct engine *engine, struct definition_slot *slot,
                                        struct store_op *op, struct err *err)
{
    struct definition *decoded = NULL;
    if (engine->options.definition_decode(&op->content, &op->descriptors, &decoded, err))
        return NULL;
    decoded->revision = op->revision;
    struct definition_slot *target = get(engine, slot->namespace_, slot->name, op->revision);
    if (!target || handlers_attach(engine, decoded)) {
        (void)definition_free(decoded);
        err_set(err, ERR_NOMEM, "definition: out of memory");
        return NULL;
    }
    if (target->definition)
        (void)definition_free(decoded); /* immutable: the one in use is the same */
    else
        target->definition = decoded;
    if (!slot->revision) {
        slot->current = op->revision;
        mem_free(slot->pause_reason);
        slot->pause_reason = TAKE(op->pause_reason);
    }
    return target->definition;
}

void definitions_loaded(struct engine *engine, struct store_op *op)
{
    struct definition_slot *slot = CONTAINER(op, struct definition_slot, op);
    slot->in_flight = false;
    struct err err = { 0 };
    const struct definition *definition = NULL;
    if (op->result == STORE_OK) {
        definition = take_in(engine, slot, op, &err);
    } else if (op->result == STORE_NOT_FOUND) {
        err_reason(&err, ERR_NOT_FOUND, "DEFINITION_NOT_FOUND",
                   "no such definition; register it first");
    } else if (op->result == STORE_UNKNOWN || op->err.retryable) {
        if (slot->waiters)
            queue_load(engine, slot);
        store_op_done(op);
        return;
    } else {
        err = op->err;
    }
    store_op_done(op);
    struct definition_waiter *waiter = NULL;
    while (slot->waiters) { /* the newest is first: turned round, since starts keep their order */
        struct definition_waiter *newest = slot->waiters;
        slot->waiters = newest->next;
        newest->next = waiter;
        waiter = newest;
    }
    while (waiter) {
        struct definition_waiter *next = waiter->next;
        waiter->resume(engine, waiter, definition, &err);
        waiter = next;
    }
}

void definitions_fail_waiters(struct engine *engine)
{
    struct err err;
    err_reason(&err, ERR_UNAVAILABLE, "STOPPING", "the server stops");
    for (struct definition_slot *slot = engine->definitions; slot; slot = slot->hh.next)
        while (slot->waiters) {
            struct definition_waiter *waiter = slot->waiters;
            slot->waiters = waiter->next;
            waiter->resume(engine, waiter, NULL, &err);
        }
}

void definitions_free(struct engine *engine)
{
    struct definition_slot *slot, *next;
    HASH_ITER(hh, engine->definitions, slot, next)
    {
        HASH_DEL(engine->definitions, slot);
        (void)definition_free(slot->definition);
        mem_free(slot->namespace_);
        mem_free(slot->name);
        mem_free(slot->pause_reason);
        mem_free(slot);
    }
}
