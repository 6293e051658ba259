/// How far a replay has come, and how it ended.
public struct ReplayReport: Sendable, Equatable {
    public enum End: Sendable, Equatable {
        case whole
        case interrupted
        /// Somebody said so.
        case stopped
        case conflict
    }

    public var end = End.whole
    public var transactions: UInt64 = 0
    public var changes: UInt64 = 0
    /// Transactions that were left out because of conflicts.
    public var skipped: UInt64 = 0
    /// The first of the conflicts.
    public private(set) var conflicts: [ReplayConflict] = []
    /// Where the transaction begins that was not played; nil between transactions.
    public var next: UInt64?

    /// The others are counted only.
    private static let mostConflicts = 20

    mutating func add(_ conflict: ReplayConflict) {
        if conflicts.count < Self.mostConflicts { conflicts.append(conflict) }
    }
}
