"""What a worker knows and says. Goal: no slot, report or lease is lost or counted twice over drops
and reconnects, and wrong messages end the stream and nothing else. Method: pool.py and session.py
alone, with the time in our hand; a scenario is a table of turns, and each says what is to come of
it."""

import random
import unittest

import sagad.pool
import sagad.session
from sagad.outcome import Outcome, OutcomeKind
from sagad.pool import Awake, Phase, Pool, State, Stop
from sagad.session import ProtocolError, Session
from saga.v1 import saga_pb2, worker_pb2
from tests.server import task_message

LEASE_MS = 30000
DONE = Outcome(OutcomeKind.DONE, output=b"x")
UID = bytes(range(16))


class World:
    """A pool with streams, and the clock. A turn is a method's name and its arguments."""

    def __init__(self, streams=1, handlers=(("debit", 3), ("ledger", 2)), concurrency=100):
        self.now = 1000000
        self.pool = Pool("test-1", "0" * 32, concurrency, 5000, random.Random(7))
        for name, slots in handlers:
            self.pool.handle(name, slots, None)
        self.sessions = [Session(self.pool) for _ in range(streams)]
        self.taken = {}

    # Turns: what is answered is compared with the table.

    def wait(self, ms):
        self.now += ms

    def open(self, at=0):
        self.sessions[at].opened(self.now)

    def connect(self, at=0):
        """Opens and is welcome: the fences of its Hello."""
        self.open(at)
        hello = self.sessions[at].next(self.now).hello
        self.receive(worker_pb2.ServerMessage(welcome=worker_pb2.Welcome(node="n")), at)
        return [held.fence for held in hello.held]

    def lose(self, at=0):
        self.sessions[at].lost(self.now)

    def deliver(self, *fences, at=0, handler="debit", since=0, **more):
        tasks = [task_message(fence, handler, **more) for fence in fences]
        message = worker_pb2.ServerMessage(tasks=worker_pb2.Tasks(tasks=tasks))
        self.receive(message, at, since)

    def take(self):
        """The fence of the task that runs now, or None."""
        held = self.pool.take(self.now)
        if held:
            self.taken[held.fence] = held
        return held and held.fence

    def finish(self, fence, outcome=DONE):
        self.pool.finish(self.taken[fence], outcome, self.now)

    def ack(self, fence, result=worker_pb2.Ack.RESULT_ACCEPTED, at=0):
        ack = worker_pb2.Ack(saga_uid=UID, fence=fence, result=result)
        self.receive(worker_pb2.ServerMessage(acks=worker_pb2.Acks(acks=[ack])), at)

    def extended(self, fence, ms, at=0):
        message = worker_pb2.ServerMessage()
        lease = message.extended.leases.add(saga_uid=UID, fence=fence)
        lease.lease.FromMilliseconds(ms)
        self.receive(message, at)

    def cancel(self, fence, at=0):
        hint = worker_pb2.CancelHint(saga_uid=UID, fence=fence)
        self.receive(worker_pb2.ServerMessage(cancel_hint=hint), at)

    def server_drains(self, grace_ms=2000, at=0):
        message = worker_pb2.ServerMessage()
        message.drain_requested.grace.FromMilliseconds(grace_ms)
        self.receive(message, at)

    def drain(self):
        self.pool.drain(self.now)

    def drained(self):
        return self.pool.is_drained(self.now)

    def over(self, at=0):
        return self.sessions[at].is_over(self.now)

    def left(self, fence):
        return self.taken[fence].lease_left_ms(self.now)

    def stop(self, fence):
        return self.taken[fence].stop(self.now, self.pool.draining)

    def told(self):
        return [(held.fence, stop) for held, stop in self.pool.stops(self.now)[0]]

    def say(self, at=0):
        """The next message, in short."""
        message = self.sessions[at].next(self.now)
        if message is None:
            return None
        command = message.WhichOneof("command")
        if command == "credit":
            return {h.handler: h.total for h in message.credit.handlers}
        if command == "report":
            return ("report", [report.fence for report in message.report.reports])
        if command in ("extend", "release"):
            return (command, [lease.fence for lease in getattr(message, command).leases])
        return command

    def stats(self, name):
        return getattr(self.pool.stats, name)

    def receive(self, message, at=0, since=0):
        self.sessions[at].receive(message.SerializeToString(), self.now - since, self.now)


