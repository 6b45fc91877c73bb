/* sagactl retention: what is purged, and whether everything is remembered for long enough. */
#include "ctl/ctl.h"
#include "ctl/definition_graph.h"
#include "ctl/screen.h"
#include "ctl/verbs.h"
#include "wire/json_scalars.h"

#include <inttypes.h>
#include <saga/v1/operator.pb-c.h>

static const struct ctl_option options[] = {
    { "guard-floor", "TIME", false,
      "the floor that is in force at the participants' guards, to be looked at, too" },
    { NULL, NULL, false, NULL },
};

typedef Saga__V1__GetRetentionResponse__Link retention_link;
#define KIND(name) SAGA__V1__GET_RETENTION_RESPONSE__LINK__KIND__KIND_##name

static void write_span(const Google__Protobuf__Duration *span, const char *absent, struct buf *out)
{
    if (span)
        graph_write_span(span, out);
    else
        buf_text(out, absent);
}

/* --- nodes -------------------------------------------------------------------------------------
 */

static void write_round(const Saga__V1__GetRetentionResponse__Node *node, int64_t now_ms,
                        struct buf *out)
{
    if (!node->round_begin_time)
        return;
    int64_t began_ms = screen_time_ms(node->round_begin_time);
    bool runs = !node->round_end_time;
    int64_t took_ms = (runs ? now_ms : screen_time_ms(node->round_end_time)) - began_ms;
    buf_printf(out, "         %s: %" PRId64 " sagas in ",
               runs ? "the round that runs" : "the last round", node->round_purged);
    screen_span(out, took_ms);
    if (node->round_purged && took_ms > 0)
        buf_printf(out, ", %" PRId64 "/s", node->round_purged * 1000 / took_ms);
    if (!runs) {
        buf_text(out, ", over ");
        screen_time(out, node->round_end_time, now_ms);
    }
    buf_printf(out, "\n         since it started: %" PRId64 " sagas, %" PRId64 " keys forgotten\n",
               node->purged, node->forgotten);
}

static void write_node(const Saga__V1__GetRetentionResponse__Node *node,
                       const struct where_view *view, struct buf *out)
{
    buf_text(out, "node     ");
    screen_styled(out, node->node, STYLE_BOLD, view->color);
    if (node->retention) {
        buf_text(out, " purges what ended ");
        write_span(node->retention, "", out);
        buf_text(out, " ago, remembers its key ");
        write_span(node->key_memory, "for ever", out);
        buf_text(out, *node->archive ? ", archive " : ", no archive");
        screen_text(out, node->archive);
    } else {
        buf_text(out, " purges nothing");
    }
    if (!node->alive) {
        buf_text(out, "; not seen since ");
        screen_time(out, node->seen_time, view->now_ms);
    }
    buf_text(out, "\n");
    write_round(node, view->now_ms, out);
}

static void write_count(int64_t count, int64_t most, struct buf *out)
{
    buf_printf(out, "%" PRId64 "%s", count, count >= most ? " or more" : "");
}

static void write_counts(const Saga__V1__GetRetentionResponse *reply, struct buf *out)
{
    buf_text(out, "sagas    ");
    write_count(reply->finished, reply->counted_up_to, out);
    buf_text(out, " have ended; ");
    write_count(reply->purgeable, reply->counted_up_to, out);
    buf_text(out, " of them are old and will be purged\n");
    if (reply->kept_in_doubt) {
        buf_text(out, "         ");
        write_count(reply->kept_in_doubt, reply->counted_up_to, out);
        buf_text(out, " are old and kept, for a person to look at: sagactl list --doubt\n");
    }
    if (reply->kept_parked) {
        buf_text(out, "         ");
        write_count(reply->kept_parked, reply->counted_up_to, out);
        buf_text(out, " have been parked for as long: sagactl parked\n");
    }
    if (!reply->guard_floor)
        return;
    buf_text(out, "guards   no floor is safe above ");
    screen_time(out, reply->guard_floor, ctl_now_ms());
    if (reply->oldest) {
        buf_text(out, ", when ");
        screen_text(out, reply->oldest->definition);
        buf_text(out, " ");
        screen_text(out, reply->oldest->saga_id);
        buf_text(out, " started, which is open");
    }
    buf_text(out, "\n");
}

