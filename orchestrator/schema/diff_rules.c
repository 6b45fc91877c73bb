/* A table for each message of a definition: its fields, and what a change of each means. What is
 * compared by other means has no row: names (steps and labels are found by them), after, at_start
 * and pivot (diff_order.c), no_compensation (it is what is left when there is no compensation). */
#include "schema/diff_internal.h"

#define HANDLER_WHY                                                                                \
    "workers that subscribe to the old one get nothing of new sagas, which wait until somebody "   \
    "serves the new one"
#define TYPE_WHY                                                                                   \
    "what was made for the one is refused, or read as something else, where the other is expected"

static const struct diff_rule of_definition[] = {
    { "namespace", .less = { DIFF_BREAKING, "that is another definition, with sagas of its own" } },
    { "name", .less = { DIFF_BREAKING, "that is another definition, with sagas of its own" } },
    { "description", .less = { DIFF_NOTE, "that is what people read in lists" } },
    { "deadline", .absent_is_most = true,
      .less = { DIFF_WARNING, "sagas that ended in time may now be late, and on_deadline acts" },
      .more = { DIFF_NOTE, "sagas may take longer" } },
    { "on_deadline", .less = { DIFF_WARNING, "a saga that is late ends in another way" } },
    { "max_running", "no limit", .absent_is_most = true,
      .less = { DIFF_NOTE, "ingest waits sooner" },
      .more = { DIFF_NOTE, "ingest starts more sagas at a time" } },
    { "publish", "NONE", .less = { DIFF_WARNING, "who waits for its events gets fewer, or none" },
      .more = { DIFF_NOTE, "more events leave" } },
    { "input_type", .is_type = true,
      .less = { DIFF_BREAKING, TYPE_WHY ": by whoever starts sagas, and by workers" } },
    { "key",
      .less = { DIFF_BREAKING,
                "the same input makes another saga_id, so a start that is sent again, once with "
                "each revision, makes two sagas" } },
};

static const struct diff_rule of_label[] = {
    { "value", .less = { DIFF_NOTE, "new sagas are found by other values" } },
};

static const struct diff_rule of_step[] = {
    { "action", .less = { DIFF_BREAKING, "its workers are asked by old sagas alone" },
      .more = { DIFF_BREAKING, "new sagas wait at it until a worker serves it" } },
    { "compensation",
      .less = { DIFF_BREAKING, "a saga that turns back leaves what the step did as it is" },
      .more = { DIFF_WARNING, "a saga that turns back waits until a worker serves it" } },
    { "guarded",
      .less = { DIFF_BREAKING, "nothing refuses a request that comes in late, or after the "
                               "compensation" },
      .more = { DIFF_BREAKING, "the compensation no longer waits for settle_time; of workers that "
                               "do not call the guard, a late request takes effect and stays" } },
    { "settle_time",
      .less = { DIFF_WARNING, "a request that is on its way for longer may come in after the "
                              "repeat or the compensation" },
      .more = { DIFF_NOTE, "after an unknown outcome it waits longer" } },
    { "delay", .less = { DIFF_NOTE, "the step starts sooner" },
      .more = { DIFF_NOTE, "the step starts later" } },
    { "wait_for_signal",
      .less = { DIFF_BREAKING, "whoever sends the signal is waited for by old sagas alone" },
      .more = { DIFF_BREAKING, "new sagas wait at it until somebody sends the signal" } },
};

