package dev.sagad.worker;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.random.RandomGenerator;
import java.util.regex.Pattern;

/**
 * What the streams of a worker share: handlers and their slots, the tasks that the process holds,
 * reports without an ack, the wish to drain. Never does I/O, never starts a thread, reads no clock: time
 * comes from the caller. Every call needs the caller's lock held.
 *
 * <p>Slots. While a handler has had a free slot for {@link #SPARE_MS}, every stream is offered all that
 * are free, so that whichever node has work can send it at once. When all are taken, each slot that
 * becomes free is offered to one stream, the one with the fewest unused offers, in turn: none starves,
 * and an idle one keeps none from the others. So several nodes may use their offers for the same slot.
 * Never more than its maximum of a handler runs; what came beyond that waits for {@link #SURPLUS_MS} and
 * is then given back, not started. With one stream none of this happens.
 */
final class Pool {

  static final int HANDLERS_MAX = 256;
  static final int NAME_MAX = 128; // bytes
  static final int IN_FLIGHT_MAX = 10_000;
  /**
   * Tasks that were started and have no ack, at most: all of them must fit into a Hello, since what that
   * does not list is taken as never started.
   */
  static final int STARTED_MAX = 10_000;

  static final int SPARE_MS = 100;
  static final int SURPLUS_MS = 1000;
  /** Percent of a lease after which its handler has to stop. */
  static final int LEASE_MARGIN = 80;

  private static final Pattern NAME = Pattern.compile("[A-Za-z0-9._/-]{1," + NAME_MAX + "}");

  /** A handler: what runs it is the worker's business. */
  static final class Entry {
    final String name;
    final int index;
    final int maxInFlight;
    final Object runner;
    int inUse; // tasks that take a slot: queued, running, not yet reported
    int running; // of those
    int turn; // the stream that was offered a slot last
    long spareSinceMs = Long.MAX_VALUE; // a slot has been free since; MAX: none is

    Entry(String name, int index, int maxInFlight, Object runner) {
      this.name = name;
      this.index = index;
      this.maxInFlight = maxInFlight;
      this.runner = runner;
    }

    int slotsFree() {
      return Math.max(0, maxInFlight - inUse);
    }
  }

  /** A handler that is to be told why it should stop. */
  record Notice(Held held, Stop reason) {}

  final String workerId;
  final String instance; // random for each process start
  final RandomGenerator random;
  final List<Entry> handlers = new ArrayList<>();
  final List<Session> sessions = new ArrayList<>();
  volatile boolean draining; // read by tasks without the lock
  long tasksStarted;
  long reportsAccepted;
  long reportsDuplicate;
  long reportsStale;
  long leasesLost;
  long connects;

  private final Map<Held.Key, Held> tasks = new HashMap<>();
  private final Map<String, Entry> handlersByName = new HashMap<>();
  private final long drainMs;
  private final int concurrency;
  private long drainUntilMs;
  private long stopCheckMs = Long.MAX_VALUE; // nobody has to be told to stop before
  private int running;
  private int started; // tasks that run or ran and have no ack
  private int takeNext;

  /**
   * Makes one.
   *
   * @param concurrency how many handlers run at a time, over all
   * @param drainMs how long a drain waits for acks after the last handler returned
   */
  Pool(String workerId, int concurrency, long drainMs, RandomGenerator random) {
    this.workerId = workerId;
    this.concurrency = concurrency;
    this.drainMs = drainMs;
    this.random = random;
    this.instance = String.format("%016x%016x", random.nextLong(), random.nextLong());
  }

  void handle(String name, int maxInFlight, Object runner) {
    if (name == null || !NAME.matcher(name).matches()) {
      throw new IllegalArgumentException(
          "a handler's name is 1 to " + NAME_MAX + " of [A-Za-z0-9._/-], not " + name);
    }
    if (maxInFlight < 1 || maxInFlight > IN_FLIGHT_MAX) {
      throw new IllegalArgumentException(
          "handler " + name + ": max in flight is 1 to " + IN_FLIGHT_MAX + ", not " + maxInFlight);
    }
    if (handlersByName.containsKey(name)) {
      throw new IllegalArgumentException("handler " + name + " is there already");
    }
    if (handlers.size() == HANDLERS_MAX) {
      throw new IllegalArgumentException("more than " + HANDLERS_MAX + " handlers");
    }
    Entry entry = new Entry(name, handlers.size(), maxInFlight, runner);
    handlers.add(entry);
    handlersByName.put(name, entry);
  }

  Entry handler(String name) {
    return handlersByName.get(name);
  }

  /* Slots. */

  /** A slot was given free: the next in turn of those with the fewest unused offers may have it. */
  private void slotFreed(Entry handler) {
    if (handler.slotsFree() == 0) {
      return; // of what came beyond the slots
    }
    Session best = null;
    long least = Long.MAX_VALUE;
    for (int i = 1; i <= sessions.size(); i++) {
      Session session = sessions.get((handler.turn + i) % sessions.size());
      long unused = session.credit(handler).unused();
      if (session.takesWork() && unused < least) {
        best = session;
        least = unused;
      }
    }
    if (best != null) {
      best.credit(handler).offered++;
      best.creditDue = true;
      handler.turn = best.number;
    }
  }

  private boolean isAlone(Session session) {
    return sessions.stream().noneMatch(other -> other != session && other.takesWork());
  }

  /** How many tasks of this handler the session may be offered beyond what it was. */
  long offer(Session session, Entry handler, long nowMs) {
    long unused = session.credit(handler).unused();
    long more = handler.slotsFree();
    if (more > 0 && handler.spareSinceMs == Long.MAX_VALUE) {
      handler.spareSinceMs = nowMs;
    }
    boolean spare = more > 0 && nowMs - handler.spareSinceMs >= SPARE_MS;
    return more > unused && (spare || isAlone(session)) ? more - unused : 0;
  }

