/* Goal: nothing that workers say on their streams breaks an orchestrator or a promise. Method: the
 * real engine in the simulator's world (tests/sim: its database, its clock, its invariants), with
 * workers that say what the input, a script, says: well formed words about the tasks that they have
 * and had, and bytes as they come, through the server's own decoder; beside starts, verbs, time,
 * cut connections and dying nodes; and what the server itself says of workers that poll: PAUSE and
 * UNCONFIRMED. What the engine says is encoded as the server does it. */
#include "base/log.h"
#include "fuzz.h"
#include "rpc/worker_decode.h"
#include "server_words.h"
#include "sim/world.h"
#include "wire/validate.h"

#include <string.h>
#include <utlist.h>

enum { STREAMS_MAX = 4, TASKS_KEPT = 16, KEYS = 6, STEPS = 300, TIMERS_MAX = 20000, NAME = 256 };

/* A report that the engine has not answered. */
struct note {
    struct note *next;
    struct uuid uid;
    int64_t fence;
    enum outcome outcome;
};

struct stream_end {
    struct worker_link link; /* the engine's view */
    struct node *node;
    bool is_open, greeted, closing, blocked;
    bool pausing, paused; /* PAUSE is with the engine; was done, and no ROOM since */
    char worker[NAME];
    struct note *notes;
};

/* A message of a worker on its way through the engine. */
struct word_said {
    struct engine_worker_event event;
    struct posted posted;
    struct arena arena;
};

struct task_kept {
    struct uuid uid;
    int64_t fence;
};

static struct world world;
static struct script script;
static struct stream_end *streams[STREAMS_MAX];
static struct task_kept kept[TASKS_KEPT];
static size_t kept_count;

/* --- what the engine says --------------------------------------------------------------------- */

static struct stream_end *end_of(struct worker_link *link)
{
    return CONTAINER(link, struct stream_end, link);
}

static bool on_has_room(struct worker_link *link)
{
    return !end_of(link)->blocked;
}

static bool on_tasks(struct worker_link *link, const struct engine_task *tasks, size_t count)
{
    struct stream_end *end = end_of(link);
    if (!end->is_open)
        return false;
    FUZZ_CHECK(!end->paused);
    words_tasks(tasks, count);
    for (size_t i = 0; i < count; i++) {
        invariants_task(&world, end->node, end->worker, &tasks[i]);
        kept[kept_count++ % TASKS_KEPT] =
            (struct task_kept){ saga_row(tasks[i].saga)->uid, tasks[i].view.lease->fence };
    }
    return true;
}

static void judge_ack(struct stream_end *end, const struct engine_lease_ack *ack)
{
    struct note *note;
    LL_FOREACH(end->notes, note)
    {
        if (note->fence == ack->fence && memcmp(&note->uid, &ack->uid, sizeof ack->uid) == 0)
            break;
    }
    FUZZ_CHECK(note); /* one for each report */
    LL_DELETE(end->notes, note);
    invariants_ack(&world, end->node, ack, note->outcome);
}

static void on_acks(struct worker_link *link, const struct engine_lease_ack *acks, size_t count)
{
    struct stream_end *end = end_of(link);
    words_acks(acks, count);
    for (size_t i = 0; i < count; i++)
        judge_ack(end, &acks[i]);
}

static void on_extended(struct worker_link *link, const struct engine_lease_extended *leases,
                        size_t count)
{
    words_extended(leases, count);
    for (size_t i = 0; i < count; i++)
        invariants_extended(&world, end_of(link)->node, &leases[i]);
}

static void on_cancel_hint(struct worker_link *link, const struct uuid *uid, int64_t fence)
{
    (void)link;
    words_cancel_hint(uid, fence);
}

static void on_welcome(struct worker_link *link, uint64_t session)
{
    (void)link;
    words_welcome(session);
}

static void on_close(struct worker_link *link, const struct err *why)
{
    FUZZ_CHECK(why->code != ERR_OK && why->code != ERR_INTERNAL);
    end_of(link)->closing = true; /* GONE follows, not from within the engine */
}