ACCEPTED = worker_pb2.Ack.RESULT_ACCEPTED
CREDIT = {"debit": 3, "ledger": 2}

# name: (options of the world, [(turn, arguments..., what it answers)]). A turn without an answer to
# compare is written with `...`.
SCENARIOS = {
    "credit is absolute and grows when a report was sent": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("say", None),
            ("deliver", 1, 2, 3, ...),
            ("take", 1),
            ("say", None),
            ("finish", 1, ...),
            ("say", ("report", [1])),
            ("say", {"debit": 4}),
            ("say", None),
            ("ack", 1, ...),
            ("say", None),  # the ack frees no second slot
            ("stats", "reports_accepted", 1),
        ],
    ),
    "idle: the same totals again": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("wait", sagad.session.IDLE_MS - 1, ...),
            ("say", None),
            ("wait", 1, ...),
            ("say", CREDIT),
            ("say", None),
        ],
    ),
    "a new stream counts credit from the start": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, ...),
            ("lose", ...),
            ("connect", []),  # what no handler has seen is not in it
            ("say", CREDIT),
            ("take", None),
        ],
    ),
    "a task that comes twice runs once": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, 1, ...),
            ("take", 1),
            ("take", None),
        ],
    ),
    "a lost stream keeps what was started, and says it again": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, 2, 3, ...),
            ("take", 1),
            ("take", 2),
            ("finish", 1, ...),
            ("say", ("report", [1])),
            ("lose", ...),
            ("connect", [2, 1]),
            ("say", ("extend", [2])),
            ("say", ("report", [1])),
            ("ack", 1, ...),
            ("lose", ...),
            ("connect", [2]),
        ],
    ),
    "an ack before the report was said again": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, ...),
            ("take", 1),
            ("finish", 1, ...),
            ("ack", 1, ...),
            ("say", {"debit": 4}),
            ("say", None),
        ],
    ),
    "acks are counted by their result": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, 2, ...),
            ("take", 1),
            ("take", 2),
            ("finish", 1, ...),
            ("finish", 2, ...),
            ("say", ("report", [1, 2])),
            ("ack", 1, worker_pb2.Ack.RESULT_STALE, ...),
            ("ack", 2, worker_pb2.Ack.RESULT_DUPLICATE, ...),
            ("ack", 2, worker_pb2.Ack.RESULT_DUPLICATE, ...),
            ("stats", "reports_stale", 1),
            ("stats", "reports_duplicate", 1),
        ],
    ),
    "a lease is extended every third of it, also of what waits": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, 2, ...),
            ("take", 1),
            ("wait", LEASE_MS // 3 - 1, ...),
            ("say", None),
            ("wait", 1, ...),
            ("say", ("extend", [1, 2])),
            ("say", None),
            ("wait", LEASE_MS // 3, ...),
            ("say", ("extend", [1, 2])),
        ],
    ),
    "a lease runs from when its confirmation was asked for": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, ...),
            ("take", 1),
            ("wait", LEASE_MS // 3, ...),
            ("say", ("extend", [1])),
            ("wait", LEASE_MS * 80 // 100 - LEASE_MS // 3 - 1, ...),
            ("left", 1, 1),
            ("stop", 1, None),
            ("wait", 1, ...),
            ("stop", 1, Stop.LOST),
            ("extended", 1, LEASE_MS, ...),
            ("left", 1, LEASE_MS // 3),
            ("stop", 1, None),
            ("extended", 1, LEASE_MS, ...),  # nobody asked: it confirms nothing
            ("left", 1, LEASE_MS // 3),
            ("extended", 1, 0, ...),
            ("stop", 1, Stop.LOST),
            ("stats", "leases_lost", 1),
        ],
    ),
    "an answer counts from the oldest question without one": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, ...),
            ("take", 1),
            ("wait", LEASE_MS // 3, ...),
            ("say", ("extend", [1])),
            ("wait", LEASE_MS // 3, ...),
            ("say", ("extend", [1])),
            ("extended", 1, LEASE_MS, ...),
            ("left", 1, LEASE_MS * 80 // 100 - LEASE_MS // 3),
        ],
    ),
    "a short lease is not asked for more often than every half second": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, {"lease_s": 0.6}, ...),
            ("take", 1),
            ("wait", 200, ...),
            ("say", ("extend", [1])),
            ("wait", 499, ...),
            ("say", None),
            ("wait", 1, ...),
            ("say", ("extend", [1])),
        ],
    ),
    "a message that lay in the socket counts from before": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, {"since": LEASE_MS}, ...),
            ("take", None),  # never started: given back
            ("say", ("release", [1])),
            ("say", {"debit": 4}),
        ],
    ),
    "the attempt time ends it too": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, {"attempt_s": 5}, ...),
            ("take", 1),
            ("wait", 4999, ...),
            ("stop", 1, None),
            ("wait", 1, ...),
            ("stop", 1, Stop.LOST),
            ("wait", LEASE_MS // 3, ...),
            ("say", CREDIT),  # idle; such a lease is not extended
            ("say", None),
        ],
    ),
    "a cancel hint tells the running and gives back the waiting": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, 2, ...),
            ("take", 1),
            ("cancel", 1, ...),
            ("cancel", 2, ...),
            ("cancel", 77, ...),
            ("told", [(1, Stop.CANCELLED)]),
            ("told", []),
            ("say", ("release", [2])),
            ("wait", LEASE_MS, ...),
            ("told", [(1, Stop.LOST)]),
        ],
    ),
    "drain says so, gives back, waits and ends": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, 2, ...),
            ("take", 1),
            ("drain", ...),
            ("told", [(1, Stop.DRAINING)]),
            ("say", "drain"),
            ("say", ("release", [2])),
            ("deliver", 3, ...),  # was on its way
            ("say", ("release", [3])),
            ("say", None),
            ("wait", 60000, ...),
            ("drained", False),
            ("finish", 1, ...),
            ("say", ("report", [1])),
            ("drained", False),
            ("ack", 1, ...),
            ("drained", True),
        ],
    ),
    "drain waits for acks no longer than its limit": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, ...),
            ("take", 1),
            ("drain", ...),
            ("say", "drain"),
            ("finish", 1, ...),
            ("say", ("report", [1])),
            ("wait", 4999, ...),
            ("drained", False),
            ("wait", 1, ...),
            ("drained", True),
        ],
    ),
    "a drain that lasts repeats the same credit, and no more": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, ...),
            ("take", 1),
            ("drain", ...),
            ("say", "drain"),
            ("finish", 1, ...),
            ("say", ("report", [1])),
            ("wait", sagad.session.IDLE_MS, ...),
            ("say", CREDIT),
        ],
    ),
    "drain lingers for what may be on its way": (
        {},
        [
            ("connect", []),
            ("drain", ...),
            ("drained", False),
            ("say", "drain"),
            ("wait", sagad.pool.LINGER_MS - 1, ...),
            ("drained", False),
            ("wait", 1, ...),
            ("drained", True),
        ],
    ),
    "a server that goes away is left once nothing is unsettled": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, 2, ...),
            ("take", 1),
            ("server_drains", ...),
            ("say", ("release", [2])),
            ("say", None),
            ("over", False),
            ("finish", 1, ...),
            ("say", ("report", [1])),
            ("over", False),
            ("ack", 1, ...),
            ("over", True),
        ],
    ),
    "a server that goes away is left after half its grace, though something runs": (
        {},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, ...),
            ("take", 1),
            ("server_drains", 2000, ...),
            ("wait", 999, ...),
            ("over", False),
            ("wait", 1, ...),
            ("over", True),
        ],
    ),
    "a silent server is given up": (
        {},
        [
            ("open", ...),
            ("wait", sagad.session.WELCOME_MS - 1, ...),
            ("over", False),
            ("wait", 1, ...),
            ("over", True),
            ("lose", ...),
            ("connect", []),
            ("wait", sagad.session.SILENCE_MS - 1, ...),
            ("over", False),
            ("wait", 1, ...),
            ("over", True),
        ],
    ),
    "no more run at a time than concurrency": (
        {"concurrency": 2},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, 2, 3, ...),
            ("take", 1),
            ("take", 2),
            ("take", None),
            ("finish", 1, ...),
            ("take", 3),
        ],
    ),
    "idle slots are offered to every node, and what is beyond them is given back": (
        {"streams": 2},
        [
            ("connect", []),
            ("say", CREDIT),
            ("wait", sagad.pool.SPARE_MS, ...),
            ("connect", {"at": 1}, []),
            ("say", {"at": 1}, CREDIT),
            ("deliver", 1, 2, 3, ...),
            ("deliver", 4, 5, 6, {"at": 1}, ...),
            ("take", 1),
            ("take", 4),
            ("take", 2),
            ("take", None),
            ("wait", sagad.pool.SURPLUS_MS - 1, ...),
            ("say", None),
            ("say", {"at": 1}, None),
            ("wait", sagad.pool.SPARE_MS, ...),
            ("say", ("release", [3])),
            ("say", {"at": 1}, ("release", [5, 6])),
            ("say", None),
            ("say", {"at": 1}, None),
        ],
    ),
    "slots of a busy worker are offered in turn": (
        {"streams": 2, "handlers": (("debit", 2),)},
        [
            ("connect", []),
            ("say", {"debit": 2}),
            ("wait", sagad.pool.SPARE_MS, ...),
            ("connect", {"at": 1}, []),
            ("say", {"at": 1}, {"debit": 2}),
            ("deliver", 1, 2, ...),
            ("deliver", 3, 4, {"at": 1}, ...),
            ("take", 1),
            ("take", 3),
            ("finish", 1, ...),
            ("take", 2),
            ("finish", 3, ...),
            ("say", ("report", [1])),  # its slot goes to nobody: what waits has taken it
            ("say", None),
            ("say", {"at": 1}, ("report", [3])),
            ("say", {"at": 1}, None),
            ("take", 4),
            ("finish", 2, ...),
            ("say", ("report", [2])),
            ("say", None),
            ("say", {"at": 1}, {"debit": 3}),
            ("finish", 4, ...),
            ("say", {"at": 1}, ("report", [4])),
            ("say", {"at": 1}, None),
            ("say", {"debit": 3}),
        ],
    ),
    "nodes that are equally busy get the slots in turn": (
        {"streams": 2, "handlers": (("debit", 1),)},
        [
            ("connect", []),
            ("say", {"debit": 1}),
            ("wait", sagad.pool.SPARE_MS, ...),
            ("connect", {"at": 1}, []),
            ("say", {"at": 1}, {"debit": 1}),
            ("deliver", 1, ...),
            ("deliver", 2, {"at": 1}, ...),
            ("take", 1),
            ("finish", 1, ...),
            ("say", ("report", [1])),
            ("take", 2),
            ("finish", 2, ...),
            ("say", {"at": 1}, ("report", [2])),
            ("say", None),
            ("say", {"at": 1}, {"debit": 2}),
            ("deliver", 3, {"at": 1}, ...),
            ("take", 3),
            ("finish", 3, ...),
            ("say", {"at": 1}, ("report", [3])),
            ("say", {"at": 1}, None),
            ("say", {"debit": 2}),
        ],
    ),
    "another stream speaks for a dead one": (
        {"streams": 2},
        [
            ("connect", []),
            ("say", CREDIT),
            ("wait", sagad.pool.SPARE_MS, ...),
            ("connect", {"at": 1}, []),
            ("say", {"at": 1}, CREDIT),
            ("deliver", 1, 2, 3, ...),
            ("take", 1),
            ("take", 2),
            ("finish", 1, ...),
            ("say", ("report", [1])),
            ("lose", ...),
            ("say", {"at": 1}, ("extend", [2])),
            ("say", {"at": 1}, ("report", [1])),
            ("say", {"at": 1}, ("release", [3])),
            ("connect", [2, 1]),
        ],
    ),
    "with no stream all of it waits for the first that is welcome": (
        {"streams": 2},
        [
            ("connect", []),
            ("say", CREDIT),
            ("deliver", 1, 2, ...),
            ("take", 1),
            ("lose", ...),
            ("connect", {"at": 1}, [1]),
            ("say", {"at": 1}, ("extend", [1])),
            ("say", {"at": 1}, ("release", [2])),
        ],
    ),
    "a drain is said on every stream": (
        {"streams": 2},
        [
            ("connect", []),
            ("connect", {"at": 1}, []),
            ("drain", ...),
            ("say", "drain"),
            ("wait", sagad.pool.LINGER_MS, ...),
            ("drained", False),
            ("say", {"at": 1}, "drain"),
            ("wait", sagad.pool.LINGER_MS, ...),
            ("drained", True),
        ],
    ),
}


