/* sagactl kafka resume: a stopped partition goes on at an offset that a person has chosen. */
#include "ctl/kafka_server.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOPIC_SIZE = 256 };

static const struct ctl_option options[] = {
    { "from", "OFFSET", false,
      "where it goes on (required): a number, low (the first record that is there), end, or "
      "cursor" },
    { "rule", "RULE", false, "whose partition (default: the only rule with that topic)" },
    KAFKA_REASON_OPTION,
    { NULL, NULL, false, NULL },
};

/* A whole number from 0 on, and nothing else. */
static bool read_number(const char *text, int64_t max, int64_t *ret)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || end == text || *end || *text < '0' || *text > '9' || number > max)
        return false;
    *ret = number;
    return true;
}

static bool read_partition(const char *text, char topic[TOPIC_SIZE], int32_t *ret)
{
    const char *slash = strrchr(text, '/');
    int64_t number;
    if (!slash || slash == text || slash - text >= TOPIC_SIZE ||
        !read_number(slash + 1, INT32_MAX, &number))
        return false;
    (void)snprintf(topic, TOPIC_SIZE, "%.*s", (int)(slash - text), text);
    *ret = (int32_t)number;
    return true;
}

static bool read_from(const char *text, Saga__V1__ResumePartitionRequest *request)
{
    static const struct {
        const char *name;
        Saga__V1__ResumePartitionRequest__Position position;
    } positions[] = {
        { "low", SAGA__V1__RESUME_PARTITION_REQUEST__POSITION__POSITION_LOW },
        { "end", SAGA__V1__RESUME_PARTITION_REQUEST__POSITION__POSITION_END },
        { "cursor", SAGA__V1__RESUME_PARTITION_REQUEST__POSITION__POSITION_CURSOR },
    };
    for (size_t i = 0; i < ARRAY_LEN(positions); i++) {
        if (strcmp(positions[i].name, text) != 0)
            continue;
        request->from_case = SAGA__V1__RESUME_PARTITION_REQUEST__FROM_POSITION;
        request->position = positions[i].position;
        return true;
    }
    int64_t offset;
    if (!read_number(text, INT64_MAX, &offset))
        return false;
    request->from_case = SAGA__V1__RESUME_PARTITION_REQUEST__FROM_OFFSET;
    request->offset = offset;
    return true;
}

/* The only rule with that topic. Prints what is wrong. */
static int find_rule(const char *topic, const Saga__V1__ListRulesResponse *rules, char **ret)
{
    char *found = NULL;
    for (size_t i = 0; i < rules->n_rules; i++) {
        if (strcmp(rules->rules[i]->topic, topic) != 0)
            continue;
        if (found)
            return ctl_print_misuse("more than one rule has that topic: --rule says which");
        found = rules->rules[i]->name;
    }
    if (!found) {
        (void)fputs("sagactl: no rule has that topic: sagactl kafka status lists them\n", stderr);
        return CTL_EXIT_FAILED;
    }
    *ret = found;
    return 0;
}

static int print(const struct ctl *ctl, const Saga__V1__KafkaPartition *partition)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (ctl->json)
        return ctl_print_message(&partition->base);
    screen_text(&text, partition->topic);
    buf_printf(&text, "/%d of rule ", partition->partition);
    screen_text(&text, partition->rule);
    buf_printf(&text, " goes on at %" PRId64 "\n", partition->next_offset);
    return ctl_print_text(&text);
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__ResumePartitionRequest request = SAGA__V1__RESUME_PARTITION_REQUEST__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__ListRulesResponse *rules = NULL;
    CLEANUP(ctl_message_free_p) Saga__V1__KafkaPartition *resumed = NULL;
    const char *from = ctl_option(arguments, "from");
    char topic[TOPIC_SIZE], actor[CTL_ACTOR_SIZE];
    struct where_view view;
    int rc = 0;
    if (!read_partition(arguments->positional[0], topic, &request.partition))
        return ctl_print_misuse("kafka resume takes TOPIC/PARTITION, as in payments/3");
    if (!from || !read_from(from, &request))
        return ctl_print_misuse(
            "kafka resume needs --from: where it goes on: an offset, low, end or cursor");
    if (!kafka_words(arguments, &request.reason, actor))
        return CTL_EXIT_USAGE;
    request.topic = topic;
    request.actor = actor;
    if (!ctl_take_text(arguments, "rule", &request.rule)) {
        rc = kafka_rules(ctl, "", true, &rules, &view);
        if (rc == 0)
            rc = find_rule(topic, rules, &request.rule);
    }
    if (rc == 0)
        rc = kafka_call(ctl, KAFKA_SERVICE "ResumePartition", &request.base,
                        &saga__v1__kafka_partition__descriptor, request.rule, &resumed);
    return rc != 0 ? rc : print(ctl, resumed);
}

const struct ctl_verb verb_kafka_resume = {
    "kafka resume",
    "TOPIC/PARTITION",
    1,
    1,
    options,
    "a stopped partition goes on at an offset that you choose\n"
    "\n"
    "sagactl kafka status tells why it stopped and which records it is about. What lies between "
    "the\n"
    "cursor and --from is passed over, or read again: sagas that exist are not started twice, as "
    "long\n"
    "as their keys are remembered. Any partition of a rule that is stopped can be moved so.",
    run,
};