/* --- links -------------------------------------------------------------------------------------
 */

static void write_figures(const retention_link *link, struct buf *out)
{
    switch (link->kind) {
    case KIND(KEY_MEMORY):
        buf_text(out, " keeps records ");
        write_span(link->need, "for ever", out);
        buf_text(out, ", keys are remembered ");
        write_span(link->have, "for ever", out);
        break;
    case KIND(IDEMPOTENCY_WINDOW):
        buf_text(out, " is retried for ");
        write_span(link->need, "?", out);
        buf_text(out, ", the other side knows the key for ");
        write_span(link->have, "?", out);
        break;
    case KIND(GUARD_FLOOR):
        buf_text(out, link->ok ? " is above the floor" : " started below the floor and is open");
        break;
    case KIND(PURGE):
        buf_text(out, link->ok ? " purges" : " should purge and does not");
        break;
    default:
        break;
    }
}

/* Returns whether all are as they should be. */
static bool write_links(const Saga__V1__GetRetentionResponse *reply, bool color, struct buf *out)
{
    bool all = true;
    for (size_t i = 0; i < reply->n_links; i++) {
        const retention_link *link = reply->links[i];
        screen_styled(out, link->ok ? "ok" : "NOT OK", link->ok ? STYLE_GOOD : STYLE_BAD, color);
        buf_text(out, link->ok ? "       " : "   ");
        screen_text(out, link->subject);
        write_figures(link, out);
        buf_text(out, "\n");
        if (!link->ok) {
            buf_text(out, "         ");
            screen_text(out, link->remedy);
            buf_text(out, "\n");
        }
        all = all && link->ok;
    }
    if (reply->more_links)
        buf_text(out, "         and more\n");
    return all;
}

/* --- the verb ----------------------------------------------------------------------------------
 */

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__GetRetentionRequest request = SAGA__V1__GET_RETENTION_REQUEST__INIT;
    Google__Protobuf__Timestamp floor = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__GetRetentionResponse *reply = NULL;
    const char *text = ctl_option(arguments, "guard-floor");
    if (text) {
        struct err err;
        if (!json_timestamp_read(text, &floor.seconds, &floor.nanos)) {
            (void)err_set(&err, ERR_INVALID,
                          "--guard-floor must be a time such as 2026-03-02T14:05:00Z, not \"%s\"",
                          text);
            return ctl_print_error(&err);
        }
        request.guard_floor = &floor;
    }
    int rc = ctl_call(ctl, "/saga.v1.OperatorService/GetRetention", &request.base,
                      &saga__v1__get_retention_response__descriptor, &reply);
    if (rc != 0)
        return rc;
    const struct where_view view = ctl_where_view(ctl);
    CLEANUP(buf_done) struct buf out = { 0 };
    for (size_t i = 0; i < reply->n_nodes; i++)
        write_node(reply->nodes[i], &view, &out);
    write_counts(reply, &out);
    if (reply->n_links)
        buf_text(&out, "\n");
    bool ok = write_links(reply, ctl->color, &out);
    rc = ctl->json ? ctl_print_message(&reply->base) : ctl_print_text(&out);
    return rc != 0 || ok ? rc : CTL_EXIT_FAILED;
}

const struct ctl_verb verb_retention = {
    "retention",
    "",
    0,
    0,
    options,
    "what is purged, and whether everything is remembered for long enough\n"
    "\n"
    "Each link of the chain with both figures: topics keep records no longer than keys are\n"
    "remembered; the guards' floor is below every open saga; the other side knows an idempotency\n"
    "key for as long as the operation is retried, or a probe finds out; what should purge does.\n"
    "Exit code 1 where one does not hold.",
    run,
};
