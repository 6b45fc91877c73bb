"""One gRPC stream to one orchestrator, over and over: opens it, sends what its session says, hands
in what comes. Knows nothing of what the messages mean."""

import logging
import threading
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Tuple

import grpc

from sagad.pool import Phase
from sagad.session import ProtocolError, Session

if TYPE_CHECKING:
    from sagad.worker import Worker

log = logging.getLogger("sagad")

METHOD = "/saga.v1.WorkerService/Work"
WAIT_S = 0.25  # at most so long in one wait: bounds how late a jump of the clock is noticed
LINGER_S = 1.0  # for the server to end a stream in order


def channel_options(max_message_bytes: int) -> List[Tuple[str, Any]]:
    return [
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.keepalive_time_ms", 10000),
        ("grpc.keepalive_timeout_ms", 10000),
        ("grpc.http2.max_pings_without_data", 0),  # no limit: the stream may be idle
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
    ]


_idle: List[grpc.Channel] = []


def keep_grpc() -> None:
    """Keeps gRPC's threads for the life of the process, by a channel that never connects. Else they
    end with each last channel, at every reconnect, and a fork at that moment aborts the process
    (Debian 12's grpcio; see also __init__.py)."""
    if not _idle:
        _idle.append(grpc.insecure_channel("unix:/nonexistent"))


class Stream:
    """The thread of one address. What it shares with others is under the worker's lock."""

    def __init__(self, worker: "Worker", address: str):
        self._worker = worker
        self._address = address
        self._wake = threading.Condition(worker.lock)
        self.session = Session(worker.pool)
        self._call: Any = None
        self._closing = False  # no more messages to send: half-close
        self._thread = threading.Thread(target=self._run, name="sagad " + address, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def wake(self) -> None:
        """With the lock held: there is something to say, or the worker ends."""
        self._wake.notify_all()

    def end(self) -> None:
        """Ends the stream that is open now: in order if the server answers soon, else at once."""
        with self._worker.lock:
            call, closing = self._call, self._closing
            self._closing = True
            self._wake.notify_all()
        if call is not None and not closing:
            timer = threading.Timer(LINGER_S, call.cancel)
            timer.daemon = True
            timer.start()
            call.add_callback(timer.cancel)  # False: it is over, and so the timer does no harm

    def _run(self) -> None:
        worker, session = self._worker, self.session
        while True:
            with worker.lock:
                while not worker.stopping:
                    now_ms = worker.now_ms()
                    if now_ms >= session.reconnect_ms and session.is_wanted():
                        break
                    left_s = (session.reconnect_ms - now_ms) / 1000
                    self._wake.wait(min(left_s, WAIT_S) if left_s > 0 else WAIT_S)
                if worker.stopping:
                    return
                self._closing = False
            why = "closed in order"
            try:
                why = self._serve()
            except Exception as error:  # whatever it is: the next stream starts afresh
                why = repr(error)
                log.exception("stream to %s failed", self._address)
            self._lost(why)

    def _lost(self, why: str) -> None:
        worker, session = self._worker, self.session
        with worker.lock:
            self._call = None
            self._closing = True  # ends the iterator that gRPC may still be waiting for
            self._wake.notify_all()
            was_online = session.phase is Phase.ONLINE
            now_ms = worker.now_ms()
            session.lost(now_ms)
            wait_ms = session.reconnect_ms - now_ms
            expected = worker.pool.draining or worker.stopping
            worker.wake_streams()
        log.log(
            logging.WARNING if was_online and not expected else logging.INFO,
            "stream to the orchestrator ended: address=%s err=%r retry_ms=%d",
            self._address,
            why,
            wait_ms,
        )

    def _serve(self) -> str:
        """One stream from its opening to its end; says why it ended."""
        worker, session = self._worker, self.session
        options = channel_options(worker.max_message_bytes)
        if worker.credentials is None:
            channel = grpc.insecure_channel(self._address, options)
        else:
            channel = grpc.secure_channel(self._address, worker.credentials, options)
        with channel:
            start = channel.stream_stream(METHOD, request_serializer=_serialize)
            with worker.lock:
                if worker.stopping:
                    return "the worker ends"
                session.opened(worker.now_ms())
                call = start(_Messages(self))
                self._call = call
            try:
                for data in call:
                    self._take_in(data)
            except ProtocolError as error:
                return str(error)
            except grpc.RpcError as error:
                return f"{error.code()}: {error.details()}"
            finally:
                call.cancel()
        return "the server ended it"

    def _take_in(self, data: bytes) -> None:
        worker = self._worker
        with worker.lock:
            now_ms = worker.now_ms()
            try:
                self.session.receive(data, worker.awake.since_ms(now_ms), now_ms)
            finally:
                self._wake.notify_all()
                worker.wake_streams()
        worker.dispatch()

    def next_message(self) -> Any:
        """For gRPC's sending thread: the next message; StopIteration: there is none any more."""
        worker, session = self._worker, self.session
        with worker.lock:
            while not self._closing:
                now_ms = worker.now_ms()
                message = session.next(now_ms)
                worker.wake_streams()
                if message is not None:
                    return message
                left_s = (session.wake_ms() - now_ms) / 1000
                self._wake.wait(min(max(left_s, 0.001), WAIT_S))
        raise StopIteration


def _serialize(message: Any) -> bytes:
    return message.SerializeToString()


class _Messages(Iterator[Any]):
    """What gRPC reads, one message after the other was sent."""

    def __init__(self, stream: Stream):
        self._stream: Optional[Stream] = stream

    def __next__(self) -> Any:
        assert self._stream is not None
        return self._stream.next_message()
