/* A saga, and the tables that a database would keep of it: every transition is written there as the
 * statements would write it, with a clock of its own, and after each one a replay of what was
 * written must equal the copy in memory. Also the builder of definitions and the printer of traces
 * for the tests of the core. */
#ifndef UNIT_CORE_WORLD_H
#define UNIT_CORE_WORLD_H

#include "base/buf.h"
#include "core/saga.h"
#include "core/view.h"
#include "support/check.h"

enum { WORLD_START_MS = 1000000 };

struct world {
    struct definition *definition; /* owned */
    struct saga *saga;             /* owned; NULL before world_start */
    struct rng rng;
    int64_t now_ms;  /* the database's clock */
    int64_t skew_ms; /* what the orchestrator's estimate is ahead */
    int64_t epoch;
    bool compare; /* replay after each commit */
    int64_t start_at_ms;
    int64_t suspect_since_ms; /* 0: it starts as usual */
    /* The last event. */
    struct transition transition;
    enum verdict verdict;
    struct err err;
    /* The tables. */
    struct saga_row row;
    struct journal_entry *entries;
    size_t count, capacity;
    size_t late_rows;
};

/* Steps "a", "b", "c", ...: IDEMPOTENT actions and compensations, guarded, all else default. Change
 * it before world_start. */
void world_open(struct world *world, size_t steps);
/* Gives the operation a probe with defaults, handler "order.a.probe"; borrowed. */
struct operation_rule *world_add_probe(struct world *world, size_t step, enum operation operation);
/* The step has no action any more, but waits for the signal "s_<its name>". timeout_ms 0: for ever.
 */
void world_make_wait(struct world *world, size_t step, int64_t timeout_ms,
                     enum on_exhausted on_exhausted);
/* Commits the start. */
void world_start(struct world *world);
void world_close(struct world *world);

/* Grants what is grantable, in a transaction of its own; its position. Fails if nothing is. */
int64_t world_grant(struct world *world);
bool world_is_grantable(const struct world *world);
/* Reports on the lease at seq; its verdict. */
enum verdict world_report(struct world *world, int64_t seq, enum outcome outcome);
enum verdict world_report_full(struct world *world, const struct report *report);
/* world_grant, of that operation of that step. */
int64_t world_grant_of(struct world *world, size_t step, enum operation operation);
/* world_grant, then world_report; the lease's position. */
int64_t world_run(struct world *world, enum outcome outcome);
enum verdict world_lease_end(struct world *world, int64_t seq, enum outcome outcome);
/* Lets time pass, nothing else. */
void world_pass(struct world *world, int64_t ms);
/* saga_on_time, once. */
enum verdict world_time(struct world *world);
/* Past the end of the lease at seq, then saga_on_time. */
void world_expire(struct world *world, int64_t seq);
/* The error code (0: accepted, or nothing to do); on success it is committed. */
int world_cancel(struct world *world);
int world_retry(struct world *world, const char *step);
/* operation OPERATION_COUNT: not said. output NULL: none. */
int world_resolve(struct world *world, const char *step, enum operation operation, bool happened,
                  const char *output);
int world_skip(struct world *world, const char *step);
int world_abandon(struct world *world);
int world_suspend(struct world *world);
int world_resume(struct world *world);
/* Of step NULL: of all. */
int world_options(struct world *world, const char *step, const struct saga_options *options);
/* With `payload` as its payload. */
int world_signal(struct world *world, const char *name, const char *id, const char *payload);
/* The step is done, with just this output. */
void world_assert_output(const struct world *world, size_t step, const char *expected);
/* Forgets the copy and loads what the tables hold. */
void world_reload(struct world *world);

/* Writes the transition into the tables and tells the copy. */
void world_commit(struct world *world);
/* Which rows of the transition table any world of this program took so far. */
bool world_took_row(size_t row);

/* The journal and the state, one line each, times from the start:
 * "1 +0 a ACTION 1 -> +10 DONE\n...SUCCEEDED\n". */
void world_assert_trace(const struct world *world, const char *expected);
/* "RUNNING", "PARKED in RUNNING: OUTCOME_UNKNOWN", with ", doubt" where it is set. */
void world_assert_state(const struct world *world, const char *expected);
void world_assert_step(const struct world *world, size_t step, const char *expected);
void world_assert_waits(const struct world *world, enum wait_kind kind, int64_t until_ms);
void world_assert_refused(const struct world *world, int rc, const char *reason);

#endif
