"""A language's worker program as a process: what it says, and what it is told."""

import glob
import json
import os
import signal
import subprocess
import threading
import time

from orchestrator import Failed, Waiter, WAIT_S

END_S = 30


class Worker(Waiter):
    def __init__(self, program, environment, log, stderr_path):
        super().__init__()
        self.log = log
        self.events = []  # (time, event)
        self.wrong = None  # a line of stdout that is no event
        self.stderr = open(stderr_path, "ab")
        self.process = subprocess.Popen(
            [program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.stderr, start_new_session=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            text = line.decode("utf-8", "replace").strip()
            self.log.add("worker <-", text)
            try:
                event = json.loads(text)
                name = event["event"]
            except (ValueError, KeyError, TypeError):
                event, name = None, None
            with self.changed:
                if name is None:
                    self.wrong = text
                else:
                    self.events.append((time.monotonic(), event))
                self.changed.notify_all()
        status = self.process.wait()
        self.log.add("worker", "its process ended: %d" % status)
        with self.changed:
            self.changed.notify_all()

    def seen(self, name, fence=None, **members):
        with self.changed:
            if self.wrong is not None:
                raise Failed("stdout is no event: %.200s" % self.wrong)
            return [(at, event) for at, event in self.events
                    if event["event"] == name and (fence is None or event.get("fence") == str(fence))
                    and all(event.get(key) == value for key, value in members.items())]

    def event(self, name, fence=None, number=0, timeout=WAIT_S, **members):
        """The nth such event, as (time, event)."""
        def there():
            found = self.seen(name, fence, **members)[number:]
            if not found and self.process.poll() is not None and not self.reader.is_alive():
                raise Failed("the worker ended (%d) before: %s %s" %
                             (self.process.returncode, name, fence or ""))
            return found
        return self.wait("event %s %s %s" % (name, fence or "", members or ""), there, timeout)[0]

    def started(self, fence, timeout=WAIT_S):
        return self.event("started", fence, timeout=timeout)[0]

    def count_started(self, fence):
        return len(self.seen("started", fence))

    def tell(self, command):
        self.log.add("worker ->", command)
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failed("the worker takes no command %s: %s" % (command, error))

    def still_mine(self, fence, timeout=WAIT_S):
        number = len(self.seen("still_mine", fence))
        self.tell("still_mine %d" % fence)
        return self.event("still_mine", fence, number=number, timeout=timeout)[1]["mine"]

    def signal(self, number):
        self.log.add("worker ->", "signal %d" % number)
        os.kill(self.process.pid, number)

    def freeze(self):
        """Returns when every thread stands still: a signal takes its time to reach one that runs."""
        self.signal(signal.SIGSTOP)
        until = time.monotonic() + WAIT_S
        while any(state not in "Tt" for state in self._states()):
            if time.monotonic() > until:
                raise Failed("the process does not stand still")
            time.sleep(0.001)

    def _states(self):
        for path in glob.glob("/proc/%d/task/*/stat" % self.process.pid):
            try:
                with open(path) as stat:
                    yield stat.read().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                pass  # the thread has ended since

    def threads(self):
        with open("/proc/%d/status" % self.process.pid) as status:
            return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))

    def wait_ended(self, timeout=WAIT_S):
        """`ended` with code 0, and the process's end. Returns the time of the event."""
        at, event = self.event("ended", timeout=timeout)
        if event.get("code") != 0:
            raise Failed("ended with code %s, not 0" % event.get("code"))
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise Failed("the process goes on after `ended`")
        if status not in (0, 143):  # the JVM says 143 after SIGTERM
            raise Failed("the process ended with %d" % status)
        return at

    def close(self):
        """Ends it, whatever it does."""
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # just now
        self.process.wait()
        self.reader.join()
        try:
            self.process.stdin.close()
        except OSError:
            pass  # what it did not read
        self.process.stdout.close()
        self.stderr.close()
