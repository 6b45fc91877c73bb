#include "sim/scenario.h"

#include "sim/old_consumer.h"
#include "sim/rows.h"
#include "sim/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 20, LINE_SIZE = 256, BEGIN_MS = 1000 };

struct words {
    char text[LINE_SIZE];
    char *at[WORDS_MAX];
    size_t count;
};

/* A line of the script that happens at its time. */
struct act {
    struct timer timer;
    struct words words;
};

static void split(const char *line, struct words *ret)
{
    (void)snprintf(ret->text, sizeof ret->text, "%s", line);
    ret->count = 0;
    for (char *c = ret->text; *c;) {
        while (*c == ' ' || *c == '\t' || *c == '\n')
            *c++ = '\0';
        if (!*c || ret->count == WORDS_MAX)
            return;
        ret->at[ret->count++] = c;
        while (*c && *c != ' ' && *c != '\t' && *c != '\n')
            c++;
    }
}

static bool is(const struct words *words, size_t index, const char *text)
{
    return index < words->count && strcmp(words->at[index], text) == 0;
}

/* The value of "name=value"; NULL: it is not there. */
static const char *option(const struct words *words, const char *name)
{
    size_t size = strlen(name);
    for (size_t i = 0; i < words->count; i++)
        if (strncmp(words->at[i], name, size) == 0 && words->at[i][size] == '=')
            return words->at[i] + size + 1;
    return NULL;
}

static int64_t number(const struct words *words, const char *name, int64_t otherwise)
{
    const char *value = option(words, name);
    return value ? strtoll(value, NULL, 10) : otherwise;
}

static bool option_is(const struct words *words, const char *name, const char *value)
{
    const char *is_now = option(words, name);
    return is_now && strcmp(is_now, value) == 0;
}

static void bad(struct world *world, const struct words *words)
{
    world_violate(world, INV_ENGINE, "the scenario says \"%s%s%s\", which means nothing",
                  words->count ? words->at[0] : "", words->count > 1 ? " " : "",
                  words->count > 1 ? words->at[1] : "");
}

/* --- what there is ---------------------------------------------------------------------------- */

static struct node *node_named(struct world *world, const char *name)
{
    for (size_t i = 0; i < world->node_count; i++)
        if (strcmp(world->nodes[i].name, name) == 0)
            return &world->nodes[i];
    return NULL;
}

static struct worker *worker_named(struct world *world, const char *name)
{
    for (size_t i = 0; i < world->worker_count; i++)
        if (strcmp(world->workers[i].name, name) == 0)
            return &world->workers[i];
    return NULL;
}

static void read_rule(const struct words *words, struct operation_rule *rule)
{
    rule->lease_ms = number(words, "lease", rule->lease_ms);
    rule->attempt_timeout_ms = number(words, "attempt", rule->attempt_timeout_ms);
    rule->retry.initial_ms = number(words, "retry_initial", rule->retry.initial_ms);
    rule->retry.cap_ms = number(words, "retry_cap", rule->retry.cap_ms);
    rule->retry.for_ms = number(words, "retry_for", rule->retry.for_ms);
    rule->retry.max_attempts = (uint32_t)number(words, "tries", 0);
    rule->start_timeout_ms = number(words, "start_timeout", 0);
    rule->lost_leases_max = (int32_t)number(words, "lost_leases", rule->lost_leases_max);
}

static void read_effect(const struct words *words, const char *name, struct operation_rule *rule)
{
    if (option_is(words, name, "at_most_once"))
        rule->effect = EFFECT_AT_MOST_ONCE;
    if (option_is(words, name, "probed"))
        rule->effect = EFFECT_PROBED;
}

/* probe=HANDLER fresh_key=yes probe_for=MS probe_initial=MS probe_cap=MS */
static void read_probe(const struct words *words, const char *name, struct operation_rule *rule)
{
    const char *handler = option(words, name);
    if (!handler)
        return;
    definitions_probe(rule, handler);
    struct retry *retry = &rule->probe->retry;
    rule->probe->lease_ms = rule->lease_ms;
    retry->for_ms = number(words, "probe_for", retry->for_ms);
    retry->initial_ms = number(words, "probe_initial", retry->initial_ms);
    retry->cap_ms = number(words, "probe_cap", retry->cap_ms);
    rule->fresh_key = option_is(words, "fresh_key", "yes");
}

