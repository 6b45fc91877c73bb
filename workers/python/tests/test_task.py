"""What a handler sees, and what is made of what it says. Tables; no I/O."""

import asyncio
import datetime
import threading
import unittest

from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from sagad import (
    ActionOutcome,
    AlreadyDone,
    NotDone,
    Operation,
    OutcomeKind,
    Rejected,
    Retry,
    StillUnknown,
    Stop,
    Task,
    Unknown,
    fake,
    outcome,
)
from saga.v1 import saga_pb2, worker_pb2
from tests.server import task_message

UTC = datetime.timezone.utc


class TaskTest(unittest.TestCase):
    def test_every_field_reaches_the_handler(self):
        message = task_message(7, "account.debit", input=b"in", labels={"region": "eu"})
        message.idempotency_key = "key"
        message.traceparent = "00-1"
        message.guarded = True
        message.output_type = "bank.v1.Receipt"
        message.outputs.add(step="reserve", output=b"reserved")
        message.send_before.FromJsonString("2026-12-01T10:00:00.123456Z")
        task = Task(message)
        table = {
            "namespace": "default",
            "definition": "settlement",
            "saga_id": "order-17",
            "run": 1,
            "revision": 3,
            "step": "debit",
            "operation": Operation.ACTION,
            "handler": "account.debit",
            "try_": 1,
            "fence": 7,
            "idempotency_key": "key",
            "traceparent": "00-1",
            "guarded": True,
            "request_type": "",
            "output_type": "bank.v1.Receipt",
            "outputs": {"reserve": b"reserved"},
            "started_at": datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            "started_at_us": 1700000000000000,
            "send_before": datetime.datetime(2026, 12, 1, 10, 0, 0, 123456, tzinfo=UTC),
            "action_outcome": ActionOutcome.NONE,
            "probed": None,
            "stop_reason": None,
        }
        for name, value in table.items():
            with self.subTest(name):
                self.assertEqual(getattr(task, name), value)
        self.assertEqual(task.uid.bytes, bytes(range(16)))
        self.assertEqual(dict(task.labels), {"region": "eu"})
        self.assertEqual((task.input(), task.request()), (b"in", b"in"))
        self.assertEqual(task.output_of("reserve"), b"reserved")
        self.assertIsNone(task.output_of("nothing"))
        self.assertEqual(task.action_output(), b"")

    def test_types(self):
        text = StringValue(value="abc")
        task = fake.task("h", text, outputs={"a": text, "b": b"\xff"})
        self.assertEqual(task.request(StringValue), text)
        self.assertEqual(task.output_of("a", StringValue), text)
        for call in (
            lambda: task.output_of("b", StringValue),
            lambda: fake.task("h", b"\xff").input(StringValue),
            lambda: fake.task("h", b"\xff").request(StringValue),
        ):
            with self.assertRaises(Rejected) as raised:
                call()
            self.assertEqual(raised.exception.code, "BAD_REQUEST")
        with self.assertRaises(Retry) as other:  # another version of the worker may have it
            task.request(Int32Value)
        self.assertEqual(other.exception.code, "WRONG_TYPE")

    def test_what_is_known_of_the_action(self):
        undo, probe = Operation.COMPENSATION, Operation.PROBE
        done = worker_pb2.ActionOutcome(kind=worker_pb2.ActionOutcome.KIND_DONE, output=b"r")
        maybe = worker_pb2.ActionOutcome(kind=worker_pb2.ActionOutcome.KIND_MAYBE, output=b"r")
        table = [
            (Operation.ACTION, done, ActionOutcome.NONE, b""),
            (undo, None, ActionOutcome.MAYBE, b""),
            (undo, maybe, ActionOutcome.MAYBE, b""),
            (undo, done, ActionOutcome.DONE, b"r"),
            (probe, None, ActionOutcome.NONE, b""),
            (probe, done, ActionOutcome.DONE, b"r"),
        ]
        for operation, action, known, output in table:
            with self.subTest(operation=operation, known=known):
                message = task_message(1)
                message.operation = operation
                if action is not None:
                    message.action.CopyFrom(action)
                task = Task(message)
                self.assertIs(task.action_outcome, known)
                self.assertEqual(task.action_output(), output)

    def test_a_probe_is_told_what_it_asks_about(self):
        message = task_message(9)
        message.operation = saga_pb2.OPERATION_KIND_PROBE
        message.probed = saga_pb2.OPERATION_KIND_COMPENSATION
        message.probed_attempt.fence = 5
        setattr(message.probed_attempt, "try", 2)
        message.probed_attempt.lease_time.FromSeconds(10)
        probed = Task(message).probed
        self.assertIs(probed.operation, Operation.COMPENSATION)
        self.assertEqual((probed.try_, probed.fence), (2, 5))
        self.assertEqual(probed.leased_at, datetime.datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC))
        self.assertIsNone(probed.ended_at)

    def test_times_out_of_range_are_none(self):
        message = task_message(1)
        message.saga_start_time.seconds = -253402300799
        self.assertIsNone(Task(message).started_at)

    def test_whoever_waits_is_woken_once_it_should_stop(self):
        lease = fake.FakeLease()
        task = Task(task_message(1), lease)
        self.assertTrue(task.still_mine())
        self.assertIsNone(task.wait_stop(0))
        seen = []
        waiter = threading.Thread(target=lambda: seen.append(task.wait_stop(10)))
        waiter.start()

        async def main():
            waiting = asyncio.create_task(task.stopped())
            gone = asyncio.create_task(task.stopped())
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.sleep(0)
            lease.reason = Stop.LOST
            task.tell_stop()
            return await waiting, await task.stopped()

        self.assertEqual(asyncio.run(main()), (Stop.LOST, Stop.LOST))
        waiter.join()
        self.assertEqual(seen, [Stop.LOST])
        self.assertFalse(task.still_mine())


