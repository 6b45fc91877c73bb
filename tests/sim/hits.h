/* What must have happened at least once in a run of many seeds: each fault, and each outcome that
 * the promises speak of. A fault that never hit proves nothing, so it fails the run. */
#ifndef SIM_HITS_H
#define SIM_HITS_H

#include <stddef.h>
#include <stdint.h>

/* name, text, odds per mille of one occasion where a seed has it at all */
#define FAULTS(X)                                                                                  \
    X(CUT_BEFORE_COMMIT, "connection cut before COMMIT ran", 25)                                   \
    X(CUT_AFTER_COMMIT, "COMMIT ran, its answer was lost", 25)                                     \
    X(CUT_THEN_COMMIT, "connection cut, COMMIT ran after the client had gone on", 25)              \
    X(CUT_WHILE_IDLE, "connection cut with nothing in flight", 400)                                \
    X(CONNECTION_REFUSED, "database refuses connections for a while", 300)                         \
    X(DATABASE_RESTART, "database restarts: every connection is cut", 200)                         \
    X(ROW_FAILS, "one operation fails: a lock, a class 40 error", 40)                              \
    X(ROW_REFUSED, "one operation fails for good", 8)                                              \
    X(BATCH_FAILS, "a whole batch fails: disk full", 15)                                           \
    X(COMMIT_SLOW, "a commit takes up to 4 s", 40)                                                 \
    X(REPLY_SLOW, "an answer of the database comes late", 40)                                      \
    X(LOCKED_SKIPPED, "adoption skips a locked row", 200)                                          \
    X(NODE_CRASH, "a node dies", 250)                                                              \
    X(NODE_PAUSE, "a node is stopped for up to a minute", 250)                                     \
    X(NODE_STOP, "a node stops in an orderly way", 150)                                            \
    X(NODE_TWINS, "two processes run under one node's name", 80)                                   \
    X(LITTLE_ROOM, "a node has room for one or two sagas", 300)                                    \
    X(CLOCK_WRONG, "a node's wall clock is up to two minutes off", 500)                            \
    X(CLOCK_DRIFTS, "a node's clock runs up to 200 ppm off", 500)                                  \
    X(STREAM_CUT, "a worker's stream is cut", 500)                                                 \
    X(STREAM_HALF_OPEN, "one side hears of a cut stream late", 500)                                \
    X(STREAM_BLOCKED, "a stream has no room", 60)                                                  \
    X(MESSAGE_SLOW, "a message takes up to 3 s", 20)                                               \
    X(WORKER_DIES, "a worker dies", 250)                                                           \
    X(WORKER_PAUSE, "a worker is stopped for up to a minute", 300)                                 \
    X(WORKER_DRAINS, "a worker drains", 150)                                                       \
    X(WORKER_SILENT, "a worker takes tasks and says nothing for a while", 200)                     \
    X(WORKER_LIES, "a worker reports on fences that are not its own", 300)                         \
    X(WORKER_POLLS, "a worker without a stream: an answer is closed when it has brought tasks",    \
      300)                                                                                         \
    X(REPORT_TWICE, "a report is sent twice", 80)                                                  \
    X(REPORT_OTHER, "a second report of a fence says otherwise", 80)                               \
    X(REPORT_ELSEWHERE, "a report goes to another node than its task came from", 250)              \
    X(REPORT_RACED, "a report, and calls for its saga at every node about then", 150)              \
    X(PROBE_RACED, "a person settles what a probe asks about, as it is asked again", 300)          \
    X(REPORT_AT_DEADLINE, "a report just as the deadline passes", 600)                             \
    X(HANDLER_SLOW, "a handler takes longer than its lease", 100)                                  \
    X(HANDLER_CARELESS, "a guarded handler does not ask whether it is still mine", 300)            \
    X(NOT_SENT, "a request certainly had no effect: RETRY", 100)                                   \
    X(WORD_OF_PROBE, "an attempt answers what only a probe may: NOT_DONE, STILL_UNKNOWN", 25)      \
    X(PROBE_UNSURE, "a probe cannot find out: STILL_UNKNOWN", 300)                                 \
    X(PROBE_ODD, "a probe answers what only an attempt may: RETRY, REJECTED, ...", 100)            \
    X(QUESTION_LOST, "a probe's question is lost, or its answer", 120)                             \
    X(QUESTION_LATE, "a probe's question arrives late", 300)                                       \
    X(PROBE_SLEEPS, "the worker of a probe is stopped for longer than its lease", 60)              \
    X(BUSINESS_NO, "the participant says no", 120)                                                 \
    X(ANSWER_LOST, "the participant's answer is lost", 120)                                        \
    X(REQUEST_LOST, "a request is lost", 80)                                                       \
    X(REQUEST_LATE, "a request arrives late, up to settle time after its lease ended", 200)        \
    X(FOREIGN_EFFECT, "the effect exists already, by another", 15)                                 \
    X(START_AGAIN, "a start is sent again", 300)                                                   \
    X(START_OTHER, "a start of a known key with other input", 150)                                 \
    X(TAKEN_OVER, "a saga takes over what somebody else has begun", 400)                           \
    X(CANCEL_AT_PIVOT, "a cancel while the pivot is at work", 300)                                 \
    X(CALL_CANCEL, "a cancel", 200)                                                                \
    X(CALL_RETRY, "a retry", 200)                                                                  \
    X(CALL_RESOLVE, "a person settles what is unknown, with evidence", 350)                        \
    X(CALL_SKIP, "a person skips a compensation", 150)                                             \
    X(CALL_ABANDON, "a person abandons a saga", 40)                                                \
    X(CALL_SUSPEND, "a person suspends a saga", 100)                                               \
    X(CALL_RESUME, "a person lets a suspended saga go on", 400)                                    \
    X(CALL_BURST, "calls for one saga at every node at once", 150)                                 \
    X(CALL_WAIT, "a wait", 300)                                                                    \
    X(HANDLER_HELD, "a person holds a handler", 250)                                               \
    X(HANDLER_RELEASED, "a person releases a handler", 350)                                        \
    X(HANDLER_GRADUAL, "a person releases a handler gradually", 200)                               \
    X(HANDLER_LIMITED, "a person limits a handler, or lifts that", 150)                            \
    X(BREAKER, "the breakers of a node hold after very few failures", 400)                         \
    X(CALL_OPTIONS, "a person gives a saga other numbers", 150)

