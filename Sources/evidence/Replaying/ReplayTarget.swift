import History

/// Target of a replay. The changes between `begin` and `commit` belong to one transaction, which normally takes effect
/// as a whole or not at all. A hub as the target may accept only a part of a large transaction.
public protocol ReplayTarget: AnyObject {
    func begin(_ mark: ReplayMark) throws
    /// Repeats a change in the transaction that `begin` has begun.
    func take(_ change: RecordedChange) throws
    func commit() throws
    func rollBack()
}

/// Reason why the target cannot take a transaction. For example, it lacks a row that the transaction changes, or
/// already has a row that the transaction inserts.
public struct ReplayConflict: Error, Sendable, Equatable, CustomStringConvertible {
    public var offset: UInt64
    /// Table of the change; nil if the conflict is about the whole transaction.
    public var table: TableName?
    /// Text that describes the conflict, without values of rows.
    public var reason: String

    public var description: String { "@\(offset) \(table.map { "\($0): " } ?? "")\(reason)" }
}

/// Error that ends a replay after the user interrupted it.
struct ReplayInterruption: Error {}
