/* Loads, and the statements about nodes and who drives what. */
#include "sim/database_internal.h"
#include "sim/rows.h"
#include "sim/world.h"

#include <assert.h>
#include <string.h>

static void put_saga(struct request *request, const struct db_saga *saga)
{
    struct store_op *answer = &request->answer;
    struct store_saga *out = &answer->sagas[answer->saga_count++];
    out->row = rows_row(NULL, &saga->row);
    out->entries = rows_zeroed(saga->count, sizeof *out->entries);
    for (size_t i = 0; i < saga->count; i++)
        out->entries[out->entry_count++] = rows_entry(NULL, &saga->entries[i]);
    out->mine = request_is_owner(saga, request);
}

static void own_it(struct world *world, struct db_saga *saga, const struct request *request,
                   const char *why)
{
    world_trace(world, "database", "%s is now driven by %s (%s)", saga->row.saga_id,
                request->node_name, why);
    saga->owner = request->node_name;
    saga->wake_at_ms = 0;
    saga->waiting_handler = NULL;
}

static void take(struct world *world, struct request *request)
{
    struct db_saga *saga = database_saga(&world->database, &request->uid);
    request->answer.result = STORE_OK;
    request->answer.taken = false;
    if (!saga || saga_state_is_terminal(saga->row.state) || request_is_owner(saga, request))
        return;
    own_it(world, saga, request, "it was asked for");
    request->answer.taken = true;
    world_hit(world, HIT_TAKEN);
}

static void load_uid(struct world *world, struct request *request)
{
    struct db_saga *saga = database_saga(&world->database, &request->uid);
    if (!saga) {
        request->answer.result = STORE_NOT_FOUND;
        return;
    }
    request->answer.sagas = rows_zeroed(1, sizeof(struct store_saga));
    put_saga(request, saga);
    request->answer.result = STORE_OK;
}

static void load_key(struct world *world, struct request *request)
{
    const struct store_op *asked = &request->asked;
    const struct db_key *key =
        database_key(&world->database, asked->namespace_, asked->definition, asked->saga_id);
    if (!key) {
        request->answer.result = STORE_NOT_FOUND;
        return;
    }
    request->answer.key = key->key;
    request->answer.sagas = rows_zeroed(1, sizeof(struct store_saga));
    put_saga(request, database_saga(&world->database, &key->key.uid));
    request->answer.result = STORE_OK;
}

/* In the order (shard, uid): the first saga behind `after` (NULL: the first of all) that fits. */
static struct db_saga *next_saga(struct database *database, const struct uuid *after)
{
    struct db_saga *best = NULL;
    for (size_t i = 0; i < database->saga_count; i++) {
        struct db_saga *saga = &database->sagas[i];
        const struct uuid *uid = &saga->row.uid;
        if (after && (uuid_shard(uid) < uuid_shard(after) ||
                      (uuid_shard(uid) == uuid_shard(after) &&
                       memcmp(uid->bytes, after->bytes, sizeof uid->bytes) <= 0)))
            continue;
        if (!best || uuid_shard(uid) < uuid_shard(&best->row.uid) ||
            (uuid_shard(uid) == uuid_shard(&best->row.uid) &&
             memcmp(uid->bytes, best->row.uid.bytes, sizeof uid->bytes) < 0))
            best = saga;
    }
    return best;
}

static void own(struct world *world, struct request *request)
{
    const struct store_op *asked = &request->asked;
    const struct uuid *after = asked->from_start ? NULL : &asked->after;
    struct store_op *answer = &request->answer;
    answer->uids = rows_zeroed(asked->limit, sizeof *answer->uids);
    struct db_saga *saga;
    while (answer->uid_count < asked->limit && (saga = next_saga(&world->database, after))) {
        after = &saga->row.uid;
        if (!saga_state_is_terminal(saga->row.state) && request_is_owner(saga, request))
            answer->uids[answer->uid_count++] = saga->row.uid;
    }
    answer->result = STORE_OK;
}

static struct db_node *node_find(struct database *database, const char *name)
{
    for (size_t i = 0; i < database->node_count; i++)
        if (strcmp(database->nodes[i].name, name) == 0)
            return &database->nodes[i];
    return NULL;
}

/* By its last heartbeat; one that left has none. */
static bool node_is_dead(struct database *database, const char *name, int64_t now_ms,
                         int64_t dead_ms)
{
    const struct db_node *node = node_find(database, name);
    return node && now_ms - node->beat_at_ms > dead_ms;
}

static bool is_waited_for(const struct store_op *asked, const struct db_saga *saga, int64_t now_ms)
{
    if (saga->wake_at_ms && saga->wake_at_ms <= now_ms)
        return true;
    for (size_t i = 0; saga->waiting_handler && i < asked->handler_count; i++)
        if (strcmp(asked->handlers[i], saga->waiting_handler) == 0)
            return true;
    return false;
}

