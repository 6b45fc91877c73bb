#include "fake_server.h"

#include "base/utf8.h"
#include "fake_checks.h"
#include "fuzz.h"
#include "rpc/queries.h"
#include "rpc/request.h"
#include "store/reader_audit.h"
#include "store/reader_export.h"
#include "store/reader_handlers.h"
#include "store/reader_mend.h"
#include "store/reader_retention.h"
#include "wire/definition_codec.h"
#include "wire/scan.h"
#include "wire/validate.h"

#include <saga/v1/worker.pb-c.h>
#include <string.h>

/* What is defined here takes the place of what stands in the libraries (CMakeLists.txt). */

static struct rpc_server server;
static struct call call;
static unsigned mood, answers, holds;

/* --- what may come through -------------------------------------------------------------------- */

void check_name(const char *text, size_t least, size_t most)
{
    FUZZ_CHECK(text);
    size_t size = strlen(text);
    FUZZ_CHECK(size >= least && size <= most && utf8_is_text(text, size));
}

void check_name_or_null(const char *text, size_t most)
{
    if (text)
        check_name(text, 1, most);
}

void check_prose_or_null(const char *text)
{
    FUZZ_CHECK(!text || (strlen(text) <= LIMIT_REASON_BYTES && utf8_is_valid(text, strlen(text))));
}

static void check_identity(const char *namespace_, const char *definition, const char *saga_id)
{
    check_name(namespace_, 1, LIMIT_NAMESPACE_BYTES);
    check_name(definition, 1, LIMIT_DEFINITION_NAME_BYTES);
    check_name(saga_id, 1, LIMIT_SAGA_ID_BYTES);
}

static void check_ref(const struct store_ref *ref)
{
    if (ref->by_uid)
        return;
    check_identity(ref->namespace_, ref->definition, ref->saga_id);
    FUZZ_CHECK(ref->run >= 0);
}

int refuse(struct err *err)
{
    return err_reason(err, ERR_NOT_FOUND, "NOT_FOUND", "nothing is there");
}

bool fake_reader_refuses(void)
{
    return mood & FAKE_ANSWERS_ERRORS;
}

/* --- the call --------------------------------------------------------------------------------- */

/* Trailers beyond some 8 kB would end the whole connection. */
static void check_answer(const struct err *err, const struct faults *faults)
{
    FUZZ_CHECK(err->code > ERR_OK && err->code < ERR_CODE_COUNT);
    FUZZ_CHECK(err->code != ERR_INTERNAL); /* a peer's bytes are never our fault */
    struct answer answer = { 0 };
    answer_set(&answer, err, faults);
    FUZZ_CHECK(GRPC_SLICE_LENGTH(answer.message) < STATUS_MESSAGE_BYTES);
    FUZZ_CHECK(GRPC_SLICE_LENGTH(answer.details) <= STATUS_DETAILS_BYTES);
    answer_done(&answer);
}

void call_fail_faults(struct call *failed, const struct err *err, const struct faults *faults)
{
    answers++;
    check_answer(err, faults);
    call_unref(failed);
}

void call_fail(struct call *failed, const struct err *err)
{
    call_fail_faults(failed, err, NULL);
}

void call_reply(struct call *replied, const ProtobufCMessage *reply)
{
    answers++;
    FUZZ_CHECK(protobuf_c_message_check(reply));
    size_t size = protobuf_c_message_get_packed_size(reply);
    uint8_t *data = malloc(size ? size : 1);
    FUZZ_CHECK(data);
    FUZZ_CHECK(protobuf_c_message_pack(reply, data) == size);
    struct err err;
    FUZZ_OK(wire_scan(reply->descriptor, data, size, &err), &err); /* clients get clean text */
    free(data);
    call_unref(replied);
}

static const ProtobufCMessageDescriptor *reply_type(void)
{
    void (*handle)(struct call *) = call.method->handle;
    if (handle == worker_lease_tasks)
        return &saga__v1__lease_tasks_response__descriptor;
    if (handle == worker_report_outcomes)
        return &saga__v1__report_outcomes_response__descriptor;
    if (handle == worker_extend_leases)
        return &saga__v1__extend_leases_response__descriptor;
    FUZZ_CHECK(handle == worker_release_tasks);
    return &saga__v1__release_tasks_response__descriptor;
}

