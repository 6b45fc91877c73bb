#include "rpc/worker_decode.h"

#include "base/utf8.h"
#include "core/limits.h"
#include "wire/saga_codec.h"
#include "wire/times.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    HANDLERS_MAX = 256,
    LEASES_MAX = 10000,
    IN_FLIGHT_MAX = 10000,
    INSTANCE_BYTES_MIN = 8,
    RETRY_AFTER_MS_MAX = 24 * 3600 * 1000,
    WAIT_MS_MAX = 60 * 1000,
    WAIT_MS_DEFAULT = 20 * 1000,
    LEASE_TASKS_MAX = 1000,
};

static const struct err no_memory = {
    .code = ERR_NOMEM,
    .msg = "the message needs more memory than one may have",
};

static int out_of_memory(struct err *err)
{
    *err = no_memory;
    return (int)err->code;
}

static int check_size(const char *field, size_t size, size_t least, size_t most, struct err *err)
{
    if (size >= least && size <= most)
        return 0;
    return err_field(err, field, "%s: has %zu, must be %zu to %zu", field, size, least, most);
}

/* A limit that is broken, by its name. */
static int over(const char *field, size_t size, size_t limit, struct err *err)
{
    int rc = err_set(err, ERR_LIMIT, "%s: has %zu bytes, the limit is %zu", field, size, limit);
    (void)snprintf(err->field, sizeof err->field, "%s", field);
    return rc;
}

static int check_handler(const char *field, const char *handler, struct err *err)
{
    int rc = check_size(field, strlen(handler), 1, LIMIT_HANDLER_BYTES, err);
    for (const char *c = handler; !rc && *c; c++) {
        bool is_plain =
            (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (!is_plain && !strchr("._/-", *c))
            rc = err_field(err, field, "%s: only [A-Za-z0-9._/-] are allowed", field);
    }
    return rc;
}

static int read_uid(const char *field, const ProtobufCBinaryData *bytes, struct uuid *ret,
                    struct err *err)
{
    if (bytes->len != sizeof ret->bytes)
        return err_field(err, field, "%s: has %zu bytes, must be 16", field, bytes->len);
    memcpy(ret->bytes, bytes->data, sizeof ret->bytes);
    return 0;
}

static int read_leases(const char *field, Saga__V1__HeldLease *const *leases, size_t count,
                       size_t least, struct arena *arena, struct engine_worker_event *ret,
                       struct err *err)
{
    int rc = check_size(field, count, least, LEASES_MAX, err);
    if (rc)
        return rc;
    ret->leases = arena_array(arena, count, sizeof *ret->leases);
    if (!ret->leases)
        return out_of_memory(err);
    ret->lease_count = count;
    for (size_t i = 0; i < count; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%s[%zu].saga_uid", field, i);
        rc = read_uid(path, &leases[i]->saga_uid, &ret->leases[i].uid, err);
        if (rc)
            return rc;
        ret->leases[i].fence = leases[i]->fence;
    }
    return 0;
}

static int check_instance(const char *field, const char *instance, struct err *err)
{
    int rc = check_size(field, strlen(instance), INSTANCE_BYTES_MIN, LIMIT_INSTANCE_BYTES, err);
    for (const char *c = instance; !rc && *c; c++) {
        bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                        (*c >= '0' && *c <= '9') || *c == '-';
        if (!is_plain)
            rc = err_field(err, field, "%s: only [A-Za-z0-9-] are allowed", field);
    }
    return rc;
}

static int check_worker(const char *field, const char *worker_id, struct err *err)
{
    int rc = check_size(field, strlen(worker_id), 1, LIMIT_WORKER_BYTES, err);
    if (!rc && !utf8_is_text(worker_id, strlen(worker_id)))
        rc = err_field(err, field, "%s: control characters are not allowed", field);
    return rc;
}

static int read_subscriptions(const Saga__V1__Hello *hello, struct arena *arena,
                              struct engine_worker_event *ret, struct err *err)
{
    size_t count = hello->n_handlers;
    int rc = check_size("hello.handlers", count, 1, HANDLERS_MAX, err);
    if (rc)
        return rc;
    struct worker_credit *credits = arena_array(arena, count, sizeof *credits);
    if (!credits)
        return out_of_memory(err);
    for (size_t i = 0; i < count; i++) {
        const Saga__V1__Subscription *from = hello->handlers[i];
        char path[64];
        (void)snprintf(path, sizeof path, "hello.handlers[%zu].handler", i);
        rc = check_handler(path, from->handler, err);
        for (size_t j = 0; !rc && j < i; j++) {
            if (strcmp(credits[j].handler, from->handler) == 0)
                rc = err_field(err, path, "%s: is there already", path);
        }
        (void)snprintf(path, sizeof path, "hello.handlers[%zu].max_in_flight", i);
        if (!rc)
            rc = check_size(path, from->max_in_flight, 1, IN_FLIGHT_MAX, err);
        if (rc)
            return rc;
        credits[i] = (struct worker_credit){ from->handler, from->max_in_flight };
    }
    ret->credits = credits;
    ret->credit_count = count;
    return 0;
}

static int read_hello(const Saga__V1__Hello *hello, struct arena *arena,
                      struct engine_worker_event *ret, struct err *err)
{
    int rc = check_worker("hello.worker_id", hello->worker_id, err);
    if (!rc)
        rc = check_instance("hello.instance", hello->instance, err);
    if (!rc)
        rc = check_size("hello.sdk", strlen(hello->sdk), 0, LIMIT_WORKER_BYTES, err);
    if (!rc)
        rc = read_subscriptions(hello, arena, ret, err);
    if (!rc)
        rc = read_leases("hello.held", hello->held, hello->n_held, 0, arena, ret, err);
    ret->kind = WORKER_HELLO;
    ret->worker_id = hello->worker_id;
    ret->instance = hello->instance;
    ret->sdk = hello->sdk;
    ret->only_stream = hello->only_stream;
    return rc;
}

static int read_credit(const Saga__V1__Credit *credit, struct arena *arena,
                       struct engine_worker_event *ret, struct err *err)
{
    size_t count = credit->n_handlers;
    int rc = check_size("credit.handlers", count, 0, HANDLERS_MAX, err);
    if (rc)
        return rc;
    struct worker_credit *credits = arena_array(arena, count, sizeof *credits);
    if (!credits)
        return out_of_memory(err);
    for (size_t i = 0; i < count; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "credit.handlers[%zu].handler", i);
        rc = check_handler(path, credit->handlers[i]->handler, err);
        if (rc)
            return rc;
        credits[i] =
            (struct worker_credit){ credit->handlers[i]->handler, credit->handlers[i]->total };
    }
    ret->kind = WORKER_CREDIT;
    ret->credits = credits;
    ret->credit_count = count;
    return 0;
}

