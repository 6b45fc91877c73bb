/* demo_driver: plays the settlements of the demo and audits the books afterwards.
 *   demo_driver run     --sagad A --count N [--start-seconds S] [--limit-seconds S]
 *   demo_driver books   --sagad A --count N --bank CONNINFO --risk-log FILE   the books, in figures
 *   demo_driver verdict (the same)      the parked ones, then the last line; 0 only if all is right
 *   demo_driver ids     --count N       which settlement is what: "stuck ID", "lost ID", "refused
 * ID"
 */
#include "books.h"
#include "driver_run.h"
#include "sagas.h"
#include "settlement.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { COUNT_MIN = 20, SECONDS_MAX = 600 };

struct arguments {
    const char *command, *sagad, *bank, *risk_log;
    int count, start_seconds, limit_seconds;
};

static bool parse_number(const char *text, int max, int *ret)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end || number < 1 || number > max)
        return false;
    *ret = (int)number;
    return true;
}

static bool parse_option(const char *name, const char *value, struct arguments *arguments)
{
    if (strcmp(name, "--sagad") == 0)
        arguments->sagad = value;
    else if (strcmp(name, "--bank") == 0)
        arguments->bank = value;
    else if (strcmp(name, "--risk-log") == 0)
        arguments->risk_log = value;
    else if (strcmp(name, "--count") == 0)
        return parse_number(value, SETTLEMENT_COUNT_MAX, &arguments->count) &&
               arguments->count >= COUNT_MIN;
    else if (strcmp(name, "--start-seconds") == 0)
        return parse_number(value, SECONDS_MAX, &arguments->start_seconds);
    else if (strcmp(name, "--limit-seconds") == 0)
        return parse_number(value, SECONDS_MAX, &arguments->limit_seconds);
    else
        return false;
    return true;
}

static bool parse(int argc, char **argv, struct arguments *ret)
{
    struct arguments arguments = { .start_seconds = 25, .limit_seconds = 90 };
    if (argc < 2 || argc % 2 != 0)
        return false;
    arguments.command = argv[1];
    for (int i = 2; i < argc; i += 2) {
        if (!parse_option(argv[i], argv[i + 1], &arguments))
            return false;
    }
    bool is_ids = strcmp(arguments.command, "ids") == 0;
    bool is_audit =
        strcmp(arguments.command, "books") == 0 || strcmp(arguments.command, "verdict") == 0;
    if (!is_ids && !is_audit && strcmp(arguments.command, "run") != 0)
        return false;
    *ret = arguments;
    return arguments.count && (is_ids || arguments.sagad) &&
           (!is_audit || (arguments.bank && arguments.risk_log));
}

static int read_books(const struct arguments *arguments, struct books *books, struct err *err)
{
    struct client *client = NULL;
    int rc = client_new(arguments->sagad, &client, err);
    if (!rc)
        rc = sagas_look(client, books, err);
    if (!rc)
        rc = sagas_look_at_parked(client, books, err);
    client_free(client);
    if (!rc)
        rc = books_read_bank(books, arguments->bank, err);
    if (!rc)
        rc = books_read_risk_log(books, arguments->risk_log, err);
    return rc;
}

struct column {
    int64_t rows, settlements, most;
};

static void column_add(struct column *column, int64_t rows)
{
    column->rows += rows;
    column->settlements += rows > 0;
    column->most = rows > column->most ? rows : column->most;
}

static void print_column(const char *name, const struct column *column)
{
    (void)printf("  %-26s %6" PRId64 " for %6" PRId64 " settlements, at most %" PRId64 " for one\n",
                 name, column->rows, column->settlements, column->most);
}

