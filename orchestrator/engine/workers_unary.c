/* Workers without a stream: one answer brings what was granted while it was waited for, and may be
 * lost. */
#include "engine/engine_internal.h"

#include <assert.h>
#include <utlist.h>

void workers_pause(struct engine *engine, struct link_session *session,
                   struct engine_worker_event *event)
{
    assert(!session->pause);
    if (session->session)
        dispatch_session_block(session->session, true);
    event->open++;
    session->pause = event;
    LL_PREPEND2(engine->paused, session, next_paused);
}

static bool is_granted_more(const struct engine *engine, const struct link_session *session)
{
    const struct flight *flight = session->session ? engine->flights : NULL;
    while (flight && flight->session != session->session)
        flight = flight->next;
    return flight != NULL;
}

void workers_paused(struct engine *engine)
{
    struct link_session *session, *next;
    for (session = engine->paused; session; session = next) {
        next = session->next_paused;
        if (is_granted_more(engine, session))
            continue;
        LL_DELETE2(engine->paused, session, next_paused);
        struct engine_worker_event *event = session->pause;
        session->pause = NULL;
        worker_event_release(engine, event); /* the session may be gone now */
    }
}

void workers_unconfirmed(struct engine *engine, const struct engine_worker_event *event)
{
    for (size_t i = 0; i < event->lease_count; i++) {
        struct slot *slot = slot_find(engine, &event->leases[i].uid);
        const struct lease *lease = slot ? slot->leases : NULL;
        while (lease && lease->fence != event->leases[i].fence)
            lease = lease->next;
        if (!lease || !lease->idempotent || !lease->ours)
            continue; /* its time ends it, or its worker */
        struct engine_work *work = lease_end_new(lease->seq, lease->fence,
                                                 lease->dispatch.worker->name, OUTCOME_STREAM_LOST);
        if (!work)
            continue; /* memory: its time ends it */
        CONTAINER(work, struct lease_end, work)->unconfirmed = true;
        slot_queue(engine, slot, work);
    }
}
