package dev.sagad.worker;

import com.google.protobuf.ByteString;
import com.google.protobuf.Internal;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.MessageLite;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;

/** Calls handlers, and makes an outcome of what they return or throw. A worker does, and tests may. */
public final class Runner {

  /** Bytes of an output, if nobody says otherwise: what the orchestrator takes. */
  public static final int OUTPUT_MAX = 256 * 1024;

  private final Classifier classifier;
  private final int outputMax;

  /**
   * Makes one.
   *
   * @param classifier knows of which errors nothing was sent
   * @param outputMax bytes
   */
  public Runner(Classifier classifier, int outputMax) {
    this.classifier = classifier;
    this.outputMax = outputMax;
  }

  /** Runs a handler here; interrupts that the task caused do not leave it. */
  public Outcome run(Handler handler, Task task) {
    task.begin();
    Outcome outcome;
    try {
      outcome = ofOutput(handler.handle(task));
    } catch (Throwable error) { // an Error, too: nobody else would report the task
      outcome = ofError(error);
    } finally {
      task.end();
    }
    return outcome;
  }

  /** Begins a handler here; the outcome comes when its result is complete. */
  public void run(AsyncHandler handler, Task task, Consumer<Outcome> done) {
    CompletionStage<ByteString> result;
    try {
      result = handler.handle(task);
      if (result == null) {
        throw new NullPointerException("the handler returned no CompletionStage");
      }
    } catch (Throwable error) {
      done.accept(ofError(error));
      return;
    }
    result.whenComplete(
        (output, error) -> done.accept(error == null ? ofOutput(output) : ofError(error)));
  }

  /**
   * Of a typed handler: what it does not take is not shown to it, so nothing was done. Bytes that are
   * no such message are so on every try; another type may be that of another version of the worker.
   */
  static <I extends MessageLite> I decode(Task task, Class<I> type) {
    String declared = task.requestType();
    if (Internal.getDefaultInstance(type) instanceof Message ours
        && !declared.isEmpty()
        && !declared.equals(ours.getDescriptorForType().getFullName())) {
      throw new Retry(
          "WRONG_TYPE",
          "the request is "
              + declared
              + ", this worker has "
              + ours.getDescriptorForType().getFullName());
    }
    try {
      return task.request(type);
    } catch (InvalidProtocolBufferException e) {
      throw new Rejected(
          "BAD_REQUEST", "the request is no " + type.getName() + ": " + e.getMessage());
    }
  }

  static ByteString encode(MessageLite output) {
    return output == null ? null : output.toByteString();
  }

  private Outcome ofOutput(ByteString output) {
    return checkSize(Outcome.success(dev.sagad.v1.Outcome.OUTCOME_DONE, output, false));
  }

  /** It took effect, but its answer is lost. */
  private Outcome checkSize(Outcome outcome) {
    int size = outcome.output().size();
    return size <= outputMax
        ? outcome
        : Outcome.failure(
            dev.sagad.v1.Outcome.OUTCOME_UNKNOWN,
            "OUTPUT_TOO_LARGE",
            "the output has " + size + " bytes, and at most " + outputMax + " may be reported");
  }

  private Outcome ofError(Throwable thrown) {
    Throwable error = thrown;
    while ((error instanceof CompletionException || error instanceof ExecutionException)
        && error.getCause() != null) {
      error = error.getCause();
    }
    if (error instanceof OutcomeException said) {
      return checkSize(said.outcome());
    }
    try {
      OutcomeException known = classifier.classify(error);
      if (known != null) {
        return checkSize(known.outcome());
      }
    } catch (Throwable e) { // an Error, too: nobody else would report the task
      error.addSuppressed(e); // logged with it
    }
    Log.handlerFailed(error);
    return Outcome.ofError(error);
  }
}
