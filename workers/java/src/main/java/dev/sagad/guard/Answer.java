package dev.sagad.guard;

/** What the guard says to an operation that asks whether it may happen. */
public enum Answer {
  /** Do it, then {@link Guard#done}, then COMMIT. */
  PROCEED,
  /** The effect is there; the output is what it answered. COMMIT, ALREADY_DONE. */
  DUPLICATE,
  /** A compensation of an action that never ran, and now never will. Done, COMMIT, DONE. */
  EMPTY,
  /** An action after its compensation. ROLLBACK, REJECTED. */
  REFUSED,
  /** A newer holder was here, or the saga is below the floor. ROLLBACK, RETRY. */
  STALE,
  /** MySQL: a worker committed without done. ROLLBACK, UNKNOWN. */
  LEFT_OPEN,
  /** Of {@link Guard#noEffect} alone: it stands that there is no effect. */
  RECORDED
}
