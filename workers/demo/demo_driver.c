/* demo_driver: plays the sagas of a story of the demo and audits its books afterwards.
 *   demo_driver STORY run     --sagad A --count N [--start-seconds S] [--limit-seconds S]
 *   demo_driver STORY books   --sagad A --count N SOURCES    the books, in figures
 *   demo_driver STORY verdict (the same)      what is wrong, then the last line; 0 only if nothing
 * is demo_driver fulfilment branches --sagad A --count N       the same about the parallel steps
 *   demo_driver STORY ids     --count N       which key is what
 *   demo_driver STORY records --count N       key, a tab, the input in hex: for a topic
 *
 * STORY is settlement (SOURCES: --bank CONNINFO --risk-log FILE [--confirmed FILE]; in the latter
 * the ids of those that a person found out about) or fulfilment (SOURCES: --shop SOCKET
 * --logistics-log FILE --cache SOCKET). */
#include "driver_report.h"
#include "driver_run.h"
#include "fulfilment.h"
#include "settlement.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { COUNT_MIN = 20, SECONDS_MAX = 1200 };

typedef int report(const struct report_sources *sources, struct client *client,
                   const struct sagas *sagas, enum report_kind kind, bool *ret_faultless,
                   struct err *err);

struct arguments {
    const char *command, *sagad;
    struct report_sources sources;
    int count, start_seconds, limit_seconds;
};

static bool has_bank(const struct report_sources *sources)
{
    return sources->bank && sources->risk_log;
}

static bool has_shop(const struct report_sources *sources)
{
    return sources->shop && sources->logistics_log && sources->cache;
}

static const struct program {
    const struct story *story;
    report *report;
    void (*print_ids)(int count);
    bool (*has_sources)(const struct report_sources *sources);
} programs[] = {
    { &settlement_story, settlement_report, settlement_print_ids, has_bank },
    { &fulfilment_story, fulfilment_report, fulfilment_print_ids, has_shop },
};

/* --- arguments -------------------------------------------------------------------------------- */

static bool parse_number(const char *text, int max, int *ret)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end || number < 1 || number > max)
        return false;
    *ret = (int)number;
    return true;
}

static bool parse_option(const char *name, const char *value, const struct story *story,
                         struct arguments *arguments)
{
    const struct {
        const char *name;
        const char **value;
    } texts[] = {
        { "--sagad", &arguments->sagad },
        { "--bank", &arguments->sources.bank },
        { "--risk-log", &arguments->sources.risk_log },
        { "--confirmed", &arguments->sources.confirmed },
        { "--shop", &arguments->sources.shop },
        { "--logistics-log", &arguments->sources.logistics_log },
        { "--cache", &arguments->sources.cache },
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].value = value;
            return true;
        }
    }
    if (strcmp(name, "--count") == 0)
        return parse_number(value, story->count_max, &arguments->count) &&
               arguments->count >= COUNT_MIN;
    if (strcmp(name, "--start-seconds") == 0)
        return parse_number(value, SECONDS_MAX, &arguments->start_seconds);
    if (strcmp(name, "--limit-seconds") == 0)
        return parse_number(value, SECONDS_MAX, &arguments->limit_seconds);
    return false;
}

static bool parse(int argc, char **argv, const struct program **ret_program, struct arguments *ret)
{
    struct arguments arguments = { .start_seconds = 25, .limit_seconds = 90 };
    const struct program *program = NULL;
    for (size_t i = 0; argc > 2 && i < ARRAY_LEN(programs); i++)
        if (strcmp(argv[1], programs[i].story->name) == 0)
            program = &programs[i];
    if (!program || argc % 2 != 1)
        return false;
    arguments.command = argv[2];
    for (int i = 3; i < argc; i += 2) {
        if (!parse_option(argv[i], argv[i + 1], program->story, &arguments))
            return false;
    }
    bool is_ids =
        strcmp(arguments.command, "ids") == 0 || strcmp(arguments.command, "records") == 0;
    bool is_branches =
        strcmp(arguments.command, "branches") == 0 && program->story == &fulfilment_story;
    bool is_audit =
        strcmp(arguments.command, "books") == 0 || strcmp(arguments.command, "verdict") == 0;
    if (!is_ids && !is_audit && !is_branches && strcmp(arguments.command, "run") != 0)
        return false;
    *ret_program = program;
    *ret = arguments;
    return arguments.count && (is_ids || arguments.sagad) &&
           (!is_audit || program->has_sources(&arguments.sources));
}

