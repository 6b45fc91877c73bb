/* sagactl kafka check: what would become of the last records of a topic. */
#include "ctl/kafka_server.h"
#include "ctl/kafka_text.h"
#include "ctl/verbs.h"

#define RECORDS_MAX INT64_C(10000000)
enum { RECORDS_DEFAULT = 10000 };

static const struct ctl_option options[] = {
    { "last", "N", false, "so many records, over all partitions (default 10000)" },
    { "reason", "TEXT", false, "why; kept with the request" },
    { NULL, NULL, false, NULL },
};

static int print(const struct ctl *ctl, const Saga__V1__KafkaRequest *request)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (request->result_case != SAGA__V1__KAFKA_REQUEST__RESULT_CHECK)
        return ctl_print_message(&request->base); /* of a server that answers something else */
    if (!ctl->json)
        kafka_write_check(request, &(struct where_view){ .color = ctl->color }, &text);
    int rc = ctl->json ? ctl_print_message(&request->base) : ctl_print_text(&text);
    return rc != 0 ? rc : request->check->n_bad ? CTL_EXIT_FAILED : 0;
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(ctl_message_free_p) Saga__V1__KafkaRequest *done = NULL;
    Saga__V1__CheckRuleRequest request = SAGA__V1__CHECK_RULE_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    struct err err;
    if (ctl_option_number(arguments, "last", 1, RECORDS_MAX, RECORDS_DEFAULT, &request.last,
                          &err) != 0)
        return ctl_print_error(&err);
    ctl_actor(actor);
    request.rule = (char *)arguments->positional[0];
    request.actor = actor;
    request.reason = (char *)"sagactl kafka check";
    (void)ctl_take_text(arguments, "reason", &request.reason); /* it need not be given */
    int rc = kafka_request_run(ctl, KAFKA_SERVICE "CheckRule", &request.base, request.rule, &done);
    return rc != 0 ? rc : print(ctl, done);
}

const struct ctl_verb verb_kafka_check = {
    "kafka check",
    "RULE",
    1,
    1,
    options,
    "what would become of the last records of a rule's topic; starts nothing\n"
    "\n"
    "The node that serves the rule reads them, without the group, and counts: good ones, bad ones\n"
    "by reason with the first of each, keys that come twice or have a saga already, records "
    "without\n"
    "a business key. Exit code 1 if there are bad ones. Without --timeout it waits until it is "
    "done.",
    run,
};
