#include "wire/saga_codec.h"

#include "base/mem.h"
#include "dispatch/key.h"
#include "wire/labels.h"
#include "wire/times.h"

#include <string.h>

/* The words stand in the same order here and there; where the core has no "none", the message is
 * one ahead. */
_Static_assert((int)SAGA_ABANDONED + 1 == (int)SAGA__V1__SAGA_STATE__SAGA_STATE_ABANDONED, "order");
_Static_assert((int)OPERATION_PROBE + 1 == (int)SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE,
               "order");
_Static_assert((int)OUTCOME_DONE == (int)SAGA__V1__OUTCOME__OUTCOME_DONE, "order");
_Static_assert((int)OUTCOME_UNKNOWN == (int)SAGA__V1__OUTCOME__OUTCOME_UNKNOWN, "order");
_Static_assert((int)OUTCOME_STILL_UNKNOWN == (int)SAGA__V1__OUTCOME__OUTCOME_STILL_UNKNOWN,
               "order");
_Static_assert((int)PARK_SUSPENDED == (int)SAGA__V1__PARK_REASON__PARK_REASON_SUSPENDED, "order");
_Static_assert((int)STEP_WAITING_FOR_SIGNAL + 1 ==
                   (int)SAGA__V1__STEP_STATE__STEP_STATE_WAITING_FOR_SIGNAL,
               "order");
_Static_assert((int)WAIT_SIGNAL == (int)SAGA__V1__WAIT_KIND__WAIT_KIND_SIGNAL, "order");
_Static_assert((int)ENTRY_OPTIONS + 1 == (int)SAGA__V1__JOURNAL_ENTRY__KIND__KIND_OPTIONS, "order");
_Static_assert((int)EFFECT_AT_MOST_ONCE + 1 == (int)SAGA__V1__EFFECT__EFFECT_AT_MOST_ONCE, "order");

void rate_from_milli(int64_t milli, Saga__V1__Rate *ret)
{
    static const int32_t spans[] = { 1, 60, 3600, 1000 };
    size_t i = 0;
    while (milli * spans[i] % 1000)
        i++; /* the last one always fits */
    ret->tasks = milli * spans[i] / 1000;
    ret->seconds = spans[i];
}

Saga__V1__SagaState saga_state_to_message(enum saga_state state)
{
    return (Saga__V1__SagaState)((int)state + 1);
}

Saga__V1__OperationKind operation_to_message(enum operation operation)
{
    return (Saga__V1__OperationKind)((int)operation + 1);
}

bool saga_state_from_message(Saga__V1__SagaState message, enum saga_state *ret)
{
    int state = (int)message - 1;
    if (state < 0 || state >= SAGA_STATE_COUNT)
        return false;
    *ret = (enum saga_state)state;
    return true;
}

bool reported_outcome_from_message(Saga__V1__Outcome message, enum outcome *ret)
{
    bool told =
        message >= SAGA__V1__OUTCOME__OUTCOME_DONE && message <= SAGA__V1__OUTCOME__OUTCOME_UNKNOWN;
    if (!told && message != SAGA__V1__OUTCOME__OUTCOME_NOT_DONE &&
        message != SAGA__V1__OUTCOME__OUTCOME_STILL_UNKNOWN)
        return false;
    *ret = (enum outcome)(int)message;
    return true;
}

/* An initialised message; NULL sets arena->oom. */
static void *message_new(struct arena *arena, const ProtobufCMessageDescriptor *type)
{
    void *message = arena_alloc(arena, type->sizeof_message);
    if (message)
        protobuf_c_message_init(type, message);
    return message;
}

/* NULL for a time that is not set, or with arena->oom. */
static Google__Protobuf__Timestamp *time_message(struct arena *arena, int64_t ms)
{
    if (!ms)
        return NULL;
    Google__Protobuf__Timestamp *message =
        message_new(arena, &google__protobuf__timestamp__descriptor);
    if (message)
        timestamp_from_ms(ms, message);
    return message;
}

/* Messages never write to their text, but protobuf-c has it without const. */
static char *text(const char *value)
{
    union {
        const char *in;
        char *out;
    } cast = { .in = value };
    return cast.out;
}

static ProtobufCBinaryData binary(const struct bytes *bytes)
{
    return (ProtobufCBinaryData){ bytes->size, bytes->data };
}

/* NULL when there is neither code nor message. */
static Saga__V1__ErrorInfo *error_message(struct arena *arena, char *code, char *message)
{
    if (!code && !message)
        return NULL;
    Saga__V1__ErrorInfo *info = message_new(arena, &saga__v1__error_info__descriptor);
    if (info) {
        info->code = code;
        info->message = message;
    }
    return info;
}

static char *uuid_message(struct arena *arena, const struct uuid *uuid)
{
    char *out = arena_alloc(arena, UUID_TEXT_SIZE);
    if (out)
        uuid_format(uuid, out);
    return out;
}

