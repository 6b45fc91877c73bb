/* noop: a worker on the C SDK whose handler does nothing but say DONE. `--concurrency` is its
 * threads; with --async it has the SDK's usual few, which is what a handler that never blocks needs
 * (or one that says saga_task_keep).
 *
 *   noop --target ADDRESS --handler NAME --concurrency N [--async]
 */
#include "sagaworker.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "noop: %s: %s\n", what, why); /* best effort */
    exit(1);
}

static void nothing(struct saga_task *task, void *ctx)
{
    (void)ctx;
    if (saga_task_done(task, NULL, 0) != 0)
        give_up("done", "the outcome is refused");
}

int main(int argc, char **argv)
{
    const char *addresses[] = { NULL, NULL }, *handler = NULL;
    int concurrency = 0;
    bool async = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--async") == 0)
            async = true;
        else if (i + 1 == argc)
            give_up("needs a value, or is unknown", argv[i]);
        else if (strcmp(argv[i], "--target") == 0)
            addresses[0] = argv[++i];
        else if (strcmp(argv[i], "--handler") == 0)
            handler = argv[++i];
        else if (strcmp(argv[i], "--concurrency") == 0)
            concurrency = (int)strtol(argv[++i], NULL, 10); /* the SDK refuses what is no number */
        else
            give_up("unknown argument", argv[i]);
    }
    if (!addresses[0] || !handler || concurrency == 0)
        give_up("usage", "noop --target ADDRESS --handler NAME --concurrency N [--async]");
    struct saga_worker_options options = {
        .addresses = addresses,
        .worker_id = "noop-c",
        .threads = async ? 0 : concurrency,
        .handle_signals = true,
    };
    struct saga_worker *worker;
    struct saga_error error;
    if (saga_worker_new(&options, &worker, &error) != 0 ||
        saga_worker_handle(worker, handler, concurrency, nothing, NULL, &error) != 0 ||
        saga_worker_run(worker, &error) != 0)
        give_up("worker", error.message);
    (void)saga_worker_free(worker); /* always NULL */
    return 0;
}
