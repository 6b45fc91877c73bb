/* The worker of the settlement demo: bank steps under the guard, risk steps over gRPC. Every
 * mapping from what happened to what is reported is in this file and in bank.c. */
#include "bank.h"
#include "risk_client.h"
#include "settlement.h"

#include <stdio.h>
#include <string.h>

enum {
    THREADS = 16,
    BANK_IN_FLIGHT = 8, /* of each bank handler */
    RISK_IN_FLIGHT = 12,
    RISK_CONNECT_MS = 1000,
    RISK_TIMEOUT_MS = 3000, /* nearly four times its P99 */
};

/* Everything up to the last look: a connection, and the lease still ours. False: the outcome is
 * set, nothing was sent. */
static bool may_call(struct saga_task *task, struct risk_client *risk)
{
    if (!risk_client_connect(risk, RISK_CONNECT_MS)) {
        (void)saga_task_retry(task, "RISK_AWAY", "no connection to the risk service", 0);
        return false;
    }
    if (!saga_task_still_mine(task)) {
        (void)saga_task_retry(task, "TOO_LATE", "the lease was over before the call", 0);
        return false;
    }
    return true;
}

static int64_t call_time_ms(const struct saga_task *task)
{
    int64_t left_ms = saga_task_time_left_ms(task);
    return left_ms < RISK_TIMEOUT_MS ? left_ms : RISK_TIMEOUT_MS;
}

/* The setters fail only when memory is out; the task is then reported as UNKNOWN. */
static void report(struct saga_task *task, const struct risk_outcome *outcome)
{
    const char *reference = outcome->reference;
    switch (outcome->result) {
    case RISK_ACCEPTED:
        (void)saga_task_done(task, reference, strlen(reference));
        return;
    case RISK_ALREADY_EXISTS:
        (void)saga_task_already_done(task, reference, strlen(reference), outcome->ours);
        return;
    case RISK_REFUSED:
    case RISK_INVALID:
        (void)saga_task_rejected(task, outcome->code, outcome->message);
        return;
    case RISK_TRY_LATER:
    case RISK_NOT_SENT:
        (void)saga_task_retry(task, outcome->code, outcome->message, 0);
        return;
    case RISK_UNKNOWN:
        (void)saga_task_unknown(task, outcome->code, outcome->message);
        return;
    }
}

static void notify(struct saga_task *task, void *ctx)
{
    struct risk_client *risk = ctx;
    struct saga_bytes input = saga_task_input(task);
    struct settlement settlement;
    struct err err;
    if (settlement_decode(input.data, input.size, &settlement, &err)) {
        (void)saga_task_rejected(task, "BAD_INPUT", err.msg);
        return;
    }
    if (!may_call(task, risk))
        return;
    struct risk_notification notification = {
        .idempotency_key = saga_task_idempotency_key(task),
        .settlement_id = saga_task_saga_id(task),
        .account = settlement.account,
        .amount_cents = settlement.amount_cents,
        .behaviour = settlement_risk_name(settlement.risk),
    };
    struct risk_outcome outcome = risk_client_notify(risk, &notification, call_time_ms(task));
    report(task, &outcome);
}

static void withdraw(struct saga_task *task, void *ctx)
{
    struct risk_client *risk = ctx;
    if (!may_call(task, risk))
        return;
    struct risk_outcome outcome = risk_client_withdraw(risk, saga_task_idempotency_key(task),
                                                       saga_task_saga_id(task), call_time_ms(task));
    report(task, &outcome);
}

struct arguments {
    const char *sagad, *bank, *risk, *id;
};

static bool parse(int argc, char **argv, struct arguments *ret)
{
    struct arguments arguments = { 0 };
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--sagad") == 0)
            arguments.sagad = argv[i + 1];
        else if (strcmp(argv[i], "--bank") == 0)
            arguments.bank = argv[i + 1];
        else if (strcmp(argv[i], "--risk") == 0)
            arguments.risk = argv[i + 1];
        else if (strcmp(argv[i], "--id") == 0)
            arguments.id = argv[i + 1];
        else
            return false;
    }
    *ret = arguments;
    return argc == 9 && arguments.sagad && arguments.bank && arguments.risk && arguments.id;
}

static int register_handlers(struct saga_worker *worker, struct bank *bank,
                             struct risk_client *risk, struct saga_error *error)
{
    const struct {
        const char *name;
        int in_flight;
        saga_handler *handler;
        void *ctx;
    } handlers[] = {
        { "bank.debit_account", BANK_IN_FLIGHT, bank_debit_account, bank },
        { "bank.refund_account", BANK_IN_FLIGHT, bank_refund_account, bank },
        { "bank.write_ledger", BANK_IN_FLIGHT, bank_write_ledger, bank },
        { "bank.reverse_ledger", BANK_IN_FLIGHT, bank_reverse_ledger, bank },
        { "risk.notify", RISK_IN_FLIGHT, notify, risk },
        { "risk.withdraw", RISK_IN_FLIGHT, withdraw, risk },
    };
    for (size_t i = 0; i < ARRAY_LEN(handlers); i++) {
        if (saga_worker_handle(worker, handlers[i].name, handlers[i].in_flight, handlers[i].handler,
                               handlers[i].ctx, error))
            return -1;
    }
    return 0;
}

static int serve(const struct arguments *arguments, struct bank *bank, struct risk_client *risk)
{
    const char *addresses[] = { arguments->sagad, NULL };
    struct saga_worker_options options = {
        .addresses = addresses,
        .worker_id = arguments->id,
        .threads = THREADS,
        .drain_ms = 5000,
        .handle_signals = true,
    };
    struct saga_worker *worker = NULL;
    struct saga_error error;
    int rc = saga_worker_new(&options, &worker, &error);
    if (!rc)
        rc = register_handlers(worker, bank, risk, &error);
    if (!rc) {
        (void)printf("settlement_worker: serving as %s\n", arguments->id);
        (void)fflush(stdout);
        rc = saga_worker_run(worker, &error);
    }
    if (rc)
        (void)fprintf(stderr, "settlement_worker: %s\n", error.message);
    saga_worker_free(worker);
    return rc ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    if (!parse(argc, argv, &arguments)) {
        (void)fprintf(stderr, "usage: settlement_worker --sagad ADDRESS --bank CONNINFO"
                              " --risk ADDRESS --id NAME\n");
        return 2;
    }
    struct bank *bank = NULL;
    struct risk_client *risk = NULL;
    struct err err;
    int result = 1;
    if (bank_create(arguments.bank, THREADS, &bank, &err) ||
        risk_client_create(arguments.risk, &risk, &err))
        (void)fprintf(stderr, "settlement_worker: %s\n", err.msg);
    else
        result = serve(&arguments, bank, risk);
    risk_client_free(risk);
    bank_free(bank);
    return result;
}