static void print_books(const struct books *books, const struct audit *audit)
{
    struct column debits = { 0 }, refunds = { 0 }, entries = { 0 }, reversals = { 0 },
                  notified = { 0 }, withdrawn = { 0 };
    for (int number = 1; number <= books->count; number++) {
        const struct record *record = &books->records[number];
        column_add(&debits, record->debits);
        column_add(&refunds, record->refunds);
        column_add(&entries, record->entries);
        column_add(&reversals, record->reversals);
        column_add(&notified, record->notified);
        column_add(&withdrawn, record->withdrawn);
    }
    (void)printf("  money before               %12" PRId64 " cents in %" PRId64 " accounts\n"
                 "  money after                %12" PRId64 "\n"
                 "  ledger                     %12" PRId64 "\n"
                 "  before = after + ledger    %12s\n",
                 books->opening_cents, books->accounts, books->balance_cents, books->ledger_cents,
                 audit->money_adds_up ? "yes" : "NO");
    print_column("debits", &debits);
    print_column("refunds", &refunds);
    print_column("ledger entries", &entries);
    print_column("ledger reversals", &reversals);
    print_column("risk's log: notified", &notified);
    print_column("risk's log: withdrawn", &withdrawn);
}

static int print_verdict(const struct audit *audit)
{
    if (audit->faults) {
        (void)printf("%s", buf_cstr(&audit->text));
        if (audit->faults > AUDIT_FAULTS_SHOWN)
            (void)printf("  and %d more\n", audit->faults - AUDIT_FAULTS_SHOWN);
    }
    (void)printf("demo: %d parked with an unknown outcome (%d because risk's reply was lost), "
                 "%d left at the risk step on purpose\n",
                 audit->parked, audit->replies_lost, audit->waiting);
    (void)printf("demo: %d settled, %d compensated, %d doubled, %d lost, ", audit->settled,
                 audit->compensated, audit->doubled, audit->lost);
    if (audit->faults) {
        (void)printf("books do NOT balance: %d faults\n", audit->faults);
        return 1;
    }
    (void)printf("books balance\n");
    return 0;
}

static int audit_command(const struct arguments *arguments, struct err *err)
{
    struct books books;
    int rc = books_create(arguments->count, &books, err);
    if (rc)
        return -1;
    int result = -1;
    if (read_books(arguments, &books, err) == 0) {
        struct audit audit;
        books_audit(&books, &audit);
        result = 0;
        if (strcmp(arguments->command, "books") == 0)
            print_books(&books, &audit);
        else
            result = print_verdict(&audit);
        audit_done(&audit);
    }
    books_done(&books);
    return result;
}

static void print_ids(int count)
{
    static const char *const names[SETTLEMENT_RISK_COUNT] = {
        [SETTLEMENT_RISK_REFUSE] = "refused",
        [SETTLEMENT_RISK_TAKE_EFFECT_THEN_TIME_OUT] = "lost",
        [SETTLEMENT_RISK_TRY_LATER] = "stuck",
    };
    for (int number = 1; number <= count; number++) {
        char id[SETTLEMENT_ID_SIZE];
        struct settlement settlement = settlement_plan(number, count);
        settlement_id_format(number, id);
        if (names[settlement.risk])
            (void)printf("%s %s\n", names[settlement.risk], id);
    }
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    if (!parse(argc, argv, &arguments)) {
        (void)fprintf(stderr,
                      "usage: demo_driver run --sagad ADDRESS --count N [--start-seconds S]"
                      " [--limit-seconds S]\n"
                      "       demo_driver books|verdict --sagad ADDRESS --count N --bank CONNINFO"
                      " --risk-log FILE\n"
                      "       demo_driver ids --count N\n"
                      "N: %d to %d\n",
                      COUNT_MIN, SETTLEMENT_COUNT_MAX);
        return 2;
    }
    struct err err;
    int result = 0;
    if (strcmp(arguments.command, "ids") == 0) {
        print_ids(arguments.count);
    } else if (strcmp(arguments.command, "run") == 0) {
        struct run_options options = { arguments.sagad, arguments.count, arguments.start_seconds,
                                       arguments.limit_seconds };
        result = driver_run(&options, &err) ? -1 : 0;
    } else {
        result = audit_command(&arguments, &err);
    }
    if (result < 0)
        (void)fprintf(stderr, "demo_driver: %s\n", err.msg);
    return result ? 1 : 0;
}
