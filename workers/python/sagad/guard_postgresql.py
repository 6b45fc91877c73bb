"""The guard's statements on psycopg and psycopg2. For sagad.guard."""

import sys
from typing import Any, Callable, List, Tuple, TypeVar

from sagad.outcome import Reported, Retry, Unknown
from sagad.task import Task

T = TypeVar("T")

# libpq's PGTransactionStatusType
IDLE, INTRANS, INERROR = 0, 2, 3

_IDENTITY = "%s::text, %s::text, %s::text, %s::integer, %s::text, %s::text"
_ENTER_ARGUMENTS = (
    _IDENTITY
    + ", %s::bigint, timestamptz 'epoch' + %s::bigint * interval '1 microsecond', %s::boolean"
)
_ENTER = f"SELECT answer, output FROM saga_guard.enter({_ENTER_ARGUMENTS})"
_NO_EFFECT = f"SELECT answer, output FROM saga_guard.no_effect({_ENTER_ARGUMENTS})"
_DONE = f"SELECT saga_guard.done({_IDENTITY}, %s::bytea)"

_UNCERTAIN = "40003"  # statement completion unknown


class PostgresqlGuard:
    """One task on one connection."""

    def __init__(self, conn: Any, task: Task, even_without_action: bool):
        self.conn = conn
        self._is_psycopg3 = not hasattr(conn, "get_transaction_status")
        self._identity = (
            task.namespace,
            task.definition,
            task.saga_id,
            task.run,
            task.step,
            task.operation.name,
        )
        self._enter = (*self._identity, task.fence, task.started_at_us, even_without_action)

    # The connection.

    def _status(self) -> int:
        if self._is_psycopg3:
            return int(self.conn.info.transaction_status)
        return int(self.conn.get_transaction_status())

    def _cursor(self) -> Any:
        """A plain one, whatever the connection's rows are made of."""
        if self._is_psycopg3:
            return self.conn.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row)
        return self.conn.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor)

    def _execute(self, sql: str, values: Tuple[Any, ...] = ()) -> Any:
        cursor = self._cursor()
        cursor.execute(sql, values or None)
        return cursor

    def begin(self) -> None:
        if self.conn.closed:
            raise Retry("GUARD_CONNECTION", "the connection is closed")
        if self._status() != IDLE:
            raise Retry("GUARD_CONNECTION_IN_USE", "the connection is inside a transaction")
        if self.conn.autocommit:  # else the driver begins before the first statement
            self.attempt(lambda: self._execute("BEGIN"))

    def require_transaction(self) -> None:
        """For a transaction of the caller's. Without one enter would commit by itself."""
        if self.conn.autocommit and self._status() == IDLE:
            raise Retry("GUARD_NO_TRANSACTION", "the connection is outside of a transaction")

    def require_not_ended(self) -> None:
        """On a lost connection nothing can have been done after the transaction."""
        if not self.conn.closed and self._status() == IDLE:
            raise Unknown("GUARD_BODY_COMMITTED", "the effect ended the guard's transaction")

    def roll_back(self) -> None:
        """Leaves no transaction open: what cannot be rolled back is cut off."""
        try:
            if not self.conn.closed and self._status() != IDLE:
                if self.conn.autocommit:
                    self._execute("ROLLBACK")
                else:
                    self.conn.rollback()
        except Exception:
            self.conn.close()

    leave = roll_back

    def commit(self) -> None:
        """Unknown where it is not certain that it stands; Retry where it certainly does not."""
        if not self.conn.closed and self._status() == INERROR:
            raise Retry("GUARD_ROLLED_BACK", "the transaction had failed before its commit")
        try:
            warned = self._commit()
        except Exception as error:
            sqlstate = _sqlstate(error)
            if sqlstate and sqlstate != _UNCERTAIN and not self._is_lost(error):
                raise self.retry_of(error, "") from error
            raise Unknown("GUARD_COMMIT_UNKNOWN", str(error)) from error
        if warned:  # "committed locally" when a synchronous standby did not answer is not a yes
            raise Unknown("GUARD_COMMIT_LOCAL", "the commit was confirmed with a warning")

    commit_of_no_effect = commit

    def _commit(self) -> bool:
        """True: with a warning."""
        return self._commit_psycopg3() if self._is_psycopg3 else self._commit_psycopg2()

    def _commit_psycopg3(self) -> bool:
        warnings: List[Any] = []

        def see(diagnostic: Any) -> None:
            if diagnostic.severity_nonlocalized == "WARNING":
                warnings.append(diagnostic)

        self.conn.add_notice_handler(see)
        try:
            cursor = self._execute("COMMIT")
        finally:
            self.conn.remove_notice_handler(see)
        if cursor.statusmessage != "COMMIT":
            raise Retry("GUARD_ROLLED_BACK", "the transaction had failed before its commit")
        return bool(warnings)

    def _commit_psycopg2(self) -> bool:
        before, self.conn.notices = self.conn.notices, []
        try:
            if self.conn.autocommit:
                self._execute("COMMIT")
            else:
                self.conn.commit()
        finally:
            notices, self.conn.notices = self.conn.notices, before
            before.extend(notices)
        # Its text is in the server's language; what is surely less than a warning is let pass.
        less = ("NOTICE:", "INFO:", "LOG:", "DEBUG:")
        return any(not notice.startswith(less) for notice in notices)

    # The statements.

    def _answer(self, sql: str) -> Tuple[str, Any]:
        word, output = self._execute(sql, self._enter).fetchone()
        return word, output

    def enter_inside(self) -> Tuple[str, Any]:
        return self._answer(_ENTER)

    enter_new = enter_inside

    def no_effect_inside(self) -> Tuple[str, Any]:
        return self._answer(_NO_EFFECT)

    def done(self, output: bytes) -> None:
        self._execute(_DONE, (*self._identity, output))

    def done_of_empty(self) -> None:
        """The compensation is on record already."""

    # What errors mean before COMMIT: nothing took effect.

    def attempt(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Reported:
            raise
        except Exception as error:
            raise self.retry_of(error, "GUARD_CONNECTION") from error

    def retry_of(self, error: BaseException, code: str) -> Retry:
        sqlstate = _sqlstate(error)
        if self.conn.closed:
            code = "GUARD_CONNECTION"
        elif sqlstate:
            code = "GUARD_SQLSTATE_" + sqlstate
        return Retry(code, f"{type(error).__name__}: {error}")

    def _is_lost(self, error: BaseException) -> bool:
        diagnostics = getattr(error, "diag", None)
        severity = getattr(diagnostics, "severity_nonlocalized", None)
        return bool(self.conn.closed) or severity in ("FATAL", "PANIC")


def _sqlstate(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
