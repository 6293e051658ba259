import Change

/// Set of row operations that a subscription wants to receive.
public struct OperationSet: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) { self.rawValue = rawValue & 7 }

    public static let insert = OperationSet(rawValue: 1)
    public static let update = OperationSet(rawValue: 2)
    public static let delete = OperationSet(rawValue: 4)
    public static let all: OperationSet = [.insert, .update, .delete]

    /// Sequence of all sets that are not empty.
    @inline(__always)
    static var sets: some Sequence<OperationSet> { (1...7).lazy.map { OperationSet(rawValue: $0) } }

    /// Creates the set of one operation. It is empty for an operation that does not concern a single row.
    init(_ operation: Operation) {
        switch operation {
        case .insert: self = .insert
        case .update: self = .update
        case .delete: self = .delete
        case .truncate, .message: self = []
        }
    }
}