bool call_reply_slices(struct call *replied, grpc_slice *slices, size_t count)
{
    uint8_t data[64 * 1024];
    size_t size = 0;
    answers++;
    for (size_t i = 0; i < count; i++) {
        size_t more = GRPC_SLICE_LENGTH(slices[i]);
        FUZZ_CHECK(size + more <= sizeof data);
        memcpy(data + size, GRPC_SLICE_START_PTR(slices[i]), more);
        size += more;
    }
    struct err err;
    FUZZ_OK(wire_scan(reply_type(), data, size, &err), &err); /* the parts are one message */
    call_unref(replied);
    return true;
}

void call_ref(struct call *held)
{
    FUZZ_CHECK(held == &call && holds);
    holds++;
}

/* With the last hold goes all that was made of the request. */
void call_unref(struct call *held)
{
    FUZZ_CHECK(held == &call && holds);
    if (!--holds)
        arena_done(&call.arena);
}

/* --- the engine ------------------------------------------------------------------------------- */

const struct engine_counters *engine_counters(const struct engine *engine)
{
    static struct engine_counters counters;
    (void)engine;
    return &counters;
}

int32_t engine_breaker_failures(const struct engine *engine)
{
    (void)engine;
    return 20;
}

bool engine_is_ready(const struct engine *engine)
{
    (void)engine;
    return !(mood & FAKE_ANSWERS_ERRORS);
}

void engine_status_done(struct engine_status *status)
{
    status->handler_count = 0; /* they are not on the heap here */
}

static void take_start(struct engine_start *start)
{
    FUZZ_CHECK(start->count >= 1 && start->count <= LIMIT_BATCH_STARTS);
    for (size_t i = 0; i < start->count; i++) {
        struct start_item *item = &start->items[i];
        /* absent: the definition makes it of the input */
        check_identity(item->namespace_, item->definition, *item->saga_id ? item->saga_id : "-");
        FUZZ_CHECK(item->input.size <= LIMIT_PAYLOAD_BYTES);
        if (item->labels)
            FUZZ_CHECK(item->labels[0] == '{' && utf8_is_text(item->labels, strlen(item->labels)));
        if (mood & FAKE_ANSWERS_ERRORS)
            (void)refuse(&item->err);
        item->existed = i % 2;
        item->run = item->revision = 1;
    }
}

static void take_verb(struct engine_verb *verb)
{
    struct store_ref ref = { verb->by_uid,     verb->uid,     verb->namespace_,
                             verb->definition, verb->saga_id, verb->run };
    check_ref(&ref);
    check_name_or_null(verb->step, LIMIT_STEP_NAME_BYTES);
    check_name_or_null(verb->actor, LIMIT_ACTOR_BYTES);
    check_prose_or_null(verb->reason);
    FUZZ_CHECK(verb->timeout_ms >= 0);
    if (mood & FAKE_ANSWERS_ERRORS)
        (void)refuse(&verb->err);
}

static void take_status(struct engine_status *status)
{
    static char handler[] = "order.debit";
    static struct engine_handler_status one = { handler, 1, 2, 3, 4, 1700000000000, true };
    status->handlers = &one;
    status->handler_count = 1;
}

bool engine_post_always(struct engine *engine, struct engine_event *event)
{
    (void)engine;
    if (mood & FAKE_DRAINING)
        return false;
    if (event->kind == ENGINE_WORKER) {
        fake_worker_post(CONTAINER(event, struct engine_worker_event, event));
        return true;
    }
    if (event->kind == ENGINE_START)
        take_start(CONTAINER(event, struct engine_start, event));
    else if (event->kind == ENGINE_VERB)
        take_verb(CONTAINER(event, struct engine_verb, event));
    else if (event->kind == ENGINE_STATUS)
        take_status(CONTAINER(event, struct engine_status, event));
    else
        FUZZ_CHECK(event->kind == ENGINE_DEFINITION_CHANGED);
    event->done(event);
    return true;
}

bool engine_post(struct engine *engine, struct engine_event *event)
{
    return !(mood & FAKE_ENGINE_REFUSES) && engine_post_always(engine, event);
}

/* --- the reader ------------------------------------------------------------------------------- */

void *query_new(struct call *of, size_t size, void (*run)(struct query *, struct store_reader *))
{
    struct query *query = arena_alloc(&of->arena, size);
    if (!query) {
        call_fail_memory(of);
        return NULL;
    }
    query->call = of;
    query->run = run;
    return query;
}

