package dev.sagad.worker;

import dev.sagad.v1.ServerMessage;
import dev.sagad.v1.WorkerMessage;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * The worker's threads around the {@link Pool}: one for I/O, which alone touches streams and looks at the
 * clock however busy the handlers are; those that run handlers; one that tells them to stop. What they
 * share is the pool, under its lock.
 */
final class Engine {

  private static final int TICK_MS = 100; // at most so long in one wait
  private static final int GAP_MS = 1000; // longer than any wait: the process stood still
  private static final int HOLD_MS = 300; // so long after a gap gRPC may still read what lay there
  private static final int CLOSE_LINGER_MS = 1000;
  private static final int ASYNC_THREADS = 4; // that begin async handlers

  /** To one address. Touched by the I/O thread alone. */
  private static final class Link {
    final String address;
    final Session session;
    Stream stream; // null: none

    Link(String address, Session session) {
      this.address = address;
      this.session = session;
    }
  }

  /** Half closed: cut off then, if the server does not end it before. */
  private record Closing(Stream stream, long untilMs) {}

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition work = lock.newCondition(); // the I/O thread may have something to do
  private final AtomicBoolean nudged = new AtomicBoolean();
  private final Pool pool; // guarded by lock
  private final List<Link> links = new ArrayList<>();
  private final List<Closing> closing = new ArrayList<>(); // of the I/O thread
  private final Worker.Builder options;
  private final LongSupplier clock;
  private final Runner runner;
  private final CountDownLatch ended = new CountDownLatch(1);
  private ExecutorService blockingThreads;
  private ExecutorService asyncThreads;
  private ExecutorService stopThread;
  private boolean isStarted; // guarded by lock
  private long lookedMs; // at the clock, last; of the I/O thread
  private long sinceMs; // what comes in now was certainly sent after that
  private long holdUntilMs = Long.MIN_VALUE; // sinceMs stays as it is

  Engine(Worker.Builder options) {
    this.options = options;
    this.clock = options.clock;
    this.runner = new Runner(options.classifier, options.outputMax);
    this.pool =
        new Pool(
            options.workerId,
            options.concurrency,
            options.drainTime.toMillis(),
            new SplittableRandom(new SecureRandom().nextLong()));
  }

  void handle(String name, int maxInFlight, Object handler) {
    lock.lock();
    try {
      if (isStarted) {
        throw new IllegalStateException("the worker runs already");
      }
      if (handler == null) {
        throw new IllegalArgumentException("handler " + name + ": no function");
      }
      pool.handle(name, maxInFlight, handler);
    } finally {
      lock.unlock();
    }
  }

  void start() {
    lock.lock();
    try {
      if (isStarted) {
        throw new IllegalStateException("a worker runs once");
      }
      if (pool.handlers.isEmpty()) {
        throw new IllegalStateException("no handler was given");
      }
      isStarted = true;
      for (String address : options.addresses) {
        links.add(new Link(address, new Session(pool)));
      }
    } finally {
      lock.unlock();
    }
    blockingThreads = Executors.newCachedThreadPool(threads("sagad-handler"));
    asyncThreads = Executors.newFixedThreadPool(ASYNC_THREADS, threads("sagad-async"));
    stopThread = Executors.newSingleThreadExecutor(threads("sagad-stop"));
    threads("sagad-io").newThread(this::runIo).start();
  }

  /** Not daemons: a program whose main has returned goes on serving. */
  private static ThreadFactory threads(String name) {
    AtomicInteger count = new AtomicInteger();
    return task -> new Thread(task, name + "-" + count.incrementAndGet());
  }

  void drain() {
    lock.lock();
    try {
      if (!isStarted) {
        isStarted = true; // and never will be
        ended.countDown();
      }
      pool.drain(clock.getAsLong());
    } finally {
      lock.unlock();
    }
    wake();
  }

