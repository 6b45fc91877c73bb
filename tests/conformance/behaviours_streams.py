"""What a worker does when its stream is cut, and when the server says what it should not."""

import time

from case import behaviour, check, check_between, check_equal, outcome_name, script
from orchestrator import make_task
from saga.v1 import worker_pb2

KIB = 1024


@behaviour("stream", "A report without an ack is sent again on the next stream, the same, until it is acknowledged")
def lost_ack(case):
    node = case.node()
    node.orchestrator.acks = False
    worker, session = case.serve()
    task, _ = case.send(session, script("rejected", code="NO_FUNDS", message="no"))
    first = session.report(task.fence)
    node.cutter.cut()
    again = node.session(1)
    check_equal("held", again.held(), [task.fence])
    check_equal("the second report", again.report(task.fence), first)
    again.ack([first], worker_pb2.Ack.RESULT_DUPLICATE)
    node.orchestrator.acks = True
    case.check_serves(again)
    node.cutter.cut()
    third = node.session(2)
    check(task.fence not in third.held(), "it is held, though it was acknowledged")
    case.check_serves(third)
    check_equal("reports of it on the third stream", [one.fence for one in third.reports() if one.fence == task.fence], [])
    check_equal("calls", worker.count_started(task.fence), 1)


@behaviour("stream", "A stream that is reset in mid-report: the whole report comes on the next one")
def reset_in_mid_report(case):
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_go", then=script("done_size", size=200 * KIB)))
    worker.started(task.fence)
    case.nodes[0].cutter.cut_after(50 * KIB)
    worker.tell("go %d" % task.fence)
    again = case.nodes[0].session(1)
    check_equal("held", again.held(), [task.fence])
    check_equal("size of the report", len(again.report(task.fence).output), 200 * KIB)
    check_equal("reports on the first stream", session.reports(), [])
    check_equal("calls", worker.count_started(task.fence), 1)


@behaviour("stream", "A server that is away for a while: handlers go on, and their leases are asked for at once")
def server_restart(case):
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_go"), lease_ms=30000)
    done, _ = case.send(session, script("wait_go", then=script("done", output="while it was away")))
    worker.started(task.fence)
    worker.started(done.fence)
    case.nodes[0].orchestrator.acks = False
    case.nodes[0].replace(down_s=1.0)
    worker.tell("go %d" % done.fence)
    again = case.nodes[0].session()
    check_equal("held", again.held(), sorted([task.fence, done.fence]))
    check_equal("output", again.report(done.fence).output, b"while it was away")
    again.named("extend", task.fence)
    again.extended(task, 30000)
    worker.tell("go %d" % task.fence)
    check_equal("outcome", outcome_name(again.report(task.fence)), "DONE")
    check_equal("handlers that were told to stop", worker.seen("stop"), [])
    check_equal("calls", len(worker.seen("started")), 2)


@behaviour("stream", "GOAWAY with work in flight: nothing is lost or done twice, and the next server is found")
def goaway(case):
    worker, session = case.serve()
    early, _ = case.send(session, script("wait_go"))
    late, _ = case.send(session, script("wait_go", then=script("done", output="late")))
    worker.started(early.fence)
    worker.started(late.fence)
    old = case.nodes[0].replace(grace=1.5)
    worker.tell("go %d" % early.fence)
    again = case.nodes[0].session(timeout=30)
    worker.tell("go %d" % late.fence)
    check_equal("output", again.report(late.fence).output, b"late")
    reports = [one.fence for which in (old, case.nodes[0].orchestrator) for one_session in which.sessions
               for one in one_session.reports()]
    check(early.fence in reports, "the report that was made after GOAWAY did not come")
    again.wait_credit("h", 4)
    case.check_serves(again)
    check_equal("calls of the two", worker.count_started(early.fence) + worker.count_started(late.fence), 2)


@behaviour("stream", "A status of the server ends the stream and nothing else, whichever it is")
def status_of_the_server(case):
    import grpc
    codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED,
             grpc.StatusCode.INTERNAL)
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_go"))
    worker.started(task.fence)
    for number, code in enumerate(codes):
        session.end(code)
        session = case.nodes[0].session(number + 1)
        check_equal("held after " + code.name, session.held(), [task.fence])
    worker.tell("go %d" % task.fence)
    session.report(task.fence)