/* --- figures ---------------------------------------------------------------------------------- */

void report_column_add(struct report_column *column, int64_t rows)
{
    column->rows += rows;
    column->keys += rows > 0;
    column->most = rows > column->most ? rows : column->most;
}

void report_column_print(const char *name, const char *keys, const struct report_column *column)
{
    (void)printf("  %-26s %6" PRId64 " for %6" PRId64 " %s, at most %" PRId64 " for one\n", name,
                 column->rows, column->keys, keys, column->most);
}

static int print_records(const struct story *story, int count, struct err *err)
{
    CLEANUP(buf_done) struct buf input = { 0 };
    for (int number = 1; number <= count; number++) {
        char id[STORY_ID_SIZE];
        story_id_format(story, number, id);
        input.size = 0;
        story->encode(number, count, &input);
        if (input.failed)
            return err_set(err, ERR_NOMEM, "out of memory");
        (void)printf("%s\t", id);
        for (size_t i = 0; i < input.size; i++)
            (void)printf("%02x", input.data[i]);
        (void)printf("\n");
    }
    return 0;
}

/* --- commands --------------------------------------------------------------------------------- */

static int audit(const struct program *program, const struct arguments *arguments,
                 bool *ret_faultless, struct err *err)
{
    struct client *client = NULL;
    struct sagas sagas;
    int rc = sagas_create(program->story, arguments->count, &sagas, err);
    if (rc)
        return rc;
    rc = client_new(arguments->sagad, &client, err);
    if (!rc)
        rc = sagas_look(client, &sagas, err);
    bool is_branches = strcmp(arguments->command, "branches") == 0;
    if (!rc && is_branches)
        rc = branches_report(client, &sagas, ret_faultless, err);
    if (!rc && !is_branches)
        rc = sagas_look_at_parked(client, &sagas, err);
    if (!rc && !is_branches)
        rc = program->report(&arguments->sources, client, &sagas,
                             strcmp(arguments->command, "books") == 0 ? REPORT_BOOKS
                                                                      : REPORT_VERDICT,
                             ret_faultless, err);
    client_free(client);
    sagas_done(&sagas);
    return rc;
}

static int run(const struct program *program, const struct arguments *arguments, struct err *err)
{
    struct run_options options = { program->story, arguments->sagad, arguments->count,
                                   arguments->start_seconds, arguments->limit_seconds };
    return driver_run(&options, err);
}

int main(int argc, char **argv)
{
    const struct program *program;
    struct arguments arguments;
    if (!parse(argc, argv, &program, &arguments)) {
        (void)fprintf(stderr,
                      "usage: demo_driver STORY run --sagad ADDRESS --count N [--start-seconds S]"
                      " [--limit-seconds S]\n"
                      "       demo_driver STORY books|verdict --sagad ADDRESS --count N SOURCES\n"
                      "       demo_driver fulfilment branches --sagad ADDRESS --count N\n"
                      "       demo_driver STORY ids|records --count N\n"
                      "STORY, SOURCES: settlement, --bank CONNINFO --risk-log FILE"
                      " [--confirmed FILE]\n"
                      "             or fulfilment, --shop SOCKET --logistics-log FILE"
                      " --cache SOCKET\n"
                      "N: %d to %d\n",
                      COUNT_MIN, SETTLEMENT_COUNT_MAX);
        return 2;
    }
    struct err err;
    bool faultless = true;
    int rc = 0;
    if (strcmp(arguments.command, "ids") == 0)
        program->print_ids(arguments.count);
    else if (strcmp(arguments.command, "records") == 0)
        rc = print_records(program->story, arguments.count, &err);
    else if (strcmp(arguments.command, "run") == 0)
        rc = run(program, &arguments, &err);
    else
        rc = audit(program, &arguments, &faultless, &err);
    if (rc)
        (void)fprintf(stderr, "demo_driver: %s\n", err.msg);
    return rc || !faultless ? 1 : 0;
}
