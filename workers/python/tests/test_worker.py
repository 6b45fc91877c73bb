"""The worker with a real stream. Goal: what session.py decides really happens, in threads and in an
event loop. Method: a small orchestrator on a loopback port."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from google.protobuf.wrappers_pb2 import StringValue

import sagad
from saga.v1 import saga_pb2, worker_pb2
from tests.server import LIMIT_S, Server, task_message


class Clock:
    def __init__(self):
        self.offset_ms = 0

    def __call__(self):
        return time.monotonic_ns() // 1000000 + self.offset_ms


class WorkerTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.stop)
        self.clock = Clock()
        self.worker = sagad.Worker(
            [self.server.address],
            "test-1",
            concurrency=4,
            clock_ms=self.clock,
            drain_s=5,
        )
        self.thread = threading.Thread(target=self.worker.run)

    def start(self):
        self.thread.start()
        self.addCleanup(self.stop)
        stream = self.server.stream()
        self.hello = stream.welcome()
        return stream

    def stop(self):
        self.worker.drain()
        self.thread.join(LIMIT_S)
        self.assertFalse(self.thread.is_alive())

    def report(self, stream):
        return stream.expect("report").reports[0]

    def test_a_task_is_run_reported_and_acknowledged(self):
        @self.worker.handler("echo", max_in_flight=2)
        def echo(task):
            return task.request()

        stream = self.start()
        self.assertEqual(self.hello.worker_id, "test-1")
        self.assertTrue(self.hello.only_stream)
        credit = stream.expect("credit")
        self.assertEqual([(h.handler, h.total) for h in credit.handlers], [("echo", 2)])
        stream.tasks(task_message(7, input=b"hello"))
        report = self.report(stream)
        self.assertEqual((report.fence, report.outcome), (7, saga_pb2.OUTCOME_DONE))
        self.assertEqual(report.output, b"hello")
        stream.ack(7)
        self.worker.drain()
        stream.expect("drain")
        self.thread.join(LIMIT_S)
        self.assertFalse(self.thread.is_alive())
        self.assertEqual(self.worker.stats.reports_accepted, 1)

    def test_a_handler_with_types(self):
        @self.worker.handler("typed")
        def typed(task: sagad.Task, request: StringValue) -> StringValue:
            return StringValue(value=request.value.upper())

        stream = self.start()
        stream.expect("credit")
        stream.tasks(task_message(1, "typed", input=StringValue(value="abc").SerializeToString()))
        report = self.report(stream)
        self.assertEqual(StringValue.FromString(report.output).value, "ABC")
        stream.tasks(task_message(2, "typed", input=b"\xff\xff"))
        report = self.report(stream)
        self.assertEqual(report.outcome, saga_pb2.OUTCOME_REJECTED)
        self.assertEqual(report.error_code, "BAD_REQUEST")
        for fence in (1, 2):
            stream.ack(fence)

    def test_many_async_handlers_at_once_on_one_thread(self):
        count = 200
        worker = self.worker = sagad.Worker(
            [self.server.address], "test-1", concurrency=count, drain_s=5
        )
        self.thread = threading.Thread(target=worker.run)
        threads, everyone = set(), []

        @worker.handler("echo")
        async def wait_for_all(task):
            threads.add(threading.get_ident())
            everyone.append(task.fence)
            while len(everyone) < count:
                await asyncio.sleep(0.01)
            return b"all"

        stream = self.start()
        stream.expect("credit")
        stream.tasks(*(task_message(fence) for fence in range(1, count + 1)))
        fences = set()
        while len(fences) < count:
            for report in stream.expect("report").reports:
                self.assertEqual(report.output, b"all")
                fences.add(report.fence)
                stream.ack(report.fence)
        self.assertEqual(len(threads), 1)

    def test_serve_runs_async_handlers_in_the_callers_loop(self):
        loops = []

        @self.worker.handler("echo")
        async def echo(task):
            loops.append(asyncio.get_running_loop())
            return task.request()

        async def main():
            loops.append(asyncio.get_running_loop())
            await self.worker.serve()

        self.thread = threading.Thread(target=lambda: asyncio.run(main()))
        stream = self.start()
        stream.expect("credit")
        stream.tasks(task_message(1, input=b"x"))
        self.assertEqual(self.report(stream).output, b"x")
        stream.ack(1)
        self.stop()
        self.assertIs(loops[0], loops[1])

    def test_a_lost_lease_stops_handlers_of_both_kinds(self):
        reasons = {}

        @self.worker.handler("blocking")
        def blocking(task):
            reasons["blocking"] = task.wait_stop(LIMIT_S)
            reasons["mine"] = task.still_mine()

        @self.worker.handler("async")
        async def cancelled(task):
            try:
                await asyncio.sleep(LIMIT_S)
            except asyncio.CancelledError:
                reasons["async"] = task.stop_reason
                raise

        stream = self.start()
        stream.expect("credit")
        stream.tasks(task_message(1, "blocking"), task_message(2, "async"))
        while self.worker.stats.tasks_started < 2:
            time.sleep(0.01)
        self.clock.offset_ms += 24001
        outcomes = {}
        while len(outcomes) < 2:
            for report in stream.expect("report").reports:
                outcomes[report.fence] = report.outcome, report.error_code
        self.assertEqual(outcomes[1], (saga_pb2.OUTCOME_DONE, ""))
        self.assertEqual(outcomes[2], (saga_pb2.OUTCOME_UNKNOWN, "CancelledError"))
        lost = sagad.Stop.LOST
        self.assertEqual(reasons, {"blocking": lost, "async": lost, "mine": False})
        for fence in (1, 2):
            stream.ack(fence)

    def test_a_cancel_hint_wakes_an_async_handler_and_does_not_end_it(self):
        @self.worker.handler("echo")
        async def patient(task):
            return (await task.stopped()).name.encode()

        stream = self.start()
        stream.expect("credit")
        stream.tasks(task_message(1))
        while self.worker.stats.tasks_started < 1:
            time.sleep(0.01)
        stream.send(cancel_hint=worker_pb2.CancelHint(saga_uid=bytes(range(16)), fence=1))
        report = self.report(stream)
        self.assertEqual((report.outcome, report.output), (saga_pb2.OUTCOME_DONE, b"CANCELLED"))
        stream.ack(1)

    def test_leases_are_extended_while_handlers_burn_cpu(self):
        until = time.monotonic() + 2

        @self.worker.handler("echo")
        async def burn(task):
            while time.monotonic() < until:
                pass

        stream = self.start()
        stream.expect("credit")
        stream.tasks(task_message(1, lease_s=1.5))
        self.assertEqual(stream.expect("extend").leases[0].fence, 1)
        self.assertLess(time.monotonic(), until)
        self.assertEqual(self.report(stream).outcome, saga_pb2.OUTCOME_DONE)
        stream.ack(1)

    def test_a_report_without_ack_is_said_again_on_the_next_stream(self):
        @self.worker.handler("echo")
        def echo(task):
            return b"once"

        stream = self.start()
        stream.expect("credit")
        stream.tasks(task_message(1))
        self.report(stream)
        stream.end()
        stream = self.server.stream()
        hello = stream.welcome()
        self.assertEqual([held.fence for held in hello.held], [1])
        self.assertEqual(self.report(stream).output, b"once")
        stream.ack(1)

    def test_what_else_a_handler_may_do(self):
        @self.worker.handler("echo")
        def failing(task):
            what = task.request().decode()
            if what == "raise":
                raise ZeroDivisionError("no\x00control")
            if what == "exit":
                sys.exit(3)
            if what == "huge":
                return b"x" * (sagad.worker.OUTPUT_BYTES_MAX + 1)
            if what == "text":
                return "no bytes"
            raise sagad.Retry("LATER", after=1.5)

        stream = self.start()
        stream.expect("credit")
        unknown, retry = saga_pb2.OUTCOME_UNKNOWN, saga_pb2.OUTCOME_RETRY
        table = [
            ("raise", unknown, "ZeroDivisionError"),
            ("exit", unknown, "SystemExit"),
            ("huge", unknown, "OUTPUT_TOO_LARGE"),
            ("text", unknown, "BAD_OUTPUT"),
            ("retry", retry, "LATER"),
        ]
        for fence, (what, outcome, code) in enumerate(table, 1):
            with self.subTest(what):
                stream.tasks(task_message(fence, input=what.encode()))
                report = self.report(stream)
                self.assertEqual((report.outcome, report.error_code), (outcome, code))
                self.assertNotIn("\x00", report.error_message)
                stream.ack(fence)
        self.assertEqual(report.retry_after.ToMilliseconds(), 1500)

    def test_a_classify_that_fails_is_unknown(self):
        def classify(error):
            raise KeyError("a mistake of the user")

        self.worker.classify = classify

        @self.worker.handler("echo")
        def failing(task):
            raise OSError("gone")

        stream = self.start()
        stream.expect("credit")
        stream.tasks(task_message(1))
        report = self.report(stream)
        self.assertEqual((report.outcome, report.error_code), (saga_pb2.OUTCOME_UNKNOWN, "OSError"))
        stream.ack(1)

    def test_drain_waits_for_handlers_and_gives_back_the_rest(self):
        go = threading.Event()

        @self.worker.handler("echo", max_in_flight=1)
        def wait(task):
            go.wait(LIMIT_S)

        @self.worker.handler("queued", max_in_flight=8)
        def queued(task):
            go.wait(LIMIT_S)

        stream = self.start()
        stream.expect("credit")
        stream.tasks(*(task_message(fence, "queued") for fence in range(1, 7)))
        while self.worker.stats.tasks_started < 4:
            time.sleep(0.01)
        self.worker.drain()
        stream.expect("drain")
        released = stream.expect("release")
        self.assertEqual([lease.fence for lease in released.leases], [5, 6])
        self.assertTrue(self.thread.is_alive())
        go.set()
        fences = set()
        while len(fences) < 4:
            for report in stream.expect("report").reports:
                fences.add(report.fence)
                stream.ack(report.fence)
        self.thread.join(LIMIT_S)
        self.assertFalse(self.thread.is_alive())

    def test_a_connection_that_nobody_answers_does_not_hold_up_the_end(self):
        self.server.stop()

        @self.worker.handler("echo")
        def echo(task):
            return None

        self.thread.start()
        self.stop()

    def test_wrong_options_and_handlers_are_refused(self):
        address = [self.server.address]
        table = [
            (lambda: sagad.Worker("localhost:1", "w"), "is a list"),
            (lambda: sagad.Worker([], "w"), "1 to 16 addresses"),
            (lambda: sagad.Worker(["a:1", "a:1"], "w"), "twice"),
            (lambda: sagad.Worker(address, ""), "worker_id"),
            (lambda: sagad.Worker(address, "a\nb"), "worker_id"),
            (lambda: sagad.Worker(address, "w", concurrency=0), "concurrency"),
            (lambda: sagad.Worker(address, "w", drain_s=-1), "drain_s"),
            (lambda: self.worker.handle("a b", lambda task: None), "name"),
            (lambda: self.worker.handle("a", lambda task: None, max_in_flight=0), "max_in_flight"),
            (lambda: self.worker.handle("a", lambda: None), "takes the task"),
            (lambda: self.worker.handle("a", lambda task, request: None), "annotate"),
        ]
        for call, why in table:
            with self.subTest(why), self.assertRaisesRegex(ValueError, why):
                call()
        with self.assertRaisesRegex(RuntimeError, "no handler"):
            self.worker.run()


PROGRAM = """
import sys, sagad
worker = sagad.Worker([sys.argv[1]], "test-1", drain_s=5)
@worker.handler("echo")
def echo(task):
    print("started", flush=True)
    task.wait_stop()
    return task.stop_reason.name.encode()
