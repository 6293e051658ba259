import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// A channel's token is looked at this often, and when it expires.
    static let tokenCheckInterval = Duration.seconds(300)

    /// Channels whose bindings are looked at again in one turn after the catalog moved.
    static let rebindingsPerTurn = 500

    /// Where the log begins is looked up again after this long, if somebody comes back.
    static let oldestOffsetInterval = Duration.seconds(1)

    /// Where channels stand is looked at in steps of so many, and so much later.
    static let standingsPerStep: UInt32 = 1024
    static let standingStepInterval = Duration.milliseconds(10)

    /// Number of topics per socket that are remembered as joined by a client that was connected before. For a topic beyond
    /// this, the client is told again that the hub does not know what it received.
    static let joinedTopics = 256
    /// Number of ended channels per socket whose sent positions are remembered. A channel beyond this that joins again is told
    /// that the hub does not know.
    static let endedChannels = 256

    /// Where the hub ends, a loop's clients are sent away at least this fast.
    static let leastFarewellsPerSecond = 500
    static let farewellInterval = Duration.milliseconds(20)
    /// Where it is to end at once, it waits so long for sockets to take that they are closed.
    static let hurriedDrainLimit = Duration.milliseconds(500)

    /// In a log of fewer changes nobody is noted again.
    static let restatedAfterChanges: UInt64 = 1000
    /// So many of a loop's channels are noted again each time that all are looked at.
    static let restatedPerSweep = 2048
}
