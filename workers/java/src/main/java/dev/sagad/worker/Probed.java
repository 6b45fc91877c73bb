package dev.sagad.worker;

import java.time.Instant;

/**
 * What a probe asks about: the last attempt that may have taken effect.
 *
 * @param operation ACTION or COMPENSATION
 * @param tryNumber 0 where that attempt was none of this saga's
 * @param fence the same
 * @param leasedAt when it was granted, by the database's clock; null: not known
 * @param endedAt when it was reported, or found to be lost; null: not known
 */
public record Probed(
    Operation operation, int tryNumber, long fence, Instant leasedAt, Instant endedAt) {}
