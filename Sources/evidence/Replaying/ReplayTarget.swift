import History

/// Where a replay goes. What belongs to one transaction comes between `begin` and `commit`, and is there as a whole or not at
/// all.
public protocol ReplayTarget: AnyObject {
    func begin(_ mark: ReplayMark) throws
    func take(_ change: RecordedChange) throws
    func commit() throws
    func rollBack()
}

/// Why a transaction is not replayed: the target has not got what it changes, or has what it makes.
public struct ReplayConflict: Error, Sendable, Equatable, CustomStringConvertible {
    public var offset: UInt64
    /// Nil where it is the transaction's as a whole.
    public var table: TableName?
    /// Without values.
    public var reason: String

    public var description: String { "@\(offset) \(table.map { "\($0): " } ?? "")\(reason)" }
}

/// Who replays does not want to any more.
struct ReplayInterruption: Error {}
