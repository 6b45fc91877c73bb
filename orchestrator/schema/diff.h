/* What is different between two revisions of a definition, and how much it matters: for people, and
 * for scripts that let a change through or stop it. Any thread; nothing is kept.
 *
 * A running saga keeps the revision that it started with. So what a change meets is everything
 * around it that was made for the old one: workers and participants, which serve sagas of both
 * revisions at a time; whoever starts sagas, signals them and reads their payloads.
 *
 *   BREAKING  one of these does wrong and nobody is told (an effect twice, an effect that is never
 *             taken back, bytes read as something else), or it is refused, or gets nothing any more
 *   WARNING   sagas wait, park or turn back where they did not, or something must be there first
 *   NOTE      neither
 *
 * An effect class is a claim on the participant. More of it is BREAKING: towards IDEMPOTENT what
 * was never repeated is repeated, by its key or after a probe's NOT_DONE, and a participant that
 * knows neither has the effect twice. Less of it is a WARNING: repeats are taken away, and sagas
 * park instead; waiting is always safe. `guarded` is a claim, too: given to workers that do not
 * call the guard, the compensation no longer waits for settle_time, and a late request stays; taken
 * away, nothing refuses a late request. Both are BREAKING. A longer idempotency_window asks the
 * other side to remember keys for longer: a WARNING, as a shorter one, after which sagas park
 * sooner. */
#ifndef SCHEMA_DIFF_H
#define SCHEMA_DIFF_H

#include "schema/schema.h"

#include <saga/v1/definition.pb-c.h>

enum diff_severity { DIFF_NOTE, DIFF_WARNING, DIFF_BREAKING, DIFF_SEVERITY_COUNT };

/* "NOTE", "WARNING", "BREAKING". */
const char *diff_severity_name(enum diff_severity severity);

struct diff_revision {
    /* canonical: every default filled in (wire/definition_codec.h) */
    const Saga__V1__SagaDefinition *definition;
    const struct schema *schema; /* of its descriptors; NULL: none, so types are names alone */
};

/* path: of a field of the definition, steps and labels by name, fields of requests by number:
 * "steps.debit.action.retry.for", "steps.debit.action.request.fields.2.from". What changed within a
 * type is told once, at the first field that reaches it. text: what was, what is, and why it
 * matters: "was 1d, is 1h: it is given up sooner, ...". Both borrowed for the call. */
typedef void schema_diff_fn(void *ctx, enum diff_severity severity, const char *path,
                            const char *text);

struct diff_counts {
    size_t of[DIFF_SEVERITY_COUNT];
};

/* Tells every change; the same content has none. ERR_LIMIT: more steps than a definition may have.
 * ERR_NOMEM; some changes were told then. */
MUST_USE int schema_diff(const struct diff_revision *was, const struct diff_revision *is,
                         schema_diff_fn *on_change, void *ctx, struct diff_counts *ret,
                         struct err *err);

/* As the exit code of a command: 1 something is BREAKING, 2 something is a WARNING, else 0. */
int schema_diff_worst(const struct diff_counts *counts);

#endif
