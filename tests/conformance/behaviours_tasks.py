"""What a handler sees of its task."""

import base64
import calendar
import json
import re
import time

from case import behaviour, check, check_equal, outcome_name, pack, script
from google.protobuf import wrappers_pb2
from orchestrator import duration, make_task
from saga.v1 import saga_pb2, worker_pb2

START_S, START_NANOS = 1700000000, 123456000


def b64(data):
    return base64.b64encode(data).decode()


def milliseconds(text):
    """Of an RFC 3339 time in UTC, cut."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)", text or "")
    check(match, "no time in UTC: %r", text)
    seconds = calendar.timegm(time.strptime(match.group(1), "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1000 + int((match.group(2) or ".0")[1:4].ljust(3, "0"))


def described(case, session, task):
    session.tasks([task])
    report = session.report(task.fence)
    check_equal("outcome", outcome_name(report), "DONE")
    said = json.loads(report.output)
    for name in ("namespace", "definition", "saga_id", "run", "revision", "step", "handler", "idempotency_key",
                 "request_type", "output_type", "traceparent", "guarded"):
        check_equal(name, said.get(name), getattr(task, name))
    check_equal("try", said.get("try"), getattr(task, "try"))
    check_equal("fence", said.get("fence"), str(task.fence))
    check_equal("saga_uid", said.get("saga_uid"), b64(task.saga_uid))
    check_equal("input", said.get("input"), b64(task.input))
    check_equal("saga_start_time", milliseconds(said.get("saga_start_time")), START_S * 1000 + 123)
    lease_ms, left_ms = task.lease.ToMilliseconds(), task.attempt_remaining.ToMilliseconds()
    check(0 < said["lease_left_ms"] <= lease_ms * 0.8, "lease_left_ms is %s of a lease of %d ms",
          said["lease_left_ms"], lease_ms)
    check(left_ms - 15000 < said["time_left_ms"] <= left_ms, "time_left_ms is %s of %d", said["time_left_ms"], left_ms)
    return said


def rich_task(members, **fields):
    task = make_task("h", pack(members), **fields)
    task.saga_start_time.seconds, task.saga_start_time.nanos = START_S, START_NANOS
    return task


ASK = dict(steps=["first", "second", "absent"], labels=["tenant", "absent"])
OUTPUTS = [worker_pb2.StepOutput(step="first", output=b"\x00\xff1"), worker_pb2.StepOutput(step="second")]


@behaviour("task", "An action's task is there in full: identity, keys, fence, payload, outputs, labels, times")
def task_of_an_action(case):
    _, session = case.serve()
    task = rich_task(script("describe", **ASK), outputs=OUTPUTS, labels={"tenant": "T\u00fcr"},
                     traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", guarded=True,
                     namespace="emea", run=2, fence=(1 << 53) + 1, output_type="shop.v1.Receipt")
    setattr(task, "try", 4)
    task.send_before.seconds, task.send_before.nanos = START_S + 60, 250000000
    said = described(case, session, task)
    check_equal("operation", said["operation"], "ACTION")
    check_equal("outputs", said["outputs"], {"first": b64(b"\x00\xff1"), "second": "", "absent": None})
    check_equal("labels", said["labels"], {"tenant": "T\u00fcr", "absent": None})
    check_equal("action", said["action"], "NONE")
    check_equal("probed", said["probed"], None)
    check_equal("request", said["request"], said["input"])
    check_equal("send_before", milliseconds(said["send_before"]), START_S * 1000 + 60250)


@behaviour("task", "A compensation's task says what is known of its action: done with output, or maybe")
def task_of_a_compensation(case):
    _, session = case.serve()
    kinds = worker_pb2.ActionOutcome
    for kind, output, name in ((kinds.KIND_DONE, b"receipt", "DONE"), (kinds.KIND_MAYBE, b"", "MAYBE")):
        task = rich_task(script("describe", **ASK), operation=saga_pb2.OPERATION_KIND_COMPENSATION,
                         action=kinds(kind=kind, output=output))
        said = described(case, session, task)
        check_equal("operation", said["operation"], "COMPENSATION")
        check_equal("action and its output", (said["action"], said["action_output"] or ""), (name, b64(output)))
        check_equal("send_before of none", said["send_before"], None)


@behaviour("task", "A probe's task says what it asks about: operation, try, fence and times of the attempt")
def task_of_a_probe(case):
    _, session = case.serve()
    attempt = worker_pb2.ProbedAttempt(fence=41)
    setattr(attempt, "try", 3)
    attempt.lease_time.seconds, attempt.end_time.seconds = START_S + 1, START_S + 9
    task = rich_task(script("describe", **ASK), operation=saga_pb2.OPERATION_KIND_PROBE,
                     probed=saga_pb2.OPERATION_KIND_ACTION, probed_attempt=attempt)
    said = described(case, session, task)
    check_equal("operation", said["operation"], "PROBE")
    probed = said["probed"]
    check_equal("probed", (probed["operation"], probed["try"], probed["fence"]), ("ACTION", 3, "41"))
    check_equal("its times", (milliseconds(probed["lease_time"]), milliseconds(probed["end_time"])),
                ((START_S + 1) * 1000, (START_S + 9) * 1000))


@behaviour("task", "Where the definition puts a request together, the handler works on that, with its type")
def task_with_a_request(case):
    _, session = case.serve()
    task = rich_task(script("never"), request=pack(script("describe", **ASK)), request_type="shop.v1.ChargeRequest")
    task.input = b""
    said = described(case, session, task)
    check_equal("request", said["request"], b64(task.request))


@behaviour("typed", "A typed handler takes and returns the user's generated message")
def typed_handler(case):
    _, session = case.serve("h:4:typed")
    for members, wanted in ((script("done", output="Gr\u00fc\u00dfe"), "Gr\u00fc\u00dfe"), (script("echo", pad="\u4e00"), None)):
        value = wrappers_pb2.StringValue(value=pack(members).decode())
        task = make_task("h", b"", request=value.SerializeToString(), request_type="google.protobuf.StringValue",
                         output_type="google.protobuf.StringValue")
        session.tasks([task])
        report = session.report(task.fence)
        check_equal("outcome", outcome_name(report), "DONE")
        check_equal("value", wrappers_pb2.StringValue.FromString(report.output).value,
                    value.value if wanted is None else wanted)


@behaviour("typed", "Bytes that are no such message never reach a typed handler: REJECTED, and the worker goes on")
def typed_handler_garbage(case):
    worker, session = case.serve("h:4:typed,plain:1")
    task = make_task("h", b"", request=b"\x0a\xff\xff", request_type="google.protobuf.StringValue")
    session.tasks([task])
    report = session.report(task.fence)
    check_equal("outcome", (outcome_name(report), report.error_code), ("REJECTED", "BAD_REQUEST"))
    check_equal("calls", worker.count_started(task.fence), 0)
    case.check_serves(session, "plain")


@behaviour("typed", "Nor does a message of another type: RETRY, another version of the worker may have it")
def typed_handler_wrong_type(case):
    worker, session = case.serve("h:4:typed,plain:1")
    task = make_task("h", b"", request=b"\x08\x05", request_type="google.protobuf.Int64Value")
    session.tasks([task])
    report = session.report(task.fence)
    check_equal("outcome", (outcome_name(report), report.error_code), ("RETRY", "WRONG_TYPE"))
    check_equal("calls", worker.count_started(task.fence), 0)
    case.check_serves(session, "plain")