void queries_post(struct query *query)
{
    query->run(query, NULL);
}

void queries_post_admitted(struct query *query)
{
    query->run(query, NULL);
}

/* Nothing is ever found, so no saga is shown. */
bool query_asks_engine(struct query *query, struct engine_event *event)
{
    (void)query;
    (void)event;
    abort();
}

int store_reader_get(struct store_reader *reader, const struct store_ref *ref,
                     struct store_saga *ret_saga, struct bytes *ret_definition, struct err *err)
{
    (void)reader;
    (void)ret_saga;
    (void)ret_definition;
    check_ref(ref);
    return refuse(err);
}

int store_reader_journal(struct store_reader *reader, const struct store_ref *ref,
                         int64_t after_seq, size_t limit, struct store_saga *ret_saga,
                         struct bytes *ret_definition, struct err *err)
{
    (void)after_seq; /* any number: where there is nothing, nothing is found */
    FUZZ_CHECK(limit >= 2 && limit <= LIMIT_PAGE_ITEMS + 1);
    return store_reader_get(reader, ref, ret_saga, ret_definition, err);
}

int store_reader_list(struct store_reader *reader, const struct store_list *list,
                      struct store_saga *ret_sagas, int64_t *ret_started_us, size_t *ret_count,
                      struct store_list_end *ret_end, struct err *err)
{
    (void)reader;
    (void)ret_sagas;
    (void)ret_started_us;
    const struct saga_filter *filter = &list->filter;
    check_name_or_null(filter->namespace_, LIMIT_NAMESPACE_BYTES);
    check_name_or_null(filter->definition, LIMIT_DEFINITION_NAME_BYTES);
    check_name_or_null(filter->saga_id, LIMIT_SAGA_ID_BYTES);
    check_name_or_null(filter->saga_id_prefix, LIMIT_SAGA_ID_BYTES);
    FUZZ_CHECK(list->limit >= 2 && list->limit <= LIMIT_PAGE_ITEMS + 1);
    FUZZ_CHECK(filter->label_count <= LIMIT_LABELS);
    *ret_count = 0;
    *ret_end = (struct store_list_end){ 0 };
    return mood & FAKE_ANSWERS_ERRORS ? refuse(err) : 0;
}

int store_reader_effects(struct store_reader *reader, const struct store_list *list,
                         const struct store_effect_place *after, struct store_effect *ret,
                         size_t *ret_count, struct store_list_end *ret_end, struct err *err)
{
    (void)reader;
    const struct saga_filter *filter = &list->filter;
    check_name_or_null(filter->step, LIMIT_STEP_NAME_BYTES);
    FUZZ_CHECK(list->limit >= 2 && list->limit <= LIMIT_PAGE_ITEMS + 1);
    FUZZ_CHECK(!after || (after->step_index >= 0 && after->operation < OPERATION_COUNT));
    if (mood & FAKE_ANSWERS_ERRORS)
        return refuse(err);
    fail_memory(0);                  /* it is not this side's memory that ends */
    for (size_t i = 0; i < 2; i++) { /* as many as fit a page of one: the second is one more */
        ret[i] = (struct store_effect){ .started_us = 1700000000000000,
                                        .namespace_ = mem_strdup("default"),
                                        .definition = mem_strdup("order"),
                                        .saga_id = mem_strdup("o-1"),
                                        .run = 1,
                                        .step = mem_strdup("notify"),
                                        .step_index = (int16_t)i,
                                        .dispatched = 2,
                                        .possible = 2 };
        FUZZ_CHECK(ret[i].namespace_ && ret[i].definition && ret[i].saga_id && ret[i].step);
    }
    *ret_count = 2;
    *ret_end = (struct store_list_end){ .is_cut = list->limit % 2, .started_us = 1700000000000000 };
    return 0;
}

void store_effect_done(struct store_effect *effect)
{
    mem_free(effect->namespace_);
    mem_free(effect->definition);
    mem_free(effect->saga_id);
    mem_free(effect->step);
}

int store_reader_overview(struct store_reader *reader, struct store_overview *ret, struct err *err)
{
    (void)reader;
    if (mood & FAKE_ANSWERS_ERRORS)
        return refuse(err);
    *ret = (struct store_overview){ .states[SAGA_RUNNING] = { STORE_COUNT_MAX, 1000000 },
                                    .reasons[PARK_SUSPENDED] = { 1, 0 } };
    return 0;
}

