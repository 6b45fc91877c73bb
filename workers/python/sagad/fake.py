"""A fake orchestrator for your unit tests: no network, no threads, no clock.

    result = fake.run(worker, "account.debit", payment)        # one task
    assert result.kind is OutcomeKind.DONE
    assert result.output_as(Receipt).balance == 900

    saga = fake.Saga(worker, input=payment)                      # a sequence
    saga.step("debit", "account.debit", compensation="account.refund")
    saga.step("notify", "risk.check")
    assert saga.play() == "COMPENSATED"
    assert saga.trace == ["debit: DONE", "notify: REJECTED", "debit compensation: DONE"]

Handlers are run as the worker runs them: typed requests, outcomes, classify, limits.
"""

import asyncio
import hashlib
import uuid
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union, cast

from google.protobuf.message import Message

from sagad import outcome as outcomes
from sagad.outcome import Outcome, OutcomeKind, Output, to_bytes
from sagad.task import Lease, Operation, Stop, Task
from sagad.worker import Registered, Worker
from saga.v1 import worker_pb2

__all__ = ["FakeLease", "Result", "Saga", "run", "task"]

M = TypeVar("M", bound=Message)

TRIES_MAX = 10
_STARTED_S = 1700000000


class FakeLease(Lease):
    """A lease that the test moves."""

    def __init__(self, left_s: float = 24.0, time_left_s: float = 60.0):
        self.lease_left = left_s
        self.time_left = time_left_s
        self.reason: Optional[Stop] = None

    def left_s(self) -> float:
        return 0.0 if self.reason is Stop.LOST else self.lease_left

    def time_left_s(self) -> float:
        return self.time_left

    def stop(self) -> Optional[Stop]:
        return Stop.LOST if self.left_s() <= 0 else self.reason


@dataclass(frozen=True)
class Result(Outcome):
    """The outcome that would be reported."""

    def output_as(self, type_: Type[M]) -> M:
        return type_.FromString(self.output)


def task(
    handler: str,
    request: Output = None,
    *,
    operation: Operation = Operation.ACTION,
    step: str = "step",
    saga_id: str = "saga-1",
    definition: str = "test",
    fence: int = 1,
    try_: int = 1,
    outputs: Optional[Mapping[str, Output]] = None,
    action_output: Union[Output, bool] = False,
    labels: Optional[Mapping[str, str]] = None,
    stop: Optional[Stop] = None,
    lease: Optional[FakeLease] = None,
    **more: Any,
) -> Task:
    """A task as a handler gets it. `action_output`, of a compensation: what the action answered;
    False: it may have happened. `more`: fields of saga.v1.Task."""
    message = worker_pb2.Task(
        namespace="default",
        definition=definition,
        revision=1,
        saga_id=saga_id,
        run=1,
        step=step,
        operation=cast(Any, int(operation)),
        handler=handler,
        fence=fence,
        labels=labels or {},
        **{
            "try": try_,
            "saga_uid": uuid.uuid5(uuid.NAMESPACE_OID, f"{definition}/{saga_id}").bytes,
            "idempotency_key": _key(definition, saga_id, step, operation),
            **more,
        },
    )
    message.saga_start_time.FromSeconds(_STARTED_S)
    if isinstance(request, Message):
        message.request = request.SerializeToString()
        message.request_type = request.DESCRIPTOR.full_name
    else:
        message.input = to_bytes(request)
    for name, output in (outputs or {}).items():
        message.outputs.add(step=name, output=to_bytes(output))
    if operation is Operation.COMPENSATION:
        message.action.kind = worker_pb2.ActionOutcome.KIND_MAYBE
        if action_output is not False:
            message.action.kind = worker_pb2.ActionOutcome.KIND_DONE
            message.action.output = to_bytes(action_output)
    if operation is Operation.PROBE:
        message.probed = message.probed or cast(Any, int(Operation.ACTION))
    lease = lease or FakeLease()
    if stop is not None:
        lease.reason = stop
    made = Task(message, lease)
    if lease.stop() is not None:
        made.tell_stop()
    return made


