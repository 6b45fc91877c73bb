"""What a handler sees of its task: identity, payload, time, and the wish that it stops."""

import asyncio
import datetime
import enum
import threading
import uuid
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Type, TypeVar, Union, overload

from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from sagad.outcome import Rejected, Retry
from sagad.pool import Stop
from saga.v1 import saga_pb2, worker_pb2

__all__ = ["ActionOutcome", "Operation", "Probed", "Stop", "Task"]

M = TypeVar("M", bound=Message)


class Operation(enum.IntEnum):
    """What a task is asked to do for its step."""

    ACTION = saga_pb2.OPERATION_KIND_ACTION
    COMPENSATION = saga_pb2.OPERATION_KIND_COMPENSATION
    PROBE = saga_pb2.OPERATION_KIND_PROBE


class ActionOutcome(enum.Enum):
    """What is known of the action that a compensation is to take back."""

    NONE = 0  # the task is no compensation, and no probe of one
    DONE = 1  # it took effect; `action_output` is what it answered
    MAYBE = 2  # it may have; there is no output


@dataclass(frozen=True)
class Probed:
    """What a probe asks about. try_ and fence are 0 where the attempt was none of this saga's."""

    operation: Operation
    try_: int
    fence: int
    leased_at: Optional[datetime.datetime]
    ended_at: Optional[datetime.datetime]


def _time(message: Message, name: str) -> Optional[datetime.datetime]:
    if not message.HasField(name):
        return None
    stamp: Timestamp = getattr(message, name)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    try:
        return epoch + datetime.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)
    except OverflowError:
        return None  # before the year 1


def parse(data: bytes, type_: Type[M], what: str) -> M:
    """A message of that type; Rejected BAD_REQUEST where the bytes are none."""
    message = type_()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise Rejected(
            "BAD_REQUEST", f"the {what} is no {type_.DESCRIPTOR.full_name}: {error}"
        ) from error
    return message


class Lease:
    """How long a task is ours. The worker's is live; this one is for ever."""

    def left_s(self) -> float:
        """Seconds until 80 % of the last confirmed lease have passed; 0: over."""
        return float("inf")

    def time_left_s(self) -> float:
        """Seconds until the attempt time is over; 0: over."""
        return float("inf")

    def stop(self) -> Optional[Stop]:
        return None


