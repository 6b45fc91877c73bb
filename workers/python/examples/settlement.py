"""The worker of the settlement demo in Python: bank steps under the guard, risk steps over gRPC.
The same as workers/demo/settlement_worker.c; deploy/demo.sh has the database, the risk service and
sagad.
"""

import argparse
import logging
import threading

import grpc
import psycopg

import risk_pb2
from sagad import AlreadyDone, Rejected, Retry, Task, Unknown, Worker, guard
from settlement_pb2 import (
    LedgerEntry,
    LedgerRequest,
    Payment,
    Receipt,
    RefundRequest,
    ReverseRequest,
    RiskCase,
)

SERVICE = "bank.v1.Settlement."
ACCOUNTS = 50
BANK_IN_FLIGHT = 8  # of each bank handler
RISK_IN_FLIGHT = 12
CONCURRENCY = 16
RISK_CONNECT_S = 1.0
RISK_TIMEOUT_S = 3.0  # nearly four times its P99
DRAIN_S = 5.0


class Bank:
    """The bank's database: a connection for each thread."""

    def __init__(self, conninfo: str):
        self._conninfo = conninfo
        self._local = threading.local()

    def run(self, task: Task, payment: Payment, effect) -> bytes:
        if not 1 <= payment.account <= ACCOUNTS:
            raise Rejected("BAD_REQUEST", f"account: is {payment.account}, must be 1 to {ACCOUNTS}")
        if payment.amount_cents < 1:
            raise Rejected(
                "BAD_REQUEST", f"amount_cents: is {payment.amount_cents}, must be positive"
            )
        conn = getattr(self._local, "conn", None)
        if conn is None or conn.closed:
            conn = self._local.conn = psycopg.connect(self._conninfo)
        return guard.run(task, conn, effect)

    def debit(self, task: Task, payment: Payment) -> bytes:
        def effect(conn):
            row = conn.execute(
                "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents - %(amount)s"
                " WHERE id = %(account)s AND balance_cents >= %(amount)s"
                " RETURNING id, balance_cents),"
                " made AS (INSERT INTO debits (settlement_id, account, amount_cents)"
                " SELECT %(id)s, id, %(amount)s FROM moved RETURNING debit_id)"
                " SELECT debit_id, balance_cents FROM made, moved",
                values(payment),
            ).fetchone()
            if row is None:
                raise Rejected("INSUFFICIENT_FUNDS", "the account does not hold that much")
            return Receipt(debit_id=row[0], balance_cents=row[1])

        return self.run(task, payment, effect)

    def refund(self, task: Task, request: RefundRequest) -> bytes:
        def effect(conn):
            debit = request.debit_account.debit_id or None  # None: the debit's answer was lost
            row = conn.execute(
                "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents + %(amount)s"
                " WHERE id = %(account)s RETURNING id)"
                " INSERT INTO refunds (settlement_id, debit_id, account, amount_cents)"
                " SELECT %(id)s, %(about)s, id, %(amount)s FROM moved RETURNING refund_id",
                values(request.input, debit),
            ).fetchone()
            if row is None:
                raise Retry("BANK_SQL", "the account is gone")

        return self.run(task, request.input, effect)

    def ledger(self, task: Task, request: LedgerRequest) -> bytes:
        def effect(conn):
            about = request.debit_account.debit_id or None
            return LedgerEntry(entry_id=write(conn, "SETTLEMENT", 1, request.input, about))

        return self.run(task, request.input, effect)

    def reverse(self, task: Task, request: ReverseRequest) -> bytes:
        def effect(conn):
            write(conn, "REVERSAL", -1, request.input, request.write_ledger.entry_id or None)

        return self.run(task, request.input, effect)


def values(payment: Payment, about=None) -> dict:
    return {
        "id": payment.payment_id,
        "account": payment.account,
        "amount": payment.amount_cents,
        "about": about,
    }


def write(conn, kind: str, sign: int, payment: Payment, about) -> int:
    (entry_id,) = conn.execute(
        "INSERT INTO ledger (settlement_id, kind, account, amount_cents, about_id)"
        " VALUES (%(id)s, %(kind)s, %(account)s, %(amount)s, %(about)s) RETURNING entry_id",
        {**values(payment, about), "kind": kind, "amount": sign * payment.amount_cents},
    ).fetchone()
    return entry_id