void store_overview_done(struct store_overview *overview)
{
    (void)overview; /* nothing in it is on the heap here */
}

/* Groups as workers' words and names can make them. */
int store_reader_parked(struct store_reader *reader, const char *namespace_, const char *definition,
                        size_t limit, struct store_parked *ret, size_t *ret_count,
                        int64_t *ret_sagas, struct err *err)
{
    (void)reader;
    check_name_or_null(namespace_, LIMIT_NAMESPACE_BYTES);
    check_name_or_null(definition, LIMIT_DEFINITION_NAME_BYTES);
    FUZZ_CHECK(limit > 1);
    *ret_count = 0;
    if (mood & FAKE_ANSWERS_ERRORS)
        return refuse(err);
    fail_memory(0); /* it is not this side's memory that ends */
    ret[0] = (struct store_parked){ .namespace_ = mem_strdup(namespace_ ? namespace_ : "default"),
                                    .definition = mem_strdup(definition ? definition : "order"),
                                    .phase = SAGA_RUNNING,
                                    .reason = PARK_SUSPENDED,
                                    .count = 2,
                                    .oldest_ms = 1700000000000,
                                    .oldest_saga_id = mem_strdup("o-1") };
    FUZZ_CHECK(ret[0].namespace_ && ret[0].definition && ret[0].oldest_saga_id);
    *ret_count = 1;
    *ret_sagas = 2;
    return 0;
}

void store_audit_line_done(struct store_audit_line *line)
{
    (void)line; /* none is ever handed out */
}

int store_reader_audit(struct store_reader *reader, const struct store_audit_filter *filter,
                       struct store_audit_line *ret, size_t *ret_count, bool *ret_more,
                       struct store_audit_place *ret_next, struct err *err)
{
    (void)reader;
    (void)ret;
    check_name_or_null(filter->actor, LIMIT_ACTOR_BYTES);
    check_name_or_null(filter->namespace_, LIMIT_NAMESPACE_BYTES);
    check_name_or_null(filter->definition, LIMIT_DEFINITION_NAME_BYTES);
    FUZZ_CHECK(filter->limit >= 1 && filter->limit <= LIMIT_PAGE_ITEMS);
    *ret_count = 0;
    *ret_more = true; /* a short page */
    *ret_next = (struct store_audit_place){ .at_us = 1700000000000000 };
    return mood & FAKE_ANSWERS_ERRORS ? refuse(err) : 0;
}

int store_reader_audit_add(struct store_reader *reader, const struct store_audit_note *note,
                           struct err *err)
{
    (void)reader;
    FUZZ_CHECK(note->verb && note->subject);
    check_name_or_null(note->actor, LIMIT_ACTOR_BYTES);
    check_name_or_null(note->namespace_, LIMIT_NAMESPACE_BYTES);
    check_name_or_null(note->definition, LIMIT_DEFINITION_NAME_BYTES);
    return mood & FAKE_ANSWERS_ERRORS ? refuse(err) : 0;
}

int store_reader_rerun(struct store_reader *reader, const struct store_rerun *what, struct err *err)
{
    (void)reader;
    check_name_or_null(what->actor, LIMIT_ACTOR_BYTES);
    FUZZ_CHECK(*what->reason && strlen(what->reason) <= LIMIT_REASON_BYTES);
    return mood & FAKE_ANSWERS_ERRORS ? refuse(err) : 0;
}

void store_related_done(struct store_related *related)
{
    (void)related; /* none is ever handed out */
}

int store_reader_related(struct store_reader *reader, const struct saga_row *row, size_t limit,
                         struct store_related *ret, size_t *ret_count, struct err *err)
{
    (void)reader;
    (void)row;
    (void)ret;
    FUZZ_CHECK(limit >= 1);
    *ret_count = 0;
    return mood & FAKE_ANSWERS_ERRORS ? refuse(err) : 0;
}

