import History

/// Target of a replay. The changes between `begin` and `commit` belong to one transaction, which takes effect as a
/// whole or not at all.
public protocol ReplayTarget: AnyObject {
    func begin(_ mark: ReplayMark) throws
    func take(_ change: RecordedChange) throws
    func commit() throws
    func rollBack()
}

/// Reason why a transaction cannot be replayed: the target lacks a row that it changes, or already has a row that it
/// makes.
public struct ReplayConflict: Error, Sendable, Equatable, CustomStringConvertible {
    public var offset: UInt64
    /// Nil if the conflict concerns the transaction as a whole.
    public var table: TableName?
    /// Text without any values of rows.
    public var reason: String

    public var description: String { "@\(offset) \(table.map { "\($0): " } ?? "")\(reason)" }
}

/// Error that ends a replay because the user interrupted it.
struct ReplayInterruption: Error {}
