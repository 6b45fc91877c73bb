#include "ctl/kafka_server.h"

#include "base/clock.h"
#include "ctl/screen.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    POLL_MS = 300,
    CALL_MS = 30 * 1000,
    UNTAKEN_MS = 5 * 1000, /* nobody has taken the request: say so */
};

/* --- calls ---------------------------------------------------------------------------------------
 */

static void write_advice(const char *reason, const char *rule, struct buf *out)
{
    static const struct {
        const char *reason, *advice; /* %s: the rule */
    } known[] = {
        { "RULE_NOT_FOUND", "sagactl kafka status lists the rules; a rule stands in the "
                            "configuration of the sagads that serve it" },
        { "PARTITION_NOT_FOUND", "sagactl kafka status %s lists its partitions" },
        { "PARTITION_NOT_STOPPED",
          "It is read as it is. To move it: sagactl kafka stop %s --reason ..., then resume, then "
          "start" },
        { "NOT_SEEN", "No node has seen the log of that partition: --from OFFSET or --from cursor "
                      "needs none" },
        { "RULE_RUNS", "First sagactl kafka stop %s --reason ..." },
        { "LETTER_NOT_OPEN", "sagactl dead-letter show ID tells who decided on it" },
        { "LETTER_NOT_FOUND", "sagactl dead-letter list tells what there is" },
        { "EVENT_NOT_FOUND", "sagactl kafka status lists what is refused" },
        { "EVENT_NOT_REFUSED", "sagactl kafka status tells what it waits for" },
        { "REQUEST_NOT_FOUND", "sagactl kafka requests lists them" },
        { "GROUP_HAS_MEMBERS",
          "Stop its consumers; a killed one leaves when its session time-out is over" },
        { "GROUP_HAS_NO_OFFSETS", "Is that the name? The rule's own start says where to begin "
                                  "without a group: sagactl kafka start %s --reason ..." },
    };
    CLEANUP(buf_done) struct buf word = { 0 };
    screen_shell_word(&word, *rule ? rule : "RULE");
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(known[i].reason, reason) != 0)
            continue;
        const char *advice = known[i].advice, *gap = strstr(advice, "%s");
        int head = gap ? (int)(gap - advice) : (int)strlen(advice);
        buf_printf(out, "  %.*s%s%s\n", head, advice, gap ? buf_cstr(&word) : "",
                   gap ? gap + 2 : "");
    }
}

int kafka_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
               const ProtobufCMessageDescriptor *reply_type, const char *rule, void *ret)
{
    struct client_failure failure;
    struct err err;
    if (ctl_call_quietly(ctl, method, request, reply_type, ctl->timeout_ms, ret, &failure, &err) ==
        0)
        return 0;
    CLEANUP(buf_done) struct buf text = { 0 };
    ctl_write_failure(ctl, &failure, &text);
    write_advice(failure.reason, rule, &text);
    (void)fputs(buf_cstr(&text), stderr);
    client_failure_done(&failure);
    return CTL_EXIT_FAILED;
}

int kafka_rules(struct ctl *ctl, const char *rule, bool omit_partitions,
                Saga__V1__ListRulesResponse **ret, struct where_view *ret_view)
{
    Saga__V1__ListRulesRequest request = SAGA__V1__LIST_RULES_REQUEST__INIT;
    request.rule = (char *)rule;
    request.omit_partitions = omit_partitions;
    int rc = kafka_call(ctl, KAFKA_SERVICE "ListRules", &request.base,
                        &saga__v1__list_rules_response__descriptor, rule, ret);
    if (rc != 0)
        return rc;
    *ret_view = ctl_where_view(ctl);
    if ((*ret)->now)
        ret_view->now_ms = screen_time_ms((*ret)->now);
    return 0;
}

bool kafka_words(const struct ctl_arguments *arguments, char **ret_reason,
                 char actor[CTL_ACTOR_SIZE])
{
    ctl_actor(actor);
    if (ctl_take_text(arguments, "reason", ret_reason))
        return true;
    (void)fprintf(stderr, "sagactl: %s needs --reason: it is kept with the decision\n",
                  arguments->verb->name);
    return false;
}

