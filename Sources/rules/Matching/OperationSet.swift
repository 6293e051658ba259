import Change

/// The operations on rows that a subscription wants to hear of.
public struct OperationSet: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) { self.rawValue = rawValue & 7 }

    public static let insert = OperationSet(rawValue: 1)
    public static let update = OperationSet(rawValue: 2)
    public static let delete = OperationSet(rawValue: 4)
    public static let all: OperationSet = [.insert, .update, .delete]

    /// Each set that is not empty.
    @inline(__always)
    static var sets: some Sequence<OperationSet> { (1...7).lazy.map { OperationSet(rawValue: $0) } }

    /// Empty for what is no row's.
    init(_ operation: Operation) {
        switch operation {
        case .insert: self = .insert
        case .update: self = .update
        case .delete: self = .delete
        case .truncate, .message: self = []
        }
    }
}