/* after=a,b: those steps; after=-: none of them. */
static void read_after(const char *names, struct definition *definition, size_t step)
{
    struct step_set *after = &definition->steps[step].after;
    *after = (struct step_set){ 0 };
    for (size_t before = 0; before < step; before++) {
        const char *name = definition->steps[before].name;
        size_t size = strlen(name);
        for (const char *at = names; (at = strstr(at, name)); at++)
            if ((at == names || at[-1] == ',') && (at[size] == ',' || !at[size]))
                step_set_add(after, before);
    }
    definition_order(definition);
}

/* step NAME of DEFINITION: effect=, undo=, guarded=, settle=, lease=, ... */
static void read_step(const struct words *words, struct definition *definition, size_t index)
{
    struct step_rule *step = &definition->steps[index];
    const char *after = option(words, "after");
    if (after)
        read_after(after, definition, index);
    read_rule(words, &step->action);
    read_rule(words, &step->compensation);
    const char *handler = option(words, "handler");
    if (handler) {
        mem_free(step->action.handler);
        step->action.handler = rows_text(NULL, handler);
    }
    read_effect(words, "effect", &step->action);
    read_effect(words, "undo", &step->compensation);
    read_probe(words, "probe", &step->action);
    read_probe(words, "undo_probe", &step->compensation);
    step->action.window_ms = number(words, "window", 0);
    step->has_compensation = !option_is(words, "undo", "none");
    step->pivot = option_is(words, "pivot", "yes");
    step->delay_ms = number(words, "delay", 0);
    definition_order(definition);
    step->guarded = !option_is(words, "guarded", "no");
    step->settle_ms = number(words, "settle", -1);
    if (option_is(words, "on_unknown", "compensate"))
        step->action.on_unknown = ON_UNKNOWN_COMPENSATE;
    if (option_is(words, "on_unknown", "accept"))
        step->action.on_unknown = ON_UNKNOWN_ACCEPT;
    if (option_is(words, "on_exhausted", "compensate"))
        step->action.on_exhausted = ON_EXHAUSTED_COMPENSATE;
    if (option_is(words, "on_exhausted", "continue"))
        step->action.on_exhausted = ON_EXHAUSTED_CONTINUE;
    step->compensation.start_timeout_ms = 0;
}

/* definition NAME STEP ... ; then a line "step" for each that is not plain. */
static void read_definition(struct world *world, const struct words *words)
{
    const char *steps[STEPS_MAX];
    size_t count = 0;
    for (size_t i = 2; i < words->count && count < STEPS_MAX; i++)
        if (!strchr(words->at[i], '='))
            steps[count++] = words->at[i];
    struct definition *definition = definitions_plain(words->at[1], steps, count);
    definition->deadline_ms = number(words, "deadline", 0);
    if (option_is(words, "on_deadline", "park"))
        definition->on_deadline = ON_DEADLINE_PARK;
    definitions_add(world, definition, SHAPE_SMALL);
}

static void read_plan(struct world *world, const struct words *words)
{
    static const char *const answers[] = { "done",    "no",     "not_sent", "lost",
                                           "unheard", "unsure", "exists" };
    struct plan *plan = world_alloc(world, sizeof *plan);
    plan->saga_id = world_text(world, words->at[1]);
    plan->step = world_text(world, words->at[2]);
    plan->operation = is(words, 3, "compensation") ? OPERATION_COMPENSATION
                      : is(words, 3, "probe")      ? OPERATION_PROBE
                                                   : OPERATION_ACTION;
    plan->try_ = (int)number(words, "try", 1);
    plan->think_ms = number(words, "think", 10);
    plan->arrive_ms = number(words, "arrive", 1);
    plan->careless = option_is(words, "careless", "yes");
    for (size_t i = 0; i < ARRAY_LEN(answers); i++)
        if (option_is(words, "answer", answers[i]))
            plan->answer = (enum plan_answer)i;
    plan->next = world->plans;
    world->plans = plan;
}

static void read_worker(struct world *world, const struct words *words)
{
    struct worker *worker = worker_add(world, world_text(world, words->at[1]));
    worker->spread = !is(words, 2, "roams");
    for (size_t i = 2; i < words->count; i++) {
        struct node *node = node_named(world, words->at[i]);
        if (node)
            worker->addresses[node - world->nodes] = true;
        for (size_t h = 0; h < HANDLERS_MAX; h++)
            if (strcmp(words->at[i], handler_names[h]) == 0)
                worker_serve(worker, handler_names[h], 2);
    }
    worker_start(worker);
}