  /* The table of tasks, and the lists by state. */

  Held find(Held.Key key) {
    return tasks.get(key);
  }

  /** A slot is free again once the report was sent: the next task is then already on its way. */
  private static boolean takesSlot(Held.State state) {
    return state != Held.State.REPORTED && state != Held.State.RELEASED;
  }

  private static boolean wasStarted(Held.State state) {
    return state == Held.State.RUNNING
        || state == Held.State.FINISHED
        || state == Held.State.REPORTED;
  }

  private void count(Held held, int by) {
    started += wasStarted(held.state) ? by : 0;
    running += held.state == Held.State.RUNNING ? by : 0;
    held.handler.running += held.state == Held.State.RUNNING ? by : 0;
    held.handler.inUse += takesSlot(held.state) ? by : 0;
  }

  private void listRemove(Held held) {
    held.session.list(held.state).remove(held);
    count(held, -1);
  }

  private void listAdd(Held held, Session session, Held.State state) {
    held.session = session;
    held.state = state;
    session.list(state).add(held);
    count(held, 1);
    if (held.handler.slotsFree() == 0) {
      held.handler.spareSinceMs = Long.MAX_VALUE;
    }
  }

  void add(Held held, Session session, Held.State state) {
    tasks.put(held.key, held);
    listAdd(held, session, state);
  }

  void move(Held held, Session session, Held.State state) {
    boolean freed = takesSlot(held.state) && !takesSlot(state);
    listRemove(held);
    listAdd(held, session, state);
    if (freed) {
      session.creditDue = true;
      slotFreed(held.handler);
    }
  }

  void forget(Held held) {
    boolean freed = takesSlot(held.state);
    tasks.remove(held.key);
    listRemove(held);
    if (freed) {
      held.session.creditDue = true;
      slotFreed(held.handler);
    }
  }

  /** The one that does for another that has no stream; null: none has. */
  Session deputy(Session session) {
    for (int i = 1; i < sessions.size(); i++) {
      Session other = sessions.get((session.number + i) % sessions.size());
      if (other.takesWork()) {
        return other;
      }
    }
    return null;
  }

  /* The handlers' side. */

  /** The first task of the session that may run now. */
  private Held takeFrom(Session session, long nowMs) {
    List<Held> late = new ArrayList<>();
    Held found = null;
    for (Held held : session.list(Held.State.QUEUED)) {
      if (nowMs >= held.leaseEndMs()) {
        late.add(held); // waited for too long: certainly not started
      } else if (held.handler.running < held.handler.maxInFlight) {
        found = held;
        break;
      }
    }
    late.forEach(held -> move(held, session, Held.State.RELEASED));
    return found;
  }

  /** The next task to run, null if there is none. */
  Held take(long nowMs) {
    for (int i = 0;
        i < sessions.size() && started < STARTED_MAX && running < concurrency;
        i++) {
      Session session = sessions.get((takeNext + i) % sessions.size());
      Held held = session.list(Held.State.QUEUED).isEmpty() ? null : takeFrom(session, nowMs);
      if (held != null) {
        takeNext = session.number + 1;
        move(held, session, Held.State.RUNNING);
        stopCheckMs = Math.min(stopCheckMs, held.leaseEndMs());
        tasksStarted++;
        return held;
      }
    }
    return null;
  }

  /** Its handler ended. */
  void finish(Held held, Outcome outcome, long nowMs) {
    held.outcome = outcome;
    held.message = null;
    if (draining) {
      drainUntilMs = nowMs + drainMs;
    }
    move(held, held.session, Held.State.FINISHED);
  }

  /** A handler may have to be told something: look at once. */
  void stopsChanged() {
    stopCheckMs = Long.MIN_VALUE;
  }

  /** When the next handler has to stop, unless its lease is extended before. */
  long stopCheckMs() {
    return stopCheckMs;
  }

  /** Whom to tell now. Each handler is told each reason once, and no lesser one after a greater. */
  List<Notice> notices(long nowMs) {
    if (nowMs < stopCheckMs) {
      return List.of();
    }
    List<Notice> notices = new ArrayList<>();
    stopCheckMs = Long.MAX_VALUE;
    for (Session session : sessions) {
      for (Held held : session.list(Held.State.RUNNING)) {
        Stop stop = held.stop(nowMs, draining);
        if (stop.compareTo(held.told) > 0) {
          held.told = stop;
          notices.add(new Notice(held, stop));
        }
        if (held.told != Stop.LOST) {
          stopCheckMs = Math.min(stopCheckMs, held.leaseEndMs());
        }
      }
    }
    return notices;
  }

  /** Take no more tasks, give back those that were not started. */
  void drain(long nowMs) {
    if (draining) {
      return;
    }
    draining = true;
    drainUntilMs = nowMs + drainMs;
    stopsChanged();
    sessions.forEach(Session::releaseQueue);
  }

  /** Nothing runs, and every report is acknowledged or was waited for long enough. */
  boolean isDrained(long nowMs) {
    if (!draining) {
      return false;
    }
    boolean settled = true;
    boolean said = true;
    for (Session session : sessions) {
      if (!session.list(Held.State.QUEUED).isEmpty()
          || !session.list(Held.State.RUNNING).isEmpty()) {
        return false;
      }
      settled = settled && session.isSettled();
      said = said && session.hasSaidDrain(nowMs);
    }
    return (settled && said) || nowMs >= drainUntilMs;
  }

  Stats stats() {
    return new Stats(
        tasksStarted, reportsAccepted, reportsDuplicate, reportsStale, leasesLost, connects);
  }
}
