/// Subscriptions that want the same of the same table, as one: met once by a change, whoever they are.
struct Node: BitwiseCopyable {
    /// The way in which a change finds the node.
    enum Access: UInt8, BitwiseCopyable {
        case never
        case always
        /// By its only key, which says all: who finds it has matched it.
        case settled
        /// By one of its keys, any of which says all.
        case keyed
        /// By one of its keys; then the predicate is asked.
        case keyedThenJudged
        /// By the range of a column's values; then the predicate is asked.
        case ranged
        /// By trying.
        case scan

        var hasKeys: Bool { self == .settled || self == .keyed || self == .keyedThenJudged }
        var looksAtRows: Bool { hasKeys || self == .ranged || self == .scan }
    }

    /// The first field: a span of members begins where the node does.
    var members = MemberList()
    /// The last change that met it, so that one with two of its keys meets it once.
    var stamp: UInt32 = 0
    var predicate: UInt32
    var table: UInt32
    /// Its first link, or where it stands in the list of its table or among the ranges.
    var place: UInt32 = .max
    /// Its hash, by which it is found when the same is wanted again.
    var identity: UInt32
    var operations: OperationSet
    var access: Access
}

extension OperationSet: BitwiseCopyable {}

/// That a node is found by a key: an element of the key's list of nodes and of the node's list of keys.
struct Link: BitwiseCopyable {
    var key: UInt32
    var node: UInt32
    var next: UInt32
    var previous: UInt32
    var nextOfNode: UInt32
    /// The node's, so that a node that does not want the operation is not even looked at.
    var operations: OperationSet
    var access: Node.Access
}

extension UInt32 {
    /// No element of a slab.
    static var none: UInt32 { .max }
}
