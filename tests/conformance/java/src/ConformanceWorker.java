import com.google.protobuf.ByteString;
import com.google.protobuf.StringValue;
import dev.sagad.worker.Stop;
import dev.sagad.worker.Task;
import dev.sagad.worker.Worker;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** The worker program of ../README.md, by the SDK's public interface alone. */
public final class ConformanceWorker {

  private static final AtomicLong CLOCK_OFFSET_MS = new AtomicLong();

  private final Map<String, CompletableFuture<Void>> gates = new ConcurrentHashMap<>();
  private final Map<String, Task> running = new ConcurrentHashMap<>();
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(
          task -> {
            Thread thread = new Thread(task, "timer");
            thread.setDaemon(true);
            return thread;
          });

  private ConformanceWorker() {}

  private static String env(String name) {
    String value = System.getenv(name);
    return value == null ? "" : value;
  }

  private static synchronized void event(Object... pairs) {
    Map<String, Object> event = new LinkedHashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      event.put((String) pairs[i], pairs[i + 1]);
    }
    byte[] line = (Json.write(event) + "\n").getBytes(StandardCharsets.UTF_8);
    System.out.write(line, 0, line.length);
    System.out.flush();
  }

  private static String fence(Task task) {
    return Long.toString(task.fence());
  }

  /* Handlers. */

  private void started(Task task) {
    running.put(fence(task), task);
    event("event", "started", "handler", task.handler(), "fence", fence(task), "try",
        task.tryNumber());
  }

  private void finished(Task task) {
    running.remove(fence(task), task);
    event("event", "finished", "fence", fence(task));
  }

  private CompletableFuture<Void> gate(String fence) {
    return gates.computeIfAbsent(fence, key -> new CompletableFuture<>());
  }

  private static CompletableFuture<Void> stopOf(Task task) {
    CompletableFuture<Void> stopped = new CompletableFuture<>();
    task.onStop(
        (Stop reason) -> {
          event("event", "stop", "fence", fence(task), "reason", reason.name().toLowerCase());
          stopped.complete(null);
        });
    return stopped;
  }

  private static void stillMine(Task task) {
    event("event", "still_mine", "fence", fence(task), "mine", task.stillMine());
  }

  private static Map<String, Object> then(Map<String, Object> script) {
    return script.get("then") == null
        ? Map.of("do", "done", "output", "")
        : Json.object(script.get("then"));
  }

  private static void burn(long ms) {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
    double sum = 0;
    while (System.nanoTime() < until) {
      sum += Math.sqrt(sum + 1);
    }
    if (Double.isNaN(sum)) {
      throw new AssertionError("the sum is used");
    }
  }

  /** What has to come before the next script; null: the script is the last. */
  private CompletableFuture<Void> waitFor(Task task, Map<String, Object> script) {
    switch (Scripts.text(script, "do")) {
      case "sleep":
        CompletableFuture<Void> over = new CompletableFuture<>();
        timer.schedule(
            () -> over.complete(null), Scripts.number(script, "ms"), TimeUnit.MILLISECONDS);
        return over;
      case "wait_stop":
        return stopOf(task);
      case "wait_go":
        return gate(fence(task));
      case "still_mine":
        stillMine(task);
        return CompletableFuture.completedFuture(null);
      case "cpu":
        burn(Scripts.number(script, "ms"));
        return CompletableFuture.completedFuture(null);
      default:
        return null;
    }
  }

  /** On the handler's thread. An interrupt ends no wait: the script says what does. */
  private ByteString blocking(Task task, ByteString request) throws Exception {
    Map<String, Object> script = Scripts.of(request);
    CompletableFuture<Void> wait;
    while ((wait = waitFor(task, script)) != null) {
      boolean over = false;
      while (!over) {
        try {
          wait.get();
          over = true;
        } catch (InterruptedException e) {
          over = false;
        } catch (ExecutionException e) {
          throw new IllegalStateException(e);
        }
      }
      script = then(script);
    }
    return Scripts.act(task, request, script);
  }

  private ByteString handle(Task task) throws Exception {
    started(task);
    try {
      return blocking(task, task.request());
    } finally {
      finished(task);
    }
  }

  private StringValue handleTyped(Task task, StringValue request) throws Exception {
    started(task);
    try {
      ByteString output = blocking(task, ByteString.copyFromUtf8(request.getValue()));
      return StringValue.of(output.toStringUtf8());
    } finally {
      finished(task);
    }
  }

  private CompletableFuture<ByteString> step(Task task, Map<String, Object> script) {
    CompletableFuture<Void> wait = waitFor(task, script);
    if (wait != null) {
      return wait.thenCompose(nothing -> step(task, then(script)));
    }
    try {
      return CompletableFuture.completedFuture(Scripts.act(task, task.request(), script));
    } catch (Exception | AssertionError e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private CompletableFuture<ByteString> handleAsync(Task task) {
    started(task);
    CompletableFuture<ByteString> result;
    try {
      result = step(task, Scripts.of(task.request()));
    } catch (RuntimeException e) {
      result = CompletableFuture.failedFuture(new CompletionException(e));
    }
    return result.whenComplete((output, error) -> finished(task));
  }

  /* The program. */

  private Worker build() {
    Worker.Builder builder =
        Worker.builder(env("SAGA_ADDRESSES").split(","))
            .workerId(env("SAGA_WORKER_ID"))
            .clock(() -> System.nanoTime() / 1_000_000 + CLOCK_OFFSET_MS.get());
    if (!env("SAGA_CONCURRENCY").isEmpty()) {
      builder.concurrency(Integer.parseInt(env("SAGA_CONCURRENCY")));
    }
    if (!env("SAGA_DRAIN_MS").isEmpty()) {
      builder.drainTime(Duration.ofMillis(Long.parseLong(env("SAGA_DRAIN_MS"))));
    }
    if (!env("SAGA_MAX_MESSAGE").isEmpty()) {
      builder.messageMax(Integer.parseInt(env("SAGA_MAX_MESSAGE")));
    }
    if (!env("SAGA_OUTPUT_MAX").isEmpty()) {
      builder.outputMax(Integer.parseInt(env("SAGA_OUTPUT_MAX")));
    }
    if (env("SAGA_SIGNALS").equals("1")) {
      builder.handleSignals();
    }
    Worker worker = builder.build();
    for (String item : env("SAGA_HANDLERS").split(",")) {
      String[] parts = item.split(":");
      int max = Integer.parseInt(parts[1]);
      switch (parts.length > 2 ? parts[2] : "blocking") {
        case "async" -> worker.handleAsync(parts[0], max, this::handleAsync);
        case "typed" -> worker.handle(parts[0], max, StringValue.class, this::handleTyped);
        default -> worker.handle(parts[0], max, this::handle);
      }
    }
    return worker;
  }

  private void command(Worker worker, String line) {
    String[] words = line.split(" ");
    switch (words[0]) {
      case "go" -> gate(words[1]).complete(null);
      case "still_mine" -> {
        Task task = running.get(words[1]);
        if (task != null) {
          stillMine(task);
        }
      }
      case "clock" -> CLOCK_OFFSET_MS.addAndGet(Long.parseLong(words[1].substring(1)));
      case "drain" -> worker.drain();
      case "stats" -> {
        var stats = worker.stats();
        event("event", "stats", "tasks_started", stats.tasksStarted(), "reports_accepted",
            stats.reportsAccepted(), "reports_duplicate", stats.reportsDuplicate(),
            "reports_stale", stats.reportsStale(), "leases_lost", stats.leasesLost(),
            "connects", stats.connects());
      }
      default -> System.err.println("no such command: " + line);
    }
  }

  private void readCommands(Worker worker) {
    try (BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        command(worker, line);
      }
    } catch (IOException e) {
      System.err.println("stdin: " + e);
    }
    Runtime.getRuntime().halt(0);
  }

  public static void main(String[] args) {
    ConformanceWorker program = new ConformanceWorker();
    Worker worker = program.build();
    Thread commands = new Thread(() -> program.readCommands(worker), "commands");
    commands.setDaemon(true);
    commands.start();
    event("event", "ready", "clients", List.of("http", "grpc", "postgresql", "mysql", "dns"));
    int code = 0;
    try {
      worker.run();
    } catch (RuntimeException e) {
      e.printStackTrace();
      code = 1;
    }
    event("event", "ended", "code", code);
    System.exit(code);
  }
}
