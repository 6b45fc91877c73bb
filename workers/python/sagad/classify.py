"""Can be proved, of an exception, that nothing was sent? Then the task may be tried again: RETRY.

    classify(error)   Retry("NOT_SENT", ...) if so, else None: it counts as UNKNOWN

What is proved: the error was raised while a connection was being made (refused, no route, time-out,
name not found, TLS handshake), by the standard library, urllib3, requests, httpx, aiohttp, anyio,
psycopg, psycopg2 or PyMySQL; or gRPC says that no connection was there to send on. And everything
that went wrong before it, and whatever the client had tried or been redirected to before, was of
that kind too. A handler that makes several calls must say itself what an error of a later one
means.
"""

import re
import socket
from types import FrameType
from typing import Iterator, Optional, Tuple

import grpc

from sagad.outcome import Reported, Retry

# Functions that make a connection and send nothing of the request: (module, function).
_CONNECTING = {
    ("socket", "create_connection"),
    ("ssl", "do_handshake"),
    ("http.client", "connect"),
    ("asyncio.base_events", "create_connection"),
    ("asyncio.selector_events", "sock_connect"),
    ("asyncio.unix_events", "create_unix_connection"),
    ("anyio._core._sockets", "connect_tcp"),
    ("urllib3.connection", "_new_conn"),
    ("urllib3.connection", "connect"),
    ("urllib3.util.connection", "create_connection"),
    ("aiohttp.connector", "connect"),
    ("psycopg.connection", "connect"),
    ("psycopg.connection_async", "connect"),
    ("psycopg2", "connect"),
    ("pymysql.connections", "connect"),
}
# Functions that send a second request because of the answer to a first one.
_REDIRECTING = {("requests.sessions", "resolve_redirects"), ("urllib.request", "http_error_302")}
# Functions whose local variable `history` is what was sent before.
_WITH_HISTORY = {
    ("urllib3.util.retry", "increment"),
    ("httpx._client", "_send_handling_redirects"),
    ("aiohttp.client", "_request"),
}
# Wrappers that their libraries raise while they handle what they wrap.
_WRAPPERS = {
    ("urllib.error", "URLError"),
    ("urllib3.exceptions", "MaxRetryError"),
    ("requests.exceptions", "ConnectionError"),
    ("requests.exceptions", "ConnectTimeout"),
    ("requests.exceptions", "SSLError"),
}
_GRPC_CONNECTING = (
    "failed to connect to all addresses",
    "DNS resolution failed",
    "errors resolving",
)
_GRPC_ADDRESS = re.compile(r" ipv[46]:(?:%5b)?([0-9a-f.:]+?)(?:%5d)?:([0-9]+): ")
_DEPTH_MAX = 32


def classify(error: BaseException) -> Optional[Reported]:
    """Retry if nothing was sent, for certain; None otherwise."""
    if not nothing_was_sent(error):
        return None
    return Retry("NOT_SENT", f"{type(error).__name__}: {error}")


def nothing_was_sent(error: BaseException, depth: int = 0) -> bool:
    """See above. Unsure is False."""
    if depth > _DEPTH_MAX or _sent_before(error):
        return False
    cause, context = _cause(error), error.__context__
    # An error was being handled when this one came: what was done before that counts too.
    if context is not None and context is not cause and not _is_harmless(context):
        if not nothing_was_sent(context, depth + 1):
            return False
    if _is_of_connecting(error):
        return cause is None or _is_harmless(cause) or nothing_was_sent(cause, depth + 1)
    if cause is not None:
        return nothing_was_sent(cause, depth + 1)
    wraps = (type(error).__module__, type(error).__name__) in _WRAPPERS
    return wraps and context is not None and not _is_harmless(context)


def _cause(error: BaseException) -> Optional[BaseException]:
    """What it was raised from, or wraps."""
    reason = getattr(error, "reason", None)
    first = error.args[0] if error.args else None
    for candidate in (error.__cause__, reason, first):
        if isinstance(candidate, BaseException) and candidate is not error:
            return candidate
    return None


def _is_harmless(error: BaseException) -> bool:
    """No I/O has failed: a look into a cache or a pool, for instance."""
    return isinstance(error, (LookupError, AttributeError))


def _frames(error: BaseException) -> Iterator[Tuple[FrameType, Tuple[str, str]]]:
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        yield frame, (frame.f_globals.get("__name__", ""), frame.f_code.co_name)
        traceback = traceback.tb_next


def _sent_before(error: BaseException) -> bool:
    """Had the client sent something, and this is of what it did next?"""
    for frame, name in _frames(error):
        if name in _REDIRECTING:
            return True
        if name in _WITH_HISTORY:
            for entry in frame.f_locals.get("history") or ():
                failure = getattr(entry, "error", None)
                if not isinstance(failure, BaseException) or not nothing_was_sent(failure):
                    return True
    return False


def _is_of_connecting(error: BaseException) -> bool:
    if isinstance(error, grpc.RpcError):
        return _is_of_grpc_connecting(error)
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        return True
    return any(name in _CONNECTING for _, name in _frames(error))


def _is_of_grpc_connecting(error: grpc.RpcError) -> bool:
    """UNAVAILABLE alone proves nothing: the stream may have broken after the request was sent, and
    a server may say so of a call of its own, in these very words. Older versions of the library
    tell whose words they are. With newer ones they are ours if they name the address that was
    called."""
    try:
        code, details = error.code(), error.details() or ""
        debug = error.debug_error_string() or ""
    except AttributeError:
        return False  # an RpcError that is none of the library's
    if code is not grpc.StatusCode.UNAVAILABLE or not details.startswith(_GRPC_CONNECTING):
        return False
    if "Error received from peer" in debug:
        return False
    if "created_time:" in debug:
        return True
    targets = (
        getattr(frame.f_locals.get("self"), "_target", None)
        for frame, name in _frames(error)
        if name[0] == "grpc._channel"
    )
    return any(_names(details, target.decode()) for target in targets if isinstance(target, bytes))


def _names(details: str, target: str) -> bool:
    """Does the text name that address, or one that it stands for?"""
    for scheme in ("dns:///", "ipv4:", "ipv6:"):
        target = target[len(scheme) :] if target.startswith(scheme) else target
    if target.startswith("unix:"):
        return f": {target}: " in details
    if f" {target}: " in details:  # a name that is not found
        return True
    host, _, port = target.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    addresses = {(str(address[0]), str(address[1])) for *_, address in found}
    return any(named in addresses for named in _GRPC_ADDRESS.findall(details.lower()))
