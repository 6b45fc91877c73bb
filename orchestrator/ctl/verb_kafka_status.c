/* sagactl kafka status: the rules, how far each partition is, and what holds up events on their way
 * out. */
#include "ctl/kafka_server.h"
#include "ctl/kafka_text.h"
#include "ctl/verbs.h"

#include <stdio.h>

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    const char *rule = arguments->count ? arguments->positional[0] : "";
    CLEANUP(ctl_message_free_p) Saga__V1__ListRulesResponse *rules = NULL;
    CLEANUP(buf_done) struct buf text = { 0 }, outbox = { 0 };
    struct where_view view;
    int rc = kafka_rules(ctl, rule, false, &rules, &view);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&rules->base);
    for (size_t i = 0; i < rules->n_rules; i++) {
        buf_text(&text, i ? "\n" : "");
        kafka_write_rule(rules->rules[i], &view, &text);
    }
    if (rules->outbox) {
        size_t before = text.size;
        kafka_write_outbox(rules->outbox, &view, &outbox);
        if (outbox.size)
            buf_printf(&text, "%s%s", before ? "\n" : "", buf_cstr(&outbox));
    }
    if (!rules->n_rules)
        (void)fputs("sagactl: no sagad has served a rule yet (sagad --print-example explains "
                    "them)\n",
                    stderr);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_kafka_status = {
    "kafka status",
    "[RULE]",
    0,
    1,
    NULL,
    "what comes in from Kafka: the rules, how far each partition is; and what holds up events\n"
    "\n"
    "CURSOR is the first record that is not handled, END the end of the log, LAG what lies "
    "between.\n"
    "A partition is running, paused (it goes on by itself: WHY tells when), STOPPED (a person\n"
    "decides: sagactl kafka resume), or UNSEEN: no node has looked at it for 10 s.\n"
    "\n"
    "Without a RULE also the outbox: what its relays say, and the events that the topic refuses. "
    "A\n"
    "refused one is tried again by itself, at most every 5 min, and the later events of its saga\n"
    "wait for it: sagactl outbox publish, discard.",
    run,
};
