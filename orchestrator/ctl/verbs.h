/* Every verb of sagactl; each lives in its own file. */
#ifndef CTL_VERBS_H
#define CTL_VERBS_H

#include "ctl/arguments.h"

extern const struct ctl_verb verb_definition_check, verb_definition_apply, verb_definition_diff,
    verb_definition_list, verb_definition_show, verb_definition_get, verb_definition_promote,
    verb_definition_pause, verb_definition_resume, verb_definition_delete, verb_status,
    verb_workers, verb_start, verb_where, verb_get, verb_list, verb_effects, verb_history,
    verb_wait, verb_watch, verb_cancel, verb_retry, verb_resolve, verb_skip, verb_abandon,
    verb_suspend, verb_resume, verb_parked, verb_key, verb_guard_floor, verb_retention, verb_signal,
    verb_fsm, verb_kafka_status, verb_kafka_check, verb_kafka_takeover, verb_kafka_resume,
    verb_kafka_stop, verb_kafka_start, verb_kafka_requests, verb_dead_letter_list,
    verb_dead_letter_show, verb_dead_letter_replay, verb_dead_letter_discard, verb_outbox_publish,
    verb_outbox_discard, verb_batch_retry, verb_batch_cancel, verb_batch_suspend, verb_batch_resume,
    verb_batch_resolve, verb_batch_skip, verb_batch_abandon, verb_batch_set_options,
    verb_handler_list, verb_handler_hold, verb_handler_release, verb_handler_cap, verb_handler_rate,
    verb_handler_breaker, verb_set_options, verb_audit, verb_rerun, verb_export;
/* All of them in the order of the overview; NULL at the end. */
extern const struct ctl_verb *const ctl_verbs[];

#endif
