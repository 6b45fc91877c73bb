/* Enums of saga.v1 as people read them: without their prefix, in the style that fits. Any thread.
 */
#ifndef CTL_NAMES_H
#define CTL_NAMES_H

#include "ctl/screen.h"

#include <saga/v1/kafka.pb-c.h>
#include <saga/v1/saga.pb-c.h>

/* "PARKED"; "?" for a value that this program does not know. */
const char *name_saga_state(Saga__V1__SagaState state);
const char *name_step_state(Saga__V1__StepState state);
const char *name_outcome(Saga__V1__Outcome outcome); /* "" when there is none */
const char *name_operation(Saga__V1__OperationKind operation);
const char *name_park_reason(Saga__V1__ParkReason reason);
const char *name_effect(Saga__V1__Effect effect);
const char *name_entry_kind(Saga__V1__JournalEntry__Kind kind);
const char *name_kafka_kind(Saga__V1__KafkaRequest__Kind kind);
const char *name_kafka_request_state(Saga__V1__KafkaRequest__State state);
const char *name_letter_state(Saga__V1__DeadLetter__State state);
/* "PARKED", "parked" or "SAGA_STATE_PARKED"; false for anything else. */
MUST_USE bool name_saga_state_read(const char *text, Saga__V1__SagaState *ret);
/* "ACTION" or "action" */
MUST_USE bool name_operation_read(const char *text, Saga__V1__OperationKind *ret);
/* "OPEN", "open" or "STATE_OPEN" */
MUST_USE bool name_letter_state_read(const char *text, Saga__V1__DeadLetter__State *ret);

enum screen_style style_saga_state(Saga__V1__SagaState state);
enum screen_style style_step_state(Saga__V1__StepState state);

/* Behind the name of who asked for something: nobody has checked it yet. */
#define ACTOR_UNPROVEN " (unproven)"

bool saga_state_is_end(Saga__V1__SagaState state);

#endif
