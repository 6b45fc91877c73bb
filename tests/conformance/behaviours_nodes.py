"""Several orchestrators."""

from behaviours_hello import most_at_a_time
from case import behaviour, check, check_equal, outcome_name, script


@behaviour("nodes", "A stream to each address, the same instance, each served; only_stream is not said")
def a_stream_to_each_address(case):
    nodes = [case.node(), case.node()]
    case.start()
    for node in nodes:
        node.session().wait_credit("h", 4)
        check(not node.session().hello.only_stream, "only_stream is said, though there are two addresses")
        case.check_serves(node.session())
    check_equal("instance", nodes[0].session().hello.instance, nodes[1].session().hello.instance)


@behaviour("nodes", "Several nodes that use their credit at once never make more than max in flight run")
def nodes_share_the_slots(case):
    nodes = [case.node(), case.node()]
    for node in nodes:
        node.orchestrator.extend_ms = 30000
    worker = case.start("h:2")
    sent = []
    for node in nodes:
        node.session().wait_credit("h", 1)
    for node in nodes:
        credit = node.session().credit("h")
        check(credit <= 2, "credit %d of 2 slots", credit)
        sent += [(node.session(), case.send(node.session(), script("sleep", ms=300))[0]) for _ in range(credit)]
    for session, task in sent:
        session.wait("a report or release of each task", lambda: (
            any(one.fence == task.fence for one in session.reports()) or
            any(fence == task.fence for _, fence in session.fences("release"))))
        released = any(fence == task.fence for _, fence in session.fences("release"))
        if not released:
            worker.started(task.fence)  # its line may be read after the report
        check_equal("calls", worker.count_started(task.fence), 0 if released else 1)
    check(most_at_a_time(worker) <= 2, "%d ran at once, of 2", most_at_a_time(worker))
    for node in nodes:
        here = sum(1 for session, _ in sent if session is node.session())
        node.session().wait_credit("h", here + 1)
        case.check_serves(node.session())


@behaviour("nodes", "A dead node's running task is extended and reported over another one's stream at once")
def another_stream_speaks(case):
    nodes = [case.node(), case.node()]
    worker = case.start()
    sessions = [node.session() for node in nodes]
    for session in sessions:
        session.wait_credit("h", 4)
    task, _ = case.send(sessions[0], script("wait_go", then=script("done", output="over the other")))
    worker.started(task.fence)
    nodes[0].cutter.refuses = True
    nodes[0].cutter.cut()
    sessions[1].named("extend", task.fence)
    sessions[1].extended(task, 30000)
    worker.tell("go %d" % task.fence)
    check_equal("output", sessions[1].report(task.fence).output, b"over the other")
    check_equal("calls", worker.count_started(task.fence), 1)


@behaviour("nodes", "What a dead node sent and nobody started is given back to another one")
def what_waits_goes_to_another(case):
    nodes = [case.node(), case.node()]
    worker = case.start("h:1,other:1", concurrency=1)
    sessions = [node.session() for node in nodes]
    for session in sessions:
        session.wait_credit("h", 1)
        session.wait_credit("other", 1)
    first, _ = case.send(sessions[1], script("wait_go"))
    worker.started(first.fence)
    waiting, _ = case.send(sessions[0], script(), "other")
    case.settle(0.3)  # so that it has arrived
    nodes[0].cutter.refuses = True
    nodes[0].cutter.cut()
    sessions[1].named("release", waiting.fence)
    worker.tell("go %d" % first.fence)
    sessions[1].report(first.fence)
    check_equal("calls of what waited", worker.count_started(waiting.fence), 0)


@behaviour("nodes", "Hello to a node that is back lists what runs for others, too")
def hello_lists_all_streams(case):
    nodes = [case.node(), case.node()]
    worker = case.start()
    sessions = [node.session() for node in nodes]
    for session in sessions:
        session.wait_credit("h", 4)  # before any slot is taken
    tasks = []
    for session in sessions:
        tasks.append(case.send(session, script("wait_go"))[0])
        worker.started(tasks[-1].fence)
    nodes[0].cutter.cut()
    again = nodes[0].session(1)
    check_equal("held", again.held(), sorted(task.fence for task in tasks))
    for task in tasks:
        worker.tell("go %d" % task.fence)
    sessions[1].wait("each report, on some stream", lambda: all(
        any(one.fence == task.fence for session in sessions + [again] for one in session.reports())
        for task in tasks))


@behaviour("nodes", "An address where nobody is does not hold up the others")
def one_address_is_dead(case):
    dead, node = case.node(), case.node()
    dead.cutter.refuses = True
    worker = case.start()
    session = node.session()
    session.wait_credit("h", 4)
    case.check_serves(session)
    worker.tell("drain")
    session.nth("drain")
    worker.wait_ended()
    check_equal("streams to the dead address", dead.orchestrator.sessions, [])
