"""The end of a worker, and of a server, in order."""

import signal
import time

from case import behaviour, check, check_between, check_equal, outcome_name, script


@behaviour("drain", "SIGTERM: Drain is said, and an idle worker ends with code 0")
def sigterm_drains(case):
    worker, session = case.serve()
    case.check_serves(session)
    at = time.monotonic()
    worker.signal(signal.SIGTERM)
    session.nth("drain")
    check_between("the end, without anything to wait for", worker.wait_ended() - at, 0, 2.5)


@behaviour("drain", "Work in flight is finished, reported and acknowledged before the worker ends")
def drain_finishes_what_runs(case):
    node = case.node()
    node.orchestrator.acks = False
    worker, session = case.serve(drain_ms=20000)
    task, _ = case.send(session, script("sleep", ms=1200, then=script("done", output="to the end")))
    worker.started(task.fence)
    worker.signal(signal.SIGTERM)
    session.nth("drain")
    report = session.report(task.fence)
    check_equal("outcome and output", (outcome_name(report), report.output), ("DONE", b"to the end"))
    case.settle(0.7)  # it may not end without the ack
    check_equal("ended before the ack", worker.seen("ended"), [])
    session.ack([report])
    worker.wait_ended()


@behaviour("drain", "A running handler can see that the worker drains, and its lease is extended on")
def drain_tells_handlers(case):
    node = case.node()
    node.orchestrator.extend_ms = 2000
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_stop", then=script("sleep", ms=2500)), lease_ms=2000)
    worker.started(task.fence)
    worker.tell("drain")
    worker.event("stop", task.fence, reason="draining")
    extensions = len(session.fences("extend"))
    check_equal("outcome", outcome_name(session.report(task.fence)), "DONE")
    check(len(session.fences("extend")) > extensions, "no extension while it drained")
    worker.wait_ended()


@behaviour("drain", "What was not started is given back, and never started")
def drain_gives_back_what_waits(case):
    worker, session = case.serve("h:1,other:1", concurrency=1)
    first, _ = case.send(session, script("wait_go"))
    worker.started(first.fence)
    second, _ = case.send(session, script(), "other")
    case.settle(0.2)  # so that it has arrived; both orders are right
    worker.signal(signal.SIGTERM)
    session.named("release", second.fence)
    worker.tell("go %d" % first.fence)
    session.report(first.fence)
    worker.wait_ended()
    check_equal("calls of what was given back", worker.count_started(second.fence), 0)
    check_equal("reports", [one.fence for one in session.reports()], [first.fence])


@behaviour("drain", "No credit after Drain; a task that crosses it is given back")
def drain_takes_no_more(case):
    worker, session = case.serve()
    first, _ = case.send(session, script("wait_go"))
    worker.started(first.fence)
    worker.tell("drain")
    session.nth("drain")
    total = session.credit("h")
    second, _ = case.send(session, script())
    session.named("release", second.fence)
    worker.tell("go %d" % first.fence)
    session.report(first.fence)
    worker.wait_ended()
    check_equal("calls of what crossed", worker.count_started(second.fence), 0)
    check(session.credit("h") <= total, "credit grew from %d to %d after Drain", total, session.credit("h"))


@behaviour("drain", "Acks are waited for at most for the drain time")
def drain_time(case):
    node = case.node()
    node.orchestrator.acks = False
    worker, session = case.serve(drain_ms=1500)
    task, _ = case.send(session)
    session.report(task.fence)
    at = time.monotonic()
    worker.signal(signal.SIGTERM)
    check_between("the end", worker.wait_ended() - at, 1.2, 3)


@behaviour("drain", "A drain is said to every address")
def drain_on_every_address(case):
    nodes = [case.node(), case.node()]
    worker = case.start()
    for node in nodes:
        node.session().wait_credit("h", 1)
    worker.signal(signal.SIGTERM)
    for node in nodes:
        node.session().nth("drain")
    worker.wait_ended()


@behaviour("drain", "A server that drains gets no more credit, what waits back, the reports, and then its stream's end")
def server_drains(case):
    worker, session = case.serve("h:2,other:1", concurrency=1)
    first, _ = case.send(session, script("wait_go", then=script("done", output="late")))
    worker.started(first.fence)
    second, _ = case.send(session, script(), "other")
    case.settle(0.2)  # so that it has arrived; both orders are right
    session.drain_requested(20000)
    session.named("release", second.fence)
    total = session.credit("h")
    worker.tell("go %d" % first.fence)
    check_equal("output", session.report(first.fence).output, b"late")
    session.wait_end()
    check_equal("credit", session.credit("h"), total)
    again = case.nodes[0].session(1)
    again.wait_credit("h", 2)
    case.check_serves(again)
    check_equal("calls of what was given back", worker.count_started(second.fence), 0)
