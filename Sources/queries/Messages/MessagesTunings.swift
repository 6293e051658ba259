import Diagnostics

/// Internal limits on the time and memory of messages. They are not promised to users; promised limits are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Interval of the partition rounds, and the delay after a round that could not do everything.
    static let janitorInterval = Duration.seconds(4 * 3600)
    static let janitorRetryInterval = Duration.seconds(60)
    /// Shortest time between two rounds, even if partitions are reported missing.
    static let janitorCallInterval = Duration.seconds(5)
    static let janitorQueryTimeout = Duration.seconds(30)

    /// Longest wait for the lock to drop a partition. The wait blocks everybody who broadcasts.
    static let janitorLockTimeout = Duration.milliseconds(500)

    /// Number of coming days with partitions, in addition to those of yesterday and today.
    static let partitionDaysAhead = 3

    /// Interval at which the archive follows the log's end while there are no queries.
    static let archiveInterval = Duration.seconds(2)
    /// Pause before the archive reads the log again after the kernel refused to read it.
    static let archiveReadingPause = Duration.milliseconds(100)
    /// Longest time for a query of the table.
    static let replayStatementTimeout = Duration.seconds(2)

    static func checkMessages() {
        precondition(
            janitorInterval < .seconds(partitionDaysAhead * 86_400), "a day's partition must be made before the day")
    }
}
