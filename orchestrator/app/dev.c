#include "app/dev.h"

#include "app/dev_postgres.h"
#include "app/serve.h"
#include "app/signals.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 60 * 1000 };

static void announce(const struct dev_postgres *postgres, const struct serve *serve)
{
    const char *address = serve_address(serve, 0);
    bool usual = strcmp(address, config_options[CONFIG_LISTEN].default_text) == 0;
    char option[512] = "";
    if (!usual)
        (void)snprintf(option, sizeof option, " --address %s", address);
    (void)printf("sagad: data in %s\n"
                 "sagad: PostgreSQL: %s/psql -h %s -U sagad sagad\n"
                 "\n"
                 "Try next, in another terminal:\n"
                 "  sagactl%s status\n"
                 "  sagactl%s definition apply FILE.json\n"
                 "  sagactl%s start DEFINITION KEY --input '{\"amount\": 12}'\n"
                 "  sagactl%s where KEY\n"
                 "\n"
                 "Ctrl-C ends both; the data stays for the next start.\n",
                 dev_postgres_folder(postgres), dev_postgres_bin(postgres),
                 dev_postgres_socket_folder(postgres), option, option, option, option);
    (void)fflush(stdout); /* a closed stdout is nobody's loss */
}

/* Until a signal asks us to end, or PostgreSQL ends by itself: that is an error. */
static int wait_for_the_end(struct dev_postgres *postgres, const struct serve *serve,
                            struct err *err)
{
    for (;;) {
        int signal_number = signals_wait(LOOK_MS);
        if (signals_is_end(signal_number))
            return serve_fault(serve, err);
        if (!dev_postgres_runs(postgres, err))
            return err->code;
    }
}

int dev_run(const struct config *config, struct err *err)
{
    const struct dev_postgres_options options = {
        .data = config_text(config, CONFIG_DATA),
        .pg_bin = config_text(config, CONFIG_PG_BIN),
    };
    struct dev_postgres *postgres = NULL;
    struct serve *serve = NULL;
    int rc = dev_postgres_start(&options, &postgres, err);
    if (rc != 0 || !postgres)
        return rc;
    const struct serve_options serve_options = { .config = config,
                                                 .conninfo = dev_postgres_conninfo(postgres) };
    rc = serve_start(&serve_options, &serve, err);
    if (rc == 0 && serve) {
        announce(postgres, serve);
        rc = wait_for_the_end(postgres, serve, err);
        serve = serve_stop(serve);
    }
    postgres = dev_postgres_stop(postgres);
    return rc;
}
