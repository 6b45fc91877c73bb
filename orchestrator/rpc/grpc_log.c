#include "rpc/grpc_log.h"

#include "base/log.h"

#include <grpc/support/log.h>
#include <stdatomic.h>
#include <string.h>

static atomic_bool accept_failed;

static void on_log(gpr_log_func_args *args)
{
    static const char give_up[] = "Failed accept";
    static const enum log_level levels[] = {
        [GPR_LOG_SEVERITY_DEBUG] = LOG_DEBUG,
        [GPR_LOG_SEVERITY_INFO] = LOG_INFO,
        [GPR_LOG_SEVERITY_ERROR] = LOG_ERROR,
    };
    const char *slash = strrchr(args->file, '/');
    if (strncmp(args->message, give_up, sizeof give_up - 1) == 0)
        atomic_store(&accept_failed, true);
    log_line(levels[args->severity], "gRPC", "says", args->message, "at",
             log_fmt("%s:%d", slash ? slash + 1 : args->file, args->line), NULL);
}

void grpc_log_take(void)
{
    gpr_set_log_function(on_log);
}

bool grpc_log_accept_failed(void)
{
    return atomic_load(&accept_failed);
}