/* --- what happens ----------------------------------------------------------------------------- */

static struct business_key *key_named(struct world *world, const char *saga_id,
                                      const char *definition)
{
    struct clients *clients = &world->clients;
    for (size_t i = 0; i < clients->key_count; i++)
        if (strcmp(clients->keys[i].saga_id, saga_id) == 0)
            return &clients->keys[i];
    if (clients->key_count == KEYS_MAX || !definition)
        return NULL;
    struct business_key *key = &clients->keys[clients->key_count++];
    key->saga_id = world_text(world, saga_id);
    key->definition = world_text(world, definition);
    key->input = "input";
    return key;
}

/* resolve SAGA NODE step=NAME happened=yes|no [operation=compensation] */
static bool act_resolve(struct world *world, const struct words *words, struct node *node,
                        struct business_key *key)
{
    const char *step = option(words, "step");
    if (!step)
        return false;
    clients_resolve(world, node, key, step,
                    option_is(words, "operation", "compensation") ? OPERATION_COMPENSATION
                                                                  : OPERATION_ACTION,
                    option_is(words, "happened", "yes"));
    return true;
}

/* suspend|resume|skip|abandon SAGA NODE */
static bool act_operator(struct world *world, const struct words *words, struct node *node,
                         struct business_key *key)
{
    static const struct {
        const char *word;
        enum engine_verb_kind verb;
    } verbs[] = {
        { "suspend", ENGINE_VERB_SUSPEND },
        { "resume", ENGINE_VERB_RESUME },
        { "skip", ENGINE_VERB_SKIP },
        { "abandon", ENGINE_VERB_ABANDON },
    };
    if (is(words, 1, "resolve"))
        return act_resolve(world, words, node, key);
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (!is(words, 1, verbs[i].word))
            continue;
        clients_verb(world, node, key, verbs[i].verb, 0);
        return true;
    }
    return false;
}

/* start SAGA NODE definition=NAME [suspect=MS ran=STEPS lands=MS]: somebody else was at work for so
 * long, came to so many steps, and its last request lands so much later. */
static void act_start(struct world *world, const struct words *words, struct node *node,
                      struct business_key *key)
{
    int64_t ago_ms = number(words, "suspect", 0);
    if (ago_ms && !key->asked) {
        key->suspect_since_ms = db_clock_ms(world->now_ms) - ago_ms;
        old_consumer_ran(world, key, (int)number(words, "ran", 0), number(words, "lands", 0));
    }
    clients_start(world, node, key, option(words, "input") ? option(words, "input") : key->input);
}

/* start|cancel|retry|wait SAGA NODE ... */
static bool act_client(struct world *world, const struct words *words)
{
    struct node *node = words->count > 3 ? node_named(world, words->at[3]) : NULL;
    struct business_key *key =
        node ? key_named(world, words->at[2], option(words, "definition")) : NULL;
    if (!key)
        return false;
    world->clients.by_uid = option_is(words, "by", "uid");
    if (is(words, 1, "start"))
        act_start(world, words, node, key);
    else if (is(words, 1, "cancel"))
        clients_verb(world, node, key, ENGINE_VERB_CANCEL, 0);
    else if (is(words, 1, "retry"))
        clients_verb(world, node, key, ENGINE_VERB_RETRY, 0);
    else if (is(words, 1, "wait"))
        clients_verb(world, node, key, ENGINE_VERB_WAIT, number(words, "for", 60000));
    else
        return act_operator(world, words, node, key);
    return true;
}

static bool act_node(struct node *node, const struct words *words)
{
    static const char *const fates[] = { "", "cut_before_commit", "cut_after_commit",
                                         "cut_then_commit" };
    for (size_t i = 1; i < ARRAY_LEN(fates); i++)
        if (is(words, 2, fates[i])) {
            node->store.fate = (enum commit_fate)i;
            return true;
        }
    if (is(words, 2, "dies"))
        node_crash(node);
    else if (is(words, 2, "stops"))
        node_stop(node);
    else if (is(words, 2, "starts"))
        node_start(node);
    else if (is(words, 2, "hears_late"))
        node->store.late_ms = number(words, "by", 1000);
    else if (is(words, 2, "sleeps"))
        node_pause(node, number(words, "for", 1000));
    else
        return false;
    return true;
}

