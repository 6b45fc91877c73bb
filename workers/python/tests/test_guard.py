"""The guard. Goal: each answer and each failure is mapped as sql/guard/README.md says, by every
driver, with autocommit on and off, and no transaction stays open. Method: a real PostgreSQL and a
real MariaDB; the commit is cut off by the server's end of the connection."""

import importlib.util
import itertools
import unittest

from google.protobuf.wrappers_pb2 import StringValue

from sagad import AlreadyDone, Rejected, Retry, Task, Unknown, guard
from sagad.guard import Answer
from saga.v1 import saga_pb2
from tests.databases import Mariadb, Postgresql
from tests.server import task_message

ACTION = saga_pb2.OPERATION_KIND_ACTION
COMPENSATION = saga_pb2.OPERATION_KIND_COMPENSATION
PROBE = saga_pb2.OPERATION_KIND_PROBE
sagas = itertools.count(1)


class Cases:
    """Against a driver, which the classes below name."""

    autocommit = False

    @classmethod
    def setUpClass(cls):
        cls.server = cls.database()
        cls.addClassCleanup(cls.server.stop)
        conn = cls.connect()
        cursor = conn.cursor()
        cursor.execute("CREATE TABLE effect (saga_id varchar(64) NOT NULL, what varchar(32))")
        conn.commit()
        conn.close()

    def setUp(self):
        self.saga_id = f"order-{next(sagas)} \\' ü\u20ac"
        self.conn = self.connect()
        self.addCleanup(self.conn.close)

    def task(self, operation=ACTION, fence=1, **more):
        message = task_message(fence, **more)
        message.saga_id, message.operation = self.saga_id, operation
        return Task(message)

    def effect(self, output=b"", error=None, what="effect"):
        def run(conn):
            cursor = conn.cursor()
            cursor.execute("INSERT INTO effect VALUES (%s, %s)", (self.saga_id, what))
            if error:
                raise error
            return output

        return run

    def effects(self):
        conn = self.connect()
        cursor = conn.cursor()
        cursor.execute("SELECT count(*) FROM effect WHERE saga_id = %s", (self.saga_id,))
        (count,) = cursor.fetchone()
        conn.close()
        return count

    def run_guard(self, task, effect, **options):
        try:
            return guard.run(task, self.conn, effect, **options)
        finally:
            self.assertFalse(self.is_open(self.conn))

    def raises(self, kind, code):
        return self.assertRaisesRegex(kind, "^" + code)

    def never(self, conn):
        self.fail("the effect was asked for")

    def test_once_and_its_repeat(self):
        output = b"\x00'\\\xff receipt"
        self.assertEqual(self.run_guard(self.task(), self.effect(output)), output)
        self.assertEqual(self.effects(), 1)
        for fence in (1, 2):
            with self.assertRaises(AlreadyDone) as raised:
                self.run_guard(self.task(fence=fence), self.never)
            self.assertEqual((raised.exception.output, raised.exception.ours), (output, True))
        self.assertEqual(self.effects(), 1)

    def test_a_message_is_an_output(self):
        self.run_guard(self.task(), self.effect(StringValue(value="x")))
        with self.assertRaises(AlreadyDone) as raised:
            self.run_guard(self.task(), self.never)
        self.assertEqual(StringValue.FromString(raised.exception.output).value, "x")

    def test_a_compensation_takes_it_back_once_and_refuses_the_action(self):
        self.run_guard(self.task(), self.effect())
        refund = self.task(COMPENSATION, 2)
        self.assertEqual(self.run_guard(refund, self.effect(b"refunded")), b"refunded")
        with self.assertRaises(AlreadyDone):
            self.run_guard(refund, self.never)
        with self.raises(Rejected, "GUARD_REFUSED"):
            self.run_guard(self.task(fence=3), self.never)
        self.assertEqual(self.effects(), 2)

    def test_a_compensation_without_its_action(self):
        self.assertEqual(self.run_guard(self.task(COMPENSATION, 2), self.never), b"")
        with self.raises(Rejected, "GUARD_REFUSED"):
            self.run_guard(self.task(fence=1), self.never)

    def test_even_without_its_action(self):
        task = self.task(COMPENSATION, 2)
        self.assertEqual(
            self.run_guard(task, self.effect(b"undone"), even_without_action=True), b"undone"
        )
        with self.assertRaises(AlreadyDone):
            self.run_guard(task, self.never, even_without_action=True)

    def test_a_business_no_is_remembered(self):
        no = Rejected("NO_FUNDS", "the account is empty")
        with self.raises(Rejected, "NO_FUNDS"):
            self.run_guard(self.task(fence=5), self.effect(error=no))
        self.assertEqual(self.effects(), 0)
        with self.raises(Retry, "GUARD_STALE"):
            self.run_guard(self.task(fence=4), self.never)
        self.run_guard(self.task(fence=6), self.effect())
        self.assertEqual(self.effects(), 1)

    def test_a_business_no_of_a_compensation(self):
        self.run_guard(self.task(), self.effect())
        with self.raises(Rejected, "CLOSED"):
            self.run_guard(self.task(COMPENSATION, 2), self.effect(error=Rejected("CLOSED")))
        self.run_guard(self.task(COMPENSATION, 3), self.effect())
        self.assertEqual(self.effects(), 2)

    def test_what_the_effect_raises(self):
        table = [
            (Retry("LATER"), Retry, "LATER"),
            (Unknown("NOBODY_KNOWS"), Unknown, "NOBODY_KNOWS"),
            (AlreadyDone(ours=True), Retry, "GUARD_BODY_FAILED"),
            (ZeroDivisionError("a mistake"), Retry, "GUARD_BODY_FAILED"),
        ]
        for error, kind, code in table:
            with self.subTest(code), self.raises(kind, code):
                self.run_guard(self.task(), self.effect(error=error))
        with self.raises(Retry, "GUARD_BODY_FAILED"):
            self.run_guard(self.task(), self.effect("no bytes"))
        with self.assertRaises(ZeroDivisionError):
            self.run_guard(
                self.task(), self.effect(error=ZeroDivisionError()), even_without_action=True
            )
        self.assertEqual(self.effects(), 0)
        self.run_guard(self.task(), self.effect())

    def test_a_statement_that_fails(self):
        def fails(conn):
            conn.cursor().execute("SELECT nothing FROM nowhere")

        with self.raises(Retry, self.no_table):
            self.run_guard(self.task(), fails)
        self.run_guard(self.task(), self.effect())

    def test_an_effect_that_swallows_its_error(self):
        def fails(conn):
            self.effect()(conn)
            try:
                conn.cursor().execute("SELECT nothing FROM nowhere")
            except Exception:
                pass

        if self.swallowed:
            with self.raises(Retry, self.swallowed):
                self.run_guard(self.task(), fails)
            self.assertEqual(self.effects(), 0)
        else:  # there a statement that failed does not end the transaction
            self.run_guard(self.task(), fails)
            self.assertEqual(self.effects(), 1)

    def test_an_effect_that_ends_the_transaction(self):
        def rolls_back(conn):
            self.effect()(conn)
            conn.cursor().execute("ROLLBACK")

        with self.raises(Unknown, "GUARD_BODY_COMMITTED"):
            self.run_guard(self.task(), rolls_back)

    def test_a_connection_in_use(self):
        cursor = self.conn.cursor()
        cursor.execute("BEGIN" if self.autocommit else "SELECT 1")
        if not self.is_open(self.conn):
            cursor.execute("BEGIN")
        with self.raises(Retry, "GUARD_CONNECTION_IN_USE"):
            guard.run(self.task(), self.conn, self.never)

    def test_a_connection_that_is_cut_in_the_effect(self):
        def cut(conn):
            self.effect()(conn)
            self.cut(conn)
            conn.cursor().execute("SELECT 1")

        with self.raises(Retry, "GUARD_CONNECTION"):
            self.run_guard(self.task(), cut)
        self.assertEqual(self.effects(), 0)

    def test_a_commit_without_an_answer(self):
        self.cut_at_commit()
        with self.raises(Unknown, "GUARD_COMMIT_UNKNOWN"):
            self.run_guard(self.task(), self.effect())

    def test_a_probe_is_not_for_the_guard(self):
        with self.raises(Unknown, "GUARD_PROBE"):
            self.run_guard(self.task(PROBE), self.never)

    def test_in_pieces(self):
        self.begin()
        self.assertIs(guard.enter(self.task(), self.conn).answer, Answer.PROCEED)
        self.effect()(self.conn)
        guard.done(self.task(), self.conn, b"receipt")
        self.commit()
        self.begin()
        answer = guard.enter(self.task(fence=2), self.conn)
        self.assertEqual((answer.answer, answer.output), (Answer.DUPLICATE, b"receipt"))
        self.commit()

    def test_no_effect_in_pieces(self):
        self.begin()
        self.assertIs(guard.no_effect(self.task(fence=3), self.conn).answer, Answer.RECORDED)
        self.commit()
        self.begin()
        self.assertIs(guard.enter(self.task(fence=2), self.conn).answer, Answer.STALE)

    def test_in_pieces_without_a_transaction(self):
        if self.autocommit:
            with self.raises(Retry, "GUARD_NO_TRANSACTION"):
                guard.enter(self.task(), self.conn)

    def test_another_thing_is_refused(self):
        with self.assertRaisesRegex(TypeError, "psycopg"):
            guard.run(self.task(), object(), self.never)

    def begin(self):
        if self.autocommit:
            self.conn.cursor().execute("BEGIN")

    def commit(self):
        if self.autocommit:
            self.conn.cursor().execute("COMMIT")
        else:
            self.conn.commit()


