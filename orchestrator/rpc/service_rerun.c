/* OperatorService: RerunSaga. The reader's thread writes the new run in this node's name, and the
 * engine is told to take it up. */
#include "rpc/queries.h"
#include "rpc/request.h"

#include "base/clock.h"
#include "core/limits.h"
#include "core/view.h"
#include "schema/definition_types.h"
#include "store/reader_mend.h"
#include "wire/definition_codec.h"

#include <inttypes.h>
#include <saga/v1/operator.pb-c.h>

struct rerun_query {
    struct query query;
    const Saga__V1__RerunSagaRequest *request;
    struct store_ref ref;
};

/* The run that has ended, and the definition that it ran by. */
struct old_run {
    struct definition *definition;
    struct saga *saga;
};

static void old_run_done(struct old_run *old)
{
    (void)saga_free(old->saga);             /* always NULL */
    (void)definition_free(old->definition); /* as well */
}

static int load_old(struct store_reader *reader, const struct store_ref *ref, struct old_run *old,
                    struct err *err)
{
    struct store_saga loaded = { 0 };
    struct bytes content = { 0 };
    int rc = store_reader_get(reader, ref, &loaded, &content, err);
    if (rc)
        return rc;
    rc = definition_decode(&content, &old->definition, err);
    mem_free(content.data);
    if (!rc)
        rc = saga_replay(old->definition, &loaded.row, loaded.entries, loaded.entry_count,
                         &old->saga, err);
    if (!rc) { /* their contents have moved into the saga */
        loaded.row = (struct saga_row){ 0 };
        loaded.entry_count = 0;
    }
    store_saga_done(&loaded);
    return rc;
}

/* Nothing is done twice without somebody who knows that it may be. */
static int check_old(const struct old_run *old, bool despite_effects, struct err *err)
{
    const struct saga_row *row = saga_row(old->saga);
    if (row->state != SAGA_COMPENSATED && row->state != SAGA_ABANDONED)
        return err_reason(err, ERR_PRECONDITION, "RERUN_NOT_ALLOWED",
                          "run %" PRId32
                          " is %s: only what is COMPENSATED or ABANDONED is run again",
                          row->run, saga_state_name(row->state));
    int step = saga_effect_left(old->saga);
    if (despite_effects || (step < 0 && !row->doubt))
        return 0;
    if (step >= 0)
        return err_reason(err, ERR_PRECONDITION, "EFFECTS_LEFT",
                          "step \"%s\" of run %" PRId32
                          " took effect, or may have, and was not taken "
                          "back: a new run does it again, with another idempotency key",
                          old->definition->steps[step].name, row->run);
    return err_reason(err, ERR_PRECONDITION, "EFFECTS_LEFT",
                      "run %" PRId32 " is in doubt: find out first (ResolveStep)", row->run);
}

/* The revision of the new run, with its types. */
static int load_new(struct store_reader *reader, const struct saga_row *row, int32_t revision,
                    struct definition **ret, struct err *err)
{
    struct store_definition stored = { 0 };
    int rc = store_reader_definition(reader, row->namespace_, row->definition, revision, true,
                                     &stored, err);
    if (!rc && !revision && stored.paused_at_ms) {
        rc = err_reason(err, ERR_UNAVAILABLE, "DEFINITION_PAUSED", "%s starts no new sagas now%s%s",
                        row->definition, stored.pause_reason && *stored.pause_reason ? ": " : "",
                        stored.pause_reason ? stored.pause_reason : "");
        err->retryable = true;
    }
    struct definition *definition = NULL;
    if (!rc)
        rc = definition_decode(&stored.content, &definition, err);
    if (!rc && stored.descriptors.size)
        rc = definition_types_add(definition, &stored.descriptors, err);
    if (!rc)
        definition->revision = stored.revision;
    store_definition_done(&stored);
    if (rc)
        definition = definition_free(definition);
    *ret = definition;
    return rc;
}

