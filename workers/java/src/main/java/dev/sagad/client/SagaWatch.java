package dev.sagad.client;

import dev.sagad.v1.SagaServiceGrpc.SagaServiceBlockingStub;
import dev.sagad.v1.WatchSagaRequest;
import dev.sagad.v1.WatchSagaResponse;
import io.grpc.Context;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;

/**
 * What happens to one saga. {@link #hasNext} waits; false: the saga is terminal, and that was told. Both
 * throw {@link SagaException}; then watch again, with the {@code resume_token} of the last message. One
 * thread at a time, but {@link #close} by any.
 */
public final class SagaWatch implements Iterator<WatchSagaResponse>, AutoCloseable {

  private final Context.CancellableContext context = Context.current().withCancellation();
  private final Iterator<WatchSagaResponse> messages;

  SagaWatch(SagaServiceBlockingStub stub, WatchSagaRequest request) {
    Context before = context.attach();
    try {
      messages = stub.watchSaga(request);
    } finally {
      context.detach(before);
    }
  }

  @Override
  public boolean hasNext() {
    try {
      return messages.hasNext();
    } catch (StatusRuntimeException e) {
      throw new SagaException(e);
    }
  }

  @Override
  public WatchSagaResponse next() {
    try {
      return messages.next();
    } catch (StatusRuntimeException e) {
      throw new SagaException(e);
    }
  }

  /** Ends the stream; whoever waits is told CANCELLED. */
  @Override
  public void close() {
    context.cancel(null);
  }
}