class PostgresqlCases(Cases):
    database = Postgresql
    no_table = "GUARD_SQLSTATE_42P01"
    swallowed = "GUARD_SQLSTATE_25P02"

    def is_open(self, conn):
        if conn.closed:
            return False
        if hasattr(conn, "get_transaction_status"):
            return conn.get_transaction_status() != 0
        return int(conn.info.transaction_status) != 0

    def pid(self, conn):
        info = conn.info
        return info.backend_pid

    def cut(self, conn):
        other = self.connect()
        other.cursor().execute("SELECT pg_terminate_backend(%s, 10000)", (self.pid(conn),))
        other.close()

    def cut_at_commit(self):
        """A deferred trigger runs in the COMMIT itself."""
        other = self.connect()
        cursor = other.cursor()
        cursor.execute(
            "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END'"
        )
        cursor.execute(
            "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION die()"
        )
        other.commit()

        def undo():
            cursor.execute("DROP TRIGGER die ON effect")
            cursor.execute("DROP FUNCTION die")
            other.commit()
            other.close()

        self.addCleanup(undo)

    def test_a_commit_with_a_warning(self):
        other = self.connect()
        cursor = other.cursor()
        cursor.execute(
            "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN RAISE WARNING ''committed locally''; RETURN NEW; END'"
        )
        cursor.execute(
            "CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION warn()"
        )
        other.commit()
        try:
            with self.raises(Unknown, "GUARD_COMMIT_LOCAL"):
                self.run_guard(self.task(), self.effect())
        finally:
            cursor.execute("DROP TRIGGER warn ON effect")
            cursor.execute("DROP FUNCTION warn")
            other.commit()
            other.close()

    def test_an_entry_without_done_cannot_be_committed(self):
        self.begin()
        guard.enter(self.task(), self.conn)
        with self.assertRaisesRegex(Exception, "done"):
            self.commit()

    def test_a_closed_connection(self):
        self.conn.close()
        with self.raises(Retry, "GUARD_CONNECTION"):
            self.run_guard(self.task(), self.never)


