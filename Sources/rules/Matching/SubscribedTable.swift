/// Version of a table that has subscriptions, with the columns that the catalog had when the predicates were made.
struct SubscribedTable: ~Copyable {
    let oid: UInt32
    let slots: [String: Int]
    var use: SlotUse
    /// Numbers of the key groups: the columns whose values must be looked up for each change.
    var groups = Pool<UInt32>()
    /// Search trees of the columns on which predicates have ranges.
    var ranges = Pool<StretchGroup>()
    /// Nodes that match every change.
    var always = NodeLists()
    /// Nodes whose predicate must be evaluated for every change.
    var scan = NodeLists()
    var nodeCount = 0
    /// True if another version has replaced this one. Changes match no node of it, and it is removed with its last
    /// node.
    var isReplaced = false

    /// True if the table leads no row to any node.
    var isUnused: Bool {
        groups.isEmpty && ranges.isEmpty && always.isEmpty && scan.isEmpty && use.used.isEmpty
    }

    init(oid: UInt32, columns: [String]) {
        self.oid = oid
        slots = Dictionary(columns.enumerated().map { ($1, $0) }) { first, _ in first }
        use = SlotUse(columnCount: columns.count)
    }
}

/// Nodes of a table in a separate list for each set of operations that nodes want. A change visits the lists whose set
/// has its operation. Each node is in one list.
struct NodeLists: ~Copyable {
    private var lists = Pool<Pool<UInt32>>(capacity: 8)
    private(set) var count = 0

    init() {
        for _ in 0..<8 { lists.append(Pool()) }
    }

    var isEmpty: Bool { count == 0 }

    @inline(__always)
    func nodeCount(_ operations: OperationSet) -> Int { lists[Int(operations.rawValue)].count }

    @inline(__always)
    func node(_ operations: OperationSet, _ index: Int) -> UInt32 { lists[Int(operations.rawValue)][index] }

    /// Adds a node and returns its place in the list.
    mutating func append(_ node: UInt32, _ operations: OperationSet) -> UInt32 {
        count += 1
        lists[Int(operations.rawValue)].append(node)
        return UInt32(lists[Int(operations.rawValue)].count - 1)
    }

    /// Removes the node at this place. Returns the node that moved to its place, if any.
    mutating func remove(at place: UInt32, _ operations: OperationSet) -> UInt32? {
        precondition(count > 0, "a node that stands in no list")
        count -= 1
        let list = Int(operations.rawValue)
        lists[list].swapRemove(at: Int(place))
        return Int(place) < lists[list].count ? lists[list][Int(place)] : nil
    }
}
