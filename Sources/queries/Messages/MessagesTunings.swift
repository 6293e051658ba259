import Diagnostics

/// Internal limits of time and memory for the `Messages` room. They are no part of a promise. The limits that users
/// rely on are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Interval between two rounds of the janitor.
    static let janitorInterval = Duration.seconds(4 * 3600)
    /// Interval until the janitor's next round if a round could not do everything.
    static let janitorRetryInterval = Duration.seconds(60)
    /// Minimum interval between two rounds of the janitor when partitions are reported missing.
    static let janitorCallInterval = Duration.seconds(5)
    static let janitorQueryTimeout = Duration.seconds(30)

    /// Maximum wait for the lock that dropping a partition needs. During the wait no database session can broadcast.
    static let janitorLockTimeout = Duration.milliseconds(500)

    /// Number of days after today for which partitions are created, besides those of yesterday and today.
    static let partitionDaysAhead = 3

    /// Interval at which the archive reads new entries of the log while there are no queries.
    static let archiveInterval = Duration.seconds(2)
    /// Pause before the archive reads the log again after the kernel refused to read.
    static let archiveReadingPause = Duration.milliseconds(100)
    /// Timeout of a query on the messages table.
    static let replayStatementTimeout = Duration.seconds(2)

    static func checkMessages() {
        precondition(
            janitorInterval < .seconds(partitionDaysAhead * 86_400), "a day's partition must be made before the day")
    }
}