@unittest.skipUnless(importlib.util.find_spec("psycopg"), "psycopg is not installed")
class Psycopg3Test(PostgresqlCases, unittest.TestCase):
    @classmethod
    def connect(cls):
        import psycopg
        import psycopg.rows

        conn = psycopg.connect(host=cls.server.directory, user="postgres")
        conn.autocommit = cls.autocommit
        return conn

    def test_rows_of_another_kind(self):
        import psycopg.rows

        self.conn.row_factory = psycopg.rows.dict_row
        self.assertEqual(self.run_guard(self.task(), self.effect(b"x")), b"x")


class Psycopg3AutocommitTest(Psycopg3Test):
    autocommit = True


@unittest.skipUnless(importlib.util.find_spec("psycopg2"), "psycopg2 is not installed")
class Psycopg2Test(PostgresqlCases, unittest.TestCase):
    @classmethod
    def connect(cls):
        import psycopg2

        conn = psycopg2.connect(host=cls.server.directory, user="postgres")
        conn.autocommit = cls.autocommit
        return conn

    def test_rows_of_another_kind(self):
        import psycopg2.extras

        self.conn.cursor_factory = psycopg2.extras.RealDictCursor
        self.assertEqual(self.run_guard(self.task(), self.effect(b"x")), b"x")


