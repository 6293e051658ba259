/// Positions at which memberships of a table mattered, or may have, and can no longer be determined.
public struct UnknownPast: Sendable, Equatable {
    /// Position before which the past of the table is unknown.
    fileprivate var knownFrom: LSN = .zero
    /// Positions during which the table was followed, before that was interrupted.
    fileprivate var interrupted: Range<LSN>?

    /// A past without unknown positions.
    public static let none = UnknownPast()

    public func contains(_ position: LSN) -> Bool {
        position < knownFrom || interrupted?.contains(position) ?? false
    }
}

/// Unknown pasts of all tables.
public struct UnknownPasts: Sendable, Equatable {
    /// Position before which the past of every table is unknown; nil until the end of the WAL is known.
    public var knownFrom: LSN?
    /// Positions during which tables were followed, before that was interrupted.
    public var interrupted: [UInt32: Range<LSN>] = [:]

    /// Pasts of tables of which every position is known.
    public static let none = UnknownPasts(knownFrom: .zero)

    public init(knownFrom: LSN?) { self.knownFrom = knownFrom }

    public func of(_ table: UInt32) -> UnknownPast {
        UnknownPast(knownFrom: knownFrom ?? LSN(UInt64.max), interrupted: interrupted[table])
    }

    /// Records that the table was followed from `first` on and is not followed at `last`, or not without a break.
    public mutating func interrupt(_ table: UInt32, from first: LSN, to last: LSN) {
        guard first < last else { return }
        let known = interrupted[table]
        interrupted[table] = min(known?.lowerBound ?? first, first)..<max(known?.upperBound ?? last, last)
        guard interrupted.count > Self.maximumInterrupted else { return }
        interrupted = [:]
        knownFrom = last
    }

    private static let maximumInterrupted = 65_536
}
