"""What a handler says becomes the outcome that is reported."""

import socket
import time

from case import Skipped, behaviour, check, check_equal, listen_and, outcome_name, script
from cutter import reset
from saga.v1 import saga_pb2

OUTPUT_MAX = 256 * 1024
PROBE = {"operation": saga_pb2.OPERATION_KIND_PROBE, "probed": saga_pb2.OPERATION_KIND_ACTION}


def is_text(text, limit):
    return 0 < len(text.encode()) <= limit and text.isprintable()


@behaviour("outcome", "A returned value is DONE, with its bytes as they are")
def outcome_done(case):
    _, session = case.serve()
    report = case.outcome(session, script("done", output="Grüße \u20ac"))
    check_equal("outcome", outcome_name(report), "DONE")
    check_equal("output", report.output, "Grüße \u20ac".encode())
    echo = case.outcome(session, script("echo", pad="\u00e4\u4e00"))
    check(b"\xc3\xa4\xe4\xb8\x80" in echo.output, "the bytes came back as %r", echo.output)
    check_equal("an empty output", case.outcome(session, script()).output, b"")


@behaviour("outcome", "AlreadyDone, ours or not, with its output")
def outcome_already_done(case):
    _, session = case.serve()
    for ours in (True, False):
        report = case.outcome(session, script("already_done", ours=ours, output="receipt-7"))
        check_equal("outcome, ours, output", (outcome_name(report), report.ours, report.output),
                    ("ALREADY_DONE", ours, b"receipt-7"))


@behaviour("outcome", "Rejected, with code and message, and no output")
def outcome_rejected(case):
    _, session = case.serve()
    report = case.outcome(session, script("rejected", code="NO_FUNDS", message="3 cents short"))
    check_equal("report", (outcome_name(report), report.error_code, report.error_message, report.output),
                ("REJECTED", "NO_FUNDS", "3 cents short", b""))


@behaviour("outcome", "Retry, with and without a time, to the millisecond")
def outcome_retry(case):
    _, session = case.serve()
    report = case.outcome(session, script("retry", code="BUSY", message="later", after_ms=1250))
    check_equal("report", (outcome_name(report), report.error_code, report.error_message),
                ("RETRY", "BUSY", "later"))
    check_equal("retry_after", (report.retry_after.seconds, report.retry_after.nanos), (1, 250000000))
    report = case.outcome(session, script("retry", code="BUSY", after_ms=0))
    check_equal("retry_after of none", (outcome_name(report), report.retry_after.ToMilliseconds()), ("RETRY", 0))


@behaviour("outcome", "Unknown, with code and message")
def outcome_unknown(case):
    _, session = case.serve()
    report = case.outcome(session, script("unknown", code="TIMEOUT", message="no answer"))
    check_equal("report", (outcome_name(report), report.error_code, report.error_message),
                ("UNKNOWN", "TIMEOUT", "no answer"))


@behaviour("outcome", "A probe's: done, not done, still unknown; an exception of a probe is still unknown")
def outcome_of_probes(case):
    _, session = case.serve()
    report = case.outcome(session, script("done", output="it did"), **PROBE)
    check_equal("found", (outcome_name(report), report.output), ("DONE", b"it did"))
    check_equal("not found", outcome_name(case.outcome(session, script("not_done"), **PROBE)), "NOT_DONE")
    for one in (script("still_unknown", code="AWAY"), script("raise", message="no")):
        report = case.outcome(session, one, **PROBE)
        check(outcome_name(report) in ("STILL_UNKNOWN", "UNKNOWN"), "%s is %s", one, outcome_name(report))


@behaviour("outcome", "An ordinary uncaught exception is UNKNOWN, with a code, and the worker goes on")
def uncaught_exception(case):
    _, session = case.serve()
    report = case.outcome(session, script("raise", message="it broke here"))
    check_equal("outcome", outcome_name(report), "UNKNOWN")
    check(is_text(report.error_code, 128), "code is %r", report.error_code)
    if case.language != "c":  # which has no exceptions, and so no message
        check("it broke here" in report.error_message, "message is %r", report.error_message)
    case.check_serves(session)


@behaviour("outcome", "A panic or fatal error of a handler is UNKNOWN too, and the worker goes on")
def panic(case):
    worker, session = case.serve()
    report = case.outcome(session, script("panic", message="all is lost"))
    check_equal("outcome", outcome_name(report), "UNKNOWN")
    check(is_text(report.error_code, 128), "code is %r", report.error_code)
    case.check_serves(session)
    check_equal("streams", len(case.nodes[0].orchestrator.sessions), 1)


