"""What the streams of a worker share: handlers and their slots, the tasks that the process holds,
reports without an ack, the wish to drain.

Never does I/O, never starts a thread, reads no clock: time comes from the caller, in whole
milliseconds of a monotonic clock. Every call needs the worker's lock held. Users of the package
need nothing of this module.

Slots. While a handler has had a free slot for SPARE_MS, every stream is offered all that are free,
so that whichever node has work can send it at once. When all are taken, each slot that becomes free
is offered to one stream, the one with the fewest unused offers, in turn. So several nodes may use
their offers for the same slot: what came beyond the slots waits for SURPLUS_MS and is then given
back. With one stream none of this happens.
"""

import enum
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from sagad.outcome import Outcome, OutcomeKind
from saga.v1 import worker_pb2

if TYPE_CHECKING:
    from sagad.session import Session

HANDLERS_MAX = 256
IN_FLIGHT_MAX = 10000
STARTED_MAX = 10000  # tasks that were started and have no ack: all of them must fit into a Hello
SPARE_MS = 100
SURPLUS_MS = 1000
LEASE_MARGIN = 80  # percent of a lease after which its handler has to stop
LINGER_MS = 250  # drained, but a task may be on its way to us
NEVER_MS = 1 << 62
HANDLER_NAME = re.compile(r"[A-Za-z0-9._/-]{1,128}\Z")

Key = Tuple[bytes, int]  # saga uid and fence
_NO_OUTCOME = Outcome(OutcomeKind.UNKNOWN, code="NO_OUTCOME")


class State(enum.IntEnum):
    """Where a task stands."""

    QUEUED = 0  # received, no handler has seen it
    RUNNING = 1  # a handler runs
    FINISHED = 2  # has an outcome that was not sent on this stream
    REPORTED = 3  # sent, not acknowledged
    RELEASED = 4  # to be given back: no handler saw it


TAKES_SLOT = (State.QUEUED, State.RUNNING, State.FINISHED)
WAS_STARTED = (State.RUNNING, State.FINISHED, State.REPORTED)


class Phase(enum.Enum):
    """Where a stream stands."""

    OFFLINE = 0
    OPENING = 1  # Hello is to be sent, or Welcome has not come
    ONLINE = 2


class Stop(enum.IntEnum):
    """Why a handler should stop."""

    DRAINING = 1  # the worker ends soon: finish if it does not take long
    CANCELLED = 2  # the saga turned back or was stopped: an early end saves work
    LOST = 3  # the lease is not certainly ours any more


@dataclass
class PoolStats:
    """Counters since the start."""

    tasks_started: int = 0
    reports_accepted: int = 0
    reports_duplicate: int = 0
    reports_stale: int = 0
    leases_lost: int = 0
    connects: int = 0


@dataclass(eq=False)
class Handler:
    """A handler's name and slots. `function` is the caller's."""

    name: str
    max_in_flight: int
    index: int
    function: Any
    in_use: int = 0  # tasks that take a slot: queued, running, not yet reported
    running: int = 0  # of those
    turn: int = 0  # the stream that was offered a slot last
    spare_since_ms: int = NEVER_MS  # a slot has been free since

    def slots_free(self) -> int:
        return max(0, self.max_in_flight - self.in_use)


@dataclass(eq=False)
class Held:
    """A task from its arrival until its report is acknowledged."""

    key: Key
    handler: Handler
    session: "Session"
    message: Optional[worker_pb2.Task]  # None once the handler has returned
    came_ms: int
    confirmed_ms: int  # when the lease was certainly granted or extended
    lease_ms: int
    attempt_until_ms: int
    extend_at_ms: int  # when to ask next
    extend_sent_ms: int = 0  # the oldest question without an answer; 0: none
    lost: bool = False
    cancelled: bool = False
    state: State = State.QUEUED
    outcome: Outcome = _NO_OUTCOME
    told: int = 0  # the Stop that its handler was told
    owner: Any = None  # the caller's: whom to tell

    @property
    def fence(self) -> int:
        return self.key[1]

    def lease_end_ms(self) -> int:
        """When the handler has to have ended: 80 % of the confirmed lease, or the attempt's end."""
        return min(
            self.confirmed_ms + self.lease_ms * LEASE_MARGIN // 100,
            self.attempt_until_ms,
        )

    def lease_left_ms(self, now_ms: int) -> int:
        return 0 if self.lost else max(0, self.lease_end_ms() - now_ms)

    def stop(self, now_ms: int, draining: bool) -> Optional[Stop]:
        if self.lost or now_ms >= self.lease_end_ms():
            return Stop.LOST
        if self.cancelled:
            return Stop.CANCELLED
        return Stop.DRAINING if draining else None


