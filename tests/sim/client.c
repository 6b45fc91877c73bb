#include "sim/client.h"

#include "sim/rows.h"
#include "sim/world.h"

#include <stdio.h>
#include <string.h>

enum { ITEMS_MAX = 3 };

/* A call at one node. */
struct call {
    struct posted posted;
    struct world *world;
    struct node *node;
    struct business_key *key;
    int64_t invoked_ms;
    bool is_start;
    struct engine_start start;
    struct start_item items[ITEMS_MAX];
    struct engine_verb verb;
    char reason[32];
    struct timer arrives;
};

/* --- answers ---------------------------------------------------------------------------------- */

static const char *verb_name(enum engine_verb_kind verb)
{
    static const char *const names[] = {
        [ENGINE_VERB_CANCEL] = "cancel",   [ENGINE_VERB_RETRY] = "retry",
        [ENGINE_VERB_RESOLVE] = "resolve", [ENGINE_VERB_SKIP] = "skip",
        [ENGINE_VERB_ABANDON] = "abandon", [ENGINE_VERB_WAIT] = "wait",
    };
    return names[verb];
}

static const char *text_of(const struct err *err)
{
    return err->reason[0] ? err->reason : err->msg;
}

static void start_answered(struct call *call)
{
    struct world *world = call->world;
    for (size_t i = 0; i < call->start.count; i++) {
        const struct start_item *item = &call->items[i];
        world_trace(world, call->node->name, "answers start %s: %s", item->saga_id,
                    item->err.code == ERR_OK ? item->existed ? "existed" : "started"
                                             : text_of(&item->err));
        invariants_start(world, item);
        if (item->err.code == ERR_OK) {
            world_hit(world, item->existed ? HIT_START_EXISTED : HIT_CALL_OK);
            call->key->uid_known = true;
            call->key->uid = item->uid;
        } else {
            world_hit(world, item->err.code == ERR_EXISTS ? HIT_START_MISMATCH : HIT_CALL_REFUSED);
        }
    }
}

static void call_end(struct posted *posted, bool lost)
{
    struct call *call = CONTAINER(posted, struct call, posted);
    struct world *world = call->world;
    world->clients.open--;
    if (lost) {
        world_hit(world, HIT_CALL_UNKNOWN);
    } else if (call->is_start) {
        start_answered(call);
    } else {
        world_trace(world, call->node->name, "answers %s of %s: %s", verb_name(call->verb.verb),
                    call->key->saga_id,
                    call->verb.err.code == ERR_OK ? "OK" : text_of(&call->verb.err));
        invariants_verb(world, &call->verb, call->reason, call->invoked_ms);
        world_hit(world, call->verb.err.code == ERR_OK ? HIT_CALL_OK : HIT_CALL_REFUSED);
    }
    mem_free(call);
}

static void on_start_done(struct engine_event *event)
{
    struct engine_start *start = CONTAINER(event, struct engine_start, event);
    node_done(&CONTAINER(start, struct call, start)->posted);
}

