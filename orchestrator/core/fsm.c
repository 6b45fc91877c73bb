#include "core/fsm.h"

#include <stddef.h>
#include <string.h>

#define RUNNING             SAGA_RUNNING, SAGA_RUNNING
#define COMPENSATING        SAGA_COMPENSATING, SAGA_COMPENSATING
#define PARKED_RUNNING      SAGA_PARKED, SAGA_RUNNING
#define PARKED_COMPENSATING SAGA_PARKED, SAGA_COMPENSATING
#define SUCCEEDED           SAGA_SUCCEEDED, SAGA_SUCCEEDED
#define COMPENSATED         SAGA_COMPENSATED, SAGA_COMPENSATED
#define ABANDONED           SAGA_ABANDONED, SAGA_ABANDONED

/* clang-format off */
static const struct saga_transition transitions[] = {
    { RUNNING, IN_STEP_DONE,            RUNNING,             "the next step is due" },
    { RUNNING, IN_LAST_STEP_DONE,       SUCCEEDED,           "every step is done" },
    { RUNNING, IN_REFUSED,              COMPENSATING,
      "a business no: what was done is taken back" },
    { RUNNING, IN_CANCELLED,            COMPENSATING,        "a person took it back" },
    { RUNNING, IN_DEADLINE_COMPENSATE,  COMPENSATING,
      "the deadline passed, on_deadline COMPENSATE" },
    { RUNNING, IN_DEADLINE_PARK,        PARKED_RUNNING,
      "the deadline passed, on_deadline PARK" },
    { RUNNING, IN_UNKNOWN_COMPENSATE,   COMPENSATING,
      "unknown and not repeatable, on_unknown COMPENSATE" },
    { RUNNING, IN_UNKNOWN_PARK,         PARKED_RUNNING,
      "unknown and not repeatable, on_unknown PARK" },
    { RUNNING, IN_EXHAUSTED_COMPENSATE, COMPENSATING,
      "budget or time-out over, on_exhausted COMPENSATE" },
    { RUNNING, IN_EXHAUSTED_PARK,       PARKED_RUNNING,
      "budget or time-out over, on_exhausted PARK" },
    { RUNNING, IN_FOREIGN_EFFECT,       PARKED_RUNNING,      "the effect exists, but not by us" },
    { RUNNING, IN_LATE_EFFECT,          PARKED_RUNNING,
      "a late report speaks against what was recorded" },
    { RUNNING, IN_WORKER_KILLER,        PARKED_RUNNING,      "each worker that takes it is lost" },
    { RUNNING, IN_LIMIT_REACHED,        PARKED_RUNNING,      "the journal is full, or the outputs are too large for a task" },
    { RUNNING, IN_REJECTED_AFTER_PIVOT, PARKED_RUNNING,
      "a business no after the pivot: nothing is taken back any more" },
    { RUNNING, IN_RETRY,                RUNNING,             "an operator ended the back-off" },
    { RUNNING, IN_ACCEPTED,             RUNNING,
      "unknown and not repeatable, on_unknown ACCEPT: the step stays unconfirmed" },
    { RUNNING, IN_CONTINUED,            RUNNING,
      "budget or time-out over, on_exhausted CONTINUE: the step is left out" },
    { RUNNING, IN_SUSPENDED,            PARKED_RUNNING,      "a person stopped it" },

    { COMPENSATING, IN_STEP_DONE,              COMPENSATING,
      "an action in flight took effect: it is taken back, too" },
    { COMPENSATING, IN_COMPENSATION_DONE,      COMPENSATING,
      "the step before it is taken back next" },
    { COMPENSATING, IN_LAST_COMPENSATION_DONE, COMPENSATED,
      "nothing is left to take back" },
    { COMPENSATING, IN_COMPENSATION_FAILED,    PARKED_COMPENSATING,
      "a compensation was refused, or its budget is spent" },
    { COMPENSATING, IN_COMPENSATION_UNKNOWN,   PARKED_COMPENSATING,
      "a compensation is unknown and not repeatable" },
    { COMPENSATING, IN_FOREIGN_EFFECT,         PARKED_COMPENSATING,
      "the effect exists, but not by us" },
    { COMPENSATING, IN_LATE_EFFECT,            PARKED_COMPENSATING,
      "a late report speaks against what was recorded" },
    { COMPENSATING, IN_WORKER_KILLER,          PARKED_COMPENSATING,
      "each worker that takes it is lost" },
    { COMPENSATING, IN_LIMIT_REACHED,          PARKED_COMPENSATING, "the journal is full" },
    { COMPENSATING, IN_RETRY,                  COMPENSATING,
      "an operator ended the back-off" },
    { COMPENSATING, IN_SUSPENDED,              PARKED_COMPENSATING, "a person stopped it" },

    { PARKED_RUNNING, IN_STEP_DONE,      PARKED_RUNNING,      "a live lease ended well: recorded" },
    { PARKED_RUNNING, IN_REFUSED,        PARKED_COMPENSATING,
      "a live lease was refused: it will turn back" },
    { PARKED_RUNNING, IN_CANCELLED,      COMPENSATING,        "a person took it back" },
    { PARKED_RUNNING, IN_FOREIGN_EFFECT, PARKED_RUNNING,
      "a live lease found an effect that is not ours" },
    { PARKED_RUNNING, IN_LATE_EFFECT,    PARKED_RUNNING,
      "a late report speaks against what was recorded" },
    { PARKED_RUNNING, IN_RETRY,          RUNNING,             "an operator: again" },
    { PARKED_RUNNING, IN_SETTLED,        RUNNING,
      "the unknown it was parked for is settled, or the signal came" },
    { PARKED_RUNNING, IN_RESUMED,        RUNNING,             "a person lets it go on" },
    { PARKED_RUNNING, IN_ABANDONED,      ABANDONED,           "a person: nothing more is done" },

    { PARKED_COMPENSATING, IN_STEP_DONE,           PARKED_COMPENSATING,
      "an action in flight took effect: recorded" },
    { PARKED_COMPENSATING, IN_COMPENSATION_DONE,   PARKED_COMPENSATING,
      "a live lease ended well: recorded" },
    { PARKED_COMPENSATING, IN_COMPENSATION_FAILED, PARKED_COMPENSATING,
      "the unknown compensation turned out to be refused" },
    { PARKED_COMPENSATING, IN_FOREIGN_EFFECT,      PARKED_COMPENSATING,
      "a live lease found an effect that is not ours" },
    { PARKED_COMPENSATING, IN_LATE_EFFECT,         PARKED_COMPENSATING,
      "a late report speaks against what was recorded" },
    { PARKED_COMPENSATING, IN_RETRY,               COMPENSATING,        "an operator: again" },
    { PARKED_COMPENSATING, IN_SETTLED,             COMPENSATING,
      "the unknown it was parked for is settled" },
    { PARKED_COMPENSATING, IN_RESUMED,             COMPENSATING,        "a person lets it go on" },
    { PARKED_COMPENSATING, IN_SKIPPED,             COMPENSATING,
      "a person: without this compensation" },
    { PARKED_COMPENSATING, IN_ABANDONED,           ABANDONED,
      "a person: nothing more is done" },
};