class Task:
    """One task. Safe to use from any thread, and after the handler has returned."""

    def __init__(self, message: worker_pb2.Task, lease: Optional[Lease] = None):
        """For the worker, and for `sagad.fake`. The message is not to be changed any more."""
        self._message = message
        self._lease = lease or Lease()
        self._stop_told = threading.Event()
        self._lock = threading.Lock()
        self._waiters: List[Callable[[], None]] = []

    def __repr__(self) -> str:
        m = self._message
        return (
            f"<Task {m.namespace}/{m.definition}/{m.saga_id} run {m.run} {m.step}"
            f" {self.operation.name} try {self.try_} fence {m.fence}>"
        )

    # The identity. The saga id is the business key.

    @property
    def namespace(self) -> str:
        return self._message.namespace

    @property
    def definition(self) -> str:
        return self._message.definition

    @property
    def saga_id(self) -> str:
        return self._message.saga_id

    @property
    def run(self) -> int:
        return self._message.run

    @property
    def uid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._message.saga_uid)

    @property
    def revision(self) -> int:
        return self._message.revision

    @property
    def started_at(self) -> Optional[datetime.datetime]:
        """When the saga started, to the microsecond."""
        return _time(self._message, "saga_start_time")

    @property
    def started_at_us(self) -> int:
        """The same in microseconds since 1970, as the guard wants it."""
        stamp = self._message.saga_start_time
        return stamp.seconds * 1000000 + stamp.nanos // 1000

    @property
    def step(self) -> str:
        return self._message.step

    @property
    def operation(self) -> Operation:
        return Operation(self._message.operation)

    @property
    def handler(self) -> str:
        return self._message.handler

    @property
    def try_(self) -> int:
        """Counts from 1."""
        return getattr(self._message, "try")

    @property
    def guarded(self) -> bool:
        return self._message.guarded

    @property
    def fence(self) -> int:
        """For your own database: a newer one wins."""
        return self._message.fence

    @property
    def idempotency_key(self) -> str:
        """For the third party: the same on every try. A probe's: of the attempts it asks about."""
        return self._message.idempotency_key

    @property
    def labels(self) -> Mapping[str, str]:
        return self._message.labels

    @property
    def traceparent(self) -> str:
        """W3C trace context; "": none."""
        return self._message.traceparent

    @property
    def message(self) -> worker_pb2.Task:
        """As it came. Do not change it."""
        return self._message

    # Payload: bytes, or a message of the type that is given: Rejected BAD_REQUEST if it is none, Retry
    # WRONG_TYPE if the definition names another type, which another version of the worker may have.

    @overload
    def request(self) -> bytes: ...
    @overload
    def request(self, type_: Type[M]) -> M: ...
    def request(self, type_: Optional[Type[M]] = None) -> Union[bytes, M]:
        """What the operation is asked: a message of `request_type`, as the definition puts it
        together. Where it does not ("": no type), the saga's input."""
        name = self._message.request_type
        data = self._message.request if name else self._message.input
        if type_ is None:
            return data
        if name and name != type_.DESCRIPTOR.full_name:
            raise Retry(
                "WRONG_TYPE", f"the request is {name}, this worker has {type_.DESCRIPTOR.full_name}"
            )
        return parse(data, type_, "request")

    @property
    def request_type(self) -> str:
        return self._message.request_type

    @property
    def output_type(self) -> str:
        """Full name of the message that the output must be; "": bytes."""
        return self._message.output_type

    @overload
    def input(self) -> bytes: ...
    @overload
    def input(self, type_: Type[M]) -> M: ...
    def input(self, type_: Optional[Type[M]] = None) -> Union[bytes, M]:
        """The saga's input; empty where there is a request."""
        data = self._message.input
        return data if type_ is None else parse(data, type_, "input")

    @overload
    def output_of(self, step: str) -> Optional[bytes]: ...
    @overload
    def output_of(self, step: str, type_: Type[M]) -> Optional[M]: ...
    def output_of(self, step: str, type_: Optional[Type[M]] = None) -> Union[None, bytes, M]:
        """What an earlier step answered; None: it has no output (yet, or ever), or there is a
        request."""
        for output in self._message.outputs:
            if output.step == step:
                data = output.output
                return data if type_ is None else parse(data, type_, "output of " + step)
        return None

    @property
    def outputs(self) -> Dict[str, bytes]:
        """Of all earlier steps that have one, in the order of the definition."""
        return {output.step: output.output for output in self._message.outputs}

    @property
    def action_outcome(self) -> ActionOutcome:
        """What is known of the action that this compensation is to take back."""
        has_action = self._message.HasField("action")
        if self.operation is not Operation.COMPENSATION and not (
            self.operation is Operation.PROBE and has_action
        ):
            return ActionOutcome.NONE
        done = has_action and self._message.action.kind == worker_pb2.ActionOutcome.KIND_DONE
        return ActionOutcome.DONE if done else ActionOutcome.MAYBE

    @overload
    def action_output(self) -> bytes: ...
    @overload
    def action_output(self, type_: Type[M]) -> M: ...
    def action_output(self, type_: Optional[Type[M]] = None) -> Union[bytes, M]:
        """What the action answered; empty unless `action_outcome` is DONE."""
        done = self.action_outcome is ActionOutcome.DONE
        data = self._message.action.output if done else b""
        return data if type_ is None else parse(data, type_, "action's output")

    @property
    def probed(self) -> Optional[Probed]:
        """What a probe asks about; None: the task is no probe."""
        if self.operation is not Operation.PROBE:
            return None
        attempt = self._message.probed_attempt
        return Probed(
            Operation(self._message.probed or Operation.ACTION),
            getattr(attempt, "try"),
            attempt.fence,
            _time(attempt, "lease_time"),
            _time(attempt, "end_time"),
        )

    # How long it may take.

    @property
    def lease_left(self) -> float:
        """Seconds until 80 % of the last confirmed lease have passed; 0: over."""
        return self._lease.left_s()

    @property
    def time_left(self) -> float:
        """Seconds until the attempt time is over; 0: over. Ends before `send_before`."""
        return self._lease.time_left_s()

    @property
    def send_before(self) -> Optional[datetime.datetime]:
        """Nothing may be sent to the third party from then on (the database's clock), since it
        could arrive when the idempotency key is forgotten; None: no such time."""
        return _time(self._message, "send_before")

    def still_mine(self) -> bool:
        """The last look before a call that cannot be taken back. False once 80 % of the last
        confirmed lease have passed, the lease was reported lost, or the attempt time is over: then
        do not make the call; raise Retry if nothing was sent before, Unknown otherwise."""
        return self._lease.left_s() > 0

    # The wish that it stops. The report counts in any case.

    @property
    def stop_reason(self) -> Optional[Stop]:
        """Why the handler should stop now; None: it should not."""
        return self._lease.stop()

    def wait_stop(self, timeout: Optional[float] = None) -> Optional[Stop]:
        """Sleeps until the handler should stop, or for so many seconds. For handlers in threads."""
        self._stop_told.wait(timeout)
        return self.stop_reason

    async def stopped(self) -> Optional[Stop]:
        """Waits until the handler should stop. For async handlers."""
        loop = asyncio.get_running_loop()
        future: "asyncio.Future[None]" = loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        def waiter() -> None:
            loop.call_soon_threadsafe(wake)

        with self._lock:
            told = self._stop_told.is_set()
            if not told:
                self._waiters.append(waiter)
        if not told:
            try:
                await future
            finally:
                with self._lock:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
        return self.stop_reason

    def tell_stop(self) -> None:
        """For the worker and for `sagad.fake`: wakes whoever waits for the wish."""
        with self._lock:
            self._stop_told.set()
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()
