/* sagad: the orchestrator. Reads the command line, takes the signals, runs the command. */
#include "app/config.h"
#include "app/dev.h"
#include "app/serve.h"
#include "app/signals.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, WAIT_MS = 3600 * 1000 };

static const char usage[] =
    "sagad drives sagas: multi-step business operations that survive every crash.\n"
    "\n"
    "  sagad serve [options]    serve sagas that are kept in a PostgreSQL of yours\n"
    "  sagad dev [options]      the same with a private PostgreSQL, for trying things out\n"
    "\n"
    "  --config FILE            read settings from a file (or $SAGAD_CONFIG)\n"
    "  --print-config           print the settings that are in force, with their source, and exit\n"
    "  --print-example          print a configuration file with every setting, and exit\n"
    "  --version, --help        print, and exit\n"
    "\n"
    "A setting is read from its default, the file, the environment and the flags; the later one\n"
    "wins. SIGTERM and SIGINT end sagad in order; a second one at once.\n";

struct command_line {
    unsigned command; /* 0: none yet */
    const char *file;
    bool print_config, print_example, version, help;
};

static void print(const struct buf *text)
{
    (void)fputs(buf_cstr(text), stdout);
}

static void print_help(void)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_printf(&text, "%s\nSettings of both commands, or of serve alone:\n", usage);
    config_write_help(CONFIG_FOR_SERVE, &text);
    buf_text(&text, "\nSettings of dev (it knows those of serve, too, but database and unsafe):\n");
    config_write_help(CONFIG_FOR_DEV, &text);
    buf_text(&text, "\nRules, which say what of Kafka starts sagas, stand in the file alone:"
                    " --print-example\nexplains them.\n");
    print(&text);
}

/* An option that is none of the settings. */
static bool take_own_option(struct command_line *line, const char *name)
{
    const struct {
        const char *name;
        bool *flag;
    } own[] = { { "print-config", &line->print_config },
                { "print-example", &line->print_example },
                { "version", &line->version },
                { "help", &line->help } };
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        if (strcmp(own[i].name, name) == 0) {
            *own[i].flag = true;
            return true;
        }
    }
    return false;
}

/* One "--name value", "--name=value" or "--name" at argv[*i]; moves *i over what it took. */
static int take_option(struct command_line *line, struct config *config, int argc, char **argv,
                       int *i, struct err *err)
{
    const char *text = argv[*i] + 2;
    size_t size = strcspn(text, "=");
    const char *value = text[size] ? text + size + 1 : NULL;
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)size, text);
    if (!value && take_own_option(line, name))
        return 0;
    int id = config_find(name, config->command);
    bool is_file = strcmp(name, "config") == 0;
    if (id < 0 && !is_file)
        return err_set(err, ERR_INVALID, "unknown option --%s", name);
    if (!value && id >= 0 && config_options[id].type == CONFIG_TYPE_BOOL)
        value = "true";
    if (!value && *i + 1 >= argc)
        return err_set(err, ERR_INVALID, "--%s needs a value", name);
    if (!value)
        value = argv[++*i];
    if (is_file) {
        line->file = value;
        return 0;
    }
    return config_set(config, (enum config_id)id, CONFIG_FROM_FLAG, value, err);
}

static int read_command_line(struct command_line *line, struct config *config, int argc,
                             char **argv, struct err *err)
{
    int first = 1;
    if (argc > 1 && argv[1][0] != '-') {
        if (strcmp(argv[1], "serve") == 0)
            line->command = CONFIG_FOR_SERVE;
        else if (strcmp(argv[1], "dev") == 0)
            line->command = CONFIG_FOR_DEV;
        else
            return err_set(err, ERR_INVALID, "unknown command \"%s\": serve or dev", argv[1]);
        first = 2;
    }
    config->command = line->command ? line->command : CONFIG_FOR_SERVE;
    for (int i = first; i < argc; i++) {
        if (strcmp(argv[i], "-h") == 0)
            line->help = true;
        else if (strncmp(argv[i], "--", 2) != 0 || !argv[i][2])
            return err_set(err, ERR_INVALID, "unexpected argument \"%s\"", argv[i]);
        else if (take_option(line, config, argc, argv, &i, err) != 0)
            return err->code;
    }
    return 0;
}

static int read_settings(struct command_line *line, struct config *config, struct err *err)
{
    const char *file = line->file ? line->file : getenv("SAGAD_CONFIG");
    /* The flags are there already: what comes later must not win over them. */
    struct config flags = *config;
    *config = (struct config){ .command = flags.command };
    int rc = file && *file ? config_read_file(config, file, err) : 0;
    if (rc == 0)
        rc = config_read_env(config, err);
    for (int i = 0; rc == 0 && i < CONFIG_COUNT; i++)
        if (flags.texts[i])
            rc = config_set(config, (enum config_id)i, CONFIG_FROM_FLAG, flags.texts[i], err);
    config_done(&flags);
    return rc ? rc : config_check(config, err);
}

static int serve_run(const struct config *config, struct err *err)
{
    const struct serve_options options = { .config = config,
                                           .conninfo = config_text(config, CONFIG_DATABASE) };
    struct serve *serve = NULL;
    int rc = serve_start(&options, &serve, err);
    if (rc != 0 || !serve)
        return rc;
    while (!signals_is_end(signals_wait(WAIT_MS)))
        continue; /* a child of nobody's, or an hour without a signal */
    rc = serve_fault(serve, err);
    serve = serve_stop(serve);
    return rc;
}

static int run(const struct command_line *line, const struct config *config)
{
    struct err err;
    log_set_level((enum log_level)config_number(config, CONFIG_LOG_LEVEL));
    signals_take();
    int rc = line->command == CONFIG_FOR_DEV ? dev_run(config, &err) : serve_run(config, &err);
    if (rc == 0)
        return 0;
    (void)fprintf(stderr, "sagad: %s\n", err.msg);
    return EXIT_FAILED;
}

/* What only prints. False: nothing of that was asked for. */
static bool run_print(const struct command_line *line, const struct config *config)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (line->print_example)
        config_write_example(&text);
    else if (line->print_config)
        config_write_values(config, &text);
    else
        return false;
    print(&text);
    return true;
}

int main(int argc, char **argv)
{
    struct command_line line = { 0 };
    CLEANUP(config_done) struct config config = { 0 };
    struct err err;
    int rc = read_command_line(&line, &config, argc, argv, &err);
    if (rc == 0 && line.help) {
        print_help();
        return 0;
    }
    if (rc == 0 && line.version) {
        (void)printf("sagad %s\n", SAGAD_VERSION);
        return 0;
    }
    if (rc == 0)
        rc = read_settings(&line, &config, &err);
    if (rc == 0 && run_print(&line, &config))
        return 0;
    if (rc == 0 && !line.command)
        rc = err_set(&err, ERR_INVALID, "which command, serve or dev? sagad --help explains");
    if (rc != 0) {
        (void)fprintf(stderr, "sagad: %s\n", err.msg);
        return EXIT_USAGE;
    }
    return run(&line, &config);
}
