/* The worker of the settlement demo: bank steps under the guard, risk steps over gRPC. Every
 * mapping from what happened to what is reported is in this file and in bank.c. */
#include "bank.h"
#include "message.h"
#include "risk_client.h"
#include "settlement.h"
#include "worker_program.h"

#include <stdio.h>

enum {
    THREADS = 16,
    BANK_IN_FLIGHT = 8, /* of each bank handler */
    RISK_IN_FLIGHT = 12,
    RISK_CONNECT_MS = 1000,
    RISK_TIMEOUT_MS = 3000, /* nearly four times its P99 */
};

/* `answer`: if it took effect. The setters fail only when memory is out; the task is then reported
 * as UNKNOWN. */
static void report(struct saga_task *task, const struct risk_outcome *outcome,
                   const ProtobufCMessage *answer)
{
    switch (outcome->result) {
    case RISK_ACCEPTED:
        (void)worker_done(task, answer);
        return;
    case RISK_ALREADY_EXISTS:
        (void)worker_already_done(task, answer, outcome->ours);
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
    struct caller *risk = ctx;
    CLEANUP(message_p)
    Bank__V1__Payment *payment = worker_request(task, &bank__v1__payment__descriptor);
    int64_t until_ms;
    if (!payment || !worker_may_call(task, risk, RISK_CONNECT_MS, RISK_TIMEOUT_MS, &until_ms))
        return;
    struct risk_notification notification = {
        .idempotency_key = saga_task_idempotency_key(task),
        .settlement_id = payment->payment_id,
        .account = payment->account,
        .amount_cents = payment->amount_cents,
        .behaviour = payment->risk,
    };
    struct risk_outcome outcome = risk_client_notify(risk, &notification, until_ms);
    Bank__V1__RiskCase risk_case = BANK__V1__RISK_CASE__INIT;
    risk_case.reference = outcome.reference;
    report(task, &outcome, &risk_case.base);
}

static void withdraw(struct saga_task *task, void *ctx)
{
    struct caller *risk = ctx;
    CLEANUP(message_p)
    Bank__V1__Payment *payment = worker_request(task, &bank__v1__payment__descriptor);
    int64_t until_ms;
    if (!payment || !worker_may_call(task, risk, RISK_CONNECT_MS, RISK_TIMEOUT_MS, &until_ms))
        return;
    struct risk_outcome outcome =
        risk_client_withdraw(risk, saga_task_idempotency_key(task), payment->payment_id, until_ms);
    report(task, &outcome, NULL);
}

static int serve(const char *sagad, const char *id, const char *only, struct bank *bank,
                 struct caller *risk)
{
    const struct worker_handler handlers[] = {
        { "bank.v1.Settlement.DebitAccount", BANK_IN_FLIGHT, bank_debit_account, bank },
        { "bank.v1.Settlement.RefundAccount", BANK_IN_FLIGHT, bank_refund_account, bank },
        { "bank.v1.Settlement.WriteLedger", BANK_IN_FLIGHT, bank_write_ledger, bank },
        { "bank.v1.Settlement.ReverseLedger", BANK_IN_FLIGHT, bank_reverse_ledger, bank },
        { "bank.v1.Settlement.NotifyRisk", RISK_IN_FLIGHT, notify, risk },
        { "bank.v1.Settlement.WithdrawNotice", RISK_IN_FLIGHT, withdraw, risk },
    };
    const struct worker_program program = { .name = "settlement_worker",
                                            .sagad = sagad,
                                            .id = id,
                                            .only = only,
                                            .threads = THREADS,
                                            .handlers = handlers,
                                            .handler_count = ARRAY_LEN(handlers) };
    return worker_serve(&program);
}

int main(int argc, char **argv)
{
    const char *sagad, *conninfo, *address, *id, *only = NULL;
    const struct worker_option options[] = { { "--sagad", &sagad },
                                             { "--bank", &conninfo },
                                             { "--risk", &address },
                                             { "--id", &id },
                                             { "--only", &only } };
    if (!worker_options_parse(argc, argv, options, ARRAY_LEN(options) - 1) &&
        !worker_options_parse(argc, argv, options, ARRAY_LEN(options))) {
        (void)fprintf(stderr, "usage: settlement_worker --sagad ADDRESS --bank CONNINFO"
                              " --risk ADDRESS --id NAME [--only RPC,...]\n");
        return 2;
    }
    struct bank *bank = NULL;
    struct caller *risk = NULL;
    struct err err;
    int result = 1;
    if (bank_create(conninfo, THREADS, &bank, &err) || caller_create(address, &risk, &err))
        (void)fprintf(stderr, "settlement_worker: %s\n", err.msg);
    else
        result = serve(sagad, id, only, bank, risk);
    caller_free(risk);
    bank_free(bank);
    return result;
}
