package dev.sagad.worker;

import com.google.protobuf.Duration;
import com.google.protobuf.Timestamp;
import dev.sagad.v1.Ack;
import dev.sagad.v1.CancelHint;
import dev.sagad.v1.DrainRequested;
import dev.sagad.v1.Extended;
import dev.sagad.v1.OperationKind;
import dev.sagad.v1.ServerMessage;
import dev.sagad.v1.WorkerMessage;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * One stream of a worker to one address: what was said on it, what to say next ({@link Speech}), and
 * what a message of the server means. A task belongs to the session that speaks for it: the one that it
 * came on, or another one once that has lost its stream. Never does I/O, never starts a thread, reads no
 * clock: time comes from the caller. Every call needs the caller's lock held.
 *
 * <p>Tasks of a stream that died and that no handler has seen are never started. They are missing in the
 * next Hello to that address, which tells the server; if the worker has other streams they are also
 * given back on one of those, for the node that takes over.
 */
final class Session {

  static final int SILENCE_MS = 35_000; // without anything from the server the stream is dead
  static final int WELCOME_MS = 10_000; // the same before Welcome
  static final int BACKOFF_MIN_MS = 100;
  static final int BACKOFF_MAX_MS = 2000; // the shortest lease, 5 s, is not to run out by it
  static final int STEADY_MS = 5000; // a stream that lived so long ends a row of failures
  static final int LINGER_MS = 250; // drained, but a task may be on its way to us
  private static final long YEAR_S = 366L * 24 * 3600;
  private static final long TIMESTAMP_MAX_S = 253_402_300_799L; // the end of year 9999
  private static final int UID_SIZE = 16;

  enum Phase {
    OFFLINE,
    /** Hello is to be sent, or Welcome has not come. */
    OPENING,
    ONLINE
  }

  /** Of a handler, on this stream: totals that only grow. */
  static final class Credit {
    long received; // tasks
    long offered; // that the pool lets it have
    long granted; // that were announced

    long unused() {
      return offered - received;
    }
  }

  /** What the server sent is not to be trusted: the stream ends, and nothing else. */
  static final class Malformed extends Exception {
    private static final long serialVersionUID = 1;

    Malformed(String what) {
      super("the server sent " + what);
    }
  }

  final Pool pool;
  final int number; // in the pool
  Phase phase = Phase.OFFLINE;
  boolean helloSent;
  boolean creditDue;
  boolean drainSent;
  boolean serverDrains; // it asked us to go elsewhere
  long sentMs;
  long drainSentMs;
  long extendCheckMs = Long.MAX_VALUE; // no lease needs extending before
  long shareCheckMs; // slots and surplus are not looked at before
  long reconnectMs = Long.MIN_VALUE; // OFFLINE: when to try again

  private final List<Credit> credits = new ArrayList<>();
  private final List<Set<Held>> lists = new ArrayList<>();
  private long openedMs;
  private long welcomedMs;
  private long heardMs;
  private long serverDrainUntilMs;
  private int failures; // in a row

  /** Adds itself to the pool, after its handlers. */
  Session(Pool pool) {
    this.pool = pool;
    this.number = pool.sessions.size();
    for (int i = 0; i < Held.State.values().length; i++) {
      lists.add(new LinkedHashSet<>());
    }
    resetCredits();
    pool.sessions.add(this);
  }

  Set<Held> list(Held.State state) {
    return lists.get(state.ordinal());
  }

  Credit credit(Pool.Entry handler) {
    return credits.get(handler.index);
  }

  boolean takesWork() {
    return phase == Phase.ONLINE && !serverDrains;
  }

  /** Nothing is to be said of a task any more, and no ack is missing. */
  boolean isSettled() {
    return list(Held.State.FINISHED).isEmpty()
        && list(Held.State.REPORTED).isEmpty()
        && list(Held.State.RELEASED).isEmpty();
  }

  boolean hasSaidDrain(long nowMs) {
    return phase == Phase.OFFLINE || (drainSent && nowMs - drainSentMs >= LINGER_MS);
  }

  private void resetCredits() {
    credits.clear();
    pool.handlers.forEach(handler -> credits.add(new Credit()));
  }

  /* The life of a stream. */

  /** Nobody knows what became of what was asked on another stream. */
  private void extendAll(long nowMs) {
    for (Held held : list(Held.State.RUNNING)) {
      held.extendAtMs = nowMs;
      held.extendSentMs = Held.NEVER;
    }
    extendCheckMs = nowMs;
  }

  private void moveAll(Held.State state, Session to, Held.State toState) {
    for (Held held : List.copyOf(list(state))) {
      pool.move(held, to, toState);
    }
  }

