/* The engine's side of the unary calls of workers, as fake_server.c plays the rest of it: events
 * come back only after the handler has returned, as they do from another thread. */
#include "base/utf8.h"
#include "fake_checks.h"
#include "fake_server.h"
#include "fuzz.h"

#include <string.h>

enum { INSTANCE_BYTES_MIN = 8, TASKS_MAX = 1000, EVENTS_MAX = 64 };

static struct engine_worker_event *posted[EVENTS_MAX];
static size_t count;

void check_reports(const struct engine_worker_event *event)
{
    for (size_t i = 0; i < event->report_count; i++) {
        const struct report *report = &event->reports[i].report;
        FUZZ_CHECK(report->output.size <= LIMIT_PAYLOAD_BYTES);
        FUZZ_CHECK(!report->error_code || strlen(report->error_code) <= LIMIT_ERROR_CODE_BYTES);
        FUZZ_CHECK(!report->error_message ||
                   strlen(report->error_message) <= LIMIT_ERROR_MESSAGE_BYTES);
        FUZZ_CHECK(report->retry_after_ms >= 0);
    }
}

static void check_identity(const struct engine_worker_event *event)
{
    check_name(event->worker_id, 1, LIMIT_WORKER_BYTES);
    check_name(event->instance, INSTANCE_BYTES_MIN, LIMIT_INSTANCE_BYTES);
}

/* What the engine would say to it, and then that it is done. */
static void take_credit(struct engine_worker_event *event)
{
    const struct uuid uid = { .bytes = { 1 } };
    struct err err;
    for (size_t i = 0; i < event->credit_count; i++)
        check_name(event->credits[i].handler, 1, LIMIT_HANDLER_BYTES);
    if (fake_reader_refuses() && refuse(&err))
        event->link->ops->close(event->link, &err);
    else if (event->credit_count % 2)
        event->link->ops->cancel_hint(event->link, &uid, 7); /* which ends the wait */
    (void)event->link->ops->has_room(event->link);
}

static void take_reports(struct engine_worker_event *event)
{
    static char problem[] = "it is none";
    check_identity(event);
    check_reports(event);
    FUZZ_CHECK(event->report_count >= 1 && event->report_count <= LIMIT_REPORTS);
    for (size_t i = 0; i < event->report_count; i++) {
        struct engine_lease_ack ack = { event->reports[i].uid, event->reports[i].report.fence,
                                        (enum engine_ack)(i % 3), i % 2 ? problem : NULL };
        event->link->ops->acks(event->link, &ack, 1);
    }
}

static void take_extensions(struct engine_worker_event *event)
{
    check_identity(event);
    for (size_t i = 0; i < event->lease_count; i++) {
        struct engine_lease_extended lease = { event->leases[i].uid, event->leases[i].fence,
                                               (int64_t)i };
        event->link->ops->extended(event->link, &lease, 1);
    }
}

static void take(struct engine_worker_event *event)
{
    switch (event->kind) {
    case WORKER_HELLO:
        check_identity(event);
        FUZZ_CHECK(event->tasks_max >= 1 && event->tasks_max <= TASKS_MAX);
        event->link->ops->welcome(event->link, 1);
        break;
    case WORKER_CREDIT:
        take_credit(event);
        break;
    case WORKER_REPORT:
        take_reports(event);
        break;
    case WORKER_EXTEND:
        take_extensions(event);
        break;
    default:
        break;
    }
}

void fake_worker_post(struct engine_worker_event *event)
{
    FUZZ_CHECK(count < EVENTS_MAX);
    posted[count++] = event;
}

void fake_workers_run(void)
{
    for (size_t i = 0; i < count; i++) { /* it grows meanwhile */
        take(posted[i]);
        posted[i]->event.done(&posted[i]->event);
    }
    count = 0;
}
