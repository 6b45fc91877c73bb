package dev.sagad.worker;

import com.google.protobuf.MessageLite;

/**
 * A {@link Handler} whose request and output are messages of your protobuf classes.
 *
 * @param <I> the request
 * @param <O> the output
 */
@FunctionalInterface
public interface TypedHandler<I extends MessageLite, O extends MessageLite> {
  /**
   * Runs one task.
   *
   * @param task what is asked
   * @param request {@link Task#request()}, decoded
   * @return the output, null for none: it took effect
   * @throws OutcomeException anything else that is certain
   * @throws Exception it may have happened, unless the {@link Classifier} can tell
   */
  O handle(Task task, I request) throws Exception;
}
