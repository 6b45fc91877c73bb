package dev.sagad.worker;

/** It may have happened: a time-out after sending, a broken connection. Of a probe as {@link StillUnknown}. */
public final class Unknown extends OutcomeException {

  private static final long serialVersionUID = 1;

  /**
   * Nobody here knows.
   *
   * @param code 1-128 bytes without control characters
   * @param message for people; cut after 1,024 bytes; may be null
   */
  public Unknown(String code, String message) {
    super(Outcome.failure(dev.sagad.v1.Outcome.OUTCOME_UNKNOWN, code, message));
  }
}
