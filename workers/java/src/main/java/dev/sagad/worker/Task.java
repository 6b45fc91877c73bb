package dev.sagad.worker;

import com.google.protobuf.ByteString;
import com.google.protobuf.Internal;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.MessageLite;
import com.google.protobuf.Timestamp;
import dev.sagad.v1.OperationKind;
import dev.sagad.v1.StepOutput;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/** One task: what is asked, how long it may take, whether it is still ours. Any thread. */
public final class Task {

  private static final long TEST_LEASE_MS = 30_000;

  private final dev.sagad.v1.Task message;
  private final Held held;
  private final LongSupplier clock;
  private final BooleanSupplier draining;
  private final List<Consumer<Stop>> listeners = new ArrayList<>(); // guarded by this
  private Stop told = Stop.NONE; // guarded by this
  private Thread thread; // that runs a blocking handler; guarded by this

  Task(Held held, LongSupplier clock, BooleanSupplier draining) {
    this.message = held.message;
    this.held = held;
    this.clock = clock;
    this.draining = draining;
  }

  /**
   * For tests of handlers: a task that no orchestrator has sent, leased for 30 s from now. {@code
   * dev.sagad.sagatest.TestTask} builds the message.
   */
  public static Task of(dev.sagad.v1.Task message) {
    LongSupplier clock = () -> System.nanoTime() / 1_000_000;
    Held.Grant grant = new Held.Grant(clock.getAsLong(), TEST_LEASE_MS, TEST_LEASE_MS);
    Held.Key key = new Held.Key(message.getSagaUid(), message.getFence());
    return new Task(new Held(key, null, message, grant, 0), clock, () -> false);
  }

  /* Identity. */

  /** The namespace of the saga. */
  public String namespace() {
    return message.getNamespace();
  }

  /** The name of the saga's definition. */
  public String definition() {
    return message.getDefinition();
  }

  /** The business key. */
  public String sagaId() {
    return message.getSagaId();
  }

  /** Which run of that business key: 1, unless a person started it again. */
  public int run() {
    return message.getRun();
  }

  /** The saga's random identity; not for keys of your own. */
  public UUID uid() {
    var bytes = message.getSagaUid().asReadOnlyByteBuffer();
    return new UUID(bytes.getLong(), bytes.getLong());
  }

  /** The revision of the definition. */
  public int revision() {
    return message.getRevision();
  }

  /** When the saga started, by the database's clock. */
  public Instant startedAt() {
    return instant(message.getSagaStartTime());
  }

  /** The step. */
  public String step() {
    return message.getStep();
  }

  /** Action, compensation or probe. */
  public Operation operation() {
    return operation(message.getOperation());
  }

  /** The handler's name. */
  public String handler() {
    return message.getHandler();
  }

  /** Counts from 1. */
  public int tryNumber() {
    return message.getTry();
  }

  /** The step's effect happens in a guarded transaction. */
  public boolean guarded() {
    return message.getGuarded();
  }

  /** For your own database: a newer one wins. */
  public long fence() {
    return message.getFence();
  }

  /** For the third party: the same on every try. A probe's: that of the attempts it asks about. */
  public String idempotencyKey() {
    return message.getIdempotencyKey();
  }

  /* Payload. */

  /**
   * What the operation is asked: a message of the request type, as the definition puts it together.
   * Where it does not ({@link #requestType()} is ""), the saga's input.
   */
  public ByteString request() {
    return message.getRequestType().isEmpty() ? message.getInput() : message.getRequest();
  }

  /**
   * The same, decoded.
   *
   * @throws InvalidProtocolBufferException it is no such message
   */
  public <T extends MessageLite> T request(Class<T> type) throws InvalidProtocolBufferException {
    return decode(request(), type);
  }

  /** Full name of the request's message; "": bytes. */
  public String requestType() {
    return message.getRequestType();
  }

  /** Full name of the message that the output must be, else it counts as UNKNOWN; "": bytes. */
  public String outputType() {
    return message.getOutputType();
  }

  /** The saga's input; empty where the definition puts a request together. */
  public ByteString input() {
    return message.getInput();
  }

  /**
   * The same, decoded.
   *
   * @throws InvalidProtocolBufferException it is no such message
   */
  public <T extends MessageLite> T input(Class<T> type) throws InvalidProtocolBufferException {
    return decode(input(), type);
  }

  /** What an earlier step answered; empty: it has no output (yet, or ever). */
  public Optional<ByteString> outputOf(String step) {
    return message.getOutputsList().stream()
        .filter(output -> output.getStep().equals(step))
        .map(StepOutput::getOutput)
        .findFirst();
  }

  /**
   * The same, decoded.
   *
   * @throws InvalidProtocolBufferException it is no such message
   */
  public <T extends MessageLite> Optional<T> outputOf(String step, Class<T> type)
      throws InvalidProtocolBufferException {
    Optional<ByteString> bytes = outputOf(step);
    return bytes.isPresent() ? Optional.of(decode(bytes.get(), type)) : Optional.empty();
  }

