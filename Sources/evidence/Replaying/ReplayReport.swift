/// Progress of a replay, and how it ended.
public struct ReplayReport: Sendable, Equatable {
    public enum End: Sendable, Equatable {
        case whole
        case interrupted
        /// The user stopped the replay.
        case stopped
        case conflict
    }

    public var end = End.whole
    public var transactions: UInt64 = 0
    public var changes: UInt64 = 0
    /// Number of transactions that were skipped because of conflicts.
    public var skipped: UInt64 = 0
    /// First conflicts, up to a limit.
    public private(set) var conflicts: [ReplayConflict] = []
    /// Offset of the transaction that was not played to its end; nil between transactions.
    public var next: UInt64?

    /// Maximum number of conflicts to keep.
    private static let mostConflicts = 20

    mutating func add(_ conflict: ReplayConflict) {
        if conflicts.count < Self.mostConflicts { conflicts.append(conflict) }
    }
}