static char *step_name(const struct definition *definition, int step)
{
    return definition && step >= 0 && (size_t)step < definition->step_count
               ? definition->steps[step].name
               : NULL;
}

static int add_labels(struct arena *arena, const struct saga_row *row, Saga__V1__Saga *message,
                      struct err *err)
{
    struct label *labels = NULL;
    size_t count = 0;
    int rc = labels_from_json(arena, row->labels, &labels, &count, err);
    if (rc || !count)
        return rc;
    message->labels = arena_array(arena, count, sizeof(ProtobufCMessage *));
    if (!message->labels)
        return err_set(err, ERR_NOMEM, "saga");
    for (size_t i = 0; i < count; i++) {
        Saga__V1__Saga__LabelsEntry *entry =
            message_new(arena, &saga__v1__saga__labels_entry__descriptor);
        if (!entry)
            return err_set(err, ERR_NOMEM, "saga");
        entry->key = text(labels[i].key);
        entry->value = text(labels[i].value);
        message->labels[i] = entry;
    }
    message->n_labels = count;
    return 0;
}

/* What the row knows; definition may be NULL, then a parked step has no name. */
static int fill_from_row(struct arena *arena, const struct saga_row *row,
                         const struct definition *definition, Saga__V1__Saga *message,
                         struct err *err)
{
    message->uid = uuid_message(arena, &row->uid);
    message->namespace_ = row->namespace_;
    message->definition = row->definition;
    message->revision = row->revision;
    message->saga_id = row->saga_id;
    message->run = row->run;
    message->state = saga_state_to_message(row->state);
    message->phase = row->state == SAGA_PARKED ? saga_state_to_message(row->phase) : message->state;
    message->state_time =
        time_message(arena, row->ended_at_ms ? row->ended_at_ms : row->updated_at_ms);
    message->doubt = row->doubt;
    message->start_time = time_message(arena, row->started_at_ms);
    message->update_time = time_message(arena, row->updated_at_ms);
    message->deadline_time = time_message(arena, row->deadline_at_ms);
    message->end_time = time_message(arena, row->ended_at_ms);
    message->start_at_time = time_message(arena, row->start_at_ms);
    if (row->has_related)
        message->related_saga = uuid_message(arena, &row->related);
    if (row->state == SAGA_PARKED) {
        message->park = message_new(arena, &saga__v1__park__descriptor);
        if (!message->park)
            return err_set(err, ERR_NOMEM, "saga");
        message->park->reason = (Saga__V1__ParkReason)(int)row->park_reason;
        message->park->step = definition ? step_name(definition, row->park_step) : NULL;
        message->park->error = error_message(arena, row->park_code, row->park_message);
    }
    int rc = add_labels(arena, row, message, err);
    if (!rc && arena->oom)
        rc = err_set(err, ERR_NOMEM, "saga");
    return rc;
}

int saga_row_to_message(struct arena *arena, const struct saga_row *row, char *park_step,
                        Saga__V1__Saga **ret, struct err *err)
{
    Saga__V1__Saga *message = message_new(arena, &saga__v1__saga__descriptor);
    if (!message)
        return err_set(err, ERR_NOMEM, "saga");
    int rc = fill_from_row(arena, row, NULL, message, err);
    if (!rc && message->park)
        message->park->step = text(park_step);
    if (!rc)
        *ret = message;
    return rc;
}

/* Since when it is in its state: the newest decision that changed the state. */
static int64_t state_since(const struct saga *saga)
{
    const struct saga_row *row = saga_row(saga);
    if (row->ended_at_ms)
        return row->ended_at_ms;
    int64_t since = row->started_at_ms;
    bool parked = false;
    for (int64_t seq = 1; seq <= saga_last_seq(saga); seq++) {
        const struct journal_entry *entry = saga_entry(saga, seq);
        bool cancels = entry->kind == ENTRY_COMPENSATE && entry->reason == CAUSE_CANCELLED;
        bool leaves = parked && (entry->kind == ENTRY_RETRY || entry->kind == ENTRY_RESUME ||
                                 entry->kind == ENTRY_SKIP || cancels);
        bool turns = !parked && entry->kind == ENTRY_COMPENSATE;
        bool parks = !parked && entry->kind == ENTRY_PARK;
        if (leaves || turns || parks)
            since = entry->finished_at_ms;
        parked = parks || (parked && !leaves);
    }
    return since;
}

