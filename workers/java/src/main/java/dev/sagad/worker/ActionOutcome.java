package dev.sagad.worker;

/** What is known of the action that a compensation is to take back. */
public enum ActionOutcome {
  /** The task is no compensation, and no probe of one. */
  NONE,
  /** It took effect; {@link Task#actionOutput()} is what it answered. */
  DONE,
  /** It may have; there is no output. */
  MAYBE
}