  /** This one has no stream; that one speaks for its tasks from now on. */
  private void handOver(Session to, long nowMs) {
    if (!list(Held.State.RUNNING).isEmpty()) {
      to.extendCheckMs = nowMs;
    }
    extendAll(nowMs);
    moveAll(Held.State.RUNNING, to, Held.State.RUNNING);
    moveAll(Held.State.FINISHED, to, Held.State.FINISHED);
    moveAll(Held.State.RELEASED, to, Held.State.RELEASED);
  }

  /** A stream was opened: Hello is next. */
  void opened(long nowMs) {
    phase = Phase.OPENING;
    helloSent = false;
    drainSent = false;
    serverDrains = false;
    openedMs = nowMs;
    heardMs = nowMs;
    sentMs = nowMs;
    creditDue = true;
    resetCredits();
    extendAll(nowMs);
  }

  private void backOff(boolean wasSteady, long nowMs) {
    if (wasSteady) {
      failures = 0;
    }
    int longest = Math.min(BACKOFF_MAX_MS, (2 * BACKOFF_MIN_MS) << Math.min(failures, 6));
    failures++;
    reconnectMs = nowMs + BACKOFF_MIN_MS + pool.random.nextInt(longest - BACKOFF_MIN_MS + 1);
  }

  /** Hello can leave: there is a connection, and Welcome may take its time from now. */
  void connected(long nowMs) {
    helloSent = true;
    openedMs = nowMs;
  }

  /** It ended, or could not be opened: says in reconnectMs when to try again. */
  void lost(long nowMs) {
    boolean steady = phase == Phase.ONLINE && nowMs - welcomedMs >= STEADY_MS;
    phase = Phase.OFFLINE;
    releaseQueue();
    moveAll(Held.State.REPORTED, this, Held.State.FINISHED);
    Session deputy = pool.deputy(this);
    if (deputy != null) {
      handOver(deputy, nowMs);
    }
    if (pool.sessions.size() == 1) {
      List.copyOf(list(Held.State.RELEASED)).forEach(pool::forget); // its next Hello tells
    }
    backOff(steady, nowMs);
  }

  /** Should this stream be ended: silent for too long, or the server goes away and nothing holds us? */
  boolean isOver(long nowMs) {
    if (phase == Phase.OFFLINE) {
      return false;
    }
    if ((phase == Phase.OPENING && nowMs - openedMs >= WELCOME_MS)
        || nowMs - heardMs >= SILENCE_MS) {
      return true;
    }
    // The server goes away. What still runs is reported to another one, or to the next one here.
    return serverDrains
        && isSettled()
        && (list(Held.State.RUNNING).isEmpty() || nowMs >= serverDrainUntilMs);
  }

  /** OFFLINE: is a new stream of any use? Not for a drain that another one can carry out. */
  boolean isWanted() {
    return !pool.draining || pool.deputy(this) == null;
  }

  /** What no handler has seen is to be given back. */
  void releaseQueue() {
    moveAll(Held.State.QUEUED, this, Held.State.RELEASED);
  }

  /** The next message to send, taken as sent; null: none now. */
  WorkerMessage next(long nowMs) {
    if (phase == Phase.OFFLINE) {
      return null;
    }
    WorkerMessage message = new Speech(this, nowMs).next();
    if (message != null) {
      sentMs = nowMs;
    }
    return message;
  }

  /* What the server says. */

  /**
   * A message came in at or after `sinceMs`.
   *
   * @throws Malformed garbage, or more tasks than credit: end the stream
   */
  void receive(ServerMessage message, long sinceMs, long nowMs) throws Malformed {
    heardMs = nowMs;
    switch (message.getCommandCase()) {
      case WELCOME -> receiveWelcome(nowMs);
      case TASKS -> {
        for (dev.sagad.v1.Task task : message.getTasks().getTasksList()) {
          receiveTask(task, sinceMs, nowMs);
        }
      }
      case ACKS -> {
        for (Ack ack : message.getAcks().getAcksList()) {
          receiveAck(ack);
        }
      }
      case EXTENDED -> {
        for (Extended.Lease lease : message.getExtended().getLeasesList()) {
          receiveExtended(lease);
        }
      }
      case CANCEL_HINT -> receiveCancel(message.getCancelHint());
      case DRAIN_REQUESTED -> receiveDrain(message.getDrainRequested(), nowMs);
      default -> {
        // Tick, or a word of a newer server: that it speaks is what counts.
      }
    }
  }

  /** It speaks for what those without a stream left behind. */
  private void receiveWelcome(long nowMs) {
    if (phase != Phase.OPENING) {
      return;
    }
    phase = Phase.ONLINE;
    welcomedMs = nowMs;
    pool.connects++;
    for (Session other : pool.sessions) {
      if (other.phase != Phase.ONLINE) {
        other.handOver(this, nowMs);
      }
    }
  }