class ScenarioTest(unittest.TestCase):
    def test_scenarios(self):
        for name, (options, turns) in SCENARIOS.items():
            with self.subTest(name):
                world = World(**options)
                for number, (turn, *arguments, expected) in enumerate(turns):
                    named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
                    answer = getattr(world, turn)(*arguments, **named)
                    if expected is not ...:
                        self.assertEqual(answer, expected, f"turn {number}, {turn} {arguments}")


class ReceiveTest(unittest.TestCase):
    """What the server must not say ends the stream, and changes nothing."""

    def setUp(self):
        self.world = World()
        self.world.connect()
        self.world.say()

    def refuse(self, message, why):
        data = message if isinstance(message, bytes) else message.SerializeToString()
        with self.assertRaisesRegex(ProtocolError, why):
            self.world.sessions[0].receive(data, self.world.now, self.world.now)

    def test_malformed_messages(self):
        def task(**change):
            message = worker_pb2.ServerMessage()
            message.tasks.tasks.append(task_message(1, "debit"))
            for name, value in change.items():
                if value is None:
                    message.tasks.tasks[0].ClearField(name)
                else:
                    setattr(message.tasks.tasks[0], name, value)
            return message

        def late(seconds):
            message = task()
            message.tasks.tasks[0].saga_start_time.seconds = seconds
            return message

        def negative():
            message = task()
            message.tasks.tasks[0].lease.nanos = -1
            return message

        table = [
            (b"\xff\xff\xff", "no message"),
            (task(saga_uid=b"short"), "malformed task"),
            (task(fence=0), "malformed task"),
            (task(lease=None), "malformed task"),
            (task(attempt_remaining=None), "malformed task"),
            (task(operation=saga_pb2.OPERATION_KIND_UNSPECIFIED), "malformed task"),
            (task(saga_start_time=None), "malformed task"),
            (late(1 << 40), "malformed task"),
            (negative(), "malformed task"),
            (task(handler="nobody"), "not ours"),
        ]
        for message, why in table:
            with self.subTest(why):
                self.refuse(message, why)
        for command, name in (("acks", "acks"), ("extended", "leases")):
            message = worker_pb2.ServerMessage()
            getattr(getattr(message, command), name).add(saga_uid=b"x", fence=1)
            self.refuse(message, "malformed")
        message = worker_pb2.ServerMessage(cancel_hint=worker_pb2.CancelHint(saga_uid=b"x"))
        self.refuse(message, "malformed")
        self.assertEqual(self.world.pool.tasks, {})

    def test_more_tasks_than_credit(self):
        self.world.deliver(1, 2, 3)
        with self.assertRaisesRegex(ProtocolError, "more tasks of debit than credit"):
            self.world.deliver(4)

    def test_an_ack_without_a_result(self):
        self.world.deliver(1)
        self.world.take()
        self.world.finish(1)
        with self.assertRaisesRegex(ProtocolError, "without a result"):
            self.world.ack(1, worker_pb2.Ack.RESULT_UNSPECIFIED)

    def test_a_word_of_a_newer_server_is_passed_over(self):
        self.world.wait(1000)
        self.world.sessions[0].receive(b"\xfa\x01\x00", self.world.now, self.world.now)
        self.assertEqual(self.world.sessions[0].heard_ms, self.world.now)

    def test_damaged_bytes_end_in_a_protocol_error_or_nothing(self):
        message = worker_pb2.ServerMessage()
        message.tasks.tasks.append(task_message(1, "debit"))
        whole, rng = message.SerializeToString(), random.Random(3)
        for _ in range(500):
            data = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(128)  # so that no text is wrong
            world = World()
            world.connect()
            world.say()
            try:
                world.sessions[0].receive(bytes(data), world.now, world.now)
            except ProtocolError:
                continue
            world.take()
            world.say()


