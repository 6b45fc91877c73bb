#include "support/nodes.h"

static const char *const names[NODES_MAX] = { "one", "two", "three" };
static const char *const times[] = { "--heartbeat",    "0.2s", "--node-dead",   "2s",
                                     "--resend-grace", "1s",   "--stream-lost", "1s" };

int nodes_up(struct nodes *nodes, size_t count, const char *const *args)
{
    assert_true(count <= NODES_MAX);
    for (size_t i = 0; i < count; i++) {
        struct rig *rig = &nodes->at[i];
        size_t n = 0;
        for (; n < ARRAY_LEN(times); n++)
            rig->server_args[n] = times[n];
        for (const char *const *arg = args; arg && *arg; arg++) {
            assert_true(n < RIG_SERVER_ARGS_MAX);
            rig->server_args[n++] = *arg;
        }
        rig->node = names[i];
        if ((i == 0 ? rig_up(rig) : rig_node_up(rig, &nodes->at[0])) != 0)
            return -1;
        nodes->count = i + 1;
    }
    return 0;
}

int nodes_down(struct nodes *nodes)
{
    for (size_t i = nodes->count; i-- > 1;)
        (void)rig_node_down(&nodes->at[i]); /* always 0 */
    return rig_down(&nodes->at[0]);
}

int nodes_check(struct nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++) {
        rig_workers_kill(&nodes->at[i]);
        nodes->at[i].worker_addresses[0] = NULL;
    }
    for (size_t i = 0; i < nodes->count; i++)
        if (!nodes->at[i].sagad)
            rig_server_start(&nodes->at[i]);
    return rig_check(&nodes->at[0]);
}

struct test_process *nodes_worker(struct nodes *nodes, size_t first, size_t second, const char *id,
                                  const char *handlers)
{
    struct rig *rig = &nodes->at[first];
    rig->worker_addresses[0] = rig->address;
    rig->worker_addresses[1] = nodes->at[second].address;
    struct test_process *worker = rig_worker(rig, id, handlers);
    rig->worker_addresses[0] = NULL;
    return worker;
}
