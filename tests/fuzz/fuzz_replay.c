/* Goal: a journal as the rules write it is replayed to the same saga, and one that was changed
 * behind their back is refused or gives a saga for which saga_check holds, and which can be shown
 * and driven on without a crash. Method: the input is a script. It makes a definition, walks a saga
 * through events of its choice (the walk compares the copy with a replay at its end), then changes
 * rows and entries, and replays. */
#include "fuzz.h"
#include "unit/core_world.h"
#include "wire/saga_codec.h"

#include "core/limits.h"

#include <stdio.h>
#include <string.h>

enum { STEPS_MAX = 4, EVENTS_MAX = 60, EDITS_MAX = 8 };

static void vary_rule(struct script *script, struct operation_rule *rule, bool compensation)
{
    unsigned what = script_byte(script);
    if (what & 1)
        rule->effect = EFFECT_AT_MOST_ONCE;
    if (what & 2)
        rule->retry.max_attempts = 2;
    if (what & 4)
        rule->retry.for_ms = 1000;
    if (what & 8)
        rule->start_timeout_ms = 2000;
    if ((what & 16) && !compensation)
        rule->on_unknown = ON_UNKNOWN_COMPENSATE;
    if ((what & 32) && !compensation)
        rule->on_exhausted = ON_EXHAUSTED_COMPENSATE;
    if ((what & 48) == 48 && !compensation) {
        rule->on_unknown = ON_UNKNOWN_ACCEPT;
        rule->on_exhausted = ON_EXHAUSTED_CONTINUE;
    }
    if (what & 64) { /* PROBED, or an IDEMPOTENT one that is probed in the end */
        rule->effect = what & 1 ? EFFECT_PROBED : EFFECT_IDEMPOTENT;
        rule->fresh_key = what & 8;
    }
    if ((what & 128) && rule->effect == EFFECT_IDEMPOTENT)
        rule->window_ms = 20000;
}

static bool wants_probe(const struct operation_rule *rule)
{
    return rule->effect == EFFECT_PROBED || rule->fresh_key ||
           (rule->window_ms && rule->retry.max_attempts);
}

static void add_probe(struct world *world, size_t step, enum operation operation)
{
    const struct operation_rule *rule = definition_rule(world->definition, step, operation);
    if (!wants_probe(rule))
        return;
    struct operation_rule *probe = world_add_probe(world, step, operation);
    probe->retry.max_attempts = rule->retry.max_attempts ? 3 : 0;
}

static void make_definition(struct script *script, struct world *world)
{
    world_open(world, 1 + script_choice(script, STEPS_MAX));
    world->compare = false; /* once, at the end of the walk */
    unsigned times = script_choice(script, 4);
    if (times == 1)
        world->start_at_ms = WORLD_START_MS + 3000;
    if (times == 2)
        world->suspect_since_ms = WORLD_START_MS - 5000;
    if (times == 0) {
        world->definition->deadline_ms = 20000;
        world->definition->on_deadline = (enum on_deadline)script_choice(script, ON_DEADLINE_COUNT);
    }
    for (size_t i = 0; i < world->definition->step_count; i++) {
        struct step_rule *step = &world->definition->steps[i];
        unsigned what = script_byte(script);
        step->guarded = !(what & 1);
        step->settle_ms = what & 1 ? 3000 : -1;
        step->has_compensation = !(what & 2);
        vary_rule(script, &step->action, false);
        vary_rule(script, &step->compensation, true);
        add_probe(world, i, OPERATION_ACTION);
        if (step->has_compensation)
            add_probe(world, i, OPERATION_COMPENSATION);
        if (step->settle_ms < 0 && (what & 4))
            step->settle_ms = 1000;
        if ((what & 48) == 48)
            world_make_wait(world, i, what & 64 ? 2000 : 0,
                            (enum on_exhausted)(what / 4 % ON_EXHAUSTED_COUNT));
    }
}

/* --- the walk --------------------------------------------------------------------------------- */

static int64_t some_lease(struct script *script, const struct world *world)
{
    int64_t seq = 1 + script_byte(script) % (saga_last_seq(world->saga) + 1);
    const struct journal_entry *entry = saga_entry(world->saga, seq);
    return entry && entry->kind == ENTRY_LEASE ? seq : 0;
}

