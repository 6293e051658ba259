/// What time it is, for deciding what is too old: the wall clock, as long as it does not run ahead of the time that passes.
///
/// A wall clock may jump (a wrong battery, a time server gone mad, somebody's slip), and by its word alone a jump of three
/// days would delete the whole log at once. So this clock goes at most twice as fast as the monotonic one: after a true
/// jump, or after the hub was down, the log is kept longer for a while; after a false one somebody has time to see it.
struct RetentionClock {
    private var reached: Int64
    private var lastMonotonic: UInt64

    /// - Parameter known: a time that has certainly been, such as that of the log's newest entry; it is no start if it is
    ///   after `wall`.
    init(known: Int64?, wall: Int64, monotonic: UInt64) {
        reached = min(known ?? wall, wall)
        lastMonotonic = monotonic
    }

    /// Microseconds since 1970.
    mutating func now(wall: Int64, monotonic: UInt64) -> Int64 {
        let passed = Int64(clamping: (monotonic - min(lastMonotonic, monotonic)) / 1000)
        lastMonotonic = max(lastMonotonic, monotonic)
        // A clock that was set back is followed at once: nothing is deleted by that.
        reached = min(wall, reached.addingReportingOverflow(2 * passed).partialValue)
        return reached
    }

    /// How far the wall clock is ahead.
    func lag(wall: Int64) -> Duration { .microseconds(max(0, wall - reached)) }
}
