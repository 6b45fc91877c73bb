package dev.sagad.worker;

/** A business no: this attempt had no effect, and another one would not help. */
public final class Rejected extends OutcomeException {

  private static final long serialVersionUID = 1;

  /**
   * Says no.
   *
   * @param code 1-128 bytes without control characters, for programs: INSUFFICIENT_FUNDS
   * @param message for people; cut after 1,024 bytes; may be null
   */
  public Rejected(String code, String message) {
    super(Outcome.failure(dev.sagad.v1.Outcome.OUTCOME_REJECTED, code, message));
  }
}
