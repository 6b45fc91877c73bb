"""Starts sagas, looks at them, waits for them, takes them back. Thin over saga.v1.SagaService.

    with Client("127.0.0.1:7233") as client:
        client.start("settlement", payment, saga_id="order-17")
        saga = client.wait("settlement", "order-17")
        print(saga.state == SUCCEEDED)

Calls raise SagaError. Starting again with the same key and input is harmless, so `start` may be
repeated whenever it failed with `is_retryable`.
"""

import datetime
from typing import Any, Dict, Iterator, Mapping, Optional, Type, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from sagad import details_pb2
from sagad.outcome import Output, to_bytes
from sagad.stream import channel_options, keep_grpc
from saga.v1 import saga_pb2

__all__ = ["Client", "SagaError"]

M = TypeVar("M", bound=Message)

SERVICE = "/saga.v1.SagaService/"
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
_SLACK_S = 5.0  # a wait ends by the server's word, not by ours
_WAIT_MAX_S = 300.0


class SagaError(Exception):
    """What the orchestrator refused, or that it could not be asked.

    code          grpc.StatusCode
    message       for people
    reason        stable, e.g. "INPUT_MISMATCH"; "" where there is none
    metadata      of the reason
    fields        what is wrong with which field of the request, by its path
    retry_after   seconds after which to ask again; None: not said
    """

    def __init__(self, error: grpc.RpcError):
        self.code: grpc.StatusCode = error.code()
        self.message: str = error.details() or ""
        self.reason = ""
        self.metadata: Dict[str, str] = {}
        self.fields: Dict[str, str] = {}
        self.retry_after: Optional[float] = None
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                self._read(value)
        reason = f" [{self.reason}]" if self.reason else ""
        super().__init__(f"{self.code.name}: {self.message}{reason}")

    @property
    def is_retryable(self) -> bool:
        """The same call may succeed later."""
        return self.retry_after is not None or self.code in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.ABORTED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )

    def _read(self, data: bytes) -> None:
        try:
            status = details_pb2.Status.FromString(data)
            for detail in status.details:
                self._read_detail(detail.type_url.rpartition("/")[2], detail.value)
        except DecodeError:
            pass  # details of somebody else's: code and message say it all the same

    def _read_detail(self, name: str, data: bytes) -> None:
        if name == "google.rpc.ErrorInfo":
            info = details_pb2.ErrorInfo.FromString(data)
            self.reason, self.metadata = info.reason, dict(info.metadata)
        elif name == "google.rpc.BadRequest":
            for violation in details_pb2.BadRequest.FromString(data).field_violations:
                self.fields[violation.field] = violation.description
        elif name == "google.rpc.RetryInfo":
            delay = details_pb2.RetryInfo.FromString(data).retry_delay
            self.retry_after = delay.seconds + delay.nanos / 1e9


class Client:
    """One channel to one orchestrator, or to a balancer of several. Any thread."""

    def __init__(
        self,
        address: str,
        *,
        namespace: str = "default",
        credentials: Optional[grpc.ChannelCredentials] = None,
        timeout: float = 10.0,
    ):
        """timeout: seconds of a call that does not wait for anything."""
        keep_grpc()
        options = channel_options(MESSAGE_BYTES_MAX)
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options)
        self._namespace = namespace
        self._timeout = timeout

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def start(
        self,
        definition: str,
        input: Output = None,
        *,
        saga_id: str = "",
        labels: Optional[Mapping[str, str]] = None,
        start_at: Optional[datetime.datetime] = None,
        **more: Any,
    ) -> saga_pb2.StartSagaResponse:
        """Starts a saga, or returns the one that has this key. Durable when it returns. `saga_id`
        may be left out where the definition makes it of the input; `more` are fields of
        StartSagaRequest."""
        request = saga_pb2.StartSagaRequest(
            namespace=self._namespace,
            definition=definition,
            saga_id=saga_id,
            input=to_bytes(input),
            labels=labels or {},
            **more,
        )
        if start_at is not None:
            request.start_at.FromDatetime(_utc(start_at))
        return self._call("StartSaga", request, saga_pb2.StartSagaResponse, self._timeout)

    def get(
        self, definition: str, saga_id: str, *, run: int = 0, full: bool = True
    ) -> saga_pb2.Saga:
        """One saga as it is now; run 0 is the latest."""
        request = saga_pb2.GetSagaRequest(
            saga=self._ref(definition, saga_id, run), view=_view(full)
        )
        return self._call("GetSaga", request, saga_pb2.Saga, self._timeout)

    def wait(
        self,
        definition: str,
        saga_id: str,
        *,
        run: int = 0,
        timeout: float = 30.0,
        or_parked: bool = False,
        full: bool = True,
    ) -> saga_pb2.Saga:
        """Until it has ended (or is parked, if asked), at most so many seconds, up to 300; the saga
        as it is then. Look at its state."""
        timeout = min(max(timeout, 0.001), _WAIT_MAX_S)
        request = saga_pb2.WaitSagaRequest(
            saga=self._ref(definition, saga_id, run), or_parked=or_parked, view=_view(full)
        )
        request.timeout.FromMilliseconds(max(1, int(timeout * 1000)))
        return self._call("WaitSaga", request, saga_pb2.Saga, timeout + _SLACK_S)

    def watch(
        self,
        definition: str,
        saga_id: str,
        *,
        run: int = 0,
        full: bool = True,
        resume_token: str = "",
    ) -> Iterator[saga_pb2.WatchSagaResponse]:
        """The saga as it is, and again after each change, until it has ended. Where it breaks off
        with a SagaError that is retryable, watch again with the last response's resume_token."""
        request = saga_pb2.WatchSagaRequest(
            saga=self._ref(definition, saga_id, run),
            view=_view(full),
            resume_token=resume_token,
        )
        method = self._channel.unary_stream(
            SERVICE + "WatchSaga",
            saga_pb2.WatchSagaRequest.SerializeToString,
            saga_pb2.WatchSagaResponse.FromString,
        )
        call = method(request)
        try:
            yield from call
        except grpc.RpcError as error:
            raise SagaError(error) from error
        finally:
            call.cancel()

    def cancel(
        self, definition: str, saga_id: str, *, run: int = 0, reason: str = "", actor: str = ""
    ) -> saga_pb2.Saga:
        """Turns a saga back. Returns when that decision is durable; compensations follow."""
        request = saga_pb2.CancelSagaRequest(
            saga=self._ref(definition, saga_id, run), reason=reason, actor=actor
        )
        return self._call("CancelSaga", request, saga_pb2.Saga, self._timeout)

    def _ref(self, definition: str, saga_id: str, run: int) -> saga_pb2.SagaRef:
        return saga_pb2.SagaRef(
            namespace=self._namespace, definition=definition, saga_id=saga_id, run=run
        )

    def _call(self, name: str, request: Message, answer: Type[M], timeout: float) -> M:
        method = self._channel.unary_unary(
            SERVICE + name, type(request).SerializeToString, answer.FromString
        )
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise SagaError(error) from error


def _view(full: bool) -> "saga_pb2.SagaView":
    return saga_pb2.SAGA_VIEW_FULL if full else saga_pb2.SAGA_VIEW_BASIC


def _utc(moment: datetime.datetime) -> datetime.datetime:
    if moment.tzinfo is None:
        raise ValueError("start_at needs a time zone")
    return moment.astimezone(datetime.timezone.utc).replace(tzinfo=None)
