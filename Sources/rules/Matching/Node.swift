/// Group of subscriptions that want the same changes of the same table. A change is matched once for all of them.
struct Node: BitwiseCopyable {
    /// Way in which a change finds the node.
    enum Access: UInt8, BitwiseCopyable {
        case never
        case always
        /// Lookup of the node's only key. A change with this key always matches.
        case settled
        /// Lookup of one of the node's keys. A change with any of them always matches.
        case keyed
        /// Lookup of one of the node's keys, followed by evaluating the predicate.
        case keyedThenJudged
        /// Search for the range that contains a column's value, followed by evaluating the predicate.
        case ranged
        /// Evaluation of the predicate for every change of the table.
        case scan

        var hasKeys: Bool { self == .settled || self == .keyed || self == .keyedThenJudged }
        var looksAtRows: Bool { hasKeys || self == .ranged || self == .scan }
    }

    /// Members of the node. It is the first field, because a span of members may begin at the node's address.
    var members = MemberList()
    /// Number (`NodeStore.stamp`) of the last change that reached the node. A change that has two of the node's keys
    /// thus reaches it only once.
    var stamp: UInt32 = 0
    /// Number of the node's predicate; `none` if the node has only a key.
    var predicate: UInt32
    var table: UInt32
    /// Number of the node's first link, or its index in the table's list or among the ranges; `access` tells which.
    var place: UInt32 = .max
    /// Hash by which the index finds the node for another subscription that wants the same.
    var identity: UInt32
    var operations: OperationSet
    var access: Access
}

extension OperationSet: BitwiseCopyable {}

/// Connection of a node with a key. It is in two lists: the nodes of the key, and the keys of the node.
struct Link: BitwiseCopyable {
    var key: UInt32
    var node: UInt32
    /// Next link of the same key.
    var next: UInt32
    /// Previous link of the same key.
    var previous: UInt32
    /// Next link of the same node.
    var nextOfNode: UInt32
    /// Operations that the node wants. They are repeated here, so that a node that does not want a change is not read.
    var operations: OperationSet
    var access: Node.Access
}

extension UInt32 {
    /// Number that refers to no element of a slab.
    static var none: UInt32 { .max }
}
