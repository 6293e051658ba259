/// Positions in the WAL at which a table's memberships (rows that decide what others see) cannot be determined.
public struct UnknownPast: Sendable, Equatable {
    /// Position before which the table's memberships are unknown.
    fileprivate var knownFrom: LSN = .zero
    /// Positions of an earlier time in which the hub followed the table. They are unknown, because the hub then stopped
    /// following it. Nil if it never stopped.
    fileprivate var interrupted: Range<LSN>?

    /// Value for a table of which every position is known.
    public static let none = UnknownPast()

    public func contains(_ position: LSN) -> Bool {
        position < knownFrom || interrupted?.contains(position) ?? false
    }
}

/// Unknown positions (`UnknownPast`) of all tables.
public struct UnknownPasts: Sendable, Equatable {
    /// Position before which the memberships of every table are unknown; nil until the hub knows the end of the WAL.
    public var knownFrom: LSN?
    /// Positions of an earlier time in which the hub followed a table, by the table's OID. They are unknown, because
    /// the hub then stopped following it.
    public var interrupted: [UInt32: Range<LSN>] = [:]

    /// Value if every position of every table is known.
    public static let none = UnknownPasts(knownFrom: .zero)

    public init(knownFrom: LSN?) { self.knownFrom = knownFrom }

    public func of(_ table: UInt32) -> UnknownPast {
        UnknownPast(knownFrom: knownFrom ?? LSN(UInt64.max), interrupted: interrupted[table])
    }

    /// Records that the hub followed the table from `first` on, and that at `last` it no longer does, or not without a
    /// break.
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
