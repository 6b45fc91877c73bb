package dev.sagad.worker;

/** Why a handler should stop; a later one outranks an earlier one. The report counts in any case. */
public enum Stop {
  /** It need not. */
  NONE,
  /** The worker ends soon: finish if it does not take long. */
  DRAINING,
  /** The saga turned back or was stopped: an early end saves work. */
  CANCELLED,
  /** The task is not ours any more ({@link Task#stillMine()}): a blocking handler is interrupted. */
  LOST
}
