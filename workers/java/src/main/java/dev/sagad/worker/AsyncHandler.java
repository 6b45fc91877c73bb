package dev.sagad.worker;

import com.google.protobuf.ByteString;
import java.util.concurrent.CompletionStage;

/** A {@link Handler} that answers later: hundreds of tasks in flight on few threads. Must not block. */
@FunctionalInterface
public interface AsyncHandler {
  /**
   * Begins one task.
   *
   * @param task what is asked; {@link Task#onStop} tells when to stop, nothing is cancelled
   * @return completes with the output (null: none), or with an exception as a {@link Handler} throws;
   *     must complete
   * @throws Exception as if the result had completed with it
   */
  CompletionStage<ByteString> handle(Task task) throws Exception;
}
