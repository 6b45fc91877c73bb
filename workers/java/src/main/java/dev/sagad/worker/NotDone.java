package dev.sagad.worker;

/** A probe: the other side knows nothing of it. */
public final class NotDone extends OutcomeException {

  private static final long serialVersionUID = 1;

  /** It is not there. One that comes too early does not count, and is asked again. */
  public NotDone() {
    super(Outcome.success(dev.sagad.v1.Outcome.OUTCOME_NOT_DONE, null, false));
  }
}