static const struct worker_link_ops link_ops = {
    .has_room = on_has_room,
    .tasks = on_tasks,
    .acks = on_acks,
    .extended = on_extended,
    .cancel_hint = on_cancel_hint,
    .welcome = on_welcome,
    .close = on_close,
};

/* --- what workers say ------------------------------------------------------------------------- */

static void said_end(struct posted *posted, bool lost)
{
    struct word_said *said = CONTAINER(posted, struct word_said, posted);
    (void)lost; /* with its node */
    arena_done(&said->arena);
    mem_free(said);
}

static void on_said_done(struct engine_event *base)
{
    struct engine_worker_event *event = CONTAINER(base, struct engine_worker_event, event);
    if (event->kind == WORKER_PAUSE) {
        struct stream_end *end = end_of(event->link);
        end->paused = end->pausing;
        end->pausing = false;
    }
    node_done(&CONTAINER(event, struct word_said, event)->posted);
}

static void note_reports(struct stream_end *end, const struct engine_worker_event *event)
{
    for (size_t i = 0; i < event->report_count; i++) {
        struct note *note = world_alloc(&world, sizeof *note);
        *note = (struct note){ NULL, event->reports[i].uid, event->reports[i].report.fence,
                               event->reports[i].report.outcome };
        LL_APPEND(end->notes, note);
    }
}

static void post(struct stream_end *end, struct word_said *said)
{
    said->event.event = (struct engine_event){ .kind = ENGINE_WORKER, .done = on_said_done };
    said->event.link = &end->link;
    said->posted.end = said_end;
    note_reports(end, &said->event);
    if (!node_post(end->node, &said->event.event, &said->posted))
        said_end(&said->posted, true);
}

static struct word_said *said_new(enum worker_event_kind kind)
{
    struct word_said *said = mem_calloc(1, sizeof *said);
    FUZZ_CHECK(said);
    said->event.kind = kind;
    return said;
}

static void end_stream(size_t place)
{
    struct stream_end *end = streams[place];
    if (!end || !end->is_open)
        return;
    end->is_open = false;
    if (end->greeted)
        post(end, said_new(WORKER_GONE));
    streams[place] = NULL; /* it is the world's */
}

/* As the server's stream does it: the first message is Hello and no other is, what it does not take
 * ends the stream. */
static bool read_word(const struct stream_end *end, struct word_said *said, const uint8_t *data,
                      size_t size)
{
    ProtobufCMessage *message = NULL;
    struct err err;
    return !wire_unpack(&saga__v1__worker_message__descriptor, data, size, &said->arena, &message,
                        &err) &&
           !worker_event_read((void *)message, LIMIT_PAYLOAD_BYTES, &said->arena, &said->event,
                              &err) &&
           (said->event.kind == WORKER_HELLO) != end->greeted;
}

static void say_bytes(size_t place, const uint8_t *data, size_t size)
{
    struct stream_end *end = streams[place];
    if (!end || !node_is_up(end->node))
        return;
    struct word_said *said = said_new(WORKER_HELLO);
    if (!read_word(end, said, data, size)) {
        said_end(&said->posted, true);
        end_stream(place);
        return;
    }
    if (said->event.kind == WORKER_HELLO)
        (void)snprintf(end->worker, sizeof end->worker, "%s/%s", said->event.worker_id,
                       said->event.instance);
    end->greeted = true;
    post(end, said);
}

static void say(size_t place, const Saga__V1__WorkerMessage *message)
{
    static uint8_t data[4096];
    FUZZ_CHECK(saga__v1__worker_message__get_packed_size(message) <= sizeof data);
    say_bytes(place, data, saga__v1__worker_message__pack(message, data));
}

/* --- steps of the script ---------------------------------------------------------------------- */

static size_t some_place(void)
{
    return script_choice(&script, STREAMS_MAX);
}

static struct node *some_node(void)
{
    return &world.nodes[script_choice(&script, (unsigned)world.node_count)];
}

