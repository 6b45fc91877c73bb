package dev.sagad.worker;

import com.google.protobuf.Duration;
import dev.sagad.v1.Credit;
import dev.sagad.v1.Drain;
import dev.sagad.v1.Extend;
import dev.sagad.v1.HeldLease;
import dev.sagad.v1.Hello;
import dev.sagad.v1.Release;
import dev.sagad.v1.Report;
import dev.sagad.v1.Subscription;
import dev.sagad.v1.TaskReport;
import dev.sagad.v1.WorkerMessage;
import java.util.ArrayList;
import java.util.List;

/** What a {@link Session} says: one message at a time, the most urgent first. As pure as that. */
final class Speech {

  static final String SDK = "sagad-java/0.1.0";
  static final int UNACKED_MAX = 4096; // no new credit beyond it
  static final int REPORTS = 512; // in one Report
  static final int REPORT_BYTES = 3 << 20; // of outputs in one Report
  static final int LEASES = Pool.STARTED_MAX; // in one Hello, Extend or Release
  static final int IDLE_MS = 10_000; // Credit is repeated when nothing else was sent
  static final int EXTEND_MIN_MS = 500; // not more often, however short what is left of a lease

  private final Session session;
  private final Pool pool;
  private final long nowMs;

  Speech(Session session, long nowMs) {
    this.session = session;
    this.pool = session.pool;
    this.nowMs = nowMs;
  }

  WorkerMessage next() {
    if (nowMs >= session.shareCheckMs && pool.sessions.size() > 1) {
      share();
    }
    if (!session.helloSent) {
      session.connected(nowMs);
      return hello();
    }
    if (pool.draining && !session.drainSent) {
      session.drainSent = true;
      session.drainSentMs = nowMs;
      return WorkerMessage.newBuilder().setDrain(Drain.getDefaultInstance()).build();
    }
    WorkerMessage extend = nowMs >= session.extendCheckMs ? extend() : null;
    if (extend != null) {
      return extend;
    }
    if (!session.list(Held.State.FINISHED).isEmpty()) {
      return reports();
    }
    if (!session.list(Held.State.RELEASED).isEmpty()) {
      return release();
    }
    boolean repeat = nowMs - session.sentMs >= IDLE_MS;
    return session.creditDue || repeat ? credit(repeat) : null;
  }

  /** What came beyond the slots and has waited for long enough is given back; offers are looked at. */
  private void share() {
    for (Held held : List.copyOf(session.list(Held.State.QUEUED))) {
      if (nowMs - held.cameMs < Pool.SURPLUS_MS) {
        break;
      }
      if (held.handler.inUse > held.handler.maxInFlight) {
        pool.move(held, session, Held.State.RELEASED);
      }
    }
    session.creditDue = true;
    session.shareCheckMs = nowMs + Pool.SPARE_MS;
  }

  private static HeldLease lease(Held held) {
    return HeldLease.newBuilder()
        .setSagaUid(held.key.uid())
        .setFence(held.key.fence())
        .build();
  }

  private WorkerMessage hello() {
    Hello.Builder hello =
        Hello.newBuilder()
            .setWorkerId(pool.workerId)
            .setInstance(pool.instance)
            .setOnlyStream(pool.sessions.size() == 1)
            .setSdk(SDK);
    for (Pool.Entry handler : pool.handlers) {
      hello.addHandlers(
          Subscription.newBuilder()
              .setHandler(handler.name)
              .setMaxInFlight(handler.maxInFlight));
    }
    for (Session other : pool.sessions) { // never more than fit: Pool.take
      other.list(Held.State.RUNNING).forEach(held -> hello.addHeld(lease(held)));
      other.list(Held.State.FINISHED).forEach(held -> hello.addHeld(lease(held)));
      other.list(Held.State.REPORTED).forEach(held -> hello.addHeld(lease(held)));
    }
    // What waits on other streams is held, too; what is too much for one Hello is given back there.
    for (Session other : pool.sessions) {
      for (Held held : List.copyOf(other.list(Held.State.QUEUED))) {
        if (hello.getHeldCount() < LEASES) {
          hello.addHeld(lease(held));
        } else {
          pool.move(held, other, Held.State.RELEASED);
        }
      }
    }
    return WorkerMessage.newBuilder().setHello(hello).build();
  }

