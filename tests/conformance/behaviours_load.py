"""Many, and large."""

import time

from behaviours_hello import most_at_a_time
from case import behaviour, check, check_equal, outcome_name, pack, script
from orchestrator import make_task

MIB = 1 << 20
TASKS, SLOTS = 1000, 64
LOAD_S = 120  # generous: the machine is shared with other languages


@behaviour("load", "1,000 tasks at concurrency 64: each done once, never more than 64 in flight, all slots used")
def a_thousand_tasks(case):
    worker, session = case.serve("h:%d" % SLOTS, concurrency=SLOTS)
    tasks = [make_task("h", pack(script("sleep", ms=20))) for _ in range(TASKS)]
    sent = 0
    until = time.monotonic() + LOAD_S
    while sent < TASKS:
        more = session.wait("credit for task %d" % sent, lambda: session.credit("h") - sent,
                            max(0.1, until - time.monotonic()))
        session.tasks(tasks[sent:sent + more])
        sent += more
    session.wait("all reports", lambda: len(session.reports()) >= TASKS, max(0.1, until - time.monotonic()))
    reports = session.reports()
    check_equal("fences that were reported", sorted(one.fence for one in reports), [one.fence for one in tasks])
    check_equal("outcomes", {outcome_name(one) for one in reports}, {"DONE"})
    worker.wait("each call's end", lambda: len(worker.seen("finished")) >= TASKS)
    check_equal("calls", len(worker.seen("started")), TASKS)
    most = most_at_a_time(worker)
    check(SLOTS // 2 <= most <= SLOTS, "%d in flight at most, of %d", most, SLOTS)
    session.wait_credit("h", TASKS + SLOTS)
    check_equal("credit in the end", session.credit("h"), TASKS + SLOTS)


@behaviour("load", "A payload of 1 MiB comes and goes, where the output's limit is raised")
def payload_of_a_mib(case):
    _, session = case.serve(output_max=MIB)
    members = script("echo", pad="")
    members["pad"] = "p" * (MIB - len(pack(members)))
    report = case.outcome(session, members)
    check_equal("outcome and size", (outcome_name(report), len(report.output)), ("DONE", MIB))
    check_equal("streams", len(case.nodes[0].orchestrator.sessions), 1)


@behaviour("load", "A task of 6 MiB is received with nothing raised: no orchestrator sends a larger one")
def largest_task(case):
    _, session = case.serve()
    members = script("request_size", pad="p" * (6 * MIB))
    report = case.outcome(session, members)
    check_equal("outcome and size", (outcome_name(report), report.output), ("DONE", b"%d" % len(pack(members))))


@behaviour("load", "A task of 10 MiB is received, where the message limit is raised to 12 MiB")
def message_limit_is_raised(case):
    _, session = case.serve(max_message=12 * MIB)
    members = script("request_size", pad="p" * (10 * MIB))
    report = case.outcome(session, members)
    check_equal("outcome and size", (outcome_name(report), report.output), ("DONE", b"%d" % len(pack(members))))


@behaviour("load", "300 asynchronous handlers in flight at once, on few threads, their leases extended")
def hundreds_of_async_handlers(case):
    node = case.node()
    node.orchestrator.extend_ms = 6000
    worker, session = case.serve("h:300:async", concurrency=300)
    idle = worker.threads()
    tasks = [make_task("h", pack(script("wait_go")), lease_ms=6000) for _ in range(300)]
    session.tasks(tasks)
    worker.wait("300 calls at once", lambda: len(worker.seen("started")) == 300)
    threads = worker.threads()
    check(threads <= idle + 40, "%d threads for 300 handlers, %d for none", threads, idle)
    session.wait("an extension of each", lambda: len({fence for _, fence in session.fences("extend")}) == 300)
    for task in tasks:
        worker.tell("go %d" % task.fence)
    session.wait("300 reports", lambda: len(session.reports()) == 300)
    check_equal("outcomes", {outcome_name(one) for one in session.reports()}, {"DONE"})


@behaviour("load", "An asynchronous handler is told to stop as any other, and its exception is UNKNOWN")
def async_handlers_are_told(case):
    worker, session = case.serve("h:4:async")
    task, _ = case.send(session, script("wait_stop", then=script("done", output="told")))
    worker.started(task.fence)
    session.cancel(task)
    worker.event("stop", task.fence, reason="cancelled")
    check_equal("outcome", outcome_name(session.report(task.fence)), "DONE")
    check_equal("outcome of an exception", outcome_name(case.outcome(session, script("raise", message="x"))), "UNKNOWN")
    check_equal("outcome of a business no", outcome_name(case.outcome(session, script("rejected", code="NO"))), "REJECTED")
