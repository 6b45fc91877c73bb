#include "sim/stream.h"

#include "sim/rows.h"
#include "sim/world.h"

#include <string.h>
#include <utlist.h>

enum { HEARS_LATE_MS = 35000, CONFIRM_MS = 10000, WAIT_MS = 20000, LEASES_MAX = 64 };

/* An event at the engine with all that it points to. */
struct stream_event {
    struct engine_worker_event event;
    struct posted posted;
    struct stream *stream;
};

struct report_note {
    struct report_note *next;
    struct uuid uid;
    int64_t fence;
    enum outcome outcome;
};

/* A task that was sent to a worker that polls. */
struct unheard {
    struct unheard *next;
    struct uuid uid;
    int64_t fence;
    int64_t until_ms;
};

static struct stream *stream_of(struct worker_link *link)
{
    return CONTAINER(link, struct stream, link);
}

/* --- events ----------------------------------------------------------------------------------- */

static void event_free(struct stream_event *event)
{
    struct engine_worker_event *e = &event->event;
    for (size_t i = 0; i < e->credit_count; i++)
        mem_free((void *)e->credits[i].handler);
    for (size_t i = 0; i < e->report_count; i++) {
        mem_free((void *)e->reports[i].report.error_code);
        mem_free((void *)e->reports[i].report.error_message);
        mem_free(e->reports[i].report.output.data);
    }
    mem_free((void *)e->credits);
    mem_free(e->reports);
    mem_free(e->leases);
    mem_free((void *)e->worker_id);
    mem_free((void *)e->instance);
    mem_free(event);
}

static void event_end(struct posted *posted, bool lost)
{
    (void)lost;
    event_free(CONTAINER(posted, struct stream_event, posted));
}

static void on_ask(struct world *world, struct timer *timer);
static void on_waited(struct world *world, struct timer *timer);

/* The answer leaves; the next question comes after it. */
static void answer_given(struct stream *stream)
{
    struct world *world = stream->world;
    if (!stream->node_open)
        return;
    stream->answer = ANSWER_GIVEN;
    if (world->now_ms > stream->closes_at_ms)
        world_hit(world, HIT_ANSWER_WAITED);
    world_after(world, &stream->ask, world_between(world, 1, 200), on_ask);
}

static void on_event_done(struct engine_event *base)
{
    struct engine_worker_event *event = CONTAINER(base, struct engine_worker_event, event);
    if (event->kind == WORKER_PAUSE)
        answer_given(stream_of(event->link));
    node_done(&CONTAINER(event, struct stream_event, event)->posted);
}

static struct stream_event *event_new(struct stream *stream, const struct engine_worker_event *from)
{
    struct stream_event *event = rows_zeroed(1, sizeof *event);
    event->stream = stream;
    event->posted.end = event_end;
    struct engine_worker_event *e = &event->event;
    *e = *from;
    e->event = (struct engine_event){ .kind = ENGINE_WORKER, .done = on_event_done };
    e->link = &stream->link;
    e->worker_id = rows_text(NULL, from->worker_id);
    e->instance = rows_text(NULL, from->instance);
    struct worker_credit *credits = rows_zeroed(from->credit_count, sizeof *credits);
    for (size_t i = 0; i < from->credit_count; i++)
        credits[i] = (struct worker_credit){ rows_text(NULL, from->credits[i].handler),
                                             from->credits[i].total };
    e->credits = credits;
    e->leases = rows_zeroed(from->lease_count, sizeof *e->leases);
    if (from->lease_count)
        memcpy(e->leases, from->leases, from->lease_count * sizeof *e->leases);
    e->reports = rows_zeroed(from->report_count, sizeof *e->reports);
    for (size_t i = 0; i < from->report_count; i++) {
        e->reports[i] = from->reports[i];
        struct report *report = &e->reports[i].report;
        report->error_code = rows_text(NULL, report->error_code);
        report->error_message = rows_text(NULL, report->error_message);
        report->output = rows_bytes(NULL, &report->output);
    }
    return event;
}

static void note_reports(struct stream *stream, const struct engine_worker_event *event)
{
    for (size_t i = 0; i < event->report_count; i++) {
        struct report_note *note = world_alloc(stream->world, sizeof *note);
        *note = (struct report_note){ NULL, event->reports[i].uid, event->reports[i].report.fence,
                                      event->reports[i].report.outcome };
        LL_APPEND(stream->notes, note);
    }
}

