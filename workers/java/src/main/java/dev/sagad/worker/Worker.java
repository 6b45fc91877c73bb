package dev.sagad.worker;

import com.google.protobuf.MessageLite;
import io.grpc.ManagedChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.LongSupplier;

/**
 * Runs the steps of sagas in this process.
 *
 * <pre>{@code
 * Worker worker = Worker.builder("127.0.0.1:7233").workerId("settle-1").handleSignals().build();
 * worker.handle("account.debit", 16, task -> ByteString.copyFromUtf8(debit(task)));
 * worker.run();
 * }</pre>
 *
 * <p>It keeps one stream to each orchestrator, extends leases by itself however long a handler takes, and
 * keeps each outcome until it is acknowledged, over any number of reconnects and by whichever
 * orchestrator is there. A process that dies says nothing, so that its leases run out, which counts as
 * UNKNOWN. Any thread may call anything.
 */
public final class Worker implements AutoCloseable {

  private final Engine engine;
  private final boolean handleSignals;

  private Worker(Builder builder) {
    this.engine = new Engine(builder);
    this.handleSignals = builder.handleSignals;
  }

  /**
   * Begins to make one.
   *
   * @param addresses "host:port" or "unix:/path", 1 to 16: one, or all nodes of a database, each by an
   *     address of its own
   */
  public static Builder builder(String... addresses) {
    return new Builder(List.of(addresses));
  }

  /**
   * Serves a handler; before the worker runs.
   *
   * @param name 1-128 of [A-Za-z0-9._/-]
   * @param maxInFlight so many of its tasks run at a time, 1 to 10,000
   * @return this
   */
  public Worker handle(String name, int maxInFlight, Handler handler) {
    engine.handle(name, maxInFlight, handler);
    return this;
  }

  /** The same, with messages of your protobuf classes. What is no `type` is not shown to the handler. */
  public <I extends MessageLite, O extends MessageLite> Worker handle(
      String name, int maxInFlight, Class<I> type, TypedHandler<I, O> handler) {
    Handler plain = task -> Runner.encode(handler.handle(task, Runner.decode(task, type)));
    return handle(name, maxInFlight, plain);
  }

  /** Serves a handler that answers later. */
  public Worker handleAsync(String name, int maxInFlight, AsyncHandler handler) {
    engine.handle(name, maxInFlight, handler);
    return this;
  }

  /** The same, with messages of your protobuf classes. What is no `type` is not shown to the handler. */
  public <I extends MessageLite, O extends MessageLite> Worker handleAsync(
      String name, int maxInFlight, Class<I> type, TypedAsyncHandler<I, O> handler) {
    AsyncHandler plain =
        task -> {
          CompletionStage<O> result = handler.handle(task, Runner.decode(task, type));
          return result == null ? null : result.thenApply(Runner::encode);
        };
    return handleAsync(name, maxInFlight, plain);
  }

  /** Begins to serve, and returns. Once for each worker. */
  public void start() {
    engine.start();
  }

  /**
   * Serves until it is drained, also when acknowledgements were still missing after the drain time (the
   * orchestrator finds out by itself). Reconnects for ever. Waits for handlers to end, however long they
   * take. An interrupt of the calling thread drains, too.
   */
  public void run() {
    Signals signals = handleSignals ? Signals.drainOn(this) : null;
    try {
      start();
      awaitDrained();
    } finally {
      if (signals != null) {
        signals.restore();
      }
    }
  }

  /** Take no more tasks, give back those that were not started, finish and report the others, end. */
  public void drain() {
    engine.drain();
  }

  /** Waits until it is drained. An interrupt of the calling thread drains; the flag is set again. */
  public void awaitDrained() {
    engine.awaitDrained();
  }

  /** Drains, and waits for it. */
  @Override
  public void close() {
    drain();
    awaitDrained();
  }

  /** What it has counted. */
  public Stats stats() {
    return engine.stats();
  }

  /** What a worker is made of. */
  public static final class Builder {
    private static final int ADDRESSES_MAX = 16;
    private static final int MESSAGE_MAX = 8 * 1024 * 1024;

    final List<String> addresses;
    String workerId;
    int concurrency = Integer.MAX_VALUE;
    Duration drainTime = Duration.ofSeconds(30);
    boolean handleSignals;
    Classifier classifier = Classifier.standard();
    int outputMax = Runner.OUTPUT_MAX;
    Executor executor;
    LongSupplier clock = () -> TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    Function<String, ManagedChannelBuilder<?>> channels = this::plainChannel;
    private int messageMax = MESSAGE_MAX;

