/// Progress of a replay, and the reason why it ended.
public struct ReplayReport: Sendable, Equatable {
    public enum End: Sendable, Equatable {
        case whole
        case interrupted
        /// The user answered a question of the player with "stop".
        case stopped
        case conflict
    }

    public var end = End.whole
    public var transactions: UInt64 = 0
    public var changes: UInt64 = 0
    /// Number of transactions that the player skipped because of a conflict.
    public var skipped: UInt64 = 0
    /// The first conflicts of the replay. At most `mostConflicts` are kept.
    public private(set) var conflicts: [ReplayConflict] = []
    /// Offset in the log at which the uncommitted transaction begins; nil if the last transaction was committed. A
    /// later replay can continue there.
    public var next: UInt64?

    /// Maximum number of conflicts that are kept.
    private static let mostConflicts = 20

    mutating func add(_ conflict: ReplayConflict) {
        if conflicts.count < Self.mostConflicts { conflicts.append(conflict) }
    }
}