/* The worker has it. */
static void heard_of(struct stream *stream, const struct uuid *uid, int64_t fence)
{
    struct unheard **at = &stream->unheard;
    while (*at && ((*at)->fence != fence || memcmp(&(*at)->uid, uid, sizeof *uid) != 0))
        at = &(*at)->next;
    if (*at)
        *at = (*at)->next;
}

static void heard(struct stream *stream, const struct engine_worker_event *event)
{
    for (size_t i = 0; i < event->lease_count; i++)
        heard_of(stream, &event->leases[i].uid, event->leases[i].fence);
    for (size_t i = 0; i < event->report_count; i++)
        heard_of(stream, &event->reports[i].uid, event->reports[i].report.fence);
}

/* On the node, after all that came before; not once GONE was posted. */
static void post(struct stream *stream, struct stream_event *event)
{
    if (!stream->node_open || stream->gone_posted) {
        event_free(event);
        return;
    }
    if (event->event.kind == WORKER_HELLO)
        stream->greeted = true;
    note_reports(stream, &event->event);
    heard(stream, &event->event);
    if (!node_post(stream->node, &event->event.event, &event->posted))
        event_free(event);
}

static void post_kind(struct stream *stream, enum worker_event_kind kind)
{
    struct engine_worker_event event = { .kind = kind };
    post(stream, event_new(stream, &event));
}

/* --- a worker that polls ---------------------------------------------------------------------- */

static void on_ask(struct world *world, struct timer *timer)
{
    struct stream *stream = CONTAINER(timer, struct stream, ask);
    (void)world;
    if (node_sleeps(stream->node, timer, on_ask))
        return;
    stream->answer = ANSWER_OPEN;
    world_after(world, timer, world_between(world, 1000, WAIT_MS), on_waited);
    if (!stream->blocked)
        post_kind(stream, WORKER_ROOM);
}

static void answer_closes(struct stream *stream)
{
    stream->answer = ANSWER_CLOSES;
    stream->closes_at_ms = stream->world->now_ms;
    post_kind(stream, WORKER_PAUSE);
}

/* Nothing came while it waited. */
static void on_waited(struct world *world, struct timer *timer)
{
    struct stream *stream = CONTAINER(timer, struct stream, ask);
    (void)world;
    if (!node_sleeps(stream->node, timer, on_waited) && stream->answer == ANSWER_OPEN)
        answer_closes(stream);
}

static void on_confirm(struct world *world, struct timer *timer)
{
    struct stream *stream = CONTAINER(timer, struct stream, confirm);
    struct worker_lease_ref leases[LEASES_MAX] = { 0 };
    struct engine_worker_event event = { .kind = WORKER_UNCONFIRMED, .leases = leases };
    if (node_sleeps(stream->node, timer, on_confirm))
        return;
    struct unheard *unheard = stream->unheard;
    for (; unheard && unheard->until_ms <= world->now_ms && event.lease_count < LEASES_MAX;
         unheard = unheard->next)
        leases[event.lease_count++] =
            (struct worker_lease_ref){ .uid = unheard->uid, .fence = unheard->fence };
    stream->unheard = unheard;
    if (unheard)
        world_at(world, timer, unheard->until_ms, on_confirm);
    if (!event.lease_count)
        return;
    world_trace(world, stream->node->name, "has heard nothing of %zu tasks from %s",
                event.lease_count, stream->worker_name);
    world_hit(world, HIT_UNCONFIRMED);
    post(stream, event_new(stream, &event));
}

/* A task is in the answer, which is closed with the first one. */
static void answer_with(struct stream *stream, const struct word *task)
{
    struct world *world = stream->world;
    struct unheard *unheard = world_alloc(world, sizeof *unheard);
    *unheard = (struct unheard){ NULL, task->uid, task->fence, world->now_ms + CONFIRM_MS };
    LL_APPEND(stream->unheard, unheard);
    if (!timer_is_set(&stream->confirm))
        world_at(world, &stream->confirm, unheard->until_ms, on_confirm);
    if (stream->answer == ANSWER_OPEN)
        answer_closes(stream);
}

/* --- to the node ------------------------------------------------------------------------------ */

static int64_t travel_ms(struct world *world)
{
    if (world_fault(world, FAULT_MESSAGE_SLOW))
        return world_between(world, 20, 3000);
    return world_between(world, 1, 3);
}

static void node_ends(struct stream *stream);

