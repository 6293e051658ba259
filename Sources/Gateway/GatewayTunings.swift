import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// A channel's token is looked at this often, and when it expires.
    static let tokenCheckInterval = Duration.seconds(300)

    /// Channels whose bindings are looked at again in one turn after the catalog moved.
    static let rebindingsPerTurn = 500

    /// Where the log begins is looked up again after this long, if somebody comes back.
    static let oldestOffsetInterval = Duration.seconds(1)

    /// Where the hub ends, a loop's clients are sent away at least this fast.
    static let leastFarewellsPerSecond = 500
    static let farewellInterval = Duration.milliseconds(20)
}
