import Diagnostics

/// Tunings of time and memory for this module. They are not documented for users. The limits are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Maximum time between two checks of a channel's token. It is also checked when it expires.
    static let tokenCheckInterval = Duration.seconds(300)

    /// Maximum number of channels that a follower binds again in one turn, after the catalog changed.
    static let rebindingsPerTurn = 500

    /// Pause before the hub reads rows again for channels whose rows did not show a commit that the log has.
    static let readAgainInterval = Duration.seconds(1)

    /// Minimum time between two look-ups of the log's beginning.
    static let oldestOffsetInterval = Duration.seconds(1)

    /// Number of channels that one step of a sweep over positions checks.
    static let standingsPerStep: UInt32 = 1024
    /// Pause between two steps of a sweep over positions.
    static let standingStepInterval = Duration.milliseconds(10)

    /// Number of topics for each socket that the hub remembers as joined by a client that was connected before. If the
    /// client joins a topic again that is no longer remembered, the hub tells it again that changes may be missing.
    static let joinedTopics = 256
    /// Number of ended channels for each socket whose sent positions the hub remembers. If the client joins another one
    /// again, the hub tells it that changes may be missing.
    static let endedChannels = 256

    /// Minimum number of clients that a loop disconnects in a second when the hub stops.
    static let leastFarewellsPerSecond = 500
    /// Interval at which a loop disconnects the next clients when the hub stops.
    static let farewellInterval = Duration.milliseconds(20)
    /// Maximum time that the hub waits for sockets to close when it must stop immediately.
    static let hurriedDrainLimit = Duration.milliseconds(500)

    /// Duration for which the ledger does not record the same refusal of the same user again.
    static let refusalNoteInterval = Duration.seconds(60)
    /// Maximum number of different refusals of a user that the ledger records within `refusalNoteInterval`.
    static let refusalsOfUser = 16
    /// Maximum number of users whose refusals a loop remembers.
    static let usersWithRefusals = 1024
    /// Minimum number of changes in the log for which ledger notes are repeated.
    static let restatedAfterChanges: UInt64 = 1000
    /// Maximum number of channels whose ledger notes are repeated in one sweep.
    static let restatedPerSweep = 2048
}