static void report(struct script *script, struct world *world)
{
    static uint8_t output[] = "output";
    int64_t seq = some_lease(script, world);
    unsigned what = script_byte(script);
    if (!seq)
        return;
    struct report report = {
        .fence = saga_entry(world->saga, seq)->fence + (what >= 250),
        .outcome = (enum outcome)(OUTCOME_DONE + what % 5),
        .ours = what & 64,
        .error_code = what & 128 ? "CODE" : NULL,
        .error_message = what & 128 ? "message" : NULL,
        .retry_after_ms = what & 32 ? 5000 : 0,
    };
    if (saga_entry(world->saga, seq)->operation == OPERATION_PROBE && what % 3)
        report.outcome = what % 3 == 1 ? OUTCOME_NOT_DONE : OUTCOME_STILL_UNKNOWN;
    if (what & 16)
        report.output = (struct bytes){ output, sizeof output };
    (void)world_report_full(world, &report); /* any verdict */
}

static void end_lease(struct script *script, struct world *world)
{
    int64_t seq = some_lease(script, world);
    if (seq)
        (void)world_lease_end(world, seq,
                              script_byte(script) & 1 ? OUTCOME_RELEASED : OUTCOME_STREAM_LOST);
}

/* Of some step, be it a wait or not. */
static void fill_signal(unsigned what, char name[8], struct signal *ret)
{
    static uint8_t payload[] = "payload";
    (void)snprintf(name, 8, "s_%c", (int)('a' + what % STEPS_MAX));
    *ret = (struct signal){ .name = name,
                            .id = what & 64 ? "1" : "2",
                            .payload = { payload, what & 32 ? sizeof payload : 0 },
                            .actor = what & 16 ? "bank" : NULL };
}

static void tell(struct script *script, struct world *world)
{
    char name[8];
    struct signal signal;
    fill_signal(script_byte(script), name, &signal);
    int rc = saga_on_signal(world->saga, &signal, world->now_ms, &world->transition,
                            &world->verdict, &world->err);
    FUZZ_CHECK(!rc || rc == ERR_PRECONDITION || rc == ERR_INVALID);
    if (!rc && world->verdict == VERDICT_ACCEPTED)
        world_commit(world);
}

static void extend(struct script *script, struct world *world)
{
    int64_t seq = some_lease(script, world);
    if (!seq) {
        tell(script, world);
        return;
    }
    if (!saga_lease_is_open(world->saga, saga_entry(world->saga, seq)->fence))
        return;
    const struct journal_entry *entry = saga_entry(world->saga, seq);
    if (world->now_ms > entry->attempt_until_ms)
        return;
    saga_extended(world->saga, seq, world->now_ms);
    world->entries[seq - 1].lease_until_ms = entry->lease_until_ms;
}

static void one_event(struct script *script, struct world *world)
{
    static const int64_t spans_ms[] = { 1, 500, 3000, 16000, 31000, 400000 };
    switch (script_choice(script, 14)) {
    case 0:
    case 1:
        if (world_is_grantable(world))
            (void)world_grant(world);
        break;
    case 2:
    case 3:
        report(script, world);
        break;
    case 4:
        end_lease(script, world);
        break;
    case 5:
        world_pass(world, spans_ms[script_choice(script, ARRAY_LEN(spans_ms))]);
        break;
    case 6:
        for (int i = 0; world_time(world) == VERDICT_ACCEPTED; i++)
            FUZZ_CHECK(i < 20); /* what is due comes to an end */
        break;
    case 7:
        (void)world_cancel(world); /* refused where it is not allowed */
        break;
    case 8:
        (void)world_retry(world, script_byte(script) & 1 ? NULL : "a");
        break;
    case 10:
        (void)world_suspend(world);
        break;
    case 11:
        (void)world_resume(world);
        break;
    case 12:
        (void)world_skip(world, NULL);
        break;
    case 13: {
        static const enum operation said[] = { OPERATION_COUNT, OPERATION_ACTION,
                                               OPERATION_COMPENSATION };
        unsigned what = script_byte(script);
        (void)world_resolve(world, what & 1 ? "a" : "b", said[what / 2 % ARRAY_LEN(said)], what & 8,
                            NULL);
        break;
    }
    default:
        extend(script, world);
    }
}

static void walk(struct script *script, struct world *world)
{
    world_start(world);
    for (unsigned left = script_choice(script, EVENTS_MAX); left; left--)
        one_event(script, world);
    world->compare = true;
    world->transition = (struct transition){ 0 };
    world_commit(world);
}

/* --- changes behind its back ------------------------------------------------------------------ */

static void replace_text(char **text, const char *by)
{
    mem_free(*text);
    *text = by ? mem_strdup(by) : NULL;
}