int store_reader_attempts(struct store_reader *reader, const struct store_attempts_filter *filter,
                          store_attempts_fn *fn, void (*begin)(void *ctx), void *ctx,
                          bool *ret_more, struct store_attempts_place *ret_next, struct err *err)
{
    (void)reader;
    (void)fn;
    check_name(filter->definition, 1, LIMIT_DEFINITION_NAME_BYTES);
    check_name(filter->step, 1, LIMIT_STEP_NAME_BYTES);
    FUZZ_CHECK(filter->from_ms < filter->to_ms);
    begin(ctx);
    *ret_more = true; /* a short page */
    *ret_next = (struct store_attempts_place){ .started_us = 1700000000000000 };
    return mood & FAKE_ANSWERS_ERRORS ? refuse(err) : 0;
}

int store_attempts_definition(struct store_reader *reader, const char *namespace_, const char *name,
                              int32_t revision, struct store_definition *ret, struct err *err)
{
    return store_reader_definition(reader, namespace_, name, revision, true, ret, err);
}

int store_reader_let_go(struct store_reader *reader, size_t limit, struct store_let_go *ret,
                        size_t *ret_count, struct err *err)
{
    (void)reader;
    FUZZ_CHECK(limit > 1);
    if (mood & FAKE_ANSWERS_ERRORS)
        return refuse(err);
    fail_memory(0); /* it is not this side's memory that ends */
    ret[0] = (struct store_let_go){ mem_strdup("nobody"), 2, 1700000000000, 0 };
    FUZZ_CHECK(ret[0].handler);
    *ret_count = 1;
    return 0;
}

/* One that is released gradually. */
int store_reader_handlers(struct store_reader *reader, const char *only, const char *after,
                          size_t limit, struct store_handler_view *ret, size_t *ret_count,
                          struct err *err)
{
    (void)reader;
    check_name_or_null(only, LIMIT_HANDLER_BYTES);
    FUZZ_CHECK(limit > 1 && !*after);
    if (mood & FAKE_ANSWERS_ERRORS)
        return refuse(err);
    ret[0] = (struct store_handler_view){ .waiting = 7, .leased = 1, .nodes = 1 };
    handler_init(&ret[0].row, "order.debit");
    ret[0].row.version = 3;
    ret[0].row.release_rate_milli = 1500;
    ret[0].row.braked_at_ms = ret[0].row.changed_at_ms = 1700000000000;
    *ret_count = 1;
    return 0;
}

int store_reader_let_go_about(struct store_reader *reader, int64_t *ret, struct err *err)
{
    (void)reader;
    (void)ret;
    return refuse(err);
}

int store_reader_held_times(struct store_reader *reader, const char *name, struct held_times *ret,
                            struct err *err)
{
    (void)reader;
    (void)name;
    (void)ret;
    return refuse(err);
}

/* What is asked for is within its limits; it is never done, since the engine would have to hear. */
int store_reader_handler_change(struct store_reader *reader, const char *name,
                                const struct handler_change *change, struct handler *ret,
                                bool *ret_changed, struct err *err)
{
    struct handler_effect effect;
    (void)reader;
    (void)ret_changed;
    FUZZ_CHECK(*name);
    check_name_or_null(name, LIMIT_HANDLER_BYTES);
    check_prose_or_null(change->reason);
    FUZZ_CHECK(strlen(change->actor) <= LIMIT_ACTOR_BYTES);
    FUZZ_CHECK(change->rate_milli >= -1 && change->rate_milli <= LIMIT_HANDLER_RATE_MILLI);
    FUZZ_CHECK(change->cap >= -1 && change->cap <= LIMIT_HANDLER_CAP);
    handler_init(ret, name);
    if (handler_apply(ret, change, &effect))
        FUZZ_CHECK(effect.trial_in_ms >= TRIAL_AS_IT_IS);
    return refuse(err);
}

int store_reader_nodes(struct store_reader *reader, const char *but, size_t limit, char **ret,
                       size_t *ret_count, struct err *err)
{
    (void)reader;
    (void)but;
    (void)ret;
    (void)err;
    FUZZ_CHECK(limit > 1);
    *ret_count = 0;
    return 0;
}