class OutcomeTest(unittest.TestCase):
    def test_what_is_reported(self):
        table = [
            (Rejected("NO", "why"), ("REJECTED", b"", False, "NO", "why", 0)),
            (Retry(after=1.5), ("RETRY", b"", False, "RETRY", "", 1500)),
            (
                Retry("BUSY", "later", after=datetime.timedelta(minutes=1)),
                ("RETRY", b"", False, "BUSY", "later", 60000),
            ),
            (Unknown("CUT"), ("UNKNOWN", b"", False, "CUT", "", 0)),
            (AlreadyDone(b"o", ours=True), ("ALREADY_DONE", b"o", True, "", "", 0)),
            (AlreadyDone(ours=False), ("ALREADY_DONE", b"", False, "", "", 0)),
            (NotDone(), ("NOT_DONE", b"", False, "", "", 0)),
            (StillUnknown("AWAY"), ("STILL_UNKNOWN", b"", False, "AWAY", "", 0)),
            (ValueError("text"), ("UNKNOWN", b"", False, "ValueError", "text", 0)),
            (AlreadyDone(b"x" * 101, ours=True), "OUTPUT_TOO_LARGE"),
        ]
        for error, expected in table:
            with self.subTest(error=error):
                said = outcome.of_exception(error, 100, None)
                if isinstance(expected, str):
                    self.assertEqual((said.kind, said.code), (OutcomeKind.UNKNOWN, expected))
                    continue
                kind, output, ours, code, message, after = expected
                self.assertEqual(
                    said, outcome.Outcome(OutcomeKind[kind], output, ours, code, message, after)
                )

    def test_a_verdict_counts_for_other_exceptions_alone(self):
        self.assertIs(outcome.of_exception(OSError(), 100, Retry()).kind, OutcomeKind.RETRY)
        self.assertIs(outcome.of_exception(Rejected("NO"), 100, Retry()).kind, OutcomeKind.REJECTED)

    def test_texts_are_made_fit_to_be_sent(self):
        table = [
            ("plain", "plain"),
            ("a\x00b\nc\x7fd\x85e", "a b c d e"),
            ("half \ud800", "half ?"),
            ("ü" * 1000, "ü" * 512),
            ("x" + "ü" * 1000, "x" + "ü" * 511),
        ]
        for text, expected in table:
            with self.subTest(text[:10]):
                self.assertEqual(outcome.message_text(text), expected)
        self.assertEqual(outcome.code_text("ü" * 100), "ü" * 64)
        self.assertEqual(outcome.code_text(""), "UNSPECIFIED")

    def test_returned(self):
        text = StringValue(value="x")
        table = [
            (None, OutcomeKind.DONE, b""),
            (b"bytes", OutcomeKind.DONE, b"bytes"),
            (bytearray(b"a"), OutcomeKind.DONE, b"a"),
            (memoryview(b"m"), OutcomeKind.DONE, b"m"),
            (text, OutcomeKind.DONE, text.SerializeToString()),
            (b"x" * 100, OutcomeKind.DONE, b"x" * 100),
            (b"x" * 101, OutcomeKind.UNKNOWN, b""),
            ("text", OutcomeKind.UNKNOWN, b""),
            (7, OutcomeKind.UNKNOWN, b""),
        ]
        for returned, kind, output in table:
            with self.subTest(returned=returned):
                said = outcome.of_return(returned, 100)
                self.assertEqual((said.kind, said.output), (kind, output))

    def test_wrong_arguments_are_refused_at_once(self):
        for call in (
            lambda: Retry(after=-1),
            lambda: Retry(after=24 * 3600 + 1),
            lambda: Retry(after=float("nan")),
            lambda: Rejected(""),
            lambda: AlreadyDone("text", ours=True),
        ):
            with self.assertRaises((ValueError, TypeError)):
                call()


if __name__ == "__main__":
    unittest.main()
