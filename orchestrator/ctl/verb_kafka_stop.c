/* sagactl kafka stop, start: whether a rule reads its topic. */
#include "ctl/kafka_server.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = {
    KAFKA_REASON_OPTION,
    { NULL, NULL, false, NULL },
};

static int tell(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                const char *rule)
{
    CLEANUP(ctl_message_free_p) Saga__V1__KafkaRule *told = NULL;
    CLEANUP(buf_done) struct buf text = { 0 };
    int rc = kafka_call(ctl, method, request, &saga__v1__kafka_rule__descriptor, rule, &told);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&told->base);
    screen_text(&text, told->name);
    buf_text(&text, told->stop ? ": stopped; sagas that it started go on\n"
                               : ": runs, as soon as a node serves it\n");
    if (!told->stop && told->stopped_partitions)
        buf_printf(&text,
                   "  %d of its partitions are stopped for a reason of their own: sagactl "
                   "kafka status %s\n",
                   told->stopped_partitions, told->name);
    return ctl_print_text(&text);
}

static int run_stop(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__StopRuleRequest request = SAGA__V1__STOP_RULE_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    if (!kafka_words(arguments, &request.reason, actor))
        return CTL_EXIT_USAGE;
    request.rule = (char *)arguments->positional[0];
    request.actor = actor;
    return tell(ctl, KAFKA_SERVICE "StopRule", &request.base, request.rule);
}

static int run_start(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__StartRuleRequest request = SAGA__V1__START_RULE_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    if (!kafka_words(arguments, &request.reason, actor))
        return CTL_EXIT_USAGE;
    request.rule = (char *)arguments->positional[0];
    request.actor = actor;
    return tell(ctl, KAFKA_SERVICE "StartRule", &request.base, request.rule);
}

const struct ctl_verb verb_kafka_stop = {
    "kafka stop",
    "RULE",
    1,
    1,
    options,
    "a rule reads no further record, until kafka start; its sagas go on\n"
    "\n"
    "It takes effect within a second. The group's offsets are where it stopped, so that another\n"
    "consumer can go on from there once none of its sagas runs.",
    run_stop,
};

const struct ctl_verb verb_kafka_start = {
    "kafka start", "RULE", 1, 1, options, "a stopped rule reads on where it stopped", run_start,
};