static const struct diff_rule of_operation[] = {
    { "handler", .less = { DIFF_BREAKING, HANDLER_WHY } },
    { "effect",
      /* in the order of the enum: the lower, the more is repeated */
      .less = { DIFF_BREAKING, "what was not repeated is, and a participant that does not know "
                               "that it is the same has the effect twice" },
      .more = { DIFF_WARNING, "what was repeated is not, so that sagas may park where they went "
                              "on" } },
    { "lease", .less = { DIFF_WARNING, "a worker that is slow to extend it loses it sooner" },
      .more = { DIFF_NOTE, "it is found out later that a worker is gone" } },
    { "attempt_timeout",
      .less = { DIFF_WARNING, "an attempt that ended in time may now be cut off, its outcome "
                              "unknown" },
      .more = { DIFF_NOTE, "an attempt may take longer" } },
    { "idempotency_window", .absent = "for ever", .absent_is_most = true,
      .less = { DIFF_WARNING, "repeats end sooner, and on_unknown acts, or the probe" },
      .more = { DIFF_WARNING, "the other side must remember keys for longer, or a repeat has the "
                              "effect twice" } },
    { "on_unknown", .less = { DIFF_WARNING, "an unknown outcome leads to something else" } },
    { "on_exhausted", .less = { DIFF_WARNING, "a spent budget leads to something else" } },
    { "start_timeout", .absent_is_most = true,
      .less = { DIFF_WARNING, "without a worker on_exhausted acts sooner" },
      .more = { DIFF_NOTE, "it waits longer for a worker" } },
    { "probe", .less = { DIFF_WARNING, "nobody asks whether it happened: on_unknown acts" },
      .more = { DIFF_WARNING, "after an unknown outcome it waits until a worker serves the "
                              "probe" } },
    { "fresh_key_after_not_done",
      .less = { DIFF_WARNING, "after a NOT_DONE the same key is sent, for which the other side may "
                              "replay a failure" },
      .more = { DIFF_WARNING, "after a NOT_DONE another key is sent, by which the other side does "
                              "not know a late request again" } },
    { "lost_leases_max", .less = { DIFF_WARNING, "sagas park as WORKER_KILLER sooner" },
      .more = { DIFF_NOTE, "sagas park as WORKER_KILLER later" } },
    { "request", .less = { DIFF_BREAKING, "workers get the saga's input as it is" },
      .more = { DIFF_BREAKING, "workers got the saga's input as it is" } },
    { "output_type", .is_type = true, .less = { DIFF_BREAKING, TYPE_WHY } },
    { "idempotency_key", .absent = "derived from the saga",
      .less = { DIFF_BREAKING, "the other side does not know by the one what was done by the "
                               "other" } },
};

static const struct diff_rule of_retry[] = {
    { "for", .less = { DIFF_WARNING, "it is given up sooner, and on_exhausted or on_unknown acts" },
      .more = { DIFF_NOTE, "it is tried for longer" } },
    { "initial", .less = { DIFF_NOTE, "the first repeat comes sooner" },
      .more = { DIFF_NOTE, "the first repeat comes later" } },
    { "cap", .less = { DIFF_NOTE, "repeats come more often" },
      .more = { DIFF_NOTE, "repeats come less often" } },
    { "max_attempts", .absent = "no limit", .absent_is_most = true,
      .less = { DIFF_WARNING, "it is given up sooner, and on_exhausted or on_unknown acts" },
      .more = { DIFF_NOTE, "it is tried more often" } },
};

static const struct diff_rule of_probe[] = {
    { "handler", .less = { DIFF_BREAKING, HANDLER_WHY } },
    { "lease", .less = { DIFF_WARNING, "a worker that is slow to extend it loses it sooner" },
      .more = { DIFF_NOTE, "it is found out later that a worker is gone" } },
    { "attempt_timeout", .less = { DIFF_WARNING, "a probe that ended in time may now be cut off" },
      .more = { DIFF_NOTE, "a probe may take longer" } },
    { "request", .less = { DIFF_BREAKING, "workers get the saga's input as it is" },
      .more = { DIFF_BREAKING, "workers got the saga's input as it is" } },
};

static const struct diff_rule of_request[] = {
    { "type", .is_type = true, .less = { DIFF_BREAKING, TYPE_WHY } },
};

static const struct diff_rule of_request_field[] = {
    { "from", .less = { DIFF_WARNING, "workers get other content in the same field" } },
};

static const struct diff_rule of_wait[] = {
    { "signal", .less = { DIFF_BREAKING, "new sagas do not wait for whoever sends the old one" } },
    { "timeout", .absent_is_most = true,
      .less = { DIFF_WARNING, "a signal that came in time may now be late, and on_exhausted acts" },
      .more = { DIFF_NOTE, "the signal may come later" } },
    { "payload_type", .is_type = true, .less = { DIFF_BREAKING, TYPE_WHY } },
    { "on_exhausted", .less = { DIFF_WARNING, "a time-out leads to something else" } },
};

#define RULES(array)                                                                               \
    {                                                                                              \
        (array), ARRAY_LEN(array)                                                                  \
    }
const struct diff_rules diff_rules[DIFF_OF_COUNT] = {
    [DIFF_OF_DEFINITION] = RULES(of_definition),
    [DIFF_OF_LABEL] = RULES(of_label),
    [DIFF_OF_STEP] = RULES(of_step),
    [DIFF_OF_OPERATION] = RULES(of_operation),
    [DIFF_OF_RETRY] = RULES(of_retry),
    [DIFF_OF_PROBE] = RULES(of_probe),
    [DIFF_OF_REQUEST] = RULES(of_request),
    [DIFF_OF_REQUEST_FIELD] = RULES(of_request_field),
    [DIFF_OF_WAIT] = RULES(of_wait),
};
