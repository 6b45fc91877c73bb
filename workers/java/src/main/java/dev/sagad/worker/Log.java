package dev.sagad.worker;

import java.util.HexFormat;

/** What the worker says to the program's log: the platform's logger of this package's name. */
final class Log {

  private static final System.Logger LOGGER = System.getLogger("dev.sagad.worker");

  private Log() {}

  static void badOutput(Held held, String problem) {
    LOGGER.log(
        System.Logger.Level.WARNING,
        "the outcome counts as UNKNOWN: its output is not of the declared type: saga_uid {0} fence {1}"
            + " handler {2}: {3}",
        HexFormat.of().formatHex(held.key.uid().toByteArray()),
        Long.toString(held.key.fence()),
        held.handler.name,
        problem);
  }

  static void streamEnded(String address, String why, long retryMs, boolean unexpected) {
    LOGGER.log(
        unexpected ? System.Logger.Level.WARNING : System.Logger.Level.INFO,
        "stream to {0} ended: {1}; next try in {2} ms",
        address,
        why,
        Long.toString(retryMs));
  }

  static void handlerFailed(Throwable error) {
    LOGGER.log(System.Logger.Level.WARNING, "a handler failed: reported as UNKNOWN", error);
  }

  static void notStarted(Throwable error) {
    LOGGER.log(System.Logger.Level.WARNING, "the executor takes no task: given back", error);
  }

  static void listenerFailed(Throwable error) {
    LOGGER.log(System.Logger.Level.WARNING, "a listener of Task.onStop failed", error);
  }
}