static void adopt(struct world *world, struct request *request, int64_t now_ms)
{
    const struct store_op *asked = &request->asked;
    struct store_op *answer = &request->answer;
    struct database *database = &world->database;
    answer->uids = rows_zeroed(asked->limit, sizeof *answer->uids);
    const struct uuid *after = NULL;
    struct db_saga *saga;
    while (answer->uid_count < asked->limit && (saga = next_saga(database, after))) {
        after = &saga->row.uid;
        if (saga_state_is_terminal(saga->row.state))
            continue;
        bool dead = saga->owner && !request_is_owner(saga, request) &&
                    node_is_dead(database, saga->owner, now_ms, asked->dead_ms);
        if (!dead && (saga->owner || !is_waited_for(asked, saga, now_ms)))
            continue;
        if (world_fault(world, FAULT_LOCKED_SKIPPED))
            continue;
        own_it(world, saga, request, dead ? "its node is dead" : "nobody drove it");
        world_hit(world, dead ? HIT_ADOPTED : HIT_FOUND_AGAIN);
        answer->uids[answer->uid_count++] = saga->row.uid;
    }
    answer->result = STORE_OK;
}

static void let_go(struct world *world, struct request *request)
{
    const struct store_op *asked = &request->asked;
    struct db_saga *saga = database_saga(&world->database, &request->uid);
    bool mine = saga && request_is_owner(saga, request) && saga->row.state == asked->state &&
                saga->row.phase == asked->phase && !saga_state_is_terminal(saga->row.state);
    request->answer.result = mine ? STORE_OK : STORE_LOST;
    if (!mine)
        return;
    saga->owner = NULL;
    saga->wake_at_ms = asked->wake_at_ms == INT64_MAX ? 0 : asked->wake_at_ms;
    saga->waiting_handler = asked->waiting_handler;
    world_trace(world, "database", "%s is let go by %s, waits for %s", saga->row.saga_id,
                request->node_name,
                saga->waiting_handler ? saga->waiting_handler
                : saga->wake_at_ms    ? "its time"
                                      : "a call");
    world_hit(world, HIT_LET_GO);
    invariants_found(world, saga);
}

static int32_t others_alive(struct database *database, const struct db_node *but, int64_t now_ms,
                            int64_t dead_ms)
{
    int32_t count = 0;
    for (size_t i = 0; i < database->node_count; i++)
        count += &database->nodes[i] != but &&
                 !node_is_dead(database, database->nodes[i].name, now_ms, dead_ms);
    return count;
}

static void heartbeat(struct world *world, struct request *request, int64_t now_ms)
{
    const struct store_op *asked = &request->asked;
    struct store_op *answer = &request->answer;
    struct database *database = &world->database;
    struct db_node *node = node_find(database, request->node_name);
    bool joins = asked->beat == STORE_BEAT_JOIN, leaves = asked->beat == STORE_BEAT_LEAVE;
    if (!node && database->node_count < DB_NODES_MAX) {
        node = &database->nodes[database->node_count++];
        *node = (struct db_node){ .name = request->node_name, .instance = asked->instance };
    }
    assert(node);
    if (!joins && memcmp(&node->instance, &asked->instance, sizeof asked->instance) != 0) {
        answer->result = STORE_LOST;
        world_hit(world, HIT_EXPELLED);
        return;
    }
    /* Against the clock after any wait: whoever adopted meanwhile saw it dead. */
    answer->was_dead =
        node_is_dead(database, node->name, db_clock_ms(world->now_ms), asked->dead_ms);
    node->instance = asked->instance;
    node->beat_at_ms = leaves ? 0 : now_ms;
    answer->nodes_alive = !leaves + others_alive(database, node, now_ms, asked->dead_ms);
    if (asked->beat != STORE_BEAT)
        world_trace(world, "database", "%s %s", request->node_name, joins ? "joins" : "leaves");
    answer->result = STORE_OK;
}

static void load_definition(struct world *world, struct request *request)
{
    const char *name = request->asked.definition;
    struct store_op *answer = &request->answer;
    if (!definitions_find(&world->definitions, name)) {
        answer->result = STORE_NOT_FOUND;
        return;
    }
    answer->content = (struct bytes){ (uint8_t *)rows_text(NULL, name), strlen(name) };
    answer->revision = 1;
    answer->result = STORE_OK;
}

void database_read(struct world *world, struct request *request, int64_t now_ms)
{
    switch (request->kind) {
    case STORE_LOAD_UID:
        if (request->load)
            take(world, request);
        else
            load_uid(world, request);
        return;
    case STORE_LOAD_KEY:
        load_key(world, request);
        return;
    case STORE_LOAD_DEFINITION:
        load_definition(world, request);
        return;
    case STORE_OWN:
        own(world, request);
        return;
    case STORE_ADOPT:
        adopt(world, request, now_ms);
        return;
    case STORE_LET_GO:
        let_go(world, request);
        return;
    case STORE_HEARTBEAT:
        heartbeat(world, request, now_ms);
        return;
    case STORE_HANDLERS:
    case STORE_HANDLER:
        database_handlers(world, request, now_ms);
        return;
    default: /* database_write */
        return;
    }
}

void database_execute(struct world *world, struct request *request, int64_t now_ms,
                      struct db_saga **ret_saga)
{
    *ret_saga = NULL;
    if (request->failed)
        return;
    request->answer.now_ms = now_ms;
    if (request->kind == STORE_START || request->kind == STORE_TRANSITION ||
        request->kind == STORE_EXTEND)
        database_write(world, request, now_ms, ret_saga);
    else
        database_read(world, request, now_ms);
    if (request->answer.result != STORE_OK && request->answer.result != STORE_EXISTS)
        request->answer.now_ms = 0;
}
