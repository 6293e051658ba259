/// Progress of a replay, and the reason of its end.
public struct ReplayReport: Sendable, Equatable {
    public enum End: Sendable, Equatable {
        case whole
        case interrupted
        /// The user stopped the replay at a question.
        case stopped
        case conflict
    }

    public var end = End.whole
    public var transactions: UInt64 = 0
    public var changes: UInt64 = 0
    /// Number of transactions that the player skipped because of a conflict.
    public var skipped: UInt64 = 0
    /// First conflicts; at most `mostConflicts` are kept.
    public private(set) var conflicts: [ReplayConflict] = []
    /// Offset at which the transaction begins that was begun last and not committed; nil if the last one was committed.
    public var next: UInt64?

    /// Maximum number of conflicts that are kept.
    private static let mostConflicts = 20

    mutating func add(_ conflict: ReplayConflict) {
        if conflicts.count < Self.mostConflicts { conflicts.append(conflict) }
    }
}
