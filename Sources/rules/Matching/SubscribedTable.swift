/// One version of a table with subscriptions: its columns as the catalog had them when its predicates were made.
struct SubscribedTable: ~Copyable {
    let oid: UInt32
    let slots: [String: Int]
    var use: SlotUse
    /// Groups of keys: the columns that a change has to look up.
    var groups = Pool<UInt32>()
    /// Columns on which predicates have ranges.
    var ranges = Pool<StretchGroup>()
    /// Nodes that every change matches.
    var always = NodeLists()
    /// Nodes whose predicate every change must evaluate.
    var scan = NodeLists()
    var nodeCount = 0
    /// True if another version has replaced this one. Nothing matches a replaced version, and it is removed with its
    /// last node.
    var isReplaced = false

    /// True if no row of the table leads to a node.
    var isUnused: Bool {
        groups.isEmpty && ranges.isEmpty && always.isEmpty && scan.isEmpty && use.used.isEmpty
    }

    init(oid: UInt32, columns: [String]) {
        self.oid = oid
        slots = Dictionary(columns.enumerated().map { ($1, $0) }) { first, _ in first }
        use = SlotUse(slotCount: columns.count)
    }
}

/// Nodes by the set of operations that they want. A change of one operation visits the lists whose sets have it. No
/// node stands in two lists.
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

    /// Adds a node and returns its place.
    mutating func append(_ node: UInt32, _ operations: OperationSet) -> UInt32 {
        count += 1
        lists[Int(operations.rawValue)].append(node)
        return UInt32(lists[Int(operations.rawValue)].count - 1)
    }

    /// Removes a node and returns the node that moved to its place, if any.
    mutating func remove(at place: UInt32, _ operations: OperationSet) -> UInt32? {
        precondition(count > 0, "a node that stands in no list")
        count -= 1
        let list = Int(operations.rawValue)
        lists[list].swapRemove(at: Int(place))
        return Int(place) < lists[list].count ? lists[list][Int(place)] : nil
    }
}
