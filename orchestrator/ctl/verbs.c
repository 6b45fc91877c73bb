#include "ctl/verbs.h"

const struct ctl_verb *const ctl_verbs[] = {
    &verb_where,
    &verb_status,
    &verb_definition_apply,
    &verb_definition_list,
    &verb_definition_get,
    &verb_start,
    &verb_wait,
    &verb_get,
    &verb_list,
    &verb_history,
    &verb_cancel,
    &verb_retry,
    &verb_resolve,
    &verb_skip,
    &verb_abandon,
    &verb_key,
    &verb_fsm,
    NULL,
};
