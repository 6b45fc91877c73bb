"""The conformance worker in Python: does what its tasks say, see ../README.md."""

import asyncio
import base64
import importlib.util
import json
import logging
import os
import sys
import threading
import time
import urllib.request

import grpc
from google.protobuf.wrappers_pb2 import StringValue

import sagad

CONNECT_S = 5


class Clock:
    """The real monotonic clock plus an offset."""

    def __init__(self):
        self.offset_ms = 0

    def __call__(self):
        return time.monotonic_ns() // 1000000 + self.offset_ms


class Running:
    """The tasks whose handlers run, and who waits for a `go`."""

    def __init__(self):
        self._lock = threading.Lock()
        self._tasks = {}
        self._gone = {}  # fence: an event that the command sets, also before its task comes

    def add(self, task):
        with self._lock:
            self._tasks[task.fence] = task

    def remove(self, task):
        with self._lock:
            self._tasks.pop(task.fence, None)

    def find(self, fence):
        with self._lock:
            return self._tasks.get(fence)

    def go(self, fence):
        with self._lock:
            return self._gone.setdefault(fence, threading.Event())


running = Running()
stdout_lock = threading.Lock()


def tell(event, **more):
    line = json.dumps({"event": event, **more})
    with stdout_lock:
        print(line, flush=True)


def tell_stop(task, reason):
    tell("stop", fence=str(task.fence), reason=reason.name.lower())


def tell_still_mine(task):
    tell("still_mine", fence=str(task.fence), mine=task.still_mine())


# Calls that fail.


def call_http(port):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", data=b"body", method="POST")
    with urllib.request.urlopen(request, timeout=CONNECT_S) as response:
        response.read()


def call_dns(port):
    with urllib.request.urlopen("http://name.invalid/", timeout=CONNECT_S) as response:
        response.read()


