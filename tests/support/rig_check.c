/* The invariants: asked of the databases by SQL, of the server by what it says it waits for. */
#include "base/clock.h"
#include "support/rig.h"
#include "support/wait.h"

#include <stdio.h>

enum { OPEN_MAX = 200, IDLE_WAIT_MS = 5000 };

struct invariant {
    const char *name;
    enum rig_database database;
    const char *sql; /* counts what breaks it */
};

static const struct invariant invariants[] = {
    { "no journal entry after a terminal state", RIG_STORE,
      "SELECT count(*) FROM saga s JOIN journal j USING (shard, saga_uid)"
      " WHERE s.state IN ('SUCCEEDED', 'COMPENSATED', 'ABANDONED') AND (s.ended_at IS NULL"
      " OR j.leased_at > s.ended_at OR j.finished_at IS NULL)" },
    { "a parked saga has a reason, any other has none", RIG_STORE,
      "SELECT count(*) FROM saga WHERE (state = 'PARKED') <> (park_reason IS NOT NULL)" },
    { "at most one guarded effect for each saga, step and operation", RIG_BANK,
      "SELECT count(*) FROM (SELECT 1 FROM effects WHERE guarded"
      " GROUP BY definition, saga_id, run, step, operation HAVING count(*) > 1) doubled" },
    { "no guarded compensation without its action", RIG_BANK,
      "SELECT count(*) FROM effects c WHERE guarded AND operation = 'C' AND NOT EXISTS"
      " (SELECT 1 FROM effects a WHERE a.guarded AND a.operation = 'A' AND a.id < c.id AND"
      "  (a.definition, a.saga_id, a.run, a.step) = (c.definition, c.saga_id, c.run, c.step))" },
    { "tries are contiguous", RIG_STORE,
      "SELECT count(*) FROM (SELECT 1 FROM journal WHERE kind = 'LEASE'"
      " AND outcome IS DISTINCT FROM 'RELEASED' GROUP BY shard, saga_uid, step_index, operation"
      " HAVING count(*) <> max(try) OR count(DISTINCT try) <> count(*)) gaps" },
    { "positions are contiguous", RIG_STORE,
      "SELECT count(*) FROM (SELECT 1 FROM journal GROUP BY shard, saga_uid"
      " HAVING count(*) <> max(seq)) gaps" },
    { "at most one lease of a step is live", RIG_STORE,
      "SELECT count(*) FROM (SELECT 1 FROM journal WHERE kind = 'LEASE' AND outcome IS NULL"
      " GROUP BY shard, saga_uid, step_index HAVING count(*) > 1) doubled" },
    { "no compensation began while a forward lease was live", RIG_STORE,
      "SELECT count(*) FROM journal c JOIN journal a USING (shard, saga_uid)"
      " WHERE c.kind = 'LEASE' AND c.operation = 'COMPENSATION' AND a.kind = 'LEASE'"
      " AND a.operation = 'ACTION' AND (a.finished_at IS NULL OR a.finished_at > c.leased_at)" },
    { "a compensated saga took back whatever took effect or may have", RIG_STORE,
      "SELECT count(*) FROM saga s JOIN journal a USING (shard, saga_uid)"
      " JOIN journal u USING (shard, saga_uid)"
      " WHERE s.state = 'COMPENSATED' AND u.kind = 'COMPENSATE' AND a.kind = 'LEASE'"
      " AND a.operation = 'ACTION' AND a.outcome IN ('DONE', 'ALREADY_DONE')"
      " AND EXISTS (SELECT 1 FROM journal x WHERE x.operation = 'COMPENSATION'"
      "  AND x.step = a.step AND x.kind = 'LEASE' AND x.saga_uid = s.saga_uid)"
      " AND NOT EXISTS (SELECT 1 FROM journal c WHERE c.shard = s.shard"
      "  AND c.saga_uid = s.saga_uid AND c.step = a.step AND c.operation = 'COMPENSATION'"
      "  AND c.outcome IN ('DONE', 'ALREADY_DONE'))" },
    { "nothing is tried again before its back-off is over, unless a person said so", RIG_STORE,
      "SELECT count(*) FROM journal j JOIN journal n USING (shard, saga_uid, step_index, operation)"
      " WHERE j.kind = 'LEASE' AND n.kind = 'LEASE' AND n.try = j.try + 1"
      " AND n.leased_at < j.retry_at AND NOT EXISTS (SELECT 1 FROM journal r"
      "  WHERE r.shard = j.shard AND r.saga_uid = j.saga_uid AND r.kind = 'RETRY'"
      "  AND r.seq > j.seq AND r.seq < n.seq)" },
    { "one saga for each business key and run", RIG_STORE,
      "SELECT count(*) FROM (SELECT 1 FROM saga GROUP BY namespace, definition, saga_id, run"
      " HAVING count(*) > 1) doubled" },
    { "a key's final state is its saga's", RIG_STORE,
      "SELECT count(*) FROM saga s JOIN saga_key k USING (shard, saga_uid)"
      " WHERE k.final_state IS NOT NULL AND k.final_state <> s.state" },
};

