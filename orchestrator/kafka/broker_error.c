#include "kafka/broker_error.h"

static const struct error_rule {
    rd_kafka_resp_err_t error;
    enum err_code code;
    bool retryable;
} rules[] = {
    /* clang-format off */
    { RD_KAFKA_RESP_ERR__TRANSPORT,                      ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__RESOLVE,                        ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,               ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__TIMED_OUT,                      ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE,                ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__MSG_TIMED_OUT,                  ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__WAIT_COORD,                     ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__WAIT_CACHE,                     ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__RETRY,                          ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__IN_PROGRESS,                    ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS,               ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__PURGE_QUEUE,                    ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,                 ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,            ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,        ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,               ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE,            ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE,           ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION,               ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,    ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,       ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_NOT_COORDINATOR,                 ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_NOT_CONTROLLER,                  ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,             ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, ERR_UNAVAILABLE, true  },
    { RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,             ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH,             ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH,            ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE,            ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_PREFERRED_LEADER_NOT_AVAILABLE,  ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_ELIGIBLE_LEADERS_NOT_AVAILABLE,  ERR_UNAVAILABLE,  true  },
    { RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT,          ERR_UNAVAILABLE,  true  },
    /* Somebody else has the partitions, or will in a moment. */
    { RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,           ERR_CONFLICT,     true  },
    { RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION,              ERR_CONFLICT,     true  },
    { RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,               ERR_CONFLICT,     true  },
    { RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST,                ERR_CONFLICT,     true  },
    { RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID,              ERR_CONFLICT,     false },
    { RD_KAFKA_RESP_ERR__FENCED,                         ERR_CONFLICT,     false },
    { RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,          ERR_CONFLICT,     false },
    { RD_KAFKA_RESP_ERR_PRODUCER_FENCED,                 ERR_CONFLICT,     false },
    /* A limit of ours that a wait relieves, and limits of the broker that none does. */
    { RD_KAFKA_RESP_ERR__QUEUE_FULL,                     ERR_LIMIT,        true  },
    { RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED,       ERR_LIMIT,        true  },
    { RD_KAFKA_RESP_ERR_GROUP_MAX_SIZE_REACHED,          ERR_LIMIT,        true  },
    { RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,              ERR_LIMIT,        false },
    { RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE,           ERR_LIMIT,        false },
    { RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE,       ERR_LIMIT,        false },
    { RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE,              ERR_LIMIT,        true  },
    /* What is not there may come. */
    { RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,           ERR_NOT_FOUND,    true  },
    { RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,                  ERR_NOT_FOUND,    true  },
    { RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,              ERR_NOT_FOUND,    true  },
    { RD_KAFKA_RESP_ERR__UNKNOWN_GROUP,                  ERR_NOT_FOUND,    true  },
    { RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND,              ERR_NOT_FOUND,    true  },
    { RD_KAFKA_RESP_ERR__NO_OFFSET,                      ERR_NOT_FOUND,    true  },
    { RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS,            ERR_EXISTS,       false },
    /* The right call in a state that somebody has to change. */
    { RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE,             ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET,              ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR_NON_EMPTY_GROUP,                 ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR_GROUP_SUBSCRIBED_TO_TOPIC,       ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL,     ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,      ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED,      ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,    ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED,      ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR__AUTHENTICATION,                 ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR__SSL,                            ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR__STATE,                          ERR_PRECONDITION, false },
    { RD_KAFKA_RESP_ERR__INVALID_ARG,                    ERR_INVALID,      false },
    { RD_KAFKA_RESP_ERR_INVALID_CONFIG,                  ERR_INVALID,      false },
    { RD_KAFKA_RESP_ERR_INVALID_PARTITIONS,              ERR_INVALID,      false },
    { RD_KAFKA_RESP_ERR_INVALID_REQUEST,                 ERR_INVALID,      false },
    { RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION,                 ERR_INVALID,      false },
    { RD_KAFKA_RESP_ERR_INVALID_GROUP_ID,                ERR_INVALID,      false },
    { RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT,         ERR_INVALID,      false },
    { RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION,             ERR_UNIMPLEMENTED, false },
    { RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE,            ERR_UNIMPLEMENTED, false },
    { RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED,                ERR_UNIMPLEMENTED, false },
    /* clang-format on */
};

enum err_code broker_error_code(rd_kafka_resp_err_t error, bool *ret_retryable)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].error == error) {
            *ret_retryable = rules[i].retryable;
            return rules[i].code;
        }
    }
    *ret_retryable = false; /* one that nobody has thought of: a person looks */
    return ERR_INTERNAL;
}

static int set(struct err *err, rd_kafka_resp_err_t error, const char *text, const char *context)
{
    bool retryable;
    enum err_code code = broker_error_code(error, &retryable);
    (void)err_set(err, code, "%s: %s (%s)", context, text, rd_kafka_err2name(error));
    err->retryable = retryable;
    return (int)code;
}

int broker_error_set(struct err *err, rd_kafka_resp_err_t error, const char *context)
{
    return set(err, error, rd_kafka_err2str(error), context);
}

int broker_error_take(struct err *err, rd_kafka_error_t *error, const char *context)
{
    int rc = set(err, rd_kafka_error_code(error), rd_kafka_error_string(error), context);
    if (rd_kafka_error_is_retriable(error))
        err->retryable = true;
    rd_kafka_error_destroy(error);
    return rc;
}
