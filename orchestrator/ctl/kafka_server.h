/* Calls about Kafka, what to do where they are refused, and requests until they are done.
 * thread: the main thread. */
#ifndef CTL_KAFKA_SERVER_H
#define CTL_KAFKA_SERVER_H

#include "ctl/ctl.h"

#include <saga/v1/kafka.pb-c.h>

#define KAFKA_SERVICE "/saga.v1.KafkaService/"
#define KAFKA_REASON_OPTION                                                                        \
    {                                                                                              \
        "reason", "TEXT", false, "why; kept with the decision (required)"                          \
    }

/* ctl_call; where it is refused, what to do is printed as well. `rule` may be "". */
MUST_USE int kafka_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *reply_type, const char *rule, void *ret);
/* ListRules; rule "": every one. *ret_view: ages by the server's clock. The caller owns *ret. */
MUST_USE int kafka_rules(struct ctl *ctl, const char *rule, bool omit_partitions,
                         Saga__V1__ListRulesResponse **ret, struct where_view *ret_view);
/* --reason, and who asks. false: it is missing, which was printed (exit code CTL_EXIT_USAGE). */
MUST_USE bool kafka_words(const struct ctl_arguments *arguments, char **ret_reason,
                          char actor[CTL_ACTOR_SIZE]);
/* Posts a request that a node is to do and waits until it is done, with its progress on a terminal,
 * or until --timeout is over, which the request outlives. The caller owns *ret, also on failure
 * (NULL: it was not posted). 0: it is DONE; else it has printed why not. */
MUST_USE int kafka_request_run(struct ctl *ctl, const char *method, const ProtobufCMessage *message,
                               const char *rule, Saga__V1__KafkaRequest **ret);

#endif