/* A task that a worker was sent, or something near it. */
static struct task_kept some_task(void)
{
    uint8_t choice = script_byte(&script);
    struct task_kept task = kept[choice % TASKS_KEPT];
    if (choice & 64)
        task.fence += script_choice(&script, 5) - 2;
    if (choice & 128)
        task.uid.bytes[script_choice(&script, 16)] ^= 1;
    return task;
}

struct leases_said {
    Saga__V1__HeldLease items[3], *list[3];
    struct task_kept tasks[3];
    size_t count;
};

static void some_leases(struct leases_said *leases)
{
    leases->count = script_choice(&script, ARRAY_LEN(leases->items) + 1);
    for (size_t i = 0; i < leases->count; i++) {
        leases->tasks[i] = some_task();
        saga__v1__held_lease__init(&leases->items[i]);
        leases->items[i].saga_uid = (ProtobufCBinaryData){ 16, leases->tasks[i].uid.bytes };
        leases->items[i].fence = leases->tasks[i].fence;
        leases->list[i] = &leases->items[i];
    }
}

static void hello(size_t place, unsigned serves, unsigned who, struct leases_said *held)
{
    static char worker[] = "w0", instance[] = "instance0", sdk[] = "";
    static char names[HANDLERS_MAX][4];
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Hello word = SAGA__V1__HELLO__INIT;
    Saga__V1__Subscription items[HANDLERS_MAX], *list[HANDLERS_MAX];
    for (size_t i = 0; i < HANDLERS_MAX; i++) {
        if (!(serves & 1U << i) && (i || word.n_handlers))
            continue;
        saga__v1__subscription__init(&items[i]);
        (void)snprintf(names[i], sizeof names[i], "%s", handler_names[i]);
        items[i].handler = names[i];
        items[i].max_in_flight = 3;
        list[word.n_handlers++] = &items[i];
    }
    worker[1] = (char)('0' + who % 3);
    instance[8] = (char)('0' + who / 3 % 3);
    word.worker_id = worker;
    word.instance = instance;
    word.sdk = sdk;
    word.handlers = list;
    word.held = held->list;
    word.n_held = held->count;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO;
    message.hello = &word;
    say(place, &message);
}

static void say_hello(void)
{
    struct leases_said held;
    unsigned serves = script_byte(&script), who = script_byte(&script);
    some_leases(&held);
    hello(some_place(), serves, who, &held);
}

static void open_at(size_t place, struct node *node)
{
    struct stream_end *end = world_alloc(&world, sizeof *end);
    *end = (struct stream_end){ .link = { .ops = &link_ops }, .node = node, .is_open = true };
    streams[place] = end;
}

static void open_stream(void)
{
    size_t place = some_place();
    end_stream(place);
    struct node *node = some_node();
    if (node_is_up(node))
        open_at(place, node);
}

static void credit(size_t place, size_t handler, uint64_t total)
{
    static char name[4];
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Credit word = SAGA__V1__CREDIT__INIT;
    Saga__V1__Credit__PerHandler item = SAGA__V1__CREDIT__PER_HANDLER__INIT, *list[] = { &item };
    (void)snprintf(name, sizeof name, "%s", handler_names[handler]);
    item.handler = name;
    item.total = total;
    word.n_handlers = 1;
    word.handlers = list;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT;
    message.credit = &word;
    say(place, &message);
}

static void say_credit(void)
{
    size_t handler = script_choice(&script, HANDLERS_MAX);
    uint64_t total = (uint64_t)script_number(&script);
    credit(some_place(), handler, total);
}

static void say_report(void)
{
    static char code[] = "CODE", text[] = "message";
    static uint8_t output[] = "output";
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Report report = SAGA__V1__REPORT__INIT;
    Saga__V1__TaskReport items[3], *list[3];
    struct task_kept tasks[3];
    report.n_reports = 1 + script_choice(&script, ARRAY_LEN(items));
    for (size_t i = 0; i < report.n_reports; i++) {
        unsigned what = script_byte(&script);
        tasks[i] = some_task();
        saga__v1__task_report__init(&items[i]);
        items[i].saga_uid = (ProtobufCBinaryData){ 16, tasks[i].uid.bytes };
        items[i].fence = tasks[i].fence;
        items[i].outcome = (Saga__V1__Outcome)(1 + what % 6);
        items[i].ours = what & 64;
        if (what & 128) {
            items[i].error_code = code;
            items[i].error_message = text;
            items[i].output = (ProtobufCBinaryData){ sizeof output, output };
        }
        list[i] = &items[i];
    }
    report.reports = list;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT;
    message.report = &report;
    say(some_place(), &message);
}

