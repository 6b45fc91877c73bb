/* The filter of lists and batches, as people and programs write it: comparisons joined by AND, a
 * subset of AIP-160.
 *
 *     definition = settlement AND state = PARKED AND park.reason = OUTCOME_UNKNOWN
 *         AND labels.account = "A-77" AND start_time >= "2026-11-30T22:00:00Z"
 *
 * A value is one word, or stands in double or single quotes, in which \ takes the next character as
 * it is. saga_id = "S-1*" means those that begin so. Any thread. */
#ifndef WIRE_FILTER_H
#define WIRE_FILTER_H

#include "base/err.h"
#include "core/saga_filter.h"
#include "wire/arena.h"

enum { FILTER_BYTES_MAX = 4096 };
enum filter_scope { FILTER_SAGAS, FILTER_EFFECTS /* of sagas: both kinds of fields */ };

/* Adds what `text` says to *filter, which keeps what it has; texts are copied into the arena.
 * ERR_INVALID names the column (in characters, from 1) and what is allowed there, also of a field
 * that has a value already; *filter is then half filled. */
MUST_USE int filter_parse(const char *text, enum filter_scope scope, struct arena *arena,
                          struct saga_filter *filter, struct err *err);

#endif
