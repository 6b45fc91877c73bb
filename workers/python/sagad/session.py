"""One stream of a worker to one address: what was said on it, what to say next, and what a message
of the server means. Without I/O, threads and clock, as pool.py.

A task belongs to the session that speaks for it: the one that it came on, or another one once that
has lost its stream. Tasks of a stream that died and that no handler has seen are never started:
they are missing in the next Hello to that address, and are given back on another stream, if there
is one. What runs or is finished goes to another stream at once.
"""

import logging
from typing import Any, Dict, List, Optional, cast

from google.protobuf.message import DecodeError

from sagad.outcome import OutcomeKind
from sagad.pool import (
    NEVER_MS,
    SPARE_MS,
    STARTED_MAX,
    SURPLUS_MS,
    WAS_STARTED,
    Credits,
    Held,
    Key,
    Phase,
    Pool,
    State,
)
from sagad.version import __version__
from saga.v1 import saga_pb2, worker_pb2

log = logging.getLogger("sagad")

UNACKED_MAX = 4096  # no new credit beyond it
REPORTS_MAX = 512  # in one Report
REPORT_BYTES = 3 << 20  # of outputs in one Report
LEASES_MAX = STARTED_MAX  # in one Hello, Extend or Release
IDLE_MS = 10000  # Credit is repeated when nothing else was sent
SILENCE_MS = 35000  # without anything from the server the stream is dead
WELCOME_MS = 10000  # the same before Welcome
BACKOFF_MIN_MS = 100
BACKOFF_MAX_MS = 2000  # the shortest lease, 5 s, is not to run out by it
STEADY_MS = 5000  # a stream that lived so long ends a row of failures
EXTEND_MIN_MS = 500  # not more often, however short what is left of a lease
TIME_MAX_S = 253402300799  # the end of year 9999
YEAR_S = 366 * 24 * 3600


class ProtocolError(Exception):
    """The server said something that it must not: the stream is not to be trusted any more."""


