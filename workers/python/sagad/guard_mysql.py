"""The guard's statements on PyMySQL: those of sql/guard/mysql.sql, which says why they are as they
are; and, in place of 3 and 4 for an action that comes for the first time, one that says what those
two would say then. For sagad.guard."""

import sys
from typing import Any, Callable, Dict, Tuple, TypeVar

from sagad.outcome import Reported, Retry, Unknown
from sagad.task import Operation, Task

T = TypeVar("T")

IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS
DUPLICATE_KEY = 1062
NO_SAVEPOINT = 1305
# COMMIT was refused: a deadlock, or rolled back by group replication.
ROLLED_BACK = (1213, 3101)

# Bytes go as hexadecimal digits: no SQL mode and no character set changes those.
_COLUMNS = "(namespace, definition, saga_id, run, step, operation, fence, state, saga_started_us)"
_IDENTITY = "%(namespace)s, %(definition)s, UNHEX(%(saga_id)s), %(run)s, %(step)s"
_FLOOR = "(SELECT floor_us FROM saga_guard_floor WHERE only_row = 1 LOCK IN SHARE MODE)"
_STEP = (
    "namespace = %(namespace)s AND definition = %(definition)s AND saga_id = UNHEX(%(saga_id)s)"
    " AND run = %(run)s AND step = %(step)s"
)
_ENTER_FIRST = (
    f"INSERT INTO saga_guard {_COLUMNS}"
    f" SELECT {_IDENTITY}, 'ACTION', %(fence)s, 'ENTERED', %(started_us)s FROM saga_guard_floor"
    " WHERE only_row = 1 AND floor_us <= %(started_us)s LOCK IN SHARE MODE"
)
_BLOCK_ACTION = (
    f"INSERT INTO saga_guard {_COLUMNS}"
    f" VALUES ({_IDENTITY}, 'ACTION', %(fence)s, 'BLOCKED', %(started_us)s)"
    " ON DUPLICATE KEY UPDATE state = CASE state WHEN 'DONE' THEN 'UNDONE'"
    " WHEN 'SEEN' THEN 'BLOCKED' ELSE state END"
)
_CLAIM = (
    f"INSERT INTO saga_guard {_COLUMNS}"
    f" VALUES ({_IDENTITY}, %(operation)s, %(fence)s, 'ENTERED', %(started_us)s)"
    " ON DUPLICATE KEY UPDATE state = CASE WHEN state = 'ENTERED' THEN 'LEFT_OPEN'"
    " WHEN state = 'SEEN' AND fence <= %(fence)s THEN 'ENTERED' ELSE state END,"
    " fence = GREATEST(fence, %(fence)s)"
)
_ASK_ACTION = (
    "SELECT CASE WHEN state IN ('UNDONE', 'BLOCKED') THEN 'REFUSED'"
    " WHEN state = 'DONE' THEN 'DUPLICATE'"
    " WHEN state = 'LEFT_OPEN' THEN 'LEFT_OPEN'"
    f" WHEN fence > %(fence)s OR saga_started_us < {_FLOOR} THEN 'STALE'"
    " ELSE 'PROCEED' END AS answer, output"
    f" FROM saga_guard WHERE {_STEP} AND operation = 'ACTION' FOR UPDATE"
)
_ASK_COMPENSATION = (
    "SELECT CASE WHEN own.state = 'DONE' THEN 'DUPLICATE'"
    " WHEN own.state = 'LEFT_OPEN' OR action.state IN ('ENTERED', 'LEFT_OPEN') THEN 'LEFT_OPEN'"
    " WHEN GREATEST(own.fence, action.fence) > %(fence)s"
    f" OR own.saga_started_us < {_FLOOR} THEN 'STALE'"
    " WHEN action.state = 'BLOCKED' AND NOT %(even_without_action)s THEN 'EMPTY'"
    " ELSE 'PROCEED' END AS answer, own.output"
    " FROM saga_guard action JOIN saga_guard own USING (namespace, definition, saga_id, run, step)"
    f" WHERE {_STEP} AND action.operation = 'ACTION' AND own.operation = 'COMPENSATION' FOR UPDATE"
)
_OWN_ENTERED = f" WHERE {_STEP} AND operation = %(operation)s AND state = 'ENTERED'"
_DONE = f"UPDATE saga_guard SET state = 'DONE', output = UNHEX(%(output)s){_OWN_ENTERED}"
_NO_EFFECT = f"UPDATE saga_guard SET state = 'SEEN'{_OWN_ENTERED}"
_UNBLOCK = (
    "UPDATE saga_guard SET state = 'DONE'"
    f" WHERE {_STEP} AND operation = 'ACTION' AND state = 'UNDONE'"
)


