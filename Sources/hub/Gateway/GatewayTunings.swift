import Diagnostics

/// Internal tunings of the gateway's time and memory. No document promises them. The maxima are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Longest time between two checks of a channel's token. The token is also checked when it expires.
    static let tokenCheckInterval = Duration.seconds(300)

    /// Number of channels whose bindings are resolved again in one turn after the catalog changed.
    static let rebindingsPerTurn = 500

    /// Shortest time between two look-ups of the log's first offset.
    static let oldestOffsetInterval = Duration.seconds(1)

    /// Number of channels in one step of a sweep over positions, and the time between two steps.
    static let standingsPerStep: UInt32 = 1024
    static let standingStepInterval = Duration.milliseconds(10)

    /// Number of topics per socket that are remembered as joined by a client that was connected before. For a topic
    /// beyond this, the client is told again that the hub does not know what it received.
    static let joinedTopics = 256
    /// Number of ended channels per socket whose sent positions are remembered. A channel beyond this that joins again
    /// is told that the hub does not know.
    static let endedChannels = 256

    /// Lowest rate at which a loop sends its clients away when the hub stops.
    static let leastFarewellsPerSecond = 500
    static let farewellInterval = Duration.milliseconds(20)
    /// Time to wait for closing sockets when the hub must stop at once.
    static let hurriedDrainLimit = Duration.milliseconds(500)

    /// Time for which the ledger does not note the same refusal of the same user again.
    static let refusalNoteInterval = Duration.seconds(60)
    /// Number of different refusals of a user that the ledger notes in that time.
    static let refusalsOfUser = 16
    /// Number of users whose refusals a loop remembers for that.
    static let usersWithRefusals = 1024
    /// Number of changes in the log below which ledger notes are not repeated.
    static let restatedAfterChanges: UInt64 = 1000
    /// Number of channels whose ledger notes may be repeated in one sweep.
    static let restatedPerSweep = 2048
}