  /** What is known of the action that a compensation, or a probe of one, is about. */
  public ActionOutcome actionOutcome() {
    boolean about =
        operation() == Operation.COMPENSATION
            || (operation() == Operation.PROBE && message.hasAction());
    if (!about) {
      return ActionOutcome.NONE;
    }
    return message.getAction().getKind() == dev.sagad.v1.ActionOutcome.Kind.KIND_DONE
        ? ActionOutcome.DONE
        : ActionOutcome.MAYBE;
  }

  /** What the action answered; empty unless its outcome is DONE. */
  public ByteString actionOutput() {
    return actionOutcome() == ActionOutcome.DONE
        ? message.getAction().getOutput()
        : ByteString.EMPTY;
  }

  /** A probe: what it asks about. */
  public Optional<Probed> probed() {
    if (operation() != Operation.PROBE) {
      return Optional.empty();
    }
    var attempt = message.getProbedAttempt();
    return Optional.of(
        new Probed(
            operation(message.getProbed()),
            attempt.getTry(),
            attempt.getFence(),
            attempt.hasLeaseTime() ? instant(attempt.getLeaseTime()) : null,
            attempt.hasEndTime() ? instant(attempt.getEndTime()) : null));
  }

  /** The saga's labels. */
  public Map<String, String> labels() {
    return message.getLabelsMap();
  }

  /** W3C trace context; "": none. */
  public String traceparent() {
    return message.getTraceparent();
  }

  /** The message as it came. */
  public dev.sagad.v1.Task message() {
    return message;
  }

  /* How long it may take. */

  /** Until 80 % of the last confirmed lease have passed; zero: over. */
  public Duration leaseLeft() {
    long left = held.leaseEndMs() - clock.getAsLong();
    return Duration.ofMillis(held.lost ? 0 : Math.max(0, left));
  }

  /** Until the attempt time is over; zero: over. Ends before {@link #sendBefore()}. */
  public Duration timeLeft() {
    return Duration.ofMillis(Math.max(0, held.attemptUntilMs - clock.getAsLong()));
  }

  /**
   * Nothing may be sent to the third party from then on (the database's clock), since it could arrive
   * when the idempotency key is forgotten; empty: no such time.
   */
  public Optional<Instant> sendBefore() {
    return message.hasSendBefore()
        ? Optional.of(instant(message.getSendBefore()))
        : Optional.empty();
  }

  /**
   * The last look before a call that cannot be taken back. False once 80 % of the last confirmed lease
   * have passed, the lease was reported lost, or the attempt time is over: then do not make the call;
   * throw {@link Retry} if nothing was sent before, {@link Unknown} otherwise.
   */
  public boolean stillMine() {
    return !leaseLeft().isZero();
  }

  /** For long handlers to look at now and then. */
  public Stop stopRequested() {
    return held.stop(clock.getAsLong(), draining.getAsBoolean());
  }

  /**
   * Calls the listener when the handler should stop, on a thread of the worker's, once for each reason
   * that outranks the one before; at once, on this thread, for what was told already. It must not block.
   * Of {@link Stop#LOST} a blocking handler's thread is told by an interrupt, too.
   */
  public void onStop(Consumer<Stop> listener) {
    Stop now;
    synchronized (this) {
      listeners.add(listener);
      now = told;
    }
    if (now != Stop.NONE) {
      listener.accept(now);
    }
  }

  /* For the worker. */

  /** A blocking handler begins on this thread. */
  synchronized void begin() {
    thread = Thread.currentThread();
    if (told == Stop.LOST) {
      thread.interrupt();
    }
  }

  /** It ended. No interrupt comes from here any more, and none is left for the thread's next task. */
  synchronized void end() {
    thread = null;
    Thread.interrupted();
  }

  /** Interrupts, where that is due, and gives back whom to call. */
  synchronized List<Consumer<Stop>> tell(Stop reason) {
    told = reason;
    if (reason == Stop.LOST && thread != null) {
      thread.interrupt();
    }
    return List.copyOf(listeners);
  }

  private static Operation operation(OperationKind kind) {
    return switch (kind) {
      case OPERATION_KIND_COMPENSATION -> Operation.COMPENSATION;
      case OPERATION_KIND_PROBE -> Operation.PROBE;
      default -> Operation.ACTION; // the session lets no other value in
    };
  }

  private static Instant instant(Timestamp time) {
    return Instant.ofEpochSecond(time.getSeconds(), time.getNanos());
  }

  static <T extends MessageLite> T decode(ByteString bytes, Class<T> type)
      throws InvalidProtocolBufferException {
    return type.cast(Internal.getDefaultInstance(type).getParserForType().parseFrom(bytes));
  }
}