worker.run(handle_signals=True)
print("ended", flush=True)
"""


FORKS = """
import concurrent.futures, gc, subprocess, threading, time
import grpc
from sagad.client import Client, SagaError
end = time.monotonic() + 5
def come_and_go():
    while time.monotonic() < end:
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with Client(f"127.0.0.1:{port}", timeout=1) as client:
            try:
                client.get("d", "s")
            except SagaError:
                pass
        server.stop(0).wait()
        del client, server
        gc.collect()
        time.sleep(0.01)
thread = threading.Thread(target=come_and_go)
thread.start()
while time.monotonic() < end:
    subprocess.run(["/bin/true"], preexec_fn=lambda: None)
thread.join()
"""


class ForkTest(unittest.TestCase):
    def test_a_fork_while_channels_come_and_go(self):
        subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=60)


class SignalTest(unittest.TestCase):
    def test_sigterm_drains(self):
        server = Server()
        self.addCleanup(server.stop)
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, server.address], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.kill)
        stream = server.stream()
        stream.welcome()
        stream.expect("credit")
        stream.tasks(task_message(1))
        self.assertEqual(program.stdout.readline(), "started\n")
        os.kill(program.pid, signal.SIGTERM)
        self.assertEqual(stream.expect("report").reports[0].output, b"DRAINING")
        stream.ack(1)
        self.assertEqual(program.wait(LIMIT_S), 0)
        self.assertEqual(program.stdout.read(), "ended\n")


if __name__ == "__main__":
    unittest.main()