static int add_cause(struct arena *arena, const struct saga *saga, Saga__V1__Saga *message)
{
    const struct journal_entry *lease = NULL;
    const struct journal_entry *entry = saga_first_cause(saga, &lease);
    if (!entry)
        return 0;
    Saga__V1__FirstCause *cause = message_new(arena, &saga__v1__first_cause__descriptor);
    if (!cause)
        return -1;
    cause->reason = text(cause_name((enum cause)entry->reason));
    int step = lease ? lease->step : entry->step;
    cause->step = step_name(saga_definition(saga), step);
    cause->try_ = lease ? lease->try_ : 0;
    const struct journal_entry *told = lease && lease->error_code ? lease : entry;
    cause->error = error_message(arena, told->error_code, told->error_message);
    cause->time = time_message(arena, entry->finished_at_ms);
    cause->actor = entry->actor;
    message->cause = cause;
    return 0;
}

static int add_pivot(struct arena *arena, const struct saga *saga, Saga__V1__Saga *message)
{
    message->past_pivot = saga_is_past_pivot(saga);
    const struct journal_entry *entry = saga_pending(saga);
    if (!entry)
        return 0;
    Saga__V1__Pending *pending = message_new(arena, &saga__v1__pending__descriptor);
    if (!pending)
        return -1;
    pending->reason = text(cause_name((enum cause)entry->reason));
    pending->step = step_name(saga_definition(saga), entry->step);
    pending->actor = text(entry->actor);
    pending->time = time_message(arena, entry->finished_at_ms);
    message->pending = pending;
    return 0;
}

static int add_unknown(struct arena *arena, const struct saga *saga, size_t index,
                       Saga__V1__StepStatus *step)
{
    struct unknown_view view;
    if (!saga_unknown_view(saga, index, &view))
        return 0;
    Saga__V1__UnknownOutcome *unknown = message_new(arena, &saga__v1__unknown_outcome__descriptor);
    if (!unknown)
        return -1;
    const struct operation_rule *rule =
        definition_rule(saga_definition(saga), index, view.operation);
    unknown->operation = operation_to_message(view.operation);
    unknown->effect = (Saga__V1__Effect)((int)rule->effect + 1);
    unknown->attempts = view.attempts;
    unknown->settle_time = time_message(arena, view.settled_ms);
    unknown->send_before = time_message(arena, view.send_before_ms);
    unknown->probes = view.probes;
    if (view.last) {
        unknown->worker = view.last->worker;
        unknown->fence = view.last->fence;
        unknown->lease_time = time_message(arena, view.last->leased_at_ms);
        unknown->end_time = time_message(arena, view.last->finished_at_ms);
        unknown->outcome = (Saga__V1__Outcome)(int)view.last->outcome;
        unknown->error = error_message(arena, view.last->error_code, view.last->error_message);
    }
    if (view.last_probe) {
        unknown->last_probe = (Saga__V1__Outcome)(int)view.last_probe->outcome;
        unknown->last_probe_error =
            error_message(arena, view.last_probe->error_code, view.last_probe->error_message);
        unknown->last_probe_time = time_message(arena, view.last_probe->finished_at_ms);
    }
    step->unknown = unknown;
    return 0;
}

static Saga__V1__StepStatus *step_to_message(struct arena *arena, const struct saga *saga,
                                             size_t index, int64_t now_ms)
{
    const struct definition *definition = saga_definition(saga);
    Saga__V1__StepStatus *message = message_new(arena, &saga__v1__step_status__descriptor);
    char *key = arena_alloc(arena, OPERATION_KEY_SIZE);
    if (!message || !key)
        return NULL;
    struct step_view view;
    saga_step_view(saga, index, now_ms, &view);
    message->name = definition->steps[index].name;
    message->state = (Saga__V1__StepState)((int)view.state + 1);
    message->state_time = time_message(arena, view.since_ms);
    message->operation = operation_to_message(view.operation);
    message->handler = definition_rule(definition, index, view.operation)->handler;
    message->tries = view.tries;
    message->next_time = time_message(arena, view.next_ms);
    message->maybe = view.maybe;
    message->suspect = view.suspect;
    message->retry_until_time = time_message(arena, view.retry_until_ms);
    if (view.last) {
        message->worker = view.last->worker;
        message->fence = view.last->fence;
        message->last_outcome = (Saga__V1__Outcome)(int)view.last->outcome;
        message->last_error = error_message(arena, view.last->error_code, view.last->error_message);
        if (view.last->outcome == OUTCOME_NONE)
            message->lease_until_time = time_message(arena, view.last->lease_until_ms);
    }
    struct bytes output;
    if (saga_step_output(saga, index, &output))
        message->output = binary(&output);
    if (add_unknown(arena, saga, index, message) ||
        operation_key(saga, index, view.operation, saga_key_generation(saga, index, view.operation),
                      key))
        return NULL;
    message->idempotency_key = key;
    return message;
}

