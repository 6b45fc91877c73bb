"""A PostgreSQL and a MariaDB of the tests' own, thrown away at their end. They do not run as root:
then another user runs them."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

LIMIT_S = 60
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


class Server:
    """A process with a directory that belongs to it."""

    users = ("nobody",)

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="sagad-python-")
        self._user = {}
        if os.geteuid() == 0:
            user = self._find_user()
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            self._user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._process = None

    def _find_user(self):
        for name in self.users:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
        raise RuntimeError(f"no system user of {self.users} to run it as")

    def _run(self, *argv):
        subprocess.run(
            argv,
            cwd=self.directory,
            env={**os.environ, "TMPDIR": self.directory},
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=LIMIT_S,
            **self._user,
        )

    def start(self):
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self._process = subprocess.Popen(
                self.argv(),
                cwd=self.directory,
                env={**os.environ, "TMPDIR": self.directory},
                stdout=log,
                stderr=log,
                **self._user,
            )
        until = time.monotonic() + LIMIT_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > until:
                with open(os.path.join(self.directory, "log"), encoding="utf-8") as log:
                    raise RuntimeError("the database did not start: " + log.read()[-2000:])
            time.sleep(0.05)

    def kill(self, number=signal.SIGQUIT):
        if self._process:
            self._process.send_signal(number)
            self._process.wait(LIMIT_S)
        self._process = None

    def stop(self):
        self.kill(self.stop_signal)
        shutil.rmtree(self.directory)


class Postgresql(Server):
    users = ("postgres",)
    stop_signal = signal.SIGQUIT

    def __init__(self):
        super().__init__()
        self._bin = os.environ.get("SAGAD_PG_BIN") or "/usr/lib/postgresql/15/bin"
        self._data = os.path.join(self.directory, "data")
        self._run(
            os.path.join(self._bin, "initdb"),
            *("-D", self._data, "-U", "postgres", "-E", "UTF8"),
            *("--locale=C.UTF-8", "--auth=trust", "--no-sync"),
        )
        self.start()
        self.load(os.path.join(ROOT, "sql", "guard", "postgresql.sql"))

    def argv(self):
        return [
            os.path.join(self._bin, "postgres"),
            *("-D", self._data, "-k", self.directory, "-c", "listen_addresses="),
            *("-c", "shared_buffers=64MB"),
        ]

    def answers(self):
        program = os.path.join(self._bin, "pg_isready")
        return subprocess.run([program, "-q", "-h", self.directory]).returncode == 0

    def load(self, path):
        program = os.path.join(self._bin, "psql")
        options = ("-X", "-q", "-h", self.directory, "-U", "postgres", "-v", "ON_ERROR_STOP=1")
        subprocess.run(
            [program, *options, "-f", path], check=True, stderr=subprocess.DEVNULL, timeout=LIMIT_S
        )


class Mariadb(Server):
    users = ("mysql", "nobody")
    stop_signal = signal.SIGTERM
    _settings = ("--innodb-log-file-size=16M", "--innodb-use-native-aio=0")

    def __init__(self):
        super().__init__()
        self.socket = os.path.join(self.directory, "sock")
        self._data = "--datadir=" + os.path.join(self.directory, "data")
        self._run(
            *("/usr/bin/mariadb-install-db", "--no-defaults", self._data),
            *("--auth-root-authentication-method=normal", "--skip-test-db"),
            *("--skip-name-resolve", *self._settings),
        )
        self.start()
        with open(os.path.join(ROOT, "sql", "guard", "mysql.sql"), encoding="utf-8") as script:
            text = "CREATE DATABASE shop; USE shop;" + script.read()
        subprocess.run(
            ["/usr/bin/mariadb", "--no-defaults", "-u", "root", "--socket", self.socket],
            input=text,
            text=True,
            check=True,
            timeout=LIMIT_S,
        )

    def argv(self):
        folder = os.environ.get("SAGAD_MARIADB_BIN") or "/usr/sbin"
        return [
            os.path.join(folder, "mariadbd"),
            *("--no-defaults", self._data, "--socket=" + self.socket),
            *("--skip-networking", "--skip-name-resolve", *self._settings),
            *("--innodb-buffer-pool-size=64M", "--character-set-server=utf8mb4"),
        ]

    def answers(self):
        import pymysql

        try:
            pymysql.connect(unix_socket=self.socket, user="root").close()
        except pymysql.err.OperationalError:
            return False
        return True
