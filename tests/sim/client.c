#include "sim/client.h"

#include "sim/old_consumer.h"
#include "sim/rows.h"
#include "sim/world.h"

#include <stdio.h>
#include <string.h>

enum { ITEMS_MAX = 3, REASON_SIZE = 32, TAKEN_OVER_MS = 15000 };

struct look_at {
    struct look_at *next;
    char reason[REASON_SIZE];
    enum operation operation;
    size_t count; /* entries of the journal */
};

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
    char reason[REASON_SIZE];
    struct timer arrives;
};

/* --- answers ---------------------------------------------------------------------------------- */

static const char *verb_name(enum engine_verb_kind verb)
{
    static const char *const names[] = {
        [ENGINE_VERB_CANCEL] = "cancel",       [ENGINE_VERB_RETRY] = "retry",
        [ENGINE_VERB_RESOLVE] = "resolve",     [ENGINE_VERB_SKIP] = "skip",
        [ENGINE_VERB_ABANDON] = "abandon",     [ENGINE_VERB_SUSPEND] = "suspend",
        [ENGINE_VERB_RESUME] = "resume",       [ENGINE_VERB_SIGNAL] = "signal",
        [ENGINE_VERB_OPTIONS] = "set-options", [ENGINE_VERB_WAIT] = "wait",
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
        if (strcmp(call->verb.err.reason, "OUTCOME_UNKNOWN") == 0)
            world_hit(world, HIT_CALL_REFUSED_UNKNOWN);
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
    key->asked = true;
    call->is_start = true;
    size_t count = world_chance(world, 150) ? ITEMS_MAX : 1; /* twice in one call is fine, too */
    for (size_t i = 0; i < count; i++)
        call->items[i] =
            (struct start_item){ .namespace_ = "default",
                                 .definition = key->definition,
                                 .saga_id = key->saga_id,
                                 .suspect = key->suspect_since_ms != 0,
                                 .suspect_since_ms = key->suspect_since_ms,
                                 .suspect_actor = "kafka/orders",
                                 .input = { (uint8_t *)world_text(world, input), strlen(input) } };
    call->start = (struct engine_start){ .items = call->items, .count = count };
    call->start.event = (struct engine_event){ .kind = ENGINE_START, .done = on_start_done };
    world_trace(world, "client", "starts %s of %s at %s%s", key->saga_id, key->definition,
                node->name, key->suspect_since_ms ? ", as suspect" : "");
    call_send(call);
}

static struct call *verb_new(struct world *world, struct node *node, struct business_key *key,
                             enum engine_verb_kind verb)
{
    struct call *call = call_new(world, node, key);
    (void)snprintf(call->reason, sizeof call->reason, "call %u", ++world->clients.calls);
    call->verb = (struct engine_verb){ .verb = verb,
                                       .by_uid = key->uid_known && (world->clients.by_uid ||
                                                                    world_chance(world, 500)),
                                       .uid = key->uid,
                                       .namespace_ = "default",
                                       .definition = key->definition,
                                       .saga_id = key->saga_id,
                                       .actor = "client",
                                       .reason = call->reason };
    call->verb.event = (struct engine_event){ .kind = ENGINE_VERB, .done = on_verb_done };
    return call;
}

void clients_verb(struct world *world, struct node *node, struct business_key *key,
                  enum engine_verb_kind verb, int64_t timeout_ms)
{
    struct call *call = verb_new(world, node, key, verb);
    call->verb.timeout_ms = timeout_ms;
    call->verb.or_parked = world_chance(world, 500);
    world_trace(world, "client", "%s %s at %s", verb_name(verb), key->saga_id, node->name);
    call_send(call);
}

/* --- what a person found out ------------------------------------------------------------------ */

static struct db_saga *saga_of(struct world *world, const struct business_key *key)
{
    const struct db_key *row =
        database_key(&world->database, "default", key->definition, key->saga_id);
    return row ? database_saga(&world->database, &row->key.uid) : NULL;
}

void clients_resolve(struct world *world, struct node *node, struct business_key *key,
                     const char *step, enum operation operation, bool happened)
{
    const struct db_saga *saga = saga_of(world, key);
    struct call *call = verb_new(world, node, key, ENGINE_VERB_RESOLVE);
    bool said = world->options.scripted || world_chance(world, 700);
    call->verb.step = world_text(world, step);
    call->verb.operation = said ? operation : OPERATION_COUNT;
    call->verb.happened = happened;
    if (happened && operation == OPERATION_ACTION && world_chance(world, 300))
        call->verb.output = (struct bytes){ (uint8_t *)world_text(world, "found"), 5 };
    struct look_at *look = world_alloc(world, sizeof *look);
    memcpy(look->reason, call->reason, sizeof look->reason);
    look->operation = operation;
    look->count = saga ? saga->count : 0;
    look->next = world->clients.looks;
    world->clients.looks = look;
    world_trace(world, "client", "says at %s that the %s of %s %s %s", node->name,
                operation == OPERATION_COMPENSATION ? "compensation" : "action", key->saga_id, step,
                happened ? "happened" : "did not happen");
    call_send(call);
}

bool clients_looked_before(const struct world *world, const struct db_saga *saga,
                           const struct journal_entry *resolve)
{
    const struct look_at *look = world->clients.looks;
    while (look && (!resolve->error_message || strcmp(look->reason, resolve->error_message) != 0))
        look = look->next;
    if (!look || look->operation != resolve->operation)
        return look != NULL;
    for (size_t i = look->count; i < saga->count; i++) {
        const struct journal_entry *entry = &saga->entries[i];
        if (entry->kind == ENTRY_LEASE && entry->seq < resolve->seq &&
            entry->step == resolve->step && entry->operation == resolve->operation)
            return true;
    }
    return false;
}

/* Is there anything to find out about it? */
static bool is_open(const struct db_saga *saga, size_t step, int side)
{
    const struct judged_operation *of = &saga->judged.of[step][side];
    return of->unsettled > 0 || of->doubt ||
           (saga->row.park_reason == PARK_FOREIGN_EFFECT && saga->row.park_step == (int)step);
}

static bool is_leased(const struct db_saga *saga, size_t step, enum operation operation)
{
    for (size_t i = 0; i < saga->count; i++) {
        const struct journal_entry *entry = &saga->entries[i];
        if (entry->kind == ENTRY_LEASE && entry->outcome == OUTCOME_NONE &&
            entry->step == (int)step && entry->operation == operation)
            return true;
    }
    return false;
}

/* Asks the participant, once nobody works on it and nothing of it is on its way; of what another
 * has made one may say what one likes. False: it cannot be told yet. */
static bool find_out(struct world *world, const struct db_saga *saga, size_t step,
                     enum operation operation, bool *ret_happened)
{
    int side = operation == OPERATION_COMPENSATION;
    const struct side_effect *effect =
        &participant_subject(world, saga->row.definition, saga->row.saga_id)->effects[step];
    bool anothers = effect->foreign && !side;
    *ret_happened = effect->runs[side] > 0 || (anothers && world_chance(world, 500));
    return effect->in_flight[side] == 0 && !is_leased(saga, step, operation) &&
           !jobs_may_send(world, &saga->row, step, operation);
}

static void resolve_something(struct world *world, struct node *node, struct business_key *key)
{
    const struct db_saga *saga = saga_of(world, key);
    const struct definition *definition = definitions_find(&world->definitions, key->definition);
    size_t step = world_choice(world, definition->step_count);
    enum operation operation = world_chance(world, 700) ? OPERATION_ACTION : OPERATION_COMPENSATION;
    for (size_t i = 0; saga && i < 2 * definition->step_count; i++) {
        size_t at = (step + i / 2) % definition->step_count;
        if (!is_open(saga, at, (int)(i & 1)))
            continue;
        step = at;
        operation = i & 1 ? OPERATION_COMPENSATION : OPERATION_ACTION;
        break;
    }
    bool happened = false;
    if (saga && find_out(world, saga, step, operation, &happened))
        clients_resolve(world, node, key, definition->steps[step].name, operation, happened);
}

/* --- by chance -------------------------------------------------------------------------------- */

static void call_everywhere(struct world *world, struct business_key *key)
{
    for (size_t i = 0; i < world->node_count; i++) {
        static const enum engine_verb_kind verbs[] = { ENGINE_VERB_RETRY,   ENGINE_VERB_CANCEL,
                                                       ENGINE_VERB_RETRY,   ENGINE_VERB_CANCEL,
                                                       ENGINE_VERB_SUSPEND, ENGINE_VERB_RESUME };
        if (world_chance(world, 250))
            clients_start(world, &world->nodes[i], key, key->input);
        else if (world_chance(world, 150))
            resolve_something(world, &world->nodes[i], key);
        else
            clients_verb(world, &world->nodes[i], key, verbs[world_choice(world, ARRAY_LEN(verbs))],
                         0);
    }
}

/* The end of the back-off that the saga is in; 0: it is in none. */
static int64_t backoff_until_ms(struct world *world, const struct business_key *key)
{
    const struct db_saga *saga = saga_of(world, key);
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
    else if (!clients->raced_to_resolve)
        call_everywhere(world, clients->raced);
    else
        for (size_t i = 0; i < world->node_count; i++)
            resolve_something(world, &world->nodes[i], clients->raced);
}

static struct business_key *key_find(struct clients *clients, const char *definition,
                                     const char *saga_id)
{
    for (size_t i = 0; i < clients->key_count; i++)
        if (strcmp(clients->keys[i].saga_id, saga_id) == 0 &&
            strcmp(clients->keys[i].definition, definition) == 0)
            return &clients->keys[i];
    return NULL;
}

void clients_cancel(struct world *world, const char *definition, const char *saga_id)
{
    struct business_key *key = key_find(&world->clients, definition, saga_id);
    if (key)
        clients_verb(world, &world->nodes[world_choice(world, world->node_count)], key,
                     ENGINE_VERB_CANCEL, 0);
}

void clients_race(struct world *world, const char *definition, const char *saga_id, bool to_resolve)
{
    struct clients *clients = &world->clients;
    struct business_key *key = key_find(clients, definition, saga_id);
    if (!key || timer_is_set(&clients->race))
        return;
    clients->raced = key;
    clients->raced_to_resolve = to_resolve;
    world_after(world, &clients->race,
                world_between(world, 0, world_chance(world, 500) ? 20 : 2000), on_race);
}

/* What an operator may find on the list. */
static bool is_unsettled(const struct db_saga *saga)
{
    for (size_t i = 0; i < STEPS_MAX; i++)
        if (is_open(saga, i, 0) || is_open(saga, i, 1))
            return true;
    return saga->row.doubt;
}

static bool is_parked(const struct db_saga *saga)
{
    return saga->row.state == SAGA_PARKED;
}

static bool is_parked_back(const struct db_saga *saga)
{
    return is_parked(saga) && saga->row.phase == SAGA_COMPENSATING;
}

static bool is_suspended(const struct db_saga *saga)
{
    return is_parked(saga) && saga->row.park_reason == PARK_SUSPENDED;
}

static bool is_active(const struct db_saga *saga)
{
    return saga->row.state == SAGA_RUNNING || saga->row.state == SAGA_COMPENSATING;
}

/* Mostly a saga that the call is made for; else any. */
static struct business_key *some_key(struct world *world, bool (*fits)(const struct db_saga *saga))
{
    struct clients *clients = &world->clients;
    size_t from = world_choice(world, clients->key_count);
    for (size_t i = 0; i < clients->key_count && !world_chance(world, 20); i++) {
        struct business_key *key = &clients->keys[(from + i) % clients->key_count];
        const struct db_saga *saga = saga_of(world, key);
        if (saga && fits(saga))
            return key;
    }
    return &clients->keys[from];
}

static void operator_calls(struct world *world, struct node *node)
{
    if (world_fault(world, FAULT_CALL_RESOLVE))
        resolve_something(world, node, some_key(world, is_unsettled));
    else if (world_fault(world, FAULT_CALL_RESUME))
        clients_verb(world, node, some_key(world, is_suspended), ENGINE_VERB_RESUME, 0);
    else if (world_fault(world, FAULT_CALL_SUSPEND))
        clients_verb(world, node, some_key(world, is_active), ENGINE_VERB_SUSPEND, 0);
    else if (world_fault(world, FAULT_CALL_SKIP))
        clients_verb(world, node, some_key(world, is_parked_back), ENGINE_VERB_SKIP, 0);
    else if (world_fault(world, FAULT_CALL_ABANDON))
        clients_verb(world, node, some_key(world, is_parked), ENGINE_VERB_ABANDON, 0);
}

static int64_t number_between(struct world *world, int64_t least, int64_t most)
{
    return least + (int64_t)rng_below(&world->options_rng, (uint64_t)(most - least) + 1);
}

static int64_t number_or_same(struct world *world, int64_t least, int64_t most)
{
    return number_between(world, 0, 2) ? OPTIONS_SAME : number_between(world, least, most);
}

/* Numbers as definitions have them; a saga that does not take all of them takes none. */
static void set_options(struct world *world)
{
    struct clients *clients = &world->clients;
    struct node *node = &world->nodes[rng_below(&world->options_rng, world->node_count)];
    struct business_key *key = &clients->keys[rng_below(&world->options_rng, clients->key_count)];
    const struct definition *definition = definitions_find(&world->definitions, key->definition);
    struct call *call = verb_new(world, node, key, ENGINE_VERB_OPTIONS);
    struct saga_options options = OPTIONS_NONE;
    if (number_between(world, 0, 1))
        call->verb.step =
            definition->steps[rng_below(&world->options_rng, definition->step_count)].name;
    if (number_between(world, 0, 1))
        options.operation = (enum operation)number_between(world, 0, OPERATION_COUNT - 1);
    options.retry_for_ms = number_between(world, 500, 60000);
    options.retry_initial_ms = number_or_same(world, 20, 800);
    options.retry_cap_ms = number_or_same(world, 800, 6400);
    options.max_attempts = number_or_same(world, 0, 4);
    options.lease_ms = number_or_same(world, 5000, 9000);
    if (!number_between(world, 0, 2))
        options.deadline_ms = number_between(world, 0, 3)
                                  ? db_clock_ms(world->now_ms) + number_between(world, 1000, 40000)
                                  : 0;
    call->verb.options = options;
    world_trace(world, "client", "%s %s at %s", verb_name(ENGINE_VERB_OPTIONS), key->saga_id,
                node->name);
    call_send(call);
}

/* As world_fault asks. */
static bool knows_options_call(struct world *world)
{
    bool calls = world->odds[FAULT_CALL_OPTIONS] &&
                 rng_below(&world->options_rng, 1000) < world->odds[FAULT_CALL_OPTIONS];
    if (calls)
        world_hit(world, FAULT_CALL_OPTIONS);
    return calls;
}

static void on_next(struct world *world, struct timer *timer)
{
    struct clients *clients = &world->clients;
    if (world->calm)
        return;
    struct node *node = &world->nodes[world_choice(world, world->node_count)];
    struct business_key *key = &clients->keys[world_choice(world, clients->key_count)];
    if (!key->asked && world_fault(world, FAULT_TAKEN_OVER)) {
        key->suspect_since_ms = db_clock_ms(world->now_ms) - world_between(world, 0, TAKEN_OVER_MS);
        old_consumer_made_up(world, key);
    }
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
    else
        operator_calls(world, node);
    if (knows_options_call(world))
        set_options(world);
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
