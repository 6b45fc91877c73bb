#include "worker.h"

#include "base/buf.h"
#include "wire/json_scalars.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *bytes_json(const void *data, size_t size)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    json_base64_write(&text, data, size);
    return json_stringn(buf_cstr(&text), text.size);
}

static json_t *time_json(int64_t us)
{
    char text[JSON_TIME_SIZE];
    if (us == 0 || !json_timestamp_write(us / 1000000, (int32_t)(us % 1000000 * 1000), text))
        return json_null();
    return json_string(text);
}

static json_t *number_json(int64_t number)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, number);
    return json_string(text);
}

static const char *const operations[] = { "", "ACTION", "COMPENSATION", "PROBE" };

static json_t *outputs_json(const struct saga_task *task, const json_t *script)
{
    json_t *all = json_object(), *name;
    size_t index;
    json_array_foreach(json_object_get(script, "steps"), index, name)
    {
        struct saga_bytes output;
        const char *step = json_string_value(name);
        bool found = saga_task_output_of(task, step, &output);
        (void)json_object_set_new(all, step,
                                  found ? bytes_json(output.data, output.size) : json_null());
    }
    return all;
}

static json_t *labels_json(const struct saga_task *task, const json_t *script)
{
    json_t *all = json_object(), *name;
    size_t index;
    json_array_foreach(json_object_get(script, "labels"), index, name)
    {
        const char *key = json_string_value(name), *value = saga_task_label(task, key);
        (void)json_object_set_new(all, key, value ? json_string(value) : json_null());
    }
    return all;
}

static json_t *probed_json(const struct saga_task *task)
{
    struct saga_probed probed;
    if (!saga_task_probed(task, &probed))
        return json_null();
    return json_pack("{s:s,s:i,s:o,s:o,s:o}", "operation", operations[probed.operation], "try",
                     (int)probed.try_, "fence", number_json(probed.fence), "lease_time",
                     time_json(probed.leased_at_us), "end_time", time_json(probed.ended_at_us));
}

static json_t *identity_json(const struct saga_task *task)
{
    return json_pack("{s:s,s:s,s:s,s:i,s:o,s:i,s:o,s:s,s:s,s:s,s:i,s:o,s:s}", "namespace",
                     saga_task_namespace(task), "definition", saga_task_definition(task), "saga_id",
                     saga_task_saga_id(task), "run", (int)saga_task_run(task), "saga_uid",
                     bytes_json(saga_task_uid(task), 16), "revision", (int)saga_task_revision(task),
                     "saga_start_time", time_json(saga_task_started_at_us(task)), "step",
                     saga_task_step(task), "operation", operations[saga_task_operation(task)],
                     "handler", saga_task_handler(task), "try", (int)saga_task_try(task), "fence",
                     number_json(saga_task_fence(task)), "idempotency_key",
                     saga_task_idempotency_key(task));
}

static json_t *payload_json(const struct saga_task *task, const json_t *script)
{
    static const char *const actions[] = { "NONE", "DONE", "MAYBE" };
    struct saga_bytes input = saga_task_input(task), request = saga_task_request(task),
                      action = saga_task_action_output(task);
    return json_pack(
        "{s:o,s:o,s:s,s:s,s:o,s:s,s:o,s:o,s:o}", "input", bytes_json(input.data, input.size),
        "request", bytes_json(request.data, request.size), "request_type",
        saga_task_request_type(task), "output_type", saga_task_output_type(task), "outputs",
        outputs_json(task, script), "action", actions[saga_task_action_outcome(task)],
        "action_output", bytes_json(action.data, action.size), "probed", probed_json(task),
        "labels", labels_json(task, script));
}

int describe(struct saga_task *task, const json_t *script)
{
    json_t *all = identity_json(task), *payload = payload_json(task, script);
    json_t *rest = json_pack("{s:s,s:b,s:o,s:I,s:I}", "traceparent", saga_task_traceparent(task),
                             "guarded", (int)saga_task_guarded(task), "send_before",
                             time_json(saga_task_send_before_us(task)), "time_left_ms",
                             (json_int_t)saga_task_time_left_ms(task), "lease_left_ms",
                             (json_int_t)saga_task_lease_left_ms(task));
    if (json_object_update(all, payload) != 0 || json_object_update(all, rest) != 0)
        abort();
    char *text = json_dumps(all, JSON_COMPACT);
    int rc = text ? saga_task_done(task, text, strlen(text)) : -1;
    free(text);
    json_decref(all);
    json_decref(payload);
    json_decref(rest);
    return rc;
}