static const struct verb_rule verbs[] = {
    { VERB_CANCEL, RUNNING,
      "turns back; live leases end first. While the pivot is under way it is pending, and the pivot's "
      "outcome decides; CANCEL_NOT_ALLOWED once the pivot is done", NULL },
    { VERB_CANCEL, COMPENSATING,        "nothing: it is turning back already", NULL },
    { VERB_CANCEL, PARKED_RUNNING,
      "turns back; an unknown step is compensated as `maybe`; pending and CANCEL_NOT_ALLOWED as in "
      "RUNNING", NULL },
    { VERB_CANCEL, PARKED_COMPENSATING,
      "refused: it has turned back already; clear what it is parked for, then "
      "retry the step", "CANCEL_NOT_ALLOWED" },
    { VERB_CANCEL, SUCCEEDED,
      "refused: the end is final; start a saga that corrects it, with "
      "related_saga", "CANCEL_NOT_ALLOWED" },
    { VERB_CANCEL, COMPENSATED,         "nothing: it is taken back already", NULL },
    { VERB_CANCEL, ABANDONED,
      "refused: the end is final; start a saga that corrects it, with "
      "related_saga", "CANCEL_NOT_ALLOWED" },

    { VERB_RETRY, RUNNING,
      "ends a back-off, with a fresh budget; LEASE_LIVE while a worker holds the "
      "step, RETRY_NOT_ALLOWED if it only waits for a worker", NULL },
    { VERB_RETRY, COMPENSATING,
      "ends a back-off, with a fresh budget; LEASE_LIVE while a worker holds a "
      "step, RETRY_NOT_ALLOWED in settle time or if it only waits for a worker", NULL },
    { VERB_RETRY, PARKED_RUNNING,
      "goes on forward, with a fresh budget (turns back if the deadline is over); asks the probe "
      "again where an unknown outcome has one; OUTCOME_UNKNOWN if a repeat is not safe, LEASE_LIVE "
      "while a worker holds the step, RETRY_NOT_ALLOWED for FOREIGN_EFFECT, LATE_EFFECT, "
      "LIMIT_REACHED and SUSPENDED", NULL },
    { VERB_RETRY, PARKED_COMPENSATING,
      "goes on taking back, with a fresh budget; asks the probe again where an unknown outcome has "
      "one; OUTCOME_UNKNOWN if a repeat is not safe, LEASE_LIVE while a worker holds the step, "
      "RETRY_NOT_ALLOWED for FOREIGN_EFFECT, LATE_EFFECT, LIMIT_REACHED and SUSPENDED", NULL },
    { VERB_RETRY, SUCCEEDED,           "refused: the end is final", "RETRY_NOT_ALLOWED" },
    { VERB_RETRY, COMPENSATED,         "refused: the end is final", "RETRY_NOT_ALLOWED" },
    { VERB_RETRY, ABANDONED,           "refused: the end is final", "RETRY_NOT_ALLOWED" },

    { VERB_RESOLVE, RUNNING,
      "settles an unknown attempt: done with its output, or to be granted again; of a step that it "
      "went on without, what is recorded; LEASE_LIVE while a worker holds it, NOTHING_TO_RESOLVE if "
      "its outcome is known", NULL },
    { VERB_RESOLVE, COMPENSATING,
      "settles an unknown attempt: an action that did not happen needs no compensation; LEASE_LIVE "
      "and NOTHING_TO_RESOLVE as in RUNNING, LEASE_LIVE also while anything is held if it would have "
      "to be taken back, too", NULL },
    { VERB_RESOLVE, PARKED_RUNNING,
      "settles an unknown, a foreign or a late effect, and goes on if it is parked for that; "
      "LEASE_LIVE and NOTHING_TO_RESOLVE as in RUNNING", NULL },
    { VERB_RESOLVE, PARKED_COMPENSATING,
      "settles an unknown, a foreign or a late effect, and goes on taking back if it is parked for "
      "that; LEASE_LIVE and NOTHING_TO_RESOLVE as in RUNNING", NULL },
    { VERB_RESOLVE, SUCCEEDED,
      "records what is in doubt, and clears `doubt`; the end stays; NOTHING_TO_RESOLVE if nothing is",
      NULL },
    { VERB_RESOLVE, COMPENSATED,
      "records what is in doubt, and clears `doubt`; the end stays; NOTHING_TO_RESOLVE if nothing is",
      NULL },
    { VERB_RESOLVE, ABANDONED,
      "records what is in doubt, and clears `doubt`; the end stays; NOTHING_TO_RESOLVE if nothing is",
      NULL },

    { VERB_SKIP, RUNNING,
      "refused: there is no compensation to skip; cancel it first", "SKIP_NOT_ALLOWED" },
    { VERB_SKIP, COMPENSATING,
      "refused: the compensation is under way; it can be skipped when it parks", "SKIP_NOT_ALLOWED" },
    { VERB_SKIP, PARKED_RUNNING,
      "refused: there is no compensation to skip; cancel it first", "SKIP_NOT_ALLOWED" },
    { VERB_SKIP, PARKED_COMPENSATING,
      "counts the compensation that it is parked at as done, and goes on with the step before; "
      "LEASE_LIVE while a worker holds a step, SKIP_NOT_ALLOWED for another step", NULL },
    { VERB_SKIP, SUCCEEDED,   "refused: the end is final", "SKIP_NOT_ALLOWED" },
    { VERB_SKIP, COMPENSATED, "refused: the end is final", "SKIP_NOT_ALLOWED" },
    { VERB_SKIP, ABANDONED,   "refused: the end is final", "SKIP_NOT_ALLOWED" },

    { VERB_ABANDON, RUNNING,
      "refused: it goes on by itself; cancel it, or wait until it parks", "ABANDON_NOT_ALLOWED" },
    { VERB_ABANDON, COMPENSATING,
      "refused: it goes on by itself; wait until it parks", "ABANDON_NOT_ALLOWED" },
    { VERB_ABANDON, PARKED_RUNNING,
      "ends it as it stands: what was done stays done; LEASE_LIVE while a worker holds a step", NULL },
    { VERB_ABANDON, PARKED_COMPENSATING,
      "ends it as it stands: what was not taken back stays; LEASE_LIVE while a worker holds a step",
      NULL },
    { VERB_ABANDON, SUCCEEDED,   "refused: the end is final", "ABANDON_NOT_ALLOWED" },
    { VERB_ABANDON, COMPENSATED, "refused: the end is final", "ABANDON_NOT_ALLOWED" },
    { VERB_ABANDON, ABANDONED,   "nothing: it is abandoned already", NULL },

    { VERB_SUSPEND, RUNNING,
      "grants nothing more; a live lease may end, and its report is recorded", NULL },
    { VERB_SUSPEND, COMPENSATING,
      "grants nothing more; a live lease may end, and its report is recorded", NULL },
    { VERB_SUSPEND, PARKED_RUNNING,
      "nothing if it is SUSPENDED; SUSPEND_NOT_ALLOWED if it is parked for another reason", NULL },
    { VERB_SUSPEND, PARKED_COMPENSATING,
      "nothing if it is SUSPENDED; SUSPEND_NOT_ALLOWED if it is parked for another reason", NULL },
    { VERB_SUSPEND, SUCCEEDED,   "refused: the end is final", "SUSPEND_NOT_ALLOWED" },
    { VERB_SUSPEND, COMPENSATED, "refused: the end is final", "SUSPEND_NOT_ALLOWED" },
    { VERB_SUSPEND, ABANDONED,   "refused: the end is final", "SUSPEND_NOT_ALLOWED" },

    { VERB_RESUME, RUNNING,      "nothing: it goes on already", NULL },
    { VERB_RESUME, COMPENSATING, "nothing: it goes on already", NULL },
    { VERB_RESUME, PARKED_RUNNING,
      "goes on as its journal then says (turns back if the deadline is over); RESUME_NOT_ALLOWED if "
      "it is parked for another reason than SUSPENDED", NULL },
    { VERB_RESUME, PARKED_COMPENSATING,
      "goes on taking back, as its journal then says; RESUME_NOT_ALLOWED if it is parked for another "
      "reason than SUSPENDED", NULL },
    { VERB_RESUME, SUCCEEDED,   "refused: the end is final", "RESUME_NOT_ALLOWED" },
    { VERB_RESUME, COMPENSATED, "refused: the end is final", "RESUME_NOT_ALLOWED" },
    { VERB_RESUME, ABANDONED,   "refused: the end is final", "RESUME_NOT_ALLOWED" },

    { VERB_SIGNAL, RUNNING,
      "kept until its step's turn; the step that waits for it is done. The same signal_id again is a "
      "duplicate, in every state; another one SIGNAL_TAKEN; SIGNAL_NOT_ALLOWED if the saga went on "
      "without it", NULL },
    { VERB_SIGNAL, COMPENSATING,
      "refused: the saga has turned back, nothing waits for it any more", "SIGNAL_NOT_ALLOWED" },
    { VERB_SIGNAL, PARKED_RUNNING,
      "kept, and goes on if it is parked because it did not come (turns back if the deadline is over); "
      "SIGNAL_TAKEN and SIGNAL_NOT_ALLOWED as in RUNNING", NULL },
    { VERB_SIGNAL, PARKED_COMPENSATING,
      "refused: the saga has turned back, nothing waits for it any more", "SIGNAL_NOT_ALLOWED" },
    { VERB_SIGNAL, SUCCEEDED,   "refused: the end is final", "SIGNAL_NOT_ALLOWED" },
    { VERB_SIGNAL, COMPENSATED, "refused: the end is final", "SIGNAL_NOT_ALLOWED" },
    { VERB_SIGNAL, ABANDONED,   "refused: the end is final", "SIGNAL_NOT_ALLOWED" },

    { VERB_OPTIONS, RUNNING,
      "other numbers for what it has yet to do: its deadline, retry budgets, back-off, leases; nothing if "
      "it has them already", NULL },
    { VERB_OPTIONS, COMPENSATING,
      "other numbers for what it has yet to take back; OPTIONS_NOT_ALLOWED for a deadline, which counts "
      "no more", NULL },
    { VERB_OPTIONS, PARKED_RUNNING,
      "as in RUNNING; it stays parked, and a retry begins with the new numbers", NULL },
    { VERB_OPTIONS, PARKED_COMPENSATING,
      "as in COMPENSATING; it stays parked, and a retry begins with the new numbers", NULL },
    { VERB_OPTIONS, SUCCEEDED,   "refused: the end is final", "OPTIONS_NOT_ALLOWED" },
    { VERB_OPTIONS, COMPENSATED, "refused: the end is final", "OPTIONS_NOT_ALLOWED" },
    { VERB_OPTIONS, ABANDONED,   "refused: the end is final", "OPTIONS_NOT_ALLOWED" },

    { VERB_REPORT, RUNNING,
      "a live lease: recorded, and what follows; a lost one: settles its unknown,"
      " or is evidence", NULL },
    { VERB_REPORT, COMPENSATING,
      "a live lease: recorded, and what follows; a lost one: settles its unknown,"
      " or is evidence", NULL },
    { VERB_REPORT, PARKED_RUNNING,
      "recorded; a refusal turns the phase (back at once if it is parked for another step's action), a "
      "settled unknown takes it on", NULL },
    { VERB_REPORT, PARKED_COMPENSATING, "recorded; a settled unknown takes it on", NULL },
    { VERB_REPORT, SUCCEEDED,
      "the same again is a duplicate; else stale: kept as a late report, an "
      "effect sets `doubt`", NULL },
    { VERB_REPORT, COMPENSATED,
      "the same again is a duplicate; else stale: kept as a late report, an "
      "effect sets `doubt`", NULL },
    { VERB_REPORT, ABANDONED,
      "the same again is a duplicate; else stale: kept as a late report, an "
      "effect sets `doubt`", NULL },
};
/* clang-format on */

