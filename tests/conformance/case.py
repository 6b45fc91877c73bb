"""What a behaviour is written with: one run of it against one language's worker."""

import collections
import json
import os
import signal
import socket
import threading
import time

from cutter import Cutter
from orchestrator import Failed, Log, Orchestrator, make_task, WAIT_S
from saga.v1 import saga_pb2
from worker import Worker

BEHAVIOURS = {}  # name: (group, what it proves, function), in order
IN_TIME_S = 0.6  # how late something may be on an idle machine


class Lateness:
    """How late this machine is: what a short sleep took too long, lately. What must come in time may be later
    by that, so that a busy machine does not fail what only a wrong worker should."""

    PIECE_S = 0.02

    def __init__(self):
        self.late = collections.deque(maxlen=int(60 / self.PIECE_S))  # (when, seconds)
        threading.Thread(target=self._measure, daemon=True).start()

    def _measure(self):
        while True:
            before = time.monotonic()
            time.sleep(self.PIECE_S)
            now = time.monotonic()
            self.late.append((now, now - before - self.PIECE_S))

    def worst(self, since):
        return max([late for at, late in list(self.late) if at >= since], default=0.0)


LATENESS = Lateness()


def check_between(what, took, least, most):
    """Seconds: never before `least`; after `most` only by what the machine was late."""
    extra = IN_TIME_S + 4 * LATENESS.worst(time.monotonic() - took - 1)
    check(least <= took <= most + extra, "%s after %.2f s, not between %.2f and %.2f", what, took, least, most + extra)


class Skipped(Exception):
    """It cannot be tried here; the text says why."""


def behaviour(group, proves):
    """A function of a Case; its name is the behaviour's."""
    def add(function):
        assert function.__name__ not in BEHAVIOURS, function.__name__
        BEHAVIOURS[function.__name__] = (group, proves, function)
        return function
    return add


def check(holds, expected, *values):
    if not holds:
        raise Failed(expected % values if values else expected)


def check_equal(what, got, wanted):
    if got != wanted:
        raise Failed("%s: %.300r, not %.300r" % (what, got, wanted))


def outcome_name(report):
    return saga_pb2.Outcome.Name(report.outcome).replace("OUTCOME_", "")


def script(do="done", then=None, **members):
    members["do"] = do
    if then is not None:
        members["then"] = then
    return members


def pack(members):
    return json.dumps(members, ensure_ascii=False).encode()


class Node:
    """An orchestrator and the cutter in front of it, which has the address that the worker knows."""

    def __init__(self, name, log):
        self.orchestrator = Orchestrator(name, log)
        self.orchestrator.start()
        self.cutter = Cutter(self.orchestrator.port)
        self.address = "127.0.0.1:%d" % self.cutter.port
        self.log = log

    def session(self, number=0, timeout=WAIT_S):
        return self.orchestrator.session(number, timeout)

    def replace(self, grace=None, down_s=0):
        """Another orchestrator process at the same address. With `grace` the old one says GOAWAY first and
        serves its streams for so long; with `down_s` nobody listens for so long."""
        old = self.orchestrator
        old.stop(grace)
        if down_s:
            self.cutter.refuses = True
            self.cutter.cut()
            time.sleep(down_s)  # the time itself is what is tried
        self.orchestrator = Orchestrator(old.name + "'", self.log)
        self.orchestrator.start()
        self.cutter.target_port = self.orchestrator.port
        self.cutter.refuses = False
        return old

    def close(self):
        self.cutter.close()
        self.orchestrator.stop()


class Case:
    def __init__(self, language, folder):
        self.language, self.folder = language, folder
        self.log = Log()
        self.nodes, self.workers, self.closing = [], [], []
        self.program = os.path.join(os.path.dirname(os.path.abspath(__file__)), language, "run")

    def node(self):
        node = Node("node-%d" % (len(self.nodes) + 1), self.log)
        self.nodes.append(node)
        return node

    def start(self, handlers="h:4", nodes=None, concurrency=8, drain_ms=5000, **variables):
        """Starts a worker and waits until it says `ready`. Returns it."""
        for node in nodes or self.nodes or [self.node()]:
            variables.setdefault("addresses", []).append(node.address)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
        environment.update(
            {"SAGA_WORKER_ID": "worker-1", "SAGA_HANDLERS": handlers, "SAGA_CONCURRENCY": str(concurrency),
             "SAGA_DRAIN_MS": str(drain_ms), "SAGA_SIGNALS": "1",
             "SAGA_ADDRESSES": ",".join(variables.pop("addresses"))})
        environment.update({"SAGA_" + name.upper(): str(value) for name, value in variables.items()})
        worker = Worker(self.program, environment, self.log, self.stderr_path())
        self.workers.append(worker)
        worker.event("ready", timeout=60)
        return worker

    def serve(self, handlers="h:4", **variables):
        """The simple case: one node, one worker, its first stream with the first handler's credit."""
        worker = self.start(handlers, **variables)
        session = self.nodes[0].session()
        name, most = handlers.split(",")[0].split(":")[:2]
        session.wait_credit(name, int(most))
        return worker, session

    def send(self, session, members=None, handler="h", lease_ms=30000, attempt_ms=60000, **fields):
        """Sends one task whose request says what its handler does. Returns it, with when it was sent."""
        task = make_task(handler, pack(members or script()), lease_ms, attempt_ms, **fields)
        at = time.monotonic()
        session.tasks([task])
        return task, at

    def outcome(self, session, members, handler="h", **fields):
        """Sends a task and returns its report."""
        task, _ = self.send(session, members, handler, **fields)
        return session.report(task.fence)

    def settle(self, seconds):
        """Lets so much time pass, and what this machine is late beside it: for what must not come, or has no
        answer by which it could be known to have arrived."""
        time.sleep(seconds + 4 * LATENESS.worst(time.monotonic() - 2))

    def check_serves(self, session, handler="h"):
        """An ordinary task, on this stream, is done."""
        report = self.outcome(session, script("done", output="still here"), handler, lease_ms=600000,
                              attempt_ms=900000)  # longer than any jump of the clock
        check_equal("outcome of an ordinary task afterwards", outcome_name(report), "DONE")
        check_equal("its output", report.output, b"still here")

    def closed_port(self):
        """A port of loopback where nobody listens, and nobody else will."""
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        self.closing.append(sock.close)
        return sock.getsockname()[1]

    def stderr_path(self):
        return os.path.join(self.folder, "stderr")

    def close(self):
        for worker in self.workers:
            try:
                worker.signal(signal.SIGCONT)  # a stopped one would not be seen to end
            except ProcessLookupError:
                pass
            worker.close()
        for node in self.nodes:
            node.close()
        for close in self.closing:
            close()


def listen_and(case, serve):
    """A port; `serve(connection)` is called in a thread for each connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    case.closing.append(listener.close)

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]