  private static TaskReport report(Held held) {
    Outcome outcome = held.outcome;
    TaskReport.Builder report =
        TaskReport.newBuilder()
            .setSagaUid(held.key.uid())
            .setFence(held.key.fence())
            .setOutcome(outcome.kind())
            .setOutput(outcome.output())
            .setOurs(outcome.ours())
            .setErrorCode(outcome.code())
            .setErrorMessage(outcome.message());
    if (!outcome.retryAfter().isZero()) {
      report.setRetryAfter(
          Duration.newBuilder()
              .setSeconds(outcome.retryAfter().getSeconds())
              .setNanos(outcome.retryAfter().getNano()));
    }
    return report.build();
  }

  private WorkerMessage reports() {
    Report.Builder report = Report.newBuilder();
    List<Held> said = new ArrayList<>();
    long bytes = 0;
    for (Held held : session.list(Held.State.FINISHED)) {
      bytes += held.outcome.output().size();
      if (said.size() == REPORTS || (!said.isEmpty() && bytes > REPORT_BYTES)) {
        break;
      }
      report.addReports(report(held));
      said.add(held);
    }
    said.forEach(held -> pool.move(held, session, Held.State.REPORTED));
    return WorkerMessage.newBuilder().setReport(report).build();
  }

  private WorkerMessage release() {
    Release.Builder release = Release.newBuilder();
    for (Held held : List.copyOf(session.list(Held.State.RELEASED))) {
      if (release.getLeasesCount() == LEASES) {
        break;
      }
      release.addLeases(lease(held));
      pool.forget(held);
    }
    return WorkerMessage.newBuilder().setRelease(release).build();
  }

  /** Asks for the leases whose third is over; notes when the next one is. */
  private void collectDue(Held.State state, Extend.Builder due) {
    for (Held held : session.list(state)) {
      if (held.lost || nowMs >= held.attemptUntilMs) {
        continue;
      }
      if (held.extendAtMs <= nowMs && due.getLeasesCount() < LEASES) {
        due.addLeases(lease(held));
        held.extendAtMs = nowMs + Math.max(EXTEND_MIN_MS, held.leaseMs / 3);
        if (held.extendSentMs == Held.NEVER) {
          held.extendSentMs = nowMs;
        }
      }
      session.extendCheckMs = Math.min(session.extendCheckMs, held.extendAtMs);
    }
  }

  private WorkerMessage extend() {
    Extend.Builder due = Extend.newBuilder();
    session.extendCheckMs = Long.MAX_VALUE;
    collectDue(Held.State.RUNNING, due);
    collectDue(Held.State.QUEUED, due);
    return due.getLeasesCount() == 0 ? null : WorkerMessage.newBuilder().setExtend(due).build();
  }

  /**
   * A quarter of the slots is said at once, and so is anything while the server has less than that left:
   * each task of a busy worker would otherwise cost a message of its own.
   */
  private static boolean isWorthAMessage(Session.Credit credit, int maxInFlight) {
    long quarter = maxInFlight / 4;
    long more = credit.offered - credit.granted;
    long left = credit.granted - credit.received;
    return more > 0 && (more >= quarter || left < quarter);
  }

  private WorkerMessage credit(boolean repeat) {
    Credit.Builder credit = Credit.newBuilder();
    boolean full = session.list(Held.State.REPORTED).size() >= UNACKED_MAX;
    boolean paused = pool.draining || session.serverDrains || full;
    for (Pool.Entry handler : pool.handlers) {
      Session.Credit said = session.credit(handler);
      if (!paused) {
        said.offered += pool.offer(session, handler, nowMs);
      }
      boolean worth = !paused && isWorthAMessage(said, handler.maxInFlight);
      if (!repeat && !worth) {
        continue;
      }
      if (!paused) {
        said.granted = said.offered;
      }
      credit.addHandlers(
          Credit.PerHandler.newBuilder().setHandler(handler.name).setTotal(said.granted));
    }
    session.creditDue = full;
    return credit.getHandlersCount() == 0
        ? null
        : WorkerMessage.newBuilder().setCredit(credit).build();
  }
}
