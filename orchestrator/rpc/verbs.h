/* What is said with a verb, as the call on one saga and the batch on many read it. Any thread. */
#ifndef RPC_VERBS_H
#define RPC_VERBS_H

#include "rpc/request.h"

#include <saga/v1/operator.pb-c.h>

/* All but the saga. Texts are borrowed from the request. */
MUST_USE int verb_read_cancel(const Saga__V1__CancelSagaRequest *request, struct verb_request *ret,
                              struct err *err);
MUST_USE int verb_read_retry(const Saga__V1__RetryStepRequest *request, struct verb_request *ret,
                             struct err *err);
MUST_USE int verb_read_skip(const Saga__V1__SkipCompensationRequest *request,
                            struct verb_request *ret, struct err *err);
MUST_USE int verb_read_abandon(const Saga__V1__AbandonSagaRequest *request,
                               struct verb_request *ret, struct err *err);
MUST_USE int verb_read_suspend(const Saga__V1__SuspendSagaRequest *request,
                               struct verb_request *ret, struct err *err);
MUST_USE int verb_read_resume(const Saga__V1__ResumeSagaRequest *request, struct verb_request *ret,
                              struct err *err);
MUST_USE int verb_read_options(const Saga__V1__SetOptionsRequest *request, struct verb_request *ret,
                               struct err *err);
MUST_USE int verb_read_resolve(const Saga__V1__ResolveStepRequest *request,
                               size_t payload_bytes_max, struct verb_request *ret, struct err *err);

#endif