class Session:
    """One stream: what was said on it, what to say next, and what a message of the server means."""

    def __init__(self, pool: Pool):
        """Adds itself to the pool, when all handlers are there."""
        self.pool = pool
        self.number = len(pool.sessions)
        self.credits = [Credits() for _ in pool.handlers]
        self.lists: List[Dict[Key, Held]] = [{} for _ in State]
        self.phase = Phase.OFFLINE
        self.hello_sent = self.credit_due = self.drain_sent = False
        self.server_drains = False  # it asked us to go elsewhere
        self.nudged = False  # it got something to say from outside; whoever wakes it resets this
        self.opened_ms = self.welcomed_ms = self.heard_ms = self.sent_ms = 0
        self.drain_sent_ms = self.server_drain_until_ms = 0
        self.extend_check_ms = 0  # no lease needs extending before
        self.share_check_ms = 0  # slots and surplus are not looked at before
        self.failures = 0  # in a row
        self.reconnect_ms = 0  # OFFLINE: when to try again
        pool.sessions.append(self)

    def count(self, *states: State) -> int:
        return sum(len(self.lists[state]) for state in states)

    def takes_work(self) -> bool:
        return self.phase is Phase.ONLINE and not self.server_drains

    def first_to_run(self, now_ms: int) -> Optional[Held]:
        late, found = [], None
        for held in self.lists[State.QUEUED].values():
            if now_ms >= held.lease_end_ms():
                late.append(held)
            elif held.handler.running < held.handler.max_in_flight:
                found = held
                break
        for held in late:  # waited for too long: certainly not started
            self.pool.move(held, self, State.RELEASED)
            self.nudged = True
        return found

    def release_queue(self) -> None:
        """What no handler has seen is to be given back."""
        self._move_all(State.QUEUED, self, State.RELEASED)

    # The life of a stream.

    def opened(self, now_ms: int) -> None:
        """A stream was opened: Hello is next."""
        self.phase = Phase.OPENING
        self.hello_sent = self.drain_sent = self.server_drains = False
        self.opened_ms = self.heard_ms = self.sent_ms = now_ms
        self.credit_due = True
        self.credits = [Credits() for _ in self.pool.handlers]
        self._extend_all(now_ms)

    def lost(self, now_ms: int) -> None:
        """It ended, or could not be opened: says in reconnect_ms when to try again."""
        steady = self.phase is Phase.ONLINE and now_ms - self.welcomed_ms >= STEADY_MS
        self.phase = Phase.OFFLINE
        self.release_queue()
        self._move_all(State.REPORTED, self, State.FINISHED)
        deputy = self.pool.deputy(self)
        if deputy:
            self._hand_over(deputy, now_ms)
        if len(self.pool.sessions) == 1:  # its next Hello tells
            for held in list(self.lists[State.RELEASED].values()):
                self.pool.forget(held)
        self._back_off(steady, now_ms)

    def is_over(self, now_ms: int) -> bool:
        """Should this stream be ended: silent for too long, or the server goes away and nothing
        holds us?"""
        if self.phase is Phase.OFFLINE:
            return False
        if self.phase is Phase.OPENING and now_ms - self.opened_ms >= WELCOME_MS:
            return True
        if now_ms - self.heard_ms >= SILENCE_MS:
            return True
        # What still runs is reported to another server, or to the next one here.
        return (
            self.server_drains
            and self.count(State.FINISHED, State.REPORTED, State.RELEASED) == 0
            and (self.count(State.RUNNING) == 0 or now_ms >= self.server_drain_until_ms)
        )

    def is_wanted(self) -> bool:
        """OFFLINE: is a new stream of any use? Not for a drain that another one can carry out."""
        return not self.pool.draining or self.pool.deputy(self) is None

    def wake_ms(self) -> int:
        """When `next` has something to say although nothing happened, or the stream is over."""
        if self.phase is Phase.OFFLINE:
            return self.reconnect_ms
        opening = self.phase is Phase.OPENING
        silence = self.opened_ms + WELCOME_MS if opening else self.heard_ms + SILENCE_MS
        wake = min(self.sent_ms + IDLE_MS, silence, self.extend_check_ms)
        return min(wake, self.share_check_ms) if len(self.pool.sessions) > 1 else wake

    def _move_all(self, state: State, to: "Session", to_state: State) -> None:
        for held in list(self.lists[state].values()):
            self.pool.move(held, to, to_state)

    def _extend_all(self, now_ms: int) -> None:
        """Nobody knows what became of what was asked on another stream."""
        for held in self.lists[State.RUNNING].values():
            held.extend_at_ms = now_ms
            held.extend_sent_ms = 0
        self.extend_check_ms = now_ms

    def _hand_over(self, to: "Session", now_ms: int) -> None:
        """This one has no stream; that one speaks for its tasks from now on."""
        if self.lists[State.RUNNING]:
            to.extend_check_ms = now_ms
        self._extend_all(now_ms)
        for state in (State.RUNNING, State.FINISHED, State.RELEASED):
            self._move_all(state, to, state)
        to.nudged = True

    def _back_off(self, was_steady: bool, now_ms: int) -> None:
        if was_steady:
            self.failures = 0
        longest = min(2 * BACKOFF_MIN_MS << min(self.failures, 6), BACKOFF_MAX_MS)
        self.failures += 1
        self.reconnect_ms = now_ms + self.pool.rng.randint(BACKOFF_MIN_MS, longest)

    # What the server says.

    def receive(self, data: bytes, since_ms: int, now_ms: int) -> None:
        """A message came in at or after `since_ms`. ProtocolError: end the stream."""
        try:
            message = worker_pb2.ServerMessage.FromString(data)
        except DecodeError:
            raise ProtocolError("the server sent something that is no message") from None
        self.heard_ms = now_ms
        command = message.WhichOneof("command")
        if command == "welcome":
            self._receive_welcome(now_ms)
        elif command == "tasks":
            for task in message.tasks.tasks:
                self._receive_task(task, since_ms, now_ms)
        elif command == "acks":
            for ack in message.acks.acks:
                self._receive_ack(ack)
        elif command == "extended":
            for lease in message.extended.leases:
                self._receive_extended(lease)
        elif command == "cancel_hint":
            self._receive_cancel(message.cancel_hint)
        elif command == "drain_requested":
            self._receive_drain(message.drain_requested, now_ms)
        # Tick, or a word of a newer server: that it speaks is what counts.

    def _receive_welcome(self, now_ms: int) -> None:
        """It speaks for what those without a stream left behind."""
        if self.phase is not Phase.OPENING:
            return
        self.phase = Phase.ONLINE
        self.welcomed_ms = now_ms
        self.pool.stats.connects += 1
        for other in self.pool.sessions:
            if other.phase is not Phase.ONLINE:
                other._hand_over(self, now_ms)

    def _receive_task(self, task: worker_pb2.Task, since_ms: int, now_ms: int) -> None:
        lease_ms = _duration_ms(task, "lease")
        attempt_ms = _duration_ms(task, "attempt_remaining")
        if (
            len(task.saga_uid) != 16
            or task.fence <= 0
            or lease_ms <= 0
            or attempt_ms < 0
            or task.operation
            not in (
                saga_pb2.OPERATION_KIND_ACTION,
                saga_pb2.OPERATION_KIND_COMPENSATION,
                saga_pb2.OPERATION_KIND_PROBE,
            )
            or not task.HasField("saga_start_time")
            or abs(task.saga_start_time.seconds) > TIME_MAX_S
        ):
            raise ProtocolError("the server sent a malformed task")
        handler = self.pool.handlers.get(task.handler)
        if not handler:
            raise ProtocolError("the server sent a task of a handler that is not ours")
        credit = self.credits[handler.index]
        if credit.received >= credit.granted:
            raise ProtocolError(f"the server sent more tasks of {handler.name} than credit")
        credit.received += 1
        self.credit_due = True  # what was kept back may be worth saying now
        key = (task.saga_uid, task.fence)
        if key in self.pool.tasks:
            return  # we have it: nothing to do twice
        held = Held(
            key,
            handler,
            self,
            task,
            came_ms=now_ms,
            confirmed_ms=since_ms,
            lease_ms=lease_ms,
            attempt_until_ms=since_ms + attempt_ms,
            extend_at_ms=since_ms + lease_ms // 3,
        )
        self.extend_check_ms = min(self.extend_check_ms, held.extend_at_ms)
        leaving = self.pool.draining or self.server_drains
        self.pool.add(held, self, State.RELEASED if leaving else State.QUEUED)

    def _receive_ack(self, ack: worker_pb2.Ack) -> None:
        if len(ack.saga_uid) != 16:
            raise ProtocolError("the server sent a malformed ack")
        held = self.pool.tasks.get((ack.saga_uid, ack.fence))
        if not held or held.state not in (State.REPORTED, State.FINISHED):
            return  # acknowledged before
        if ack.problem:
            log.warning(
                "the outcome counts as UNKNOWN: its output is not of the declared type"
                " saga_uid=%s fence=%d handler=%s problem=%r",
                ack.saga_uid.hex(),
                ack.fence,
                held.handler.name,
                ack.problem,
            )
        stats = self.pool.stats
        if ack.result == worker_pb2.Ack.RESULT_ACCEPTED:
            stats.reports_accepted += 1
        elif ack.result == worker_pb2.Ack.RESULT_DUPLICATE:
            stats.reports_duplicate += 1
        elif ack.result == worker_pb2.Ack.RESULT_STALE:
            stats.reports_stale += 1
        else:
            raise ProtocolError("the server sent an ack without a result")
        self.pool.forget(held)

    def _receive_extended(self, extended: worker_pb2.Extended.Lease) -> None:
        lease_ms = _duration_ms(extended, "lease") if extended.HasField("lease") else 0
        if len(extended.saga_uid) != 16 or lease_ms < 0:
            raise ProtocolError("the server sent a malformed extension")
        held = self.pool.tasks.get((extended.saga_uid, extended.fence))
        if not held or held.state not in (State.QUEUED, State.RUNNING):
            return
        if lease_ms == 0:
            self.pool.stats.leases_lost += 1
            held.lost = True
            if held.state is State.QUEUED:
                self.pool.forget(held)
        elif held.extend_sent_ms != 0:
            # Counted from when we asked: the server cannot have read it before.
            held.confirmed_ms = held.extend_sent_ms
            held.lease_ms = lease_ms
            held.extend_sent_ms = 0

    def _receive_cancel(self, hint: worker_pb2.CancelHint) -> None:
        if len(hint.saga_uid) != 16:
            raise ProtocolError("the server sent a malformed cancel hint")
        held = self.pool.tasks.get((hint.saga_uid, hint.fence))
        if not held:
            return
        held.cancelled = True
        if held.state is State.QUEUED:
            held.session.nudged = True
            self.pool.move(held, held.session, State.RELEASED)

    def _receive_drain(self, drain: worker_pb2.DrainRequested, now_ms: int) -> None:
        if self.server_drains:
            return
        self.server_drains = True
        self.server_drain_until_ms = now_ms + max(0, _duration_ms(drain, "grace")) // 2
        self.release_queue()

    # What the session says: one message at a time, the most urgent first.

    def next(self, now_ms: int) -> Optional[worker_pb2.WorkerMessage]:
        """The next message to send, and taken as sent; None: none now."""
        if self.phase is Phase.OFFLINE:
            return None
        message = self._next(now_ms)
        if message is not None:
            self.sent_ms = now_ms
        return message

    def _next(self, now_ms: int) -> Optional[worker_pb2.WorkerMessage]:
        if now_ms >= self.share_check_ms and len(self.pool.sessions) > 1:
            self._share(now_ms)
        if not self.hello_sent:
            self.hello_sent = True
            return worker_pb2.WorkerMessage(hello=self._hello())
        if self.pool.draining and not self.drain_sent:
            self.drain_sent = True
            self.drain_sent_ms = now_ms
            return worker_pb2.WorkerMessage(drain=worker_pb2.Drain())
        if now_ms >= self.extend_check_ms:
            due = self._extend(now_ms)
            if due:
                return worker_pb2.WorkerMessage(extend=worker_pb2.Extend(leases=due))
        if self.lists[State.FINISHED]:
            return worker_pb2.WorkerMessage(report=self._report())
        if self.lists[State.RELEASED]:
            return worker_pb2.WorkerMessage(release=self._release())
        repeat = now_ms - self.sent_ms >= IDLE_MS
        if self.credit_due or repeat:
            credit = self._credit(now_ms, repeat)
            if credit.handlers:
                return worker_pb2.WorkerMessage(credit=credit)
        return None

    def _hello(self) -> worker_pb2.Hello:
        pool = self.pool
        hello = worker_pb2.Hello(
            worker_id=pool.worker_id,
            instance=pool.instance,
            only_stream=len(pool.sessions) == 1,
            sdk="sagad-python/" + __version__,
        )
        for handler in pool.handlers.values():
            hello.handlers.add(handler=handler.name, max_in_flight=handler.max_in_flight)
        for state in WAS_STARTED:  # never more than fit: Pool.take
            for session in pool.sessions:
                hello.held.extend(map(_lease, session.lists[state].values()))
        # What waits on other streams is held, too; what is too much is given back there.
        for session in pool.sessions:
            for held in list(session.lists[State.QUEUED].values()):
                if len(hello.held) < LEASES_MAX:
                    hello.held.append(_lease(held))
                else:
                    session.nudged = True
                    pool.move(held, session, State.RELEASED)
        return hello

    def _report(self) -> worker_pb2.Report:
        report = worker_pb2.Report()
        size = 0
        for held in list(self.lists[State.FINISHED].values()):
            size += len(held.outcome.output)
            if len(report.reports) == REPORTS_MAX or (report.reports and size > REPORT_BYTES):
                break
            report.reports.append(_task_report(held))
            self.pool.move(held, self, State.REPORTED)
        return report

    def _release(self) -> worker_pb2.Release:
        some = list(self.lists[State.RELEASED].values())[:LEASES_MAX]
        release = worker_pb2.Release(leases=map(_lease, some))
        for held in some:
            self.pool.forget(held)
        return release

    def _extend(self, now_ms: int) -> List[worker_pb2.HeldLease]:
        """The leases whose third is over; notes when the next one is."""
        due: List[worker_pb2.HeldLease] = []
        self.extend_check_ms = NEVER_MS
        for state in (State.RUNNING, State.QUEUED):
            for held in self.lists[state].values():
                if held.lost or now_ms >= held.attempt_until_ms:
                    continue
                if held.extend_at_ms <= now_ms and len(due) < LEASES_MAX:
                    due.append(_lease(held))
                    held.extend_at_ms = now_ms + max(held.lease_ms // 3, EXTEND_MIN_MS)
                    held.extend_sent_ms = held.extend_sent_ms or now_ms
                self.extend_check_ms = min(self.extend_check_ms, held.extend_at_ms)
        return due

    def _credit(self, now_ms: int, repeat: bool) -> worker_pb2.Credit:
        pool = self.pool
        too_many = self.count(State.REPORTED) >= UNACKED_MAX
        paused = pool.draining or self.server_drains or too_many
        credit = worker_pb2.Credit()
        for handler in pool.handlers.values():
            said = self.credits[handler.index]
            if not paused:
                said.offered += pool.offer(self, handler, now_ms)
            if not repeat and (paused or not _is_worth_saying(said, handler.max_in_flight)):
                continue
            if not paused:
                said.granted = said.offered
            credit.handlers.add(handler=handler.name, total=said.granted)
        self.credit_due = too_many
        return credit

    def _share(self, now_ms: int) -> None:
        """What came beyond the slots and has waited for long enough is given back; offers are
        looked at."""
        for held in list(self.lists[State.QUEUED].values()):
            if now_ms - held.came_ms < SURPLUS_MS:
                break
            if held.handler.in_use > held.handler.max_in_flight:
                self.pool.move(held, self, State.RELEASED)
        self.credit_due = True
        self.share_check_ms = now_ms + SPARE_MS


def _is_worth_saying(credit: Credits, max_in_flight: int) -> bool:
    """A quarter of the slots is said at once, and so is anything while the server has less than
    that left: each task of a busy worker would otherwise cost a message of its own."""
    more, left = credit.offered - credit.granted, credit.granted - credit.received
    return more > 0 and (more >= max_in_flight // 4 or left < max_in_flight // 4)


def _duration_ms(message: Any, name: str) -> int:
    """-1: absent, negative or out of range. Longer than a year counts as a year."""
    if not message.HasField(name):
        return -1
    duration = getattr(message, name)
    if duration.seconds < 0 or not 0 <= duration.nanos <= 999999999:
        return -1
    return min(duration.seconds, YEAR_S) * 1000 + duration.nanos // 1000000


def _lease(held: Held) -> worker_pb2.HeldLease:
    return worker_pb2.HeldLease(saga_uid=held.key[0], fence=held.key[1])


def _task_report(held: Held) -> worker_pb2.TaskReport:
    outcome = held.outcome
    report = worker_pb2.TaskReport(
        saga_uid=held.key[0],
        fence=held.key[1],
        outcome=cast(Any, int(outcome.kind)),
        output=outcome.output,
        ours=outcome.ours,
        error_code=outcome.code,
        error_message=outcome.message,
    )
    if outcome.kind is OutcomeKind.RETRY and outcome.retry_after_ms > 0:
        report.retry_after.FromMilliseconds(outcome.retry_after_ms)
    return report
