package dev.sagad.guard;

import com.google.protobuf.ByteString;
import dev.sagad.worker.AlreadyDone;
import dev.sagad.worker.OutcomeException;
import dev.sagad.worker.Rejected;
import dev.sagad.worker.Retry;
import dev.sagad.worker.Unknown;

/**
 * The guard's answer.
 *
 * @param answer what to do
 * @param output DUPLICATE: what the effect answered; empty otherwise
 */
public record Entered(Answer answer, ByteString output) {

  static Entered of(String word, byte[] output) {
    ByteString bytes = output == null ? ByteString.EMPTY : ByteString.copyFrom(output);
    for (Answer answer : Answer.values()) {
      if (answer.name().equals(word)) {
        return new Entered(answer, bytes);
      }
    }
    throw new Retry(
        "GUARD_VERSION", "the guard gave an answer that this worker does not know: " + word);
  }

  /** What to report where there is no effect to run; null for PROCEED, EMPTY and RECORDED. */
  public OutcomeException outcome() {
    return switch (answer) {
      case DUPLICATE -> new AlreadyDone(output, true);
      case REFUSED -> new Rejected("GUARD_REFUSED", "the action came after its compensation");
      case STALE ->
          new Retry("GUARD_STALE", "a newer holder was here, or the saga is below the floor");
      case LEFT_OPEN ->
          new Unknown(
              "GUARD_LEFT_OPEN", "a worker entered the guard and committed without done");
      case PROCEED, EMPTY, RECORDED -> null;
    };
  }
}
