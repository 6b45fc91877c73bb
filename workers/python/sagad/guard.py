"""The guard of a participant's own database: makes an effect there happen once, and never after its
compensation. See sql/guard/README.md for the tables and what each answer means.

    def debit(task, request: Payment):
        def effect(conn):
            conn.execute("UPDATE account SET ...")
            return Receipt(...)
        return guard.run(task, conn, effect)

`run` does it all in one transaction of the connection that it is given, of psycopg, psycopg2 or
PyMySQL. `enter`, `done` and `no_effect` are the same in pieces, for a transaction that the caller
begins and ends.
"""

import enum
import sys
from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple

from sagad.guard_mysql import MysqlGuard
from sagad.guard_postgresql import PostgresqlGuard
from sagad.outcome import (
    AlreadyDone,
    Output,
    Rejected,
    Reported,
    Retry,
    Unknown,
    to_bytes,
)
from sagad.task import Operation, Task

__all__ = ["Answer", "Guarded", "done", "enter", "no_effect", "run"]


class Answer(enum.Enum):
    """What the guard says of an operation."""

    REFUSED = "REFUSED"  # an action after its compensation: roll back, Rejected
    DUPLICATE = "DUPLICATE"  # the effect is there: commit, AlreadyDone(output, ours=True)
    STALE = "STALE"  # a newer holder was here, or it is below the floor: roll back, Retry
    EMPTY = "EMPTY"  # a compensation of an action that never ran: (MySQL: done,) commit, DONE
    PROCEED = "PROCEED"  # the effect, done, commit, DONE
    RECORDED = "RECORDED"  # of no_effect: it stands that there is none: commit, Rejected
    LEFT_OPEN = "LEFT_OPEN"  # MySQL: a worker committed without done: roll back, Unknown


@dataclass(frozen=True)
class Guarded:
    """The guard's answer; `output` is what the effect answered, of a DUPLICATE."""

    answer: Answer
    output: bytes = b""


def _guard_of(conn: Any, task: Task, even_without_action: bool) -> Any:
    for module, name, guard in (
        ("psycopg", "Connection", PostgresqlGuard),
        ("psycopg2.extensions", "connection", PostgresqlGuard),
        ("pymysql.connections", "Connection", MysqlGuard),
    ):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(conn, kind):
            return guard(conn, task, even_without_action)
    raise TypeError(
        "the guard takes a connection of psycopg, psycopg2 or PyMySQL, not " + type(conn).__name__
    )


def _guarded(answer: Tuple[str, Optional[bytes]]) -> Guarded:
    word, output = answer
    try:
        return Guarded(Answer(word), bytes(output or b""))
    except ValueError:
        raise Retry(
            "GUARD_VERSION", f"the guard gave an answer that this worker does not know: {word}"
        ) from None


def enter(task: Task, conn: Any, *, even_without_action: bool = False) -> Guarded:
    """The first thing of the caller's transaction. Errors of the driver come as they are."""
    guard = _guard_of(conn, task, even_without_action)
    guard.require_transaction()
    return _guarded(guard.enter_inside())


def done(task: Task, conn: Any, output: Output = None) -> None:
    """The last thing of the caller's transaction, after PROCEED (and on MySQL after EMPTY)."""
    _guard_of(conn, task, False).done(to_bytes(output))


def no_effect(task: Task, conn: Any, *, even_without_action: bool = False) -> Guarded:
    """In a transaction of its own after a business no was rolled back: remembers the fence.
    RECORDED, or the answer of enter: somebody was faster, and that counts."""
    guard = _guard_of(conn, task, even_without_action)
    guard.require_transaction()
    return _guarded(guard.no_effect_inside())


def run(
    task: Task,
    conn: Any,
    effect: Callable[[Any], Output],
    *,
    even_without_action: bool = False,
) -> bytes:
    """One guarded transaction: begins it, enters, calls `effect(conn)` if the guard says PROCEED,
    done, COMMIT. Returns the output of DONE, or raises what is to be reported:

        DUPLICATE          AlreadyDone (ours, with the stored output)
        EMPTY              returns b""
        REFUSED            Rejected GUARD_REFUSED
        STALE              Retry GUARD_STALE
        an error or a lost connection before COMMIT     Retry GUARD_SQLSTATE_..., GUARD_MYSQL_...,
                           GUARD_CONNECTION, GUARD_BODY_FAILED
        a COMMIT without an answer                      Unknown GUARD_COMMIT_UNKNOWN

    `effect` works on `conn` and must not end the transaction. What it raises rolls it back;
    Rejected is remembered by the guard first. `conn` is outside of a transaction, is used by nobody
    else meanwhile, and is left so: no transaction stays open. Autocommit may be on or off.

    even_without_action: a compensation whose action left no trace is run and not passed over: for
    an action that also has an effect outside of the database. What `effect` raises then goes on as
    it is, since no ROLLBACK takes that back."""
    if task.operation is Operation.PROBE:
        raise Unknown("GUARD_PROBE", "the guard is for actions and compensations")
    guard = _guard_of(conn, task, even_without_action)
    try:
        guard.begin()
        guarded = _guarded(guard.attempt(guard.enter_new))
        if guarded.answer is Answer.PROCEED:
            return _proceed(guard, effect, even_without_action)
        return _settle(guard, guarded)
    finally:
        guard.leave()


def _settle(guard: Any, guarded: Guarded) -> bytes:
    """An answer after which there is no effect to run."""
    answer = guarded.answer
    if answer is Answer.DUPLICATE:
        guard.commit()
        raise AlreadyDone(guarded.output, ours=True)
    if answer is Answer.EMPTY:
        guard.attempt(guard.done_of_empty)
        guard.commit()
        return b""
    if answer is Answer.STALE:
        raise Retry("GUARD_STALE", "a newer holder was here, or the saga is below the floor")
    if answer is Answer.REFUSED:
        raise Rejected("GUARD_REFUSED", "the action came after its compensation")
    raise Unknown("GUARD_LEFT_OPEN", "a worker entered the guard and committed without done")


def _proceed(guard: Any, effect: Callable[[Any], Output], outside_too: bool) -> bytes:
    try:
        output = to_bytes(effect(guard.conn))
    except Exception as error:
        guard.require_not_ended()
        guard.roll_back()
        if isinstance(error, Rejected):
            return _record_no_effect(guard, error)
        if isinstance(error, (Retry, Unknown)) or outside_too:
            raise
        if isinstance(error, Reported):  # AlreadyDone and the probe's: nothing of it stands
            raise Retry("GUARD_BODY_FAILED", f"the effect said {error}") from error
        raise guard.retry_of(error, "GUARD_BODY_FAILED") from error
    guard.require_not_ended()
    guard.attempt(lambda: guard.done(output))
    guard.commit()
    return output


def _record_no_effect(guard: Any, rejected: Rejected) -> bytes:
    """The fence is remembered before REJECTED is reported, so that an older holder that wakes up
    later is stale; if that fails the whole is a RETRY, which is as true."""
    guard.begin()
    guarded = _guarded(guard.attempt(guard.no_effect_inside))
    if guarded.answer is not Answer.RECORDED:
        return _settle(guard, guarded)
    guard.attempt(guard.commit_of_no_effect)
    raise rejected