static bool act_worker(struct world *world, struct worker *worker, const struct words *words)
{
    struct node *node = words->count > 3 ? node_named(world, words->at[3]) : NULL;
    if (is(words, 2, "dies"))
        worker_die(worker);
    else if (is(words, 2, "sleeps"))
        worker_pause(worker, number(words, "for", 1000));
    else if (is(words, 2, "is_silent"))
        worker_silence(worker, number(words, "for", 1000));
    else if (is(words, 2, "drains"))
        worker_drain(worker);
    else if (is(words, 2, "loses") && node && worker->streams[node - world->nodes])
        stream_cut_unheard(worker->streams[node - world->nodes], 0, number(words, "unheard", 0));
    else
        return false;
    return true;
}

static void on_act(struct world *world, struct timer *timer)
{
    const struct words *words = &CONTAINER(timer, struct act, timer)->words;
    struct node *node = words->count > 1 ? node_named(world, words->at[1]) : NULL;
    struct worker *worker = words->count > 1 ? worker_named(world, words->at[1]) : NULL;
    if (is(words, 1, "end"))
        world->over = true;
    else if (!(node     ? act_node(node, words)
               : worker ? act_worker(world, worker, words)
                        : act_client(world, words)))
        bad(world, words);
}

/* --- the file --------------------------------------------------------------------------------- */

static void read_line(struct world *world, const char *line)
{
    struct act *act = world_alloc(world, sizeof *act);
    struct words *words = &act->words;
    split(line, words);
    if (!words->count || words->at[0][0] == '#')
        return;
    if (words->at[0][0] >= '0' && words->at[0][0] <= '9') {
        world_at(world, &act->timer, BEGIN_MS + strtoll(words->at[0], NULL, 10), on_act);
    } else if (is(words, 0, "node") && words->count > 1) {
        struct node *node = node_add(world, world_text(world, words->at[1]));
        node->stays_down = true; /* until the scenario says otherwise */
        node_start(node);
    } else if (is(words, 0, "definition") && words->count > 2) {
        read_definition(world, words);
    } else if (is(words, 0, "step") && words->count > 2 && world->definitions.count) {
        struct definition *definition = world->definitions.items[world->definitions.count - 1];
        int step = definition_step_find(definition, words->at[1]);
        if (step < 0)
            bad(world, words);
        else
            read_step(words, definition, (size_t)step);
    } else if (is(words, 0, "worker") && words->count > 2) {
        read_worker(world, words);
    } else if (is(words, 0, "plan") && words->count > 3) {
        read_plan(world, words);
    } else {
        bad(world, words);
    }
}

static bool read_file(struct world *world, const char *path, struct buf *expected)
{
    char line[LINE_SIZE];
    bool below = false;
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file)) {
        if (below)
            buf_text(expected, line);
        else if (strncmp(line, "----", 4) == 0)
            below = true;
        else
            read_line(world, line);
    }
    (void)fclose(file);
    return true;
}

bool scenario_read(struct world *world, const char *script)
{
    char line[LINE_SIZE];
    while (*script) {
        size_t size = strcspn(script, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)size, script);
        read_line(world, line);
        script += size + (script[size] == '\n');
    }
    return world->violation.invariant == INVARIANT_COUNT;
}

bool scenario_run(const char *path, struct buf *ret_trace, struct buf *ret_expected)
{
    static struct world world; /* large */
    uint64_t hits[HIT_COUNT] = { 0 };
    struct trace trace = { .from_ms = BEGIN_MS };
    struct world_options options = { .seed = 1, .scripted = true, .trace = &trace, .hits = hits };
    world_open(&world, &options);
    bool read = read_file(&world, path, ret_expected);
    while (read && !world.over && world_step(&world))
        continue;
    bool held = read && world.over && world.violation.invariant == INVARIANT_COUNT;
    buf_append(ret_trace, trace.lines.data, trace.lines.size);
    if (!held)
        buf_printf(ret_trace, "%s\n",
                   !read         ? "the file cannot be read"
                   : !world.over ? "the scenario has no end"
                                 : "a promise was broken");
    world.options.trace = NULL; /* of its end nothing is told */
    world_close(&world);
    trace_done(&trace);
    return held;
}

const struct plan *scenario_plan(const struct world *world, const char *saga_id, const char *step,
                                 enum operation operation, int try_)
{
    const struct plan *plan = world->plans;
    while (plan && (strcmp(plan->saga_id, saga_id) != 0 || strcmp(plan->step, step) != 0 ||
                    plan->operation != operation || plan->try_ != try_))
        plan = plan->next;
    return plan;
}