static void on_verb_done(struct engine_event *event)
{
    struct engine_verb *verb = CONTAINER(event, struct engine_verb, event);
    node_done(&CONTAINER(verb, struct call, verb)->posted);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void on_arrives(struct world *world, struct timer *timer)
{
    struct call *call = CONTAINER(timer, struct call, arrives);
    struct engine_event *event = call->is_start ? &call->start.event : &call->verb.event;
    if (node_sleeps(call->node, timer, on_arrives))
        return;
    if (node_post(call->node, event, &call->posted))
        return;
    world->clients.open--;
    world_hit(world, HIT_CALL_UNKNOWN);
    mem_free(call);
}

static struct call *call_new(struct world *world, struct node *node, struct business_key *key)
{
    struct call *call = rows_zeroed(1, sizeof *call);
    call->world = world;
    call->node = node;
    call->key = key;
    call->invoked_ms = world->now_ms;
    call->posted.end = call_end;
    world->clients.open++;
    return call;
}

static void call_send(struct call *call)
{
    world_after(call->world, &call->arrives, world_between(call->world, 1, 3), on_arrives);
}

void clients_start(struct world *world, struct node *node, struct business_key *key,
                   const char *input)
{
    struct call *call = call_new(world, node, key);
    call->is_start = true;
    size_t count = world_chance(world, 150) ? ITEMS_MAX : 1; /* twice in one call is fine, too */
    for (size_t i = 0; i < count; i++)
        call->items[i] =
            (struct start_item){ .namespace_ = "default",
                                 .definition = key->definition,
                                 .saga_id = key->saga_id,
                                 .input = { (uint8_t *)world_text(world, input), strlen(input) } };
    call->start = (struct engine_start){ .items = call->items, .count = count };
    call->start.event = (struct engine_event){ .kind = ENGINE_START, .done = on_start_done };
    world_trace(world, "client", "starts %s of %s at %s", key->saga_id, key->definition,
                node->name);
    call_send(call);
}

void clients_verb(struct world *world, struct node *node, struct business_key *key,
                  enum engine_verb_kind verb, int64_t timeout_ms)
{
    struct call *call = call_new(world, node, key);
    (void)snprintf(call->reason, sizeof call->reason, "call %u", ++world->clients.calls);
    call->verb = (struct engine_verb){ .verb = verb,
                                       .by_uid = key->uid_known && world_chance(world, 500),
                                       .uid = key->uid,
                                       .namespace_ = "default",
                                       .definition = key->definition,
                                       .saga_id = key->saga_id,
                                       .actor = "client",
                                       .reason = call->reason,
                                       .timeout_ms = timeout_ms,
                                       .or_parked = world_chance(world, 500) };
    call->verb.event = (struct engine_event){ .kind = ENGINE_VERB, .done = on_verb_done };
    world_trace(world, "client", "%s %s at %s", verb_name(verb), key->saga_id, node->name);
    call_send(call);
}

/* --- by chance -------------------------------------------------------------------------------- */

static void call_everywhere(struct world *world, struct business_key *key)
{
    for (size_t i = 0; i < world->node_count; i++) {
        if (world_chance(world, 250))
            clients_start(world, &world->nodes[i], key, key->input);
        else
            clients_verb(world, &world->nodes[i], key,
                         world_chance(world, 500) ? ENGINE_VERB_RETRY : ENGINE_VERB_CANCEL, 0);
    }
}

/* The end of the back-off that the saga is in; 0: it is in none. */
static int64_t backoff_until_ms(struct world *world, const struct business_key *key)
{
    const struct db_key *row =
        database_key(&world->database, "default", key->definition, key->saga_id);
    const struct db_saga *saga = row ? database_saga(&world->database, &row->key.uid) : NULL;
    const struct journal_entry *last = saga && saga->count ? &saga->entries[saga->count - 1] : NULL;
    return last && last->kind == ENTRY_LEASE ? last->retry_at_ms : 0;
}

/* If it is in a back-off: about when that ends. */
static void on_race(struct world *world, struct timer *timer)
{
    struct clients *clients = &world->clients;
    int64_t left_ms = backoff_until_ms(world, clients->raced) - db_clock_ms(world->now_ms);
    if (left_ms > 30)
        world_after(world, timer, left_ms - world_between(world, 0, 25), on_race);
    else
        call_everywhere(world, clients->raced);
}

void clients_race(struct world *world, const char *definition, const char *saga_id)
{
    struct clients *clients = &world->clients;
    for (size_t i = 0; i < clients->key_count && !timer_is_set(&clients->race); i++) {
        struct business_key *key = &clients->keys[i];
        if (strcmp(key->saga_id, saga_id) != 0 || strcmp(key->definition, definition) != 0)
            continue;
        clients->raced = key;
        world_after(world, &clients->race,
                    world_between(world, 0, world_chance(world, 500) ? 20 : 2000), on_race);
    }
}

static void on_next(struct world *world, struct timer *timer)
{
    struct clients *clients = &world->clients;
    if (world->calm)
        return;
    struct node *node = &world->nodes[world_choice(world, world->node_count)];
    struct business_key *key = &clients->keys[world_choice(world, clients->key_count)];
    if (!key->uid_known || world_fault(world, FAULT_START_AGAIN))
        clients_start(world, node, key,
                      world_fault(world, FAULT_START_OTHER) ? "other input" : key->input);
    else if (world_fault(world, FAULT_CALL_BURST))
        call_everywhere(world, key);
    else if (world_fault(world, FAULT_CALL_CANCEL))
        clients_verb(world, node, key, ENGINE_VERB_CANCEL, 0);
    else if (world_fault(world, FAULT_CALL_RETRY))
        clients_verb(world, node, key, ENGINE_VERB_RETRY, 0);
    else if (world_fault(world, FAULT_CALL_WAIT))
        clients_verb(world, node, key, ENGINE_VERB_WAIT, world_between(world, 0, 20000));
    world_after(world, timer, world_between(world, 10, clients->every_ms), on_next);
}

void clients_open(struct world *world)
{
    struct clients *clients = &world->clients;
    clients->key_count = 1 + world_choice(world, KEYS_MAX);
    for (size_t i = 0; i < clients->key_count; i++) {
        struct business_key *key = &clients->keys[i];
        key->definition =
            world->definitions.items[world_choice(world, world->definitions.count)]->name;
        key->saga_id = key->input = world_format(world, "O-%zu", i + 1);
    }
    clients->every_ms = world_between(world, 50, 3000);
    world_after(world, &clients->next, world_between(world, 1, 200), on_next);
}

void clients_close(struct world *world)
{
    for (size_t i = 0; i < world->timers.count; i++) {
        struct timer *timer = CONTAINER(world->timers.nodes[i], struct timer, place);
        if (timer->fire == on_arrives)
            mem_free(CONTAINER(timer, struct call, arrives));
    }
}
