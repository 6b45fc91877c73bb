"""The fake orchestrator does with handlers what the worker does."""

import asyncio
import unittest

from google.protobuf.wrappers_pb2 import StringValue

import sagad
from sagad import Operation, OutcomeKind, Stop, Task, fake


class FakeTest(unittest.TestCase):
    def setUp(self):
        self.worker = worker = sagad.Worker(["nowhere:1"], "test-1")
        self.balance = 10

        @worker.handler("account.debit")
        def debit(task: Task, amount: StringValue) -> StringValue:
            if int(amount.value) > self.balance:
                raise sagad.Rejected("NO_FUNDS")
            self.balance -= int(amount.value)
            return StringValue(value=str(self.balance))

        @worker.handler("account.refund")
        def refund(task):
            self.balance += int(StringValue.FromString(task.input()).value)

        @worker.handler("risk.check")
        async def check(task):
            await asyncio.sleep(0)
            if task.try_ == 1:
                raise sagad.Retry("BUSY")
            raise sagad.Rejected("FRAUD")

        @worker.handler("risk.ask")
        async def ask(task):
            return task.stop_reason.name.encode()

    def test_one_task(self):
        result = fake.run(self.worker, "account.debit", StringValue(value="4"))
        self.assertIs(result.kind, OutcomeKind.DONE)
        self.assertEqual(result.output_as(StringValue).value, "6")
        result = fake.run(self.worker, "account.debit", StringValue(value="7"))
        self.assertEqual((result.kind, result.code), (OutcomeKind.REJECTED, "NO_FUNDS"))
        result = fake.run(self.worker, "account.debit", b"\xff")
        self.assertEqual((result.kind, result.code), (OutcomeKind.REJECTED, "BAD_REQUEST"))

    def test_an_async_handler_that_should_stop(self):
        for stop in Stop:
            result = fake.run(self.worker, "risk.ask", stop=stop)
            self.assertEqual(result.output, stop.name.encode())
        self.assertFalse(fake.task("h", stop=Stop.LOST).still_mine())
        result = asyncio.run(fake.run_async(self.worker, "risk.ask", stop=Stop.CANCELLED))
        self.assertEqual(result.output, b"CANCELLED")

    def test_a_saga_that_is_taken_back(self):
        saga = fake.Saga(self.worker, StringValue(value="4"))
        saga.step("debit", "account.debit", compensation="account.refund")
        saga.step("check", "risk.check")
        self.assertEqual(saga.play(), "COMPENSATED")
        self.assertEqual(
            saga.trace,
            ["debit: DONE", "check: RETRY", "check: REJECTED", "debit compensation: DONE"],
        )
        self.assertEqual(self.balance, 10)

    def test_sagas_that_succeed_and_park(self):
        saga = fake.Saga(self.worker, StringValue(value="4")).step("debit", "account.debit")
        self.assertEqual(saga.play(), "SUCCEEDED")
        saga = fake.Saga(self.worker, StringValue(value="x")).step("debit", "account.debit")
        self.assertEqual(saga.play(), "PARKED")
        self.assertEqual(saga.trace, ["debit: UNKNOWN"])

    def test_tasks_are_what_they_are_said_to_be(self):
        task = fake.task("h", operation=Operation.COMPENSATION, action_output=b"r", try_=3)
        self.assertEqual(task.action_output(), b"r")
        self.assertEqual(task.try_, 3)
        again = fake.task("h", operation=Operation.COMPENSATION, fence=9)
        self.assertEqual(task.idempotency_key, again.idempotency_key)
        self.assertIs(fake.task("h", operation=Operation.PROBE).probed.operation, Operation.ACTION)

    def test_a_handler_that_is_not_there(self):
        with self.assertRaisesRegex(LookupError, "no handler nobody"):
            fake.run(self.worker, "nobody")


if __name__ == "__main__":
    unittest.main()