int store_reader_serving(struct store_reader *reader, const char *but, const char *const *handlers,
                         size_t handler_count, size_t limit, struct store_serving *ret,
                         size_t *ret_count, struct err *err)
{
    (void)reader;
    (void)but;
    FUZZ_CHECK(limit > 1);
    for (size_t i = 0; i < handler_count; i++)
        check_name(handlers[i], 1, LIMIT_HANDLER_BYTES);
    if (mood & FAKE_ANSWERS_ERRORS)
        return refuse(err);
    fail_memory(0); /* it is not this side's memory that ends */
    *ret_count = handler_count ? 1 : 0;
    for (size_t i = 0; i < *ret_count; i++) {
        ret[i] = (struct store_serving){ mem_strdup(handlers[i]), mem_strdup("other") };
        FUZZ_CHECK(ret[i].handler && ret[i].node);
    }
    return 0;
}

int store_reader_guard_floor(struct store_reader *reader, int64_t margin_ms,
                             struct store_guard_floor *ret, struct err *err)
{
    (void)reader;
    FUZZ_CHECK(margin_ms >= 0 && margin_ms <= INT64_C(366) * 24 * 3600 * 1000);
    if (mood & FAKE_ANSWERS_ERRORS)
        return refuse(err);
    fail_memory(0); /* it is not this side's memory that ends */
    *ret = (struct store_guard_floor){ .floor_ms = 1700000000000 - margin_ms };
    if (margin_ms % 2)
        return 0;
    ret->has_oldest = true;
    ret->namespace_ = mem_strdup("default");
    ret->definition = mem_strdup("order");
    ret->saga_id = mem_strdup("o-1");
    ret->run = 1;
    ret->started_at_ms = 1700000000000;
    FUZZ_CHECK(ret->namespace_ && ret->definition && ret->saga_id);
    return 0;
}

void store_retention_status_done(struct store_retention_status *status)
{
    (void)status; /* nothing in it is on the heap here */
}

/* Where no node purges and nothing comes from Kafka. */
int store_reader_retention(struct store_reader *reader, struct store_retention_status *ret,
                           struct err *err)
{
    (void)reader;
    *ret = (struct store_retention_status){ .now_ms = 1700000000000, .finished = 3 };
    return mood & FAKE_ANSWERS_ERRORS ? refuse(err) : 0;
}

/* What it keeps is what it reads again: the content must be good. */
static int fill_definition(const char *namespace_, const char *name, const struct bytes *content,
                           struct store_definition *ret, struct err *err)
{
    fail_memory(0); /* it is not this side's memory that ends */
    struct definition *definition = NULL;
    FUZZ_OK(definition_decode(content, &definition, err), err);
    FUZZ_CHECK(strcmp(definition->namespace_, namespace_) == 0);
    FUZZ_CHECK(strcmp(definition->name, name) == 0);
    check_name(namespace_, 1, LIMIT_NAMESPACE_BYTES);
    check_name(name, 1, LIMIT_DEFINITION_NAME_BYTES);
    struct bytes again = { 0 };
    FUZZ_OK(definition_encode(definition, &again, err), err);
    FUZZ_CHECK(again.size == content->size && !memcmp(again.data, content->data, again.size));
    (void)definition_free(definition); /* always NULL */
    *ret = (struct store_definition){ .namespace_ = mem_strdup(namespace_),
                                      .name = mem_strdup(name),
                                      .revision = 1,
                                      .created_at_ms = 1700000000000,
                                      .content = again };
    FUZZ_CHECK(ret->namespace_ && ret->name);
    return 0;
}

void store_definition_done(struct store_definition *definition)
{
    mem_free(definition->namespace_);
    mem_free(definition->name);
    mem_free(definition->content.data);
    mem_free(definition->descriptors.data);
    mem_free(definition->paused_by);
    mem_free(definition->pause_reason);
    *definition = (struct store_definition){ 0 };
}

void store_registered_done(struct store_registered *registered)
{
    store_definition_done(&registered->revision);
    store_definition_done(&registered->before);
}

int store_reader_register(struct store_reader *reader, const struct store_register *what,
                          struct store_registered *ret, struct err *err)
{
    (void)reader;
    *ret = (struct store_registered){ .created = !what->validate_only };
    if (mood & FAKE_ANSWERS_ERRORS)
        return refuse(err);
    return fill_definition(what->namespace_, what->name, &what->content, &ret->revision, err);
}

int store_reader_definition(struct store_reader *reader, const char *namespace_, const char *name,
                            int32_t revision, bool with_descriptors, struct store_definition *ret,
                            struct err *err)
{
    (void)reader;
    (void)with_descriptors;
    (void)ret;
    check_name(namespace_, 1, LIMIT_NAMESPACE_BYTES);
    check_name(name, 1, LIMIT_DEFINITION_NAME_BYTES);
    FUZZ_CHECK(revision >= 0);
    return refuse(err);
}