static void on_to_node(struct world *world, struct timer *timer)
{
    struct stream *stream = CONTAINER(timer, struct stream, to_node);
    if (node_sleeps(stream->node, timer, on_to_node))
        return;
    struct said *said = stream->said;
    stream->said = said->next;
    if (!stream->said)
        stream->said_last = &stream->said;
    else
        world_at(world, timer, stream->said->at_ms, on_to_node);
    if (said->end)
        node_ends(stream);
    else
        post(stream, said->event);
    mem_free(said);
}

static void push_said(struct stream *stream, struct stream_event *event)
{
    struct world *world = stream->world;
    struct said *said = rows_zeroed(1, sizeof *said);
    said->event = event;
    said->end = !event;
    said->at_ms = world->now_ms + travel_ms(world);
    const struct said *last = stream->said;
    while (last && last->next)
        last = last->next;
    if (last && last->at_ms > said->at_ms)
        said->at_ms = last->at_ms;
    *stream->said_last = said;
    stream->said_last = &said->next;
    if (!timer_is_set(&stream->to_node))
        world_at(world, &stream->to_node, said->at_ms, on_to_node);
}

void stream_say(struct stream *stream, const struct engine_worker_event *event)
{
    stream->said_at_ms = stream->world->now_ms;
    if (stream->worker_open && !stream->cut && stream->node_open)
        push_said(stream, event_new(stream, event));
}

static void drop_said(struct stream *stream)
{
    world_cancel(stream->world, &stream->to_node);
    while (stream->said) {
        struct said *said = stream->said;
        stream->said = said->next;
        if (said->event)
            event_free(said->event);
        mem_free(said);
    }
    stream->said_last = &stream->said;
}

/* --- to the worker ---------------------------------------------------------------------------- */

static void on_to_worker(struct world *world, struct timer *timer)
{
    struct stream *stream = CONTAINER(timer, struct stream, to_worker);
    if (worker_sleeps(stream->worker, timer, on_to_worker))
        return;
    struct word *word = stream->words;
    stream->words = word->next;
    if (!stream->words)
        stream->words_last = &stream->words;
    else
        world_at(world, timer, stream->words->at_ms, on_to_worker);
    if (stream->worker_open)
        worker_hears(stream->worker, stream, word);
}

static void push_word(struct stream *stream, const struct word *what)
{
    struct world *world = stream->world;
    if (!stream->node_open || stream->cut)
        return;
    struct word *word = world_alloc(world, sizeof *word);
    *word = *what;
    word->next = NULL;
    word->sent_at_ms = world->now_ms;
    word->at_ms = world->now_ms + travel_ms(world);
    const struct word *last = stream->words;
    while (last && last->next)
        last = last->next;
    if (last && last->at_ms > word->at_ms)
        word->at_ms = last->at_ms;
    *stream->words_last = word;
    stream->words_last = &word->next;
    if (!timer_is_set(&stream->to_worker))
        world_at(world, &stream->to_worker, word->at_ms, on_to_worker);
}

static void drop_words(struct stream *stream)
{
    world_cancel(stream->world, &stream->to_worker);
    stream->words = NULL;
    stream->words_last = &stream->words;
}

/* --- ends ------------------------------------------------------------------------------------- */

static void node_ends(struct stream *stream)
{
    if (!stream->node_open)
        return;
    if (stream->greeted && !stream->gone_posted)
        post_kind(stream, WORKER_GONE);
    stream->gone_posted = true;
    world_cancel(stream->world, &stream->room);
    world_cancel(stream->world, &stream->ask);
    world_cancel(stream->world, &stream->confirm);
    world_cancel(stream->world, &stream->node_hears);
    if (stream->worker_open && !stream->cut) {
        struct word end = { .kind = WORD_END };
        push_word(stream, &end);
    }
    stream->node_open = false;
    drop_said(stream);
    DL_DELETE(stream->node->streams, stream);
}

static void on_node_hears(struct world *world, struct timer *timer)
{
    struct stream *stream = CONTAINER(timer, struct stream, node_hears);
    (void)world;
    if (!node_sleeps(stream->node, timer, on_node_hears))
        node_ends(stream);
}

static void on_worker_hears(struct world *world, struct timer *timer)
{
    struct stream *stream = CONTAINER(timer, struct stream, worker_hears);
    (void)world;
    if (worker_sleeps(stream->worker, timer, on_worker_hears) || !stream->worker_open)
        return;
    if (!stream->cut && stream->node_open)
        push_said(stream, NULL);
    stream->worker_open = false;
    drop_words(stream);
    worker_lost(stream->worker, stream);
}

