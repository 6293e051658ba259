/// Positions at which memberships of a table counted as of then, or may have, and cannot be found out any more.
public struct UnknownPast: Sendable, Equatable {
    /// Position before which nothing is known of any table.
    fileprivate var knownFrom: LSN = .zero
    /// Positions from which, and up to which, the table was followed before that was interrupted.
    fileprivate var interrupted: Range<LSN>?

    /// No position at all.
    public static let none = UnknownPast()

    public func contains(_ position: LSN) -> Bool {
        position < knownFrom || interrupted?.contains(position) ?? false
    }
}

/// The same of each table.
public struct UnknownPasts: Sendable, Equatable {
    /// Position before which nothing is known of any table; nil until somebody says where the WAL ends.
    public var knownFrom: LSN?
    /// Positions from which, and up to which, tables were followed before that was interrupted.
    public var interrupted: [UInt32: Range<LSN>] = [:]

    /// Nothing of any table.
    public static let none = UnknownPasts(knownFrom: .zero)

    public init(knownFrom: LSN?) { self.knownFrom = knownFrom }

    public func of(_ table: UInt32) -> UnknownPast {
        UnknownPast(knownFrom: knownFrom ?? LSN(UInt64.max), interrupted: interrupted[table])
    }

    /// The table was followed from `first` on, and at `last` it is not, or not without a break.
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
