package dev.sagad.sagatest;

import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import com.google.protobuf.Message;
import com.google.protobuf.Timestamp;
import dev.sagad.v1.ActionOutcome;
import dev.sagad.v1.OperationKind;
import dev.sagad.v1.ProbedAttempt;
import dev.sagad.v1.StepOutput;
import dev.sagad.worker.AsyncHandler;
import dev.sagad.worker.Classifier;
import dev.sagad.worker.Handler;
import dev.sagad.worker.Outcome;
import dev.sagad.worker.Runner;
import dev.sagad.worker.Task;
import java.time.Instant;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A task for a unit test, and what a handler makes of it, without an orchestrator:
 *
 * <pre>{@code
 * Outcome outcome = TestTask.action("account.debit").request(payment).run(bank::debit);
 * }</pre>
 *
 * <p>Each has a fence of its own, higher than those before.
 */
public final class TestTask {

  private static final AtomicLong FENCES = new AtomicLong();
  private static final int LEASE_S = 30;

  private final dev.sagad.v1.Task.Builder task = dev.sagad.v1.Task.newBuilder();

  private TestTask(String handler, OperationKind operation) {
    UUID uid = UUID.randomUUID();
    ByteString bytes =
        ByteString.copyFrom(
            java.nio.ByteBuffer.allocate(16)
                .putLong(uid.getMostSignificantBits())
                .putLong(uid.getLeastSignificantBits())
                .flip());
    task.setSagaUid(bytes)
        .setNamespace("default")
        .setDefinition("test")
        .setRevision(1)
        .setSagaId("test-" + uid)
        .setRun(1)
        .setSagaStartTime(timestamp(Instant.now()))
        .setStep(handler)
        .setOperation(operation)
        .setHandler(handler)
        .setTry(1)
        .setFence(FENCES.incrementAndGet())
        .setIdempotencyKey(uid.toString().replace("-", ""))
        .setLease(Duration.newBuilder().setSeconds(LEASE_S))
        .setAttemptRemaining(Duration.newBuilder().setSeconds(LEASE_S));
  }

  /** An action; its step has the handler's name. */
  public static TestTask action(String handler) {
    return new TestTask(handler, OperationKind.OPERATION_KIND_ACTION);
  }

  /** A compensation of an action that took effect, with this output. */
  public static TestTask compensation(String handler, ByteString actionOutput) {
    TestTask test = new TestTask(handler, OperationKind.OPERATION_KIND_COMPENSATION);
    test.task.setAction(
        ActionOutcome.newBuilder()
            .setKind(ActionOutcome.Kind.KIND_DONE)
            .setOutput(actionOutput));
    return test;
  }

  /** A compensation of an action that may have taken effect. */
  public static TestTask compensationOfMaybe(String handler) {
    TestTask test = new TestTask(handler, OperationKind.OPERATION_KIND_COMPENSATION);
    test.task.setAction(ActionOutcome.newBuilder().setKind(ActionOutcome.Kind.KIND_MAYBE));
    return test;
  }

  /** A probe of an action. */
  public static TestTask probe(String handler) {
    TestTask test = new TestTask(handler, OperationKind.OPERATION_KIND_PROBE);
    test.task
        .setProbed(OperationKind.OPERATION_KIND_ACTION)
        .setProbedAttempt(
            ProbedAttempt.newBuilder().setTry(1).setFence(test.task.getFence()));
    return test;
  }

  /** The request, as the definition would put it together. */
  public TestTask request(Message request) {
    task.setRequest(request.toByteString())
        .setRequestType(request.getDescriptorForType().getFullName());
    return this;
  }

  /** The saga's input, where the definition puts no request together. */
  public TestTask input(ByteString input) {
    task.setInput(input);
    return this;
  }

  /** What an earlier step answered. */
  public TestTask output(String step, ByteString output) {
    task.addOutputs(StepOutput.newBuilder().setStep(step).setOutput(output));
    return this;
  }

  /** The identity; with a step, guarded transactions of several tasks meet. */
  public TestTask saga(String definition, String sagaId, String step) {
    task.setDefinition(definition).setSagaId(sagaId).setStep(step);
    return this;
  }

  /** The message, for every other field. */
  public dev.sagad.v1.Task.Builder message() {
    return task;
  }

  /** As a handler sees it. */
  public Task build() {
    return Task.of(task.build());
  }

  /** Runs a handler here, as a worker would. */
  public Outcome run(Handler handler) {
    return runner().run(handler, build());
  }

  /** Begins a handler here, as a worker would. */
  public CompletableFuture<Outcome> runAsync(AsyncHandler handler) {
    CompletableFuture<Outcome> outcome = new CompletableFuture<>();
    runner().run(handler, build(), outcome::complete);
    return outcome;
  }

  private static Runner runner() {
    return new Runner(Classifier.standard(), Runner.OUTPUT_MAX);
  }

  static Timestamp timestamp(Instant instant) {
    return Timestamp.newBuilder()
        .setSeconds(instant.getEpochSecond())
        .setNanos(instant.getNano() / 1000 * 1000)
        .build();
  }
}
