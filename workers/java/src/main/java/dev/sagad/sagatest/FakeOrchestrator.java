package dev.sagad.sagatest;

import com.google.protobuf.ByteString;
import dev.sagad.v1.Ack;
import dev.sagad.v1.Acks;
import dev.sagad.v1.CancelHint;
import dev.sagad.v1.Credit;
import dev.sagad.v1.Extended;
import dev.sagad.v1.HeldLease;
import dev.sagad.v1.ServerMessage;
import dev.sagad.v1.Task;
import dev.sagad.v1.TaskReport;
import dev.sagad.v1.Tasks;
import dev.sagad.v1.Welcome;
import dev.sagad.v1.WorkerMessage;
import dev.sagad.v1.WorkerServiceGrpc;
import dev.sagad.worker.Outcome;
import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * An orchestrator in this process, on a loopback port, for tests of whole workers: hands out tasks and
 * collects what is reported. It keeps nothing, and repeats nothing: for that there is {@code sagad
 * dev}. Any thread.
 *
 * <pre>{@code
 * try (FakeOrchestrator fake = FakeOrchestrator.start();
 *     Worker worker = Worker.builder(fake.address()).workerId("test").build()) {
 *   worker.handle("account.debit", 4, bank::debit).start();
 *   Outcome outcome = fake.send(TestTask.action("account.debit")).get(5, SECONDS);
 * }
 * }</pre>
 */
public final class FakeOrchestrator implements AutoCloseable {

  private static final Duration LEASE = Duration.ofSeconds(30);

  private record Key(ByteString uid, long fence) {}

  private final Server server;
  private final List<Connection> connections = new ArrayList<>(); // guarded by this, as all below
  private final List<Task> waiting = new ArrayList<>();
  private final Map<Key, CompletableFuture<Outcome>> outcomes = new HashMap<>();

  private FakeOrchestrator() throws IOException {
    server =
        NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
            .permitKeepAliveTime(1, TimeUnit.SECONDS)
            .addService(new Service())
            .build()
            .start();
  }

  /** Starts one, on a free port. */
  public static FakeOrchestrator start() throws IOException {
    return new FakeOrchestrator();
  }

  /** For {@code Worker.builder}. */
  public String address() {
    return "127.0.0.1:" + server.getPort();
  }

  /** Hands a task to a worker that serves its handler and has a slot, now or later. */
  public CompletableFuture<Outcome> send(TestTask test) {
    return send(test.message().build());
  }

  /** The same, of a message of your own making. */
  public synchronized CompletableFuture<Outcome> send(Task task) {
    CompletableFuture<Outcome> outcome = new CompletableFuture<>();
    outcomes.put(new Key(task.getSagaUid(), task.getFence()), outcome);
    waiting.add(task);
    handOut();
    return outcome;
  }

  /** Tells every worker that the saga of this task turned back. */
  public synchronized void cancel(Task task) {
    CancelHint hint =
        CancelHint.newBuilder().setSagaUid(task.getSagaUid()).setFence(task.getFence()).build();
    connections.forEach(c -> c.send(ServerMessage.newBuilder().setCancelHint(hint)));
  }

  /** Gives up the lease of this task: its handler is told that it is lost. */
  public synchronized void lose(Task task) {
    Extended.Lease lost =
        Extended.Lease.newBuilder()
            .setSagaUid(task.getSagaUid())
            .setFence(task.getFence())
            .build();
    connections.forEach(
        c -> c.send(ServerMessage.newBuilder().setExtended(Extended.newBuilder().addLeases(lost))));
  }

  /** Cuts every stream; workers come back by themselves. */
  public synchronized void disconnect() {
    List.copyOf(connections).forEach(Connection::end);
    connections.clear();
  }

  /** Stops; what was not reported stays without an outcome. */
  @Override
  public void close() {
    server.shutdownNow();
  }