int store_reader_definitions(struct store_reader *reader, const char *namespace_,
                             const char *after_namespace, const char *after_name, size_t limit,
                             struct store_definition *ret, size_t *ret_count, struct err *err)
{
    (void)reader;
    (void)ret;
    check_name_or_null(namespace_, LIMIT_NAMESPACE_BYTES);
    FUZZ_CHECK(!after_namespace == !after_name);
    FUZZ_CHECK(!after_name || strlen(after_namespace) + strlen(after_name) < PAGE_PLACE_MAX);
    FUZZ_CHECK(limit >= 2 && limit <= LIMIT_PAGE_ITEMS + 1);
    *ret_count = 0;
    return mood & FAKE_ANSWERS_ERRORS ? refuse(err) : 0;
}

int store_reader_revisions(struct store_reader *reader, const char *namespace_, const char *name,
                           int32_t before, size_t limit, struct store_definition *ret,
                           size_t *ret_count, struct err *err)
{
    (void)reader;
    (void)before; /* any: no revision has it */
    (void)ret;
    check_name(namespace_, 1, LIMIT_NAMESPACE_BYTES);
    check_name(name, 1, LIMIT_DEFINITION_NAME_BYTES);
    FUZZ_CHECK(limit >= 2 && limit <= LIMIT_PAGE_ITEMS + 1);
    *ret_count = 0;
    return mood & FAKE_ANSWERS_ERRORS ? refuse(err) : 0;
}

static int change(const char *namespace_, const char *name, struct err *err)
{
    check_name(namespace_, 1, LIMIT_NAMESPACE_BYTES);
    check_name(name, 1, LIMIT_DEFINITION_NAME_BYTES);
    return refuse(err);
}

static void check_words(const struct store_words *words)
{
    if (words->actor)
        check_name(words->actor, 1, LIMIT_ACTOR_BYTES);
    FUZZ_CHECK(!words->reason || strlen(words->reason) <= LIMIT_REASON_BYTES);
}

int store_reader_promote(struct store_reader *reader, const char *namespace_, const char *name,
                         int32_t revision, const struct store_words *words,
                         struct store_definition *ret, struct err *err)
{
    (void)reader;
    (void)ret;
    FUZZ_CHECK(revision >= 1);
    check_words(words);
    return change(namespace_, name, err);
}

int store_reader_pause(struct store_reader *reader, const char *namespace_, const char *name,
                       const struct store_words *words, struct store_definition *ret,
                       struct err *err)
{
    (void)reader;
    (void)ret;
    check_words(words);
    return change(namespace_, name, err);
}

int store_reader_resume(struct store_reader *reader, const char *namespace_, const char *name,
                        const struct store_words *words, struct store_definition *ret,
                        struct err *err)
{
    (void)reader;
    (void)ret;
    check_words(words);
    return change(namespace_, name, err);
}

int store_reader_delete_revision(struct store_reader *reader, const char *namespace_,
                                 const char *name, int32_t revision,
                                 const struct store_words *words, struct err *err)
{
    (void)reader;
    FUZZ_CHECK(revision >= 1);
    check_words(words);
    return change(namespace_, name, err);
}

/* --- a call from its bytes to its answer -------------------------------------------------------
 */

void fake_server_call(const struct method *method, const uint8_t *data, size_t size,
                      unsigned chosen_mood)
{
    static char node[] = "node";
    mood = chosen_mood;
    answers = 0;
    server.node = node;
    server.streams_max = server.send_bytes_max = 1;
    atomic_store(&server.refs, 1);
    atomic_store(&server.draining, (mood & FAKE_DRAINING) != 0);
    call = (struct call){ .server = &server, .method = method };
    holds = 1;
    struct err err;
    if (wire_unpack(method->request, data, size, &call.arena, &call.request, &err))
        call_fail(&call, &err);
    else
        method->handle(&call);
    fake_workers_run();
    worker_polls_tick(&server, INT64_MAX / 2); /* who still waits has waited long enough */
    fake_workers_run();
    worker_polls_end(&server);
    fake_workers_run();
    FUZZ_CHECK(answers == 1);
    FUZZ_CHECK(!holds);
}
