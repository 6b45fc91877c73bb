package dev.sagad.worker;

/**
 * What a handler throws to say what came of its task, where that is not "it took effect, and this is the
 * output". Any other exception is reported as UNKNOWN, unless the worker's {@link Classifier} knows
 * better.
 *
 * <p>Without a stack trace: it is an answer, not a failure of the program.
 */
public abstract sealed class OutcomeException extends RuntimeException
    permits Rejected, Retry, AlreadyDone, Unknown, NotDone, StillUnknown {

  private static final long serialVersionUID = 1;

  private final transient Outcome outcome;

  OutcomeException(Outcome outcome) {
    super(text(outcome), null, false, false);
    this.outcome = outcome;
  }

  /** What is reported. */
  public final Outcome outcome() {
    return outcome;
  }

  private static String text(Outcome outcome) {
    String kind = outcome.kind().name().substring("OUTCOME_".length());
    if (outcome.code().isEmpty()) {
      return kind;
    }
    return kind + " " + outcome.code() + (outcome.message().isEmpty() ? "" : ": " + outcome.message());
  }
}