static const char *const input_names[] = {
    [IN_STEP_DONE] = "STEP_DONE",
    [IN_LAST_STEP_DONE] = "LAST_STEP_DONE",
    [IN_REFUSED] = "REFUSED",
    [IN_CANCELLED] = "CANCELLED",
    [IN_DEADLINE_COMPENSATE] = "DEADLINE_COMPENSATE",
    [IN_DEADLINE_PARK] = "DEADLINE_PARK",
    [IN_UNKNOWN_COMPENSATE] = "UNKNOWN_COMPENSATE",
    [IN_UNKNOWN_PARK] = "UNKNOWN_PARK",
    [IN_EXHAUSTED_COMPENSATE] = "EXHAUSTED_COMPENSATE",
    [IN_EXHAUSTED_PARK] = "EXHAUSTED_PARK",
    [IN_COMPENSATION_DONE] = "COMPENSATION_DONE",
    [IN_LAST_COMPENSATION_DONE] = "LAST_COMPENSATION_DONE",
    [IN_COMPENSATION_FAILED] = "COMPENSATION_FAILED",
    [IN_COMPENSATION_UNKNOWN] = "COMPENSATION_UNKNOWN",
    [IN_FOREIGN_EFFECT] = "FOREIGN_EFFECT",
    [IN_LATE_EFFECT] = "LATE_EFFECT",
    [IN_WORKER_KILLER] = "WORKER_KILLER",
    [IN_LIMIT_REACHED] = "LIMIT_REACHED",
    [IN_REJECTED_AFTER_PIVOT] = "REJECTED_AFTER_PIVOT",
    [IN_RETRY] = "RETRY",
    [IN_SETTLED] = "SETTLED",
    [IN_SKIPPED] = "SKIPPED",
    [IN_ABANDONED] = "ABANDONED",
    [IN_ACCEPTED] = "ACCEPTED",
    [IN_CONTINUED] = "CONTINUED",
    [IN_SUSPENDED] = "SUSPENDED",
    [IN_RESUMED] = "RESUMED",
};
_Static_assert(ARRAY_LEN(input_names) == IN_COUNT, "a name for each input");