static void edit_row(struct script *script, struct saga_row *row)
{
    unsigned what = script_choice(script, 10);
    int64_t number = script_number(script);
    switch (what) {
    case 0:
        row->state = (enum saga_state)((uint64_t)number % SAGA_STATE_COUNT);
        break;
    case 1:
        row->phase = (enum saga_state)((uint64_t)number % SAGA_STATE_COUNT);
        break;
    case 2:
        row->state = row->phase = (enum saga_state)((uint64_t)number % SAGA_STATE_COUNT);
        row->ended_at_ms = saga_state_is_terminal(row->state) ? WORLD_START_MS * 2 : 0;
        break;
    case 3:
        row->doubt = !row->doubt;
        break;
    case 4:
        row->park_reason = (enum park_reason)((uint64_t)number % PARK_REASON_COUNT);
        break;
    case 5:
        row->park_step = (int16_t)number;
        break;
    case 6:
        row->ended_at_ms = number;
        break;
    case 7:
        row->started_at_ms = number;
        break;
    case 8:
        row->deadline_at_ms = number;
        break;
    default:
        if (number % 4 == 3)
            row->start_at_ms = number;
        replace_text(&row->labels, number % 2 ? "{\"k\":\"v\"}" : "[]");
    }
}

static void edit_times(unsigned what, int64_t number, struct journal_entry *entry)
{
    int64_t *const times[] = { &entry->leased_at_ms, &entry->attempt_until_ms,
                               &entry->lease_until_ms, &entry->finished_at_ms,
                               &entry->retry_at_ms };
    *times[what % ARRAY_LEN(times)] = number;
}

static void edit_entry(struct script *script, struct journal_entry *entry)
{
    unsigned what = script_choice(script, 16);
    int64_t number = script_number(script);
    switch (what) {
    case 0:
        entry->seq = number;
        break;
    case 1:
        entry->fence = number;
        break;
    case 2:
        entry->kind = (enum entry_kind)((uint64_t)number % ENTRY_KIND_COUNT);
        break;
    case 3:
        entry->step = (int16_t)number;
        break;
    case 4:
        entry->operation = (enum operation)((uint64_t)number % OPERATION_COUNT);
        break;
    case 5:
        entry->try_ = (int32_t)number;
        break;
    case 6:
        entry->outcome = (enum outcome)((uint64_t)number % OUTCOME_COUNT);
        break;
    case 7:
        entry->reason = (uint8_t)number;
        break;
    case 8:
        entry->about = number;
        break;
    case 9:
        replace_text(&entry->worker, number % 2 ? "w/1" : NULL);
        break;
    case 10:
        replace_text(&entry->error_code, number % 2 ? "CODE" : NULL);
        replace_text(&entry->signal_id, number % 2 ? "1" : NULL);
        break;
    default:
        edit_times(what, number, entry);
    }
}

static void add_entry(struct script *script, struct world *world)
{
    FUZZ_CHECK(!mem_grow((void **)&world->entries, &world->capacity, world->count,
                         sizeof(struct journal_entry)));
    struct journal_entry *entry = &world->entries[world->count++];
    *entry =
        (struct journal_entry){ .seq = (int64_t)world->count,
                                .fence = (int64_t)world->count,
                                .kind = (enum entry_kind)script_choice(script, ENTRY_KIND_COUNT),
                                .step = (int16_t)(script_choice(script, 6) - 1),
                                .operation = (enum operation)script_choice(script, 3),
                                .try_ = (int32_t)script_choice(script, 4),
                                .worker = mem_strdup("w/1"),
                                .leased_at_ms = world->now_ms,
                                .attempt_until_ms = world->now_ms + 300000,
                                .lease_until_ms = world->now_ms + 30000,
                                .outcome = (enum outcome)script_choice(script, OUTCOME_COUNT),
                                .reason = (uint8_t)script_choice(script, 16),
                                .about = (int64_t)script_choice(script, 16) };
    if (entry->kind == ENTRY_SIGNAL)
        entry->signal_id = mem_strdup("1");
    entry->finished_at_ms = entry->outcome || entry->kind != ENTRY_LEASE ? world->now_ms : 0;
}

static void edit(struct script *script, struct world *world)
{
    unsigned what = script_choice(script, 8);
    size_t place = world->count ? script_byte(script) % world->count : 0;
    if (what == 0 || (!world->count && what > 1)) {
        edit_row(script, &world->row);
    } else if (what == 1) {
        add_entry(script, world);
    } else if (what == 2) { /* the last one was lost */
        journal_entry_done(&world->entries[--world->count]);
    } else if (what == 3) { /* two have changed places */
        struct journal_entry moved = world->entries[place];
        world->entries[place] = world->entries[0];
        world->entries[0] = moved;
    } else {
        edit_entry(script, &world->entries[place]);
    }
}