static void say_extend(void)
{
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Extend extend = SAGA__V1__EXTEND__INIT;
    struct leases_said leases;
    some_leases(&leases);
    extend.n_leases = leases.count;
    extend.leases = leases.list;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND;
    message.extend = &extend;
    say(some_place(), &message);
}

static void say_release(void)
{
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Release release = SAGA__V1__RELEASE__INIT;
    struct leases_said leases;
    some_leases(&leases);
    release.n_leases = leases.count;
    release.leases = leases.list;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE;
    message.release = &release;
    say(some_place(), &message);
}

static void say_drain(void)
{
    Saga__V1__WorkerMessage message = SAGA__V1__WORKER_MESSAGE__INIT;
    Saga__V1__Drain drain = SAGA__V1__DRAIN__INIT;
    message.command_case = SAGA__V1__WORKER_MESSAGE__COMMAND_DRAIN;
    message.drain = &drain;
    say(some_place(), &message);
}

static void say_anything(void)
{
    size_t size = 0, place = some_place();
    const uint8_t *data = script_piece(&script, &size);
    say_bytes(place, data, size);
}

static void leave(void)
{
    end_stream(some_place());
}

static void change_room(void)
{
    size_t place = some_place();
    struct stream_end *end = streams[place];
    if (!end || !end->greeted || !node_is_up(end->node) || end->pausing)
        return;
    end->blocked = !end->blocked;
    end->paused = false;
    if (!end->blocked)
        post(end, said_new(WORKER_ROOM));
}

/* As the server does for workers that poll: the answer is closed. Once at a time. */
static void pause_tasks(void)
{
    struct stream_end *end = streams[some_place()];
    if (!end || !end->greeted || !node_is_up(end->node) || end->pausing || end->paused)
        return;
    end->blocked = end->pausing = true;
    post(end, said_new(WORKER_PAUSE));
}

/* And of what an answer brought nobody has heard. */
static void tell_unconfirmed(void)
{
    struct leases_said leases;
    struct stream_end *end = streams[some_place()];
    some_leases(&leases);
    if (!end || !end->greeted || !node_is_up(end->node))
        return;
    struct word_said *said = said_new(WORKER_UNCONFIRMED);
    struct worker_lease_ref *refs = arena_array(&said->arena, leases.count + 1, sizeof *refs);
    FUZZ_CHECK(refs);
    for (size_t i = 0; i < leases.count; i++)
        refs[i] =
            (struct worker_lease_ref){ .uid = leases.tasks[i].uid, .fence = leases.tasks[i].fence };
    said->event.leases = refs;
    said->event.lease_count = leases.count;
    post(end, said);
}

static void on_time(struct world *of, struct timer *timer)
{
    (void)of;
    (void)timer; /* it is no longer set */
}

static void pass(int64_t ms)
{
    static struct timer timer;
    timer = (struct timer){ 0 };
    world_after(&world, &timer, ms, on_time);
    for (int i = 0; timer_is_set(&timer) && world_step(&world); i++)
        FUZZ_CHECK(i < TIMERS_MAX);
    world_cancel(&world, &timer);
}

static void wait_little(void)
{
    pass(script_byte(&script) / 8);
}

static void wait_long(void)
{
    pass((int64_t)script_byte(&script) * 100);
}

static void call(void)
{
    struct business_key *key = &world.clients.keys[script_choice(&script, KEYS)];
    struct node *node = some_node();
    switch (script_choice(&script, 8)) {
    case 0:
        clients_verb(&world, node, key, ENGINE_VERB_CANCEL, 0);
        break;
    case 1:
        clients_verb(&world, node, key, ENGINE_VERB_RETRY, 0);
        break;
    case 2:
        clients_verb(&world, node, key, ENGINE_VERB_WAIT, 5000);
        break;
    default:
        clients_start(&world, node, key, key->input);
    }
}

