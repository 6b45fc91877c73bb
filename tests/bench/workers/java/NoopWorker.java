import dev.sagad.worker.Worker;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * A worker on the Java SDK whose handler does nothing but say DONE: a blocking one, or with --async one
 * that answers at once without a thread of its own.
 *
 * <p>NoopWorker --target ADDRESS --handler NAME --concurrency N [--async]
 */
public final class NoopWorker {
  private NoopWorker() {}

  public static void main(String[] arguments) {
    List<String> given = List.of(arguments);
    int concurrency = Integer.parseInt(after(given, "--concurrency"));
    String handler = after(given, "--handler");
    Worker worker =
        Worker.builder(after(given, "--target"))
            .workerId("noop-java")
            .concurrency(concurrency)
            .handleSignals()
            .build();
    if (given.contains("--async")) {
      worker.handleAsync(handler, concurrency, task -> CompletableFuture.completedFuture(null));
    } else {
      worker.handle(handler, concurrency, task -> null);
    }
    worker.run();
  }

  private static String after(List<String> given, String name) {
    int at = given.indexOf(name);
    if (at < 0 || at + 1 == given.size()) {
      throw new IllegalArgumentException(name + " is needed, with a value");
    }
    return given.get(at + 1);
  }
}