void stream_node_ends_at(struct stream *stream, int64_t at_ms)
{
    if (stream->node_open)
        world_at(stream->world, &stream->node_hears, at_ms, on_node_hears);
}

void stream_worker_ends_at(struct stream *stream, int64_t at_ms)
{
    if (stream->worker_open)
        world_at(stream->world, &stream->worker_hears, at_ms, on_worker_hears);
}

void stream_end(struct stream *stream)
{
    if (!stream->worker_open)
        return;
    stream->worker_open = false;
    drop_words(stream);
    if (!stream->cut && stream->node_open)
        push_said(stream, NULL);
}

void stream_cut_unheard(struct stream *stream, int64_t worker_ms, int64_t node_ms)
{
    struct world *world = stream->world;
    if (stream->cut || !stream->node_open || !stream->worker_open)
        return;
    world_trace(world, stream->worker->full_name, "stream to %s is cut", stream->node->name);
    stream->cut = true;
    drop_said(stream);
    drop_words(stream);
    world_after(world, &stream->worker_hears, worker_ms, on_worker_hears);
    world_after(world, &stream->node_hears, node_ms, on_node_hears);
}

void stream_cut(struct stream *stream)
{
    struct world *world = stream->world;
    int64_t worker_ms = world_between(world, 0, 50), node_ms = world_between(world, 0, 50);
    if (world_fault(world, FAULT_STREAM_HALF_OPEN))
        *(world_chance(world, 500) ? &worker_ms : &node_ms) =
            world_between(world, 1000, HEARS_LATE_MS);
    stream_cut_unheard(stream, worker_ms, node_ms);
}

void streams_lose_node(struct node *node)
{
    struct world *world = node->world;
    while (node->streams) {
        struct stream *stream = node->streams;
        DL_DELETE(node->streams, stream);
        stream->node_open = false;
        stream->cut = true;
        world_cancel(world, &stream->room);
        world_cancel(world, &stream->ask);
        world_cancel(world, &stream->confirm);
        world_cancel(world, &stream->node_hears);
        drop_said(stream);
        if (!stream->worker_open)
            continue;
        /* What the node had sent may still arrive before its end does. */
        int64_t late = world_fault(world, FAULT_STREAM_HALF_OPEN)
                           ? world_between(world, 1000, HEARS_LATE_MS)
                           : world_between(world, 0, 50);
        world_after(world, &stream->worker_hears, late, on_worker_hears);
    }
}

/* --- what the engine calls ---------------------------------------------------------------------
 */

static void on_room(struct world *world, struct timer *timer)
{
    struct stream *stream = CONTAINER(timer, struct stream, room);
    (void)world;
    if (node_sleeps(stream->node, timer, on_room))
        return;
    stream->blocked = false;
    if (stream->answer == ANSWER_OPEN)
        post_kind(stream, WORKER_ROOM);
}

static bool link_has_room(struct worker_link *link)
{
    struct stream *stream = stream_of(link);
    struct world *world = stream->world;
    if (!stream->node_open)
        return true;
    if (!stream->blocked && world_fault(world, FAULT_STREAM_BLOCKED)) {
        stream->blocked = true;
        world_after(world, &stream->room, world_between(world, 1, 3000), on_room);
    }
    return !stream->blocked && stream->answer == ANSWER_OPEN;
}

static bool link_tasks(struct worker_link *link, const struct engine_task *tasks, size_t count)
{
    struct stream *stream = stream_of(link);
    if (!stream->node_open)
        return false;
    if (stream->answer == ANSWER_GIVEN)
        world_violate(stream->world, INV_CREDIT, "%s got a task after its answer was closed",
                      stream->worker_name);
    for (size_t i = 0; i < count; i++) {
        const struct engine_task *task = &tasks[i];
        const struct saga_row *row = saga_row(task->saga);
        invariants_task(stream->world, stream->node, stream->worker_name, task);
        struct word word = { .kind = WORD_TASK,
                             .uid = row->uid,
                             .fence = task->view.lease->fence,
                             .lease_ms = task->lease_ms,
                             .attempt_ms = task->attempt_ms,
                             .definition = world_text(stream->world, row->definition),
                             .saga_id = world_text(stream->world, row->saga_id),
                             .handler = world_text(stream->world, task->view.rule->handler),
                             .key = world_text(stream->world, task->idempotency_key),
                             .step = (size_t)task->view.lease->step,
                             .operation = task->view.lease->operation,
                             .about = task->view.about,
                             .try_ = task->view.lease->try_ };
        world_trace(stream->world, stream->node->name, "sends task %s #%d %s %s to %s",
                    row->saga_id, (int)fence_seq(word.fence), task->view.step->name,
                    operation_name(word.operation), stream->worker_name);
        push_word(stream, &word);
        if (stream->polls)
            answer_with(stream, &word);
    }
    return true;
}