/* --- what came of it -------------------------------------------------------------------------- */

static void show(const struct world *world, const struct saga *saga)
{
    struct arena arena = { 0 };
    struct err err;
    Saga__V1__Saga *message = NULL;
    int rc = saga_to_message(&arena, saga, true, world->now_ms, &message, &err);
    if (!rc)
        FUZZ_CHECK(protobuf_c_message_get_packed_size(&message->base) > 0);
    for (int64_t seq = 1; seq <= saga_last_seq(saga); seq++) {
        Saga__V1__JournalEntry *entry = NULL;
        FUZZ_OK(journal_entry_to_message(&arena, world->definition, saga_entry(saga, seq), &entry,
                                         &err),
                &err);
    }
    arena_done(&arena);
}

/* One event, and what the transition says must make sense; then the copy is given up, as after a
 * commit that failed. */
static void drive(struct script *script, const struct world *world, struct saga *saga)
{
    struct transition transition = { 0 };
    enum verdict verdict;
    struct err err;
    struct rng rng;
    rng_seed(&rng, 1);
    int64_t now_ms = world->now_ms + script_number(script) % 1000000;
    struct grantable what;
    char name[8];
    struct signal signal;
    int rc = 0;
    struct resolution resolution = { .step = world->definition->steps[0].name,
                                     .operation = OPERATION_COUNT,
                                     .happened = script_byte(script) & 1,
                                     .evidence = "why" };
    switch (script_choice(script, 9)) {
    case 0:
        rc = saga_on_time(saga, now_ms, true, &rng, &transition, &verdict, &err);
        break;
    case 1:
        rc = saga_on_cancel(saga, "anna", "why", now_ms, &transition, &verdict, &err);
        break;
    case 2:
        rc = saga_on_retry(saga, NULL, "anna", "why", now_ms, &transition, &verdict, &err);
        break;
    case 3:
        rc = saga_on_resolve(saga, &resolution, now_ms, &transition, &verdict, &err);
        break;
    case 4:
        rc = saga_on_skip(saga, NULL, "anna", "why", now_ms, &transition, &verdict, &err);
        break;
    case 5:
        rc = saga_on_abandon(saga, "anna", "why", now_ms, &transition, &verdict, &err);
        break;
    case 6:
        rc = saga_on_suspend(saga, "anna", "why", now_ms, &transition, &verdict, &err);
        break;
    case 7:
        rc = saga_on_resume(saga, "anna", "why", now_ms, &transition, &verdict, &err);
        break;
    default:
        if (saga_grantable(saga, now_ms, &what, 1)) {
            rc = saga_grant(saga, &what, "w/2", 0, now_ms, &transition, &err);
        } else {
            fill_signal(script_byte(script), name, &signal);
            rc = saga_on_signal(saga, &signal, now_ms, &transition, &verdict, &err);
        }
    }
    FUZZ_CHECK(!rc || err.code == ERR_INVALID || err.code == ERR_PRECONDITION ||
               err.code == ERR_NOT_FOUND || err.code == ERR_INTERNAL || err.code == ERR_LIMIT);
    if (transition.append_seq)
        FUZZ_CHECK(transition.append_seq == (int64_t)world->count + 1);
}

static void replay(struct script *script, struct world *world, bool edited)
{
    struct saga *saga = NULL;
    struct err err;
    size_t count = world->count;
    uint8_t memory = script_byte(script);
    fail_memory(memory);
    int rc = saga_replay(world->definition, &world->row, world->entries, count, &saga, &err);
    fail_memory(0);
    FUZZ_CHECK((rc == 0) == (saga != NULL));
    FUZZ_CHECK(edited || memory || !rc);
    if (rc) {
        FUZZ_CHECK((rc == ERR_INTERNAL || (memory && rc == ERR_NOMEM)) && *err.msg);
        FUZZ_CHECK(world->row.saga_id && !saga); /* nothing was consumed */
        return;
    }
    FUZZ_CHECK(!world->row.saga_id && saga_last_seq(saga) == (int64_t)count);
    FUZZ_OK(saga_check(saga, &err), &err);
    (void)saga_due_at(saga); /* any time */
    (void)saga_grantable_at(saga, 0);
    show(world, saga);
    drive(script, world, saga);
    (void)saga_free(saga); /* always NULL */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script script = { data, size };
    struct world world;
    make_definition(&script, &world);
    walk(&script, &world);
    unsigned edits = script_choice(&script, EDITS_MAX);
    for (unsigned i = 0; i < edits; i++)
        edit(&script, &world);
    replay(&script, &world, edits > 0);
    world_close(&world);
    return 0;
}
