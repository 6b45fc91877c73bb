package dev.sagad.worker;

import dev.sagad.v1.ServerMessage;
import dev.sagad.v1.WorkerMessage;
import dev.sagad.v1.WorkerServiceGrpc;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * One gRPC stream on a connection of its own: sends and receives whole messages, says when it ended and
 * why. Knows nothing of what the messages mean. Thread: the worker's I/O thread; gRPC's only put what
 * came in into a queue and wake that one.
 */
final class Stream implements ClientResponseObserver<WorkerMessage, ServerMessage> {

  private final ManagedChannel channel;
  private final Runnable wake;
  private final Queue<ServerMessage> received = new ConcurrentLinkedQueue<>();
  private ClientCallStreamObserver<WorkerMessage> call;
  private volatile String ended; // null: it goes on

  /** Opens it. `wake` is called by any thread, and must not block. */
  Stream(String address, Function<String, ManagedChannelBuilder<?>> channels, Runnable wake) {
    this.wake = wake;
    this.channel = channels.apply(address).directExecutor().build();
    WorkerServiceGrpc.newStub(channel).work(this);
  }

  @Override
  public void beforeStart(ClientCallStreamObserver<WorkerMessage> requests) {
    call = requests;
    call.setOnReadyHandler(wake);
  }

  @Override
  public void onNext(ServerMessage message) {
    received.add(message);
    wake.run();
  }

  @Override
  public void onError(Throwable error) {
    Status status = Status.fromThrowable(error);
    Throwable cause = status.getCause();
    ended = status.getCode() + ": " + status.getDescription()
        + (cause == null ? "" : " (" + cause.getMessage() + ")");
    wake.run();
  }

  @Override
  public void onCompleted() {
    ended = "by the server";
    wake.run();
  }

  /** May one more message be sent, without filling memory? */
  boolean isReady() {
    return ended == null && call.isReady();
  }

  void send(WorkerMessage message) {
    call.onNext(message);
  }

  /** The next message that came in; null: none yet. */
  ServerMessage poll() {
    return received.poll();
  }

  /** Why it is over, once all that came in was taken; null: it goes on. */
  String ended() {
    String why = ended; // before the look at the queue: nothing comes after it
    return received.isEmpty() ? why : null;
  }

  boolean isEnded() {
    return ended != null;
  }

  /** Ends it at once. */
  void abort() {
    channel.shutdownNow();
  }

  /** Ends it in order, if the server answers by the time that {@link #abort} is called. */
  void halfClose() {
    if (ended == null) {
      call.onCompleted();
    }
    channel.shutdown();
  }

  /** After {@link #halfClose}. */
  boolean awaitEnd(long milliseconds) throws InterruptedException {
    return channel.awaitTermination(milliseconds, TimeUnit.MILLISECONDS);
  }
}
