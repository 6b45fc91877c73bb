"""Hello, credit, and what runs at a time."""

import re

from case import behaviour, check, check_equal, outcome_name, script


@behaviour("hello", "The first message is Hello, with id, instance, handlers and SDK; nothing is held")
def hello(case):
    worker = case.start("pay:3,ledger.write:5")
    session = case.nodes[0].session()
    check_equal("the first message", session.heard[0].kind, "hello")
    said = session.hello
    check_equal("worker_id", said.worker_id, "worker-1")
    check(re.fullmatch(r"[A-Za-z0-9-]{8,64}", said.instance), "instance is no such name: %r", said.instance)
    check_equal("handlers", sorted((one.handler, one.max_in_flight) for one in said.handlers),
                [("ledger.write", 5), ("pay", 3)])
    check_equal("held", case.nodes[0].session().held(), [])
    check(said.sdk, "sdk is empty")
    check(said.only_stream, "only_stream is not said, though there is one address")
    first = said.instance
    worker.close()
    case.start("pay:3,ledger.write:5")
    check(case.nodes[0].session(1).hello.instance != first, "two processes have the same instance")


@behaviour("hello", "Nothing but Hello is said before Welcome")
def hello_waits_for_welcome(case):
    node = case.node()
    node.orchestrator.welcomes = False
    case.start()
    session = node.session()
    case.settle(0.5)  # there is nothing to wait for: nothing may come
    kinds = [one.kind for one in session.heard if one.kind not in ("hello", "credit")]
    check_equal("what came before Welcome", kinds, [])
    session.welcome()
    session.wait_credit("h", 4)
    case.check_serves(session)


@behaviour("credit", "Credit is each handler's max at once, and not more")
def credit_is_max_in_flight(case):
    case.start("h:4,other:2")
    session = case.nodes[0].session()
    session.wait_credit("h", 4)
    session.wait_credit("other", 2)
    case.settle(0.4)  # nothing more may come
    check_equal("credit of h", session.credit("h"), 4)
    check_equal("credit of other", session.credit("other"), 2)


@behaviour("credit", "A slot is credited again when its report is sent, before the ack; an ack credits nothing")
def credit_after_report(case):
    node = case.node()
    node.orchestrator.acks = False
    worker, session = case.serve("h:1")
    for number in range(3):
        task, _ = case.send(session)
        session.report(task.fence)
        session.wait_credit("h", number + 2)
    node.orchestrator.acks = True
    session.ack(session.reports())
    case.check_serves(session)
    session.wait_credit("h", 5)
    case.settle(0.3)  # nothing more may come
    check_equal("credit after four reports", session.credit("h"), 5)


@behaviour("credit", "Each stream counts credit anew, without the slots of what still runs")
def credit_starts_anew(case):
    worker, session = case.serve("h:4")
    task, _ = case.send(session, script("wait_go"))
    worker.started(task.fence)
    case.check_serves(session)
    session.wait_credit("h", 5)
    case.nodes[0].cutter.cut()
    again = case.nodes[0].session(1)
    again.wait_credit("h", 3)
    case.settle(0.4)  # nothing more may come
    check_equal("credit beside one that runs", again.credit("h"), 3)
    worker.tell("go %d" % task.fence)
    again.report(task.fence)
    again.wait_credit("h", 4)


def most_at_a_time(worker):
    """The most calls that ran at once, by what the worker wrote."""
    running = most = 0
    for _, event in worker.events:
        running += {"started": 1, "finished": -1}.get(event["event"], 0)
        most = max(most, running)
    return most


@behaviour("bound", "A handler never has more than its max in flight, nor all together more than the concurrency")
def concurrency_bound(case):
    worker = case.start("a:3,b:3", concurrency=4)
    session = case.nodes[0].session()
    tasks = []
    for name in ("a", "b"):
        session.wait_credit(name, 3)
        tasks += [case.send(session, script("sleep", ms=200), name)[0] for _ in range(3)]
    for task in tasks:
        check_equal("outcome", outcome_name(session.report(task.fence)), "DONE")
    check_equal("the most at a time", most_at_a_time(worker), 4)
    check_equal("calls", len(worker.seen("started")), 6)


@behaviour("bound", "What waits in the worker for a free thread has its lease extended, and runs in its turn")
def waiting_tasks_are_extended(case):
    node = case.node()
    node.orchestrator.extend_ms = 3000
    worker, session = case.serve("h:1,other:1", concurrency=1)
    first, _ = case.send(session, script("wait_go"), lease_ms=3000)
    worker.started(first.fence)
    second, _ = case.send(session, script(), "other", lease_ms=3000)
    session.named("extend", second.fence, 2)
    check_equal("calls of the second", worker.count_started(second.fence), 0)
    worker.tell("go %d" % first.fence)
    check_equal("outcome", outcome_name(session.report(second.fence)), "DONE")