@behaviour("stream", "Hello lists what runs and what has no ack, and nothing else")
def held_in_hello(case):
    node = case.node()
    node.orchestrator.acks = False
    worker, session = case.serve("h:3,other:1", concurrency=2)
    finished, _ = case.send(session, script())
    acked, _ = case.send(session, script())
    session.report(finished.fence)
    session.ack([session.report(acked.fence)])
    running, _ = case.send(session, script("wait_go"))
    worker.started(running.fence)
    session.tick()
    filler, _ = case.send(session, script("wait_go"), "other")
    worker.started(filler.fence)
    waiting, _ = case.send(session, script())
    session.wait("credit to grow", lambda: session.credit("h") >= 4)
    node.cutter.cut()
    check_equal("held", node.session(1).held(), sorted([finished.fence, running.fence, filler.fence]))
    for task in (running, filler):
        worker.tell("go %d" % task.fence)
        node.session(1).report(task.fence)
    check_equal("calls of what waited", worker.count_started(waiting.fence), 0)


@behaviour("stream", "What a lost stream brought and no handler has seen is dropped, and never started")
def dropped_tasks(case):
    worker, session = case.serve("h:2,other:1", concurrency=1)
    first, _ = case.send(session, script("wait_go"))
    worker.started(first.fence)
    dropped = [case.send(session, script())[0], case.send(session, script(), "other")[0]]
    case.settle(0.3)  # so that they have arrived; both orders are right
    case.nodes[0].cutter.cut()
    again = case.nodes[0].session(1)
    check_equal("held", again.held(), [first.fence])
    worker.tell("go %d" % first.fence)
    again.report(first.fence)
    again.wait_credit("h", 2)
    again.wait_credit("other", 1)
    case.check_serves(again)
    case.check_serves(again, "other")
    check_equal("calls of what was dropped", sum(worker.count_started(one.fence) for one in dropped), 0)


@behaviour("stream", "A task that comes twice runs once: beside its handler, and beside its report")
def duplicate_delivery(case):
    node = case.node()
    node.orchestrator.acks = False
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_go"))
    worker.started(task.fence)
    session.tasks([task])
    worker.tell("go %d" % task.fence)
    session.report(task.fence)
    session.tasks([task])
    node.orchestrator.acks = True
    case.check_serves(session)
    check_equal("calls", worker.count_started(task.fence), 1)
    check_equal("streams", len(node.orchestrator.sessions), 1)


@behaviour("stream", "A newer attempt of the same step beside an older one: each is reported under its own fence")
def newer_fence(case):
    worker, session = case.serve()
    old, _ = case.send(session, script("wait_go", then=script("done", output="old")))
    worker.started(old.fence)
    new = make_task("h", b'{"do":"done","output":"new"}')
    new.saga_uid = old.saga_uid
    session.tasks([new])
    check_equal("output of the newer", session.report(new.fence).output, b"new")
    worker.tell("go %d" % old.fence)
    check_equal("output of the older", session.report(old.fence).output, b"old")


@behaviour("backoff", "Attempts to connect are 0.1 to 2 s apart, grow, differ between workers, and never end")
def jittered_backoff(case):
    nodes = [case.node(), case.node()]
    for node in nodes:
        node.cutter.refuses = True
    for node in nodes:
        case.start(nodes=[node])
    time.sleep(7.0)  # what is looked at is what happens in this time
    gaps = []
    for node in nodes:
        attempts = list(node.cutter.attempts)
        gaps.append([after - before for before, after in zip(attempts, attempts[1:])])
        check(4 <= len(attempts) <= 40, "%d attempts in 7 s", len(attempts))
        for gap in gaps[-1]:
            check_between("an attempt after the one before", gap, 0.09, 2.0)
        check(max(gaps[-1]) > 0.3, "the pauses do not grow: %s", gaps[-1])
    check([round(gap, 2) for gap in gaps[0]] != [round(gap, 2) for gap in gaps[1]], "two workers have the same pauses")
    for node in nodes:
        node.cutter.refuses = False
        at = time.monotonic()
        node.session().wait_credit("h", 4)
        check_between("the stream, once it could be had", time.monotonic() - at, 0, 2.5)


@behaviour("silence", "A stream without Welcome for 10 s is given up")
def welcome_never_comes(case):
    node = case.node()
    node.orchestrator.welcomes = False
    worker = case.start()
    node.session()
    worker.tell("clock +5000")
    case.settle(0.8)  # nothing may come, also where that takes some seconds
    check_equal("streams after 5 s", len(node.orchestrator.sessions), 1)
    node.orchestrator.welcomes = True
    worker.tell("clock +6000")
    again = node.session(1)
    again.wait_credit("h", 4)
    case.check_serves(again)


@behaviour("silence", "A stream on which the server says nothing for 35 s is given up; a Tick is enough")
def silent_server(case):
    worker, session = case.serve()
    case.check_serves(session)  # it has read Welcome
    for _ in range(2):
        worker.tell("clock +20000")
        case.settle(0.6)  # so that the Tick comes later by the worker's clock; nothing may end
        session.tick()
        case.settle(0.4)
    check_equal("streams while it ticks", len(case.nodes[0].orchestrator.sessions), 1)
    worker.tell("clock +36000")
    again = case.nodes[0].session(1)
    again.wait_credit("h", 4)
    case.check_serves(again)


