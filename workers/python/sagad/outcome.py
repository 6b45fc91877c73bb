"""What came of a task: the outcome that is reported, and the exceptions by which a handler says it.

A handler that returns says DONE with what it returned. Everything else is raised:

    Rejected       a business no; this attempt had no effect
    Retry          this attempt certainly had no effect: nothing was sent, or so it was said
    AlreadyDone    the other side says that it exists; `ours` if it confirmed our key
    Unknown        it may have happened: a time-out after sending, a broken connection
    NotDone        a probe: the other side knows nothing of it
    StillUnknown   a probe: it could not be found out now

Any other exception counts as UNKNOWN, unless `classify` can tell that nothing was sent.
"""

import datetime
import enum
from dataclasses import dataclass
from typing import Optional, Union

from google.protobuf.message import Message

from saga.v1 import saga_pb2

CODE_BYTES_MAX = 128
MESSAGE_BYTES_MAX = 1024
RETRY_AFTER_MS_MAX = 24 * 3600 * 1000

Output = Union[None, bytes, bytearray, memoryview, Message]


class OutcomeKind(enum.IntEnum):
    """The outcomes that a worker reports, with their numbers on the wire."""

    DONE = saga_pb2.OUTCOME_DONE
    ALREADY_DONE = saga_pb2.OUTCOME_ALREADY_DONE
    REJECTED = saga_pb2.OUTCOME_REJECTED
    RETRY = saga_pb2.OUTCOME_RETRY
    UNKNOWN = saga_pb2.OUTCOME_UNKNOWN
    NOT_DONE = saga_pb2.OUTCOME_NOT_DONE
    STILL_UNKNOWN = saga_pb2.OUTCOME_STILL_UNKNOWN


@dataclass(frozen=True)
class Outcome:
    """An outcome as it is reported: its texts are fit to be sent."""

    kind: OutcomeKind
    output: bytes = b""
    ours: bool = False
    code: str = ""
    message: str = ""
    retry_after_ms: int = 0


def to_bytes(output: Output) -> bytes:
    """An output as bytes: None is empty, a message is serialized. TypeError for anything else."""
    if output is None:
        return b""
    if isinstance(output, Message):
        return output.SerializeToString()
    if isinstance(output, (bytes, bytearray, memoryview)):
        return bytes(output)
    raise TypeError("an output is bytes, a protobuf message or None, not " + type(output).__name__)


def _plain(text: str) -> str:
    """Without what the orchestrator refuses in a text: controls, and halves of surrogate pairs."""
    text = "".join(" " if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 else c for c in text)
    return text.encode("utf-8", "replace").decode("utf-8")


def _cut(text: str, size_max: int) -> str:
    """Cut at a character, so that it is at most `size_max` bytes of UTF-8."""
    data = text.encode("utf-8")
    return text if len(data) <= size_max else data[:size_max].decode("utf-8", "ignore")


def code_text(code: str) -> str:
    """A code that the orchestrator will take."""
    return _cut(_plain(code), CODE_BYTES_MAX) or "UNSPECIFIED"


def message_text(message: str) -> str:
    """A message that the orchestrator will take."""
    return _cut(_plain(message), MESSAGE_BYTES_MAX)


def after_ms(after: Union[int, float, datetime.timedelta]) -> int:
    """Seconds or a timedelta as milliseconds; ValueError where it is not 0 to 24 hours."""
    seconds = after.total_seconds() if isinstance(after, datetime.timedelta) else after
    if not 0 <= seconds * 1000 <= RETRY_AFTER_MS_MAX:
        raise ValueError(f"retry after 0 to 24 hours, not {seconds} s")
    return int(seconds * 1000)


class Reported(Exception):
    """The base of the exceptions by which a handler says what came of its task."""

    kind: OutcomeKind
    code: str = ""
    message: str = ""

    def outcome(self) -> Outcome:
        """What is reported."""
        return Outcome(self.kind, code=code_text(self.code), message=message_text(self.message))


class _WithCode(Reported):
    def __init__(self, code: str, message: str = ""):
        if not code:
            raise ValueError("a code is not empty: say what went wrong in a word")
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message


class Rejected(_WithCode):
    """A business no: this attempt had no effect, and another one would not help."""

    kind = OutcomeKind.REJECTED


class Unknown(_WithCode):
    """It may have happened. Of a probe: as StillUnknown."""

    kind = OutcomeKind.UNKNOWN

    def __init__(self, code: str = "UNKNOWN", message: str = ""):
        super().__init__(code, message)


class Retry(_WithCode):
    """This attempt certainly had no effect. `after`: seconds or timedelta, at most 24 hours."""

    kind = OutcomeKind.RETRY

    def __init__(
        self,
        code: str = "RETRY",
        message: str = "",
        *,
        after: Union[int, float, datetime.timedelta] = 0,
    ):
        super().__init__(code, message)
        self.after_ms = after_ms(after)

    def outcome(self) -> Outcome:
        return Outcome(
            self.kind,
            code=code_text(self.code),
            message=message_text(self.message),
            retry_after_ms=self.after_ms,
        )


class AlreadyDone(Reported):
    """The other side says that it exists already. `ours`: it confirmed that it is our key."""

    kind = OutcomeKind.ALREADY_DONE

    def __init__(self, output: Output = None, *, ours: bool):
        super().__init__("already done" + (", ours" if ours else ""))
        self.output = to_bytes(output)
        self.ours = ours

    def outcome(self) -> Outcome:
        return Outcome(self.kind, output=self.output, ours=self.ours)


class NotDone(Reported):
    """A probe: the other side knows nothing of it."""

    kind = OutcomeKind.NOT_DONE

    def __init__(self) -> None:
        super().__init__("not done")

    def outcome(self) -> Outcome:
        return Outcome(self.kind)


class StillUnknown(_WithCode):
    """A probe: it could not be found out now."""

    kind = OutcomeKind.STILL_UNKNOWN

    def __init__(self, code: str = "STILL_UNKNOWN", message: str = ""):
        super().__init__(code, message)


def of_return(output: Output, output_max: int) -> Outcome:
    """DONE with what a handler returned; UNKNOWN where that cannot be reported."""
    try:
        data = to_bytes(output)
    except TypeError as error:
        return Outcome(OutcomeKind.UNKNOWN, code="BAD_OUTPUT", message=message_text(str(error)))
    return _within(Outcome(OutcomeKind.DONE, output=data), output_max)


def of_exception(error: BaseException, output_max: int, verdict: Optional[Reported]) -> Outcome:
    """What an exception of a handler says; `verdict` is what classify says of it."""
    if isinstance(error, Reported):
        return _within(error.outcome(), output_max)
    if isinstance(verdict, Reported):
        return _within(verdict.outcome(), output_max)
    return Outcome(
        OutcomeKind.UNKNOWN,
        code=code_text(type(error).__name__),
        message=message_text(str(error)),
    )


def _within(outcome: Outcome, output_max: int) -> Outcome:
    if len(outcome.output) <= output_max:
        return outcome
    return Outcome(
        OutcomeKind.UNKNOWN,
        code="OUTPUT_TOO_LARGE",
        message=f"the output is {len(outcome.output)} bytes, at most {output_max} can be reported",
    )
