package dev.sagad.worker;

/** Which operation of a step a task is. */
public enum Operation {
  /** The step itself. */
  ACTION,
  /** Takes an action back. */
  COMPENSATION,
  /** Asks what became of an attempt. */
  PROBE
}
