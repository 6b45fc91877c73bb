#include "sim/database_internal.h"

#include "sim/rows.h"
#include "sim/world.h"

#include <string.h>

static const char *text_of(struct world *world, const char *text)
{
    return text ? world_text(world, text) : NULL;
}

static void copy_transition(struct world *world, struct request *request, const struct store_op *op)
{
    const struct transition *t = op->transition;
    request->transition = *t;
    request->uid = saga_row(op->saga)->uid;
    request->row = rows_row(world, saga_row(op->saga));
    request->deadline_ms = saga_definition(op->saga)->deadline_ms;
    if (t->finishes)
        request->finish = rows_entry(world, saga_entry(op->saga, t->finish_seq));
    request->entries = world_alloc(world, (t->append_count + 1) * sizeof *request->entries);
    for (size_t i = 0; t->append_seq && i < t->append_count; i++)
        request->entries[i] = rows_entry(world, saga_entry(op->saga, t->append_seq + (int64_t)i));
    request->transition.late.output = rows_bytes(world, &t->late.output);
    request->transition.late.error_code = text_of(world, t->late.error_code);
    request->transition.late.error_message = text_of(world, t->late.error_message);
}

struct request *request_new(struct world *world, struct node *node, struct store_op *op)
{
    struct request *request = world_alloc(world, sizeof *request);
    request->op = op;
    request->node = node;
    request->node_name = node->name;
    request->kind = op->kind;
    request->suspect = op->suspect;
    request->uid = op->uid;
    request->seq = op->seq;
    request->lease_ms = op->lease_ms;
    request->asked = *op;
    request->asked.next = NULL;
    request->asked.saga = NULL;
    request->asked.transition = NULL;
    request->asked.namespace_ = text_of(world, op->namespace_);
    request->asked.definition = text_of(world, op->definition);
    request->asked.saga_id = text_of(world, op->saga_id);
    request->asked.waiting_handler = text_of(world, op->waiting_handler);
    if (op->handler_count) {
        const char **names = world_alloc(world, op->handler_count * sizeof(char *));
        for (size_t i = 0; i < op->handler_count; i++)
            names[i] = text_of(world, op->handlers[i]);
        request->asked.handlers = names;
    }
    if (op->count_count) {
        struct store_handler_count *counts =
            world_alloc(world, op->count_count * sizeof *request->asked.counts);
        for (size_t i = 0; i < op->count_count; i++) {
            counts[i] = op->counts[i];
            counts[i].handler = text_of(world, op->counts[i].handler);
        }
        request->asked.counts = counts;
    }
    if (op->handler) {
        struct handler *handler = world_alloc(world, sizeof *handler);
        *handler = *op->handler;
        request->asked.handler = handler;
    }
    store_granter(node->name, &node->instance, request->granter);
    memcpy(request->input_digest, op->input_digest, sizeof op->input_digest);
    if (op->kind == STORE_START || op->kind == STORE_TRANSITION)
        copy_transition(world, request, op);
    return request;
}

static void note_taken(struct world *world, const struct request *request, const struct uuid *uid)
{
    struct db_saga *saga = database_saga(&world->database, uid);
    if (saga)
        saga->taken_at_ms[request->node - world->nodes] = world->now_ms;
}

static void note_copy(struct world *world, const struct request *request, const struct uuid *uid)
{
    struct db_saga *saga = database_saga(&world->database, uid);
    if (saga)
        saga->loaded_on[request->node - world->nodes] = request->node->store.generation;
}

/* What the node knows from now on. */
static void note_answer(const struct request *request)
{
    struct world *world = request->node->world;
    const struct store_op *answer = &request->answer;
    if (request->kind == STORE_START || request->kind == STORE_LOAD_UID)
        note_copy(world, request, &request->uid);
    if (request->kind == STORE_LOAD_KEY)
        note_copy(world, request, &answer->key.uid);
    if (answer->taken)
        note_taken(world, request, &request->uid);
    for (size_t i = 0; request->kind == STORE_ADOPT && i < answer->uid_count; i++)
        note_taken(world, request, &answer->uids[i]);
}

void request_deliver(struct request *request)
{
    struct store_op *op = request->op, *answer = &request->answer;
    if (request->load) { /* the load tells what became of both */
        if (answer->result != STORE_OK) {
            request->load->failed = true;
            request->load->answer = *answer;
        }
        request->load->answer.taken = answer->taken;
        return;
    }
    if (answer->result == STORE_OK) {
        note_answer(request);
        handlers_told(request->node, request);
    }
    op->result = answer->result;
    op->err = answer->err;
    op->now_ms = answer->now_ms;
    op->taken = answer->taken;
    op->key = answer->key;
    op->sagas = answer->sagas;
    op->saga_count = answer->saga_count;
    op->uids = answer->uids;
    op->uid_count = answer->uid_count;
    op->stored = answer->stored;
    op->stored_count = answer->stored_count;
    op->nodes_alive = answer->nodes_alive;
    op->was_dead = answer->was_dead;
    op->not_owner = answer->not_owner;
    op->content = answer->content;
    if (op->kind == STORE_LOAD_DEFINITION && op->result == STORE_OK)
        op->revision = answer->revision;
    *answer = (struct store_op){ 0 };
}

void request_drop(struct request *request)
{
    store_op_done(&request->answer);
    request->answer = (struct store_op){ 0 };
}

bool request_is_owner(const struct db_saga *saga, const struct request *request)
{
    return saga->owner && strcmp(saga->owner, request->node_name) == 0;
}

struct db_saga *database_saga(struct database *database, const struct uuid *uid)
{
    for (size_t i = 0; i < database->saga_count; i++)
        if (memcmp(&database->sagas[i].row.uid, uid, sizeof *uid) == 0)
            return &database->sagas[i];
    return NULL;
}

const struct db_key *database_key(const struct database *database, const char *namespace_,
                                  const char *definition, const char *saga_id)
{
    for (size_t i = 0; i < database->key_count; i++) {
        const struct db_key *key = &database->keys[i];
        if (strcmp(key->saga_id, saga_id) == 0 && strcmp(key->definition, definition) == 0 &&
            strcmp(key->namespace_, namespace_) == 0)
            return key;
    }
    return NULL;
}

struct journal_entry *database_entry(struct db_saga *saga, int64_t seq)
{
    if (seq >= 1 && (size_t)seq <= saga->count && saga->entries[seq - 1].seq == seq)
        return &saga->entries[seq - 1];
    for (size_t i = 0; i < saga->count; i++)
        if (saga->entries[i].seq == seq)
            return &saga->entries[i];
    return NULL;
}

struct saga *database_replay(struct world *world, const struct db_saga *saga, struct err *err)
{
    struct saga_row row = rows_row(NULL, &saga->row);
    struct journal_entry *entries = rows_zeroed(saga->count, sizeof *entries);
    for (size_t i = 0; i < saga->count; i++)
        entries[i] = rows_entry(NULL, &saga->entries[i]);
    const struct definition *definition =
        definitions_find(&world->definitions, saga->row.definition);
    struct saga *copy = NULL;
    if (saga_replay(definition, &row, entries, saga->count, &copy, err)) {
        saga_row_done(&row);
        for (size_t i = 0; i < saga->count; i++)
            journal_entry_done(&entries[i]);
    }
    mem_free(entries);
    return copy;
}

void database_done(struct database *database)
{
    (void)database; /* all of it is the world's memory */
}
