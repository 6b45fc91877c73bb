"""The worker as a whole: options, threads, signals.

whoever calls run ── ticks: drain, leases that are over, streams that are silent; signals
a thread for each address ── stream.py (and one of gRPC's that sends)
up to `concurrency` threads ── blocking handlers
one event loop, in a thread of its own or the caller's ── async handlers
session.py ── what they share, under one lock
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import inspect
import logging
import queue
import random
import secrets
import signal
import threading
import time
import typing
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Type

import grpc
from google.protobuf.message import Message

from sagad import outcome as outcomes
from sagad.classify import classify as default_classify
from sagad.outcome import Outcome, OutcomeKind, Reported, Retry
from sagad.pool import Awake, Held, Pool, PoolStats, Stop
from sagad.stream import Stream, keep_grpc
from sagad.task import Lease, Task

log = logging.getLogger("sagad")

Stats = PoolStats
Classify = Callable[[BaseException], Optional[Reported]]

ADDRESSES_MAX = 16
CONCURRENCY_MAX = 10000
OUTPUT_BYTES_MAX = 256 * 1024
MESSAGE_BYTES_MAX = 8 * 1024 * 1024


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1000000


@dataclasses.dataclass(frozen=True)
class Registered:
    """A handler as the user gave it."""

    function: Callable[..., Any]
    is_async: bool
    request_type: Optional[Type[Message]]  # what its second argument gets; None: it has none

    def arguments(self, task: Task) -> List[Any]:
        return [task] if self.request_type is None else [task, task.request(self.request_type)]


class _WorkerLease(Lease):
    def __init__(self, worker: "Worker", held: Held):
        self._worker = worker
        self._held = held

    def left_s(self) -> float:
        with self._worker.lock:
            return self._held.lease_left_ms(self._worker.now_ms()) / 1000

    def time_left_s(self) -> float:
        with self._worker.lock:
            return max(0, self._held.attempt_until_ms - self._worker.now_ms()) / 1000

    def stop(self) -> Optional[Stop]:
        with self._worker.lock:
            return self._held.stop(self._worker.now_ms(), self._worker.pool.draining)


class Worker:
    """Serves handlers until it is drained.

    addresses          "host:port" or "unix:/path": one, or all nodes of a database, each by an
                       address of its own (behind a load balancer the balancer's address alone)
    worker_id          stable name, 1-128 bytes, shown to operators
    concurrency        handlers that run at a time, over all names
    drain_s            how long a drain waits for acknowledgements once the last handler returned
    classify           says of an exception of a handler what is to be reported instead of UNKNOWN,
                       or None; default sagad.classify
    clock_ms           monotonic milliseconds, for tests
    credentials        of grpc, for TLS; default: none
    max_output_bytes   raise it together with the server's limit
    max_message_bytes  of a gRPC message
    """

    def __init__(
        self,
        addresses: Sequence[str],
        worker_id: str,
        *,
        concurrency: int = 16,
        drain_s: float = 30.0,
        classify: Classify = default_classify,
        clock_ms: Callable[[], int] = monotonic_ms,
        credentials: Optional[grpc.ChannelCredentials] = None,
        max_output_bytes: int = OUTPUT_BYTES_MAX,
        max_message_bytes: int = MESSAGE_BYTES_MAX,
    ):
        if isinstance(addresses, str):
            raise ValueError("addresses is a list: one address, or one for each node")
        self.addresses = list(addresses)
        if not 1 <= len(self.addresses) <= ADDRESSES_MAX or not all(self.addresses):
            raise ValueError(f"1 to {ADDRESSES_MAX} addresses, none of them empty")
        if len(set(self.addresses)) < len(self.addresses):
            raise ValueError("an address is there twice: each node has one of its own")
        size = len(worker_id.encode())
        if not 1 <= size <= 128 or not worker_id.isprintable():
            raise ValueError("worker_id is 1 to 128 bytes of text")
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise ValueError(f"concurrency is 1 to {CONCURRENCY_MAX}, not {concurrency}")
        if not 0 <= drain_s <= 24 * 3600:
            raise ValueError("drain_s is 0 to 24 hours")
        self.now_ms = clock_ms
        self.credentials = credentials
        self.max_output_bytes = max_output_bytes
        self.max_message_bytes = max_message_bytes
        self.classify = classify
        self.handlers: Dict[str, Registered] = {}
        self.lock = threading.Lock()
        self.pool = Pool(
            worker_id=worker_id,
            instance=secrets.token_hex(16),
            concurrency=concurrency,
            drain_ms=int(drain_s * 1000),
            rng=random.Random(secrets.randbits(64)),
        )
        self.awake = Awake(clock_ms())
        self.stopping = False
        self._streams: List[Stream] = []
        self._threads: Optional[concurrent.futures.ThreadPoolExecutor] = None
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        # SimpleQueue.put may be called from a signal handler, which an Event's set may not.
        self._bell: "queue.SimpleQueue[None]" = queue.SimpleQueue()
        self._drain_asked = False
        self._started = False

    # Handlers.

    def handler(
        self,
        name: str,
        *,
        max_in_flight: Optional[int] = None,
        request: Optional[Type[Message]] = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: serves `name` by the function, def or async def.

        It is called with the Task and, if its second parameter is annotated with a protobuf message
        (or `request` says one), with the request as such a message. At most `max_in_flight`
        (default: the worker's concurrency) run at a time. What it returns, bytes, a message or
        None, is the output of DONE; see sagad.outcome for the rest. Blocking handlers are called in
        threads, async ones in one event loop, which they must not block."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.handle(name, function, max_in_flight=max_in_flight, request=request)
            return function

        return register

    def handle(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        max_in_flight: Optional[int] = None,
        request: Optional[Type[Message]] = None,
    ) -> None:
        """The same as a call. Before run."""
        if self._started:
            raise RuntimeError("handlers are given before run")
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)
        )
        registered = Registered(function, is_async, request or _request_type(function))
        with self.lock:
            self.pool.handle(
                name, self.pool.concurrency if max_in_flight is None else max_in_flight, registered
            )
        self.handlers[name] = registered

    # Life.

    def run(self, *, handle_signals: bool = False) -> None:
        """Serves until it is drained; returns then, also when acknowledgements were still missing
        after drain_s (the orchestrator finds out by itself). Reconnects for ever. Waits for
        handlers to return, however long they take. Once for each worker.

        handle_signals: SIGTERM and SIGINT drain; a second one ends the process. Main thread only.
        """
        self._start()
        with _signals(self._on_signal) if handle_signals else contextlib.nullcontext():
            loop = asyncio.new_event_loop() if self._has_async() else None
            thread = None
            if loop:
                thread = threading.Thread(
                    target=loop.run_forever, name="sagad async handlers", daemon=True
                )
                thread.start()
            try:
                self._serve(loop)
            finally:
                if loop and thread:
                    loop.call_soon_threadsafe(loop.stop)
                    thread.join()
                    loop.close()

    async def serve(self, *, handle_signals: bool = False) -> None:
        """As run, with the async handlers in the running event loop."""
        self._start()
        loop = asyncio.get_running_loop()
        if handle_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._on_signal_in_loop, loop)
        # A thread of its own: the loop's pool may be full of the user's calls.
        own = concurrent.futures.ThreadPoolExecutor(1, "sagad worker")
        serving = loop.run_in_executor(own, self._serve, loop)
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self.drain()
            await serving
            raise
        finally:
            own.shutdown(wait=False)
            if handle_signals:
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.remove_signal_handler(number)

    def drain(self) -> None:
        """Take no more tasks, give back those that were not started, finish and report the others,
        end. Any thread, any time, also from a signal handler."""
        self._drain_asked = True
        self._bell.put(None)

    @property
    def stats(self) -> Stats:
        """A copy of the counters. Any thread."""
        with self.lock:
            return dataclasses.replace(self.pool.stats)

    def _start(self) -> None:
        if self._started:
            raise RuntimeError("a worker runs once: make a new one")
        if not self.handlers:
            raise RuntimeError("no handler was given")
        self._started = True

    def _has_async(self) -> bool:
        return any(handler.is_async for handler in self.handlers.values())

    def _on_signal(self) -> None:
        self.drain()

    def _on_signal_in_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)  # the second one ends the process
        self.drain()

    def _serve(self, loop: Optional[asyncio.AbstractEventLoop]) -> None:
        keep_grpc()
        self._loop = loop
        self._threads = concurrent.futures.ThreadPoolExecutor(
            self.pool.concurrency, "sagad handler"
        )
        with self.lock:
            self.awake = Awake(self.now_ms())
            self._streams = [Stream(self, address) for address in self.addresses]
        for stream in self._streams:
            stream.start()
        try:
            while not self._tick():
                pass
        finally:
            with self.lock:
                self.stopping = True
                for stream in self._streams:
                    stream.wake()
            for stream in self._streams:
                stream.end()
            for stream in self._streams:
                stream.join()
            self._threads.shutdown()

    def _tick(self) -> bool:
        """One turn of whoever runs the worker. True: it is drained."""
        with self.lock:
            now_ms = self.now_ms()
            self.awake.tick(now_ms)
            if self._drain_asked:
                self.pool.drain(now_ms)
            held, next_ms = self.pool.stops(now_ms)
            told = [(one.owner, stop) for one, stop in held]
            over = [stream for stream in self._streams if stream.session.is_over(now_ms)]
            drained = self.pool.is_drained(now_ms)
            self.wake_streams()
        for run, stop in told:
            run.tell(stop)
        for stream in over:
            stream.end()
        self.dispatch()  # what waited for a moment that only the clock brings
        if not drained:
            wait_ms = min(max(next_ms - now_ms, 1), Awake.TICK_MS)
            with contextlib.suppress(queue.Empty):
                self._bell.get(timeout=wait_ms / 1000)
        return drained

    # With the pool.

    def wake_streams(self) -> None:
        """With the lock held: those that got something to say meanwhile."""
        for stream in self._streams:
            if stream.session.nudged:
                stream.session.nudged = False
                stream.wake()

    def dispatch(self) -> None:
        """Starts whatever may run now. Without the lock."""
        runs: List[_Run] = []
        with self.lock:
            if not self.stopping:
                now_ms = self.now_ms()
                while True:
                    held = self.pool.take(now_ms)
                    if held is None:
                        break
                    held.owner = _Run(self, held)
                    runs.append(held.owner)
            self.wake_streams()
        for run in runs:
            run.start(self._loop, self._threads)

    def finish(self, held: Held, outcome: Outcome) -> None:
        """A handler returned. Any thread, without the lock."""
        with self.lock:
            self.pool.finish(held, outcome, self.now_ms())
            self.wake_streams()
        self.dispatch()

    def outcome_of(self, error: BaseException) -> Outcome:
        """What is reported of an exception. Never raises."""
        try:
            verdict = None if isinstance(error, Reported) else self.classify(error)
            return outcomes.of_exception(error, self.max_output_bytes, verdict)
        except Exception:
            log.exception("what a handler's %s means could not be found out", type(error).__name__)
            return Outcome(OutcomeKind.UNKNOWN, code=outcomes.code_text(type(error).__name__))


class _Run:
    """One run of a handler."""

    def __init__(self, worker: Worker, held: Held):
        self._worker = worker
        self._held = held
        self._handler: Registered = held.handler.function
        assert held.message is not None  # until the handler has returned
        self._task = Task(held.message, _WorkerLease(worker, held))
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._coroutine: "Optional[asyncio.Task[None]]" = None  # the loop's thread

    def start(
        self,
        loop: Optional[asyncio.AbstractEventLoop],
        threads: Optional[concurrent.futures.ThreadPoolExecutor],
    ) -> None:
        if self._handler.is_async:
            assert loop is not None
            self._loop = loop
            loop.call_soon_threadsafe(self._start_async, loop)
        else:
            assert threads is not None
            threads.submit(self._run_blocking)

    def tell(self, stop: Stop) -> None:
        """The worker's own thread: an async handler is cancelled once its lease is lost."""
        try:
            self._task.tell_stop()
            if stop is Stop.LOST and self._loop:
                self._loop.call_soon_threadsafe(self._cancel_async)
        except RuntimeError:
            log.debug("%r ended before it could be told to stop", self._task)

    def _run_blocking(self) -> None:
        try:
            result = self._handler.function(*self._handler.arguments(self._task))
            outcome = outcomes.of_return(result, self._worker.max_output_bytes)
        except BaseException as error:
            outcome = self._failed(error)
        self._worker.finish(self._held, outcome)

    def _start_async(self, loop: asyncio.AbstractEventLoop) -> None:
        self._coroutine = loop.create_task(self._run_async())
        self._coroutine.add_done_callback(self._ended)

    def _cancel_async(self) -> None:
        if self._coroutine:
            self._coroutine.cancel()

    def _ended(self, coroutine: "asyncio.Task[None]") -> None:
        if coroutine.cancelled():  # before its first step: else _run_async has caught it
            self._worker.finish(self._held, Retry("NOT_STARTED").outcome())

    async def _run_async(self) -> None:
        try:
            result = await self._handler.function(*self._handler.arguments(self._task))
            outcome = outcomes.of_return(result, self._worker.max_output_bytes)
        except BaseException as error:
            outcome = self._failed(error)
        self._worker.finish(self._held, outcome)

    def _failed(self, error: BaseException) -> Outcome:
        outcome = self._worker.outcome_of(error)
        if not isinstance(error, Reported):
            log.warning(
                "%r counts as %s: %s",
                self._task,
                outcome.kind.name,
                type(error).__name__,
                exc_info=error,
            )
        return outcome


def _request_type(function: Callable[..., Any]) -> Optional[Type[Message]]:
    """The protobuf class that a handler's second parameter is annotated with."""
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)
    every = inspect.signature(function).parameters.values()
    parameters = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not parameters and not any(p.kind is p.VAR_POSITIONAL for p in every):
        raise ValueError("a handler takes the task")
    if len(parameters) < 2:
        return None
    required = [p for p in parameters if p.default is p.empty]
    annotation = typing.get_type_hints(target).get(parameters[1].name)
    if inspect.isclass(annotation) and issubclass(annotation, Message):
        return annotation
    if len(required) > 1:
        raise ValueError(
            f"the second parameter of a handler, {parameters[1].name}, is the request:"
            " annotate it with its protobuf class, or give request="
        )
    return None


@contextlib.contextmanager
def _signals(on_signal: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call it once; the second one ends the process."""
    numbers = (signal.SIGTERM, signal.SIGINT)

    def handler(number: int, frame: Any) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        on_signal()

    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action if action is not None else signal.SIG_DFL)