class Psycopg2AutocommitTest(Psycopg2Test):
    autocommit = True


@unittest.skipUnless(importlib.util.find_spec("pymysql"), "PyMySQL is not installed")
class PymysqlTest(Cases, unittest.TestCase):
    database = Mariadb
    no_table = "GUARD_MYSQL_1146"
    swallowed = None

    @classmethod
    def connect(cls):
        import pymysql

        return pymysql.connect(
            unix_socket=cls.server.socket, user="root", database="shop", autocommit=cls.autocommit
        )

    def is_open(self, conn):
        return conn.open and bool(conn.server_status & 1)

    def cut(self, conn):
        other = self.connect()
        other.kill(conn.thread_id())
        other.close()

    def cut_at_commit(self):
        """The guard's COMMIT finds that the server has gone."""
        query = self.conn.query

        def cut_first(sql, *args):
            if sql.startswith("COMMIT"):
                self.cut(self.conn)
            return query(sql, *args)

        self.conn.query = cut_first

    def test_a_worker_that_committed_without_done(self):
        self.begin()
        guard.enter(self.task(), self.conn)
        self.commit()
        with self.raises(Unknown, "GUARD_LEFT_OPEN"):
            self.run_guard(self.task(fence=2), self.never)

    def test_a_deadlock(self):
        import pymysql

        error = pymysql.err.OperationalError(1213, "Deadlock found")
        with self.raises(Retry, "GUARD_MYSQL_1213"):
            self.run_guard(self.task(), self.effect(error=error))

    def test_a_connection_that_was_lost_is_made_again(self):
        self.cut(self.conn)
        self.assertEqual(self.run_guard(self.task(), self.effect(b"x")), b"x")
        self.conn.close()
        self.saga_id += "-again"
        self.assertEqual(self.run_guard(self.task(), self.effect(b"y")), b"y")

    def test_rows_of_another_kind_and_other_escapes(self):
        import pymysql.cursors

        self.conn.cursorclass = pymysql.cursors.DictCursor
        self.conn.cursor().execute("SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')")
        output = b"\\'\x00\""
        self.assertEqual(self.run_guard(self.task(), self.effect(output)), output)
        with self.assertRaises(AlreadyDone) as raised:
            self.run_guard(self.task(), self.never)
        self.assertEqual(raised.exception.output, output)


class PymysqlAutocommitTest(PymysqlTest):
    autocommit = True


if __name__ == "__main__":
    unittest.main()