class Risk:
    """The risk service: not idempotent, and a call that got no answer may have taken effect."""

    def __init__(self, address: str):
        self._channel = grpc.insecure_channel(
            address, [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]
        )

    def notify(self, task: Task, payment: Payment):
        reply = self._call(
            task,
            "Notify",
            risk_pb2.NotifyRequest(
                idempotency_key=task.idempotency_key,
                settlement_id=payment.payment_id,
                account=payment.account,
                amount_cents=payment.amount_cents,
                behaviour=payment.risk,
            ),
            risk_pb2.NotifyReply,
        )
        case = RiskCase(reference=reply.reference)
        if reply.verdict == risk_pb2.NotifyReply.VERDICT_ACCEPTED:
            return case
        if reply.verdict == risk_pb2.NotifyReply.VERDICT_ALREADY_EXISTS:
            raise AlreadyDone(case, ours=reply.idempotency_key == task.idempotency_key)
        if reply.verdict == risk_pb2.NotifyReply.VERDICT_REFUSED:
            raise Rejected("REFUSED", reply.message)
        if reply.verdict == risk_pb2.NotifyReply.VERDICT_TRY_LATER:
            raise Retry("TRY_LATER", reply.message)
        raise Unknown("UNKNOWN_VERDICT", "risk answered what nobody knows")

    def withdraw(self, task: Task, payment: Payment):
        self._call(
            task,
            "Withdraw",
            risk_pb2.WithdrawRequest(
                idempotency_key=task.idempotency_key, settlement_id=payment.payment_id
            ),
            risk_pb2.WithdrawReply,
        )

    def _call(self, task: Task, name: str, request, answer):
        method = self._channel.unary_unary(
            "/demo.risk.v1.RiskService/" + name,
            type(request).SerializeToString,
            answer.FromString,
        )
        # All that is slow comes before the last look, so that nothing stands between it and the
        # call.
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(RISK_CONNECT_S)
        except grpc.FutureTimeoutError:
            ready.cancel()  # else it would watch the channel for ever
            raise Retry("AWAY", "no connection to the service") from None
        timeout = min(task.time_left, RISK_TIMEOUT_S)
        if not task.still_mine():
            raise Retry("TOO_LATE", "the lease was over before the call")
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            # It says these before it does anything; every other one may come from the road, and the
            # SDK knows which of those says that nothing was sent.
            code = error.code()
            if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED):
                raise Rejected(code.name, error.details()) from None
            raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sagad", required=True, help="address, or several by comma")
    parser.add_argument("--bank", required=True, help="conninfo of the bank's database")
    parser.add_argument("--risk", required=True, help="address of the risk service")
    parser.add_argument("--id", required=True, help="the worker's name")
    parser.add_argument("--only", help="serve these rpcs alone, by comma: DebitAccount, ...")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")

    bank, risk = Bank(arguments.bank), Risk(arguments.risk)
    handlers = {
        "DebitAccount": (bank.debit, BANK_IN_FLIGHT),
        "RefundAccount": (bank.refund, BANK_IN_FLIGHT),
        "WriteLedger": (bank.ledger, BANK_IN_FLIGHT),
        "ReverseLedger": (bank.reverse, BANK_IN_FLIGHT),
        "NotifyRisk": (risk.notify, RISK_IN_FLIGHT),
        "WithdrawNotice": (risk.withdraw, RISK_IN_FLIGHT),
    }
    wanted = arguments.only.split(",") if arguments.only else list(handlers)
    for name in wanted:
        if name not in handlers:
            parser.error(f"--only: there is no handler {name}; there are {', '.join(handlers)}")
    worker = Worker(
        arguments.sagad.split(","), arguments.id, concurrency=CONCURRENCY, drain_s=DRAIN_S
    )
    for name in wanted:
        function, in_flight = handlers[name]
        worker.handle(SERVICE + name, function, max_in_flight=in_flight)
    print(f"settlement_worker: serving as {arguments.id}", flush=True)
    worker.run(handle_signals=True)


if __name__ == "__main__":
    main()