class MysqlGuard:
    """One task on one connection."""

    def __init__(self, conn: Any, task: Task, even_without_action: bool):
        self.conn = conn
        self._compensates = task.operation is Operation.COMPENSATION
        self._values: Dict[str, Any] = {
            "namespace": task.namespace,
            "definition": task.definition,
            "saga_id": task.saga_id.encode().hex(),
            "run": task.run,
            "step": task.step,
            "operation": task.operation.name,
            "fence": task.fence,
            "started_us": task.started_at_us,
            "even_without_action": int(even_without_action),
        }

    # The connection.

    def _in_transaction(self) -> bool:
        """As the server said with its last good answer."""
        return bool(self.conn.server_status & IN_TRANSACTION)

    def _cursor(self) -> Any:
        """A plain one, whatever the connection's cursors are."""
        return self.conn.cursor(sys.modules["pymysql.cursors"].Cursor)

    def _execute(self, sql: str, **more: Any) -> Any:
        cursor = self._cursor()
        cursor.execute(sql, {**self._values, **more})
        return cursor

    def _query(self, sql: str) -> None:
        self._cursor().execute(sql)

    def begin(self) -> None:
        """A connection that is lost is made again: nothing was done on it yet."""
        if self.conn.open and self._in_transaction():
            # A deadlock or a lost connection has ended a transaction without telling.
            try:
                self._query("DO 0")
            except Exception as error:
                if self._is_of_server(error):
                    raise self.retry_of(error, "") from error
                self._cut()
            if self.conn.open and self._in_transaction():
                raise Retry("GUARD_CONNECTION_IN_USE", "the connection is inside a transaction")
        self.attempt(self._start_transaction)
        if not self._in_transaction():
            raise Retry("GUARD_NO_TRANSACTION", "the server opened no transaction")

    def _start_transaction(self) -> None:
        if self.conn.open:
            try:
                self._query("START TRANSACTION")
                return
            except Exception as error:
                if self._is_of_server(error):
                    raise
        self.conn.connect()
        self._query("START TRANSACTION")

    def require_transaction(self) -> None:
        """For a transaction of the caller's. Without one each statement would commit by itself."""
        if not self.conn.get_autocommit():
            return
        self._query("SAVEPOINT saga_guard")
        try:
            self._query("RELEASE SAVEPOINT saga_guard")
        except Exception as error:
            if _number(error) != NO_SAVEPOINT:
                raise
            raise Retry(
                "GUARD_NO_TRANSACTION", "the connection is outside of a transaction"
            ) from error

    def require_not_ended(self) -> None:
        """On a lost connection nothing can have been done after the transaction."""
        if self.conn.open and not self._in_transaction():
            raise Unknown("GUARD_BODY_COMMITTED", "the effect ended the guard's transaction")

    def roll_back(self) -> None:
        """Leaves no transaction open: what cannot be rolled back is cut off."""
        try:
            if self.conn.open and self._in_transaction():
                self._query("ROLLBACK AND NO CHAIN NO RELEASE")
        except Exception:
            self._cut()

    leave = roll_back

    def _cut(self) -> None:
        if self.conn.open:  # else the driver has closed it, and its owner may do so again
            self.conn.close()

    def commit(self) -> None:
        """Unknown where it is not certain that it stands; Retry where it certainly does not."""
        try:
            self._query("COMMIT AND NO CHAIN NO RELEASE")
        except Exception as error:
            if _number(error) in ROLLED_BACK:
                raise self.retry_of(error, "") from error
            raise Unknown("GUARD_COMMIT_UNKNOWN", str(error)) from error

    def commit_of_no_effect(self) -> None:
        """As true if it fails: then the fence is not remembered, and it is a RETRY."""
        self._query("COMMIT AND NO CHAIN NO RELEASE")

    # The statements.

    def enter_inside(self) -> Tuple[str, Any]:
        """The statements 2 to 4."""
        if self._compensates:
            self._execute(_BLOCK_ACTION)
        self._execute(_CLAIM)
        cursor = self._execute(_ASK_COMPENSATION if self._compensates else _ASK_ACTION)
        word, output = cursor.fetchone()
        return word, output

    def enter_new(self) -> Tuple[str, Any]:
        """In a transaction that was begun for it."""
        if self._compensates:
            return self.enter_inside()
        try:
            if self._execute(_ENTER_FIRST).rowcount == 1:
                return "PROCEED", None
        except Exception as error:
            if _number(error) != DUPLICATE_KEY:
                raise
        # It was here before, or is below the floor. In a new transaction: the row is locked, but
        # shared, and two that then want it for themselves are a deadlock.
        self.roll_back()
        self.begin()
        return self.enter_inside()

    def done(self, output: bytes) -> None:
        self._on_entered(_DONE, output=output.hex())

    def done_of_empty(self) -> None:
        self.done(b"")

    def no_effect_inside(self) -> Tuple[str, Any]:
        answer = self.enter_inside()
        if answer[0] != "PROCEED":
            return answer
        self._on_entered(_NO_EFFECT)
        if self._compensates:
            self._execute(_UNBLOCK)
        return "RECORDED", None

    def _on_entered(self, sql: str, **more: Any) -> None:
        """Statements that belong to an enter: without its row they do nothing."""
        if self._execute(sql, **more).rowcount != 1:
            raise Retry("GUARD_NOT_ENTERED", "the row of this transaction's enter is gone")

    # What errors mean before COMMIT: nothing took effect.

    def attempt(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Reported:
            raise
        except Exception as error:
            raise self.retry_of(error, "GUARD_CONNECTION") from error

    def retry_of(self, error: BaseException, code: str) -> Retry:
        if self._is_of_server(error):
            code = f"GUARD_MYSQL_{_number(error)}"
        elif type(error).__module__.startswith("pymysql"):
            code = "GUARD_CONNECTION"
        return Retry(code, f"{type(error).__name__}: {error}")

    def _is_of_server(self, error: BaseException) -> bool:
        """Not of the client: the connection is lost, or was never there."""
        number = _number(error)
        return number > 0 and not 2000 <= number < 3000


def _number(error: BaseException) -> int:
    is_pymysql = type(error).__module__.startswith("pymysql")
    first = error.args[0] if is_pymysql and error.args else 0
    return first if isinstance(first, int) else 0
