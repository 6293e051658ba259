/// Clock by which retention computes the age of log entries. It follows the wall clock, but at most twice as fast as
/// monotonic time.
///
/// A wall clock may jump forward, because of an empty battery, a faulty time server or a mistake. With the wall clock
/// alone, a jump of three days would delete the whole log immediately. After a correct jump, or after the hub was
/// stopped for long, the log is kept longer for a while. After a false jump, an operator has time to notice it.
struct RetentionClock {
    private var reached: Int64
    private var lastMonotonic: UInt64

    /// Creates the clock.
    ///
    /// - Parameter known: a time that has certainly passed, such as that of the log's newest entry. It is ignored if it
    ///   is later than `wall`.
    init(known: Int64?, wall: Int64, monotonic: UInt64) {
        reached = min(known ?? wall, wall)
        lastMonotonic = monotonic
    }

    /// Returns the current time of this clock, in microseconds since 1970.
    mutating func now(wall: Int64, monotonic: UInt64) -> Int64 {
        let passed = Int64(clamping: (monotonic - min(lastMonotonic, monotonic)) / 1000)
        lastMonotonic = max(lastMonotonic, monotonic)
        // If the wall clock was set back, it is followed immediately, because that deletes nothing.
        reached = min(wall, reached.addingReportingOverflow(2 * passed).partialValue)
        return reached
    }

    /// Returns by how much the wall clock is ahead of this clock.
    func lag(wall: Int64) -> Duration { .microseconds(max(0, wall - reached)) }
}