static void break_something(void)
{
    struct node *node = some_node();
    unsigned what = script_choice(&script, 4);
    if (what == 0) {
        mem_store_break(&node->store, script_byte(&script) & 1);
    } else if (what == 1) {
        node_pause(node, (int64_t)script_byte(&script) * 200);
    } else if (node->engine) {
        for (size_t i = 0; i < STREAMS_MAX; i++)
            if (streams[i] && streams[i]->node == node)
                streams[i] = NULL;
        node_crash(node);
    }
}

static void (*const steps[])(void) = {
    open_stream, say_hello,   say_credit,      say_report,  wait_little, call,
    wait_little, wait_long,   say_extend,      say_release, say_drain,   say_anything,
    leave,       change_room, break_something, say_report,  pause_tasks, tell_unconfirmed,
};

/* --- a script --------------------------------------------------------------------------------- */

/* A worker that serves everything, and a saga whose first task it has. */
static void begin(void)
{
    struct leases_said none = { .count = 0 };
    open_at(0, &world.nodes[0]);
    hello(0, UINT8_MAX, 0, &none);
    for (size_t i = 0; i < HANDLERS_MAX; i++)
        credit(0, i, 8);
    clients_start(&world, &world.nodes[0], &world.clients.keys[0], world.clients.keys[0].input);
    pass(200);
}

/* Some faults of the database, now and then, as the first bytes say. */
static void open_world(void)
{
    static const enum hit faults[] = { FAULT_CUT_BEFORE_COMMIT, FAULT_CUT_AFTER_COMMIT,
                                       FAULT_CUT_THEN_COMMIT,   FAULT_ROW_FAILS,
                                       FAULT_ROW_REFUSED,       FAULT_BATCH_FAILS,
                                       FAULT_COMMIT_SLOW,       FAULT_REPLY_SLOW };
    static const char *const ids[KEYS] = { "O-1", "O-2", "O-3", "O-4", "O-5", "O-6" };
    static uint64_t hits[HIT_COUNT];
    static struct trace trace;
    struct world_options options = { .seed = script_byte(&script), .hits = hits };
    if (getenv("SAGAD_FUZZ_TRACE")) {
        trace.out = stderr;
        options.trace = &trace;
    } else {
        log_set_level(LOG_LEVEL_COUNT); /* nothing */
    }
    uint8_t what = script_byte(&script), chosen = script_byte(&script);
    world_open(&world, &options);
    for (size_t i = 0; i < ARRAY_LEN(faults); i++)
        if (chosen & 1U << i)
            world.odds[faults[i]] = 100;
    definitions_make_up(&world);
    world.clients.key_count = KEYS;
    for (size_t i = 0; i < KEYS; i++)
        world.clients.keys[i] = (struct business_key){
            .definition = world.definitions.items[i % world.definitions.count]->name,
            .saga_id = ids[i],
            .input = ids[i],
        };
    for (int i = 0; i <= (what & 1); i++) {
        struct node *node = node_add(&world, i ? "n2" : "n1");
        if (what & 2)
            node->resident_max = 1;
        node_start(node);
    }
    pass(300);
    if (!(what & 4))
        begin();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    script = (struct script){ data, size };
    memset(streams, 0, sizeof streams);
    memset(kept, 0, sizeof kept);
    kept_count = 0;
    open_world();
    for (int i = 0; i < STEPS && script.left; i++) {
        steps[script_choice(&script, ARRAY_LEN(steps))]();
        for (size_t place = 0; place < STREAMS_MAX; place++)
            if (streams[place] && streams[place]->closing)
                end_stream(place);
    }
    pass(5000);
    if (world.violation.invariant != INVARIANT_COUNT)
        (void)fprintf(stderr, "%s: %s\n", invariant_name(world.violation.invariant),
                      world.violation.text);
    FUZZ_CHECK(world.violation.invariant == INVARIANT_COUNT);
    world_close(&world);
    return 0;
}