static int check_report_sizes(const char *path, const Saga__V1__TaskReport *from,
                              size_t payload_bytes_max, struct err *err)
{
    char field[80];
    size_t code = strlen(from->error_code);
    if (from->output.len > payload_bytes_max) {
        (void)snprintf(field, sizeof field, "%s.output", path);
        return over(field, from->output.len, payload_bytes_max, err);
    }
    if (code > LIMIT_ERROR_CODE_BYTES) {
        (void)snprintf(field, sizeof field, "%s.error_code", path);
        return over(field, code, LIMIT_ERROR_CODE_BYTES, err);
    }
    return 0;
}

static int read_report(const char *path, const Saga__V1__TaskReport *from, size_t payload_bytes_max,
                       struct worker_report *ret, struct err *err)
{
    char field[80];
    (void)snprintf(field, sizeof field, "%s.saga_uid", path);
    int rc = read_uid(field, &from->saga_uid, &ret->uid, err);
    if (!rc)
        rc = check_report_sizes(path, from, payload_bytes_max, err);
    if (rc)
        return rc;
    struct report *report = &ret->report;
    report->fence = from->fence;
    if (!reported_outcome_from_message(from->outcome, &report->outcome)) {
        (void)snprintf(field, sizeof field, "%s.outcome", path);
        return err_field(err, field, "%s: %d is not a worker's to report", field,
                         (int)from->outcome);
    }
    report->output = (struct bytes){ from->output.data, from->output.len };
    report->ours = from->ours;
    report->error_code = *from->error_code ? from->error_code : NULL;
    size_t length = strlen(from->error_message);
    if (length > LIMIT_ERROR_MESSAGE_BYTES) /* an absent text is shared, and not ours to write to */
        from->error_message[utf8_cut(from->error_message, length, LIMIT_ERROR_MESSAGE_BYTES)] =
            '\0';
    report->error_message = length ? from->error_message : NULL;
    if (from->retry_after) {
        report->retry_after_ms = duration_to_ms(from->retry_after);
        if (report->retry_after_ms < 0 || report->retry_after_ms > RETRY_AFTER_MS_MAX) {
            (void)snprintf(field, sizeof field, "%s.retry_after", path);
            return err_field(err, field, "%s: must be 0 to %d ms: %" PRId64 " ms", field,
                             RETRY_AFTER_MS_MAX, report->retry_after_ms);
        }
    }
    return 0;
}