def call_grpc(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
        channel.unary_unary("/conformance.Service/Call")(b"small", timeout=CONNECT_S)


def call_postgresql(port):
    if importlib.util.find_spec("psycopg"):
        import psycopg as driver
    else:
        import psycopg2 as driver
    driver.connect(host="127.0.0.1", port=port, dbname="none", connect_timeout=CONNECT_S).close()


def call_mysql(port):
    import pymysql

    pymysql.connect(host="127.0.0.1", port=port, connect_timeout=CONNECT_S).close()


CALLS = {"http": call_http, "grpc": call_grpc, "dns": call_dns}
if importlib.util.find_spec("psycopg") or importlib.util.find_spec("psycopg2"):
    CALLS["postgresql"] = call_postgresql
if importlib.util.find_spec("pymysql"):
    CALLS["mysql"] = call_mysql


# What handlers do.


def describe(task, script):
    def text(data):
        return base64.b64encode(data).decode()

    def when(moment):
        if moment is None:
            return None
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"

    probed = task.probed
    outputs = {step: task.output_of(step) for step in script.get("steps", [])}
    return {
        "namespace": task.namespace,
        "definition": task.definition,
        "saga_id": task.saga_id,
        "run": task.run,
        "saga_uid": text(task.uid.bytes),
        "revision": task.revision,
        "saga_start_time": when(task.started_at),
        "step": task.step,
        "operation": task.operation.name,
        "handler": task.handler,
        "try": task.try_,
        "fence": str(task.fence),
        "idempotency_key": task.idempotency_key,
        "input": text(task.input()),
        "request": text(task.request()),
        "request_type": task.request_type,
        "output_type": task.output_type,
        "outputs": {
            step: None if output is None else text(output) for step, output in outputs.items()
        },
        "action": task.action_outcome.name,
        "action_output": text(task.action_output()),
        "probed": probed
        and {
            "operation": probed.operation.name,
            "try": probed.try_,
            "fence": str(probed.fence),
            "lease_time": when(probed.leased_at),
            "end_time": when(probed.ended_at),
        },
        "labels": {key: task.labels.get(key) for key in script.get("labels", [])},
        "traceparent": task.traceparent,
        "guarded": task.guarded,
        "send_before": when(task.send_before),
        "time_left_ms": int(task.time_left * 1000),
        "lease_left_ms": int(task.lease_left * 1000),
    }


def finish(task, request, script):
    """The end of a script: returns the output, or raises what else came of it."""
    do, code, message = script["do"], script.get("code", ""), script.get("message", "")
    if do == "done":
        return script.get("output", "").encode()
    if do == "echo":
        return request
    if do == "done_size":
        return b"x" * script["size"]
    if do == "request_size":
        return str(len(request)).encode()
    if do == "describe":
        return json.dumps(describe(task, script)).encode()
    if do == "already_done":
        raise sagad.AlreadyDone(script.get("output", "").encode(), ours=script["ours"])
    if do == "rejected":
        raise sagad.Rejected(code, message)
    if do == "retry":
        raise sagad.Retry(code, message, after=script.get("after_ms", 0) / 1000)
    if do == "unknown":
        raise sagad.Unknown(code, message)
    if do == "not_done":
        raise sagad.NotDone()
    if do == "still_unknown":
        raise sagad.StillUnknown(code, message)
    if do == "raise":
        raise ValueError(message)
    if do == "panic":
        raise SystemExit(message)
    raise NotImplementedError(do)


def is_call(script):
    return script["do"] in ("refused", "sent_then_cut")


def then(script):
    return script.get("then", {"do": "done", "output": ""})


def burn(script):
    until = time.monotonic() + script["ms"] / 1000
    while time.monotonic() < until:
        pass


def obey(task, request, script):
    while True:
        do = script["do"]
        if is_call(script):
            CALLS[script["client"]](script.get("port"))
            raise AssertionError("the call did not fail")
        if do == "sleep":
            time.sleep(script["ms"] / 1000)
        elif do == "wait_stop":
            tell_stop(task, task.wait_stop())
        elif do == "wait_go":
            running.go(task.fence).wait()
        elif do == "still_mine":
            tell_still_mine(task)
        elif do == "cpu":
            burn(script)
        else:
            return finish(task, request, script)
        script = then(script)


async def wait_go(task):
    event = running.go(task.fence)
    while not event.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            pass  # nothing else ends it


async def wait_stop(task):
    try:
        reason = await task.stopped()
    except asyncio.CancelledError:
        reason = task.stop_reason
    tell_stop(task, reason)


async def obey_async(task, request, script):
    while True:
        do = script["do"]
        if is_call(script):
            await asyncio.to_thread(CALLS[script["client"]], script.get("port"))
            raise AssertionError("the call did not fail")
        if do == "sleep":
            await asyncio.sleep(script["ms"] / 1000)
        elif do == "wait_stop":
            await wait_stop(task)
        elif do == "wait_go":
            await wait_go(task)
        elif do == "still_mine":
            tell_still_mine(task)
        elif do == "cpu":
            burn(script)
        else:
            return finish(task, request, script)
        script = then(script)


class Run:
    """Says that a handler started and finished."""

    def __init__(self, task):
        self._task = task

    def __enter__(self):
        running.add(self._task)
        task = self._task
        tell("started", handler=task.handler, fence=str(task.fence), **{"try": task.try_})

    def __exit__(self, *error):
        running.remove(self._task)
        tell("finished", fence=str(self._task.fence))


def blocking_handler(task):
    with Run(task):
        return obey(task, task.request(), json.loads(task.request()))


async def async_handler(task):
    with Run(task):
        return await obey_async(task, task.request(), json.loads(task.request()))


def typed_handler(task, request: StringValue):
    with Run(task):
        output = obey(task, request.value.encode(), json.loads(request.value))
        return StringValue(value=output.decode())


KINDS = {"blocking": blocking_handler, "async": async_handler, "typed": typed_handler}


def listen(worker, clock):
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "go":
            running.go(int(argument)).set()
        elif command == "still_mine":
            task = running.find(int(argument))
            if task:
                tell_still_mine(task)
        elif command == "clock":
            clock.offset_ms += int(argument)
        elif command == "drain":
            worker.drain()
        elif command == "stats":
            tell("stats", **vars(worker.stats))
        else:
            sys.exit(f"no such command: {line!r}")
    os._exit(0)  # whatever runs


def main():
    logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(levelname)s %(message)s")
    environment, clock, options = os.environ, Clock(), {}
    if "SAGA_CONCURRENCY" in environment:
        options["concurrency"] = int(environment["SAGA_CONCURRENCY"])
    if "SAGA_DRAIN_MS" in environment:
        options["drain_s"] = int(environment["SAGA_DRAIN_MS"]) / 1000
    if "SAGA_MAX_MESSAGE" in environment:
        options["max_message_bytes"] = int(environment["SAGA_MAX_MESSAGE"])
    if "SAGA_OUTPUT_MAX" in environment:
        options["max_output_bytes"] = int(environment["SAGA_OUTPUT_MAX"])
    worker = sagad.Worker(
        environment["SAGA_ADDRESSES"].split(","),
        environment["SAGA_WORKER_ID"],
        clock_ms=clock,
        **options,
    )
    for handler in environment["SAGA_HANDLERS"].split(","):
        name, in_flight, kind = (handler + ":blocking").split(":")[:3]
        worker.handle(name, KINDS[kind], max_in_flight=int(in_flight))
    threading.Thread(target=listen, args=(worker, clock), daemon=True).start()
    tell("ready", clients=sorted(CALLS))
    code = 0
    try:
        worker.run(handle_signals=environment.get("SAGA_SIGNALS") == "1")
    except Exception:
        logging.exception("run")
        code = 1
    tell("ended", code=code)
    return code


if __name__ == "__main__":
    sys.exit(main())
