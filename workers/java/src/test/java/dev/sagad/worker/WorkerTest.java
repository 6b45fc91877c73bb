package dev.sagad.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import com.google.protobuf.Int64Value;
import com.google.protobuf.StringValue;
import dev.sagad.sagatest.FakeOrchestrator;
import dev.sagad.sagatest.TestTask;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A whole worker against an orchestrator in this process. */
@Timeout(60)
class WorkerTest {

  private FakeOrchestrator fake;
  private Worker worker;

  @BeforeEach
  void start() throws Exception {
    fake = FakeOrchestrator.start();
    worker = Worker.builder(fake.address()).workerId("test").build();
  }

  @AfterEach
  void stop() {
    worker.close();
    fake.close();
  }

  private static <T> T get(CompletableFuture<T> future) throws Exception {
    return future.get(30, TimeUnit.SECONDS);
  }

  @Test
  void outputsComeBack() throws Exception {
    worker
        .handle("plain", 2, task -> task.request().concat(ByteString.copyFromUtf8("!")))
        .handle("typed", 2, StringValue.class, (task, in) -> Int64Value.of(in.getValue().length()))
        .handleAsync("async", 2, task -> CompletableFuture.completedFuture(task.request()))
        .handleAsync("typed-async", 2, StringValue.class,
            (task, in) -> CompletableFuture.supplyAsync(() -> in))
        .handle("none", 2, task -> null)
        .start();
    ByteString text = ByteString.copyFromUtf8("hello");
    StringValue value = StringValue.of("hello");
    assertEquals("hello!",
        get(fake.send(TestTask.action("plain").input(text))).output().toStringUtf8());
    assertEquals(Int64Value.of(5).toByteString(),
        get(fake.send(TestTask.action("typed").request(value))).output());
    assertEquals(text, get(fake.send(TestTask.action("async").input(text))).output());
    assertEquals(value.toByteString(),
        get(fake.send(TestTask.action("typed-async").request(value))).output());
    assertEquals(dev.sagad.v1.Outcome.OUTCOME_DONE,
        get(fake.send(TestTask.action("none"))).kind());
  }

  @Test
  void whatIsNoMessageIsNotShownToATypedHandler() throws Exception {
    worker.handle("typed", 1, StringValue.class,
        (task, in) -> {
          throw new AssertionError("it was shown");
        }).start();
    ByteString garbage = ByteString.copyFromUtf8("\u00ff");
    Outcome outcome = get(fake.send(TestTask.action("typed").input(garbage)));
    assertEquals(dev.sagad.v1.Outcome.OUTCOME_REJECTED, outcome.kind());
    assertEquals("BAD_REQUEST", outcome.code());
    outcome = get(fake.send(TestTask.action("typed").request(Int64Value.of(5))));
    assertEquals(dev.sagad.v1.Outcome.OUTCOME_RETRY, outcome.kind());
    assertEquals("WRONG_TYPE", outcome.code());
  }

  @Test
  void lostLeaseInterruptsAndTheNextTaskIsNotInterrupted() throws Exception {
    BlockingQueue<Task> started = new LinkedBlockingQueue<>();
    BlockingQueue<Stop> told = new LinkedBlockingQueue<>();
    worker.handle("wait", 1, task -> {
      if (task.request().isEmpty()) {
        return ByteString.copyFromUtf8(Boolean.toString(Thread.currentThread().isInterrupted()));
      }
      task.onStop(told::add);
      started.add(task);
      new CountDownLatch(1).await();
      return null;
    }).start();
    var outcome = fake.send(TestTask.action("wait").input(ByteString.copyFromUtf8("x")));
    Task task = started.take();
    assertTrue(task.stillMine());
    fake.cancel(task.message());
    assertEquals(Stop.CANCELLED, told.take());
    assertFalse(outcome.isDone(), "no interrupt: what it does may be under way");
    fake.lose(task.message());
    assertEquals(Stop.LOST, told.take());
    assertEquals("InterruptedException", get(outcome).code());
    assertEquals(dev.sagad.v1.Outcome.OUTCOME_UNKNOWN, get(outcome).kind());
    assertFalse(task.stillMine());
    assertEquals("false", get(fake.send(TestTask.action("wait"))).output().toStringUtf8());
  }

  @Test
  void outcomeSurvivesAStream() throws Exception {
    BlockingQueue<Task> started = new LinkedBlockingQueue<>();
    CountDownLatch go = new CountDownLatch(1);
    worker.handle("wait", 1, task -> {
      started.add(task);
      go.await();
      return ByteString.copyFromUtf8("kept");
    }).start();
    var outcome = fake.send(TestTask.action("wait"));
    started.take();
    fake.disconnect();
    go.countDown();
    assertEquals("kept", get(outcome).output().toStringUtf8());
  }

  @Test
  void aThousandTasksOnSixtyFourSlots() throws Exception {
    worker.handle("fast", 64, Task::request).start();
    List<CompletableFuture<Outcome>> outcomes = IntStream.range(0, 1000)
        .mapToObj(i -> fake.send(
            TestTask.action("fast").input(ByteString.copyFromUtf8(Integer.toString(i)))))
        .toList();
    for (int i = 0; i < outcomes.size(); i++) {
      assertEquals(Integer.toString(i), get(outcomes.get(i)).output().toStringUtf8());
    }
    assertEquals(1000, worker.stats().tasksStarted());
  }

  @Test
  void tooLargeAnOutputIsUnknown() throws Exception {
    worker.handle("big", 1, task -> ByteString.copyFrom(new byte[Runner.OUTPUT_MAX + 1])).start();
    Outcome outcome = get(fake.send(TestTask.action("big")));
    assertEquals(dev.sagad.v1.Outcome.OUTCOME_UNKNOWN, outcome.kind());
    assertEquals("OUTPUT_TOO_LARGE", outcome.code());
  }

  @Test
  void drainFinishesWhatRuns() throws Exception {
    BlockingQueue<Task> started = new LinkedBlockingQueue<>();
    CountDownLatch go = new CountDownLatch(1);
    worker.handle("wait", 1, task -> {
      started.add(task);
      go.await();
      return null;
    }).start();
    var outcome = fake.send(TestTask.action("wait"));
    started.take();
    worker.drain();
    go.countDown();
    worker.awaitDrained();
    assertEquals(dev.sagad.v1.Outcome.OUTCOME_DONE, get(outcome).kind());
  }

  @Test
  void wrongUseIsToldClearly() {
    assertThrows(IllegalArgumentException.class, Worker::builder);
    assertThrows(IllegalArgumentException.class, () -> Worker.builder("").workerId("w"));
    assertThrows(IllegalArgumentException.class, () -> Worker.builder("a:1").build());
    assertThrows(IllegalArgumentException.class, () -> Worker.builder("a:1").concurrency(0));
    assertThrows(IllegalStateException.class, worker::start);
    worker.handle("a", 1, task -> null);
    assertThrows(
        IllegalArgumentException.class, () -> worker.handle("a", 1, task -> null));
    worker.start();
    assertThrows(IllegalStateException.class, worker::start);
    assertThrows(IllegalStateException.class, () -> worker.handle("b", 1, task -> null));
  }
}