static int add_waiting(struct arena *arena, const struct saga *saga, int64_t now_ms,
                       Saga__V1__Saga *message)
{
    Saga__V1__Waiting *waiting = message_new(arena, &saga__v1__waiting__descriptor);
    if (!waiting)
        return -1;
    struct wait_view view;
    saga_wait_view(saga, now_ms, &view);
    waiting->kind = (Saga__V1__WaitKind)(int)view.kind;
    waiting->step = step_name(saga_definition(saga), view.step);
    if (view.step >= 0)
        waiting->operation = operation_to_message(view.operation);
    waiting->handler = text(view.handler);
    waiting->worker = text(view.worker);
    waiting->signal = text(view.signal);
    waiting->since_time = time_message(arena, view.since_ms);
    waiting->until_time = time_message(arena, view.until_ms);
    message->waiting = waiting;
    return 0;
}

static int add_full(struct arena *arena, const struct saga *saga, int64_t now_ms,
                    Saga__V1__Saga *message)
{
    size_t count = saga_definition(saga)->step_count;
    message->input = binary(&saga_row(saga)->input);
    message->steps = arena_array(arena, count, sizeof(ProtobufCMessage *));
    if (!message->steps)
        return -1;
    for (size_t i = 0; i < count; i++) {
        message->steps[i] = step_to_message(arena, saga, i, now_ms);
        if (!message->steps[i])
            return -1;
    }
    message->n_steps = count;
    return add_waiting(arena, saga, now_ms, message);
}

int saga_to_message(struct arena *arena, const struct saga *saga, bool full, int64_t now_ms,
                    Saga__V1__Saga **ret, struct err *err)
{
    Saga__V1__Saga *message = message_new(arena, &saga__v1__saga__descriptor);
    if (!message)
        return err_set(err, ERR_NOMEM, "saga");
    int rc = fill_from_row(arena, saga_row(saga), saga_definition(saga), message, err);
    if (rc)
        return rc;
    message->state_time = time_message(arena, state_since(saga));
    message->deadline_time = time_message(arena, saga_deadline_ms(saga));
    if (add_cause(arena, saga, message) || add_pivot(arena, saga, message) ||
        (full && add_full(arena, saga, now_ms, message)) || arena->oom)
        return err_set(err, ERR_NOMEM, "saga");
    *ret = message;
    return 0;
}

static const char *reason_of(const struct definition *definition, const struct journal_entry *entry)
{
    bool has_step = definition && entry->step >= 0 && (size_t)entry->step < definition->step_count;
    if (entry->kind == ENTRY_SIGNAL && has_step)
        return definition->steps[entry->step].signal;
    if (entry_has_cause(entry->kind))
        return cause_name((enum cause)entry->reason);
    if (entry->kind == ENTRY_PARK)
        return park_reason_name((enum park_reason)entry->reason);
    return NULL;
}

/* NULL with arena->oom. */
static char *bytes_text(struct arena *arena, const struct bytes *bytes)
{
    char *out = arena_alloc(arena, bytes->size + 1);
    if (out && bytes->size)
        memcpy(out, bytes->data, bytes->size);
    if (out)
        out[bytes->size] = '\0';
    return out;
}

int journal_entry_to_message(struct arena *arena, const struct definition *definition,
                             const struct journal_entry *entry, Saga__V1__JournalEntry **ret,
                             struct err *err)
{
    Saga__V1__JournalEntry *message = message_new(arena, &saga__v1__journal_entry__descriptor);
    if (!message)
        return err_set(err, ERR_NOMEM, "journal entry");
    message->seq = entry->seq;
    message->kind = (Saga__V1__JournalEntry__Kind)((int)entry->kind + 1);
    message->step = step_name(definition, entry->step);
    if (entry->step >= 0)
        message->operation = operation_to_message(entry->operation);
    message->try_ = entry->try_;
    message->fence = entry->fence;
    message->worker = entry->worker;
    message->lease_time = time_message(arena, entry->leased_at_ms);
    message->attempt_until_time = time_message(arena, entry->attempt_until_ms);
    message->lease_until_time = time_message(arena, entry->lease_until_ms);
    message->outcome = (Saga__V1__Outcome)(int)entry->outcome;
    message->finish_time = time_message(arena, entry->finished_at_ms);
    message->retry_time = time_message(arena, entry->retry_at_ms);
    bool options = entry->kind == ENTRY_OPTIONS; /* whose output is no payload, but its reason */
    if (!options)
        message->output = binary(&entry->output);
    message->error = error_message(arena, entry->error_code, entry->error_message);
    message->reason =
        options ? bytes_text(arena, &entry->output) : text(reason_of(definition, entry));
    message->about = entry->about;
    message->actor = entry->actor;
    message->signal_id = entry->signal_id;
    if (entry->held_ms) {
        message->held = message_new(arena, &google__protobuf__duration__descriptor);
        if (message->held)
            duration_from_ms(entry->held_ms, message->held);
    }
    if (arena->oom)
        return err_set(err, ERR_NOMEM, "journal entry");
    *ret = message;
    return 0;
}
