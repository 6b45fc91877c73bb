package dev.sagad.example;

import com.google.protobuf.MessageLite;
import dev.sagad.worker.TypedHandler;
import dev.sagad.worker.Worker;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** What the workers of both stories have in common: arguments, and serving until a signal. */
final class WorkerProgram {

  private final String name;
  private final Map<String, String> options;
  private final Set<String> only; // rpcs that were asked for and not met yet; null: all are
  private final Worker worker;

  /** Takes "--sagad", "--id", the options of its own, and perhaps "--only"; else it ends here. */
  WorkerProgram(String name, String[] args, String... own) {
    this.name = name;
    options = parse(args, own);
    only = options.containsKey("--only") ? names(options.get("--only")) : null;
    worker =
        Worker.builder(get("--sagad").split(","))
            .workerId(get("--id"))
            .drainTime(Duration.ofSeconds(5))
            .handleSignals()
            .build();
  }

  private Map<String, String> parse(String[] args, String[] own) {
    Set<String> required = names("--sagad,--id");
    required.addAll(List.of(own));
    Map<String, String> found = new HashMap<>();
    boolean good = args.length % 2 == 0;
    for (int i = 0; good && i < args.length; i += 2) {
      good = required.contains(args[i]) || args[i].equals("--only");
      good &= found.put(args[i], args[i + 1]) == null;
    }
    if (!good || !found.keySet().containsAll(required)) {
      throw end("usage: " + String.join(" VALUE ", required) + " VALUE [--only RPC,...]");
    }
    return found;
  }

  private static Set<String> names(String list) {
    return new TreeSet<>(Arrays.asList(list.split(",")));
  }

  String get(String option) {
    return options.get(option);
  }

  /** Ends the program; thrown, so that the compiler knows it, too. */
  RuntimeException end(String why) {
    System.err.println(name + ": " + why);
    System.exit(2);
    return new IllegalStateException(why);
  }

  /** Serves one handler of many, unless "--only" names others. */
  <I extends MessageLite, O extends MessageLite> void handle(
      String handler, int maxInFlight, Class<I> type, TypedHandler<I, O> effect) {
    String rpc = handler.substring(handler.lastIndexOf('.') + 1);
    if (only == null || only.remove(rpc)) {
      worker.handle(handler, maxInFlight, type, effect);
    }
  }

  /** Serves until SIGTERM or SIGINT, and ends the program. */
  void serve() {
    if (only != null && !only.isEmpty()) {
      throw end("--only: there is no handler " + String.join(", ", only));
    }
    System.out.println(name + ": serving as " + get("--id"));
    worker.run();
    System.exit(0); // clients may have threads of their own
  }
}
