"""The scripted orchestrator: speaks worker.proto, says only what a behaviour tells it to, and remembers
all that it heard. Any thread."""

import collections
import queue
import threading
import time
from concurrent import futures

import grpc
from google.protobuf import text_format
from saga.v1 import saga_pb2, worker_pb2

WORK = "/saga.v1.WorkerService/Work"
WAIT_S = 30  # for what must come; generous, since the machine may be busy
LOG_LINES = 400
END = object()


class Failed(Exception):
    """A behaviour does not hold; the text says what was expected."""


def duration(message, ms):
    message.seconds, message.nanos = ms // 1000, ms % 1000 * 1000000


class Log:
    """What was said, for people who look at a failure."""

    def __init__(self):
        self.started = time.monotonic()
        self.lines = collections.deque(maxlen=LOG_LINES)

    def add(self, who, what):
        if len(what) > 400:
            what = what[:400] + "..."
        self.lines.append("%7.3f %s %s" % (time.monotonic() - self.started, who, what))


class Waiter:
    """Something that changes, and those who wait for it to be so."""

    def __init__(self):
        self.changed = threading.Condition()

    def wait(self, what, predicate, timeout=WAIT_S):
        """Returns the first true value of `predicate`; Failed after `timeout` seconds."""
        until = time.monotonic() + timeout
        with self.changed:
            while True:
                value = predicate()
                if value:
                    return value
                left = until - time.monotonic()
                if left <= 0:
                    raise Failed("did not come within %.1f s: %s" % (timeout, what))
                self.changed.wait(left)


Heard = collections.namedtuple("Heard", "at kind message")


class Session(Waiter):
    """One stream of a worker, from its first message."""

    def __init__(self, server, number):
        super().__init__()
        self.server = server
        self.name = "%s/%d" % (server.name, number)
        self.heard = []  # Heard, all of it
        self.ended_at = None
        self.outgoing = queue.Queue()

    # What it heard.

    def take(self, data):
        message = worker_pb2.WorkerMessage.FromString(data)
        kind = message.WhichOneof("command")
        self.server.log.add(self.name + " <-", text_format.MessageToString(message, as_one_line=True))
        with self.changed:
            self.heard.append(Heard(time.monotonic(), kind, message))
            self.changed.notify_all()
        self.server.on_message(self, kind, message)

    def over(self):
        with self.changed:
            if self.ended_at is None:
                self.ended_at = time.monotonic()
                self.server.log.add(self.name, "the stream ended")
            self.changed.notify_all()
        self.outgoing.put(END)

    def all(self, kind):
        with self.changed:
            return [getattr(one.message, kind) for one in self.heard if one.kind == kind]

    def times(self, kind):
        with self.changed:
            return [one.at for one in self.heard if one.kind == kind]

    def nth(self, kind, number=0, timeout=WAIT_S):
        """The nth message of this kind, counted from 0."""
        return self.wait("%s number %d on %s" % (kind, number + 1, self.name),
                         lambda: self.all(kind)[number:], timeout)[0]

    @property
    def hello(self):
        return self.heard[0].message.hello

    def held(self):
        return sorted(lease.fence for lease in self.hello.held)

    def credit(self, handler):
        """The last total that was said; 0 before any."""
        total = 0
        for credit in self.all("credit"):
            for one in credit.handlers:
                if one.handler == handler:
                    if one.total < total:
                        raise Failed("credit of %s fell from %d to %d" % (handler, total, one.total))
                    total = one.total
        return total

    def wait_credit(self, handler, total, timeout=WAIT_S):
        self.wait("credit %d for %s on %s" % (total, handler, self.name),
                  lambda: self.credit(handler) >= total, timeout)

    def reports(self):
        return [one for report in self.all("report") for one in report.reports]

    def report(self, fence, number=0, timeout=WAIT_S):
        """The nth report of this task on this stream."""
        return self.wait("a report of task %d on %s" % (fence, self.name),
                         lambda: [one for one in self.reports() if one.fence == fence][number:],
                         timeout)[0]

    def fences(self, kind):
        """What Extend or Release messages name, as (time, fence)."""
        with self.changed:
            return [(one.at, lease.fence) for one in self.heard if one.kind == kind
                    for lease in getattr(one.message, kind).leases]

    def named(self, kind, fence, number=0, timeout=WAIT_S):
        """When an Extend or Release named this task for the nth time."""
        return self.wait("%s of task %d on %s" % (kind, fence, self.name),
                         lambda: [at for at, one in self.fences(kind) if one == fence][number:],
                         timeout)[0]

    def wait_end(self, timeout=WAIT_S):
        self.wait("the end of the stream " + self.name, lambda: self.ended_at, timeout)

    # What it says.

    def say(self, message):
        self.server.log.add(self.name + " ->", text_format.MessageToString(message, as_one_line=True)
                            if message.ByteSize() < 4000 else "(%d bytes)" % message.ByteSize())
        self.outgoing.put(message.SerializeToString())

    def say_bytes(self, data):
        self.server.log.add(self.name + " ->", "bytes %r" % data)
        self.outgoing.put(data)

    def welcome(self):
        message = worker_pb2.ServerMessage()
        message.welcome.node, message.welcome.session = self.server.name, 1
        duration(message.welcome.tick_interval, 12000)
        self.say(message)

    def tick(self):
        message = worker_pb2.ServerMessage()
        message.tick.SetInParent()
        self.say(message)

    def tasks(self, tasks):
        message = worker_pb2.ServerMessage()
        message.tasks.tasks.extend(tasks)
        self.say(message)

    def ack(self, reports, result=worker_pb2.Ack.RESULT_ACCEPTED):
        message = worker_pb2.ServerMessage()
        for report in reports:
            message.acks.acks.add(saga_uid=report.saga_uid, fence=report.fence, result=result)
        self.say(message)

    def extended(self, task, lease_ms):
        message = worker_pb2.ServerMessage()
        lease = message.extended.leases.add(saga_uid=task.saga_uid, fence=task.fence)
        duration(lease.lease, lease_ms)
        self.say(message)

    def cancel(self, task):
        message = worker_pb2.ServerMessage()
        message.cancel_hint.saga_uid, message.cancel_hint.fence = task.saga_uid, task.fence
        self.say(message)

    def drain_requested(self, grace_ms):
        message = worker_pb2.ServerMessage()
        duration(message.drain_requested.grace, grace_ms)
        self.say(message)

    def end(self, code=grpc.StatusCode.UNAVAILABLE, details="the script says so"):
        self.outgoing.put((code, details))