static bool sessions_idle(struct rig *rig)
{
    return rig_count(
               rig, RIG_STORE,
               "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'"
               " AND datname IN ('store', 'bank')"
               " AND state_change < clock_timestamp() - interval '1 s'") == 0;
}

static bool sessions_idle_fn(void *ctx)
{
    return sessions_idle(ctx);
}

/* What an open saga says it waits for; NULL: that is right. */
static const char *wait_fault(const Saga__V1__Saga *saga)
{
    const Saga__V1__Waiting *waiting = saga->waiting;
    if (saga->state > SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED)
        return NULL; /* it ended meanwhile */
    if (!waiting || waiting->kind == SAGA__V1__WAIT_KIND__WAIT_KIND_UNSPECIFIED)
        return "it waits for nothing";
    bool timed = waiting->kind == SAGA__V1__WAIT_KIND__WAIT_KIND_RETRY ||
                 waiting->kind == SAGA__V1__WAIT_KIND__WAIT_KIND_SETTLE ||
                 waiting->kind == SAGA__V1__WAIT_KIND__WAIT_KIND_REPORT;
    if (timed && !waiting->until_time)
        return "it waits without an end";
    bool parked = saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_PARKED;
    if (parked && (!saga->park || saga->park->reason == 0))
        return "it is parked without a reason";
    /* A lease that is over must have been noticed. */
    enum { LATE_S = 20 };
    if (timed && waiting->until_time->seconds + LATE_S < clock_wall_ms(&clock_system) / 1000)
        return "what it waits for is long over";
    return NULL;
}

static int check_open(struct rig *rig)
{
    char definition[160], saga_id[300], last[48] = "00000000-0000-0000-0000-000000000000";
    for (int i = 0; i < OPEN_MAX; i++) {
        char uid[48];
        rig_text(rig, RIG_STORE, uid, sizeof uid,
                 "SELECT saga_uid FROM saga WHERE state IN ('RUNNING', 'COMPENSATING', 'PARKED')"
                 " AND namespace = 'default' AND saga_uid > '%s' ORDER BY saga_uid LIMIT 1",
                 last);
        if (!*uid)
            return 0;
        (void)snprintf(last, sizeof last, "%s", uid);
        rig_text(rig, RIG_STORE, definition, sizeof definition,
                 "SELECT definition FROM saga WHERE saga_uid = '%s'", uid);
        rig_text(rig, RIG_STORE, saga_id, sizeof saga_id,
                 "SELECT saga_id FROM saga WHERE saga_uid = '%s'", uid);
        Saga__V1__Saga *saga = rig_get(rig, definition, saga_id);
        const char *fault = wait_fault(saga);
        saga__v1__saga__free_unpacked(saga, NULL);
        if (fault) {
            print_error("%s/%s: %s\n", definition, saga_id, fault);
            return -1;
        }
    }
    return 0;
}

int rig_check(struct rig *rig)
{
    for (size_t i = 0; i < ARRAY_LEN(invariants); i++) {
        int64_t broken = rig_count(rig, invariants[i].database, "%s", invariants[i].sql);
        if (broken != 0) {
            print_error("broken %lld times: %s\n", (long long)broken, invariants[i].name);
            return -1;
        }
    }
    if (!wait_until(sessions_idle_fn, rig, IDLE_WAIT_MS)) {
        print_error("a session stays idle in transaction\n");
        return -1;
    }
    return check_open(rig);
}