@behaviour("outcome", "Messages are cut at a character after 1,024 bytes, and have no control characters")
def messages_are_cut(case):
    _, session = case.serve()
    for members in (script("rejected", code="LONG", message="x" + "\u00e4" * 1000),
                    script("raise", message="x" + "\u00e4" * 1000)):
        report = case.outcome(session, members)
        size = len(report.error_message.encode())
        check(size <= 1024, "a message of %d bytes", size)
        if members["do"] == "rejected":
            check(size >= 1022, "cut to %d bytes, though 1,023 fit", size)
    report = case.outcome(session, script("rejected", code="C", message="a\nb\tc\u0000d"[:5]))
    check_equal("outcome", outcome_name(report), "REJECTED")
    check(all(ord(char) >= 32 for char in report.error_message), "message is %r", report.error_message)
    case.check_serves(session)


@behaviour("outcome", "256 KiB of output pass; one byte more is UNKNOWN, and the stream goes on")
def output_limit(case):
    _, session = case.serve()
    report = case.outcome(session, script("done_size", size=OUTPUT_MAX))
    check_equal("outcome and size", (outcome_name(report), len(report.output)), ("DONE", OUTPUT_MAX))
    report = case.outcome(session, script("done_size", size=OUTPUT_MAX + 1))
    check_equal("outcome and size beyond it", (outcome_name(report), len(report.output)), ("UNKNOWN", 0))
    case.check_serves(session)
    check_equal("streams", len(case.nodes[0].orchestrator.sessions), 1)


def refused(case, client, members):
    worker, session = case.serve()
    if client not in worker.event("ready")[1].get("clients", []):
        raise Skipped("this worker program has no client for " + client)
    report = case.outcome(session, dict(members, client=client))
    return session, report


def check_refused(case, client):
    session, report = refused(case, client, script("refused", port=case.closed_port()))
    check_equal("outcome when nothing was sent (%s: %s)" % (report.error_code, report.error_message),
                outcome_name(report), "RETRY")
    check(is_text(report.error_code, 128), "code is %r", report.error_code)
    case.check_serves(session)


@behaviour("classify", "HTTP: connection refused was certainly not sent: RETRY")
def refused_http(case):
    check_refused(case, "http")


@behaviour("classify", "gRPC: connection refused was certainly not sent: RETRY")
def refused_grpc(case):
    check_refused(case, "grpc")


@behaviour("classify", "PostgreSQL: connection refused was certainly not sent: RETRY")
def refused_postgresql(case):
    check_refused(case, "postgresql")


@behaviour("classify", "MySQL: connection refused was certainly not sent: RETRY")
def refused_mysql(case):
    check_refused(case, "mysql")


@behaviour("classify", "A name that does not exist: nothing was sent: RETRY")
def refused_dns(case):
    check_refused(case, "dns")


def cut_http(connection):
    """Reads the request's end of headers, and cuts without a word."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(4096)
        if not piece:
            break
        data += piece
    reset(connection)


def read_exactly(connection, size):
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise OSError("it closed")
        data += piece
    return data


def cut_http2(connection):
    """A server of HTTP/2 that reads headers and a body, and cuts without a word."""
    preface, settings, ack, headers, body = 24, 4, b"\x00\x00\x00\x04\x01\x00\x00\x00\x00", 1, 0
    try:
        connection.sendall(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        read_exactly(connection, preface)
        connection.settimeout(10)
        while True:
            head = read_exactly(connection, 9)
            read_exactly(connection, int.from_bytes(head[:3], "big"))
            if head[3] == settings and not head[4] & 1:
                connection.sendall(ack)
            if head[3] == body:
                break
        assert headers
    except OSError:
        pass  # the other side was faster
    reset(connection)


@behaviour("classify", "HTTP: a connection that breaks after the request is UNKNOWN")
def cut_after_sending_http(case):
    _, report = refused(case, "http", script("sent_then_cut", port=listen_and(case, cut_http)))
    check_equal("outcome", outcome_name(report), "UNKNOWN")


@behaviour("classify", "gRPC: UNAVAILABLE of a connection that breaks after the request is UNKNOWN")
def cut_after_sending_grpc(case):
    _, report = refused(case, "grpc", script("sent_then_cut", port=listen_and(case, cut_http2)))
    check_equal("outcome", outcome_name(report), "UNKNOWN")