  void awaitDrained() {
    boolean interrupted = false;
    while (true) {
      try {
        ended.await();
        break;
      } catch (InterruptedException e) {
        interrupted = true;
        drain();
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  Stats stats() {
    lock.lock();
    try {
      return pool.stats();
    } finally {
      lock.unlock();
    }
  }

  /** The I/O thread is to look at everything. Any thread. */
  private void wake() {
    if (nudged.compareAndSet(false, true)) {
      lock.lock();
      try {
        work.signal();
      } finally {
        lock.unlock();
      }
    }
  }

  /* Handlers. */

  /** Starts what may run. With the lock held. */
  private void startTasks(long nowMs) {
    for (Held held = pool.take(nowMs); held != null; held = pool.take(nowMs)) {
      Task task = new Task(held, clock, () -> pool.draining);
      held.task = task;
      Held mine = held;
      if (held.handler.runner instanceof AsyncHandler handler) {
        asyncThreads.execute(() -> runner.run(handler, task, outcome -> finish(mine, outcome)));
        continue;
      }
      Handler handler = (Handler) held.handler.runner;
      Executor threads = options.executor != null ? options.executor : blockingThreads;
      try {
        threads.execute(() -> finish(mine, runner.run(handler, task)));
      } catch (RuntimeException e) { // the user's executor has no room, or was shut down
        Log.notStarted(e);
        pool.move(mine, mine.session, Held.State.RELEASED);
        return; // the next one may wait for the next look
      }
    }
  }

  private void finish(Held held, Outcome outcome) {
    lock.lock();
    try {
      long nowMs = clock.getAsLong();
      pool.finish(held, outcome, nowMs);
      startTasks(nowMs);
    } finally {
      lock.unlock();
    }
    wake();
  }

  /** With the lock held. */
  private void tellStops(long nowMs) {
    for (Pool.Notice notice : pool.notices(nowMs)) {
      for (var listener : notice.held().task.tell(notice.reason())) {
        stopThread.execute(
            () -> {
              try {
                listener.accept(notice.reason());
              } catch (RuntimeException e) {
                Log.listenerFailed(e);
              }
            });
      }
    }
  }

  /* The I/O thread. */

  private void runIo() {
    lock.lock();
    try {
      lookedMs = clock.getAsLong();
      while (!pool.isDrained(clock.getAsLong())) {
        long nowMs = look();
        nudged.set(false);
        for (Link link : links) {
          pump(link, nowMs);
        }
        startTasks(nowMs);
        tellStops(nowMs);
        cutOff(nowMs);
        await();
      }
    } finally {
      lock.unlock();
      end();
    }
  }

  /**
   * What time it is, and since when what comes in now can have been sent: since before the last look. A
   * process that was stopped must not take the moment at which it goes on for the moment at which a task
   * arrived, nor that shortly after, while gRPC still reads what has lain there. It may have been stopped
   * anywhere between two looks, not in the wait alone.
   */
  private long look() {
    long nowMs = clock.getAsLong();
    if (nowMs >= holdUntilMs) {
      sinceMs = lookedMs;
    }
    if (nowMs - lookedMs > GAP_MS) {
      holdUntilMs = nowMs + HOLD_MS;
    }
    lookedMs = nowMs;
    return nowMs;
  }

  private void await() {
    if (nudged.get()) {
      return;
    }
    try {
      long untilStopMs = Math.max(1, pool.stopCheckMs() - clock.getAsLong());
      if (work.await(Math.min(TICK_MS, untilStopMs), TimeUnit.MILLISECONDS)) {
        return;
      }
    } catch (InterruptedException e) {
      pool.drain(clock.getAsLong()); // nobody else than a program that ends has this thread
    }
  }

  private void pump(Link link, long nowMs) {
    Session session = link.session;
    if (link.stream == null) {
      if (nowMs >= session.reconnectMs && session.isWanted()) {
        open(link, nowMs);
      }
      return;
    }
    try {
      for (ServerMessage in = link.stream.poll(); in != null; in = link.stream.poll()) {
        session.receive(in, sinceMs, nowMs);
      }
    } catch (Session.Malformed e) {
      close(link, nowMs, e.getMessage());
      return;
    }
    String why = link.stream.ended();
    if (why != null) {
      close(link, nowMs, why);
    } else if (session.isOver(nowMs)) {
      link.stream.halfClose();
      closing.add(new Closing(link.stream, nowMs + CLOSE_LINGER_MS));
      lose(link, nowMs, "silent for too long, or it goes away");
    } else {
      say(link, nowMs);
    }
  }

  private void say(Link link, long nowMs) {
    while (link.stream.isReady()) {
      WorkerMessage message = link.session.next(nowMs);
      if (message == null) {
        return;
      }
      link.stream.send(message);
    }
  }

  private void open(Link link, long nowMs) {
    try {
      link.stream = new Stream(link.address, options.channels, this::wake);
      link.session.opened(nowMs);
      say(link, nowMs);
    } catch (RuntimeException e) { // an address that no channel can be made of
      link.session.opened(nowMs);
      lose(link, nowMs, e.toString());
    }
  }

  private void close(Link link, long nowMs, String why) {
    link.stream.abort();
    lose(link, nowMs, why);
  }

  private void lose(Link link, long nowMs, String why) {
    Session session = link.session;
    boolean unexpected = session.phase == Session.Phase.ONLINE && !pool.draining;
    link.stream = null;
    session.lost(nowMs);
    Log.streamEnded(link.address, why, session.reconnectMs - nowMs, unexpected);
  }

  private void cutOff(long nowMs) {
    closing.removeIf(
        old -> {
          boolean over = old.stream.isEnded() || nowMs >= old.untilMs;
          if (over) {
            old.stream.abort();
          }
          return over;
        });
  }

  /** Everybody goes home. */
  private void end() {
    for (Link link : links) {
      if (link.stream != null) {
        link.stream.halfClose();
        closing.add(new Closing(link.stream, 0));
      }
    }
    try {
      long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CLOSE_LINGER_MS);
      for (Closing old : closing) {
        old.stream.awaitEnd(TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime()));
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    closing.forEach(old -> old.stream.abort());
    blockingThreads.shutdown();
    asyncThreads.shutdown();
    stopThread.shutdown();
    ended.countDown();
  }
}
