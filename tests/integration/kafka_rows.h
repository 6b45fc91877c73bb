/* Rows of Kafka as a node writes them, and a node that does what it is asked at once: the API and
 * sagactl see Kafka through the database alone. Everything that fails fails the running test. */
#ifndef TEST_KAFKA_ROWS_H
#define TEST_KAFKA_ROWS_H

#include "support/rig.h"

/* All of it goes. */
void kafka_rows_clear(struct rig *rig);
/* A rule of definition "settlement" on topic "payments", seen now; wanted "RUN" or "STOP". */
void kafka_rows_rule(struct rig *rig, const char *rule, const char *wanted);
/* A running partition of it, seen now: cursor 100, log from 40 to 300. */
void kafka_rows_partition(struct rig *rig, const char *rule, int partition);
/* It stops for the gap 100..219. */
void kafka_rows_gap(struct rig *rig, const char *rule, int partition);
/* An open letter from partition 3; its id ends with `number`, so the larger one is the newer one.
 * value: as SQL writes bytea ("'\\x00ff'", "NULL"). */
void kafka_rows_letter(struct rig *rig, const char *rule, int number, const char *reason,
                       const char *value);
enum { LETTER_ID_SIZE = 40 };
const char *kafka_rows_letter_id(int number, char ret[LETTER_ID_SIZE]);
/* An event of the saga that is the newest one, its start (part 0), refused so often and last a
 * minute ago (0: never), which happened an hour ago. */
void kafka_rows_event(struct rig *rig, int refusals, const char *error);
/* A relay that lives; problem "": it publishes. */
void kafka_rows_relay(struct rig *rig, const char *problem);
/* From now on a request of this kind is in that state as soon as it is there, with this result (as
 * JSON) or error; "": none. */
void kafka_rows_answer(struct rig *rig, const char *kind, const char *state, const char *result,
                       const char *error);

#endif