static int read_reports(const char *field, Saga__V1__TaskReport *const *reports, size_t count,
                        size_t payload_bytes_max, struct arena *arena,
                        struct engine_worker_event *ret, struct err *err)
{
    int rc = check_size(field, count, 1, LIMIT_REPORTS, err);
    if (rc)
        return rc;
    ret->reports = arena_array(arena, count, sizeof *ret->reports);
    if (!ret->reports)
        return out_of_memory(err);
    ret->kind = WORKER_REPORT;
    ret->report_count = count;
    for (size_t i = 0; i < count; i++) {
        char path[48];
        (void)snprintf(path, sizeof path, "%s[%zu]", field, i);
        rc = read_report(path, reports[i], payload_bytes_max, &ret->reports[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

int worker_event_read(const Saga__V1__WorkerMessage *message, size_t payload_bytes_max,
                      struct arena *arena, struct engine_worker_event *ret, struct err *err)
{
    switch (message->command_case) {
    case SAGA__V1__WORKER_MESSAGE__COMMAND_HELLO:
        return read_hello(message->hello, arena, ret, err);
    case SAGA__V1__WORKER_MESSAGE__COMMAND_CREDIT:
        return read_credit(message->credit, arena, ret, err);
    case SAGA__V1__WORKER_MESSAGE__COMMAND_REPORT:
        return read_reports("report.reports", message->report->reports, message->report->n_reports,
                            payload_bytes_max, arena, ret, err);
    case SAGA__V1__WORKER_MESSAGE__COMMAND_EXTEND:
        ret->kind = WORKER_EXTEND;
        return read_leases("extend.leases", message->extend->leases, message->extend->n_leases, 1,
                           arena, ret, err);
    case SAGA__V1__WORKER_MESSAGE__COMMAND_RELEASE:
        ret->kind = WORKER_RELEASE;
        return read_leases("release.leases", message->release->leases, message->release->n_leases,
                           1, arena, ret, err);
    case SAGA__V1__WORKER_MESSAGE__COMMAND_DRAIN:
        ret->kind = WORKER_DRAIN;
        return 0;
    default:
        return err_field(err, "command", "command: is missing or not known to this server");
    }
}

/* --- calls of their own ----------------------------------------------------------------------- */

static int check_identity(const char *worker_id, const char *instance,
                          struct engine_worker_event *ret, struct err *err)
{
    ret->worker_id = worker_id;
    ret->instance = instance;
    int rc = check_worker("worker_id", worker_id, err);
    return rc ? rc : check_instance("instance", instance, err);
}

int worker_report_read(const Saga__V1__ReportOutcomesRequest *request, size_t payload_bytes_max,
                       struct arena *arena, struct engine_worker_event *ret, struct err *err)
{
    int rc = check_identity(request->worker_id, request->instance, ret, err);
    return rc ? rc
              : read_reports("reports", request->reports, request->n_reports, payload_bytes_max,
                             arena, ret, err);
}

int worker_extend_read(const Saga__V1__ExtendLeasesRequest *request, struct arena *arena,
                       struct engine_worker_event *ret, struct err *err)
{
    int rc = check_identity(request->worker_id, request->instance, ret, err);
    ret->kind = WORKER_EXTEND;
    return rc ? rc : read_leases("leases", request->leases, request->n_leases, 0, arena, ret, err);
}

int worker_release_read(const Saga__V1__ReleaseTasksRequest *request, struct arena *arena,
                        struct engine_worker_event *ret, struct err *err)
{
    int rc = check_identity(request->worker_id, request->instance, ret, err);
    size_t least = request->drain ? 0 : 1;
    ret->kind = WORKER_RELEASE;
    return rc ? rc
              : read_leases("leases", request->leases, request->n_leases, least, arena, ret, err);
}

static int read_wait(const Saga__V1__LeaseTasksRequest *request, int64_t *ret_ms, struct err *err)
{
    int64_t ms = request->wait ? duration_to_ms(request->wait) : 0;
    if (ms < 0 || ms > WAIT_MS_MAX)
        return err_field(err, "wait", "wait: must be 0 to %d ms: %" PRId64 " ms", WAIT_MS_MAX, ms);
    *ret_ms = ms ? ms : WAIT_MS_DEFAULT;
    return 0;
}

/* Without a Credit any handler may have the whole answer. */
static int read_lease_credit(const Saga__V1__LeaseTasksRequest *request, struct arena *arena,
                             struct worker_lease_ask *ret, struct err *err)
{
    if (request->credit)
        return read_credit(request->credit, arena, &ret->credit, err);
    size_t count = ret->hello.credit_count;
    struct worker_credit *credits = arena_array(arena, count, sizeof *credits);
    if (!credits)
        return out_of_memory(err);
    for (size_t i = 0; i < count; i++)
        credits[i] = (struct worker_credit){ ret->hello.credits[i].handler, ret->hello.tasks_max };
    ret->credit.kind = WORKER_CREDIT;
    ret->credit.credits = credits;
    ret->credit.credit_count = count;
    return 0;
}

int worker_lease_read(const Saga__V1__LeaseTasksRequest *request, struct arena *arena,
                      struct worker_lease_ask *ret, struct err *err)
{
    if (!request->hello)
        return err_field(err, "hello", "hello: is missing");
    int rc = read_hello(request->hello, arena, &ret->hello, err);
    if (!rc)
        rc = check_size("max_tasks", request->max_tasks, 0, LEASE_TASKS_MAX, err);
    if (!rc)
        rc = read_wait(request, &ret->wait_ms, err);
    if (rc)
        return rc;
    ret->hello.tasks_max = request->max_tasks ? request->max_tasks : 1;
    return read_lease_credit(request, arena, ret, err);
}