  private void handOut() {
    for (Iterator<Task> tasks = waiting.iterator(); tasks.hasNext(); ) {
      Task task = tasks.next();
      for (Connection connection : connections) {
        if (connection.take(task.getHandler())) {
          connection.send(ServerMessage.newBuilder().setTasks(Tasks.newBuilder().addTasks(task)));
          tasks.remove();
          break;
        }
      }
    }
  }

  private static Outcome outcome(TaskReport report) {
    var after = report.getRetryAfter();
    return new Outcome(
        report.getOutcome(),
        report.getOutput(),
        report.getOurs(),
        report.getErrorCode(),
        report.getErrorMessage(),
        Duration.ofSeconds(after.getSeconds(), after.getNanos()));
  }

  private void report(Connection connection, List<TaskReport> reports) {
    Acks.Builder acks = Acks.newBuilder();
    List<Runnable> told = new ArrayList<>();
    for (TaskReport report : reports) {
      acks.addAcks(
          Ack.newBuilder()
              .setSagaUid(report.getSagaUid())
              .setFence(report.getFence())
              .setResult(Ack.Result.RESULT_ACCEPTED));
      var waits = outcomes.remove(new Key(report.getSagaUid(), report.getFence()));
      if (waits != null) {
        told.add(() -> waits.completeAsync(() -> outcome(report)));
      }
    }
    connection.send(ServerMessage.newBuilder().setAcks(acks));
    told.forEach(Runnable::run);
  }

  private final class Service extends WorkerServiceGrpc.WorkerServiceImplBase {
    @Override
    public StreamObserver<WorkerMessage> work(StreamObserver<ServerMessage> answers) {
      return new Connection(answers);
    }
  }

  /** One worker's stream; guarded by the orchestrator. */
  private final class Connection implements StreamObserver<WorkerMessage> {
    private final StreamObserver<ServerMessage> answers;
    private final Map<String, Long> credit = new HashMap<>();
    private final Map<String, Long> sent = new HashMap<>();

    Connection(StreamObserver<ServerMessage> answers) {
      this.answers = answers;
    }

    void send(ServerMessage.Builder message) {
      answers.onNext(message.build());
    }

    boolean take(String handler) {
      long before = sent.getOrDefault(handler, 0L);
      if (credit.getOrDefault(handler, 0L) <= before) {
        return false;
      }
      sent.put(handler, before + 1);
      return true;
    }

    void end() {
      answers.onCompleted();
    }

    @Override
    public void onNext(WorkerMessage message) {
      synchronized (FakeOrchestrator.this) {
        switch (message.getCommandCase()) {
          case HELLO -> {
            connections.add(this);
            send(ServerMessage.newBuilder().setWelcome(Welcome.newBuilder().setNode("fake")));
          }
          case CREDIT -> {
            for (Credit.PerHandler one : message.getCredit().getHandlersList()) {
              credit.put(one.getHandler(), one.getTotal());
            }
          }
          case REPORT -> report(this, message.getReport().getReportsList());
          case EXTEND -> {
            Extended.Builder extended = Extended.newBuilder();
            for (HeldLease lease : message.getExtend().getLeasesList()) {
              extended.addLeases(
                  Extended.Lease.newBuilder()
                      .setSagaUid(lease.getSagaUid())
                      .setFence(lease.getFence())
                      .setLease(
                          com.google.protobuf.Duration.newBuilder()
                              .setSeconds(LEASE.toSeconds())));
            }
            send(ServerMessage.newBuilder().setExtended(extended));
          }
          default -> {
            // Release and Drain: the test that sent the task sees that no outcome comes.
          }
        }
        handOut();
      }
    }

    @Override
    public void onError(Throwable error) {
      synchronized (FakeOrchestrator.this) {
        connections.remove(this);
      }
    }

    @Override
    public void onCompleted() {
      synchronized (FakeOrchestrator.this) {
        if (connections.remove(this)) {
          end();
        }
      }
    }
  }
}
