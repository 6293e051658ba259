import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// How often the partitions of realtime.messages are looked after, and how soon again what could not be done.
    static let janitorInterval = Duration.seconds(4 * 3600)
    static let janitorRetryInterval = Duration.seconds(60)
    /// Between rounds at least, however often a partition is missed.
    static let janitorCallInterval = Duration.seconds(5)
    static let janitorQueryTimeout = Duration.seconds(30)

    /// Whoever waits to drop a partition holds up everybody who broadcasts: not for longer than this.
    static let janitorLockTimeout = Duration.milliseconds(500)

    /// Partitions are made for yesterday and for so many days to come.
    static let partitionDaysAhead = 3

    /// How far behind the log's end the places of messages may be while nobody asks.
    static let archiveInterval = Duration.seconds(2)
    /// Pause before a log is read again that the kernel refused to read.
    static let archiveReadingPause = Duration.milliseconds(100)
    /// What the table's answer may take.
    static let replayStatementTimeout = Duration.seconds(2)

    static func checkMessages() {
        precondition(
            janitorInterval < .seconds(partitionDaysAhead * 86_400), "a day's partition must be made before the day")
    }
}
