#include "support/hostile.h"

#include "base/clock.h"
#include "support/wait.h"

#include <stdio.h>

enum { AT_ONCE_MS = 5000, LOOK_MS = 10 };

void hostile_environment(void)
{
    char options[512];
    const char *given = getenv("ASAN_OPTIONS");
    (void)snprintf(options, sizeof options, "%s%squarantine_size_mb=4", given ? given : "",
                   given ? ":" : "");
    (void)setenv("ASAN_OPTIONS", options, 1); /* fails only when memory is out */
}

int hostile_begin(struct hostile *hostile, struct rig *rig)
{
    *hostile = (struct hostile){ .rig = rig, .pid = test_process_pid(rig->sagad) };
    rig_define(rig, "ordinary", NULL, "a: IDEMPOTENT handler=ordinary | none");
    return rig_worker(rig, "ordinary", "ordinary:4") ? 0 : -1;
}

/* 0, or -1 with a message. */
static int ordinary_saga(struct hostile *hostile)
{
    char id[32], state[64] = "";
    int64_t until = clock_mono_ms(&clock_system) + AT_ONCE_MS;
    (void)snprintf(id, sizeof id, "ordinary-%d", ++hostile->sagas);
    rig_start(hostile->rig, "ordinary", id, "");
    for (;;) {
        rig_text(hostile->rig, RIG_STORE, state, sizeof state,
                 "SELECT state FROM saga WHERE definition = 'ordinary' AND saga_id = '%s'", id);
        bool is_over = clock_mono_ms(&clock_system) > until;
        if (!is_over && strcmp(state, "SUCCEEDED") == 0)
            return 0;
        if (is_over) {
            print_error("after %d ms an ordinary saga is \"%s\"\n", AT_ONCE_MS, state);
            return -1;
        }
        wait_ms(LOOK_MS);
    }
}

void hostile_ordinary_saga(struct hostile *hostile)
{
    assert_int_equal(ordinary_saga(hostile), 0);
}

int hostile_check(struct hostile *hostile)
{
    struct rig *rig = hostile->rig;
    if (!test_process_running(rig->sagad) || test_process_pid(rig->sagad) != hostile->pid) {
        print_error("sagad has ended\n");
        return -1;
    }
    if (rig_health(rig->address, AT_ONCE_MS) != 1) {
        print_error("sagad does not answer\n");
        return -1;
    }
    return ordinary_saga(hostile) != 0 ? -1 : rig_check(rig);
}

int64_t hostile_rss_kb(const struct hostile *hostile)
{
    char path[64], line[256];
    int64_t kb = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)hostile->pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = strtoll(line + 6, NULL, 10);
    (void)fclose(file); /* was only read */
    return kb;
}

Saga__V1__Saga *hostile_get(struct hostile *hostile, const char *definition, const char *saga_id,
                            struct client_failure *ret_failure)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    ref.definition = rig_borrow(definition);
    ref.saga_id = rig_borrow(saga_id);
    request.saga = &ref;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    return (Saga__V1__Saga *)rig_call(hostile->rig, "SagaService/GetSaga", &request.base,
                                      &saga__v1__saga__descriptor, ret_failure);
}
