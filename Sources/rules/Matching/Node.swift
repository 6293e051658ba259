/// Group of subscriptions that want the same of the same table. A change is matched once for all of them.
struct Node: BitwiseCopyable {
    /// The way in which a change finds the node.
    enum Access: UInt8, BitwiseCopyable {
        case never
        case always
        /// Search by the node's only key, which decides alone: a change with the key matches.
        case settled
        /// Search by one of the node's keys, each of which decides alone.
        case keyed
        /// Search by one of the node's keys; then the predicate is evaluated.
        case keyedThenJudged
        /// Search by the range of a column's values; then the predicate is evaluated.
        case ranged
        /// Evaluation of the predicate for every change.
        case scan

        var hasKeys: Bool { self == .settled || self == .keyed || self == .keyedThenJudged }
        var looksAtRows: Bool { hasKeys || self == .ranged || self == .scan }
    }

    /// Members of the node. First field, because a span of members begins where the node does.
    var members = MemberList()
    /// Stamp of the last change that reached the node, so that a change with two of its keys reaches the node once.
    var stamp: UInt32 = 0
    var predicate: UInt32
    var table: UInt32
    /// First link, or the node's place in the list of its table or among the ranges.
    var place: UInt32 = .max
    /// Hash by which the node is found when another subscription wants the same.
    var identity: UInt32
    var operations: OperationSet
    var access: Access
}

extension OperationSet: BitwiseCopyable {}

/// Connection of a node with a key: an element of the key's list of nodes and of the node's list of keys.
struct Link: BitwiseCopyable {
    var key: UInt32
    var node: UInt32
    var next: UInt32
    var previous: UInt32
    var nextOfNode: UInt32
    /// Operations of the node, so that a node that does not want the operation is not even read.
    var operations: OperationSet
    var access: Node.Access
}

extension UInt32 {
    /// Number of no element of a slab.
    static var none: UInt32 { .max }
}
