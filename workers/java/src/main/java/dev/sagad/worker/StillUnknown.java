package dev.sagad.worker;

/** A probe: it could not be found out now. */
public final class StillUnknown extends OutcomeException {

  private static final long serialVersionUID = 1;

  /**
   * Ask again later.
   *
   * @param code 1-128 bytes without control characters
   * @param message for people; cut after 1,024 bytes; may be null
   */
  public StillUnknown(String code, String message) {
    super(Outcome.failure(dev.sagad.v1.Outcome.OUTCOME_STILL_UNKNOWN, code, message));
  }
}