def _key(definition: str, saga_id: str, step: str, operation: Operation) -> str:
    """Stable as the orchestrator's, though not the same."""
    text = "\0".join((definition, saga_id, step, operation.name))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def run(worker: Worker, what: Union[str, Task], request: Output = None, **more: Any) -> Result:
    """Runs the worker's handler with a task (or one made of the arguments of `task`); what would be
    reported. In an event loop use run_async."""
    one, registered = _find(worker, what, request, more)
    if registered.is_async:
        return asyncio.run(run_async(worker, one))
    try:
        answer = registered.function(*registered.arguments(one))
        outcome = outcomes.of_return(answer, worker.max_output_bytes)
    except Exception as error:
        outcome = worker.outcome_of(error)
    return Result(**vars(outcome))


async def run_async(
    worker: Worker, what: Union[str, Task], request: Output = None, **more: Any
) -> Result:
    """The same for an async handler, in the running event loop."""
    one, registered = _find(worker, what, request, more)
    try:
        answer = await registered.function(*registered.arguments(one))
        outcome = outcomes.of_return(answer, worker.max_output_bytes)
    except Exception as error:
        outcome = worker.outcome_of(error)
    return Result(**vars(outcome))


def _find(
    worker: Worker, what: Union[str, Task], request: Output, more: Dict[str, Any]
) -> Tuple[Task, Registered]:
    one = what if isinstance(what, Task) else task(what, request, **more)
    registered = worker.handlers.get(one.handler)
    if registered is None:
        raise LookupError(f"the worker has no handler {one.handler}")
    return one, registered


@dataclass(frozen=True)
class _Step:
    name: str
    action: str
    compensation: Optional[str]


class Saga:
    """A small saga: steps one after the other, and back again. A RETRY is tried again at once; what
    the definition decides about an UNKNOWN is not played: it parks."""

    def __init__(self, worker: Worker, input: Output = None, *, saga_id: str = "saga-1"):
        self._worker = worker
        self._input = to_bytes(input)
        self._saga_id = saga_id
        self._steps: List[_Step] = []
        self._fence = 0
        self.outputs: Dict[str, bytes] = {}
        self.trace: List[str] = []

    def step(self, name: str, action: str, *, compensation: Optional[str] = None) -> "Saga":
        self._steps.append(_Step(name, action, compensation))
        return self

    def play(self) -> str:
        """Runs it: "SUCCEEDED", "COMPENSATED" or "PARKED"."""
        for step in self._steps:
            result = self._run(step, Operation.ACTION)
            if result.kind in (OutcomeKind.DONE, OutcomeKind.ALREADY_DONE):
                self.outputs[step.name] = result.output
            elif result.kind is OutcomeKind.REJECTED:
                return self._turn_back()
            else:
                return "PARKED"
        return "SUCCEEDED"

    def _turn_back(self) -> str:
        for step in reversed(self._steps):
            if step.name in self.outputs and step.compensation:
                result = self._run(step, Operation.COMPENSATION)
                if result.kind not in (OutcomeKind.DONE, OutcomeKind.ALREADY_DONE):
                    return "PARKED"
        return "COMPENSATED"

    def _run(self, step: _Step, operation: Operation) -> Result:
        compensates = operation is Operation.COMPENSATION
        handler = step.compensation if compensates else step.action
        what = step.name + (" compensation" if compensates else "")
        for try_ in range(1, TRIES_MAX + 1):
            self._fence += 1
            result = run(
                self._worker,
                handler or "",
                self._input,
                operation=operation,
                step=step.name,
                saga_id=self._saga_id,
                fence=self._fence,
                try_=try_,
                outputs=self.outputs,
                action_output=self.outputs[step.name] if compensates else False,
            )
            self.trace.append(f"{what}: {result.kind.name}")
            if result.kind is not OutcomeKind.RETRY:
                break
        return result
