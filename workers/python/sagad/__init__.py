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

import os

# gRPC's handlers around a fork may hang or abort the process when its threads are just ending, as
# those of Debian 12's grpcio do. They are for children that go on to use gRPC; those of subprocess,
# which exec at once, need none. Read when the first channel is made.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

from sagad.classify import classify  # noqa: E402
from sagad.outcome import (  # noqa: E402
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
from sagad.task import ActionOutcome, Operation, Probed, Stop, Task  # noqa: E402
from sagad.version import __version__  # noqa: E402
from sagad.worker import Stats, Worker  # noqa: E402

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