#define OUTCOMES(X)                                                                                \
    X(RESULT_LOST, "a decision lost against another")                                              \
    X(RESULT_HALF, "the outcome became durable, the next grant lost")                              \
    X(RESULT_UNKNOWN, "a commit in doubt")                                                         \
    X(ENDED_DONE, "a lease ended DONE")                                                            \
    X(ENDED_ALREADY_DONE, "a lease ended ALREADY_DONE")                                            \
    X(ENDED_REJECTED, "a lease ended REJECTED")                                                    \
    X(ENDED_RETRY, "a lease ended RETRY")                                                          \
    X(ENDED_UNKNOWN, "a lease ended UNKNOWN")                                                      \
    X(ENDED_EXPIRED, "a lease expired")                                                            \
    X(ENDED_STREAM_LOST, "a lease ended STREAM_LOST")                                              \
    X(ENDED_RELEASED, "a lease was given back")                                                    \
    X(ENDED_NOT_DONE, "a probe ended NOT_DONE")                                                    \
    X(ENDED_STILL_UNKNOWN, "a probe ended STILL_UNKNOWN")                                          \
    X(PARALLEL_ACTIONS, "two steps ran at the same time")                                          \
    X(PARALLEL_COMPENSATIONS, "two steps were taken back at the same time")                        \
    X(REFUSED_BESIDE_LEASE, "a step was refused beside another's live lease")                      \
    X(PENDING_CANCEL, "a cancel waited for the pivot")                                             \
    X(PENDING_DEADLINE, "a deadline waited for the pivot")                                         \
    X(PENDING_TURNED_BACK, "the pivot had no effect: the cancel that waited turned back")          \
    X(PENDING_TOO_LATE, "the pivot was done: the cancel that waited came too late")                \
    X(PARKED_REJECTED_AFTER_PIVOT, "parked: REJECTED_AFTER_PIVOT")                                 \
    X(DELAYED, "a step began after its delay")                                                     \
    X(JOINED, "a step began after two that had run at the same time")                              \
    X(EIGHT_AT_ONCE, "eight steps of one saga ran at the same time")                               \
    X(SIX_BACK_AT_ONCE, "six steps of one saga were taken back at the same time")                  \
    X(CHAIN_DONE, "a chain of twelve steps SUCCEEDED")                                             \
    X(CHAIN_BACK, "a chain of twelve steps COMPENSATED, six or more taken back")                   \
    X(WIDE_DONE, "a wide graph (eight steps or more beside each other) SUCCEEDED")                 \
    X(WIDE_BACK, "a wide graph COMPENSATED, six or more taken back")                               \
    X(DIAMONDS_DONE, "diamonds within a diamond SUCCEEDED")                                        \
    X(DIAMONDS_BACK, "diamonds within a diamond COMPENSATED, six or more taken back")              \
    X(ANY_DONE, "any graph of seven to twelve steps SUCCEEDED")                                    \
    X(ANY_BACK, "any such graph COMPENSATED, six or more taken back")                              \
    X(LARGE_PIVOT, "a large graph with a pivot SUCCEEDED")                                         \
    X(LARGE_CANCELLED, "a large graph was cancelled beside a live lease")                          \
    X(ANSWER_WAITED, "an answer that was closed waited for what had been granted before")          \
    X(UNCONFIRMED, "a task that its worker did not name in time counted as lost on its way")       \
    X(LEASE_EXTENDED, "a lease was extended")                                                      \
    X(EXTENSION_REFUSED, "an extension was refused")                                               \
    X(BACK_REFUSED, "turned back: refused")                                                        \
    X(BACK_CANCELLED, "turned back: cancelled")                                                    \
    X(BACK_DEADLINE, "turned back: deadline")                                                      \
    X(BACK_UNKNOWN, "turned back: unknown")                                                        \
    X(BACK_EXHAUSTED, "turned back: budget spent")                                                 \
    X(BACK_START_TIMEOUT, "turned back: start time-out")                                           \
    X(PARKED_OUTCOME_UNKNOWN, "parked: OUTCOME_UNKNOWN")                                           \
    X(PARKED_IDEMPOTENCY_WINDOW_OVER, "parked: IDEMPOTENCY_WINDOW_OVER")                           \
    X(PARKED_RETRIES_EXHAUSTED, "parked: RETRIES_EXHAUSTED")                                       \
    X(PARKED_COMPENSATION_FAILED, "parked: COMPENSATION_FAILED")                                   \
    X(PARKED_DEADLINE_EXCEEDED, "parked: DEADLINE_EXCEEDED")                                       \
    X(PARKED_FOREIGN_EFFECT, "parked: FOREIGN_EFFECT")                                             \
    X(PARKED_LATE_EFFECT, "parked: LATE_EFFECT")                                                   \
    X(PARKED_WORKER_KILLER, "parked: WORKER_KILLER")                                               \
    X(PARKED_SUSPENDED, "parked: SUSPENDED")                                                       \
    X(SUSPENDED_BESIDE_LEASE, "suspended beside a live lease")                                     \
    X(RESUMED, "a suspended saga was let go on")                                                   \
    X(PROBE_DONE, "a probe found it done")                                                         \
    X(PROBE_NOT_DONE, "a probe found it not done, when that counts")                               \
    X(PROBE_TOO_EARLY, "a probe found it not done, when that does not count yet")                  \
    X(PROBE_OF_COMPENSATION, "a probe settled a compensation")                                     \
    X(PROBE_LATE, "the late report of a probe settled")                                            \
    X(PROBE_GIVEN_UP, "probes did not find out: on_unknown decided")                               \
    X(PROBE_GIVEN_UP_BACK, "probes did not find out: compensated as maybe")                        \
    X(PROBE_AFTER_WINDOW, "the window is over: the probe decides")                                 \
    X(PROBE_AFTER_BUDGET, "the budget is spent: the probe decides")                                \
    X(REPEATED_AFTER_NOT_DONE, "an operation that was found not done was granted again")           \
    X(FRESH_KEY, "an attempt had a key of a later generation")                                     \
    X(LANDED_AFTER_LEASE, "a request took effect after its lease had ended")                       \
    X(SETTLE_TIME_CAUGHT, "a request took effect after a NOT_DONE that came too early")            \
    X(WINDOW_CUT, "the end of the idempotency window cut an attempt's time")                       \
    X(ACCEPTED, "unknown: the saga went on, the step unconfirmed")                                 \
    X(ACCEPTED_RESOLVED, "an unconfirmed step was settled by a person")                            \
    X(ACCEPTED_REPORTED, "an unconfirmed step was settled by a late report")                       \
    X(CONTINUED, "budget spent: the saga went on without the step")                                \
    X(RESOLVED_DONE, "a person found that it had happened")                                        \
    X(RESOLVED_NOT_DONE, "a person found that it had not happened")                                \
    X(RESOLVED_EVIDENCE, "what a person found out changed nothing but the doubt")                  \
    X(RESOLVED_AFTER_END, "a person found out about a saga that had ended")                        \
    X(SKIPPED, "a compensation was skipped")                                                       \
    X(LATE_REPORTED, "a late report was recorded")                                                 \
    X(SETTLED_RESUMED, "what was unknown was settled: a parked saga went on")                      \
    X(LATE_AFTER_END, "a late report after the end")                                               \
    X(OLD_REQUEST_LANDED, "a request of whom it took over from took effect after the start")       \
    X(OLD_EFFECT_KNOWN, "a step that it had not tried yet was there already: same key, or guard")  \
    X(OLD_EFFECT_PROBED, "a probe found done what the saga had never tried")                       \
    X(OLD_EFFECT_RESOLVED, "a person said what had become of what it had never tried")             \
    X(SUSPECT_PARKED, "what it had never tried parked it: OUTCOME_UNKNOWN")                        \
    X(SUSPECT_TAKEN_BACK, "a step that it had never tried was compensated as maybe")               \
    X(SUSPECT_AT_PIVOT, "it did not turn back, since the pivot may have run before")               \
    X(SUSPECT_SUCCEEDED, "a saga that took over SUCCEEDED")                                        \
    X(SUSPECT_COMPENSATED, "a saga that took over COMPENSATED")                                    \
    X(OPTIONS_SET, "a saga went on with other numbers")                                            \
    X(DEADLINE_SET, "a saga had another deadline, or none any more")                               \
    X(RETRIED, "an operator's retry")                                                              \
    X(SUCCEEDED, "a saga SUCCEEDED")                                                               \
    X(COMPENSATED, "a saga COMPENSATED")                                                           \
    X(ABANDONED, "a saga was ABANDONED")                                                           \
    X(ENDED_IN_DOUBT, "a saga ended in doubt")                                                     \
    X(END_WRITTEN, "an end that nobody had said got its own entry")                                \
    X(ACK_ACCEPTED, "ack ACCEPTED")                                                                \
    X(ACK_DUPLICATE, "ack DUPLICATE")                                                              \
    X(ACK_STALE, "ack STALE")                                                                      \
    X(GUARD_DUPLICATE, "the guard said DUPLICATE")                                                 \
    X(GUARD_REFUSED, "the guard said REFUSED")                                                     \
    X(GUARD_STALE, "the guard said STALE")                                                         \
    X(GUARD_EMPTY, "the guard said EMPTY")                                                         \
    X(KEY_KNOWN, "the participant knew the idempotency key")                                       \
    X(CALL_OK, "a call was answered OK")                                                           \
    X(CALL_REFUSED, "a call was refused")                                                          \
    X(CALL_REFUSED_UNKNOWN, "a retry was refused: find out first")                                 \
    X(CALL_UNKNOWN, "a call's answer never came")                                                  \
    X(START_EXISTED, "a start found its saga there")                                               \
    X(START_MISMATCH, "a start found its key taken with other input")                              \
    X(STREAM_ENDED, "the engine ended a stream: a newer one came")                                 \
    X(HINTED, "a worker was told that its saga turned back")                                       \
    X(EXPELLED, "a node was told that another process has its name")                               \
    X(ADOPTED, "a dead node's saga was adopted")                                                   \
    X(TAKEN, "a saga was taken over for a call or a report")                                       \
    X(LET_GO, "a saga was let go")                                                                 \
    X(FOUND_AGAIN, "a saga without an owner was found again")                                      \
    X(WAITED_WHILE_HELD, "a lease was granted after its handler had been held meanwhile")          \
    X(BREAKER_TRIPPED, "a breaker held its handler")                                               \
    X(BREAKER_TRIAL, "a node claimed a trial")                                                     \
    X(BREAKER_CLOSED, "trials closed a breaker")                                                   \
    X(HANDLER_DRAINED, "a handler that was released gradually had nothing waiting any more")

#define HIT_ENUM_FAULT(name, text, odds) FAULT_##name,
#define HIT_ENUM_OUTCOME(name, text)     HIT_##name,
enum hit {
    FAULTS(HIT_ENUM_FAULT) FAULT_COUNT,
    HIT_FIRST_ = FAULT_COUNT - 1, /* outcomes follow without a gap */
    OUTCOMES(HIT_ENUM_OUTCOME) HIT_COUNT
};
#undef HIT_ENUM_FAULT
#undef HIT_ENUM_OUTCOME

const char *hit_name(enum hit hit);
const char *hit_text(enum hit hit);
unsigned fault_odds(enum hit fault);

#endif
