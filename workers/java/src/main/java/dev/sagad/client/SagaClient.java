package dev.sagad.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.MessageLite;
import dev.sagad.v1.CancelSagaRequest;
import dev.sagad.v1.GetSagaRequest;
import dev.sagad.v1.Saga;
import dev.sagad.v1.SagaRef;
import dev.sagad.v1.SagaServiceGrpc;
import dev.sagad.v1.SagaView;
import dev.sagad.v1.StartSagaRequest;
import dev.sagad.v1.StartSagaResponse;
import dev.sagad.v1.WaitSagaRequest;
import dev.sagad.v1.WatchSagaRequest;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Starts sagas and looks at them: thin over the generated stubs. Every call throws {@link SagaException}.
 * Any thread.
 */
public final class SagaClient implements AutoCloseable {

  private static final Duration CALL_TIME = Duration.ofSeconds(30);
  private static final Duration WAIT_MAX = Duration.ofMinutes(5); // of one call

  private final ManagedChannel channel;

  private SagaClient(ManagedChannel channel) {
    this.channel = channel;
  }

  /**
   * Connects, in plain text.
   *
   * @param address "host:port" or "unix:/path"
   */
  public static SagaClient connect(String address) {
    return new SagaClient(
        NettyChannelBuilder.forTarget(address)
            .usePlaintext()
            .proxyDetector(target -> null)
            .build());
  }

  /** Over a channel of yours; {@link #close} shuts it down. */
  public static SagaClient over(ManagedChannel channel) {
    return new SagaClient(channel);
  }

  /** The generated stub, for every other call and every other field; each call may take 30 s. */
  public SagaServiceGrpc.SagaServiceBlockingStub stub() {
    return SagaServiceGrpc.newBlockingStub(channel)
        .withDeadlineAfter(CALL_TIME.toMillis(), TimeUnit.MILLISECONDS);
  }

  /** Names a saga: its latest run, in the namespace "default". */
  public static SagaRef ref(String definition, String sagaId) {
    return SagaRef.newBuilder().setDefinition(definition).setSagaId(sagaId).build();
  }

  /**
   * Starts a saga whose key the definition makes of the input, or finds the one that has this key. Safe
   * to repeat.
   */
  public StartSagaResponse start(String definition, MessageLite input) {
    return start(request(definition, input.toByteString()).build());
  }

  /** Starts a saga by its business key, or finds the one that has this key. Safe to repeat. */
  public StartSagaResponse start(String definition, String sagaId, MessageLite input) {
    return start(definition, sagaId, input.toByteString());
  }

  /** The same, with bytes that nobody looks into. */
  public StartSagaResponse start(String definition, String sagaId, ByteString input) {
    return start(request(definition, input).setSagaId(sagaId).build());
  }

  /** The same, with every field. */
  public StartSagaResponse start(StartSagaRequest request) {
    return call(() -> stub().startSaga(request));
  }

  private static StartSagaRequest.Builder request(String definition, ByteString input) {
    return StartSagaRequest.newBuilder().setDefinition(definition).setInput(input);
  }

  /** The saga as it is, with its steps. */
  public Saga get(SagaRef saga) {
    GetSagaRequest request =
        GetSagaRequest.newBuilder().setSaga(saga).setView(SagaView.SAGA_VIEW_FULL).build();
    return call(() -> stub().getSaga(request));
  }

  /**
   * Waits until the saga is terminal, or until the time is over: with the saga as it is then.
   *
   * @param orParked also until it waits for a person
   */
  public Saga await(SagaRef saga, Duration time, boolean orParked) {
    long end = System.nanoTime() + time.toNanos();
    while (true) {
      long left = Math.max(0, end - System.nanoTime());
      long once = Math.min(left, WAIT_MAX.toNanos());
      WaitSagaRequest request =
          WaitSagaRequest.newBuilder()
              .setSaga(saga)
              .setOrParked(orParked)
              .setView(SagaView.SAGA_VIEW_FULL)
              .setTimeout(
                  com.google.protobuf.Duration.newBuilder()
                      .setSeconds(once / 1_000_000_000)
                      .setNanos((int) (once % 1_000_000_000)))
              .build();
      Saga now =
          call(
              () ->
                  SagaServiceGrpc.newBlockingStub(channel)
                      .withDeadlineAfter(once + CALL_TIME.toNanos(), TimeUnit.NANOSECONDS)
                      .waitSaga(request));
      if (isEnded(now, orParked) || left <= once) {
        return now;
      }
    }
  }

  private static boolean isEnded(Saga saga, boolean orParked) {
    return switch (saga.getState()) {
      case SAGA_STATE_SUCCEEDED, SAGA_STATE_COMPENSATED, SAGA_STATE_ABANDONED -> true;
      case SAGA_STATE_PARKED -> orParked;
      default -> false;
    };
  }

  /** What happens to the saga, as it happens, until it is terminal. To be closed. */
  public SagaWatch watch(WatchSagaRequest request) {
    return new SagaWatch(SagaServiceGrpc.newBlockingStub(channel), request);
  }

  /**
   * Turns a saga back; compensations follow. Idempotent.
   *
   * @param reason journaled, at most 1,024 bytes
   * @param actor who asks, at most 128 bytes
   */
  public Saga cancel(SagaRef saga, String reason, String actor) {
    CancelSagaRequest request =
        CancelSagaRequest.newBuilder().setSaga(saga).setReason(reason).setActor(actor).build();
    return call(() -> stub().cancelSaga(request));
  }

  private static <T> T call(Supplier<T> call) {
    try {
      return call.get();
    } catch (StatusRuntimeException e) {
      throw new SagaException(e);
    }
  }

  /** Ends the connection, at once. */
  @Override
  public void close() {
    channel.shutdownNow();
  }
}