static enum outcome take_note(struct stream *stream, const struct engine_lease_ack *ack)
{
    for (struct report_note **at = &stream->notes; *at; at = &(*at)->next) {
        struct report_note *note = *at;
        if (note->fence != ack->fence || memcmp(&note->uid, &ack->uid, sizeof note->uid) != 0)
            continue;
        *at = note->next;
        return note->outcome;
    }
    return OUTCOME_NONE;
}

static void trace_ack(struct stream *stream, const struct engine_lease_ack *ack)
{
    static const char *const names[] = { "ACCEPTED", "DUPLICATE", "STALE" };
    const struct db_saga *saga = database_saga(&stream->world->database, &ack->uid);
    world_trace(stream->world, stream->node->name, "acknowledges %s #%d to %s: %s",
                saga ? saga->row.saga_id : "?", (int)fence_seq(ack->fence), stream->worker_name,
                names[ack->ack]);
}

static void link_acks(struct worker_link *link, const struct engine_lease_ack *acks, size_t count)
{
    struct stream *stream = stream_of(link);
    for (size_t i = 0; i < count; i++) {
        trace_ack(stream, &acks[i]);
        invariants_ack(stream->world, stream->node, &acks[i], take_note(stream, &acks[i]));
        struct word word = {
            .kind = WORD_ACK, .uid = acks[i].uid, .fence = acks[i].fence, .ack = acks[i].ack
        };
        push_word(stream, &word);
    }
}

static void link_extended(struct worker_link *link, const struct engine_lease_extended *leases,
                          size_t count)
{
    struct stream *stream = stream_of(link);
    for (size_t i = 0; i < count; i++) {
        invariants_extended(stream->world, stream->node, &leases[i]);
        struct word word = { .kind = WORD_EXTENDED,
                             .uid = leases[i].uid,
                             .fence = leases[i].fence,
                             .lease_ms = leases[i].lease_ms };
        push_word(stream, &word);
    }
}

static void link_cancel_hint(struct worker_link *link, const struct uuid *uid, int64_t fence)
{
    struct word word = { .kind = WORD_HINT, .uid = *uid, .fence = fence };
    world_hit(stream_of(link)->world, HIT_HINTED);
    push_word(stream_of(link), &word);
}

static void link_welcome(struct worker_link *link, uint64_t session)
{
    struct stream *stream = stream_of(link);
    struct word word = { .kind = WORD_WELCOME };
    (void)session;
    push_word(stream, &word);
    if (stream->polls)
        world_after(stream->world, &stream->ask, world_between(stream->world, 1000, WAIT_MS),
                    on_waited);
}

static void link_close(struct worker_link *link, const struct err *why)
{
    struct stream *stream = stream_of(link);
    world_trace(stream->world, stream->node->name, "ends the stream of %s: %s", stream->worker_name,
                why->msg);
    world_hit(stream->world, HIT_STREAM_ENDED);
    if (stream->node_open) /* GONE follows */
        world_after(stream->world, &stream->node_hears, world_between(stream->world, 0, 5),
                    on_node_hears);
}

static const struct worker_link_ops link_ops = {
    link_has_room, link_tasks, link_acks, link_extended, link_cancel_hint, link_welcome, link_close,
};

struct stream *stream_open(struct worker *worker, struct node *node)
{
    struct stream *stream = world_alloc(worker->world, sizeof *stream);
    stream->link.ops = &link_ops;
    stream->world = worker->world;
    stream->node = node;
    stream->worker = worker;
    stream->worker_name = worker->full_name;
    stream->polls = worker->polls;
    stream->node_open = stream->worker_open = true;
    stream->words_last = &stream->words;
    stream->said_last = &stream->said;
    DL_APPEND(node->streams, stream);
    return stream;
}
