"""How long a handler may go on."""

import signal
import time

from case import behaviour, check, check_between, check_equal, outcome_name, script
from saga.v1 import worker_pb2


def stop_time(worker, task, reason="lost"):
    return worker.event("stop", task.fence, reason=reason)[0]


@behaviour("lease", "Leases are extended every third, however busy all handlers are")
def lease_extended_under_load(case):
    node = case.node()
    node.orchestrator.extend_ms = 3000
    worker, session = case.serve("h:2", concurrency=2)
    busy = [case.send(session, script("cpu", ms=4500), lease_ms=3000) for _ in range(2)]
    for task, at in busy:
        check_equal("outcome", outcome_name(session.report(task.fence)), "DONE")
        asked = [one - at for one, fence in session.fences("extend") if fence == task.fence]
        check(len(asked) >= 3, "asked %d times in 4.5 s for a lease of 3 s", len(asked))
        check_between("the first extension", asked[0], 0.5, 1.0)
        for before, after in zip(asked, asked[1:]):
            check_between("the next extension", after - before, 0, 1.0)
        check(len(asked) <= 11, "asked %d times in 4.5 s, more often than every 500 ms", len(asked))
    check_equal("handlers that were told to stop", worker.seen("stop"), [])


@behaviour("lease", "A handler is told to stop at 80 % of a lease that nobody confirms, and it is not its own then")
def stop_at_80_percent(case):
    worker, session = case.serve()
    task, at = case.send(session, script("wait_stop", then=script("still_mine", then=script("wait_go"))), lease_ms=4000)
    worker.started(task.fence)
    check(worker.still_mine(task.fence), "not its own at the beginning")
    check_between("stop", stop_time(worker, task) - at, 2.7, 3.2)
    check_equal("mine", worker.event("still_mine", task.fence, number=1)[1]["mine"], False)
    worker.tell("go %d" % task.fence)
    session.report(task.fence)  # it counts in any case
    case.check_serves(session)


@behaviour("lease", "An extension is counted from when it was asked for, not from when its answer came")
def extension_counts_from_the_question(case):
    worker, session = case.serve()
    task, at = case.send(session, script("wait_stop"), lease_ms=3600)
    asked = session.named("extend", task.fence)
    time.sleep(max(0, at + 2.2 - time.monotonic()))  # the answer is late on purpose; 80 % are at 2.9 s
    session.extended(task, 3600)
    check_between("stop, since the question", stop_time(worker, task) - asked, 2.4, 2.88)


@behaviour("lease", "A lease that the server calls lost stops the handler at once; its report is sent, a stale ack is fine")
def lease_lost(case):
    node = case.node()
    node.orchestrator.acks = False
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_stop", then=script("still_mine")), lease_ms=20000)
    worker.started(task.fence)
    at = time.monotonic()
    session.extended(task, 0)
    check_between("stop", stop_time(worker, task) - at, 0, 0.5)
    check_equal("mine", worker.event("still_mine", task.fence)[1]["mine"], False)
    session.ack([session.report(task.fence)], worker_pb2.Ack.RESULT_STALE)
    node.orchestrator.acks = True
    case.check_serves(session)
    node.cutter.cut()
    check(task.fence not in node.session(1).held(), "it is held, though it was acknowledged as stale")


@behaviour("lease", "The attempt time ends a handler's time, however long the lease is")
def attempt_time(case):
    node = case.node()
    node.orchestrator.extend_ms = 20000
    worker, session = case.serve()
    task, at = case.send(session, script("wait_stop", then=script("still_mine")), lease_ms=20000, attempt_ms=1500)
    check_between("stop", stop_time(worker, task) - at, 1.2, 1.5)
    check_equal("mine", worker.event("still_mine", task.fence)[1]["mine"], False)


@behaviour("lease", "still_mine is true while extensions are confirmed, long after the first lease")
def still_mine_while_extended(case):
    node = case.node()
    node.orchestrator.extend_ms = 4000
    worker, session = case.serve()
    task, at = case.send(session, script("wait_go", then=script("still_mine")), lease_ms=4000)
    session.named("extend", task.fence, 3)
    check(time.monotonic() - at > 4.0, "four questions within one lease")
    check(worker.still_mine(task.fence), "not its own, though each extension was confirmed")
    worker.tell("go %d" % task.fence)
    check_equal("outcome", outcome_name(session.report(task.fence)), "DONE")
    check_equal("handlers that were told to stop", worker.seen("stop"), [])


@behaviour("lease", "The injected clock jumps past 80 %: the handler is told at once, and the lease is not its own")
def clock_jump(case):
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_stop", then=script("wait_go")), lease_ms=20000)
    worker.started(task.fence)
    worker.tell("clock +8000")
    case.settle(0.5)  # 80 % are at 16 s: nothing may come
    check_equal("stops before 80 %", worker.seen("stop"), [])
    at = time.monotonic()
    worker.tell("clock +9000")
    check_equal("mine", worker.still_mine(task.fence), False)
    check_between("stop", stop_time(worker, task) - at, 0, 0.5)
    session.named("extend", task.fence)
    worker.tell("go %d" % task.fence)
    session.report(task.fence)


@behaviour("lease", "A process that stood still does not take a task that waited for it for a fresh one")
def frozen_process(case):
    worker, session = case.serve()
    worker.freeze()
    task, at = case.send(session, script("still_mine"), lease_ms=2000)
    time.sleep(max(0, at + 2.5 - time.monotonic()))  # the lease itself is what runs out
    worker.signal(signal.SIGCONT)
    session.wait("a report or release of what came too late", lambda: (
        any(one.fence == task.fence for one in session.reports()) or
        any(fence == task.fence for _, fence in session.fences("release"))))
    for _, event in worker.seen("still_mine", task.fence):
        check_equal("mine", event["mine"], False)
    case.check_serves(session)


@behaviour("cancel", "A cancel hint tells the running handler; what it reports counts")
def cancel_hint(case):
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_stop", then=script("done", output="it was done")))
    worker.started(task.fence)
    at = time.monotonic()
    session.cancel(task)
    check_between("stop", stop_time(worker, task, "cancelled") - at, 0, 0.5)
    report = session.report(task.fence)
    check_equal("outcome and output", (outcome_name(report), report.output), ("DONE", b"it was done"))


@behaviour("cancel", "A cancel hint for what waits in the worker gives it back, not started")
def cancel_hint_of_a_waiting_task(case):
    worker, session = case.serve("h:1,other:1", concurrency=1)
    first, _ = case.send(session, script("wait_go"))
    worker.started(first.fence)
    second, _ = case.send(session, script(), "other")
    session.cancel(second)
    session.named("release", second.fence)
    worker.tell("go %d" % first.fence)
    session.report(first.fence)
    case.check_serves(session, "other")
    check_equal("calls of what was cancelled", worker.count_started(second.fence), 0)