class Orchestrator(Waiter):
    """One node. What it does by itself is said by its attributes, which a behaviour may set at any time."""

    def __init__(self, name, log):
        super().__init__()
        self.name, self.log = name, log
        self.welcomes = True
        self.acks = True  # each report, at once
        self.extend_ms = None  # answers each Extend at once; None: not at all
        self.on_report = None  # called with (session, report) after that
        self.sessions = []
        self.grpc_server = None
        self.port = None

    def start(self):
        self.grpc_server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=32),
            handlers=[_Methods(self)],
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                     ("grpc.so_reuseport", 0)])
        self.port = self.grpc_server.add_insecure_port("127.0.0.1:0")
        self.grpc_server.start()

    def stop(self, grace=None):
        """GOAWAY at once; the streams end after `grace` seconds. Returns before that."""
        server, self.grpc_server = self.grpc_server, None
        for session in self.sessions:
            if not grace:
                session.outgoing.put(END)
        return server.stop(grace) if server else None

    def session(self, number, timeout=WAIT_S):
        """The nth stream, counted from 0, once its Hello is there."""
        return self.wait("stream number %d to %s" % (number + 1, self.name),
                         lambda: [one for one in self.sessions if one.heard][number:], timeout)[0]

    def on_message(self, session, kind, message):
        if kind == "hello" and self.welcomes:
            session.welcome()
        elif kind == "report":
            if self.acks:
                session.ack(message.report.reports)
            if self.on_report:
                for report in message.report.reports:
                    self.on_report(session, report)
        elif kind == "extend" and self.extend_ms is not None:
            for lease in message.extend.leases:
                session.extended(lease, self.extend_ms)
        with self.changed:
            self.changed.notify_all()

    def open_session(self):
        with self.changed:
            session = Session(self, len(self.sessions) + 1)
            self.sessions.append(session)
            return session


class _Methods(grpc.GenericRpcHandler):
    """Bytes in, bytes out: the script may say what no stub would."""

    def __init__(self, server):
        self.server = server

    def service(self, details):
        if details.method == WORK:
            return grpc.stream_stream_rpc_method_handler(self.work)
        return None

    def work(self, requests, context):
        session = self.server.open_session()
        context.add_callback(session.over)

        def read():
            try:
                for data in requests:
                    session.take(data)
            except grpc.RpcError:
                pass  # the stream was reset: `over` is called
            except Exception as error:  # a message that is none: shown with the behaviour's failure
                self.server.log.add(session.name, "cannot be read: %r" % error)
            session.outgoing.put(END)

        threading.Thread(target=read, daemon=True).start()
        while True:
            item = session.outgoing.get()
            if item is END:
                return
            if isinstance(item, tuple):
                context.abort(*item)
            yield item


_task_numbers = iter(range(1, 1 << 40))
_task_lock = threading.Lock()


def make_task(handler, payload=b"{}", lease_ms=30000, attempt_ms=60000, **fields):
    """A task as a server sends it, with a fence that no other one has. `fields`: of the message."""
    with _task_lock:
        number = next(_task_numbers)
    task = worker_pb2.Task(
        saga_uid=number.to_bytes(16, "big"), namespace="default", definition="conformance", revision=3,
        saga_id="S-%d" % number, run=1, step="step", handler=handler,
        operation=saga_pb2.OPERATION_KIND_ACTION, fence=number, idempotency_key="key-%d" % number,
        input=payload)
    setattr(task, "try", 1)
    task.saga_start_time.seconds = 1700000000
    duration(task.lease, lease_ms)
    duration(task.attempt_remaining, attempt_ms)
    for name, value in fields.items():
        if isinstance(value, (int, str, bytes, bool)):
            setattr(task, name, value)
        elif isinstance(value, dict):
            getattr(task, name).update(value)
        elif isinstance(value, list):
            getattr(task, name).extend(value)
        else:
            getattr(task, name).CopyFrom(value)
    return task
