/* sagactl workers: who is connected to the server and serves what; what nobody serves. */
#include "ctl/ctl.h"
#include "ctl/people_text.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <saga/v1/operator.pb-c.h>
#include <stdio.h>

static const struct ctl_option options[] = {
    { "handler", "NAME", false, "only who serves this handler" },
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__ListWorkersRequest request = SAGA__V1__LIST_WORKERS_REQUEST__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__ListWorkersResponse *workers = NULL;
    (void)ctl_take_text(arguments, "handler", &request.handler); /* or every one */
    int rc = ctl_call(ctl, "/saga.v1.OperatorService/ListWorkers", &request.base,
                      &saga__v1__list_workers_response__descriptor, &workers);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&workers->base);
    const struct where_view view = ctl_where_view(ctl);
    CLEANUP(buf_done) struct buf text = { 0 };
    workers_write(workers, &view, &text);
    if (!workers->n_workers)
        (void)fprintf(stderr, "sagactl: no worker is connected to this server%s\n",
                      *request.handler ? " that serves this handler" : "");
    rc = ctl_print_text(&text);
    for (size_t i = 0; rc == 0 && i < workers->n_other_nodes; i++)
        (void)fprintf(stderr, "%s %s%s",
                      i ? "," : "sagactl: other servers have workers of their own:",
                      workers->other_nodes[i], i + 1 == workers->n_other_nodes ? "\n" : "");
    return rc;
}

const struct ctl_verb verb_workers = {
    "workers",
    "",
    0,
    0,
    options,
    "who is connected to the server and serves which handler; what nobody serves\n"
    "\n"
    "A server knows its own workers alone; it names the others, which are asked with --address. "
    "Sagas\n"
    "that wait for a handler which a server does not serve are let go, and taken by one that "
    "serves it.",
    run,
};