/* As a start by that revision would be: its input must be of the type, and make the same key. */
static int check_input(const struct definition *definition, const struct saga_row *row,
                       struct err *err)
{
    if (!definition->types)
        return 0;
    struct payload_start start = { .saga_id = row->saga_id };
    int rc = definition->types->ops->start(definition, &row->input, &start, err);
    buf_done(&start.made);
    return rc;
}

struct started {
    struct engine_started event;
    struct uuid uid;
};

static void on_started(struct engine_event *event)
{
    struct engine_started *base = CONTAINER(event, struct engine_started, event);
    mem_free(CONTAINER(base, struct started, event));
}

/* What it does not hear of it takes up when it looks for its own again. */
static void tell_engine(struct rpc_server *server, const struct uuid *uid)
{
    struct started *started = mem_calloc(1, sizeof *started);
    if (!started)
        return;
    started->uid = *uid;
    started->event.event.kind = ENGINE_STARTED;
    started->event.event.done = on_started;
    started->event.uids = &started->uid;
    started->event.count = 1;
    if (!engine_post_always(server->engine, &started->event.event))
        mem_free(started);
}

static int run_again(const struct rerun_query *query, struct store_reader *reader,
                     const struct old_run *old, struct uuid *ret_uid, struct err *err)
{
    const struct saga_row *row = saga_row(old->saga);
    struct definition *definition = NULL;
    int rc = load_new(reader, row, query->request->revision, &definition, err);
    if (!rc)
        rc = check_input(definition, row, err);
    if (rc) {
        (void)definition_free(definition); /* always NULL */
        return rc;
    }
    struct rng rng;
    rng_seed_os(&rng);
    const struct store_rerun what = {
        .old = row->uid,
        .namespace_ = row->namespace_,
        .definition = row->definition,
        .saga_id = row->saga_id,
        .uid = uuid_v7(clock_wall_ms(&clock_system), &rng, uuid_shard(&row->uid)),
        .revision = definition->revision,
        .deadline_ms = definition->deadline_ms,
        .node = query->query.server->node,
        .publish_start = definition->publish == PUBLISH_TRANSITIONS,
        .actor = or_null(query->request->actor),
        .reason = query->request->reason,
    };
    rc = store_reader_rerun(reader, &what, err);
    *ret_uid = what.uid;
    (void)definition_free(definition); /* always NULL */
    return rc;
}

static void run_rerun(struct query *base, struct store_reader *reader)
{
    struct rerun_query *query = CONTAINER(base, struct rerun_query, query);
    struct old_run old = { 0 };
    struct store_ref ref = { .by_uid = true };
    struct err err;
    int rc = load_old(reader, &query->ref, &old, &err);
    if (!rc)
        rc = check_old(&old, query->request->despite_effects, &err);
    if (!rc)
        rc = run_again(query, reader, &old, &ref.uid, &err);
    old_run_done(&old);
    if (rc) {
        call_fail(base->call, &err);
        return;
    }
    tell_engine(base->server, &ref.uid);
    reply_with_saga(base->call, &ref, true, true);
}

void operator_rerun_saga(struct call *call)
{
    const Saga__V1__RerunSagaRequest *request = (void *)call->request;
    struct rerun_query *query = query_new(call, sizeof *query, run_rerun);
    struct err err;
    if (!query)
        return;
    query->request = request;
    int rc = read_ref(request->saga, &query->ref, &err);
    if (!rc && !*request->reason)
        rc = err_field(&err, "reason", "reason: required: it is kept in the audit");
    if (!rc)
        rc = check_prose("reason", request->reason, LIMIT_REASON_BYTES, &err);
    if (!rc)
        rc = check_text("actor", request->actor, 0, LIMIT_ACTOR_BYTES, &err);
    if (!rc && request->revision < 0)
        rc = err_field(&err, "revision", "revision: must not be negative: %d", request->revision);
    if (rc)
        call_fail(call, &err);
    else
        queries_post(&query->query);
}