static const char *const verb_names[] = {
    [VERB_CANCEL] = "cancel", [VERB_RETRY] = "retry",     [VERB_RESOLVE] = "resolve",
    [VERB_SKIP] = "skip",     [VERB_ABANDON] = "abandon", [VERB_SUSPEND] = "suspend",
    [VERB_RESUME] = "resume", [VERB_SIGNAL] = "signal",   [VERB_OPTIONS] = "set-options",
    [VERB_REPORT] = "report",
};
_Static_assert(ARRAY_LEN(verb_names) == VERB_COUNT, "a name for each verb");

const char *saga_input_name(enum saga_input input)
{
    return (unsigned)input < IN_COUNT ? input_names[input] : NULL;
}

const struct saga_transition *saga_transition_find(enum saga_state from, enum saga_state phase,
                                                   enum saga_input on)
{
    for (size_t i = 0; i < ARRAY_LEN(transitions); i++) {
        const struct saga_transition *row = &transitions[i];
        if (row->from == from && row->phase_from == phase && row->on == on)
            return row;
    }
    return NULL;
}

const struct saga_transition *saga_transitions(size_t *ret_count)
{
    *ret_count = ARRAY_LEN(transitions);
    return transitions;
}

const struct verb_rule *verb_rules(size_t *ret_count)
{
    *ret_count = ARRAY_LEN(verbs);
    return verbs;
}

