package dev.sagad.worker;

import com.google.protobuf.ByteString;

/**
 * Runs the tasks of one handler name, on several threads at once. One effect: what it throws speaks of
 * all that it did.
 */
@FunctionalInterface
public interface Handler {
  /**
   * Runs one task.
   *
   * @param task what is asked
   * @return the output, null for none: it took effect
   * @throws OutcomeException anything else that is certain
   * @throws Exception it may have happened, unless the {@link Classifier} can tell
   */
  ByteString handle(Task task) throws Exception;
}
