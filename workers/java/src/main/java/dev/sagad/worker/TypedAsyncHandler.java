package dev.sagad.worker;

import com.google.protobuf.MessageLite;
import java.util.concurrent.CompletionStage;

/**
 * An {@link AsyncHandler} whose request and output are messages of your protobuf classes.
 *
 * @param <I> the request
 * @param <O> the output
 */
@FunctionalInterface
public interface TypedAsyncHandler<I extends MessageLite, O extends MessageLite> {
  /**
   * Begins one task.
   *
   * @param task what is asked
   * @param request {@link Task#request()}, decoded
   * @return completes with the output (null: none), or with an exception as a {@link Handler} throws;
   *     must complete
   * @throws Exception as if the result had completed with it
   */
  CompletionStage<O> handle(Task task, I request) throws Exception;
}