    Builder(List<String> addresses) {
      if (addresses.isEmpty()
          || addresses.size() > ADDRESSES_MAX
          || addresses.stream().anyMatch(String::isBlank)) {
        throw new IllegalArgumentException(
            "1 to " + ADDRESSES_MAX + " addresses, none of them empty: " + addresses);
      }
      this.addresses = addresses;
    }

    /** Stable name, 1-128 bytes, shown to operators. Required. */
    public Builder workerId(String id) {
      int size = id == null ? 0 : id.getBytes(StandardCharsets.UTF_8).length;
      if (size == 0
          || size > Pool.NAME_MAX
          || id.codePoints().anyMatch(Character::isISOControl)) {
        throw new IllegalArgumentException("a worker id is 1 to 128 bytes of text");
      }
      workerId = id;
      return this;
    }

    /**
     * How many handlers run at a time, over all; each has a limit of its own, too. Default: no other
     * limit. What comes beyond it waits here.
     */
    public Builder concurrency(int handlers) {
      concurrency = atLeast(1, handlers, "concurrency");
      return this;
    }

    /** How long a drain waits for acknowledgements after the last handler ended. Default: 30 s. */
    public Builder drainTime(Duration time) {
      if (time.isNegative() || time.compareTo(Duration.ofDays(1)) > 0) {
        throw new IllegalArgumentException("the drain time is 0 to 24 hours, not " + time);
      }
      drainTime = time;
      return this;
    }

    /**
     * SIGTERM and SIGINT drain while {@link Worker#run} runs; a second one ends the process. One such
     * worker in a process. Without it, call {@link Worker#drain} when your program is to stop.
     */
    public Builder handleSignals() {
      handleSignals = true;
      return this;
    }

    /** What is certain of an exception. Default: {@link Classifier#standard()}. */
    public Builder classifier(Classifier errors) {
      classifier = errors;
      return this;
    }

    /** Bytes of a message that may come in. Default: 8 MiB. Not with channels of your own. */
    public Builder messageMax(int bytes) {
      messageMax = atLeast(1, bytes, "the longest message");
      return this;
    }

    /** Bytes of an output: as the orchestrator takes. Default: 256 KiB. */
    public Builder outputMax(int bytes) {
      outputMax = atLeast(0, bytes, "the longest output");
      return this;
    }

    /**
     * What runs blocking handlers, for example on virtual threads; never on the thread that gives them.
     * Default: threads of its own.
     */
    public Builder executor(Executor threads) {
      executor = threads;
      return this;
    }

    /** For tests: milliseconds that never go back. Default: the system's monotonic clock. */
    public Builder clock(LongSupplier milliseconds) {
      clock = milliseconds;
      return this;
    }

    /** Makes the channel to an address, for TLS and credentials. Default: plain text. */
    public Builder channels(Function<String, ManagedChannelBuilder<?>> maker) {
      channels = maker;
      return this;
    }

    /** Makes it; {@link Worker#handle} and {@link Worker#run} come next. */
    public Worker build() {
      if (workerId == null) {
        throw new IllegalArgumentException("a worker needs a worker id");
      }
      return new Worker(this);
    }

    private static int atLeast(int least, int value, String what) {
      if (value < least) {
        throw new IllegalArgumentException(what + " is at least " + least + ", not " + value);
      }
      return value;
    }

    private ManagedChannelBuilder<?> plainChannel(String address) {
      return NettyChannelBuilder.forTarget(address)
          .usePlaintext()
          .disableRetry()
          .disableServiceConfigLookUp()
          .proxyDetector(target -> null)
          .keepAliveTime(10, TimeUnit.SECONDS)
          .keepAliveTimeout(10, TimeUnit.SECONDS)
          .maxInboundMessageSize(messageMax);
    }
  }

  /** SIGTERM and SIGINT; not a shutdown hook: other hooks would close what handlers still use. */
  private static final class Signals {
    private static final List<String> NAMES = List.of("TERM", "INT");
    private final List<sun.misc.SignalHandler> before = new ArrayList<>();

    static Signals drainOn(Worker worker) {
      Signals signals = new Signals();
      for (String name : NAMES) {
        sun.misc.Signal signal = new sun.misc.Signal(name);
        signals.before.add(
            sun.misc.Signal.handle(
                signal,
                first -> {
                  sun.misc.Signal.handle(signal, sun.misc.SignalHandler.SIG_DFL);
                  worker.drain();
                }));
      }
      return signals;
    }

    void restore() {
      for (int i = 0; i < NAMES.size(); i++) {
        sun.misc.Signal.handle(new sun.misc.Signal(NAMES.get(i)), before.get(i));
      }
    }
  }
}