@dataclass
class Credits:
    """Of a handler, on one stream: totals that only grow."""

    received: int = 0  # tasks
    offered: int = 0  # that the pool lets it have
    granted: int = 0  # that were announced


class Awake:
    """Since when at the latest a message can have lain there unread, when it is read now.

    `tick` is called every TICK_MS. A gap between two ticks means that the process was stopped; what
    is read just after it may be as old as the gap, so for a moment it counts from before.
    """

    TICK_MS = 100
    GAP_MS = 500
    HOLD_MS = 250

    def __init__(self, now_ms: int):
        self._last_ms = self._before_ms = now_ms
        self._hold_until_ms = now_ms

    def tick(self, now_ms: int) -> None:
        if now_ms - self._last_ms > self.GAP_MS:
            self._before_ms = self._last_ms
            self._hold_until_ms = now_ms + self.HOLD_MS
        self._last_ms = now_ms

    def since_ms(self, now_ms: int) -> int:
        if now_ms < self._hold_until_ms:
            return self._before_ms
        return min(self._last_ms, now_ms)


@dataclass
class Pool:
    """What the streams of a worker share."""

    worker_id: str
    instance: str
    concurrency: int
    drain_ms: int
    rng: random.Random
    handlers: Dict[str, Handler] = field(default_factory=dict)
    tasks: Dict[Key, Held] = field(default_factory=dict)
    sessions: List["Session"] = field(default_factory=list)
    started: int = 0  # tasks that run or ran and have no ack
    running: int = 0
    take_next: int = 0
    draining: bool = False
    drain_until_ms: int = 0
    stats: PoolStats = field(default_factory=PoolStats)

    def handle(self, name: str, max_in_flight: int, function: Any) -> Handler:
        """Before the first stream. ValueError: what is wrong with it."""
        if not HANDLER_NAME.match(name):
            raise ValueError(f"a handler's name is 1 to 128 of [A-Za-z0-9._/-], not {name!r}")
        if not 1 <= max_in_flight <= IN_FLIGHT_MAX:
            raise ValueError(
                f"handler {name}: max_in_flight is 1 to {IN_FLIGHT_MAX}, not {max_in_flight}"
            )
        if name in self.handlers:
            raise ValueError(f"handler {name} is there already")
        if len(self.handlers) == HANDLERS_MAX:
            raise ValueError(f"more than {HANDLERS_MAX} handlers")
        handler = Handler(name, max_in_flight, len(self.handlers), function)
        self.handlers[name] = handler
        return handler

    # Handlers' side.

    def take(self, now_ms: int) -> Optional[Held]:
        """The next task to run, RUNNING from now on; None: there is none, or no room for it."""
        count = len(self.sessions)
        if self.running >= self.concurrency or self.started >= STARTED_MAX:
            return None
        for i in range(count):
            session = self.sessions[(self.take_next + i) % count]
            held = session.first_to_run(now_ms)
            if held:
                self.take_next = session.number + 1
                self.move(held, session, State.RUNNING)
                self.stats.tasks_started += 1
                return held
        return None

    def finish(self, held: Held, outcome: Outcome, now_ms: int) -> None:
        """Its handler returned."""
        held.outcome = outcome
        held.message = None
        held.owner = None
        if self.draining:
            self.drain_until_ms = now_ms + self.drain_ms
        self.move(held, held.session, State.FINISHED)
        held.session.nudged = True

    def stops(self, now_ms: int) -> Tuple[List[Tuple[Held, Stop]], int]:
        """Running tasks whose handler is to be told something new, and when to look again."""
        told, next_ms = [], NEVER_MS
        for session in self.sessions:
            for held in session.lists[State.RUNNING].values():
                stop = held.stop(now_ms, self.draining)
                if stop is not None and stop > held.told:
                    held.told = stop
                    told.append((held, stop))
                elif stop is not Stop.LOST:
                    next_ms = min(next_ms, held.lease_end_ms())
        return told, next_ms

    def drain(self, now_ms: int) -> None:
        """No more tasks: give back what was not started, finish and report the rest."""
        if self.draining:
            return
        self.draining = True
        self.drain_until_ms = now_ms + self.drain_ms
        for session in self.sessions:
            session.release_queue()
            session.nudged = True

    def is_drained(self, now_ms: int) -> bool:
        """Nothing runs, and every report is acknowledged or was waited for long enough."""
        settled = said = True
        for session in self.sessions:
            if not self.draining or session.count(State.QUEUED, State.RUNNING):
                return False
            if session.count(State.FINISHED, State.REPORTED, State.RELEASED):
                settled = False
            if session.phase is not Phase.OFFLINE and (
                not session.drain_sent or now_ms - session.drain_sent_ms < LINGER_MS
            ):
                said = False
        return self.draining and ((settled and said) or now_ms >= self.drain_until_ms)

    # For sessions: a task is in the list of its state at its session, and in `tasks`.

    def add(self, held: Held, session: "Session", state: State) -> None:
        self.tasks[held.key] = held
        self._list_add(held, session, state)

    def move(self, held: Held, session: "Session", state: State) -> None:
        freed = held.state in TAKES_SLOT and state not in TAKES_SLOT
        self._list_remove(held)
        self._list_add(held, session, state)
        if freed:
            session.credit_due = True
            self._slot_freed(held.handler)

    def forget(self, held: Held) -> None:
        del self.tasks[held.key]
        freed = held.state in TAKES_SLOT
        self._list_remove(held)
        if freed:
            held.session.credit_due = True
            self._slot_freed(held.handler)

    def deputy(self, session: "Session") -> Optional["Session"]:
        """The one that does for another that has no stream; None: none has."""
        for i in range(1, len(self.sessions)):
            other = self.sessions[(session.number + i) % len(self.sessions)]
            if other.takes_work():
                return other
        return None

    def offer(self, session: "Session", handler: Handler, now_ms: int) -> int:
        """How many tasks of this handler the session may be offered beyond what it was."""
        credit = session.credits[handler.index]
        unused, more = credit.offered - credit.received, handler.slots_free()
        if more > 0 and handler.spare_since_ms == NEVER_MS:
            handler.spare_since_ms = now_ms
        spare = more > 0 and now_ms - handler.spare_since_ms >= SPARE_MS
        alone = not any(other.takes_work() for other in self.sessions if other is not session)
        return more - unused if more > unused and (spare or alone) else 0

    def _list_add(self, held: Held, session: "Session", state: State) -> None:
        held.session, held.state = session, state
        session.lists[state][held.key] = held
        self.started += state in WAS_STARTED
        self.running += state is State.RUNNING
        handler = held.handler
        handler.running += state is State.RUNNING
        handler.in_use += state in TAKES_SLOT
        if handler.slots_free() == 0:
            handler.spare_since_ms = NEVER_MS

    def _list_remove(self, held: Held) -> None:
        state = held.state
        del held.session.lists[state][held.key]
        self.started -= state in WAS_STARTED
        self.running -= state is State.RUNNING
        held.handler.running -= state is State.RUNNING
        held.handler.in_use -= state in TAKES_SLOT

    def _slot_freed(self, handler: Handler) -> None:
        """The next in turn of those with the fewest unused offers may have it."""
        if handler.slots_free() == 0:
            return  # of what came beyond the slots
        best, least = None, NEVER_MS
        for i in range(1, len(self.sessions) + 1):
            session = self.sessions[(handler.turn + i) % len(self.sessions)]
            credit = session.credits[handler.index]
            unused = credit.offered - credit.received
            if session.takes_work() and unused < least:
                best, least = session, unused
        if best:
            best.credits[handler.index].offered += 1
            handler.turn = best.number
            best.credit_due = best.nudged = True
