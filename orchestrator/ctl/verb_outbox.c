/* sagactl outbox publish, discard: what becomes of an event that the topic refuses. */
#include "ctl/kafka_server.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = {
    KAFKA_REASON_OPTION,
    { NULL, NULL, false, NULL },
};

static int tell(struct ctl *ctl, const ProtobufCMessage *reply, const char *event, const char *what)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (ctl->json)
        return ctl_print_message(reply);
    screen_text(&text, event);
    buf_printf(&text, ": %s\n", what);
    return ctl_print_text(&text);
}

static int run_publish(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(ctl_message_free_p) ProtobufCMessage *reply = NULL;
    Saga__V1__PublishOutboxEventRequest request = SAGA__V1__PUBLISH_OUTBOX_EVENT_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    if (!kafka_words(arguments, &request.reason, actor))
        return CTL_EXIT_USAGE;
    request.event_id = (char *)arguments->positional[0];
    request.actor = actor;
    int rc = kafka_call(ctl, KAFKA_SERVICE "PublishOutboxEvent", &request.base,
                        &saga__v1__publish_outbox_event_response__descriptor, "", &reply);
    return rc ? rc
              : tell(ctl, reply, request.event_id,
                     "is sent again; sagactl kafka status tells if it is refused again");
}

static int run_discard(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(ctl_message_free_p) ProtobufCMessage *reply = NULL;
    Saga__V1__DiscardOutboxEventRequest request = SAGA__V1__DISCARD_OUTBOX_EVENT_REQUEST__INIT;
    char actor[CTL_ACTOR_SIZE];
    if (!kafka_words(arguments, &request.reason, actor))
        return CTL_EXIT_USAGE;
    request.event_id = (char *)arguments->positional[0];
    request.actor = actor;
    int rc = kafka_call(ctl, KAFKA_SERVICE "DiscardOutboxEvent", &request.base,
                        &saga__v1__discard_outbox_event_response__descriptor, "", &reply);
    return rc ? rc
              : tell(ctl, reply, request.event_id,
                     "discarded; the later events of its saga follow");
}

const struct ctl_verb verb_outbox_publish = {
    "outbox publish",
    "EVENT",
    1,
    1,
    options,
    "a refused event is sent again at once, because what was in its way is not any more\n"
    "\n"
    "EVENT as sagactl kafka status has it. By itself it is tried again at most every 5 min.",
    run_publish,
};

const struct ctl_verb verb_outbox_discard = {
    "outbox discard",
    "EVENT",
    1,
    1,
    options,
    "nobody will ever read a refused event; the later ones of its saga follow\n"
    "\n"
    "EVENT as sagactl kafka status has it. Who decided it, why, and why it was refused is kept:\n"
    "sagactl kafka requests.",
    run_discard,
};
