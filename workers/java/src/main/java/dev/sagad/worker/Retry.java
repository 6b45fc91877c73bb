package dev.sagad.worker;

import java.time.Duration;

/** This attempt certainly had no effect: nothing was sent, or the other side said so. */
public final class Retry extends OutcomeException {

  private static final long serialVersionUID = 1;

  /**
   * Try again, when the back-off of the definition says.
   *
   * @param code 1-128 bytes without control characters
   * @param message for people; cut after 1,024 bytes; may be null
   */
  public Retry(String code, String message) {
    this(code, message, Duration.ZERO);
  }

  /**
   * Try again, but not before.
   *
   * @param code 1-128 bytes without control characters
   * @param message for people; cut after 1,024 bytes; may be null
   * @param after at most 24 hours from now
   */
  public Retry(String code, String message, Duration after) {
    super(Outcome.retry(code, message, after));
  }
}
