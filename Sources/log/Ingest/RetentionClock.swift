/// Clock that decides the age of log entries: the wall clock, but slowed down while it runs ahead of monotonic time.
///
/// A wall clock may jump (a wrong battery, a faulty time server, a mistake). With the wall clock alone, a jump of three
/// days would delete the whole log at once. So this clock runs at most twice as fast as the monotonic one. After a
/// correct jump, or after the hub was down, the log is kept longer for a while. After a false jump, an operator has
/// time to notice.
struct RetentionClock {
    private var reached: Int64
    private var lastMonotonic: UInt64

    /// - Parameter known: a time that is certainly past, such as that of the log's newest entry; ignored if it is later
    ///   than `wall`.
    init(known: Int64?, wall: Int64, monotonic: UInt64) {
        reached = min(known ?? wall, wall)
        lastMonotonic = monotonic
    }

    /// Returns the present time of this clock, in microseconds since 1970.
    mutating func now(wall: Int64, monotonic: UInt64) -> Int64 {
        let passed = Int64(clamping: (monotonic - min(lastMonotonic, monotonic)) / 1000)
        lastMonotonic = max(lastMonotonic, monotonic)
        // A clock that was set back is followed at once, because that deletes nothing.
        reached = min(wall, reached.addingReportingOverflow(2 * passed).partialValue)
        return reached
    }

    /// Returns the time by which the wall clock is ahead of this clock.
    func lag(wall: Int64) -> Duration { .microseconds(max(0, wall - reached)) }
}