class LimitsTest(unittest.TestCase):
    def test_reports_go_in_batches(self):
        world = World(handlers=(("debit", 1000),), concurrency=1000)
        world.connect()
        world.say()
        world.deliver(*range(1, 601))
        for fence in range(1, 601):
            self.assertEqual(world.take(), fence)
            world.finish(fence)
        self.assertEqual(len(world.say()[1]), sagad.session.REPORTS_MAX)
        self.assertEqual(len(world.say()[1]), 600 - sagad.session.REPORTS_MAX)

    def test_a_report_message_stays_below_the_size_limit(self):
        world = World(handlers=(("debit", 100),))
        world.connect()
        world.say()
        world.deliver(*range(1, 21))
        big = Outcome(OutcomeKind.DONE, output=b"x" * (256 * 1024))
        for fence in range(1, 21):
            world.take()
            world.finish(fence, big)
        self.assertEqual(len(world.say()[1]), sagad.session.REPORT_BYTES // (256 * 1024))

    def test_no_credit_while_too_many_reports_wait_for_their_ack(self):
        slots = sagad.session.UNACKED_MAX + 10
        world = World(handlers=(("debit", slots),), concurrency=slots)
        world.connect()
        world.say()
        world.deliver(*range(1, slots + 1))
        for fence in range(1, slots + 1):
            world.take()
            world.finish(fence)
        said = 0
        while world.sessions[0].lists[State.FINISHED]:
            answer = world.say()
            said += len(answer[1])
        self.assertEqual(said, slots)
        self.assertIsNone(world.say())
        for fence in range(1, 12):
            world.ack(fence)
        self.assertEqual(world.say(), {"debit": 2 * slots})

    def test_all_that_was_started_fits_into_a_hello(self):
        world = World(handlers=(("debit", 10000), ("ledger", 10000)), concurrency=100000)
        world.connect()
        world.say()
        for first in range(1, 10001, 1000):
            world.deliver(*range(first, first + 1000))
        world.deliver(10001, handler="ledger")
        for _ in range(sagad.pool.STARTED_MAX):
            self.assertIsNotNone(world.take())
        self.assertIsNone(world.take())

    def test_credit_of_many_slots_travels_together(self):
        world = World(handlers=(("debit", 8),))
        world.connect()
        self.assertEqual(world.say(), {"debit": 8})
        world.deliver(1, 2)
        for fence in (1, 2):
            world.take()
            world.finish(fence)
            self.assertEqual(world.say(), ("report", [fence]))
            self.assertEqual(world.say(), None if fence == 1 else {"debit": 10})

    def test_back_off_grows_with_jitter_up_to_two_seconds(self):
        world = World()
        longest = [200, 400, 800, 1600, 2000, 2000, 2000, 2000]
        for limit in longest:
            world.open()
            world.lose()
            pause = world.sessions[0].reconnect_ms - world.now
            self.assertTrue(sagad.session.BACKOFF_MIN_MS <= pause <= limit, (pause, limit))
        world.connect()
        world.wait(sagad.session.STEADY_MS)
        world.lose()
        self.assertLessEqual(world.sessions[0].reconnect_ms - world.now, 200)

    def test_names_and_limits_of_handlers(self):
        pool = World(handlers=()).pool
        for name in ("", "a b", "a\n", "x" * 129, "ü"):
            with self.subTest(name), self.assertRaises(ValueError):
                pool.handle(name, 1, None)
        for slots in (0, -1, 10001):
            with self.subTest(slots), self.assertRaises(ValueError):
                pool.handle("a", slots, None)
        for number in range(sagad.pool.HANDLERS_MAX):
            pool.handle(f"h{number}", 1, None)
        with self.assertRaisesRegex(ValueError, "there already"):
            pool.handle("h1", 1, None)
        with self.assertRaisesRegex(ValueError, "more than"):
            pool.handle("one-more", 1, None)


class AwakeTest(unittest.TestCase):
    """What is read after a stop counts from before it, whoever reads first."""

    def test_table(self):
        # (now, tick?): since
        table = [
            ("quiet", [(100, True), (200, True)], 250, 200),
            ("the reader first", [(100, True)], 60100, 100),
            ("the ticker first", [(100, True), (60100, True)], 60101, 100),
            ("a moment later", [(100, True), (60100, True), (60200, True)], 60340, 100),
            (
                "as usual again",
                [(100, True), (60100, True), (60200, True), (60300, True), (60400, True)],
                60450,
                60400,
            ),
            ("two stops", [(100, True), (60100, True), (60800, True)], 60810, 60100),
        ]
        for name, ticks, now, since in table:
            with self.subTest(name):
                awake = Awake(0)
                for at, _ in ticks:
                    awake.tick(at)
                self.assertEqual(awake.since_ms(now), since)


class WalkTest(unittest.TestCase):
    """A random walk over two streams: whatever happens, sums are right, nothing runs twice, no
    handler runs more often than it may, and in the end every report is acknowledged."""

    def test_a_random_walk(self):
        for seed in range(20):
            with self.subTest(seed=seed):
                self.walk(random.Random(seed))

    def walk(self, rng):
        world = World(streams=2, handlers=(("debit", 3),))
        fence, credit, sent, running, acked = 0, [0, 0], [0, 0], set(), set()
        for _ in range(400):
            at = rng.randrange(2)
            session = world.sessions[at]
            turn = rng.choice("connect lose say deliver take finish ack wait".split())
            if turn == "connect" and session.phase is Phase.OFFLINE:
                held = world.connect(at)
                self.assertTrue(running <= set(held))
                credit[at] = sent[at] = 0
            elif turn == "lose" and session.phase is Phase.ONLINE and rng.random() < 0.3:
                world.lose(at)
            elif turn == "say":
                message = session.next(world.now)
                if message is not None and message.WhichOneof("command") == "credit":
                    for handler in message.credit.handlers:
                        self.assertGreaterEqual(handler.total, credit[at])
                        credit[at] = handler.total
            elif turn == "deliver" and session.phase is Phase.ONLINE and sent[at] < credit[at]:
                fence += 1
                sent[at] += 1
                world.deliver(fence, at=at)
            elif turn == "take":
                taken = world.take()
                if taken is not None:
                    self.assertNotIn(taken, running | acked)
                    running.add(taken)
                    self.assertLessEqual(len(running), 3)
            elif turn == "finish" and running:
                one = rng.choice(sorted(running))
                running.remove(one)
                world.finish(one)
            elif turn == "ack" and session.phase is Phase.ONLINE:
                for held in list(session.lists[State.REPORTED].values()):
                    acked.add(held.fence)
                    world.ack(held.fence, at=at)
            elif turn == "wait":
                world.wait(rng.randrange(400))
            self.check(world, running)

    def check(self, world, running):
        pool = world.pool
        by_state = [sum(len(s.lists[state]) for s in pool.sessions) for state in State]
        handler = pool.handlers["debit"]
        self.assertEqual(by_state[State.RUNNING], len(running))
        self.assertEqual(handler.running, len(running))
        self.assertEqual(pool.running, len(running))
        self.assertEqual(handler.in_use, sum(by_state[: State.FINISHED + 1]))
        self.assertEqual(pool.started, sum(by_state[State.RUNNING : State.REPORTED + 1]))
        self.assertEqual(len(pool.tasks), sum(by_state))


if __name__ == "__main__":
    unittest.main()