const struct verb_rule *verb_rule_find(enum verb verb, enum saga_state state, enum saga_state phase)
{
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (verbs[i].verb == verb && verbs[i].state == state && verbs[i].phase == phase)
            return &verbs[i];
    return NULL;
}

/* "PARKED in COMPENSATING": the phase is told where it differs. */
static void write_state(struct buf *out, enum saga_state state, enum saga_state phase)
{
    buf_text(out, saga_state_name(state));
    if (state == SAGA_PARKED)
        buf_printf(out, " in %s", saga_state_name(phase));
}

void fsm_write_dot(struct buf *out)
{
    buf_text(out, "digraph saga {\n"
                  "    rankdir=LR;\n"
                  "    node [shape=box, fontname=\"sans-serif\"];\n"
                  "    edge [fontname=\"sans-serif\", fontsize=10];\n"
                  "    \"SUCCEEDED\" [peripheries=2];\n"
                  "    \"COMPENSATED\" [peripheries=2];\n"
                  "    \"ABANDONED\" [peripheries=2];\n");
    for (size_t i = 0; i < ARRAY_LEN(transitions); i++) {
        const struct saga_transition *row = &transitions[i];
        buf_text(out, "    \"");
        write_state(out, row->from, row->phase_from);
        buf_text(out, "\" -> \"");
        write_state(out, row->to, row->phase_to);
        buf_printf(out, "\" [label=\"%s\", tooltip=\"%s\"];\n", saga_input_name(row->on), row->why);
    }
    buf_text(out, "}\n");
}

void fsm_write_markdown(struct buf *out)
{
    buf_text(out, "| from | input | to | why |\n|---|---|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(transitions); i++) {
        const struct saga_transition *row = &transitions[i];
        buf_text(out, "| ");
        write_state(out, row->from, row->phase_from);
        buf_printf(out, " | %s | ", saga_input_name(row->on));
        write_state(out, row->to, row->phase_to);
        buf_printf(out, " | %s |\n", row->why);
    }
    buf_text(out, "\n| call | state | what it does | refused with |\n|---|---|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        buf_printf(out, "| %s | ", verb_names[verbs[i].verb]);
        write_state(out, verbs[i].state, verbs[i].phase);
        buf_printf(out, " | %s | %s |\n", verbs[i].does, verbs[i].reason ? verbs[i].reason : "");
    }
}
