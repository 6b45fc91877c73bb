package dev.sagad.worker;

/**
 * What a worker has counted since it was made.
 *
 * @param tasksStarted handlers called
 * @param reportsAccepted reports that are durable
 * @param reportsDuplicate reports that had been accepted before
 * @param reportsStale reports of leases that had been lost
 * @param leasesLost leases that the orchestrator gave up
 * @param connects times that an orchestrator said Welcome
 */
public record Stats(
    long tasksStarted,
    long reportsAccepted,
    long reportsDuplicate,
    long reportsStale,
    long leasesLost,
    long connects) {}
