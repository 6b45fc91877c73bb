"""Runs the steps of sagas in a Python program, and starts and watches sagas.

    from sagad import Rejected, Task, Worker

    worker = Worker(["127.0.0.1:7233"], worker_id="settle-1", concurrency=16)

    @worker.handler("account.debit")
    def debit(task: Task, payment: Payment) -> Receipt:
        ...

    worker.run(handle_signals=True)

`sagad.guard` makes an effect in your own database happen once, `sagad.client` starts sagas,
`sagad.fake` runs handlers in unit tests.
"""

from sagad.classify import classify
from sagad.outcome import (
    AlreadyDone,
    NotDone,
    Outcome,
    OutcomeKind,
    Rejected,
    Reported,
    Retry,
    StillUnknown,
    Unknown,
)
from sagad.task import ActionOutcome, Operation, Probed, Stop, Task
from sagad.version import __version__
from sagad.worker import Stats, Worker

__all__ = [
    "ActionOutcome",
    "AlreadyDone",
    "NotDone",
    "Operation",
    "Outcome",
    "OutcomeKind",
    "Probed",
    "Rejected",
    "Reported",
    "Retry",
    "Stats",
    "StillUnknown",
    "Stop",
    "Task",
    "Unknown",
    "Worker",
    "__version__",
    "classify",
]
