/* sagactl kafka takeover: begins where a consumer group ended. */
#include "ctl/kafka_server.h"
#include "ctl/kafka_text.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = {
    { "from-group", "GROUP", false, "the consumer group that had the topic (required)" },
    KAFKA_REASON_OPTION,
    { NULL, NULL, false, NULL },
};

static int print(const struct ctl *ctl, const Saga__V1__KafkaRequest *request)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (ctl->json || request->result_case != SAGA__V1__KAFKA_REQUEST__RESULT_TAKE_OVER)
        return ctl_print_message(&request->base);
    kafka_write_take_over(request, &(struct where_view){ .color = ctl->color }, &text);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(ctl_message_free_p) Saga__V1__KafkaRequest *done = NULL;
    Saga__V1__TakeOverRequest request = SAGA__V1__TAKE_OVER_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    if (!ctl_take_text(arguments, "from-group", &request.from_group))
        return ctl_print_misuse("kafka takeover needs --from-group: whose offsets it begins at");
    if (!kafka_words(arguments, &request.reason, actor))
        return CTL_EXIT_USAGE;
    request.rule = (char *)arguments->positional[0];
    request.actor = actor;
    int rc = kafka_request_run(ctl, KAFKA_SERVICE "TakeOver", &request.base, request.rule, &done);
    return rc != 0 ? rc : print(ctl, done);
}

const struct ctl_verb verb_kafka_takeover = {
    "kafka takeover",
    "RULE",
    1,
    1,
    options,
    "begin where another consumer group ended; what it may have half done starts SUSPECT\n"
    "\n"
    "For a rule that is stopped. The node that serves it reads the group's committed offsets and "
    "the\n"
    "ends of the log, refuses while the group has members, begins there, and starts the rule.\n"
    "Records between the two may be half done: each of their steps is treated as one that may "
    "have\n"
    "run, so guarded and idempotent ones are repeated, probed ones probed, others parked.",
    run,
};