@behaviour("silence", "A connection whose bytes vanish is given up, and what runs is held on the next one")
def frozen_connection(case):
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_go"), lease_ms=120000, attempt_ms=600000)
    worker.started(task.fence)
    case.check_serves(session)  # it has read Welcome
    case.settle(0.3)  # and the ack, which would count as heard after the jump
    case.nodes[0].cutter.freeze()
    worker.tell("clock +36000")
    case.settle(0.5)  # it is given up within 500 ms; new connections are frozen, too, until now
    case.nodes[0].cutter.thaw()
    again = case.nodes[0].session(1)
    check(task.fence in again.held(), "what runs is not held")
    worker.tell("go %d" % task.fence)
    again.report(task.fence)


@behaviour("silence", "An idle worker says Credit again at least every 15 s, with the same totals")
def idle_credit(case):
    worker, session = case.serve()
    case.check_serves(session)  # it has read Welcome
    session.wait_credit("h", 5)
    case.settle(0.3)
    for _ in range(2):
        number = len(session.all("credit"))
        worker.tell("clock +15000")
        session.nth("credit", number)
        session.tick()
        case.settle(0.3)
        check_equal("credit", session.credit("h"), 5)


@behaviour("hostile", "Bytes that are no message end the stream and nothing else")
def malformed_message(case):
    worker, session = case.serve()
    task, _ = case.send(session, script("wait_go"))
    worker.started(task.fence)
    session.say_bytes(b"\x12\xff\xff\xff\xff\x0f")
    again = case.nodes[0].session(1)
    check_equal("held", again.held(), [task.fence])
    worker.tell("go %d" % task.fence)
    check_equal("outcome", outcome_name(again.report(task.fence)), "DONE")


def check_ends_the_stream(case, what, spoil):
    """Sends a task that `spoil` made wrong: it must not be started, and the stream must end."""
    worker, session = case.serve()
    task = make_task("h", b'{"do":"done"}')
    spoil(task)
    session.tasks([task])
    again = case.nodes[0].session(1)
    again.wait_credit("h", 4)
    case.check_serves(again)
    check_equal("calls of " + what, worker.count_started(task.fence), 0)
    check_equal("reports of it", [one.fence for one in again.reports() if one.fence == task.fence], [])


@behaviour("hostile", "A malformed task ends the stream: an id that is none, no lease, no operation")
def malformed_task(case):
    def spoil_uid(task):
        task.saga_uid = b"abc"

    def spoil_lease(task):
        task.ClearField("lease")

    def spoil_operation(task):
        task.operation = 0

    for what, spoil in (("a task with a short uid", spoil_uid), ("one without a lease", spoil_lease),
                        ("one without an operation", spoil_operation)):
        check_ends_the_stream(case, what, spoil)
        for worker in case.workers:
            worker.close()
        case.workers.clear()
        for node in case.nodes:
            node.close()
        case.nodes.clear()


@behaviour("hostile", "A task of a handler that is not ours ends the stream")
def task_of_an_unknown_handler(case):
    def spoil(task):
        task.handler = "not.ours"
    check_ends_the_stream(case, "another's task", spoil)


@behaviour("hostile", "More tasks than credit end the stream; those within it were taken")
def more_tasks_than_credit(case):
    worker, session = case.serve("h:2")
    tasks = [make_task("h", b'{"do":"wait_go"}') for _ in range(3)]
    session.tasks(tasks)
    again = case.nodes[0].session(1)
    check(tasks[2].fence not in again.held(), "what was beyond the credit is held")
    check_equal("calls of it", worker.count_started(tasks[2].fence), 0)
    for fence in again.held():
        worker.tell("go %d" % fence)
        again.report(fence)
    again.wait_credit("h", 2)
    case.check_serves(again)


@behaviour("hostile", "A word of a newer server is passed over")
def unknown_command(case):
    worker, session = case.serve()
    session.say_bytes(b"\xfa\x06\x03abc")  # field 111
    session.say_bytes(b"")
    case.check_serves(session)
    check_equal("streams", len(case.nodes[0].orchestrator.sessions), 1)


@behaviour("hostile", "Acks, extensions and hints of tasks that nobody holds are passed over")
def words_about_strangers(case):
    worker, session = case.serve()
    stranger = make_task("h")
    session.ack([stranger], worker_pb2.Ack.RESULT_STALE)
    session.extended(stranger, 5000)
    session.extended(stranger, 0)
    session.cancel(stranger)
    case.check_serves(session)
    check_equal("streams", len(case.nodes[0].orchestrator.sessions), 1)