/* --- requests ------------------------------------------------------------------------------------
 */

struct waiting {
    struct ctl *ctl;
    Saga__V1__KafkaRequest *request; /* owned */
    int64_t since, until;            /* monotonic */
    bool told;                       /* that nobody has taken it */
};

static bool is_done(const Saga__V1__KafkaRequest *request)
{
    return request->state == SAGA__V1__KAFKA_REQUEST__STATE__STATE_DONE ||
           request->state == SAGA__V1__KAFKA_REQUEST__STATE__STATE_FAILED;
}

static void tell_progress(struct waiting *waiting)
{
    const Saga__V1__KafkaRequest *request = waiting->request;
    bool is_open = request->state == SAGA__V1__KAFKA_REQUEST__STATE__STATE_OPEN;
    if (is_open && !waiting->told && clock_mono_ms(&clock_system) - waiting->since > UNTAKEN_MS) {
        waiting->told = true;
        (void)fprintf(stderr,
                      "sagactl: no node has taken request %s yet: does a sagad with rule %s run?\n",
                      request->request_id, request->rule);
    }
    if (!is_open && isatty(STDERR_FILENO))
        (void)fprintf(stderr, "\r%" PRId64 " of %" PRId64 "%s", request->progress, request->total,
                      is_done(request) ? "\n" : "");
}

static int tell_goes_on(const Saga__V1__KafkaRequest *request)
{
    (void)fprintf(stderr,
                  "sagactl: request %s is not done yet and goes on: sagactl kafka requests\n",
                  request->request_id);
    return CTL_EXIT_FAILED;
}

static int ask_again(struct waiting *waiting)
{
    Saga__V1__KafkaRequest *answer = NULL;
    Saga__V1__GetKafkaRequestRequest request = SAGA__V1__GET_KAFKA_REQUEST_REQUEST__INIT;
    request.request_id = waiting->request->request_id;
    int rc = kafka_call(waiting->ctl, KAFKA_SERVICE "GetKafkaRequest", &request.base,
                        &saga__v1__kafka_request__descriptor, waiting->request->rule, &answer);
    if (rc != 0) {
        (void)tell_goes_on(waiting->request);
        return rc;
    }
    ctl_message_free_p(&waiting->request);
    waiting->request = answer;
    return 0;
}

static int tell_failure(const Saga__V1__KafkaRequest *request)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    char reason[64]; /* an error begins with it */
    (void)snprintf(reason, sizeof reason, "%.*s", (int)strcspn(request->error, ":"),
                   request->error);
    buf_text(&text, "sagactl: ");
    screen_text(&text, request->error);
    buf_text(&text, "\n");
    write_advice(reason, request->rule, &text);
    (void)fputs(buf_cstr(&text), stderr);
    return CTL_EXIT_FAILED;
}

int kafka_request_run(struct ctl *ctl, const char *method, const ProtobufCMessage *message,
                      const char *rule, Saga__V1__KafkaRequest **ret)
{
    int64_t now = clock_mono_ms(&clock_system);
    struct waiting waiting = { .ctl = ctl,
                               .since = now,
                               .until = ctl->timeout_given ? now + ctl->timeout_ms : INT64_MAX };
    if (ctl->timeout_ms < CALL_MS)
        ctl->timeout_ms = CALL_MS; /* it bounds the wait; a call has its own bound */
    int rc = kafka_call(ctl, method, message, &saga__v1__kafka_request__descriptor, rule,
                        &waiting.request);
    while (rc == 0 && !is_done(waiting.request)) {
        tell_progress(&waiting);
        if (clock_mono_ms(&clock_system) >= waiting.until) {
            rc = tell_goes_on(waiting.request);
            break;
        }
        (void)usleep(POLL_MS * 1000);
        rc = ask_again(&waiting);
    }
    if (rc == 0)
        tell_progress(&waiting);
    if (rc == 0 && waiting.request->state == SAGA__V1__KAFKA_REQUEST__STATE__STATE_FAILED)
        rc = tell_failure(waiting.request);
    *ret = waiting.request;
    return rc;
}
