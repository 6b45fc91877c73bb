package dev.sagad.worker;

import com.google.protobuf.ByteString;

/**
 * A task from its arrival until its report is acknowledged. Plain data of {@link Pool}, guarded by its
 * caller's lock; what a handler may see of it is {@link Task}, which reads the volatile fields alone.
 */
final class Held {

  enum State {
    /** Received, no handler has seen it. */
    QUEUED,
    /** A handler runs. */
    RUNNING,
    /** Has an outcome that was not sent on this stream. */
    FINISHED,
    /** Sent, not acknowledged. */
    REPORTED,
    /** To be given back: no handler saw it. */
    RELEASED
  }

  /** What names a task. */
  record Key(ByteString uid, long fence) {}

  final Key key;
  final Pool.Entry handler;
  final long cameMs;
  State state;
  Session session; // the one that speaks for it
  Task task; // while a handler runs: what it sees
  dev.sagad.v1.Task message; // null once the handler has returned
  Outcome outcome;

  // The lease. Times are of the worker's clock.
  volatile long confirmedMs; // when it was certainly granted or extended
  volatile long leaseMs;
  final long attemptUntilMs;
  volatile boolean lost;
  volatile boolean cancelled;
  long extendAtMs; // when to ask next
  long extendSentMs = NEVER; // the oldest question without an answer
  Stop told = Stop.NONE; // what the handler was told

  static final long NEVER = Long.MIN_VALUE;

  Held(Key key, Pool.Entry handler, dev.sagad.v1.Task message, Grant grant, long nowMs) {
    this.key = key;
    this.handler = handler;
    this.message = message;
    this.cameMs = nowMs;
    this.confirmedMs = grant.sinceMs;
    this.leaseMs = grant.leaseMs;
    this.attemptUntilMs = grant.sinceMs + grant.attemptMs;
    this.extendAtMs = grant.sinceMs + grant.leaseMs / 3;
  }

  /** For how long a task was granted, counted from `sinceMs`. */
  record Grant(long sinceMs, long leaseMs, long attemptMs) {}

  /** When the handler has to have ended: 80 % of the confirmed lease, or the attempt's end. */
  long leaseEndMs() {
    return Math.min(confirmedMs + leaseMs * Pool.LEASE_MARGIN / 100, attemptUntilMs);
  }

  Stop stop(long nowMs, boolean draining) {
    if (lost || nowMs >= leaseEndMs()) {
      return Stop.LOST;
    }
    if (cancelled) {
      return Stop.CANCELLED;
    }
    return draining ? Stop.DRAINING : Stop.NONE;
  }
}