  /** -1: negative or out of range. Longer than a year counts as a year. */
  private static long milliseconds(Duration duration) {
    if (duration.getSeconds() < 0
        || duration.getNanos() < 0
        || duration.getNanos() > 999_999_999) {
      return -1;
    }
    return Math.min(duration.getSeconds(), YEAR_S) * 1000 + duration.getNanos() / 1_000_000;
  }

  private static boolean isTimestamp(Timestamp time) {
    return Math.abs(time.getSeconds()) <= TIMESTAMP_MAX_S;
  }

  private static boolean isOperation(OperationKind kind) {
    return kind == OperationKind.OPERATION_KIND_ACTION
        || kind == OperationKind.OPERATION_KIND_COMPENSATION
        || kind == OperationKind.OPERATION_KIND_PROBE;
  }

  private void receiveTask(dev.sagad.v1.Task task, long sinceMs, long nowMs) throws Malformed {
    long leaseMs = milliseconds(task.getLease());
    long attemptMs = task.hasAttemptRemaining() ? milliseconds(task.getAttemptRemaining()) : -1;
    if (task.getSagaUid().size() != UID_SIZE
        || task.getFence() <= 0
        || leaseMs <= 0
        || attemptMs < 0
        || !isOperation(task.getOperation())
        || !task.hasSagaStartTime()
        || !isTimestamp(task.getSagaStartTime())
        || !isTimestamp(task.getSendBefore())) {
      throw new Malformed("a malformed task");
    }
    Pool.Entry handler = pool.handler(task.getHandler());
    if (handler == null) {
      throw new Malformed("a task of a handler that is not ours");
    }
    Credit credit = credit(handler);
    if (credit.received >= credit.granted) {
      throw new Malformed("more tasks of " + handler.name + " than credit");
    }
    credit.received++;
    creditDue = true; // what was kept back may be worth saying now
    Held.Key key = new Held.Key(task.getSagaUid(), task.getFence());
    if (pool.find(key) != null) {
      return; // we have it: nothing to do twice
    }
    Held.Grant grant = new Held.Grant(sinceMs, leaseMs, attemptMs);
    Held held = new Held(key, handler, task, grant, nowMs);
    extendCheckMs = Math.min(extendCheckMs, held.extendAtMs);
    boolean leaving = pool.draining || serverDrains;
    pool.add(held, this, leaving ? Held.State.RELEASED : Held.State.QUEUED);
  }

  private void receiveAck(Ack ack) throws Malformed {
    if (ack.getSagaUid().size() != UID_SIZE) {
      throw new Malformed("a malformed ack");
    }
    Held held = pool.find(new Held.Key(ack.getSagaUid(), ack.getFence()));
    if (held == null
        || (held.state != Held.State.REPORTED && held.state != Held.State.FINISHED)) {
      return; // acknowledged before
    }
    if (!ack.getProblem().isEmpty()) {
      Log.badOutput(held, ack.getProblem());
    }
    switch (ack.getResult()) {
      case RESULT_ACCEPTED -> pool.reportsAccepted++;
      case RESULT_DUPLICATE -> pool.reportsDuplicate++;
      case RESULT_STALE -> pool.reportsStale++;
      default -> throw new Malformed("an ack without a result");
    }
    pool.forget(held);
  }

  private void receiveExtended(Extended.Lease extended) throws Malformed {
    long leaseMs = milliseconds(extended.getLease());
    if (extended.getSagaUid().size() != UID_SIZE || leaseMs < 0) {
      throw new Malformed("a malformed extension");
    }
    Held held = pool.find(new Held.Key(extended.getSagaUid(), extended.getFence()));
    if (held == null || (held.state != Held.State.QUEUED && held.state != Held.State.RUNNING)) {
      return;
    }
    if (leaseMs == 0) {
      pool.leasesLost++;
      held.lost = true;
      pool.stopsChanged();
      if (held.state == Held.State.QUEUED) {
        pool.forget(held);
      }
    } else if (held.extendSentMs != Held.NEVER) {
      // Counted from when we asked: the server cannot have read it before.
      held.confirmedMs = held.extendSentMs;
      held.leaseMs = leaseMs;
      held.extendSentMs = Held.NEVER;
    }
  }

  private void receiveCancel(CancelHint hint) throws Malformed {
    if (hint.getSagaUid().size() != UID_SIZE) {
      throw new Malformed("a malformed cancel hint");
    }
    Held held = pool.find(new Held.Key(hint.getSagaUid(), hint.getFence()));
    if (held == null) {
      return;
    }
    held.cancelled = true;
    pool.stopsChanged();
    if (held.state == Held.State.QUEUED) {
      pool.move(held, held.session, Held.State.RELEASED);
    }
  }

  private void receiveDrain(DrainRequested drain, long nowMs) {
    if (serverDrains) {
      return;
    }
    serverDrains = true;
    serverDrainUntilMs = nowMs + Math.max(0, milliseconds(drain.getGrace())) / 2;
    releaseQueue();
  }
}
