#include "rpc/internal.h"

#include <grpc/health/v1/health.pb-c.h>
#include <saga/v1/definition.pb-c.h>
#include <saga/v1/kafka.pb-c.h>
#include <saga/v1/operator.pb-c.h>
#include <saga/v1/saga.pb-c.h>
#include <saga/v1/worker.pb-c.h>

static const struct method methods[] = {
    /* clang-format off */
    { "/saga.v1.SagaService/StartSaga", METHOD_UNARY,
      &saga__v1__start_saga_request__descriptor, saga_start, false },
    { "/saga.v1.SagaService/BatchStartSagas", METHOD_UNARY,
      &saga__v1__batch_start_sagas_request__descriptor, saga_batch_start, false },
    { "/saga.v1.SagaService/GetSaga", METHOD_UNARY,
      &saga__v1__get_saga_request__descriptor, saga_get, false },
    { "/saga.v1.SagaService/ListJournal", METHOD_UNARY,
      &saga__v1__list_journal_request__descriptor, saga_list_journal, false },
    { "/saga.v1.SagaService/ListSagas", METHOD_UNARY,
      &saga__v1__list_sagas_request__descriptor, saga_list, false },
    { "/saga.v1.SagaService/ListEffects", METHOD_UNARY,
      &saga__v1__list_effects_request__descriptor, saga_list_effects, false },
    { "/saga.v1.SagaService/WaitSaga", METHOD_UNARY,
      &saga__v1__wait_saga_request__descriptor, saga_wait, false },
    { "/saga.v1.SagaService/WatchSaga", METHOD_STREAM, NULL, saga_watch_begin, false },
    { "/saga.v1.SagaService/CancelSaga", METHOD_UNARY,
      &saga__v1__cancel_saga_request__descriptor, saga_cancel, false },
    { "/saga.v1.SagaService/SignalSaga", METHOD_UNARY,
      &saga__v1__signal_saga_request__descriptor, saga_signal, false },
    { "/saga.v1.DefinitionService/RegisterDefinition", METHOD_UNARY,
      &saga__v1__register_definition_request__descriptor, definition_register, false },
    { "/saga.v1.DefinitionService/GetDefinition", METHOD_UNARY,
      &saga__v1__get_definition_request__descriptor, definition_get, false },
    { "/saga.v1.DefinitionService/ListDefinitions", METHOD_UNARY,
      &saga__v1__list_definitions_request__descriptor, definition_list, false },
    { "/saga.v1.DefinitionService/ListRevisions", METHOD_UNARY,
      &saga__v1__list_revisions_request__descriptor, definition_list_revisions, false },
    { "/saga.v1.DefinitionService/PromoteDefinition", METHOD_UNARY,
      &saga__v1__promote_definition_request__descriptor, definition_promote, false },
    { "/saga.v1.DefinitionService/PauseDefinition", METHOD_UNARY,
      &saga__v1__pause_definition_request__descriptor, definition_pause, false },
    { "/saga.v1.DefinitionService/ResumeDefinition", METHOD_UNARY,
      &saga__v1__resume_definition_request__descriptor, definition_resume, false },
    { "/saga.v1.DefinitionService/DeleteRevision", METHOD_UNARY,
      &saga__v1__delete_revision_request__descriptor, definition_delete_revision, false },
    { "/saga.v1.OperatorService/RetryStep", METHOD_UNARY,
      &saga__v1__retry_step_request__descriptor, operator_retry_step, false },
    { "/saga.v1.OperatorService/ResolveStep", METHOD_UNARY,
      &saga__v1__resolve_step_request__descriptor, operator_resolve_step, false },
    { "/saga.v1.OperatorService/SkipCompensation", METHOD_UNARY,
      &saga__v1__skip_compensation_request__descriptor, operator_skip_compensation, false },
    { "/saga.v1.OperatorService/AbandonSaga", METHOD_UNARY,
      &saga__v1__abandon_saga_request__descriptor, operator_abandon_saga, false },
    { "/saga.v1.OperatorService/SuspendSaga", METHOD_UNARY,
      &saga__v1__suspend_saga_request__descriptor, operator_suspend_saga, false },
    { "/saga.v1.OperatorService/ResumeSaga", METHOD_UNARY,
      &saga__v1__resume_saga_request__descriptor, operator_resume_saga, false },
    { "/saga.v1.OperatorService/RunBatch", METHOD_STREAM, NULL, run_batch_begin, false },
    { "/saga.v1.OperatorService/SetOptions", METHOD_UNARY,
      &saga__v1__set_options_request__descriptor, operator_set_options, false },
    { "/saga.v1.OperatorService/ExportAttempts", METHOD_UNARY,
      &saga__v1__export_attempts_request__descriptor, operator_export_attempts, false },
    { "/saga.v1.OperatorService/RerunSaga", METHOD_UNARY,
      &saga__v1__rerun_saga_request__descriptor, operator_rerun_saga, false },
    { "/saga.v1.OperatorService/ListAudit", METHOD_UNARY,
      &saga__v1__list_audit_request__descriptor, operator_list_audit, false },
    { "/saga.v1.OperatorService/ListParked", METHOD_UNARY,
      &saga__v1__list_parked_request__descriptor, operator_list_parked, false },
    { "/saga.v1.OperatorService/GetGuardFloor", METHOD_UNARY,
      &saga__v1__get_guard_floor_request__descriptor, operator_get_guard_floor, false },
    { "/saga.v1.OperatorService/GetRetention", METHOD_UNARY,
      &saga__v1__get_retention_request__descriptor, operator_get_retention, false },
    { "/saga.v1.OperatorService/ListWorkers", METHOD_UNARY,
      &saga__v1__list_workers_request__descriptor, operator_list_workers, false },
    { "/saga.v1.OperatorService/HoldHandler", METHOD_UNARY,
      &saga__v1__hold_handler_request__descriptor, operator_hold_handler, false },
    { "/saga.v1.OperatorService/ReleaseHandler", METHOD_UNARY,
      &saga__v1__release_handler_request__descriptor, operator_release_handler, false },
    { "/saga.v1.OperatorService/SetHandlerLimits", METHOD_UNARY,
      &saga__v1__set_handler_limits_request__descriptor, operator_set_handler_limits, false },
    { "/saga.v1.OperatorService/ListHandlers", METHOD_UNARY,
      &saga__v1__list_handlers_request__descriptor, operator_list_handlers, false },
    { "/saga.v1.OperatorService/GetStatus", METHOD_UNARY,
      &saga__v1__get_status_request__descriptor, operator_get_status, false },
    { "/saga.v1.KafkaService/ListRules", METHOD_UNARY,
      &saga__v1__list_rules_request__descriptor, kafka_list_rules, false },
    { "/saga.v1.KafkaService/StopRule", METHOD_UNARY,
      &saga__v1__stop_rule_request__descriptor, kafka_stop_rule, false },
    { "/saga.v1.KafkaService/StartRule", METHOD_UNARY,
      &saga__v1__start_rule_request__descriptor, kafka_start_rule, false },
    { "/saga.v1.KafkaService/ResumePartition", METHOD_UNARY,
      &saga__v1__resume_partition_request__descriptor, kafka_resume_partition, false },
    { "/saga.v1.KafkaService/CheckRule", METHOD_UNARY,
      &saga__v1__check_rule_request__descriptor, kafka_check, false },
    { "/saga.v1.KafkaService/TakeOver", METHOD_UNARY,
      &saga__v1__take_over_request__descriptor, kafka_take_over, false },
    { "/saga.v1.KafkaService/GetKafkaRequest", METHOD_UNARY,
      &saga__v1__get_kafka_request_request__descriptor, kafka_get_request, false },
    { "/saga.v1.KafkaService/ListKafkaRequests", METHOD_UNARY,
      &saga__v1__list_kafka_requests_request__descriptor, kafka_list_requests, false },
    { "/saga.v1.KafkaService/ListDeadLetters", METHOD_UNARY,
      &saga__v1__list_dead_letters_request__descriptor, kafka_list_letters, false },
    { "/saga.v1.KafkaService/GetDeadLetter", METHOD_UNARY,
      &saga__v1__get_dead_letter_request__descriptor, kafka_get_letter, false },
    { "/saga.v1.KafkaService/ReplayDeadLetters", METHOD_UNARY,
      &saga__v1__replay_dead_letters_request__descriptor, kafka_replay_letters, false },
    { "/saga.v1.KafkaService/DiscardDeadLetters", METHOD_UNARY,
      &saga__v1__discard_dead_letters_request__descriptor, kafka_discard_letters, false },
    { "/saga.v1.KafkaService/PublishOutboxEvent", METHOD_UNARY,
      &saga__v1__publish_outbox_event_request__descriptor, kafka_publish_event, false },
    { "/saga.v1.KafkaService/DiscardOutboxEvent", METHOD_UNARY,
      &saga__v1__discard_outbox_event_request__descriptor, kafka_discard_event, false },
    { "/saga.v1.KafkaService/LookUpKey", METHOD_UNARY,
      &saga__v1__look_up_key_request__descriptor, kafka_look_up_key, false },
    { "/saga.v1.WorkerService/Work", METHOD_STREAM, NULL, worker_stream_begin, false },
    { "/saga.v1.WorkerService/LeaseTasks", METHOD_UNARY,
      &saga__v1__lease_tasks_request__descriptor, worker_lease_tasks, true },
    { "/saga.v1.WorkerService/ReportOutcomes", METHOD_UNARY,
      &saga__v1__report_outcomes_request__descriptor, worker_report_outcomes, true },
    { "/saga.v1.WorkerService/ExtendLeases", METHOD_UNARY,
      &saga__v1__extend_leases_request__descriptor, worker_extend_leases, true },
    { "/saga.v1.WorkerService/ReleaseTasks", METHOD_UNARY,
      &saga__v1__release_tasks_request__descriptor, worker_release_tasks, true },
    { "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", METHOD_STREAM, NULL,
      reflector_begin, false },
    { "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", METHOD_STREAM, NULL,
      reflector_begin, false },
    { "/grpc.health.v1.Health/Check", METHOD_UNARY,
      &grpc__health__v1__health_check_request__descriptor, health_check, true },
    { "/grpc.health.v1.Health/Watch", METHOD_STREAM, NULL, watcher_begin, true },
    /* clang-format on */
};

const struct method *method_find(grpc_slice path)
{
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (grpc_slice_str_cmp(path, methods[i].path) == 0)
            return &methods[i];
    }
    return NULL;
}

size_t method_count(void)
{
    return ARRAY_LEN(methods);
}

size_t method_message_bytes_max(const struct method *method)
{
    if (method->handle == reflector_begin)
        return RPC_REFLECTION_REQUEST_BYTES_MAX;
    bool is_larger = method->handle == definition_register;
    return is_larger ? LIMIT_REGISTER_BYTES : LIMIT_MESSAGE_BYTES;
}

size_t method_reply_bytes_max(const struct method *method)
{
    bool is_larger = method->handle == worker_lease_tasks;
    return is_larger ? LIMIT_TASK_MESSAGE_BYTES : LIMIT_MESSAGE_BYTES;
}
